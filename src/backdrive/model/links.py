"""From links, actuators and shapes to the flat tables of a Model.

Both ways to make a world, ``Scene.build`` and ``load``, end in `pack`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..schema import layout
from ..schema.layout import NQ, NV, EqualityKind, Kind
from .geometry import shape_tables
from .joints import JOINT_PARAMETERS
from .looks import Looks
from .model import Model
from .pairs import Connection, RigidGroups, contact_pairs
from .ranges import RANGES
from .shapes import PlacedShape, half_space_in_world
from .soft import SoftParts

Array = np.ndarray


def rest_position(kind: Kind) -> Array:
    """The coordinates q [NQ] of a joint that has not moved."""
    return np.array(kind.coordinates.unmoved)


@dataclass(frozen=True)
class Inertial:
    """Mass (kg), center of mass [3] (m), and the inertia [3, 3] about it, along the body axes (kg m^2)."""

    mass: float
    com: Array
    inertia: Array


@dataclass
class LinkSpec:
    """A rigid link and the joint that connects it to its parent; units: m, kg, rad, s, N.

    ``body`` and ``joint`` are the user's names. A link without a body name is a massless intermediate link between two
    joints of one body; a link without a joint name is rigidly attached. ``parent`` -1 is the world.
    """

    parent: int
    kind: Kind
    body: str | None = None
    joint: str | None = None
    mass: float = 0.0
    com: Array = field(default_factory=lambda: np.zeros(3))
    inertia: Array = field(default_factory=lambda: np.zeros((3, 3)))
    offset: Array = field(default_factory=lambda: np.zeros(3))
    rotation: Array = field(default_factory=lambda: np.eye(3))
    anchor: Array = field(default_factory=lambda: np.zeros(3))
    axis: Array = field(default_factory=lambda: np.zeros(3))
    stiffness: float = 0.0
    damping: float = 0.0
    armature: float = 0.0
    friction: float = 0.0
    limits: tuple[float, float] | None = None
    reference: Array | None = None
    q0: Array | None = None
    v0: Array | None = None
    shapes: tuple[PlacedShape, ...] = ()


@dataclass(frozen=True)
class LinkActuator:
    """An actuator on degree of freedom ``dof`` of link ``link`` (-1: on a tendon); ``record`` is its MOTOR record."""

    name: str
    link: int
    dof: int
    kind: str
    record: tuple[float, ...]


@dataclass(frozen=True)
class Equality:
    """One scalar equation between links a and b (-1: the world). `EqualityKind` says which fields it uses."""

    name: str
    kind: EqualityKind
    a: int
    b: int
    point_a: Array
    point_b: Array
    direction: Array = field(default_factory=lambda: np.zeros(3))
    relative: Array = field(default_factory=lambda: np.eye(3))
    distance: float = 0.0

    def record(self) -> Array:
        """The EQUALITY record, in the order of layout.py."""
        return np.concatenate(
            [self.point_a, self.point_b, self.direction, self.relative.ravel(), [self.distance]]
        ).astype(np.float64)


@dataclass(frozen=True)
class WorldParts:
    """Everything that a Model is made of. Links come parents first; ``gravity`` is [3], m/s^2.

    timestep: s, recommended by the file. statics: shapes of the world. excluded: pairs of bodies that do not collide.
    separate: pairs of a body and a static shape that do not collide. connections: bodies that joints outside of the
    tree keep together. touching: pairs of shapes (by their order in the model) that collide although other rules
    exclude them. parents_touch: whether a body may collide with its parent. combine: how friction and restitution of a
    pair follow from those of its shapes: mean, max or min. soft: what MuJoCo's physics needs, or None. looks,
    keyframes: of the file (see `Model`).
    """

    dim: int
    links: Sequence[LinkSpec]
    actuators: Sequence[LinkActuator]
    gravity: Array
    timestep: float | None = None
    statics: tuple[PlacedShape, ...] = ()
    excluded: tuple[tuple[str, str], ...] = ()
    separate: tuple[tuple[str, str], ...] = ()
    equalities: Sequence[Equality] = ()
    connections: Sequence[Connection] = ()
    touching: Sequence[tuple[int, int]] = ()
    parents_touch: bool = False
    combine: str = "mean"
    soft: SoftParts | None = None
    looks: Looks | None = None
    keyframes: tuple[tuple[str, Array, Array], ...] = ()


def pack(parts: WorldParts) -> Model:
    """Write the tables of a model."""
    links, actuators, statics, equalities = parts.links, parts.actuators, parts.statics, parts.equalities
    excluded, separate, connections, touching = parts.excluded, parts.separate, parts.connections, parts.touching
    _refuse_massless(links)
    _check_ranges(links, statics)
    kinds = [link.kind for link in links]
    qadr, vadr, nq, _ = layout.addresses(kinds)
    bodies = [i for i, link in enumerate(links) if link.body is not None]
    joints = [i for i, link in enumerate(links) if link.joint is not None]
    limited = [i for i, link in enumerate(links) if link.limits is not None]
    rubbing = [i for i, link in enumerate(links) if link.friction > 0.0]
    parent, kind = (np.array(values, dtype=np.int64) for values in ([link.parent for link in links], kinds))

    owners = [i for i in bodies for _ in links[i].shapes] + [-1] * len(statics)
    placed = [shape for i in bodies for shape in links[i].shapes] + list(statics)
    names = _shape_names(links, bodies, statics)
    shape_link = np.array(owners, dtype=np.int64)
    for i, shape in enumerate(placed):
        if not shape.shape.bounded:
            placed[i] = half_space_in_world(shape, *_fixed_pose(links, owners[i], names[i]))
            shape_link[i] = -1
    tables = shape_tables(placed)
    named = np.array([link.body is not None for link in links])
    link_of = {link.body: i for i, link in enumerate(links) if link.body is not None}
    shapes_of = {link: [i for i, owner in enumerate(owners) if owner == link] for link in bodies}
    static_of = {shape.name: len(owners) - len(statics) + k for k, shape in enumerate(statics)}
    pairs = contact_pairs(
        placed,
        np.array(owners, dtype=np.int64),
        RigidGroups(parent, kind, named, connections),
        excluded=[(link_of.get(a, -1), link_of.get(b, -1)) for a, b in excluded],
        separate=[(i, static_of[static]) for body, static in separate for i in shapes_of[link_of[body]]],
        added=touching,
        parents_touch=parts.parents_touch,
    )

    constants = np.concatenate(
        [_record(link) for link in links]
        + [_or_rest(link.reference, link) for link in links]
        + [np.array(a.record) for a in actuators]
        + [np.asarray(parts.gravity, dtype=np.float64), tables.records.ravel()]
        + [np.array(links[i].limits) for i in limited]
        + [np.array([links[i].friction for i in rubbing])]
        + [equality.record() for equality in equalities]
        + ([] if parts.soft is None else [parts.soft.constants])
    )
    sizes = (len(links), nq, len(actuators), len(placed), len(limited), len(rubbing), len(equalities))
    soft_size = 0
    if parts.soft is not None:
        medium = layout.medium_size(len(links)) if parts.soft.options.medium else 0
        soft_size = (
            layout.soft_size(len(links), *sizes[3:], len(parts.soft.options.explicit))
            + medium
            + parts.soft.options.more_size
        )
    if len(constants) != layout.constants_size(*sizes) + soft_size:
        raise AssertionError("the constants do not have the size that the layout says")
    for link in links:
        if not np.isfinite(_record(link)).all():
            raise ValueError(f"body {link.body!r} (joint {link.joint!r}) has constants that are not finite")
    return Model(
        dim=parts.dim,
        bodies=tuple(str(links[i].body) for i in bodies),
        joints=tuple(str(links[i].joint) for i in joints),
        motors=tuple(a.name for a in actuators),
        motor_kinds=tuple(a.kind for a in actuators),
        parent=parent,
        kind=kind,
        body_link=np.array(bodies, dtype=np.int64),
        joint_link=np.array(joints, dtype=np.int64),
        motor_q=np.array([-1 if a.link < 0 else qadr[a.link] + a.dof for a in actuators], dtype=np.int64),
        motor_v=np.array([-1 if a.link < 0 else vadr[a.link] + a.dof for a in actuators], dtype=np.int64),
        constants=constants,
        q0=np.concatenate([_or_rest(link.q0, link) for link in links]),
        v0=np.concatenate([np.zeros(NV[link.kind]) if link.v0 is None else link.v0 for link in links]),
        timestep=parts.timestep,
        shapes=tuple(links[i].shapes for i in bodies),
        statics=statics,
        excluded=excluded + separate,
        shape_names=names,
        shape_kind=tables.kind,
        shape_link=shape_link,
        shape_hull=tables.shape_hull,
        hull_geometry=tables.hull_geometry,
        pairs=pairs,
        limit_link=np.array(limited, dtype=np.int64),
        friction_link=np.array(rubbing, dtype=np.int64),
        equality_names=tuple(equality.name for equality in equalities),
        equality_kind=np.array([equality.kind for equality in equalities], dtype=np.int64),
        equality_link=np.array([(e.a, e.b) for e in equalities], dtype=np.int64).reshape(-1, 2),
        combine=parts.combine,
        soft=None if parts.soft is None else parts.soft.options,
        file_looks=parts.looks,
        file_keyframes=parts.keyframes,
    )


def _shape_names(links: Sequence[LinkSpec], bodies: Sequence[int], statics: Sequence[PlacedShape]) -> tuple[str, ...]:
    """Unique names of all shapes: their own, else the body's, with a number if the body has several shapes."""
    given: list[str | None] = []
    wanted: list[str] = []
    for i in bodies:
        shapes = links[i].shapes
        given += [shape.name for shape in shapes]
        wanted += [f"{links[i].body}:{k}" if len(shapes) > 1 else str(links[i].body) for k in range(len(shapes))]
    given += [shape.name for shape in statics]
    wanted += [f"static{k}" for k in range(len(statics))]
    times = Counter(given)
    names = [own if own and times[own] == 1 else other for own, other in zip(given, wanted, strict=True)]
    taken: set[str] = set()
    for i, name in enumerate(names):
        while name in taken:  # a static shape may have the same name as a body
            name += "_"
        taken.add(name)
        names[i] = name
    return tuple(names)


