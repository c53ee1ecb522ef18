"""A closer broad phase: limbs of a robot have bounding spheres that overlap all the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ...ir import (
    Index,
    Mask,
    Scalar,
    ScalarArray,
    absolute,
    any_lane,
    carry,
    is_constant,
    loop,
    memory,
    select,
    sqrt,
    traced,
    when,
)
from ...model.shapes import BoundFactors
from ..geometry.bounds import Bounds, length
from ..geometry.solids import ShapeRecord, Solid
from ..math import spatial as sp
from ..math.arrays import split
from ..tree.poses import Pose, pose_of

if TYPE_CHECKING:
    from ..constraints.constraints import Constraints


class RoundedBounds(Bounds):
    """Boxes with round edges around all shapes, which spheres and capsules fill.

    arms [nshape, 3 n]: half extents of the boxes as vectors in the world (m), along those n of their axes along which
    some shape has any: spheres have none, capsules one. rim [nshape]: the radius of the edges. radius [nshape]: of the
    bounding spheres.
    """

    def __init__(
        self, constraints: Constraints, poses: ScalarArray, width: int, h: Scalar, margin: float, changing: bool
    ) -> None:
        super().__init__(constraints, poses, width, h, margin, changing)
        self._long = [k for k in range(3) if traced(constraints.nshape) or self._extends(k)]
        self.arms, self.rim = memory(constraints.nshape * 3 * len(self._long)), memory(constraints.nshape)
        for i in loop(constraints.nshape):
            link, *_ = constraints.shape(i)
            shape, bound = ShapeRecord.of(constraints.shape_record(i)), BoundFactors.of(constraints.bound(i))
            axes = sp.matmul(Pose.of(pose_of(poses, link, width, constraints.dim)).rotation, shape.rotation)
            half = [_half_extent(shape, bound, k) for k in range(3)]
            self.arms.put(i, [half[k] * x for k in self._long for x in axes[k::3]])
            self.rim[i] = bound.rim * shape.size[0]
            self.radius[i] = length(half) + self.rim[i]

    def _extends(self, k: int) -> bool:
        """Whether some shape may extend along its axis k, beyond the rim."""
        numbers, constraints = range(cast(int, self.constraints.nshape)), self.constraints
        shapes = [ShapeRecord.of(constraints.shape_record(i)) for i in numbers]
        bounds = [BoundFactors.of(constraints.bound(i)) for i in numbers]
        return not all(is_constant(_half_extent(*both, k), 0.0) for both in zip(shapes, bounds, strict=True))

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
                for arm in split(self.arms.get(shape, 3 * len(self._long)), *[3] * len(self._long)):
                    extent = extent + absolute(sp.dot(arm, between))
            found[0] = select(near & (square <= extent), 1.0, 0.0)
        return found[0] > 0.5


def _half_extent(shape: ShapeRecord, bound: BoundFactors, k: int) -> Scalar:
    """The half extent of the box around a shape along its axis k, without the rim (m)."""
    return sp.dot(bound.half[3 * k : 3 * k + 3], shape.size)
