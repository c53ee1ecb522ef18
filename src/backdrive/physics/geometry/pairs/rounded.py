"""Spheres, capsules, cylinders and half-spaces. In 2D, spheres and half-spaces are circles and half-planes.

A capsule is the set of points within its radius of a segment, so that its contact points are those of balls centered on
that segment. The deepest ball, at s*, is one contact point. Where the distance hardly varies along the segment
(parallel axes, a capsule that lies on a cap), s* is ill-conditioned: small motions move it from one end to the other.
There the contact points are the two ends of the part of the segment that faces the other solid. `spread_of` blends the
two cases.
"""

from __future__ import annotations

from typing import NamedTuple

from ....ir import Mask, Scalar, absolute, carry, clip, maximum, minimum, select, sqrt, while_any
from ...math.spatial import Vec, cross, dot, scale, sub
from ..solids import ContactPoint, Hull, ShapePair, Solid
from .common import TINY, along, ball_ball, ball_plane, ball_point, direction_of, merge_near

PARALLEL = 4e-5
"""sin² of the angle (0.36°) between two axes above which they touch in one point; below a quarter of it, in two."""

UPRIGHT = 1e-6
"""sin² of the tilt (0.06°) below which the lowest point on the rim of a cylinder on its cap is not defined."""

TILTED = 1e-4
"""sin² of the tilt (0.6°) above which the contact points of a cylinder follow the lowest point of its rim; those of an
upright cylinder are fixed to the cap."""

CONVERGED = 1e-6
"""Tolerance of the search for the deepest place of a capsule, relative to half its length."""

RISING = 0.04
"""Weight of diverging axes, relative to crossing ones, in deciding if a capsule touches a cylinder in one point."""


def axis(solid: Solid) -> Vec:
    """The z axis in the world: the axis of a capsule or cylinder."""
    return tuple(solid.axes[2::3])


# ------------------------------------------------------------------------------------------ spheres


def sphere_sphere(a: Solid, b: Solid, features: Vec) -> list[ContactPoint]:
    return [ball_ball(a.center, a.size[0], b.center, b.size[0])]


def sphere_plane(a: Solid, b: Solid, features: Vec) -> list[ContactPoint]:
    return [ball_plane(a.center, a.size[0], b)]


def sphere_capsule(a: Solid, b: Solid, features: Vec) -> list[ContactPoint]:
    direction, half = axis(b), 0.5 * b.size[1]
    s = clip(dot(sub(a.center, b.center), direction), -half, half)
    return [ball_ball(a.center, a.size[0], along(b.center, direction, s), b.size[0])]


def sphere_cylinder(a: Solid, b: Solid, features: Vec) -> list[ContactPoint]:
    return [ball_cylinder(a.center, a.size[0], b)]


class _Meridian(NamedTuple):
    """A point in cylindrical coordinates of a cylinder.

    side, cap: signed distances from the cylinder's side and from the nearer cap (m). radius: distance from its axis
    (m). outward, upward: unit vectors away from the axis and from the cap. rim: whether the rim is the closest feature.
    distance: signed distance from the cylinder (m); slope: its derivatives with respect to side and cap.
    """

    side: Scalar
    cap: Scalar
    radius: Scalar
    outward: Vec
    upward: Vec
    rim: Mask
    distance: Scalar
    slope: Vec


def _meridian(point: Vec, cylinder: Solid) -> _Meridian:
    direction = axis(cylinder)
    offset = sub(point, cylinder.center)
    z = dot(offset, direction)
    below = z < 0.0
    upward = tuple(select(below, -x, x) for x in direction)
    radius, outward = direction_of(along(offset, direction, -z), tuple(cylinder.axes[0::3]))
    side, cap = radius - cylinder.size[0], select(below, -z, z) - 0.5 * cylinder.size[1]
    rim = (side > 0.0) & (cap > 0.0)
    corner = sqrt(select(rim, side * side + cap * cap, 1.0))
    inverse = 1.0 / corner
    beside = side > cap
    slope = (
        select(rim, side * inverse, select(beside, 1.0, 0.0)),
        select(rim, cap * inverse, select(beside, 0.0, 1.0)),
    )
    return _Meridian(side, cap, radius, outward, upward, rim, select(rim, corner, maximum(side, cap)), slope)


