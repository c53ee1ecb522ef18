"""The physical parameters of a model by name, and where they stand in its constants.

Every parameter is a tensor [*shape]; each of its values is copied, times a coefficient, to one or several
places of the flat constants. (The proportional gain of a position servo, for one, is both the gain of its
control and, negated, the coefficient of its length.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..schema import layout
from ..schema.layout import LINK, NQ, Kind, ShapeKind
from . import checks
from .geometry import size_names

if TYPE_CHECKING:
    from .model import Model

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class ParameterInfo:
    """A parameter: its name, shape, unit, what each row belongs to, and its map into the constants.

    constants[target] = coefficient * value.flatten()[source]. ``unit_group`` [size] numbers, from 1, the
    groups of values that are normalised to unit length first (axes, quaternions); 0 is left as it is.
    """

    name: str
    shape: tuple[int, ...]
    unit: str
    rows: tuple[str, ...]
    source: Array = field(repr=False)
    target: Array = field(repr=False)
    coefficient: Array = field(repr=False)
    unit_group: Array = field(repr=False)

    def values(self, constants: Array) -> Array:
        """The parameter as it stands in a vector of constants, [*shape]."""
        flat = np.empty(len(self.unit_group))
        flat[self.source] = constants[self.target] / self.coefficient
        return flat.reshape(self.shape)


class ParameterTable:
    """All parameters of a model: iterate, index by name, ask ``name in table``, or print it."""

    def __init__(self, parameters: Sequence[ParameterInfo]) -> None:
        self._parameters = {p.name: p for p in parameters}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._parameters)

    def __getitem__(self, name: str) -> ParameterInfo:
        if name not in self:
            raise ValueError(checks.unknown("parameter", name, self._parameters))
        return self._parameters[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._parameters

    def __iter__(self) -> Iterator[ParameterInfo]:
        return iter(self._parameters.values())

    def __len__(self) -> int:
        return len(self._parameters)

    def __str__(self) -> str:
        lines = [("name", "shape", "unit", "rows")]
        for p in self:
            rows = ", ".join(p.rows[:4]) + (", ..." if len(p.rows) > 4 else "")
            lines.append((p.name, str(list(p.shape)), p.unit, rows))
        name, shape, unit = (max(len(line[i]) for line in lines) for i in range(3))
        return "\n".join(f"{a:{name}}  {b:{shape}}  {c:{unit}}  {d}" for a, b, c, d in lines)

    __repr__ = __str__


def parameter_table(model: Model) -> ParameterTable:
    """The parameters a model has; those without a single row are left out."""
    entries = [*_body_parameters(model), *_joint_parameters(model), *_motor_parameters(model)]
    entries += _shape_parameters(model)
    gravity = layout.gravity_start(model.nlink, model.nq, model.nu) + np.arange(model.dim)
    entries.append(_entry("gravity", "m/s^2", tuple("xyz"[: model.dim]), [(gravity, 1.0)]))
    return ParameterTable([entry for entry in entries if entry.rows])


def _body_parameters(model: Model) -> Iterator[ParameterInfo]:
    start = model.body_link * LINK
    first = np.array([_first_link(model, int(i)) for i in model.body_link], dtype=np.int64) * LINK
    xyz = np.arange(model.dim)
    inertia = start + layout.INERTIA + 2 if model.dim == 2 else _grid(start + layout.INERTIA, np.arange(6))
    rows = model.bodies
    yield _entry("mass", "kg", rows, [(start + layout.MASS, 1.0)])
    yield _entry("com", "m", rows, [(_grid(start + layout.COM, xyz), 1.0)])
    yield _entry("inertia", "kg m^2", rows, [(inertia, 1.0)])
    yield _entry("offset", "m", rows, [(_grid(first + layout.OFFSET, xyz), 1.0)])


def _joint_parameters(model: Model) -> Iterator[ParameterInfo]:
    rows = model.joints
    start = model.joint_link * LINK
    kinds = model.kind[model.joint_link]
    xyz = np.arange(model.dim)
    yield _entry("anchor", "m", rows, [(_grid(start + layout.ANCHOR, xyz), 1.0)])
    # In the plane every hinge turns about z: only the sliders have an axis to choose.
    has_axis = kinds == Kind.SLIDER if model.dim == 2 else np.isin(kinds, (Kind.HINGE, Kind.SLIDER))
    axes = _grid(start[has_axis] + layout.AXIS, xyz)
    groups = np.repeat(np.arange(1, len(axes) + 1), model.dim)
    yield _entry("axis", "1", _pick(rows, has_axis), [(axes, 1.0)], groups)
    yield _entry("stiffness", "N m/rad | N/m", rows, [(start + layout.STIFFNESS, 1.0)])
    yield _entry("damping", "N m s/rad | N s/m", rows, [(start + layout.DAMPING, 1.0)])
    yield _entry("armature", "kg m^2 | kg", rows, [(start + layout.ARMATURE, 1.0)])
    coordinates, groups = _coordinates(model)
    reference = layout.reference_start(model.nlink) + np.arange(model.nq)
    yield _entry("reference", "rad | m", coordinates, [(reference, 1.0)], groups)
    sizes = (model.nlink, model.nq, model.nu, model.nshape)
    limit = layout.limit_start(*sizes) + np.arange(model.nlimit) * layout.LIMIT
    name_of = dict(zip(model.joint_link.tolist(), rows, strict=True))
    limited = tuple(name_of[link] for link in model.limit_link.tolist())
    yield _entry("limit_low", "rad | m", limited, [(limit + layout.LOW, 1.0)])
    yield _entry("limit_high", "rad | m", limited, [(limit + layout.HIGH, 1.0)])
    friction = layout.friction_start(*sizes, model.nlimit) + np.arange(model.nfriction) * layout.FRICTION_LOSS
    rubbing = tuple(name_of[link] for link in model.friction_link.tolist())
    yield _entry("joint_friction", "N m | N", rubbing, [(friction, 1.0)])


def _motor_parameters(model: Model) -> Iterator[ParameterInfo]:
    kinds = np.array(model.motor_kinds, dtype=object)
    start = layout.motor_start(model.nlink, model.nq) + np.arange(model.nu) * layout.MOTOR
    position, velocity, general = (kinds == kind for kind in ("position", "velocity", "general"))
    stiffness, damping = layout.BIAS + 1, layout.BIAS + 2
    yield _entry("gear", "1", model.motors, [(start + layout.GEAR, 1.0)])
    servo = start[position]
    pieces = [(servo + layout.GAIN, 1.0), (servo + stiffness, -1.0)]
    yield _entry("kp", "N m/rad | N/m", _pick(model.motors, position), pieces)
    damped = position | velocity
    forward = np.flatnonzero(velocity[damped])  # only a velocity servo multiplies its control by kv
    yield _entry(
        "kv",
        "N m s/rad | N s/m",
        _pick(model.motors, damped),
        [(start[damped] + damping, -1.0), (start[velocity] + layout.GAIN, 1.0, forward)],
    )
    rows = _pick(model.motors, general)
    yield _entry("gain", "N m | N", rows, [(start[general] + layout.GAIN, 1.0)])
    yield _entry("bias", "N m | N", rows, [(_grid(start[general] + layout.BIAS, np.arange(3)), 1.0)])


def _shape_parameters(model: Model) -> Iterator[ParameterInfo]:
    """Materials and sizes. Mass and inertia are parameters of the body: they do not follow the size of its shapes."""
    rows = model.shape_names
    start = layout.shape_start(model.nlink, model.nq, model.nu) + np.arange(model.nshape) * layout.SHAPE
    yield _entry("friction", "1", rows, [(start + layout.FRICTION, 1.0)])
    yield _entry("restitution", "1", rows, [(start + layout.RESTITUTION, 1.0)])
    yield _entry("softness", "m/s per N s", rows, [(start + layout.SOFTNESS, 1.0)])
    sizes: list[str] = []
    places: list[int] = []
    for name, kind, record in zip(rows, model.shape_kind.tolist(), start.tolist(), strict=True):
        for k, part in enumerate(size_names(model.dim, kind)):
            sizes.append(f"{name}.{part}")
            places.append(record + layout.SIZE + k)
    unit = "m | 1 (factor of a mesh); inertia stays"
    yield _entry("size", unit, tuple(sizes), [(np.array(places, dtype=np.int64), 1.0)])
    solid = model.shape_kind != ShapeKind.PLANE
    place = _grid(start[solid] + layout.PLACE, np.arange(model.dim))
    yield _entry("shape_position", "m", _pick(rows, solid), [(place, 1.0)])


def _entry(
    name: str, unit: str, rows: tuple[str, ...], pieces: Sequence[tuple], groups: Array | None = None
) -> ParameterInfo:
    """A parameter from pieces (target, coefficient[, source]); the first has the parameter's shape."""
    shape = pieces[0][0].shape
    size = pieces[0][0].size
    everything = np.arange(size)
    source = np.concatenate([piece[2] if len(piece) == 3 else everything for piece in pieces])
    target = np.concatenate([piece[0].ravel() for piece in pieces])
    coefficient = np.concatenate([np.full(piece[0].size, piece[1]) for piece in pieces])
    unit_group = np.zeros(size, dtype=np.int64) if groups is None else groups
    return ParameterInfo(name, shape, unit, rows, source, target, coefficient, unit_group)


def _coordinates(model: Model) -> tuple[tuple[str, ...], Array]:
    """Names of the coordinates q, and the groups of them that are quaternions."""
    names = [""] * model.nq
    groups = np.zeros(model.nq, dtype=np.int64)
    for name, link in zip(model.joints, model.joint_link, strict=True):
        kind = Kind(model.kind[link])
        start, count = model.qadr[link], NQ[kind]
        for k in range(count):
            names[start + k] = name if count == 1 else f"{name}[{k}]"
        if kind.coordinates.quaternion is not None:
            groups[start + kind.coordinates.quaternion : start + count] = groups.max() + 1
    return tuple(names), groups


def _first_link(model: Model, link: int) -> int:
    """The link that carries a body's offset: the first of those that stand for its several joints."""
    named = set(model.body_link.tolist())
    while model.parent[link] >= 0 and int(model.parent[link]) not in named:
        link = int(model.parent[link])
    return link


def _grid(start: Array, steps: Array) -> Array:
    return start[:, None] + steps


def _pick(names: tuple[str, ...], chosen: Array) -> tuple[str, ...]:
    return tuple(name for name, keep in zip(names, chosen, strict=True) if keep)
