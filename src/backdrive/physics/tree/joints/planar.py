"""The planar joint: translation in the parent's plane z = 0 and rotation about z."""

from __future__ import annotations

from ....schema.layout import Kind
from ...math import spatial as sp
from ...math.spatial import UNIT, ZERO3, Vec
from ..tree import LinkConstants
from .base import JointModel


class PlanarJoint(JointModel):
    """q = (x, y, angle), m and rad. v: its rate, in the parent's axes."""

    kind = Kind.PLANAR
    in_parent_axes = True

    def pose(self, link: LinkConstants, q: Vec) -> tuple[Vec, Vec]:
        shift = sp.rotate(link.rotation, (q[0], q[1], 0.0))
        return sp.matmul(link.rotation, self._rotation(q)), sp.add(link.offset, shift)

    def _rotation(self, q: Vec) -> Vec:
        return sp.rotation_about(UNIT[2], q[2])

    def columns(self, link: LinkConstants) -> tuple[Vec, ...]:
        return ((*ZERO3, *UNIT[0]), (*ZERO3, *UNIT[1]), (*UNIT[2], *ZERO3))

    def to_link_axes(self, link: LinkConstants, q: Vec, v: Vec) -> Vec:
        return (*sp.unrotate(self._rotation(q), (v[0], v[1], 0.0))[:2], v[2])

    def from_link_axes(self, link: LinkConstants, q: Vec, y: Vec) -> Vec:
        return (*sp.rotate(self._rotation(q), (y[0], y[1], 0.0))[:2], y[2])

    def drift(self, velocity: Vec) -> Vec:
        return ZERO3  # the origin moves along the parent's axes


JOINT = PlanarJoint()
