"""The physical parameters of a model by name, and their positions in its constants.

Every parameter is a tensor [*shape]. Each of its values is copied, times a coefficient, to one or several positions of
the flat constants: the proportional gain of a position servo, for example, is both the gain of its control and,
negated, the coefficient of its length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..schema import layout
from ..schema.layout import LINK, NQ, Kind, ShapeKind
from . import checks
from .actuators import PARAMETERS, ActuatorParameter
from .geometry import size_names
from .ranges import PLANAR_INERTIA, RANGES, Range
from .shapes import SHAPE_KINDS

if TYPE_CHECKING:
    from .model import Model

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class ParameterInfo:
    """A parameter: its name, shape, unit, the owner of each row, the range of its values, its map into the constants.

    constants[target] = coefficient * value.flatten()[source]. ``unit_group`` [size] numbers, from 1, the groups of
    values that are normalised to unit length first (axes, quaternions); values in group 0 are copied unchanged.
    ranges: of each row, or one for all.
    """

    name: str
    shape: tuple[int, ...]
    unit: str
    rows: tuple[str, ...]
    ranges: tuple[Range, ...]
    source: Array = field(repr=False)
    target: Array = field(repr=False)
    coefficient: Array = field(repr=False)
    unit_group: Array = field(repr=False)

    @property
    def range(self) -> str:
        """What values it may have, in words."""
        words = [
            r.also if r.also and str(r) == "finite" else ", ".join(filter(None, (str(r), r.also))) for r in self.ranges
        ]
        return " | ".join(dict.fromkeys(words))

    def range_of(self, row: int) -> Range:
        return self.ranges[row if len(self.ranges) > 1 else 0]

    def values(self, constants: Array) -> Array:
        """The values of the parameter in a vector of constants, [*shape]."""
        flat = np.empty(len(self.unit_group))
        flat[self.source] = constants[self.target] / self.coefficient
        return flat.reshape(self.shape)


class ParameterTable:
    """All parameters of a model: iterate over it, index it by name, ask ``name in table``, or print it."""

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
        lines = [("name", "shape", "unit", "range", "rows")]
        for p in self:
            rows = ", ".join(p.rows[:4]) + (", ..." if len(p.rows) > 4 else "")
            lines.append((p.name, str(list(p.shape)), p.unit, p.range, rows))
        widths = [max(len(line[i]) for line in lines) for i in range(4)]
        return "\n".join("  ".join([*(x.ljust(n) for x, n in zip(line, widths)), line[-1]]) for line in lines)

    __repr__ = __str__


def parameter_table(model: Model) -> ParameterTable:
    """The parameters of a model. Parameters without rows are left out."""
    entries = [*_body_parameters(model), *_joint_parameters(model), *_motor_parameters(model)]
    entries += _shape_parameters(model)
    if model.soft is not None:
        entries += _soft_parameters(model)
    gravity = layout.gravity_start(model.nlink, model.nq, model.nu) + np.arange(model.dim)
    entries.append(_entry("gravity", "m/s^2", tuple("xyz"[: model.dim]), [ParameterPiece(gravity)]))
    return ParameterTable([entry for entry in entries if entry.rows])


def _body_parameters(model: Model) -> Iterator[ParameterInfo]:
    start = model.body_link * LINK
    first = np.array([_first_link(model, int(i)) for i in model.body_link], dtype=np.int64) * LINK
    xyz = np.arange(model.dim)
    inertia = start + layout.INERTIA + 2 if model.dim == 2 else _grid(start + layout.INERTIA, np.arange(6))
    rows = model.bodies
    yield _entry("mass", "kg", rows, [ParameterPiece(start + layout.MASS)])
    yield _entry("com", "m", rows, [ParameterPiece(_grid(start + layout.COM, xyz))])
    yield _entry("inertia", "kg m^2", rows, [ParameterPiece(inertia)], PLANAR_INERTIA if model.dim == 2 else None)
    yield _entry("offset", "m", rows, [ParameterPiece(_grid(first + layout.OFFSET, xyz))])


def _joint_parameters(model: Model) -> Iterator[ParameterInfo]:
    rows = model.joints
    start = model.joint_link * LINK
    kinds = model.kind[model.joint_link]
    xyz = np.arange(model.dim)
    yield _entry("anchor", "m", rows, [ParameterPiece(_grid(start + layout.ANCHOR, xyz))])
    # In 2D every hinge turns about z, so only sliders have an axis that can be varied.
    has_axis = kinds == Kind.SLIDER if model.dim == 2 else np.isin(kinds, (Kind.HINGE, Kind.SLIDER))
    axes = _grid(start[has_axis] + layout.AXIS, xyz)
    groups = np.repeat(np.arange(1, len(axes) + 1), model.dim)
    yield _entry("axis", "1", _pick(rows, has_axis), [ParameterPiece(axes)], groups=groups)
    yield _entry("stiffness", "N m/rad | N/m", rows, [ParameterPiece(start + layout.STIFFNESS)])
    yield _entry("damping", "N m s/rad | N s/m", rows, [ParameterPiece(start + layout.DAMPING)])
    yield _entry("armature", "kg m^2 | kg", rows, [ParameterPiece(start + layout.ARMATURE)])
    coordinates, groups = _coordinates(model)
    reference = layout.reference_start(model.nlink) + np.arange(model.nq)
    yield _entry("reference", "rad | m", coordinates, [ParameterPiece(reference)], groups=groups)
    sizes = (model.nlink, model.nq, model.nu, model.nshape)
    limit = layout.limit_start(*sizes) + np.arange(model.nlimit) * layout.LIMIT
    name_of = dict(zip(model.joint_link.tolist(), rows, strict=True))
    limited = tuple(name_of[link] for link in model.limit_link.tolist())
    yield _entry("limit_low", "rad | m", limited, [ParameterPiece(limit + layout.LOW)])
    yield _entry("limit_high", "rad | m", limited, [ParameterPiece(limit + layout.HIGH)])
    friction = layout.friction_start(*sizes, model.nlimit) + np.arange(model.nfriction) * layout.FRICTION_LOSS
    rubbing = tuple(name_of[link] for link in model.friction_link.tolist())
    yield _entry("joint_friction", "N m | N", rubbing, [ParameterPiece(friction)])


def _motor_parameters(model: Model) -> Iterator[ParameterInfo]:
    """The parameters of actuators, as their classes declare them; actuators of several kinds may share one."""
    start = layout.motor_start(model.nlink, model.nq) + np.arange(model.nu) * layout.MOTOR
    declared: dict[str, dict[str, ActuatorParameter]] = {}  # name -> kind -> parameter
    for kind, parameters in PARAMETERS.items():
        for parameter in parameters:
            declared.setdefault(parameter.name, {})[kind] = parameter
    for name, of_kind in declared.items():
        owners = np.array([k for k, kind in enumerate(model.motor_kinds) if kind in of_kind], dtype=np.int64)
        kinds = [model.motor_kinds[k] for k in owners]
        pieces: list[ParameterPiece] = []
        for part in dict.fromkeys(part for parameter in of_kind.values() for part in parameter.fields):
            chosen = np.array([k for k, kind in enumerate(kinds) if part in of_kind[kind].fields], dtype=np.int64)
            target = start[owners[chosen]] + part.offset
            if part.width > 1:
                target = _grid(target, np.arange(part.width))
            pieces.append(ParameterPiece(target, part.coefficient, chosen))
        unit = next(iter(of_kind.values())).unit
        ranges = [of_kind[kind].range for kind in kinds]
        yield _entry(name, unit, tuple(model.motors[k] for k in owners), pieces, ranges)


def _shape_parameters(model: Model) -> Iterator[ParameterInfo]:
    """Materials, sizes and positions. Mass and inertia are parameters of the body and do not depend on these sizes."""
    rows = model.shape_names
    start = layout.shape_start(model.nlink, model.nq, model.nu) + np.arange(model.nshape) * layout.SHAPE
    yield _entry("friction", "1", rows, [ParameterPiece(start + layout.FRICTION)])
    yield _entry("restitution", "1", rows, [ParameterPiece(start + layout.RESTITUTION)])
    yield _entry("softness", "m/s per N s", rows, [ParameterPiece(start + layout.SOFTNESS)])
    sizes: list[str] = []
    places: list[int] = []
    ranges: list[Range] = []
    for name, kind, record in zip(rows, model.shape_kind.tolist(), start.tolist(), strict=True):
        for k, part in enumerate(size_names(model.dim, kind)):
            sizes.append(f"{name}.{part}")
            places.append(record + layout.SIZE + k)
            ranges.append(SHAPE_KINDS[ShapeKind(kind)].size_range)
    unit = "m | 1 (factor of a mesh); inertia stays"
    yield _entry("size", unit, tuple(sizes), [ParameterPiece(np.array(places, dtype=np.int64))], ranges)
    solid = model.shape_kind != ShapeKind.PLANE
    place = _grid(start[solid] + layout.PLACE, np.arange(model.dim))
    yield _entry("shape_position", "m", _pick(rows, solid), [ParameterPiece(place)])


SOFT_PARAMETERS = (
    "solref", "solimp", "margin", "torsional_friction", "rolling_friction", "limit_solref", "limit_solimp",
    "limit_margin", "joint_friction_solref", "joint_friction_solimp", "density", "viscosity", "wind", "gravcomp",
    "equality_solref", "equality_solimp", "polycoef", "tendon_stiffness", "tendon_damping", "tendon_friction",
    "tendon_limit_solref", "tendon_limit_solimp", "tendon_friction_solref", "tendon_friction_solimp",
    "adhesion", "surfacevel", "pair_solref",
    "pair_solimp", "pair_margin", "pair_friction",
    "swing_limit", "swing_solref", "swing_solimp", "rope_limit", "rope_solref", "rope_solimp",
)  # fmt: skip
"""Parameters that only MuJoCo's physics reads."""

