"""A closer broad phase: limbs of a robot have bounding spheres that overlap all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import Index, Mask, Scalar, ScalarArray, absolute, any_lane, carry, loop, memory, select, sqrt, when
from ...model.shapes import BoundFactors
from ..geometry.bounds import Bounds, length
from ..geometry.solids import ShapeRecord, Solid
from ..math import spatial as sp
from ..tree.poses import Pose, pose_of

if TYPE_CHECKING:
    from ..constraints.constraints import Constraints


class RoundedBounds(Bounds):
    """Boxes with round edges around all shapes, which spheres and capsules fill.

    arms [nshape, 9]: the half extents of the boxes as vectors in the world (m). rim [nshape]: the radius of the edges.
    radius [nshape]: of the bounding spheres.
    """

    def __init__(
        self, constraints: Constraints, poses: ScalarArray, width: int, h: Scalar, margin: float, changing: bool
    ) -> None:
        super().__init__(constraints, poses, width, h, margin, changing)
        self.arms, self.rim = memory(constraints.nshape * 9), memory(constraints.nshape)
        for i in loop(constraints.nshape):
            link, *_ = constraints.shape(i)
            shape, bound = ShapeRecord.of(constraints.shape_record(i)), BoundFactors.of(constraints.bound(i))
            axes = sp.matmul(Pose.of(pose_of(poses, link, width, constraints.dim)).rotation, shape.rotation)
            half = [sp.dot(bound.half[3 * k : 3 * k + 3], shape.size) for k in range(3)]
            self.arms.put(i, [half[k] * x for k in range(3) for x in axes[k::3]])
            self.rim[i] = bound.rim * shape.size[0]
            self.radius[i] = length(half) + self.rim[i]

    def spheres_near(self, p: Index, half_space: Solid | None, within: Scalar | None = None) -> Mask:
        """As that of `Bounds`; where spheres are near, the boxes must be so along the line between their centers."""
        near = super().spheres_near(p, half_space, within)
        if half_space is not None:
            return near
        found = carry(1)
        found[0] = 0.0
        for _ in when(any_lane(near)):
            a, b = self.constraints.pair_shapes(p)
            between = sp.sub(self.center.get(a, 3), self.center.get(b, 3))
            square = sp.dot(between, between)
            extent = (self.rim[a] + self.rim[b] + (self.reach(p) if within is None else within)) * sqrt(square)
            for shape in (a, b):
                arms = self.arms.get(shape, 9)
                for k in range(3):
                    extent = extent + absolute(sp.dot(arms[3 * k : 3 * k + 3], between))
            found[0] = select(near & (square <= extent), 1.0, 0.0)
        return found[0] > 0.5
