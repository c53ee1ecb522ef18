"""From a list of links and motors to the flat tables of a Model.

Both ways to make a world, ``Scene.build`` and ``load``, end here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from . import layout
from .layout import NQ, NV, Kind
from .model import Model
from .shapes import PlacedShape

Array = np.ndarray

_REST = {
    Kind.FIXED: (),
    Kind.HINGE: (0.0,),
    Kind.SLIDER: (0.0,),
    Kind.BALL: (1.0, 0.0, 0.0, 0.0),
    Kind.PLANAR: (0.0, 0.0, 0.0),
    Kind.FREE: (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0),
}


def rest_position(kind: Kind) -> Array:
    """The coordinates of a joint that has not moved, [NQ[kind]]."""
    return np.array(_REST[kind])


@dataclass(frozen=True)
class Inertial:
    """Mass (kg), center of mass [3] (m), and inertia about it along the body axes [3, 3] (kg m^2)."""

    mass: float
    com: Array
    inertia: Array


@dataclass
class Link:
    """One rigid link and the joint that connects it to its parent (lengths in m, kg, rad).

    ``body`` and ``joint`` are the users' names; a link without a body name is a massless step between
    two joints of one body, a link without a joint name is rigidly attached.
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
    reference: Array | None = None
    q0: Array | None = None
    v0: Array | None = None
    shapes: tuple[PlacedShape, ...] = ()


@dataclass(frozen=True)
class Actuator:
    """A motor on coordinate ``dof`` of link ``link``; ``record`` is its MOTOR record."""

    name: str
    link: int
    dof: int
    kind: str
    record: tuple[float, ...]


def pack(
    dim: int,
    links: Sequence[Link],
    actuators: Sequence[Actuator],
    gravity: Array,
    *,
    timestep: float | None = None,
    statics: tuple[PlacedShape, ...] = (),
    excluded: tuple[tuple[str, str], ...] = (),
) -> Model:
    """Write the tables. Links come parents first; ``gravity`` is [3], m/s^2."""
    _refuse_massless(links)
    kinds = [link.kind for link in links]
    qadr, vadr, nq, _ = layout.addresses(kinds)
    constants = np.concatenate(
        [_record(link) for link in links]
        + [_or_rest(link.reference, link) for link in links]
        + [np.array(a.record) for a in actuators]
        + [np.asarray(gravity, dtype=np.float64)]
    )
    if len(constants) != layout.constants_size(len(links), nq, len(actuators)):
        raise AssertionError("the tables do not have the layout's size")
    for link in links:
        if not np.isfinite(_record(link)).all():
            raise ValueError(f"body {link.body!r} (joint {link.joint!r}) has constants that are not finite")
    bodies = [i for i, link in enumerate(links) if link.body is not None]
    joints = [i for i, link in enumerate(links) if link.joint is not None]
    return Model(
        dim=dim,
        bodies=tuple(str(links[i].body) for i in bodies),
        joints=tuple(str(links[i].joint) for i in joints),
        motors=tuple(a.name for a in actuators),
        motor_kinds=tuple(a.kind for a in actuators),
        parent=np.array([link.parent for link in links], dtype=np.int64),
        kind=np.array(kinds, dtype=np.int64),
        body_link=np.array(bodies, dtype=np.int64),
        joint_link=np.array(joints, dtype=np.int64),
        motor_q=np.array([qadr[a.link] + a.dof for a in actuators], dtype=np.int64),
        motor_v=np.array([vadr[a.link] + a.dof for a in actuators], dtype=np.int64),
        constants=constants,
        q0=np.concatenate([_or_rest(link.q0, link) for link in links]),
        v0=np.concatenate([np.zeros(NV[link.kind]) if link.v0 is None else link.v0 for link in links]),
        timestep=timestep,
        shapes=tuple(links[i].shapes for i in bodies),
        statics=statics,
        excluded=excluded,
    )


def _record(link: Link) -> Array:
    """The LINK record, in the order of layout.py."""
    inertia = [link.inertia[i, j] for i, j in layout.INERTIA_INDEX]
    joint = (link.stiffness, link.damping, link.armature)
    return np.concatenate(
        [[link.mass], link.com, inertia, link.offset, link.rotation.ravel(), link.anchor, link.axis, joint]
    ).astype(np.float64)


def _or_rest(value: Array | None, link: Link) -> Array:
    result = rest_position(link.kind) if value is None else np.asarray(value, dtype=np.float64)
    if result.shape != (NQ[link.kind],):
        raise AssertionError(f"joint {link.joint!r}: coordinates of shape {result.shape}")
    return result


def _refuse_massless(links: Sequence[Link]) -> None:
    """A movable joint that carries no inertia makes the mass matrix singular: say which one."""
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


def _owner(links: Sequence[Link], i: int) -> str | None:
    """The body a nameless link belongs to: the next named one below it."""
    for j in range(i, len(links)):
        if links[j].body is not None:
            return links[j].body
    return None


def motor_record(
    gear: float,
    gain: float,
    bias: tuple[float, float, float],
    limits: tuple[float, float] = (-math.inf, math.inf),
    force_limits: tuple[float, float] = (-math.inf, math.inf),
) -> tuple[float, ...]:
    """The MOTOR record, in the order of layout.py."""
    return (gear, gain, *bias, *limits, *force_limits)
