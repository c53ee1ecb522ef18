"""Write parameters into a model's constants, differentiably, and reject values that are not physical."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..schema import layout
from . import checks
from .parameters import ParameterInfo

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
    """Raise if a value of a parameter is out of its range, or not possible together with others."""
    value = value.detach()
    if not _in_range(info, value):
        axis = value.ndim - len(info.shape)  # of the rows
        fine = [info.range_of(k).inside(x) for k, x in enumerate(value.unbind(axis))]
        _require(model, info, value, torch.stack(fine, axis))
    rule = _RULES.get(info.name)
    if rule is not None:
        rule(model, info, value)


def _in_range(info: ParameterInfo, value: Tensor) -> bool:
    if len(info.ranges) == 1:
        return info.ranges[0].hold(value)
    rows = value.movedim(value.ndim - len(info.shape), 0)
    different = dict.fromkeys(info.ranges)
    return all(range.hold(rows[[k for k, other in enumerate(info.ranges) if other == range]]) for range in different)


def _ordered_limits(model: Model, constants: Tensor) -> None:
    info, other = (model.parameters()[name] for name in ("limit_low", "limit_high"))
    low, high = (constants[..., torch.from_numpy(x.target)] for x in (info, other))
    own_low, own_high = (torch.from_numpy(x.values(model.constants)) for x in (info, other))
    _refuse(info, low, (low < high) | ((low == own_low) & (high == own_high)), "must be below limit_high")


def _axis(model: Model, info: ParameterInfo, value: Tensor) -> None:
    length = torch.linalg.vector_norm(value, dim=-1)
    _require(model, info, value, length > checks.LEAST_LENGTH, "must not have zero length")


def _reference(model: Model, info: ParameterInfo, value: Tensor) -> None:
    group = torch.from_numpy(info.unit_group)
    for number in range(1, int(group.max()) + 1):
        inside = group == number
        length = torch.linalg.vector_norm(value[..., inside], dim=-1, keepdim=True)
        _require(model, info, value, ~inside | (length > checks.LEAST_LENGTH), "has a quaternion of zero length")


def _inertia(model: Model, info: ParameterInfo, value: Tensor) -> None:
    if model.dim == 2:
        return
    positive, triangle = possible_inertias(value)
    _require(model, info, value, positive, "must be positive definite")
    _require(model, info, value, triangle, "violates the triangle inequality of its principal moments")


def possible_inertias(value: Tensor) -> tuple[Tensor, Tensor]:
    """Which inertias [..., 6] are positive definite, and which satisfy the triangle inequality of principal moments."""
    xx, yy, zz, xy, xz, yz = value.unbind(-1)
    half = (xx + yy + zz) / 2.0
    # The triangle inequality holds if (trace / 2) 1 - inertia is positive definite, too.
    rest = torch.stack([half - xx, half - yy, half - zz, -xy, -xz, -yz], -1)
    if _clearly_positive(value) and _clearly_positive(rest):
        all_fine = torch.ones_like(xx, dtype=torch.bool)
        return all_fine, all_fine
    matrix = value.new_zeros(*value.shape[:-1], 3, 3)
    for k, (i, j) in enumerate(layout.INERTIA_INDEX):
        matrix[..., i, j] = matrix[..., j, i] = value[..., k]
    moments = torch.linalg.eigvalsh(matrix)
    excess = moments[..., 2] - moments[..., 0] - moments[..., 1]
    return moments[..., 0] > 0.0, excess <= checks.RELATIVE_TOLERANCE * moments.sum(-1)


def _clearly_positive(value: Tensor) -> bool:
    """Whether all symmetric matrices [..., 6] have positive leading minors: a fast test without eigenvalues."""
    xx, yy, zz, xy, xz, yz = value.unbind(-1)
    minor = xx * yy - xy * xy
    determinant = zz * minor - xx * yz * yz - yy * xz * xz + 2.0 * xy * xz * yz
    return bool(((xx > 0.0) & (minor > 0.0) & (determinant > 0.0)).all())


def _solref(model: Model, info: ParameterInfo, value: Tensor) -> None:
    first, second = value.unbind(-1)
    fine = ((first > 0.0) & (second > 0.0)) | ((first < 0.0) & (second <= 0.0))
    _require(model, info, value, fine, "must be a time constant and a damping ratio, both positive, or both negative")


def _solimp(model: Model, info: ParameterInfo, value: Tensor) -> None:
    least, most, _, middle = value.unbind(-1)
    fine = (least < 1.0) & (most < 1.0) & (middle < 1.0)
    _require(model, info, value, fine, "must have impedances and a midpoint below 1")


# What there is a solref and a solimp of.
_SOFT = ("", "limit_", "joint_friction_", "pair_", "equality_", "tendon_limit_", "tendon_friction_", "swing_", "rope_")

_RULES: dict[str, Callable[[Model, ParameterInfo, Tensor], None]] = {
    "axis": _axis,
    "reference": _reference,
    "inertia": _inertia,
    **{f"{prefix}solref": _solref for prefix in _SOFT},
    **{f"{prefix}solimp": _solimp for prefix in _SOFT},
}
"""Rules about several values together, besides the range of each."""


def _require(model: Model, info: ParameterInfo, value: Tensor, fine: Tensor, rule: str | None = None) -> None:
    """`_refuse`, except for values equal to the model's own: massless frames of a loaded file may stay massless."""
    if not bool(fine.all()):
        same = value == torch.from_numpy(info.values(model.constants))
        _refuse(info, value, fine | (same if same.ndim == fine.ndim else same.all(-1)), rule)


def _refuse(info: ParameterInfo, value: Tensor, fine: Tensor, rule: str | None) -> None:
    """Raise for the first False in ``fine`` ([B,] rows, ...), naming its row, environment and index.

    rule: what is wrong; None: the value is out of its range.
    """
    if bool(fine.all()):
        return
    batched = value.ndim > len(info.shape)
    place = torch.nonzero(~fine)[0].tolist()
    row = place[1] if batched else place[0]
    where = f" (environment {place[0]})" if batched else ""
    got: Any = value[tuple(place)].tolist()
    rule = rule or info.range_of(row).rule(got)
    raise ValueError(f"parameter {info.name!r} of {info.rows[row]!r}{where} {rule}, got {got} at {place}")