RIGID_PARAMETERS = ("restitution", "softness")
"""Parameters that only rigid physics reads."""


def _soft_parameters(model: Model) -> Iterator[ParameterInfo]:
    """The parameters of soft constraints; the power of solimp is not one of them."""
    sizes = (model.nlink, model.nq, model.nu, model.nshape, model.nlimit, model.nfriction)
    start = layout.equality_start(*sizes) + model.nequality * layout.EQUALITY + model.nlink * layout.SOFT_LINK
    shapes = start + np.arange(model.nshape) * layout.SOFT_SHAPE
    start += model.nshape * layout.SOFT_SHAPE
    limits = start + np.arange(model.nlimit) * layout.SOFT_JOINT
    frictions = start + (model.nlimit + np.arange(model.nfriction)) * layout.SOFT_JOINT
    name_of = dict(zip(model.joint_link.tolist(), model.joints, strict=True))
    limited, rubbing = (tuple(name_of[i] for i in x.tolist()) for x in (model.limit_link, model.friction_link))
    yield from _softness("", model.shape_names, shapes)
    yield from _softness("limit_", limited, limits)
    yield from _softness("joint_friction_", rubbing, frictions)
    start += (model.nlimit + model.nfriction) * layout.SOFT_JOINT
    yield from _equality_parameters(model, start + np.arange(model.nequality) * layout.SOFT_EQUALITY)
    start += model.nequality * layout.SOFT_EQUALITY
    explicit = () if model.soft is None else model.soft.explicit
    pairs = start + np.arange(len(explicit)) * layout.SOFT_PAIR
    pair_names = tuple(f"{model.shape_names[a]}-{model.shape_names[b]}" for a, b in explicit)
    yield from _softness("pair_", pair_names, pairs)
    yield from _tendon_parameters(model)
    yield from _swing_parameters(model)
    yield _entry("margin", "m", model.shape_names, [ParameterPiece(shapes + layout.MARGIN)])
    yield _entry("torsional_friction", "m", model.shape_names, [ParameterPiece(shapes + layout.TORSIONAL)])
    yield _entry("rolling_friction", "m", model.shape_names, [ParameterPiece(shapes + layout.ROLLING)])
    yield _entry("limit_margin", "rad | m", limited, [ParameterPiece(limits + layout.MARGIN)])
    yield _entry("pair_margin", "m", pair_names, [ParameterPiece(pairs + layout.MARGIN)])
    friction = _grid(pairs + layout.PAIR_FRICTION, np.arange(5))
    yield _entry("pair_friction", "1, 1, m, m, m", pair_names, [ParameterPiece(friction)])
    if model.soft is not None and model.soft.adheres:
        yield _entry("adhesion", "N", model.shape_names, [ParameterPiece(shapes + layout.ADHESION)])
    if model.soft is not None and model.soft.moving:
        surface = _grid(shapes + layout.SURFACE, np.arange(6))
        yield _entry("surfacevel", "m/s | rad/s", model.shape_names, [ParameterPiece(surface)])
    if model.soft is not None and model.soft.medium:
        yield from _medium_parameters(model)


