"""The hinge (revolute joint)."""

from __future__ import annotations

from ....schema.layout import Kind
from ...math import spatial as sp
from ...math.spatial import Vec
from ..tree import LinkConstants
from .base import JointModel, rotated_about_anchor


class HingeJoint(JointModel):
    """q: the angle about the axis through the anchor, rad."""

    kind = Kind.HINGE

    def pose(self, link: LinkConstants, q: Vec) -> tuple[Vec, Vec]:
        return rotated_about_anchor(link, sp.rotation_about(link.axis, q[0]))

    def columns(self, link: LinkConstants) -> tuple[Vec, ...]:
        return ((*link.axis, *sp.cross(link.anchor, link.axis)),)


JOINT = HingeJoint()
