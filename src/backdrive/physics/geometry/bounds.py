"""The broad phase: bounding spheres and boxes around moving shapes, which rule out most pairs before the narrow phase.

The bounds are those of a shape at the start of the step. A pair is tested against the distance that its two shapes can
travel in the step, plus the margin within which contact points are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import Index, Mask, Scalar, ScalarArray, absolute, loop, maximum, memory, sqrt
from ...model.shapes import BoundFactors
from ..math import spatial as sp
from ..math.spatial import Vec
from ..tree.poses import Pose, pose_of
from .solids import ShapeRecord, Solid

if TYPE_CHECKING:
    from ..constraints.constraints import Constraints


def length(a: Vec) -> Scalar:
    """|a|"""
    return sqrt(sp.dot(a, a))


class Bounds:
    """Bounding volumes of all shapes, and how far the shapes can move.

    center [nshape, 3], radius [nshape]: bounding spheres in the world (m). half [nshape, 3]: half extents of bounding
    boxes (m), about the same centers and along the shapes' own axes. travel [nshape]: the farthest that a point of the
    shape can move in the time h (m). margin: the gap at which contact points start to count, relative to the pair's
    size.
    """

    def __init__(
        self, constraints: Constraints, poses: ScalarArray, width: int, h: Scalar, margin: float, changing: bool
    ) -> None:
        """poses: over links, `width` numbers each. changing: velocities change in the step from the second twist to the
        first, or do not change where a constraint holds a link; otherwise there is one twist."""
        self.constraints, self.margin = constraints, margin
        self.center, self.half = memory(constraints.nshape * 3), memory(constraints.nshape * 3)
        self.radius, self.travel = memory(constraints.nshape), memory(constraints.nshape)
        for i in loop(constraints.nshape):
            link, *_ = constraints.shape(i)
            shape, bound = ShapeRecord.of(constraints.shape_record(i)), BoundFactors.of(constraints.bound(i))
            motion = Pose.of(pose_of(poses, link, width, constraints.dim))
            size = shape.size
            local_center = [c * s for c, s in zip(bound.center, size, strict=True)]
            offset = sp.rotate(motion.rotation, sp.rotate(shape.rotation, local_center, shape.position))
            half = [sp.dot(bound.half[3 * k : 3 * k + 3], size, bound.rim * size[0]) for k in range(3)]
            radius = length(half)
            twists = motion.twists[:2] if changing else motion.twists[:1]
            velocities = [sp.cross(twist.angular, offset, twist.linear) for twist in twists]
            speed, spin = length(velocities[-1]), length(twists[-1].angular)
            if changing:
                speed = speed + length(sp.sub(*velocities))
                spin = maximum(spin, length(twists[0].angular))
            self.center.put(i, sp.add(motion.origin, offset))
            self.half.put(i, half)
            self.radius[i] = radius
            self.travel[i] = h * (speed + radius * spin)

    def reach(self, p: Index) -> Scalar:
        """The largest gap (m) from which a pair can come within its margin in the step."""
        a, b = self.constraints.pair_shapes(p)
        return self.margin * self.constraints.pair_size(p) + self.travel[a] + self.travel[b]

    def spheres_near(self, p: Index, half_space: Solid | None, within: Scalar | None = None) -> Mask:
        """Whether the bounding spheres of a pair are within reach of each other; if the second shape is a half-space,
        whether the first sphere is within reach of it. within: another reach (m)."""
        a, b = self.constraints.pair_shapes(p)
        center, reach = self.center.get(a, 3), self.radius[a] + (self.reach(p) if within is None else within)
        if half_space is not None:
            return sp.dot(half_space.center, center) - half_space.size[0] < reach
        between, reach = sp.sub(center, self.center.get(b, 3)), reach + self.radius[b]
        return sp.dot(between, between) < reach * reach

    def boxes_near(self, p: Index, first: Solid, second: Solid, half_space: bool) -> Mask:
        """Whether no face normal of the two bounding boxes is an axis along which they are out of each other's reach;
        half_space: the second solid is a half-space, and its normal is the only axis to test."""
        a, b = self.constraints.pair_shapes(p)
        center, half, reach = self.center.get(a, 3), self.half.get(a, 3), self.reach(p)
        if half_space:
            normal, offset = second.center, second.size[0]
            return sp.dot(normal, center) - offset - _support(first.axes, half, normal) < reach
        between, other_half = sp.sub(center, self.center.get(b, 3)), self.half.get(b, 3)
        separation = -reach
        for axes in (first.axes, second.axes):
            for k in range(3):
                extents = _support(first.axes, half, axes[k::3]) + _support(second.axes, other_half, axes[k::3])
                separation = maximum(separation, absolute(sp.dot(axes[k::3], between)) - extents - reach)
        return separation < 0.0


def _support(axes: Vec, half: Vec, direction: Vec) -> Scalar:
    """Support function of a box about the origin, with these axes and half extents, along a unit vector."""
    extent: Scalar = 0.0
    for k in range(3):
        extent = extent + half[k] * absolute(sp.dot(axes[k::3], direction))
    return extent