def _softness(prefix: str, rows: tuple[str, ...], at: Array, chosen: Array | None = None) -> Iterator[ParameterInfo]:
    """solref and solimp of constraints whose records start at `at`; chosen: the row of each, if they share rows."""
    solref, solimp = _grid(at + layout.SOLREF, np.arange(2)), _grid(at + layout.SOLIMP, np.arange(4))
    pieces = [ParameterPiece(x, rows=chosen) for x in (solref, solimp)]
    yield _entry(f"{prefix}solref", "s, 1 | -1/s^2, -1/s", rows, pieces[:1])
    yield _entry(f"{prefix}solimp", "1, 1, m | rad, 1", rows, pieces[1:])


def _equality_parameters(model: Model, equations: Array) -> Iterator[ParameterInfo]:
    """Of connects and welds, each of which has several equations, and of couplings."""
    assert model.soft is not None
    couplings, count = model.soft.couplings, len(model.soft.couplings)
    start = len(model.constants) - model.soft.more_size + len(model.soft.tendons) * layout.TENDON
    at = start + np.arange(count) * layout.COUPLING
    names = (*model.equality_names, *(coupling.name for coupling in couplings))
    rows = tuple(dict.fromkeys(names))
    chosen = np.array([rows.index(name) for name in names], dtype=np.int64)
    yield from _softness("equality_", rows, np.concatenate([equations, at]).astype(np.int64), chosen)
    polynomial = _grid(at + layout.POLYNOMIAL, np.arange(5))
    yield _entry("polycoef", "m, 1, 1/m, ... (or rad)", names[len(names) - count :], [ParameterPiece(polynomial)])


