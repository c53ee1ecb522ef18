"""The fixed joint: the link is one rigid body with its parent."""

from __future__ import annotations

from ....schema.layout import Kind
from ...math.spatial import Vec
from ..tree import LinkConstants
from .base import JointModel


class FixedJoint(JointModel):
    """No coordinates."""

    kind = Kind.FIXED

    def pose(self, link: LinkConstants, q: Vec) -> tuple[Vec, Vec]:
        return link.rotation, link.offset

    def columns(self, link: LinkConstants) -> tuple[Vec, ...]:
        return ()


JOINT = FixedJoint()
