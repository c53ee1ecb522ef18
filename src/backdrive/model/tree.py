"""From what a Scene was told to a tree of links: joint checks, relative poses, order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..schema.layout import INERTIA_INDEX, NQ, NV, Kind
from . import checks
from .constraints import Constraint
from .joints import Free, Joint, Planar
from .links import Actuator, Link, rest_position
from .motors import Motor
from .rotations import from_orientation
from .shapes import PlacedShape, composite

Array = np.ndarray
Material = tuple[float, float, float]
"""friction, restitution, softness"""


@dataclass
class BodySpec:
    """A body as the user described it; vectors are 3D, orientation is an angle [1] or a quaternion [4]."""

    name: str
    mass: float | None
    density: float | None
    position: Array
    orientation: Array
    material: Material
    shapes: list[PlacedShape] = field(default_factory=list)
    velocity: Array = field(default_factory=lambda: np.zeros(3))
    angular_velocity: Array = field(default_factory=lambda: np.zeros(3))
    moving: bool = False
    com: Array | None = None
    inertia: Array | None = None

    @property
    def rotation(self) -> Array:
        return from_orientation(self.orientation)


@dataclass(frozen=True)
class JointSpec:
    """A joint between two bodies; anchor is a world point [3], position and velocity are as given."""

    name: str
    joint: Joint
    parent: str | None
    child: str
    anchor: Array
    position: Any
    velocity: Any

    def floats(self, dim: int) -> bool:
        """Whether the joint's coordinates are the pose of the body in the world."""
        kind = self.joint.kind
        return kind == Kind.FREE or (kind == Kind.PLANAR and dim == 2 and self.parent is None)


@dataclass(frozen=True)
class ConstraintSpec:
    """A constraint between body a and body b (None: the world); anchors are world points [3]."""

    name: str
    constraint: Constraint
    a: str
    b: str | None
    anchor_a: Array
    anchor_b: Array


@dataclass(frozen=True)
class MotorSpec:
    """A motor on coordinate ``dof`` of a joint."""

    name: str
    motor: Motor
    joint: str
    dof: int


def body_inertia(dim: int, value: Any, what: str) -> Array:
    """A user's inertia as [3, 3]: a number in 2D; 3, 6 or [3, 3] numbers in 3D."""
    if dim == 2:
        return np.diag([0.0, 0.0, checks.number(value, what, low=0.0, strict=True)])
    given = checks.array(value, what)
    if given.shape == (3,):
        matrix = np.diag(given)
    elif given.shape == (6,):
        matrix = np.zeros((3, 3))
        for entry, (i, j) in zip(given, INERTIA_INDEX, strict=True):
            matrix[i, j] = matrix[j, i] = entry
    elif given.shape == (3, 3):
        matrix = given
    else:
        raise ValueError(f"{what} must be 3, 6 or [3, 3] numbers, got shape {given.shape}")
    checks.physical_inertia(matrix, what)
    return matrix


def closes_loop(spec: JointSpec, hangs: Mapping[str, JointSpec]) -> bool:
    """Whether the child hangs on a joint already, or carries the parent; hangs: joints by child body."""
    if spec.child in hangs:
        return True
    ancestor = spec.parent
    while ancestor is not None and ancestor in hangs:
        ancestor = hangs[ancestor].parent
        if ancestor == spec.child:
            return True
    return False


def check_loop(spec: JointSpec, why: str) -> None:
    """Raise unless a joint can be a constraint, because of ``why``: equations have no coordinates of their own."""
    what = f"joint {spec.name!r}"
    if not spec.joint.closes_loops:
        raise ValueError(f"{what}: {why}, and {type(spec.joint).__name__} constrains nothing there")
    refused = ("stiffness", "damping", "armature", "limits", "friction")
    given = [name for name in refused if getattr(spec.joint, name)]
    given += [name for name in ("position", "velocity") if getattr(spec, name) is not None]
    if given:
        raise ValueError(f"{what}: {why}, and a constraint has no {', '.join(given)}")


def check_joint(dim: int, spec: JointSpec) -> None:
    """Raise unless the joint fits the dimension and the bodies."""
    what = f"joint {spec.name!r}"
    joint, kind = spec.joint, spec.joint.kind
    if spec.parent == spec.child:
        raise ValueError(f"{what}: body {spec.child!r} cannot be its own parent")
    if dim not in joint.dims:
        raise ValueError(f"{what}: {type(joint).__name__} is a 3D joint; in 2D use Hinge or Planar")
    if kind == Kind.FREE and spec.parent is not None:
        raise ValueError(f"{what}: a free joint connects to the world only, got parent={spec.parent!r}")
    joint.world_axis(dim, what)


def check_coordinates(dim: int, spec: JointSpec, body: BodySpec) -> None:
    """Raise unless the body can start as it was told to, on a joint of the tree."""
    what = f"joint {spec.name!r}"
    floats = spec.floats(dim)
    if floats and (spec.position is not None or spec.velocity is not None):
        raise ValueError(f"{what}: body {spec.child!r} floats: give its position and velocity to add_body instead")
    if body.moving and not floats:
        raise ValueError(
            f"{what}: body {spec.child!r} was given a velocity, but now moves with its joint: "
            "set add_joint(..., velocity=...) instead"
        )
    initial_coordinates(spec)


