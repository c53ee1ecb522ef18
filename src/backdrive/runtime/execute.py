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
from .program import THREAD_WORK
from .report import report_motion, require_finite
from .request import Request

if TYPE_CHECKING:
    from ..piles.rollout import Record

Tensors = dict[str, Tensor]
"""Tensors by the names of their arguments in `schema.signatures`."""


def evaluate(
    request: Request, tensors: Mapping[str, Tensor], keep_steps: bool = False
) -> tuple[Tensors, Record | None]:
    """The results of a form, in the order of its signature, and a record for `vjp`.

    The record is what a rollout of one big world found on its way and its states do not tell: None for all others.
    keep_steps: whole steps go into it, as far as there is room, since the derivative will be wanted.
    """
    program, signature = request.program, request.signature
    lengths = request.check(signature, tensors)
    outputs = {name: empty(tuple(shape), program.dtype) for name, shape in request.result_shapes(lengths).items()}
    rows = _rows(signature, tensors, outputs)
    integers = request.integers(signature, lengths)
    record = None
    if program.sparse is not None and signature.integrates:
        constants = rows.pop("constants", program.constants)
        bounces = program.kernels.bounces(request.parameters)
        record = program.sparse.rollout(lengths["B"], rows, integers, constants, bounces, keep_steps)
    else:
        launch(request, signature, lengths["B"], rows, integers)
    if program.nonfinite == "raise":
        _report(request, tensors, outputs)
    return outputs, record


def vjp(
    request: Request, tensors: Mapping[str, Tensor], wanted: Collection[str], record: Record | None = None
) -> Tensors:
    """The cotangents of a form's inputs, in the order of its signature: a vector-Jacobian product.

    tensors: those that the adjoint's signature reads. A path is given without its last row: states before the steps (or
    segments). wanted: names of the optional cotangents that are to be computed. record: of the forward pass; without
    it, one big world is rolled out again.
    """
    program, signature = request.program, request.adjoint()
    lengths = request.check(signature, tensors)
    results: Tensors = {}
    cotangents = request.cotangents(tensors, wanted)
    for bar, primal in cotangents:
        shape = tuple(request.shape(bar, lengths))
        if primal.role is Role.PARAMETER:  # kernels fill only the elements that vary
            results[bar.name] = torch.zeros(shape, dtype=program.dtype)
        else:
            results[bar.name] = empty(shape, program.dtype)
    rows, integers = {**tensors, **results}, request.integers(signature, lengths)
    if program.sparse is not None and signature.integrates:
        constants = rows.pop("constants", program.constants)
        bounces = program.kernels.bounces(request.parameters)
        program.sparse.rollout_adjoint(lengths["B"], rows, integers, constants, bounces, record)
    else:
        launch(request, signature, lengths["B"], rows, integers)
    for bar, primal in cotangents:
        if primal.role is Role.PARAMETER and tensors[primal.name].ndim == 1:
            # Shared by all environments: the sum, row after row, so that its bits do not depend on threads.
            results[bar.name] = torch.from_numpy(results[bar.name].numpy().sum(axis=0))
    return results


def launch(
    request: Request, signature: Signature, batch: int, rows: Mapping[str, Tensor], integers: Mapping[str, int]
) -> None:
    """Run a kernel. rows: [B, n] or [T, B, n] tensors, and those of its parameters that are given."""
    program, network = request.program, request.network
    constants = rows.get("constants")
    executable = program.kernels.get(kernel_key(request, signature, rows))
    values: dict[str, Any] = {**program.values, **integers}
    if network is not None:
        values |= network.kernel_values(rows["weights"])
    constants = program.constants if constants is None else _with_rows(constants)
    in_use = []  # copies must live until the kernel has run
    for name, kind in executable.layout:
        if kind is Rows:
            tensor = constants if name == "constants" else _with_rows(rows[name])
            if not tensor.data_ptr() and tensor.numel():  # zeros that own no memory
                tensor = tensor.clone(memory_format=torch.contiguous_format)
            in_use.append(tensor)
            strides = tensor.stride()
            values[name] = (tensor.data_ptr(), strides[-2], strides[0] if len(strides) == 3 else 0)
        elif kind is Table and name == "constants":
            constants = constants if constants.data_ptr() else constants.clone()
            values[name] = constants.data_ptr()
    work = batch * max(integers.values(), default=1) * program.model.nlink
    run(executable, batch, min(program.threads, 1 + work // THREAD_WORK), values)


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
    )


def prepare_vjp(request: Request, tensors: Mapping[str, Tensor], wanted: Collection[str]) -> None:
    """Have the kernel of a rollout's adjoint built while its own is."""
    if request.signature.rollout and request.program.sparse is None:
        names = {**tensors, **dict.fromkeys(wanted)}
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
    inputs = {name: x for name, x in tensors.items() if signature.arguments[name].role is not Role.PARAMETER}
    if request.network is not None:
        inputs |= request.network.weights_by_name()
    if signature.status:
        controls = tensors["controls"] if "controls" in tensors else outputs["controls"]
        report_motion(inputs, controls, outputs[signature.status], request.program.limited)
    else:
        require_finite(inputs)


def _with_rows(x: Tensor) -> Tensor:
    """Each row contiguous and in memory as it is; the rows may lie anywhere, or be the same one."""
    if x.is_neg():  # a view that torch negates when it is read
        return x.clone(memory_format=torch.contiguous_format)
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()


def track(request: Request, tensors: Mapping[str, Tensor]) -> Tensors:
    """The results of the form "tracking", a rollout with linear feedback; no derivatives, and nothing is reported."""
    if request.program.sparse is not None:
        raise NotImplementedError("backdrive: one big world (sparse=True) has no rollouts with feedback")
    lengths = request.check(request.signature, tensors)
    shapes = request.result_shapes(lengths)
    outputs = {name: empty(tuple(shape), request.program.dtype) for name, shape in shapes.items()}
    rows = _rows(request.signature, tensors, outputs)
    launch(request, request.signature, lengths["B"], rows, request.integers(request.signature, lengths))
    return outputs


def jacobians(request: Request, tensors: Mapping[str, Tensor]) -> Tensor:
    """The derivatives of a step, [B, 2 nv, 2 nv + nu]: rows for its displacement, then for v⁺; see `step_jacobian`."""
    lengths = request.check(request.signature, tensors)
    nv, width = request.size("nv"), request.size("njacobian")
    result = empty((lengths["B"], 2 * nv, width), request.program.dtype)
    step, after = result.transpose(0, 1).split(nv)
    rows = {**tensors, "step": step, "after": after}
    launch(request, request.signature, lengths["B"], rows, request.integers(request.signature, lengths))
    return result
