"""The slider (prismatic joint)."""

from __future__ import annotations

from ....schema.layout import Kind
from ...math import spatial as sp
from ...math.spatial import ZERO3, Vec
from ..tree import LinkConstants
from .base import JointModel


class SliderJoint(JointModel):
    """q: the distance along the axis, m."""

    kind = Kind.SLIDER

    def pose(self, link: LinkConstants, q: Vec) -> tuple[Vec, Vec]:
        return link.rotation, sp.add(link.offset, sp.rotate(link.rotation, sp.scale(q[0], link.axis)))

    def columns(self, link: LinkConstants) -> tuple[Vec, ...]:
        return ((*ZERO3, *link.axis),)


JOINT = SliderJoint()
