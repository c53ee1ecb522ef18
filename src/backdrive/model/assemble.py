"""Write parameters into a model's constants, differentiably, and reject values that are not physical."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..schema import layout
from ..schema.layout import ShapeKind
from . import checks
from .geometry import size_names
from .parameters import ParameterInfo
from .shapes import SHAPE_KINDS

if TYPE_CHECKING:
    from .model import Model


def assemble(model: Model, parameters: Mapping[str, Tensor], check: bool = True) -> Tensor:
    """Constants [nconst], or [B, nconst] if any parameter is batched. See ``Model.assemble``."""
    constants = model.constants_tensor
    if not parameters:
        return constants.clone()
    table = model.parameters()
    batch: int | None = None
    owner = ""
    pieces: list[tuple[Tensor, Tensor]] = []
    for name, value in parameters.items():
        info = table[name]
        size = _batch_size(info, value)
        if size is not None:
            if batch is not None and batch != size:
                raise ValueError(f"batch sizes differ: parameter {owner!r} has {batch}, {name!r} has {size}")
            batch, owner = size, name
        value = value.to(constants)
        if check:
            _validate(model, info, value)
        flat = value.flatten(1) if size is not None else value.flatten()
        flat = _normalise(info, flat)
        source, coefficient = torch.from_numpy(info.source), torch.from_numpy(info.coefficient)
        pieces.append((torch.from_numpy(info.target), flat.index_select(-1, source) * coefficient))
    if batch is not None:
        constants = constants.expand(batch, -1)
    for target, values in pieces:
        constants = constants.index_copy(-1, target, values.expand(*constants.shape[:-1], -1))
    if check and not parameters.keys().isdisjoint(("limit_low", "limit_high")):
        _ordered_limits(model, constants.detach())
    return constants


def _batch_size(info: ParameterInfo, value: object) -> int | None:
    """B of a parameter [B, *shape], None of a shared one [*shape]; any other shape or type raises."""
    if not isinstance(value, Tensor):
        raise TypeError(f"parameter {info.name!r} must be a torch tensor, got {type(value).__name__}")
    if not value.dtype.is_floating_point:
        raise TypeError(f"parameter {info.name!r} must be of a floating-point dtype, got {value.dtype}")
    shape = tuple(value.shape)
    if shape == info.shape:
        return None
    if shape[1:] == info.shape and value.ndim == len(info.shape) + 1 and shape[0] > 0:
        return shape[0]
    raise ValueError(
        f"parameter {info.name!r} must have shape {list(info.shape)}, or [B, ...] with one such row "
        f"per environment; got {list(shape)}"
    )


def _normalise(info: ParameterInfo, flat: Tensor) -> Tensor:
    """Scale the groups of values that are directions to unit length; flat: [..., size]."""
    if not info.unit_group.any():
        return flat
    group = torch.from_numpy(info.unit_group)
    squares = flat.new_zeros(*flat.shape[:-1], int(group.max()) + 1).index_add(-1, group, flat.square())
    scale = torch.where(group > 0, squares.index_select(-1, group), torch.ones_like(flat)).rsqrt()
    return flat * scale


def _validate(model: Model, info: ParameterInfo, value: Tensor) -> None:
    """Raise if a value of a parameter is not physical."""
    value = value.detach()
    if info.name in _MAY_BE_INFINITE:
        _require(info, value, ~torch.isnan(value), "must be a number")
    else:
        _require(info, value, torch.isfinite(value), "must be finite")
    rule = _RULES.get(info.name)
    if rule is not None:
        rule(model, info, value)


def _mass(model: Model, info: ParameterInfo, value: Tensor) -> None:
    _require(info, value, value > 0.0, "must be > 0", model)


def _not_negative(model: Model, info: ParameterInfo, value: Tensor) -> None:
    _require(info, value, value >= 0.0, "must be >= 0")


def _restitution(model: Model, info: ParameterInfo, value: Tensor) -> None:
    _require(info, value, (value >= 0.0) & (value <= 1.0), "must be between 0 and 1")


def _size(model: Model, info: ParameterInfo, value: Tensor) -> None:
    kinds = [ShapeKind(kind) for kind in model.shape_kind.tolist()]
    bounded = [SHAPE_KINDS[kind].bounded for kind in kinds for _ in size_names(model.dim, kind)]
    # The offset of a half-space may be any number.
    _require(info, value, ~torch.tensor(bounded) | (value > 0.0), "must be > 0")


def _ordered_limits(model: Model, constants: Tensor) -> None:
    info = model.parameters()["limit_low"]
    low = constants[..., torch.from_numpy(info.target)]
    high = constants[..., torch.from_numpy(model.parameters()["limit_high"].target)]
    fine = (low <= high) & (low < torch.inf) & (high > -torch.inf)
    _require(info, low, fine, "must not be above limit_high")


def _axis(model: Model, info: ParameterInfo, value: Tensor) -> None:
    _require(info, value, torch.linalg.vector_norm(value, dim=-1) > 1e-12, "must not have zero length")


def _reference(model: Model, info: ParameterInfo, value: Tensor) -> None:
    group = torch.from_numpy(info.unit_group)
    for number in range(1, int(group.max()) + 1):
        inside = group == number
        fine = ~inside | (torch.linalg.vector_norm(value[..., inside], dim=-1, keepdim=True) > 1e-12)
        _require(info, value, fine, "has a quaternion of zero length")


def _inertia(model: Model, info: ParameterInfo, value: Tensor) -> None:
    if model.dim == 2:
        _require(info, value, value > 0.0, "must be > 0", model)
        return
    xx, yy, zz, xy, xz, yz = value.unbind(-1)
    half = (xx + yy + zz) / 2.0
    # The triangle inequality holds if (trace / 2) 1 - inertia is positive definite, too.
    rest = torch.stack([half - xx, half - yy, half - zz, -xy, -xz, -yz], -1)
    if _clearly_positive(value) and _clearly_positive(rest):
        return
    matrix = value.new_zeros(*value.shape[:-1], 3, 3)
    for k, (i, j) in enumerate(layout.INERTIA_INDEX):
        matrix[..., i, j] = matrix[..., j, i] = value[..., k]
    moments = torch.linalg.eigvalsh(matrix)
    _require(info, value, moments[..., 0] > 0.0, "must be positive definite", model)
    excess = moments[..., 2] - moments[..., 0] - moments[..., 1]
    fine = excess <= checks.RELATIVE_TOLERANCE * moments.sum(-1)
    _require(info, value, fine, "violates the triangle inequality of its principal moments", model)


def _clearly_positive(value: Tensor) -> bool:
    """Whether all symmetric matrices [..., 6] have positive leading minors: a fast test without eigenvalues."""
    xx, yy, zz, xy, xz, yz = value.unbind(-1)
    minor = xx * yy - xy * xy
    determinant = zz * minor - xx * yz * yz - yy * xz * xz + 2.0 * xy * xz * yz
    return bool(((xx > 0.0) & (minor > 0.0) & (determinant > 0.0)).all())


_MAY_BE_INFINITE = ("friction", "limit_low", "limit_high")

_RULES: dict[str, Callable[[Model, ParameterInfo, Tensor], None]] = {
    "mass": _mass,
    "armature": _not_negative,
    "friction": _not_negative,
    "restitution": _restitution,
    "softness": _not_negative,
    "size": _size,
    "joint_friction": _not_negative,
    "axis": _axis,
    "reference": _reference,
    "inertia": _inertia,
}


def _require(info: ParameterInfo, value: Tensor, fine: Tensor, rule: str, model: Model | None = None) -> None:
    """Raise for the first False in ``fine`` ([B,] rows, ...), naming its row and environment.

    With a ``model``, values equal to the model's own are exempt: massless frames of a loaded file may stay massless.
    """
    if bool(fine.all()):
        return
    if model is not None:
        same = value == torch.from_numpy(info.values(model.constants))
        fine = fine | (same if same.ndim == fine.ndim else same.all(-1))
        if bool(fine.all()):
            return
    batched = value.ndim > len(info.shape)
    place = torch.nonzero(~fine)[0].tolist()
    row = info.rows[place[1] if batched else place[0]]
    where = f" (environment {place[0]})" if batched else ""
    got = value[tuple(place)].tolist()
    raise ValueError(f"parameter {info.name!r} of {row!r}{where} {rule}, got {got}")
