"""Kernels on tensors, without autograd: tensors are checked, results allocated, the kernel runs, NaN is reported."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..backends import Rows, Table, run
from ..physics.kernels import KernelKey
from ..schema.signatures import Role, Signature
from .pages import empty
from .regroup import LEAST, regrouping
from .report import nothing_to_report, report_motion, require_finite
from .request import Request

if TYPE_CHECKING:
    from ..piles.world import PileRecord

Tensors = dict[str, Tensor]
"""Tensors by the names of their arguments in `schema.signatures`."""


def evaluate(
    request: Request, tensors: Mapping[str, Tensor], keep_steps: bool = False
) -> tuple[Tensors, PileRecord | None]:
    """The results of a form, in the order of its signature, and a record for `vjp`.

    The record is what a rollout of one big world found on its way and its states do not tell: None for all others.
    keep_steps: whole steps go into it, as far as there is room, since the derivative will be wanted; so are the
    solutions of steps among the results then.
    """
    program, signature = request.program, request.signature
    leads = request.check(signature, tensors)
    (batch,) = leads["B"]
    shapes = request.result_shapes(leads)
    if not keep_steps:
        shapes.pop("solution", None)
    outputs = {name: empty(shape, program.dtype) for name, shape in shapes.items()}
    rows = _rows(signature, tensors, outputs)
    integers = request.integers(signature, leads)
    record = None
    if program.sparse is not None and signature.integrates:
        constants = rows.pop("constants", program.constants)
        bounces = program.kernels.bounces(request.parameters)
        record = program.sparse.rollout(batch, rows, integers, constants, bounces, keep_steps)
    else:
        launch(request, signature, batch, rows, integers)
    if program.nonfinite == "raise":
        _report(request, tensors, outputs)
    return outputs, record


def vjp(
    request: Request, tensors: Mapping[str, Tensor], wanted: Collection[str], record: PileRecord | None = None
) -> Tensors:
    """The cotangents of a form's inputs, in the order of its signature: a vector-Jacobian product.

    tensors: those that the adjoint's signature reads. A path is given without its last row: states before the steps (or
    segments). wanted: names of the optional cotangents that are to be computed. record: of the forward pass; without
    it, one big world is rolled out again.
    """
    program, signature = request.program, request.adjoint()
    leads = request.check(signature, tensors)
    (batch,) = leads["B"]
    results: Tensors = {}
    plan, network = request.plan(signature), request.network
    cotangents = request.cotangents(tensors, wanted)
    multiplied = "weights_bar" in wanted and network is not None and network.shaped
    for bar, primal in cotangents:
        shape = (*leads[plan.writes[bar.name].lead], plan.writes[bar.name].size)
        if multiplied and bar.name == "weights_bar":
            results[bar.name] = tensors[primal.name]  # in its place, until it is known
        elif primal.role is Role.PARAMETER:  # kernels fill only the elements that vary
            results[bar.name] = empty(shape, program.dtype).zero_()
        else:
            results[bar.name] = empty(shape, program.dtype)
    rows, integers = {**tensors, **results}, request.integers(signature, leads)
    if multiplied:
        del rows["weights_bar"]
        for name in ("neurons", "neurons_bar"):
            rows[name] = empty((*leads["DB"], plan.writes[name].size), program.dtype)
    if request.clip is not None:
        rows["norms"], request.clip.done = request.clip.norms, True
    if program.sparse is not None and signature.integrates:
        constants = rows.pop("constants", program.constants)
        bounces = program.kernels.bounces(request.parameters)
        program.sparse.rollout_adjoint(batch, rows, integers, constants, bounces, record)
    else:
        launch(request, signature, batch, rows, integers)
    for bar, primal in cotangents:
        if multiplied and bar.name == "weights_bar" and network is not None:
            results[bar.name] = network.weights_bar(rows["neurons"], rows["neurons_bar"], tensors.get("noise"))
        elif primal.role is Role.PARAMETER and tensors[primal.name].ndim == 1:
            # Shared by all environments: the sum, row after row, so that its bits do not depend on threads.
            results[bar.name] = torch.from_numpy(results[bar.name].numpy().sum(axis=0))
    return results


def launch(
    request: Request, signature: Signature, batch: int, rows: Mapping[str, Tensor], integers: Mapping[str, int]
) -> None:
    """Run a kernel. rows: [B, n] or [T, B, n] tensors, and those of its parameters that are given. What solvers found
    is overwritten step after step if nobody keeps it."""
    program, network = request.program, request.network
    if program.solution_size and "solution" not in rows and any(a.role is Role.SOLUTION for a in signature.writes):
        rows = {**rows, "solution": torch.empty(batch, program.solution_size, dtype=program.dtype)}
    if not any(rows[argument.name].numel() for argument in signature.writes if argument.name in rows):
        return  # of no coordinates, in however many environments, there is nothing to compute
    constants = rows.get("constants")
    executable = program.kernels.get(kernel_key(request, signature, rows))
    values: dict[str, Any] = {**program.values, **integers}
    if network is not None:
        values |= network.kernel_values(rows["weights"])
    if "norms" in rows and request.clip is not None:
        values |= request.clip.kernel_values
    in_use: list[Tensor] = []  # copies must live until the kernel has run
    for name, kind in executable.layout:
        if kind is Rows and name in rows:
            x = rows[name]
            strides = x.stride()
            if (strides[-1] != 1 and x.shape[-1] > 1) or x.is_neg() or not x.data_ptr():
                x = _in_memory(x)
                strides = x.stride()
                in_use.append(x)
            values[name] = (x.data_ptr(), strides[-2], strides[0] if len(strides) == 3 else 0)
        elif kind is Table and name == "constants":
            x = program.constants if constants is None else _in_memory(constants)
            in_use.append(x)
            values[name] = x.data_ptr()
    threads = program.threads_for(batch, max(integers.values(), default=1), signature.integrates)
    groups = regrouping(request, signature, batch, executable, values) if batch >= LEAST * threads else None
    run(executable, batch, threads, values, groups)


def kernel_key(request: Request, signature: Signature, names: Mapping[str, Any]) -> KernelKey:
    """The kernel for these arguments; names: all that there are, with the tensor of the constants."""
    constants, network = names.get("constants"), request.network
    return KernelKey(
        signature.form,
        "wrenches" in names,
        "constants_bar" in names,
        constants is not None and constants.ndim == 2,
        request.parameters,
        None if network is None else network.signature(names),
        "solution" in names,
        "norms" in names,
    )


def prepare_vjp(request: Request, tensors: Mapping[str, Tensor], wanted: Collection[str]) -> None:
    """Have the kernel of a rollout's adjoint built while its own is."""
    if request.signature.rollout and request.program.sparse is None:
        names = {**tensors, **dict.fromkeys(wanted), **dict.fromkeys(["solution"] * request.keeps_solution)}
        names |= dict.fromkeys(["norms"] * (request.clip is not None))
        request.program.kernels.prepare(kernel_key(request, request.adjoint(), names))