def ball_cylinder(center: Vec, radius: Scalar, cylinder: Solid) -> ContactPoint:
    """A ball and a cylinder: the closest point is on the side, a cap or the rim, also when the center is inside."""
    at = _meridian(center, cylinder)
    normal = along(scale(at.slope[0], at.outward), at.upward, at.slope[1])
    return ball_point(at.distance - radius, center, radius, normal)


# ------------------------------------------------------------------------------------------ capsules


def spread_of(crossing: Scalar) -> Scalar:
    """How far a capsule's two contact points spread: from 0 (both at the deepest place) to 1 (at the ends of the part
    of its segment that faces the other solid).

    crossing: the curvature of the distance along the capsule, expressed as the sin² of an angle between two axes.
    """
    return clip((4.0 / 3.0) - (4.0 / 3.0 / PARALLEL) * crossing, 0.0, 1.0)


def mix(a: Scalar, b: Scalar, part: Scalar) -> Scalar:
    """Linear interpolation from a (part = 0) to b (part = 1)."""
    return a + part * (b - a)


def capsule_capsule(a: Solid, b: Solid, features: Vec) -> list[ContactPoint]:
    """One contact point at the closest points of the two segments; two where the axes are nearly parallel, seen along
    the normal: each at an end of one segment and the closest point of the other."""
    u, w, r = axis(a), axis(b), sub(a.center, b.center)
    half_a, half_b = 0.5 * a.size[1], 0.5 * b.size[1]
    cosine, ru, rw = dot(u, w), dot(r, u), dot(r, w)
    lateral = along(u, w, -cosine)
    sine2 = dot(lateral, lateral)

    def on_b(s: Scalar) -> Scalar:
        """The point of b's segment closest to point s of a's line; both as distances (m) from the centers."""
        return clip(rw + cosine * s, -half_b, half_b)

    # The closest points of the lines, clamped to a's segment, then b's, then a's again, are those of the segments.
    lines = clip(-dot(r, lateral) / maximum(sine2, 1e-12), -half_a, half_a)
    s = clip(cosine * on_b(lines) - ru, -half_a, half_a)
    t = on_b(s)
    between = along(along(r, u, s), w, -t)
    squared = dot(between, between)
    none = squared < TINY
    twist = dot(cross(u, w), between)
    spread = spread_of(select(none, sine2, twist * twist / select(none, 1.0, squared)))

    upper_b = select(cosine < 0.0, -half_b, half_b)
    places, points = [], []
    for side in (-1.0, 1.0):
        end_a, end_b = side * half_a, side * upper_b
        beside = cosine * end_b - ru  # the end of b's segment, projected onto a's line
        b_ends_first = side * beside < half_a
        at_a = mix(s, clip(beside, -half_a, half_a), spread)
        at_b = mix(t, select(b_ends_first, end_b, on_b(end_a)), spread)
        points.append(ball_ball(along(a.center, u, at_a), a.size[0], along(b.center, w, at_b), b.size[0]))
        places.append((at_a, at_b))
    (a0, b0), (a1, b1) = places
    return merge_near(points, maximum(absolute(a1 - a0), absolute(b1 - b0)), a.size[0] + b.size[0])


def capsule_plane(a: Solid, b: Solid, features: Vec) -> list[ContactPoint]:
    direction, half = axis(a), 0.5 * a.size[1]
    return [ball_plane(along(a.center, direction, s), a.size[0], b) for s in (-half, half)]


# The distance from a cylinder is a convex function of the place s on a capsule's segment, but near the rim its minimum
# has no closed form. `search_capsule_cylinder` finds it; one more Newton step in `capsule_cylinder` makes it exact, and
# differentiable.