def _tendon_parameters(model: Model) -> Iterator[ParameterInfo]:
    assert model.soft is not None
    tendons = model.soft.tendons
    at = len(model.constants) - model.soft.more_size + np.arange(len(tendons)) * layout.TENDON
    rows = tuple(tendon.name for tendon in tendons)
    yield _entry("tendon_stiffness", "N/m", rows, [ParameterPiece(at + layout.TENDON_STIFFNESS)])
    yield _entry("tendon_damping", "N s/m", rows, [ParameterPiece(at + layout.TENDON_DAMPING)])
    for prefix, has, place in (
        ("tendon_limit_", [tendon.limited for tendon in tendons], layout.TENDON_LIMIT),
        ("tendon_friction_", [tendon.rubs for tendon in tendons], layout.TENDON_RUB),
    ):
        chosen = np.array(has, dtype=bool)
        if place == layout.TENDON_RUB:
            piece = ParameterPiece(at[chosen] + layout.TENDON_LOSS)
            yield _entry("tendon_friction", "N", _pick(rows, chosen), [piece])
        yield from _softness(prefix, _pick(rows, chosen), at[chosen] + place)


def _swing_parameters(model: Model) -> Iterator[ParameterInfo]:
    """The limits of ball joints, and of spatial tendons."""
    assert model.soft is not None
    swings = model.soft.swings
    ropes = len(model.constants) - len(model.soft.ropes) * layout.ROPE
    at = ropes + (np.arange(len(swings)) - len(swings)) * layout.SWING
    rows = tuple(swing.name for swing in swings)
    yield _entry("swing_limit", "rad", rows, [ParameterPiece(at + layout.SWING_HIGH)])
    yield from _softness("swing_", rows, at + layout.SWING_LIMIT)
    rows, at = tuple(rope.name for rope in model.soft.ropes), ropes + np.arange(len(model.soft.ropes)) * layout.ROPE
    yield _entry("rope_limit", "m", rows, [ParameterPiece(at + layout.ROPE_RANGE + 1)])
    yield from _softness("rope_", rows, at)


