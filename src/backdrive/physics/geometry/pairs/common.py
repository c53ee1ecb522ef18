"""Vector helpers that several families of pairs share, and contact points of balls."""

from __future__ import annotations

from ....ir import Mask, Scalar, absolute, maximum, select, sqrt
from ...math.spatial import Vec, dot, scale, sub
from ..solids import FAR, ContactPoint, Solid

TINY = 1e-24
"""Vectors with a smaller squared length (m²) have no direction."""

ANY_DIRECTION: Vec = (0.0, 1.0, 0.0)
"""The normal where none is defined, such as that of concentric spheres; it lies in the plane of 2D worlds."""

SAME = 0.05
"""Two contact points nearer to each other than this, relative to the size of the shapes there, merge into one."""


# ------------------------------------------------------------------------------------------ vectors


def choose(condition: Mask, a: Vec, b: Vec) -> Vec:
    """`a` where the condition holds, else `b`."""
    return tuple(select(condition, x, y) for x, y in zip(a, b, strict=True))


def along(start: Vec, direction: Vec, s: Scalar) -> Vec:
    """start + s direction"""
    return tuple(x + s * d for x, d in zip(start, direction, strict=True))


def times(a: Vec, b: Vec) -> Vec:
    """Elementwise product."""
    return tuple(x * y for x, y in zip(a, b, strict=True))


def over(a: Vec, b: Vec) -> Vec:
    """Elementwise quotient."""
    return tuple(x / y for x, y in zip(a, b, strict=True))


def guarded(x: Scalar) -> Scalar:
    """A divisor: x, or 1 where |x| is below 1e-30."""
    return select(absolute(x) < 1e-30, 1.0, x)


def guarded_length(a: Vec) -> Scalar:
    """|a|, or 1 where |a|² is below 1e-30."""
    return sqrt(guarded(dot(a, a)))


def unit(a: Vec) -> Vec:
    """a / |a|"""
    return scale(1.0 / guarded_length(a), a)


def direction_of(a: Vec, otherwise: Vec = ANY_DIRECTION) -> tuple[Scalar, Vec]:
    """|a| and a / |a|. For a = 0 the direction is `otherwise` (a unit vector), also in the derivative of |a|."""
    squared = dot(a, a)
    none = squared < TINY
    length = sqrt(select(none, 1.0, squared))
    inverse = 1.0 / length
    direction = tuple(select(none, o, x * inverse) for x, o in zip(a, otherwise, strict=True))
    return select(none, dot(a, otherwise), length), direction


# ------------------------------------------------------------------------------------------ contact points


def ball_point(gap: Scalar, center: Vec, radius: Scalar, normal: Vec) -> ContactPoint:
    """The contact point of a ball; normal: unit vector from the other solid towards the ball's center."""
    return ContactPoint(gap, along(center, normal, -(radius + 0.5 * gap)), normal)


def ball_ball(a: Vec, radius_a: Scalar, b: Vec, radius_b: Scalar) -> ContactPoint:
    """Two balls with centers a and b."""
    distance, normal = direction_of(sub(a, b))
    return ball_point(distance - radius_a - radius_b, a, radius_a, normal)


def ball_plane(center: Vec, radius: Scalar, plane: Solid) -> ContactPoint:
    """A ball and a half-space."""
    gap = dot(plane.center, center) - plane.size[0] - radius
    return ball_point(gap, center, radius, plane.center)


def absent_where(condition: Mask, point: ContactPoint) -> ContactPoint:
    """The contact point; none (a gap of FAR, without derivatives) where the condition holds."""
    position = tuple(select(condition, 0.0, x) for x in point.position)
    normal = tuple(select(condition, o, x) for x, o in zip(point.normal, ANY_DIRECTION, strict=True))
    return ContactPoint(select(condition, FAR, point.gap), position, normal)


def merge_near(points: list[ContactPoint], distance: Scalar, size: Scalar) -> list[ContactPoint]:
    """Two contact points at this distance (m) from each other, on shapes of this size (m), which merge when they come
    near each other: the gap of the one that is less deep grows continuously until that point is dropped."""
    first, second = points
    lift = maximum(4.0 * size - (4.0 / SAME) * distance, 0.0)
    dropped = lift > 2.0 * size
    behind = first.gap - second.gap
    tie = 1e-6 * size  # of two points at the same depth, the first stays

    def fading(point: ContactPoint, fades: Mask) -> ContactPoint:
        return absent_where(dropped & fades, point._replace(gap=point.gap + select(fades, lift, 0.0)))

    return [fading(first, behind > tie), fading(second, behind <= tie)]