def _descent(at: _Meridian, direction: Vec) -> tuple[Scalar, Scalar]:
    """First and second derivative of the distance from a cylinder as the point moves along `direction`."""
    outward, upward = dot(direction, at.outward), dot(direction, at.upward)
    first = at.slope[0] * outward + at.slope[1] * upward
    across = dot(direction, direction) - outward * outward - upward * upward  # squared component around the axis
    bend = at.slope[0] * across / select(at.radius < 1e-9, 1.0, at.radius)
    turn = outward * outward + upward * upward - first * first
    return first, bend + select(at.rim, turn / select(at.rim, at.distance, 1.0), 0.0)


def search_capsule_cylinder(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    """The deepest place of the capsule's segment, relative to half its length: in [-1, 1]."""
    return (find_deepest(a, b),)


def find_deepest(a: Solid, b: Solid) -> Scalar:
    """The deepest place of the segment of capsule a in cylinder b, relative to half its length."""
    u, half = axis(a), 0.5 * a.size[1]

    def descent(part: Scalar) -> tuple[Scalar, Scalar]:
        first, second = _descent(_meridian(along(a.center, u, part * half), b), u)
        return first, second * half

    # Newton's method on the slope, with bisection where a step leaves the bracket or is more than half the last step.
    low, high, place, step = range(4)
    state = carry(4)
    at_low, at_high = descent(-1.0)[0] >= 0.0, descent(1.0)[0] <= 0.0
    state[low], state[high] = -1.0, 1.0
    state[place] = select(at_high, 1.0, 0.0) - select(at_low, 1.0, 0.0)
    state[step] = select(at_low | at_high, 0.0, 2.0)
    for _ in while_any(lambda: state[step] > CONVERGED, 60):
        x, last = state[place], state[step]
        first, second = descent(x)
        rising, curved = first > 0.0, second > 1e-12
        state[low], state[high] = select(rising, state[low], x), select(rising, x, state[high])
        newton = x - first / select(curved, second, 1.0)
        good = curved & (newton > state[low]) & (newton < state[high]) & (2.0 * absolute(newton - x) < last)
        following = select(first == 0.0, x, select(good, newton, 0.5 * (state[low] + state[high])))
        active = last > CONVERGED
        state[place] = select(active, following, x)
        state[step] = select(active, absolute(following - x), last)
    return state[place]


def refine_deepest(a: Solid, b: Solid, part: Scalar) -> tuple[Scalar, Scalar, _Meridian]:
    """The deepest place (m), differentiable, from what `find_deepest` has found; the slope of the distance there if it
    is a kink, else 0; and the cylindrical coordinates of that place before the last Newton step."""
    u, half = axis(a), 0.5 * a.size[1]
    near = part * half
    at = _meridian(along(a.center, u, near), b)
    first, second = _descent(at, u)
    # Inside the cylinder the distance has ridges. Where the minimum is such a kink, its slope is not zero: then take no
    # Newton step, and do not spread the points.
    smooth = absolute(first) < 1e-3 * half * second
    kink = select(smooth | (absolute(part) >= 1.0), 0.0, first)
    deepest = clip(near - select(smooth, first, 0.0) / select(smooth, second, 1.0), -half, half)
    return deepest, kink, at


def capsule_cylinder(a: Solid, b: Solid, features: Vec) -> list[ContactPoint]:
    """Two contact points where the capsule lies along the cylinder's side or on a cap, else one."""
    u, w, r = axis(a), axis(b), sub(a.center, b.center)
    half, top = 0.5 * a.size[1], 0.5 * b.size[1]
    deepest, kink, at = refine_deepest(a, b, features[0])

    # The part of the segment that faces the cylinder: between its caps, or within its radius if the segment lies across
    # the axis.
    cosine, rw = dot(u, w), dot(r, w)
    lateral, from_axis = along(u, w, -cosine), along(r, w, -rw)
    sine2 = dot(lateral, lateral)
    upright = sine2 < 0.5
    climb, width = select(upright, cosine, 1.0), select(upright, 1.0, sine2)
    nearest = -dot(from_axis, lateral) / width
    room = (b.size[0] * b.size[0] - dot(from_axis, from_axis)) / width + nearest * nearest
    crosses = room > TINY
    middle = select(upright, -rw / climb, nearest)
    reach = select(upright, absolute(top / climb), select(crosses, sqrt(select(crosses, room, 1.0)), 0.0))

    twist = at.slope[0] * dot(cross(u, w), at.outward)
    places = []
    for side in (-1.0, 1.0):
        end = side * middle + reach
        # Where the cylinder ends before the capsule, the point there is on the cylinder's rim: spread to it only if the
        # distance does not rise towards it.
        rising = select(end < half, RISING * minimum(sine2, 1.0 - sine2), 0.0)
        farther = side * maximum(clip(end, -half, half), side * deepest)
        places.append(mix(deepest, farther, spread_of(twist * twist + kink * kink + rising)))
    points = [ball_cylinder(along(a.center, u, place), a.size[0], b) for place in places]
    return merge_near(points, places[1] - places[0], a.size[0])


# ------------------------------------------------------------------------------------------ a cylinder on a plane


def _inverse_root(x: Scalar) -> Scalar:
    """1 / √x above UPRIGHT; below, the Taylor polynomial of second order at UPRIGHT, which is finite at zero."""
    small = x < UPRIGHT
    t = x * (1.0 / UPRIGHT) - 1.0
    series = UPRIGHT**-0.5 * (1.0 - t * (0.5 - 0.375 * t))
    return select(small, series, 1.0 / sqrt(select(small, 1.0, x)))


def cylinder_plane(a: Solid, b: Solid, features: Vec) -> list[ContactPoint]:
    """The lowest points of the near and of the far cap, and two more on the near cap's rim, 120° from the first.

    On an upright cylinder every point of the rim is lowest, and the slightest tilt decides which one it is. Then the
    last three points are fixed to the rim of the near cap, and the first moves to the center of that cap.
    """
    radius, up = a.size[0], b.center
    x, y, z = (tuple(a.axes[k::3]) for k in range(3))
    rise, down_x, down_y = dot(up, z), -dot(up, x), -dot(up, y)  # |down| is the sine of the tilt
    half = select(rise > 0.0, -0.5, 0.5) * a.size[1]
    tilt = down_x * down_x + down_y * down_y
    longer = radius * _inverse_root(tilt)
    lowest_x, lowest_y = longer * down_x, longer * down_y
    turning = clip((tilt - UPRIGHT) * (1.0 / (TILTED - UPRIGHT)), 0.0, 1.0)
    turning = turning * turning * (3.0 - 2.0 * turning)
    fixed, aside = radius * (1.0 - turning), 0.75**0.5
    height = dot(up, a.center) - b.size[0]

    def point(x_there: Scalar, y_there: Scalar, z_there: Scalar = half) -> ContactPoint:
        """At a place in the axes of the cylinder. The gaps of places on a cap differ by the tilt alone: rounding
        does not move them out of one plane, which the loads of four contacts would magnify."""
        gap = (height + rise * z_there) - (down_x * x_there + down_y * y_there)
        place = along(along(along(a.center, z, z_there), x, x_there), y, y_there)
        return ball_point(gap, place, 0.0, up)

    back_x, back_y = -0.5 * (fixed + turning * lowest_x), -0.5 * turning * lowest_y
    aside_x, aside_y = -aside * turning * lowest_y, aside * (fixed + turning * lowest_x)
    return [
        point(lowest_x, lowest_y),
        point(fixed + turning * lowest_x, turning * lowest_y, half * (1.0 - 2.0 * turning)),  # on the far cap if tilted
        point(back_x + aside_x, back_y + aside_y),
        point(back_x - aside_x, back_y - aside_y),
    ]


SPHERE_SPHERE = ShapePair(1, sphere_sphere)
SPHERE_PLANE = ShapePair(1, sphere_plane, prefilter=False)
SPHERE_CAPSULE = ShapePair(1, sphere_capsule)
SPHERE_CYLINDER = ShapePair(1, sphere_cylinder)
CAPSULE_CAPSULE = ShapePair(2, capsule_capsule)
CAPSULE_CYLINDER = ShapePair(2, capsule_cylinder, search_capsule_cylinder, continuous=True)
CAPSULE_PLANE = ShapePair(2, capsule_plane, prefilter=False)
CYLINDER_PLANE = ShapePair(4, cylinder_plane)
