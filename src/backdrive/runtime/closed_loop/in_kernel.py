"""A network that the kernel evaluates, which also steps: a rollout is one call, and its gradient another."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...physics.policy import PolicySignature
from ...policy import network_table, watched_poses
from .. import execute as evaluation
from ..pages import empty
from .setting import Outcome, Setting, first_only, or_zeros, weights_by_name


def in_kernel(
    setting: Setting, q: Tensor, v: Tensor, inputs: Tensor | None, wrenches: Tensor | None, constants: Tensor | None
) -> Outcome:
    """The whole rollout in one call, and its gradient in another."""
    tensors = (q, v, inputs, setting.policy.table(), wrenches, constants)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        return _InKernel.apply(setting, *tensors)
    return _run(setting, *tensors)


def _tables(setting: Setting, weights: Tensor) -> dict[str, int]:
    """Addresses and sizes for the kernel."""
    policy, known = setting.policy, setting.program.seen
    key = (policy.sensors, setting.ninput, policy.sizes, *policy.kinds(), policy.bias)
    if key not in known:
        known[key] = network_table(policy, setting.seen, setting.ninput, setting.nstate)
    ints, neurons = known[key]
    tables = {"network": ints.ctypes.data, "weights": weights.data_ptr()}
    return tables | {"nneuron": neurons, "nweight": weights.numel(), "ninput": setting.ninput}


def _watching(setting: Setting, inputs: bool, inputs_bar: bool = False, weights_bar: bool = False) -> PolicySignature:
    """What the kernel must know of the network."""
    policy, known = setting.policy, setting.program.seen
    key = (policy.sensors, policy.bias, setting.names, inputs, inputs_bar, weights_bar)
    if key not in known:
        specialised = setting.seen.poses and setting.program.specializes(setting.names)
        pairs = watched_poses(policy, setting.seen) if specialised else None
        known[key] = PolicySignature(inputs, bool(setting.seen.poses), pairs, inputs_bar, weights_bar)
    return known[key]


def _run(
    setting: Setting, q: Tensor, v: Tensor, inputs: Tensor | None, weights: Tensor, wrenches: Tensor | None,
    constants: Tensor | None,
) -> Outcome:  # fmt: skip
    program = setting.program
    shapes = evaluation.output_shapes("rollout", q, v, program.number, [setting.steps, setting.every, 0, 1])
    shapes["controls"] = (setting.steps, len(q), program.model.nu)
    outputs = {name: empty(shape, q.dtype) for name, shape in shapes.items()}
    outputs["path_q"][0], outputs["path_v"][0] = q, v
    given = {"q": q, "v": v, "inputs": inputs, "wrenches": wrenches}
    rows = {name: x for name, x in given.items() if x is not None}
    reported = rows | weights_by_name(setting.policy)
    rows |= outputs
    rows |= {"path_q": outputs["path_q"][1:], "path_v": outputs["path_v"][1:]}
    tables = _tables(setting, weights)
    watching = _watching(setting, inputs is not None)
    integers = {"steps": setting.steps, "every": setting.every}
    program.run("policy_rollout", len(q), rows, integers, constants, setting.names, watching, tables)
    if program.nonfinite == "raise":
        evaluation.report_motion(reported, outputs["controls"], outputs["status"], program.limited)
    return tuple(outputs.values())


class _InKernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, setting: Setting, *tensors: Any) -> Outcome:
        inputs, weights, wrenches, constants = tensors[2:]
        learned, fitted = ctx.needs_input_grad[4], ctx.needs_input_grad[6]
        batched = constants is not None and constants.ndim == 2
        watching = _watching(setting, inputs is not None, ctx.needs_input_grad[3], learned)
        kernel = "policy_checkpoint_adjoint" if setting.every > 1 else "policy_rollout_adjoint"
        setting.program.prepare(kernel, wrenches is not None, fitted, batched, setting.names, watching)
        outputs = _run(setting, *tensors)
        ctx.setting, ctx.kernel, ctx.watching = setting, kernel, watching
        ctx.save_for_backward(*outputs[3:], inputs, weights, wrenches, constants)
        ctx.mark_non_differentiable(outputs[0])
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    @first_only
    def backward(ctx: Any, *bars: Tensor | None) -> tuple:
        path_q, path_v, controls, inputs, weights, wrenches, constants = ctx.saved_tensors
        setting, kernel, watching = ctx.setting, ctx.kernel, ctx.watching
        program, batch = setting.program, path_q.shape[1]
        _, last_q_bar, last_v_bar, path_q_bar, path_v_bar, controls_bar = bars
        rows = {"path_q": path_q[:-1], "path_v": path_v[:-1], "controls": controls}
        for name, path, bar, last_bar in (("q", path_q, path_q_bar, last_q_bar), ("v", path_v, path_v_bar, last_v_bar)):
            rows[f"path_{name}_bar"] = or_zeros(None if bar is None else bar[1:], path[1:].shape, path)
            rows[f"last_{name}_bar"] = or_zeros(last_bar, path[0].shape, path)
        rows["last_v"] = path_v[-1]
        rows["controls_bar"] = or_zeros(controls_bar, controls.shape, controls)
        results = {"q_bar": torch.empty_like(path_q[0]), "v_bar": torch.empty_like(path_v[0])}
        if inputs is not None:
            rows["inputs"] = inputs
        if watching.inputs_bar:
            results["inputs_bar"] = empty(inputs.shape, inputs.dtype)
        if wrenches is not None:
            rows["wrenches"], results["wrenches_bar"] = wrenches, empty(wrenches.shape, wrenches.dtype)
        if watching.weights_bar:
            results["weights_bar"] = empty((batch, weights.numel()), weights.dtype)
        if constants is not None and ctx.needs_input_grad[6]:
            results["constants_bar"] = torch.zeros(batch, constants.shape[-1], dtype=constants.dtype)
        steps = setting.steps
        integers = {"steps": steps, "truncate": min(setting.truncate or steps + 1, steps + 1)}
        if setting.every > 1:
            integers["every"] = setting.every
        tables = _tables(setting, weights)
        program.run(kernel, batch, rows | results, integers, constants, setting.names, watching, tables)
        for name, shared in (("weights_bar", True), ("constants_bar", constants is not None and constants.ndim == 1)):
            if shared and name in results:  # the sum, row after row, so that its bits do not depend on threads
                results[name] = torch.from_numpy(results[name].numpy().sum(axis=0))
        for name, bar in (("q_bar", path_q_bar), ("v_bar", path_v_bar)):
            if bar is not None:
                results[name] += bar[0]
        names = ("q_bar", "v_bar", "inputs_bar", "weights_bar", "wrenches_bar", "constants_bar")
        return None, *(results.get(name) for name in names)