def initial_coordinates(spec: JointSpec) -> tuple[Array, Array]:
    """q [NQ], v [NV] from the position and velocity given to the joint."""
    kind, what = spec.joint.kind, f"joint {spec.name!r}"
    q, v = rest_position(kind), np.zeros(NV[kind])
    scalar = NQ[kind] == 1
    if spec.position is not None:
        q = checks.vector([spec.position] if scalar else spec.position, NQ[kind], f"{what}: position")
        if kind == Kind.BALL:
            q = checks.unit_quaternion(q, f"{what}: position")
    if spec.velocity is not None:
        v = checks.vector([spec.velocity] if scalar else spec.velocity, NV[kind], f"{what}: velocity")
    return q, v


def build_links(dim: int, bodies: Mapping[str, BodySpec], joints: Mapping[str, JointSpec]) -> list[Link]:
    """Links, parents first, otherwise in the order the bodies were added; joints: those of the tree."""
    hangs = {spec.child: spec for spec in joints.values()}
    for body in bodies.values():
        if body.name not in hangs:
            if body.name in joints:
                raise ValueError(
                    f"joint {body.name!r} has the name of body {body.name!r}, which moves freely on a joint "
                    "of its own name: rename one of them"
                )
            implicit = Planar() if dim == 2 else Free()
            hangs[body.name] = JointSpec(body.name, implicit, None, body.name, body.position, None, None)
    index: dict[str, int] = {}
    links: list[Link] = []

    for name in bodies:
        chain: list[str] = []  # from this body up to an ancestor that has its link already
        above: str | None = name
        while above is not None and above not in index:
            chain.append(above)
            above = hangs[above].parent
        for body_name in reversed(chain):
            spec = hangs[body_name]
            index[body_name] = len(links)
            links.append(_link(dim, -1 if spec.parent is None else index[spec.parent], spec, bodies))
    return links


def build_actuators(links: list[Link], motors: list[MotorSpec]) -> list[Actuator]:
    """The motors, on the links that carry their joints."""
    link_of = {link.joint: i for i, link in enumerate(links)}
    return [Actuator(m.name, link_of[m.joint], m.dof, m.motor.kind, m.motor.record()) for m in motors]


def _link(dim: int, parent: int, spec: JointSpec, bodies: Mapping[str, BodySpec]) -> Link:
    body, joint = bodies[spec.child], spec.joint
    rotation = body.rotation
    mass, com, inertia = _mass_properties(dim, body)
    link = Link(parent, joint.kind, body.name, spec.name, mass, com, inertia)
    link.stiffness, link.damping, link.armature = joint.stiffness, joint.damping, joint.armature
    link.limits, link.friction = joint.limits, joint.friction
    link.shapes = tuple(body.shapes)
    if spec.floats(dim):
        # Coordinates are the world pose itself, so the frame they start from is the world's.
        link.q0 = np.concatenate([body.position[:dim], body.orientation])
        spin = body.angular_velocity[2:] if dim == 2 else rotation.T @ body.angular_velocity
        link.v0 = np.concatenate([body.velocity[:dim], spin])
        unmoved = link.q0
    else:
        base = bodies[spec.parent] if spec.parent is not None else None
        base_position = np.zeros(3) if base is None else base.position
        base_rotation = np.eye(3) if base is None else base.rotation
        link.offset = base_rotation.T @ (body.position - base_position)
        link.rotation = base_rotation.T @ rotation
        link.anchor = rotation.T @ (spec.anchor - body.position)
        link.axis = rotation.T @ joint.world_axis(dim, f"joint {spec.name!r}")
        link.q0, link.v0 = initial_coordinates(spec)
        unmoved = rest_position(joint.kind)
    unsprung = isinstance(joint.rest, int | float) and joint.rest == 0.0
    link.reference = unmoved if unsprung else np.atleast_1d(np.array(joint.rest, dtype=np.float64))
    return link


def _mass_properties(dim: int, body: BodySpec) -> tuple[float, Array, Array]:
    """Mass, com [3], inertia [3, 3] of a body: from its shapes, unless given."""
    what = f"body {body.name!r}"
    if body.shapes:
        mass, com, inertia = composite(body.shapes, body.mass, body.density or 0.0)
    elif body.density is not None:
        raise ValueError(f"{what}: a density needs a shape; give the mass instead")
    elif body.inertia is None:
        raise ValueError(f"{what} has no shape: give its inertia (about its com, kg m^2)")
    else:
        mass, com, inertia = body.mass or 0.0, np.zeros(3), body.inertia
    if body.com is not None:
        com = body.com
    if body.inertia is not None:
        inertia = body.inertia
    if dim == 2:
        # Only the rotation in the plane exists; parallel axes would fill in others.
        inertia = np.diag([0.0, 0.0, inertia[2, 2]])
    return mass, com, inertia
