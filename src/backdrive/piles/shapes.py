"""Shapes in the world, boxes around them, and whether two shapes are near each other; lanes are shapes or pairs."""

from __future__ import annotations

from typing import NamedTuple

from ..ir import Mask, Scalar, absolute, sqrt
from ..model.shapes import BoundFactors
from ..physics.geometry.collision import MARGIN
from ..physics.geometry.narrow_phase import place_solid
from ..physics.geometry.solids import Solid
from ..physics.math import spatial as sp
from ..physics.math.arrays import split
from ..physics.math.spatial import Vec
from ..physics.tree.poses import Pose
from ..schema import layout
from ..schema.layout import ShapeKind
from .records import BOX, POSE, SHAPE_MATERIAL, SOLID, WIDE_BOX


class PileMaterial(NamedTuple):
    """A record of `SHAPE_MATERIAL`."""

    surface: Vec
    size: Scalar
    inverse_mass: Scalar
    static: Scalar

    @classmethod
    def of(cls, record: Vec) -> PileMaterial:
        surface, *numbers = SHAPE_MATERIAL.split(record)
        return cls(surface, *(x for (x,) in numbers))


class BoundingBoxes(NamedTuple):
    """A record of `BOX`, but its last number."""

    center: Vec
    extent: Vec
    half: Vec
    shell: Scalar
    travel: Scalar

    @classmethod
    def of(cls, record: Vec) -> BoundingBoxes:
        center, extent, half, (shell,), (travel,), _ = BOX.split(record)
        return cls(center, extent, half, shell, travel)

    def numbers(self) -> Vec:
        return (*self.center, *self.extent, *self.half, self.shell, self.travel)


def placed_solid(*x: Scalar) -> list[Scalar]:
    """A record of `SOLID`, from the constants (`layout.SHAPE`) of a shape that is not a plane, and its body's pose."""
    record, pose = split(x, layout.SHAPE, POSE.size)
    solid = place_solid(ShapeKind.HULL, record, pose)
    return [*solid.center, *solid.axes, *solid.size]


def to_solid(record: Vec) -> Solid:
    return Solid(*SOLID.split(record))


def bounding_boxes(solid: Solid, bound: BoundFactors, size: Scalar, motion: Pose, left: Scalar) -> BoundingBoxes:
    """Boxes that contain a shape while it moves for the time `left` (s), and half of the margin of its contacts.

    size: the shape's radius, m.
    """
    offset = tuple(c * s for c, s in zip(bound.center, solid.size, strict=True))
    half = sp.rotate(bound.half, solid.size)
    center = sp.rotate(solid.axes, offset, solid.center)
    rim = bound.rim * solid.size[0]
    w, u = motion.twist().angular, motion.velocity(center)
    speed = sqrt(sp.dot(u, u)) + sqrt(sp.dot(w, w)) * (sqrt(sp.dot(half, half)) + rim)
    travel = left * speed
    shell = rim + 0.5 * MARGIN * size + travel
    extent = sp.rotate(tuple(absolute(x) for x in solid.axes), half)
    return BoundingBoxes(center, tuple(x + shell for x in extent), half, shell, travel)


def is_inside(box: BoundingBoxes, wide: Vec) -> Mask:
    """Whether the box along the world axes lies in a `WIDE_BOX` (mask)."""
    center, extent = WIDE_BOX.split(wide)
    inside: Mask = True
    for k in range(3):
        inside = inside & (absolute(box.center[k] - center[k]) + box.extent[k] <= extent[k])
    return inside


def are_near(a: Solid, b: Solid, box_a: BoundingBoxes, box_b: BoundingBoxes) -> Mask:
    """Whether two shapes may touch: their boxes overlap along the world axes, and along the axes of each (mask)."""
    d = sp.sub(box_b.center, box_a.center)
    shell = box_a.shell + box_b.shell
    C = sp.matmul(sp.transpose(a.axes), b.axes)
    near: Mask = True
    for k in range(3):
        near = near & (absolute(d[k]) <= box_a.extent[k] + box_b.extent[k])
    for turn, axes, half, other in ((C, a.axes, box_a.half, box_b.half),
                                    (sp.transpose(C), b.axes, box_b.half, box_a.half)):  # fmt: skip
        for k, x in enumerate(sp.unrotate(axes, d)):
            reach = sp.dot(other, tuple(absolute(c) for c in turn[3 * k : 3 * k + 3]), half[k])
            near = near & (absolute(x) <= reach + shell)
    return near


def is_near_plane(a: Solid, plane: Solid, box: BoundingBoxes) -> Mask:
    """Whether a shape and a plane may touch (mask)."""
    steep = sp.unrotate(a.axes, plane.center)
    reach = sp.dot(box.half, tuple(absolute(x) for x in steep), box.shell)
    return sp.dot(plane.center, box.center) - reach < plane.size[0]
