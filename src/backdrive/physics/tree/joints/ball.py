"""The ball joint (spherical joint), and the calculus of unit quaternions as coordinates."""

from __future__ import annotations

from ....schema.layout import Kind
from ...math import spatial as sp
from ...math.spatial import UNIT, Vec
from ..tree import LinkConstants
from .base import JointModel, rotated_about_anchor


def integrate_quaternion(q: Vec, step: Vec) -> Vec:
    """q exp(step), for a rotation vector in the link's axes (rad); q is normalised first."""
    return sp.quaternion_product(sp.normalised(q), sp.quaternion_exp(step))


def quaternion_displacement(q: Vec, rest: Vec) -> Vec:
    """log(rest⁻¹ q): the rotation vector from `rest` to q, rad."""
    w, x, y, z = sp.normalised(rest)
    return sp.quaternion_log(sp.quaternion_product((w, -x, -y, -z), sp.normalised(q)))


def quaternion_covector(q: Vec, gradient: Vec) -> Vec:
    """The gradient with respect to rotation vectors, from one with respect to q, which need not have unit length."""
    w, x, y, z = q
    along = ((-x, w, z, -y), (-y, -z, w, x), (-z, y, -x, w))  # q i, q j, q k
    return tuple(0.5 * sum(a * b for a, b in zip(direction, gradient, strict=True)) for direction in along)


class BallJoint(JointModel):
    """q: a quaternion (w first). v: the angular velocity in the link's axes, rad/s."""

    kind = Kind.BALL
    spins = True

    def pose(self, link: LinkConstants, q: Vec) -> tuple[Vec, Vec]:
        return rotated_about_anchor(link, sp.rotation_of(q))

    def columns(self, link: LinkConstants) -> tuple[Vec, ...]:
        return tuple((*e, *sp.cross(link.anchor, e)) for e in UNIT)

    def center(self, link: LinkConstants, body: Vec) -> Vec:
        return link.anchor

    def integrate(self, q: Vec, step: Vec) -> Vec:
        return integrate_quaternion(q, step)

    def displacement(self, q: Vec, rest: Vec) -> Vec:
        return quaternion_displacement(q, rest)

    def covector(self, q: Vec, gradient: Vec) -> Vec:
        return quaternion_covector(q, gradient)


JOINT = BallJoint()
