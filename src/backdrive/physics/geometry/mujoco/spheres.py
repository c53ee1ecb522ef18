"""A sphere with a box or a cylinder."""

from __future__ import annotations

from ....ir import Scalar, absolute, clip, select
from ...math.spatial import Vec, dot, neg, rotate, scale, sub, unrotate
from ..pairs.common import along, choose
from ..solids import FAR, Solid
from .contacts import SMALLEST, GeomContact, GeomPair, axis, concentric_normal, contact, keep, length_and_direction


def ball_contact(center: Vec, radius: Scalar, distance: Scalar, normal: Vec) -> GeomContact:
    """A ball whose center has this signed distance (m) from another geom; normal: towards that geom's surface."""
    return contact(distance - radius, along(center, normal, 0.5 * (distance + radius)), normal)


def ball_box(center: Vec, radius: Scalar, box: Solid) -> GeomContact:
    """The closest point of the box; a center inside is pushed out through the nearest face."""
    half = scale(0.5, box.size)
    local = unrotate(box.axes, sub(center, box.center))
    nearest = tuple(clip(x, -h, h) for x, h in zip(local, half, strict=True))
    depth: Scalar = FAR
    face: Vec = (0.0, 0.0, 0.0)
    for k in range(3):
        sign = select(local[k] > 0.0, 1.0, -1.0)
        below = half[k] - sign * local[k]
        better = below < depth
        depth = select(better, below, depth)
        face = choose(better, tuple(-sign if j == k else 0.0 for j in range(3)), face)
    distance, towards = length_and_direction(sub(nearest, local))
    inside = distance < SMALLEST
    normal = rotate(box.axes, choose(inside, face, towards))
    return ball_contact(center, radius, select(inside, -depth, distance), normal)


def sphere_box(sphere: Solid, box: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    only = ball_box(sphere.center, sphere.size[0], box)
    return [keep(only.dist <= margin, only)]


def ball_cylinder(center: Vec, radius: Scalar, cylinder: Solid, on_axis: Vec) -> GeomContact:
    """The closest point of the side, a cap or the rim; a center inside is pushed out through the nearer of side and
    cap. on_axis: the normal if the center is on the axis and the side is nearest."""
    direction, half = axis(cylinder), 0.5 * cylinder.size[1]
    offset = sub(center, cylinder.center)
    z = dot(offset, direction)
    distance_from_axis, outward = length_and_direction(along(offset, direction, -z), neg(on_axis))
    upward = scale(select(z > 0.0, 1.0, -1.0), direction)
    side, cap = distance_from_axis - cylinder.size[0], absolute(z) - half
    rim = (side > 0.0) & (cap > 0.0)
    corner, to_corner = length_and_direction(along(scale(side, outward), upward, cap))
    beside = side > cap
    distance = select(rim, corner, select(beside, side, cap))
    normal = neg(choose(rim, to_corner, choose(beside, outward, upward)))
    return ball_contact(center, radius, distance, normal)


def sphere_cylinder(sphere: Solid, cylinder: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    only = ball_cylinder(sphere.center, sphere.size[0], cylinder, concentric_normal(sphere, cylinder))
    return [keep(only.dist <= margin, only)]


SPHERE_BOX = GeomPair(1, sphere_box)
SPHERE_CYLINDER = GeomPair(1, sphere_cylinder)
