"""Rollouts with a policy in the loop, differentiable with respect to it: autograd code, besides `operators`.

Three ways. A small `MLP` is evaluated by the kernel that steps (`compiled`). A larger one is evaluated by torch, whose
matrix products are faster (`by_torch`): only the states are kept, and the backward pass computes the neurons of some
steps at once, and from these the gradients of the weights. Any other function of the state is called between steps, and
autograd records what it does (`around`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import evaluation, operators
from .model import State
from .pages import empty
from .physics.policy import Watching
from .physics.poses import POSE
from .policy import MLP, Policy, Sensor, View, network_table
from .program import Program

if TYPE_CHECKING:
    from .simulator import _Call

CHUNK = 512  # rows (steps x environments) whose neurons the backward pass of `by_torch` keeps at a time
Outcome = tuple[Tensor, ...]
"""status [T, B, n], last_q, last_v, path_q, path_v, controls [T, B, nu]"""


class _Refusing(torch.autograd.Function):
    """A gradient that cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, gradient: Tensor) -> Tensor:
        return gradient.clone()

    backward = operators._PullBack.backward


def _first_only(backward: Callable[..., tuple]) -> Callable[..., tuple]:
    """Of a backward pass that autograd cannot see into: its results refuse to be differentiated again."""

    def first(ctx: Any, *bars: Any) -> tuple:
        again = torch.is_grad_enabled()
        with torch.no_grad():
            results = backward(ctx, *bars)
        if not again:
            return results
        anchor = torch.zeros((), requires_grad=True)
        return tuple(None if x is None else _Refusing.apply(anchor, x) for x in results)

    return first


def transformed() -> bool:
    """Inside torch.func, torch.compile or forward-mode derivatives."""
    functorch = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    return functorch or operators._traced()


def refuse_transforms() -> None:
    if transformed():
        raise NotImplementedError(
            "rollout(policy=...) is not possible inside torch.func, torch.compile or forward-mode derivatives: use "
            "backward() or torch.autograd.grad, or a loop of Simulator.step"
        )


def view(program: Program, sensors: tuple[Sensor, ...]) -> View:
    if sensors not in program.seen:
        program.seen[sensors] = View(program.model, sensors)
    return program.seen[sensors]


@dataclass(frozen=True)
class Setting:
    """What is the same in all steps of a rollout, and not differentiated."""

    program: Program
    policy: MLP
    seen: View
    ninput: int
    names: str  # of the parameters
    steps: int
    every: int
    truncate: int

    @property
    def nstate(self) -> int:
        return self.program.model.nq + self.program.model.nv


def rollout(
    program: Program, call: _Call, policy: Policy, inputs: Tensor | None, wrenches: Tensor | None, steps: int,
    every: int, truncate: int,
) -> Outcome:  # fmt: skip
    """The rollout of `call`'s state; controls are what the policy says."""
    refuse_transforms()
    if program.model.nu == 0:
        raise ValueError("the model has no motors: a policy has nothing to control")
    if not isinstance(policy, MLP):
        if not callable(policy):
            raise TypeError(f"policy must be an MLP or a function of (state, t), got {type(policy).__name__}")
        _refuse_checkpoints(every, "a function")
        return around(program, call, policy, wrenches, steps, truncate)
    if inputs is not None:
        width = inputs.shape[-1] if inputs.ndim in (2, 3) else 0
        inputs = call.tensor("inputs", inputs, (width,), steps)
    seen, ninput = view(program, policy.sensors), 0 if inputs is None else inputs.shape[-1]
    _check(program, policy, seen, ninput)
    setting = Setting(program, policy, seen, ninput, call.names, steps, every, truncate)
    tensors = (call.q, call.v, inputs, wrenches, call.constants)
    if policy.in_kernel:
        return compiled(setting, *tensors)
    _refuse_checkpoints(every, "an MLP that torch evaluates (compiled=False, or many weights)")
    return by_torch(setting, *tensors)


