"""From the bodies and joints of a scene to a tree of links: checks of joints, relative poses, order of links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..schema.layout import INERTIA_INDEX, NQ, NV, Kind
from . import checks
from .joints import Free, Planar
from .links import LinkActuator, LinkSpec, rest_position
from .ranges import PLANAR_INERTIA
from .shapes import composite
from .specs import BodySpec, JointSpec, MotorSpec

Array = np.ndarray


def body_inertia(dim: int, value: Any, what: str) -> Array:
    """An inertia given by the user (a number in 2D; 3, 6 or [3, 3] numbers in 3D) as a matrix [3, 3], kg m^2."""
    if dim == 2:
        return np.diag([0.0, 0.0, PLANAR_INERTIA.number(value, what)])
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
    """Whether the child already has a joint to a parent or is an ancestor of its parent; hangs: joints by child."""
    if spec.child in hangs:
        return True
    ancestor = spec.parent
    while ancestor is not None and ancestor in hangs:
        ancestor = hangs[ancestor].parent
        if ancestor == spec.child:
            return True
    return False


def check_loop(spec: JointSpec, why: str) -> None:
    """Raise unless a joint can be expressed by constraint equations, which have no coordinates of their own.

    why: the reason why it must be, for the error message.
    """
    what = f"joint {spec.name!r}"
    if not spec.joint.closes_loops:
        raise ValueError(f"{what}: {why}, and {type(spec.joint).__name__} constrains nothing there")
    refused = ("stiffness", "damping", "armature", "limits", "friction")
    given = [name for name in refused if getattr(spec.joint, name)]
    given += [name for name in ("position", "velocity") if getattr(spec, name) is not None]
    if given:
        raise ValueError(f"{what}: {why}, and a constraint has no {', '.join(given)}")


def check_joint(dim: int, spec: JointSpec) -> None:
    """Raise unless the joint exists in this dimension and can connect these bodies."""
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
    """Raise unless a joint of the tree can start with the position and velocity that were given to it and its body."""
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
    """q [NQ] and v [NV] of a joint from the position and velocity that the user gave."""
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


def build_links(dim: int, bodies: Mapping[str, BodySpec], joints: Mapping[str, JointSpec]) -> list[LinkSpec]:
    """The links: parents first, otherwise in the order in which the bodies were added. joints: those of the tree."""
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
    links: list[LinkSpec] = []

    for name in bodies:
        chain: list[str] = []  # from this body up to, not including, an ancestor whose link exists
        above: str | None = name
        while above is not None and above not in index:
            chain.append(above)
            above = hangs[above].parent
        for body_name in reversed(chain):
            spec = hangs[body_name]
            index[body_name] = len(links)
            links.append(_link(dim, -1 if spec.parent is None else index[spec.parent], spec, bodies))
    return links


def build_actuators(links: list[LinkSpec], motors: list[MotorSpec]) -> list[LinkActuator]:
    """The actuators, on the links of their joints."""
    link_of = {link.joint: i for i, link in enumerate(links)}
    return [LinkActuator(m.name, link_of[m.joint], m.dof, m.motor.kind, m.motor.record()) for m in motors]


def _link(dim: int, parent: int, spec: JointSpec, bodies: Mapping[str, BodySpec]) -> LinkSpec:
    body, joint = bodies[spec.child], spec.joint
    rotation = body.rotation
    mass, com, inertia = _mass_properties(dim, body)
    link = LinkSpec(parent, joint.kind, body.name, spec.name, mass, com, inertia)
    link.stiffness, link.damping, link.armature = joint.stiffness, joint.damping, joint.armature
    link.limits, link.friction = joint.limits, joint.friction
    link.shapes = tuple(body.shapes)
    if spec.floats(dim):
        # The coordinates are the body's pose in the world, so the link's frame at q = 0 is the world's.
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
    link.reference = unmoved if checks.is_zero(joint.rest) else np.atleast_1d(np.array(joint.rest, dtype=np.float64))
    return link


def _mass_properties(dim: int, body: BodySpec) -> tuple[float, Array, Array]:
    """Mass, center of mass [3] and inertia [3, 3] of a body: from its shapes, unless the user gave them."""
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
        # Only rotation in the plane exists. The parallel axis theorem would also fill in the other moments.
        inertia = np.diag([0.0, 0.0, inertia[2, 2]])
    return mass, com, inertia