def _medium_parameters(model: Model) -> Iterator[ParameterInfo]:
    """The fluid around the bodies, and the parts of their weights that are compensated."""
    assert model.soft is not None
    start = len(model.constants) - model.soft.more_size - layout.medium_size(model.nlink)
    links = start + layout.MEDIUM + model.body_link * layout.MEDIUM_LINK
    yield _entry("density", "kg/m^3", ("fluid",), [ParameterPiece(np.array([start + layout.DENSITY]))])
    yield _entry("viscosity", "Pa s", ("fluid",), [ParameterPiece(np.array([start + layout.VISCOSITY]))])
    yield _entry("wind", "m/s", tuple("xyz"), [ParameterPiece(start + layout.WIND + np.arange(3))])
    yield _entry("gravcomp", "1", model.bodies, [ParameterPiece(links + layout.GRAVCOMP)])


class ParameterPiece(NamedTuple):
    """Constants that are a parameter's values times a coefficient."""

    target: Array
    """Positions in the constants, [n] or [n, columns]."""
    coefficient: float = 1.0
    rows: Array | None = None
    """The rows of the parameter that are copied there, [n]; None: all."""

    def source(self) -> Array:
        """Positions in the flattened parameter, one for each target."""
        if self.rows is None:
            return np.arange(self.target.size)
        columns = self.target.size // max(len(self.rows), 1)
        return _grid(self.rows * columns, np.arange(columns)).ravel()


def _entry(
    name: str, unit: str, rows: tuple[str, ...], pieces: Sequence[ParameterPiece],
    ranges: Range | Sequence[Range] | None = None, *, groups: Array | None = None,
) -> ParameterInfo:  # fmt: skip
    """A parameter with a value, or a row of values, for each name in `rows`.

    ranges: of every row, or one for all; None: that of `RANGES`. groups: see `ParameterInfo`.
    """
    if ranges is None:
        ranges = RANGES[name]
    of_rows = (ranges,) if isinstance(ranges, Range) else tuple(ranges)
    of_rows = of_rows[:1] if len(set(of_rows)) == 1 else of_rows
    shape = (len(rows), *pieces[0].target.shape[1:])
    size = math.prod(shape)
    source = np.concatenate([piece.source() for piece in pieces])
    target = np.concatenate([piece.target.ravel() for piece in pieces])
    coefficient = np.concatenate([np.full(piece.target.size, piece.coefficient) for piece in pieces])
    unit_group = np.zeros(size, dtype=np.int64) if groups is None else groups
    return ParameterInfo(name, shape, unit, rows, of_rows, source, target, coefficient, unit_group)


def _coordinates(model: Model) -> tuple[tuple[str, ...], Array]:
    """Names of the coordinates q, and the groups of coordinates that are quaternions (see `ParameterInfo`)."""
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
    """The link that has a body's offset: the first of the links that represent its joints."""
    named = set(model.body_link.tolist())
    while model.parent[link] >= 0 and int(model.parent[link]) not in named:
        link = int(model.parent[link])
    return link


def _grid(start: Array, steps: Array) -> Array:
    return start[:, None] + steps


def _pick(names: tuple[str, ...], chosen: Array) -> tuple[str, ...]:
    return tuple(name for name, keep in zip(names, chosen, strict=True) if keep)