def _check(program: Program, policy: MLP, seen: View, ninput: int) -> None:
    if type(policy).forward is not MLP.forward:
        name = type(policy).__name__
        raise TypeError(f"{name} has a forward of its own, which kernels do not know: pass a function of (state, t)")
    names = [*seen.names, *([("inputs", ninput)] if ninput else [])]
    if policy.sizes[0] != seen.size + ninput:
        parts = " + ".join(f"{size} ({name})" for name, size in names) or "nothing"
        raise ValueError(
            f"the policy takes {policy.sizes[0]} observations, but there are {seen.size + ninput}: {parts}"
        )
    if policy.sizes[-1] != program.model.nu:
        raise ValueError(f"the policy has {policy.sizes[-1]} outputs, but the model {program.model.nu} motors")
    _check_layers(policy)
    if policy.dtype != program.dtype:
        raise TypeError(f"the policy has dtype {policy.dtype}, the simulator {program.dtype}")
    if any(x.device.type != "cpu" for x in policy.parameters()):
        raise ValueError("an MLP must be on the cpu: its weights are read there")


def _check_layers(policy: MLP) -> None:
    """Kernels read as many weights as the sizes say, whatever has become of the layers."""
    found = [(tuple(x.weight.shape), x.weight.dtype, x.bias is not None) for x in policy.linear]
    expected = [((m, n), policy.dtype, policy.bias) for n, m in itertools.pairwise(policy.sizes)]
    if found != expected:
        shapes = [shape for shape, _, _ in found]
        raise ValueError(
            f"the policy's layers were changed: they are {shapes} (dtype, bias: {[rest for _, *rest in found]}), "
            f"expected {[shape for shape, _, _ in expected]} ({[rest for _, *rest in expected]})"
        )


def _refuse_checkpoints(every: int, what: str) -> None:
    if every > 1:
        raise NotImplementedError(f"adjoint=Checkpoint(...) with {what} as policy: every state is needed")


def observe(program: Program, q: Tensor, v: Tensor, sensors: Sequence[Sensor]) -> Tensor:
    """[B, n] of q [B, nq] and v [B, nv]."""
    seen = view(program, tuple(tuple(sensor) if isinstance(sensor, list) else sensor for sensor in sensors))
    if not seen.poses:
        return seen.observe(q, v, None)
    if not transformed():
        quick = evaluation.quick_poses(program, q, v)
        if quick is not None:
            return _Observe.apply(program, seen, q, v, quick)
    (poses,) = operators.evaluate("poses", q.unsqueeze(0), v.unsqueeze(0), None, None, None, program.number, "", [])
    return seen.observe(q, v, poses.squeeze(0))


class _Observe(torch.autograd.Function):
    """What is seen of a state whose poses are known already."""

    @staticmethod
    def forward(ctx: Any, program: Program, seen: View, q: Tensor, v: Tensor, poses: Tensor) -> Tensor:
        ctx.program, ctx.seen = program, seen
        ctx.save_for_backward(q, v)
        return seen.observe(q, v, poses)

    @staticmethod
    @_first_only
    def backward(ctx: Any, bar: Tensor) -> tuple:
        q, v = ctx.saved_tensors
        return None, None, *_look_back(ctx.program, ctx.seen, q, v, bar), None