def _fixed_pose(links: Sequence[LinkSpec], link: int, shape: str) -> tuple[Array, Array]:
    """World position [3] and rotation [3, 3] of a link that is fixed to the world; other links raise."""
    position, rotation = np.zeros(3), np.eye(3)
    while link >= 0:
        here = links[link]
        if here.kind != Kind.FIXED:
            raise ValueError(f"half-space {shape!r} is on body {here.body!r}, which moves: half-spaces cannot")
        position, rotation = here.offset + here.rotation @ position, here.rotation @ rotation
        link = here.parent
    return position, rotation


def _record(link: LinkSpec) -> Array:
    """The LINK record, in the order of layout.py."""
    inertia = [link.inertia[i, j] for i, j in layout.INERTIA_INDEX]
    joint = (link.stiffness, link.damping, link.armature)
    return np.concatenate(
        [[link.mass], link.com, inertia, link.offset, link.rotation.ravel(), link.anchor, link.axis, joint]
    ).astype(np.float64)


def _or_rest(value: Array | None, link: LinkSpec) -> Array:
    """Coordinates of a link, by default those of a joint that has not moved."""
    result = rest_position(link.kind) if value is None else np.asarray(value, dtype=np.float64)
    if result.shape != (NQ[link.kind],):
        raise AssertionError(f"joint {link.joint!r}: coordinates of shape {result.shape}")
    return result


