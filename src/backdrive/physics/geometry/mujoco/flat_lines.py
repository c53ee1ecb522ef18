"""A line that lies on a face: the side of a cylinder on a cap or on a face of a box, an edge of a box on a cap.

MuJoCo has a contact at each end of the part of the line that is over the face, with the normal of the face.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ....ir import Mask, Scalar, absolute, clip, maximum, minimum, select
from ...math.spatial import Vec, dot, scale, sub
from ..pairs.common import along
from ..solids import FAR, Solid
from .contacts import GeomContact, choose_contact, keep
from .flat_faces import ROUND

LYING = 0.0888
"""Sine of the angle between a line and a face below which the line lies on the face."""


class FlatLine:
    """A line x + t w, and the part from low to high (m) that is left after cuts."""

    def __init__(self, x: Vec, w: Vec, half: Scalar) -> None:
        self.x, self.w, self.low, self.high, self.half = x, w, -half, half, half

    def cut(self, direction: Vec, center: Vec, half: Scalar, applies: Mask = True) -> None:
        """Keep what is at most `half` (m) from the center, in a direction."""
        slope, here = dot(direction, self.w), dot(direction, sub(self.x, center))
        parallel = absolute(slope) < 1e-12
        inverse = 1.0 / select(parallel, 1.0, slope)
        first, second = (-half - here) * inverse, (half - here) * inverse
        outside = select(absolute(here) > half, FAR, -FAR)
        low = maximum(self.low, select(parallel, outside, minimum(first, second)))
        high = minimum(self.high, select(parallel, FAR, maximum(first, second)))
        self.low, self.high = select(applies, low, self.low), select(applies, high, self.high)

    def cut_at_cap(self, cylinder: Solid) -> None:
        """Keep what is over a cap of a cylinder, seen along its axis."""
        x, y = tuple(cylinder.axes[0::3]), tuple(cylinder.axes[1::3])
        for k in range(ROUND // 2):
            angle = (2.0 * k + 1.0) * math.pi / ROUND
            direction = along(scale(math.cos(angle), x), y, math.sin(angle))
            self.cut(direction, cylinder.center, math.cos(math.pi / ROUND) * cylinder.size[0])

    @property
    def is_left(self) -> Mask:
        return self.low < self.high

    @property
    def ends(self) -> list[Vec]:
        return [along(self.x, self.w, clip(t, -self.half, self.half)) for t in (self.low, self.high)]

    @property
    def cuts(self) -> list[Mask]:
        """Whether the ends were cut off."""
        return [self.low > -self.half, self.high < self.half]


class LineEnds(NamedTuple):
    """The contacts of the ends of a line."""

    line: FlatLine
    points: list[GeomContact]

    def within(self, margin: Scalar) -> list[GeomContact]:
        """Those within the margin. If only one is, and it was cut off, MuJoCo has it twice."""
        near = [self.line.is_left & (point.dist <= margin) for point in self.points]
        result = []
        for k, point in enumerate(self.points):
            twice = (point.dist > margin) & near[1 - k] & self.line.cuts[1 - k]
            result.append(keep(near[k] | twice, choose_contact(twice, self.points[1 - k], point)))
        return result
