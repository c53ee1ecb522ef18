"""The PyTorch operators ``torch.ops.backdrive.evaluate`` and ``vjp``, for torch.compile, torch.export and make_fx.

    evaluate(form, names, tensors, program, parameters, settings)
    vjp(form, names, tensors, program, parameters, settings, wanted)

form        of a signature with an adjoint: "rollout", "forces", "forward", "inverse", "poses"
names       of the tensors (`schema.signatures`), separated by commas: of `evaluate` the inputs, of `vjp` the arguments
            that the adjoint reads
program     the number of a `Program`
parameters  names of the model's parameters in the constants, separated by commas
settings    `RolloutSettings` of a rollout, else empty
wanted      names of the optional cotangents that `vjp` computes, separated by commas

Values other than tensors do not pass from one operator to another: `vjp` has no record of the forward pass, and rolls
one big world out again (`execute.vjp`). `vjp` has no derivative itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from . import execute
from .request import Request
from .residuals import Residuals, refuse_second_derivatives, wanted_cotangents
from .vmap import vmap_evaluate, vmap_vjp

if TYPE_CHECKING:
    from ..piles.world import PileRecord

Tensors = dict[str, Tensor]


def evaluate(request: Request, tensors: Tensors) -> Sequence[Tensor]:
    """`execute.evaluate` as an operator."""
    return torch.ops.backdrive.evaluate(*_flat(request, tensors))


def vjp(request: Request, tensors: Tensors, wanted: Sequence[str], record: PileRecord | None) -> Tensors:
    """`execute.vjp` as an operator; it cannot use a record."""
    results = torch.ops.backdrive.vjp(*_flat(request, tensors), ",".join(wanted))
    return {bar.name: x for (bar, _), x in zip(request.cotangents(tensors, wanted), results, strict=True)}


def _flat(request: Request, tensors: Tensors) -> tuple[str, str, list[Tensor], int, str, list[int]]:
    form, settings = request.signature.form, list(request.settings or ())
    number = request.program.number
    return form, ",".join(tensors), list(tensors.values()), number, request.parameters, settings


@torch.library.custom_op("backdrive::evaluate", mutates_args=())
def _evaluate(
    form: str, names: str, tensors: Sequence[Tensor], program: int, parameters: str, settings: Sequence[int]
) -> list[Tensor]:
    request = Request.parse(form, names, program, parameters, settings)
    return list(execute.evaluate(request, _by_name(request, tensors), request.keeps_solution)[0].values())


@torch.library.custom_op("backdrive::vjp", mutates_args=())
def _vjp(
    form: str, names: str, tensors: Sequence[Tensor], program: int, parameters: str, settings: Sequence[int],
    wanted: str,
) -> list[Tensor]:  # fmt: skip
    request = Request.parse(form, names, program, parameters, settings)
    return list(execute.vjp(request, _by_name(request, tensors), _names(request, wanted)).values())


def _by_name(request: Request, tensors: Sequence[Tensor]) -> Tensors:
    if len(set(request.names)) != len(tensors):
        raise ValueError(f"backdrive {request.signature.form}: {len(tensors)} tensors for the names {request.names}")
    return dict(zip(request.names, tensors, strict=True))


def _names(request: Request, wanted: str) -> list[str]:
    """Cotangents of parameters can only be wanted if the parameters are given."""
    names = [name for name in wanted.split(",") if name]
    for name in names:
        if name.removesuffix("_bar") not in request.names:
            raise ValueError(f"backdrive {request.signature.form}: {name!r} is wanted of an input that is not given")
    return names


@_evaluate.register_vmap
def _(info: Any, in_dims: tuple, *args: Any) -> tuple[list, list]:
    form, names, tensors, *rest = args

    def function(request: Request, *folded: Tensor) -> Sequence[Tensor]:
        return torch.ops.backdrive.evaluate(form, names, list(folded), *rest)

    request = Request.parse(form, names, *rest)
    outputs, axes = vmap_evaluate(function, info.batch_size, _dims(in_dims[2], tensors), request, tensors)
    return list(outputs), list(axes)


@_vjp.register_vmap
def _(info: Any, in_dims: tuple, *args: Any) -> tuple[list, list]:
    form, names, tensors, *rest, wanted = args

    def function(request: Request, wanted: str, *folded: Tensor) -> Sequence[Tensor]:
        return torch.ops.backdrive.vjp(form, names, list(folded), *rest, wanted)

    call = Request.parse(form, names, *rest), wanted
    outputs, axes = vmap_vjp(function, info.batch_size, _dims(in_dims[2], tensors), call, tensors)
    return list(outputs), list(axes)


def _dims(dims: Any, tensors: Sequence[Tensor]) -> Sequence[int | None]:
    return dims if isinstance(dims, (list, tuple)) else [dims] * len(tensors)


def _require_one_device(tensors: Sequence[Tensor]) -> None:
    """torch asks for shapes alone if any tensor is "meta"; results must not then look like numbers."""
    devices = {str(x.device) for x in tensors}
    if len(devices) > 1:
        raise ValueError(f"backdrive: tensors must be on one device, got {sorted(devices)}")


@_evaluate.register_fake
def _(form, names, tensors, program, parameters, settings):  # type: ignore[no-untyped-def]
    _require_one_device(tensors)
    request = Request.parse(form, names, program, parameters, settings)
    leads = request.leads(request.signature, _by_name(request, tensors))
    return [tensors[0].new_empty(shape) for shape in request.result_shapes(leads).values()]


@_vjp.register_fake
def _(form, names, tensors, program, parameters, settings, wanted):  # type: ignore[no-untyped-def]
    _require_one_device(tensors)
    request = Request.parse(form, names, program, parameters, settings)
    given = _by_name(request, tensors)
    leads, plan = request.leads(request.adjoint(), given), request.plan(request.adjoint())
    shapes = []
    for bar, primal in request.cotangents(given, _names(request, wanted)):
        shaped = plan.writes[bar.name]
        shapes.append(given[primal.name].shape if primal.batchable else (*leads[shaped.lead], shaped.size))
    return [tensors[0].new_empty(shape) for shape in shapes]


def _keep(ctx: Any, inputs: tuple, output: Sequence[Tensor]) -> None:
    form, names, tensors, *rest = inputs
    request = Request.parse(form, names, *rest)
    outputs = {a.name: x for a, x in zip(request.results(), output)}
    Residuals.of(request, dict(zip(request.names, tensors)), outputs, None).save(ctx)


def _backward(ctx: Any, cotangents: Sequence[Tensor]) -> tuple:
    """Always by the operator: this is traced where torch.compiler.is_compiling() is False."""
    request = ctx.request
    wanted = wanted_cotangents(request, ctx.needs_input_grad[2])
    found = Residuals.load(ctx).vjp(cotangents, wanted, vjp)
    gradients = [found.get(name) for name in request.names]
    return None, None, gradients, None, None, None if request.settings else []  # torch: [] is a list of tensors


def _refuse(ctx: Any, *cotangents: Any) -> None:
    refuse_second_derivatives()


_evaluate.register_autograd(_backward, setup_context=_keep)
_vjp.register_autograd(_refuse, setup_context=lambda ctx, inputs, output: None)
