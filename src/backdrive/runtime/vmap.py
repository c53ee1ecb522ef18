"""torch.vmap of kernels: the mapped dimension becomes part of the batch, whose axis the signature knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from ..schema.signatures import Argument, Role
from .request import Request


def vmap_evaluate(
    function: Callable[..., Sequence[Any]], size: int, dims: Sequence[int | None], request: Request,
    tensors: Sequence[Tensor],
) -> tuple[tuple, tuple]:  # fmt: skip
    """function(request, *tensors) of tensors of which dimension `dims` is mapped over (None: shared).

    Results of the function beyond those of the signature are not mapped. Returns results, and their mapped dimensions.
    """
    signature = request.signature
    fold = Fold(size, request.names, signature.reads[0], tensors, dims)
    folded = [fold.fold(x, dim, signature.arguments[name]) for name, x, dim in zip(request.names, tensors, dims)]
    outputs = function(request, *folded)
    axes = [a.batch_axis for a in request.results()]
    others = outputs[len(axes) :]
    return (*(fold.unfold(y, axis) for y, axis in zip(outputs, axes)), *others), (*axes, *(None for _ in others))


def vmap_vjp(
    function: Callable[..., Sequence[Tensor]], size: int, dims: Sequence[int | None], call: tuple[Request, str],
    tensors: Sequence[Tensor],
) -> tuple[tuple, tuple]:  # fmt: skip
    """The same of function(request, wanted, *tensors), a vector-Jacobian product."""
    request, wanted = call
    adjoint = request.adjoint()
    fold = Fold(size, request.names, adjoint.reads[0], tensors, dims)
    folded = [fold.fold(x, dim, adjoint.arguments[name]) for name, x, dim in zip(request.names, tensors, dims)]
    results = iter(function(request, wanted, *folded))
    given = {name: (x, dim) for name, x, dim in zip(request.names, tensors, dims)}
    found, axes = [], []
    for bar, primal in request.cotangents(given, wanted.split(",")):
        y = fold.unfold(next(results), bar.batch_axis)
        if primal.role is Role.PARAMETER:
            x, dim = given[primal.name]
            shared = x.ndim - (dim is not None) == 1
            y = y.sum(1) if shared else y
        found.append(y)
        axes.append(bar.batch_axis)
    return tuple(found), tuple(axes)


class Fold:
    """A mapped dimension and the batch as one axis."""

    def __init__(
        self, size: int, names: Sequence[str], first: Argument, tensors: Sequence[Tensor], dims: Sequence[int | None]
    ) -> None:
        """first: an argument that every call has, which tells the size of the batch."""
        k = list(names).index(first.name)
        x, dim = tensors[k], dims[k]
        self.size, self.batch = size, (x if dim is None else x.movedim(dim, 0)[0]).shape[first.batch_axis]

    def fold(self, x: Tensor, dim: int | None, argument: Argument) -> Tensor:
        """Merge the mapped dimension `dim` into the batch axis; a parameter gets a row for every environment."""
        if argument.role is Role.PARAMETER:
            x = x.expand(self.size, *x.shape) if dim is None else x.movedim(dim, 0)
            if x.ndim == 2:
                x = x.unsqueeze(1).expand(self.size, self.batch, x.shape[-1])
            return x.flatten(0, 1)
        at = argument.batch_axis
        if dim is None:
            x = x.unsqueeze(at).expand(*x.shape[:at], self.size, *x.shape[at:])
        else:
            x = x.movedim(dim, at)
        return x.flatten(at, at + 1)

    def unfold(self, y: Tensor, axis: int) -> Tensor:
        return y.unflatten(axis, (self.size, self.batch))