def _look_back(program: Program, seen: View, q: Tensor, v: Tensor, bar: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients with respect to q and v from that with respect to what is seen, quickly."""
    nq, start = q.shape[-1], q.shape[-1] + v.shape[-1]
    numbers = seen.pull_back(bar, start + program.model.nlink * sum(POSE))
    q_bar, v_bar = evaluation.quick_poses_back(program, q, v, numbers[:, start:])
    return q_bar.add_(numbers[:, :nq]), v_bar.add_(numbers[:, nq:start])


# ---------------------------------------------------------------------------------------------- by kernels


def compiled(
    setting: Setting, q: Tensor, v: Tensor, inputs: Tensor | None, wrenches: Tensor | None, constants: Tensor | None
) -> Outcome:
    """The whole rollout in one call, and its gradient in another."""
    tensors = (q, v, inputs, setting.policy.table(), wrenches, constants)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        return _Compiled.apply(setting, *tensors)
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
    watching = Watching(inputs is not None, bool(setting.seen.poses))
    integers = {"steps": setting.steps, "every": setting.every}
    program.run("policy_rollout", len(q), rows, integers, constants, setting.names, watching, tables)
    if program.nonfinite == "raise":
        evaluation.report_motion(reported, outputs["controls"], outputs["status"], program.limited)
    return tuple(outputs.values())


def weights_by_name(policy: MLP) -> dict[str, Tensor]:
    return {f"the policy's {name}": x.detach() for name, x in policy.named_parameters()}


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, setting: Setting, *tensors: Any) -> Outcome:
        inputs, weights, wrenches, constants = tensors[2:]
        learned, fitted = ctx.needs_input_grad[4], ctx.needs_input_grad[6]
        batched = constants is not None and constants.ndim == 2
        watching = Watching(inputs is not None, bool(setting.seen.poses), learned)
        kernel = "policy_checkpoint_adjoint" if setting.every > 1 else "policy_rollout_adjoint"
        setting.program.prepare(kernel, wrenches is not None, fitted, batched, setting.names, watching)
        outputs = _run(setting, *tensors)
        ctx.setting, ctx.kernel, ctx.watching = setting, kernel, watching
        ctx.save_for_backward(*outputs[3:], inputs, weights, wrenches, constants)
        ctx.mark_non_differentiable(outputs[0])
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    @_first_only
    def backward(ctx: Any, *bars: Tensor | None) -> tuple:
        path_q, path_v, controls, inputs, weights, wrenches, constants = ctx.saved_tensors
        setting, kernel, watching = ctx.setting, ctx.kernel, ctx.watching
        program, batch = setting.program, path_q.shape[1]
        _, last_q_bar, last_v_bar, path_q_bar, path_v_bar, controls_bar = bars
        rows = {"path_q": path_q[:-1], "path_v": path_v[:-1], "controls": controls}
        for name, path, bar, last_bar in (("q", path_q, path_q_bar, last_q_bar), ("v", path_v, path_v_bar, last_v_bar)):
            rows[f"path_{name}_bar"] = _or_zeros(None if bar is None else bar[1:], path[1:].shape, path)
            rows[f"last_{name}_bar"] = _or_zeros(last_bar, path[0].shape, path)
        rows["last_v"] = path_v[-1]
        rows["controls_bar"] = _or_zeros(controls_bar, controls.shape, controls)
        results = {"q_bar": torch.empty_like(path_q[0]), "v_bar": torch.empty_like(path_v[0])}
        if inputs is not None:
            rows["inputs"], results["inputs_bar"] = inputs, empty(inputs.shape, inputs.dtype)
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


def _or_zeros(bar: Tensor | None, shape: Sequence[int], like: Tensor) -> Tensor:
    """The gradient, or zeros that take no memory."""
    return operators._zeros(shape, like) if bar is None else bar


# ---------------------------------------------------------------------------------------------- steps between


class Stepper:
    """Steps, one at a time, whose states and status are rows of arrays made beforehand.

    path_q [T + 1, B, nq], path_v [T + 1, B, nv], controls [T, B, nu], status [T, B, n]
    """

    def __init__(
        self, program: Program, q: Tensor, v: Tensor, steps: int, wrenches: Tensor | None, constants: Tensor | None,
        names: str,
    ) -> None:  # fmt: skip
        model, batch = program.model, len(q)
        controls = q.new_empty(1).expand(steps, batch, model.nu)
        evaluation.check("rollout", program.number, [steps, 1, 0, 1], q, v, controls, wrenches, constants)
        self.program, self.steps, self.batch, self.names = program, steps, batch, names
        self.wrenches, self.constants = wrenches, constants
        sizes = {"path_q": (steps + 1, model.nq), "path_v": (steps + 1, model.nv), "controls": (steps, model.nu)}
        sizes["status"] = (steps, program.status_size)
        arrays = {name: empty((time, batch, n), q.dtype) for name, (time, n) in sizes.items()}
        self.path_q, self.path_v, self.controls, self.status = arrays.values()
        self.path_q[0], self.path_v[0] = q.detach(), v.detach()
        self.quick = wrenches is None and constants is None and program.quick(batch)
        self.addresses = {name: x.data_ptr() for name, x in arrays.items()}
        self.strides = {name: x.stride(0) * x.element_size() for name, x in arrays.items()}

    def advance(self, t: int) -> None:
        """Step t, with the controls of its row."""
        if self.quick:
            at = {name: address + t * self.strides[name] for name, address in self.addresses.items()}
            last_q, last_v = at["path_q"] + self.strides["path_q"], at["path_v"] + self.strides["path_v"]
            self.program.step_call(
                self.batch, q=at["path_q"], v=at["path_v"], controls=at["controls"], status=at["status"],
                last_q=last_q, last_v=last_v, path_q=last_q, path_v=last_v,
            )  # fmt: skip
            return
        after = {"path_q": self.path_q[t + 1 : t + 2], "path_v": self.path_v[t + 1 : t + 2]}
        rows = {"q": self.path_q[t], "v": self.path_v[t], "controls": self.controls[t : t + 1]} | after
        rows |= {"last_q": self.path_q[t + 1], "last_v": self.path_v[t + 1], "status": self.status[t : t + 1]}
        if self.wrenches is not None:
            rows["wrenches"] = self.wrenches[t : t + 1]
        self.program.run("rollout", self.batch, rows, {"steps": 1, "every": 1}, self.constants, self.names)

    def report(self, **inputs: Tensor | None) -> None:
        if self.program.nonfinite == "raise":
            given = {name: x for name, x in inputs.items() if x is not None}
            evaluation.report_motion(given, self.controls, self.status, self.program.limited)


def step_back(
    program: Program, names: str, q: Tensor, v: Tensor, u: Tensor, wrench: Tensor | None, constants: Tensor | None,
    q_bar: Tensor, v_bar: Tensor, want_constants: bool,
) -> list[Tensor]:  # fmt: skip
    """From the gradients after a step from (q, v): those with respect to q, v, u, wrench, constants (if wanted)."""
    if wrench is None and constants is None:
        quick = evaluation.quick_step_back(program, q, v, u, q_bar, v_bar)
        if quick is not None:
            return list(quick)
    last_v = operators.unknown(v)
    q, v, u = q.unsqueeze(0), v.unsqueeze(0), u.unsqueeze(0)
    wrenches = None if wrench is None else wrench.unsqueeze(0)
    bars = (operators._zeros(q.shape, q), operators._zeros(v.shape, v), q_bar, v_bar, last_v)
    args = (constants, program.number, names, operators.ONE_STEP, want_constants, *bars)
    q_bar, v_bar, u_bar, *others = evaluation.pull_back("rollout", q, v, u, wrenches, *args)
    if wrenches is not None:
        others[0] = others[0].squeeze(0)
    return [q_bar, v_bar, u_bar.squeeze(0), *others]


# ---------------------------------------------------------------------------------------------- by torch


def by_torch(
    setting: Setting, q: Tensor, v: Tensor, inputs: Tensor | None, wrenches: Tensor | None, constants: Tensor | None
) -> Outcome:
    """Step by step; the derivative of the whole is one node of autograd's graph."""
    weights = [x for layer in setting.policy.linear for x in (layer.weight, layer.bias)]
    return _ByTorch.apply(setting, q, v, inputs, wrenches, constants, *weights)


def _poses(setting: Setting, q: Tensor, v: Tensor, constants: Tensor | None) -> Tensor | None:
    """[C, B, n] of q [C, B, nq]"""
    if not setting.seen.poses:
        return None
    if constants is None and len(q) == 1:
        poses = evaluation.quick_poses(setting.program, q[0], v[0])
        if poses is not None:
            return poses.unsqueeze(0)
    number, names = setting.program.number, setting.names
    return evaluation.evaluate("poses", q, v, None, None, constants, number, names, [])[0]


class _ByTorch(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, setting: Setting, q: Tensor, v: Tensor, inputs: Any, wrenches: Any, constants: Any, *weights: Any
    ) -> Outcome:
        stepper = Stepper(setting.program, q, v, setting.steps, wrenches, constants, setting.names)
        for t in range(setting.steps):
            x = _observations(setting, stepper.path_q, stepper.path_v, inputs, constants, slice(t, t + 1))
            stepper.controls[t] = setting.policy(x[0])
            stepper.advance(t)
        stepper.report(q=q, v=v, inputs=inputs, wrenches=wrenches, **weights_by_name(setting.policy))
        path = stepper.path_q, stepper.path_v, stepper.controls
        ctx.setting = setting
        ctx.save_for_backward(*path, inputs, wrenches, constants, *weights)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(stepper.status)
        return stepper.status, path[0][-1].clone(), path[1][-1].clone(), *path

    @staticmethod
    @_first_only
    def backward(ctx: Any, *bars: Tensor | None) -> tuple:
        return (None, *_ByTorchBack(ctx.setting, ctx.saved_tensors, bars, ctx.needs_input_grad[5]).gradients())


def _observations(
    setting: Setting, path_q: Tensor, path_v: Tensor, inputs: Tensor | None, constants: Tensor | None, steps: slice
) -> Tensor:
    """[C, B, sizes[0]] of some steps."""
    q, v = path_q[steps], path_v[steps]
    x = setting.seen.observe(q, v, _poses(setting, q, v, constants))
    return x if inputs is None else torch.cat([x, inputs[steps]], -1)


class _ByTorchBack:
    """The way back over a rollout of a network that torch evaluates."""

    def __init__(
        self, setting: Setting, saved: Sequence[Any], bars: Sequence[Tensor | None], want_constants: bool
    ) -> None:
        self.setting, self.want_constants = setting, want_constants
        self.q, self.v, self.u, self.inputs, self.wrenches, self.constants, *weights = saved
        self.layers = list(zip(weights[::2], weights[1::2], strict=True))
        _, last_q_bar, last_v_bar, self.path_q_bar, self.path_v_bar, self.controls_bar = bars
        self.q_bar = torch.zeros_like(self.q[0]) if last_q_bar is None else last_q_bar.clone()
        self.v_bar = torch.zeros_like(self.v[0]) if last_v_bar is None else last_v_bar.clone()
        self.totals = [[None if x is None else torch.zeros_like(x) for x in layer] for layer in self.layers]
        self.inputs_bar, self.wrenches_bar = (
            None if x is None else empty(x.shape, x.dtype) for x in (self.inputs, self.wrenches)
        )
        self.constants_bar = torch.zeros_like(self.constants) if want_constants else None

    def gradients(self) -> list[Tensor | None]:
        rows, steps = max(1, CHUNK // self.q.shape[1]), self.setting.steps
        for end in range(steps, 0, -rows):
            self._chunk(max(0, end - rows), end)
        self._receive(0)
        weights = [x for total in self.totals for x in total]
        return [self.q_bar, self.v_bar, self.inputs_bar, self.wrenches_bar, self.constants_bar, *weights]

    def _receive(self, t: int) -> None:
        """What the loss says about state t itself."""
        if self.path_q_bar is not None:
            self.q_bar = self.q_bar + self.path_q_bar[t]
        if self.path_v_bar is not None:
            self.v_bar = self.v_bar + self.path_v_bar[t]

    def _chunk(self, start: int, end: int) -> None:
        """Back over the steps from `start` to `end`, whose neurons are computed again, all at once."""
        setting, span = self.setting, slice(start, end)
        neurons = [_observations(setting, self.q, self.v, self.inputs, self.constants, span)]
        for (W, b), kind in zip(self.layers, setting.policy.kinds(), strict=True):
            y = torch.nn.functional.linear(neurons[-1], W, b)
            neurons.append(y if kind == "linear" else y.tanh_() if kind == "tanh" else y.relu_())
        deltas = [torch.empty_like(y) for y in neurons[1:]]
        for t in range(end - 1, start - 1, -1):
            truncate = setting.truncate
            if truncate and (t + 1) % truncate == 0 and t + 1 < setting.steps:
                self.q_bar, self.v_bar = torch.zeros_like(self.q_bar), torch.zeros_like(self.v_bar)
            self._receive(t + 1)
            self._step(t, [y[t - start] for y in neurons], [delta[t - start] for delta in deltas])
        for (W_bar, b_bar), x, delta in zip(self.totals, neurons[:-1], deltas, strict=True):
            delta = delta.flatten(0, 1)
            assert W_bar is not None
            W_bar.addmm_(delta.t(), x.flatten(0, 1))
            if b_bar is not None:
                b_bar += delta.sum(0)

    def _step(self, t: int, neurons: list[Tensor], deltas: list[Tensor]) -> None:
        """Back over step t; fills deltas [B, n], the gradients with respect to W x of the layers."""
        setting, program = self.setting, self.setting.program
        wrench = None if self.wrenches is None else self.wrenches[t]
        self.q_bar, self.v_bar, bar, *others = step_back(
            program, setting.names, self.q[t], self.v[t], self.u[t], wrench, self.constants, self.q_bar, self.v_bar,
            self.want_constants,
        )  # fmt: skip
        if self.wrenches_bar is not None:
            self.wrenches_bar[t] = others[0]
        if self.constants_bar is not None:
            self.constants_bar += others[-1]
        if self.controls_bar is not None:
            bar += self.controls_bar[t]
        layers = zip(self.layers, setting.policy.kinds(), neurons[1:], deltas, strict=True)
        for (W, _), kind, y, delta in reversed(list(layers)):
            if kind == "tanh":
                torch.mul(bar, 1.0 - y * y, out=delta)
            elif kind == "relu":
                torch.mul(bar, y > 0.0, out=delta)
            else:
                delta.copy_(bar)
            bar = delta @ W
        self._look_back(t, bar)

    def _look_back(self, t: int, bar: Tensor) -> None:
        """From the gradient with respect to the observations of step t, [B, n]."""
        setting, model = self.setting, self.setting.program.model
        size, nq, nv = setting.seen.size, model.nq, model.nv
        if self.inputs_bar is not None:
            self.inputs_bar[t] = bar[:, size:]
        poses = bool(setting.seen.poses)
        if poses and self.constants is None and setting.program.quick(len(bar)):
            q_bar, v_bar = _look_back(setting.program, setting.seen, self.q[t], self.v[t], bar[:, :size])
            self.q_bar, self.v_bar = self.q_bar + q_bar, self.v_bar + v_bar
            return
        numbers = setting.seen.pull_back(bar[:, :size], nq + nv + poses * model.nlink * sum(POSE))
        self.q_bar, self.v_bar = self.q_bar + numbers[:, :nq], self.v_bar + numbers[:, nq : nq + nv]
        if poses:
            q, v, bar = self.q[t : t + 1], self.v[t : t + 1], numbers[None, :, nq + nv :]
            number, names, want = setting.program.number, setting.names, self.want_constants
            q_bar, v_bar, *others = evaluation.pull_back(
                "poses", q, v, None, None, self.constants, number, names, [], want, bar
            )
            self.q_bar, self.v_bar = self.q_bar + q_bar[0], self.v_bar + v_bar[0]
            if self.constants_bar is not None:
                self.constants_bar += others[0]


# ---------------------------------------------------------------------------------------------- around steps


def around(
    program: Program, call: _Call, policy: Callable[[State, int], Tensor], wrenches: Tensor | None, steps: int,
    truncate: int,
) -> Outcome:  # fmt: skip
    """Call the policy before every step; autograd records what it does, and a node for every step."""
    stepper = Stepper(program, call.q, call.v, steps, wrenches, call.constants, call.names)
    q, v = call.q, call.v
    as_given = not call.unbatched and call.device.type == "cpu"
    shape = (call.batch, program.model.nu)
    states: list[Tensor] = [q, v]
    controls: list[Tensor] = []
    for t in range(steps):
        if truncate and t and t % truncate == 0:
            q, v = q.detach(), v.detach()
        u = policy(State(q, v) if as_given else State(*call.finished(q, v, dim=0)), t)
        if not (as_given and isinstance(u, Tensor) and u.shape == shape and u.dtype is q.dtype and u.is_cpu):
            u = call.tensor("the policy's control", u, shape[1:])
        controls.append(u)
        q, v = _Step.apply(stepper, t, q, v, u, None if wrenches is None else wrenches[t], call.constants)
        states += q, v
    stepper.report(q=call.q, v=call.v, wrenches=wrenches)
    path_q, path_v = _Rows.apply(stepper.path_q, *states[::2]), _Rows.apply(stepper.path_v, *states[1::2])
    return stepper.status, q, v, path_q, path_v, _Rows.apply(stepper.controls, *controls)


class _Step(torch.autograd.Function):
    """A step of a `Stepper`: its results are in the stepper's arrays."""

    @staticmethod
    def forward(
        ctx: Any, stepper: Stepper, t: int, q: Tensor, v: Tensor, u: Tensor, wrench: Any, constants: Any
    ) -> tuple[Tensor, Tensor]:
        stepper.controls[t] = u
        stepper.advance(t)
        ctx.program, ctx.names = stepper.program, stepper.names
        ctx.save_for_backward(q, v, u, wrench, constants)
        ctx.set_materialize_grads(False)
        return stepper.path_q[t + 1].detach(), stepper.path_v[t + 1].detach()

    @staticmethod
    @_first_only
    def backward(ctx: Any, q_bar: Tensor | None, v_bar: Tensor | None) -> tuple:
        q, v, u, wrench, constants = ctx.saved_tensors
        if q_bar is None and v_bar is None:
            return (None,) * 7
        bars = _or_zeros(q_bar, q.shape, q), _or_zeros(v_bar, v.shape, v)
        want = ctx.needs_input_grad[6]
        q_bar, v_bar, u_bar, *others = step_back(ctx.program, ctx.names, q, v, u, wrench, constants, *bars, want)
        return None, None, q_bar, v_bar, u_bar, others[0] if wrench is not None else None, others[-1] if want else None


class _Rows(torch.autograd.Function):
    """An array whose rows are these tensors already."""

    @staticmethod
    def forward(ctx: Any, array: Tensor, *rows: Tensor) -> Tensor:
        return array.detach()

    @staticmethod
    def backward(ctx: Any, bar: Tensor) -> tuple:
        return None, *bar.unbind(0)