def _check_ranges(links: Sequence[LinkSpec], statics: Sequence[PlacedShape]) -> None:
    """Raise if a number of a joint or material is out of its range: files of other programs may have anything."""
    for link in links:
        for name, parameter in JOINT_PARAMETERS.items():
            RANGES[parameter].number(getattr(link, name), f"joint {link.joint!r}: {name}")
    for shapes, owner in (*((link.shapes, f"body {link.body!r}") for link in links), (statics, "a static shape")):
        for shape in shapes:
            for name in ("friction", "restitution", "softness"):
                RANGES[name].number(getattr(shape, name), f"{owner}: {name}")


def _refuse_massless(links: Sequence[LinkSpec]) -> None:
    """Raise if a joint moves no inertia, which would make the mass matrix singular."""
    carried = [link.mass for link in links]
    for i in range(len(links) - 1, -1, -1):
        link = links[i]
        if link.kind != Kind.FIXED and carried[i] <= 0.0 and link.armature <= 0.0:
            raise ValueError(
                f"body {_owner(links, i)!r} moves on joint {link.joint!r} but has no mass, nor has anything "
                "attached to it: its acceleration is undefined. Give it a mass, or its joint an armature"
            )
        if link.parent >= 0:
            carried[link.parent] += carried[i]


def _owner(links: Sequence[LinkSpec], i: int) -> str | None:
    """The body that an intermediate link belongs to: that of the next link with a body."""
    for j in range(i, len(links)):
        if links[j].body is not None:
            return links[j].body
    return None
