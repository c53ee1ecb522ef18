"""The broad phase: balls and boxes around the shapes, wide enough for what moves, that tell which pairs may meet."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir import Scalar, absolute, loop, maximum, memory, sqrt
from ...schema import layout
from ...schema.layout import ShapeKind
from ..math import spatial as sp
from ..math.spatial import Vec
from ..tree.poses import pose_of
from .solids import Solid

BOUND = 13  # of a shape's box, all times its sizes: center (3), half widths (3 x 3), and a rim (times the first size)


def bound_factors(kind: ShapeKind, vertices: np.ndarray) -> np.ndarray:
    """BOUND numbers; vertices [n, 3]: of a hull, before it is scaled by the sizes."""
    factors = np.zeros(BOUND)
    center, half = factors[:3], factors[3:12].reshape(3, 3)
    if kind == ShapeKind.HULL:
        low, high = vertices.min(0), vertices.max(0)
        center[:], half[:] = (low + high) / 2, np.diag(high - low) / 2
    if kind in (ShapeKind.CAPSULE, ShapeKind.CYLINDER):
        half[2, 1] = 0.5
    if kind == ShapeKind.CYLINDER:
        half[0, 0] = half[1, 0] = 1.0
    if kind in (ShapeKind.SPHERE, ShapeKind.CAPSULE):
        factors[12] = 1.0
    return factors


def arm(kind: ShapeKind, size: Vec, factors: Vec) -> Scalar | None:
    """How far from its origin a shape has points that are elsewhere when it turns, at most; None: there are none."""
    if kind in (ShapeKind.SPHERE, ShapeKind.PLANE):
        return None
    if kind == ShapeKind.CAPSULE:
        return 0.5 * size[1]
    if kind == ShapeKind.CYLINDER:
        return sqrt(size[0] * size[0] + 0.25 * size[1] * size[1])
    corner = [(absolute(factors[k]) + factors[3 + 4 * k]) * size[k] for k in range(3)]
    return sqrt(sp.dot(corner, corner))


def length(a: Vec) -> Scalar:
    return sqrt(sp.dot(a, a))


def extent(kind: ShapeKind, size: np.ndarray, vertices: np.ndarray) -> float:
    """The radius of a ball about the shape's origin that contains it, m; of a plane infinite."""
    if kind == ShapeKind.PLANE:
        return np.inf
    if kind == ShapeKind.HULL:
        return float(np.linalg.norm(vertices * size, axis=1).max())
    return float(size[0] if kind == ShapeKind.SPHERE else size[0] + 0.5 * size[1])


class Bounds:
    """Of all shapes, at these poses (over links, with twists). margin: what pairs may be apart, of their size.

    center, radius [nshape]: of balls. travel [nshape]: how far a shape may move in the time h, at most. half [nshape,
    3]: half widths of boxes, in the shapes' axes.
    """

    def __init__(self, constraints: Any, poses: Any, width: int, h: Scalar, margin: float, changing: bool) -> None:
        """changing: the first twist is that of the end, and the second that of the start; else there is only one."""
        self.constraints, self.margin = constraints, margin
        self.center, self.half = memory(constraints.nshape * 3), memory(constraints.nshape * 3)
        self.radius, self.travel = memory(constraints.nshape), memory(constraints.nshape)
        for i in loop(constraints.nshape):
            link, *_ = constraints.shape(i)
            record, factors, pose = (
                constraints.shape_record(i),
                constraints.bound(i),
                pose_of(poses, link, width, constraints.dim),
            )
            size = record[layout.SIZE : layout.SIZE + 3]
            middle = [c * s for c, s in zip(factors[:3], size, strict=True)]
            turn, place = record[layout.TURN : layout.TURN + 9], record[layout.PLACE : layout.PLACE + 3]
            to_middle = sp.rotate(pose[:9], sp.rotate(turn, middle, place))
            half = [sp.dot(factors[3 + 3 * k : 6 + 3 * k], size, factors[12] * size[0]) for k in range(3)]
            radius = length(half)
            twists = [pose[at : at + 6] for at in ((12, 18) if changing else (12,))]
            velocities = [sp.cross(twist[:3], to_middle, twist[3:]) for twist in twists]
            speed, turning = length(velocities[-1]), length(twists[-1][:3])
            if changing:
                speed = speed + length(sp.sub(*velocities))
                turning = maximum(turning, length(twists[0][:3]))
            self.center.put(i, sp.add(pose[9:12], to_middle))
            self.half.put(i, half)
            self.radius[i] = radius
            self.travel[i] = h * (speed + radius * turning)

    def reach(self, p: Any) -> Scalar:
        """The distance from which on a pair may count."""
        a, b = self.constraints.pair_shapes(p)
        return self.margin * self.constraints.pair_size(p) + self.travel[a] + self.travel[b]

    def balls_meet(self, p: Any, plane: Solid | None) -> Any:
        """Whether the balls of a pair are close enough to each other, or that of the first to the plane (mask)."""
        a, b = self.constraints.pair_shapes(p)
        center, reach = self.center.get(a, 3), self.radius[a] + self.reach(p)
        if plane is not None:
            return sp.dot(plane.center, center) - plane.size[0] < reach
        between, reach = sp.sub(center, self.center.get(b, 3)), reach + self.radius[b]
        return sp.dot(between, between) < reach * reach

    def boxes_meet(self, p: Any, first: Solid, second: Solid, plane: bool) -> Any:
        """Whether no face of one of the boxes parts them, or the plane does (mask)."""
        a, b = self.constraints.pair_shapes(p)
        center, half, reach = self.center.get(a, 3), self.half.get(a, 3), self.reach(p)
        if plane:
            normal, offset = second.center, second.size[0]
            return sp.dot(normal, center) - offset - _shadow(first.axes, half, normal) < reach
        between, others = sp.sub(center, self.center.get(b, 3)), self.half.get(b, 3)
        apart = -reach
        for axes in (first.axes, second.axes):
            for k in range(3):
                shadows = _shadow(first.axes, half, axes[k::3]) + _shadow(second.axes, others, axes[k::3])
                apart = maximum(apart, absolute(sp.dot(axes[k::3], between)) - shadows - reach)
        return apart < 0.0


def _shadow(axes: Vec, half: Vec, direction: Vec) -> Scalar:
    """How far a box reaches from its center, along a unit vector."""
    reach: Scalar = 0.0
    for k in range(3):
        reach = reach + half[k] * absolute(sp.dot(axes[k::3], direction))
    return reach
