"""Where spheres, capsules, cylinders and planes touch. Spheres and planes are circles and half-planes in 2D too.

A capsule is all points within its radius of a segment, so its contacts are those of balls at places s of that segment.
The deepest ball, at s*, is one contact. Where the distance hardly changes along the segment (parallel axes, a capsule
lying on a cap) the deepest place says little: small motions throw it from one end to the other. There, the contacts are
the two ends of the part of the segment that faces the other solid. `spread_of` says how much of this is the case.
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir import Scalar, absolute, carry, clip, maximum, minimum, select, sqrt, while_any
from ...schema.layout import ShapeKind
from ..math.spatial import Vec, add, cross, dot, scale, sub
from .solids import FAR, Hull, Pair, Solid, Touch

TINY = 1e-24  # m²: squared lengths below have no direction
ANY_DIRECTION: Vec = (0.0, 1.0, 0.0)  # where a normal is not defined; it lies in the plane of 2D worlds
PARALLEL = 4e-5  # sin² of the angle (0.36°) above which two axes touch in one point; in two ends below a quarter of it
UPRIGHT = 1e-6  # sin² of the tilt (0.06°) below which a cylinder on its cap has no lowest point of the rim
TILTED = 1e-4  # sin² of the tilt (0.6°) above which its supports turn with that point; they are fixed when upright
CONVERGED = 1e-6  # of half a capsule's length: how near to its deepest place a search has to come
RISING = 0.04  # how much less than a crossing it matters that the axes diverge
SAME = 0.05  # contacts nearer to each other than this part of the radii (of the edges) are one


# ------------------------------------------------------------------------------------------ pieces


def axis(solid: Solid) -> Vec:
    """The z axis in the world: along a capsule or cylinder."""
    return tuple(solid.axes[2::3])


def along(start: Vec, direction: Vec, s: Scalar) -> Vec:
    """start + s direction"""
    return tuple(x + s * d for x, d in zip(start, direction, strict=True))


def direction_of(a: Vec, otherwise: Vec = ANY_DIRECTION) -> tuple[Scalar, Vec]:
    """|a| and a / |a|; for a = 0 the direction is `otherwise` (a unit vector), also for the derivative of |a|."""
    squared = dot(a, a)
    none = squared < TINY
    length = sqrt(select(none, 1.0, squared))
    inverse = 1.0 / length
    unit = tuple(select(none, o, x * inverse) for x, o in zip(a, otherwise, strict=True))
    return select(none, dot(a, otherwise), length), unit


def touch_of_ball(gap: Scalar, center: Vec, radius: Scalar, normal: Vec) -> Touch:
    """A ball that lies on the side of `normal` of the other solid."""
    return Touch(gap, along(center, normal, -(radius + 0.5 * gap)), normal)


def unless(gone: Scalar, touch: Touch) -> Touch:
    """No contact where `gone` holds."""
    point = tuple(select(gone, 0.0, x) for x in touch.point)
    normal = tuple(select(gone, o, x) for x, o in zip(touch.normal, ANY_DIRECTION, strict=True))
    return Touch(select(gone, FAR, touch.gap), point, normal)


def two_or_one(touches: list[Touch], apart: Scalar, size: Scalar) -> list[Touch]:
    """Two contacts, `apart` (m) from each other. Of two that become one, the gap of the less deep one grows, until it
    is gone."""
    first, second = touches
    lift = maximum(4.0 * size - (4.0 / SAME) * apart, 0.0)
    gone = lift > 2.0 * size
    behind = first.gap - second.gap
    tie = 1e-6 * size  # when equal, the first stays

    def fading(touch: Touch, fades: Scalar) -> Touch:
        return unless(gone & fades, touch._replace(gap=touch.gap + select(fades, lift, 0.0)))

    return [fading(first, behind > tie), fading(second, behind <= tie)]


def ball_ball(a: Vec, radius_a: Scalar, b: Vec, radius_b: Scalar) -> Touch:
    distance, normal = direction_of(sub(a, b))
    return touch_of_ball(distance - radius_a - radius_b, a, radius_a, normal)


def ball_plane(center: Vec, radius: Scalar, plane: Solid) -> Touch:
    gap = dot(plane.center, center) - plane.size[0] - radius
    return touch_of_ball(gap, center, radius, plane.center)


# ------------------------------------------------------------------------------------------ spheres


def sphere_sphere(a: Solid, b: Solid, features: Vec) -> list[Touch]:
    return [ball_ball(a.center, a.size[0], b.center, b.size[0])]


def sphere_plane(a: Solid, b: Solid, features: Vec) -> list[Touch]:
    return [ball_plane(a.center, a.size[0], b)]


def sphere_capsule(a: Solid, b: Solid, features: Vec) -> list[Touch]:
    direction, half = axis(b), 0.5 * b.size[1]
    s = clip(dot(sub(a.center, b.center), direction), -half, half)
    return [ball_ball(a.center, a.size[0], along(b.center, direction, s), b.size[0])]


def sphere_cylinder(a: Solid, b: Solid, features: Vec) -> list[Touch]:
    return [ball_cylinder(a.center, a.size[0], b)]


class _Meridian(NamedTuple):
    """A point in the half-plane of a cylinder's axis that contains it: its signed distances from side and cap, the
    directions away from them, whether it is nearest to the rim, and the distance from the cylinder, with its gradient
    (side, cap)."""

    side: Scalar
    cap: Scalar
    radius: Scalar
    outward: Vec
    upward: Vec
    rim: Scalar
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


def ball_cylinder(center: Vec, radius: Scalar, cylinder: Solid) -> Touch:
    """The nearest point is on the side, a cap or the rim between them; also when the center is inside."""
    at = _meridian(center, cylinder)
    normal = along(scale(at.slope[0], at.outward), at.upward, at.slope[1])
    return touch_of_ball(at.distance - radius, center, radius, normal)


# ------------------------------------------------------------------------------------------ capsules


def spread_of(crossing: Scalar) -> Scalar:
    """How far a capsule's contacts go from the deepest place to the ends of what faces the other solid: 0 to 1.

    `crossing`: how the distance curves along the capsule, as the sin² of an angle between two axes.
    """
    return clip((4.0 / 3.0) - (4.0 / 3.0 / PARALLEL) * crossing, 0.0, 1.0)


def mix(a: Scalar, b: Scalar, part: Scalar) -> Scalar:
    return a + part * (b - a)


def capsule_capsule(a: Solid, b: Solid, features: Vec) -> list[Touch]:
    """Two contacts where the axes are nearly in a plane, else one: that of the nearest points of the axes.

    The two are an end of one axis and the nearest point of the other, each.
    """
    u, w, r = axis(a), axis(b), sub(a.center, b.center)
    half_a, half_b = 0.5 * a.size[1], 0.5 * b.size[1]
    cosine, ru, rw = dot(u, w), dot(r, u), dot(r, w)
    lateral = along(u, w, -cosine)
    sine2 = dot(lateral, lateral)

    def on_b(s: Scalar) -> Scalar:
        """The place on b's segment that is nearest to place s of a's line; places are m from the center."""
        return clip(rw + cosine * s, -half_b, half_b)

    # The nearest points of the lines; moved into a's segment, then b's, then a's again gives those of the segments.
    lines = clip(-dot(r, lateral) / maximum(sine2, 1e-12), -half_a, half_a)
    s = clip(cosine * on_b(lines) - ru, -half_a, half_a)
    t = on_b(s)
    between = along(along(r, u, s), w, -t)
    squared = dot(between, between)
    none = squared < TINY
    twist = dot(cross(u, w), between)
    spread = spread_of(select(none, sine2, twist * twist / select(none, 1.0, squared)))

    upper_b = select(cosine < 0.0, -half_b, half_b)
    places, touches = [], []
    for side in (-1.0, 1.0):
        end_a, end_b = side * half_a, side * upper_b
        beside = cosine * end_b - ru  # where on a's line b ends
        b_ends_first = side * beside < half_a
        at_a = mix(s, clip(beside, -half_a, half_a), spread)
        at_b = mix(t, select(b_ends_first, end_b, on_b(end_a)), spread)
        touches.append(ball_ball(along(a.center, u, at_a), a.size[0], along(b.center, w, at_b), b.size[0]))
        places.append((at_a, at_b))
    (a0, b0), (a1, b1) = places
    return two_or_one(touches, maximum(absolute(a1 - a0), absolute(b1 - b0)), a.size[0] + b.size[0])


def capsule_plane(a: Solid, b: Solid, features: Vec) -> list[Touch]:
    direction, half = axis(a), 0.5 * a.size[1]
    return [ball_plane(along(a.center, direction, s), a.size[0], b) for s in (-half, half)]


# The distance of a cylinder from the points of a capsule's segment is a convex function of the place s, but at the rim
# its minimum has no closed form: `search` finds it, and a last step of Newton's method in `contacts` makes it exact and
# gives it its derivative.


def _descent(at: _Meridian, direction: Vec) -> tuple[Scalar, Scalar]:
    """First and second derivative of a cylinder's distance from a point that moves along `direction`."""
    outward, upward = dot(direction, at.outward), dot(direction, at.upward)
    first = at.slope[0] * outward + at.slope[1] * upward
    across = dot(direction, direction) - outward * outward - upward * upward  # tangential to the side, squared
    bend = at.slope[0] * across / select(at.radius < 1e-9, 1.0, at.radius)
    turn = outward * outward + upward * upward - first * first
    return first, bend + select(at.rim, turn / select(at.rim, at.distance, 1.0), 0.0)


