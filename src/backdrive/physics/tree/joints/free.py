"""The free joint: a floating body in 3D."""

from __future__ import annotations

from ....schema.layout import Kind
from ...math import spatial as sp
from ...math.spatial import UNIT, ZERO3, Vec
from ..tree import LinkConstants
from .ball import integrate_quaternion, quaternion_covector, quaternion_displacement
from .base import JointModel

POSITION, QUATERNION = slice(0, 3), slice(3, 7)  # in q
LINEAR, ANGULAR = slice(0, 3), slice(3, 6)  # in v


class FreeJoint(JointModel):
    """q = (position, quaternion) in the world. v = (linear velocity in world axes, angular velocity in link axes)."""

    kind = Kind.FREE
    in_parent_axes = True
    spins = True

    def pose(self, link: LinkConstants, q: Vec) -> tuple[Vec, Vec]:
        return sp.rotation_of(q[QUATERNION]), q[POSITION]

    def columns(self, link: LinkConstants) -> tuple[Vec, ...]:
        return (*((*ZERO3, *e) for e in UNIT), *((*e, *ZERO3) for e in UNIT))

    def to_link_axes(self, link: LinkConstants, q: Vec, v: Vec) -> Vec:
        return (*sp.unrotate(sp.rotation_of(q[QUATERNION]), v[LINEAR]), *v[ANGULAR])

    def from_link_axes(self, link: LinkConstants, q: Vec, y: Vec) -> Vec:
        return (*sp.rotate(sp.rotation_of(q[QUATERNION]), y[LINEAR]), *y[ANGULAR])

    def drift(self, velocity: Vec) -> Vec:
        return ZERO3  # the origin moves along the parent's axes

    def center(self, link: LinkConstants, body: Vec) -> Vec:
        return sp.center_of_mass(body)

    def integrate(self, q: Vec, step: Vec) -> Vec:
        return (*sp.add(q[POSITION], step[LINEAR]), *integrate_quaternion(q[QUATERNION], step[ANGULAR]))

    def displacement(self, q: Vec, rest: Vec) -> Vec:
        return (*sp.sub(q[POSITION], rest[POSITION]), *quaternion_displacement(q[QUATERNION], rest[QUATERNION]))

    def covector(self, q: Vec, gradient: Vec) -> Vec:
        return (*gradient[POSITION], *quaternion_covector(q[QUATERNION], gradient[QUATERNION]))


JOINT = FreeJoint()
