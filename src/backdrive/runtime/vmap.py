"""torch.vmap of the operators: a dimension that is mapped over becomes part of the batch."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def vmap_evaluate(function: Any, info: Any, in_dims: tuple, *args: Any) -> tuple:
    form, q, v, x, wrenches, constants, *rest = args
    fold = Fold(form, info.batch_size, q, in_dims[1])
    tensors = [fold.tensor(y, d, fold.start) for y, d in ((q, in_dims[1]), (v, in_dims[2]))]
    tensors += [fold.tensor(y, d, fold.other) for y, d in ((x, in_dims[3]), (wrenches, in_dims[4]))]
    outputs = function(form, *tensors, fold.constants(constants, in_dims[5]), *rest)
    at = (fold.other,) if form != "rollout" else (1, 0, 0, 1, 1)[: len(outputs)]
    return tuple(fold.unfold(y, d) for y, d in zip(outputs, at, strict=True)), at


def vmap_pull_back(function: Any, info: Any, in_dims: tuple, *args: Any) -> tuple:
    form, q, v, x, wrenches, constants, program, parameters, settings, want_constants, *bars = args
    fold = Fold(form, info.batch_size, q, in_dims[1], back=True)
    tensors = [fold.tensor(y, d, fold.other) for y, d in zip((q, v, x, wrenches), in_dims[1:5], strict=True)]
    rows = fold.constants(constants, in_dims[5])
    places = (1, 1, 0, 0, 0) if form == "rollout" else (fold.other,)
    folded = [fold.tensor(y, d, at) for y, d, at in zip(bars, in_dims[10:], places, strict=True)]
    results = function(form, *tensors, rows, program, parameters, settings, want_constants, *folded)
    at = [fold.start, fold.start, *(fold.other for y in (x, wrenches) if y is not None)]
    unfolded = [fold.unfold(y, d) for y, d in zip(results, at, strict=False)]
    if want_constants and constants is not None:
        shared = constants.ndim - (in_dims[5] is not None) == 1
        constants_bar = fold.unfold(results[-1], 0)
        unfolded.append(constants_bar.sum(1) if shared else constants_bar)
        at.append(0)
    return tuple(unfolded), tuple(at)


class Fold:
    """A dimension mapped by vmap becomes part of the batch."""

    def __init__(self, form: str, size: int, q: Tensor, q_dim: int | None, back: bool = False) -> None:
        self.size = size
        self.other = int(form in ("rollout", "poses", "forces"))  # where the batch is in tensors with a time
        self.start = int(form in ("poses", "forces"))  # and in q and v
        at = self.other if back else self.start
        self.batch = (q if q_dim is None else q.movedim(q_dim, 0)[0]).shape[at]

    def tensor(self, x: Tensor | None, dim: int | None, at: int) -> Tensor | None:
        """Merge the mapped dimension `dim` (None: not mapped) into the batch dimension `at`."""
        if x is None:
            return None
        if dim is None:
            x = x.unsqueeze(at).expand(*x.shape[:at], self.size, *x.shape[at:])
        else:
            x = x.movedim(dim, at)
        return x.flatten(at, at + 1)

    def constants(self, x: Tensor | None, dim: int | None) -> Tensor | None:
        """One row for every environment."""
        if x is None:
            return None
        x = x.expand(self.size, *x.shape) if dim is None else x.movedim(dim, 0)
        if x.ndim == 2:
            x = x.unsqueeze(1).expand(self.size, self.batch, x.shape[-1])
        return x.flatten(0, 1)

    def unfold(self, y: Tensor, at: int) -> Tensor:
        return y.unflatten(at, (self.size, self.batch))