def search_capsule_cylinder(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    """The deepest place of the capsule's segment, as a part of half its length: in [-1, 1]."""
    u, half = axis(a), 0.5 * a.size[1]

    def descent(part: Scalar) -> tuple[Scalar, Scalar]:
        first, second = _descent(_meridian(along(a.center, u, part * half), b), u)
        return first, second * half

    # Newton's method on the slope; by halves where that leaves the bracket or does not halve its steps.
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
    return (state[place],)


def capsule_cylinder(a: Solid, b: Solid, features: Vec) -> list[Touch]:
    """Two contacts where the capsule lies along the side or on a cap, else one."""
    u, w, r = axis(a), axis(b), sub(a.center, b.center)
    half, top = 0.5 * a.size[1], 0.5 * b.size[1]
    near = features[0] * half
    at = _meridian(along(a.center, u, near), b)
    first, second = _descent(at, u)
    # Where the minimum is a kink, on a ridge inside the cylinder, its slope is not zero: no step, and no spreading.
    smooth = absolute(first) < 1e-3 * half * second
    kink = select(absolute(features[0]) < 1.0, first, 0.0)
    deepest = clip(near - select(smooth, first, 0.0) / select(smooth, second, 1.0), -half, half)

    # The part of the segment between the cylinder's caps, or, if it rather lies across, within its radius.
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
        # Where the cylinder ends first, the distance must not rise towards there: its rim is no point of the capsule.
        rising = select(end < half, RISING * minimum(sine2, 1.0 - sine2), 0.0)
        farther = side * maximum(clip(end, -half, half), side * deepest)
        places.append(mix(deepest, farther, spread_of(twist * twist + kink * kink + rising)))
    touches = [ball_cylinder(along(a.center, u, place), a.size[0], b) for place in places]
    return two_or_one(touches, places[1] - places[0], a.size[0])


# ------------------------------------------------------------------------------------------ a cylinder on a plane


def _inverse_root(x: Scalar) -> Scalar:
    """1 / √x above UPRIGHT; below, its series there of second order: finite, and smooth."""
    small = x < UPRIGHT
    t = x * (1.0 / UPRIGHT) - 1.0
    series = UPRIGHT**-0.5 * (1.0 - t * (0.5 - 0.375 * t))
    return select(small, series, 1.0 / sqrt(select(small, 1.0, x)))


def cylinder_plane(a: Solid, b: Solid, features: Vec) -> list[Touch]:
    """The lowest point of the near cap, that of the far cap, and two more on the near cap's rim, 120° from the first.

    Of an upright cylinder every point of the rim is lowest: which one it is depends on the slightest tilt, and turns
    with it. Then the last three are fixed points of the near cap's rim, and the first goes to the middle of the cap.
    """
    radius, up, z = a.size[0], b.center, axis(a)
    rise = dot(up, z)
    half = select(rise > 0.0, -0.5, 0.5) * a.size[1]
    cap = along(a.center, z, half)
    down = sub(scale(rise, z), up)  # within the plane of a cap; its length is the sine of the tilt
    tilt = dot(down, down)
    lowest = scale(radius * _inverse_root(tilt), down)
    sideways = scale(0.75**0.5, cross(z, lowest))
    turning = clip((tilt - UPRIGHT) * (1.0 / (TILTED - UPRIGHT)), 0.0, 1.0)
    turning = turning * turning * (3.0 - 2.0 * turning)
    fixed = radius * (1.0 - turning)
    x, y = scale(fixed, a.axes[0::3]), scale(fixed * 0.75**0.5, a.axes[1::3])
    ahead = along(along(a.center, z, half * (1.0 - 2.0 * turning)), lowest, turning)  # on the far cap when tilted
    back, aside = along(cap, lowest, -0.5 * turning), along(y, sideways, turning)
    back = along(back, x, -0.5)
    points = (add(cap, lowest), add(ahead, x), add(back, aside), sub(back, aside))
    return [ball_plane(point, 0.0, b) for point in points]


S, C, Y, P = ShapeKind.SPHERE, ShapeKind.CAPSULE, ShapeKind.CYLINDER, ShapeKind.PLANE
PAIRS_ROUND: dict[tuple[ShapeKind, ShapeKind], Pair] = {
    (S, S): Pair(1, sphere_sphere),
    (S, C): Pair(1, sphere_capsule),
    (S, Y): Pair(1, sphere_cylinder),
    (S, P): Pair(1, sphere_plane),
    (C, C): Pair(2, capsule_capsule),
    (C, Y): Pair(2, capsule_cylinder, search_capsule_cylinder),
    (C, P): Pair(2, capsule_plane),
    (Y, P): Pair(4, cylinder_plane),
}