def _rows(signature: Signature, tensors: Mapping[str, Tensor], outputs: Tensors) -> Tensors:
    """The tensors that a kernel reads and fills. A path starts with a copy of the start, which is not the kernel's."""
    rows = {**tensors, **outputs}
    for argument in signature.writes:
        if argument.start and argument.name in outputs:
            path = outputs[argument.name]
            path[0], rows[argument.name] = tensors[argument.start], path[1:]
        elif argument.start:  # one segment, whose end is the last state
            rows[argument.name] = outputs[argument.end].unsqueeze(0)
    return rows


def _report(request: Request, tensors: Mapping[str, Tensor], outputs: Tensors) -> None:
    signature = request.signature
    if signature.over_time:  # the states of a motion, which was reported on when it was computed
        return

    def inputs() -> Tensors:
        given = {name: x for name, x in tensors.items() if signature.arguments[name].role is not Role.PARAMETER}
        return given if request.network is None else given | request.network.weights_by_name()

    if not signature.status:
        require_finite(inputs())
        return
    status, limited = outputs[signature.status], request.program.limited
    controls = tensors["controls"] if "controls" in tensors else outputs["controls"]
    if "wrenches" in tensors or not nothing_to_report(status, controls, limited):
        report_motion(inputs(), controls, status, limited)


def _in_memory(x: Tensor) -> Tensor:
    """A tensor with each row contiguous and in memory as it is; the rows may lie anywhere, or be the same one."""
    if x.is_neg() or (not x.data_ptr() and x.numel()):  # torch negates it when it is read; zeros that own no memory
        return x.clone(memory_format=torch.contiguous_format)
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()


def track(request: Request, tensors: Mapping[str, Tensor]) -> Tensors:
    """The results of the form "tracking", a rollout with linear feedback; no derivatives, and nothing is reported."""
    if request.program.sparse is not None:
        raise NotImplementedError("backdrive: one big world (sparse=True) has no rollouts with feedback")
    leads = request.check(request.signature, tensors)
    outputs = {name: empty(shape, request.program.dtype) for name, shape in request.result_shapes(leads).items()}
    rows = _rows(request.signature, tensors, outputs)
    launch(request, request.signature, leads["B"][0], rows, request.integers(request.signature, leads))
    return outputs


def jacobians(request: Request, tensors: Mapping[str, Tensor]) -> Tensor:
    """The derivatives of a step, [B, 2 nv, 2 nv + nu]: rows for its displacement, then for v⁺; see `step_jacobian`."""
    leads = request.check(request.signature, tensors)
    (batch,), nv, width = leads["B"], request.program.size("nv"), request.program.size("njacobian")
    result = empty((batch, 2 * nv, width), request.program.dtype)
    step, after = result.transpose(0, 1).split(nv)
    rows = {**tensors, "step": step, "after": after}
    launch(request, request.signature, batch, rows, request.integers(request.signature, leads))
    return result
