"""A capsule with a cylinder: one contact, or two where the capsule lies on a cap.

MuJoCo finds these contacts by iterations for convex solids. As long as the capsule's segment is outside the cylinder,
the contact that they converge to is that of the ball at the segment's closest place. If the segment penetrates, the
capsule is moved out along the shorter way of two, through the side or through a cap; there may be a way through the rim
that is still shorter, which MuJoCo would find.
"""

from __future__ import annotations

from ....ir import Scalar, absolute, clip, select, sqrt
from ...math.spatial import Vec, dot, neg, scale, sub
from ..pairs.common import along, choose
from ..pairs.rounded import find_deepest, refine_deepest
from ..solids import Solid
from .contacts import GeomContact, GeomPair, axis, choose_contact, concentric_normal, keep, normalised
from .spheres import ball_contact, ball_cylinder

FLAT = 0.0888
"""Sine of the angle between the capsule and a cap below which both ends of the part over the cap have contacts."""


def search(capsule: Solid, cylinder: Solid, margin: Scalar) -> Vec:
    return (find_deepest(capsule, cylinder),)


def _push(capsule: Solid, cylinder: Solid, place: Scalar, outward: Vec, cap: float) -> GeomContact:
    """The contact of the ball at a place of the segment (m) with the side (cap: 0) or a cap (1) of the cylinder."""
    center = along(capsule.center, axis(capsule), place)
    reach = cap * 0.5 * cylinder.size[1] + (1.0 - cap) * cylinder.size[0]
    distance = dot(sub(center, cylinder.center), outward) - reach
    return ball_contact(center, capsule.size[0], distance, neg(outward))


def capsule_cylinder(capsule: Solid, cylinder: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    radius, half, u, w = capsule.size[0], 0.5 * capsule.size[1], axis(capsule), axis(cylinder)
    place, _, at = refine_deepest(capsule, cylinder, features[0])
    otherwise = concentric_normal(capsule, cylinder)
    outside = ball_cylinder(along(capsule.center, u, place), radius, cylinder, otherwise)
    # In the plane of the caps: the place of the segment's line closest to the axis, and the room within the radius.
    offset, slope = sub(capsule.center, cylinder.center), dot(u, w)
    across, from_axis = along(u, w, -slope), along(offset, w, -dot(offset, w))
    square = dot(across, across)
    middle = -dot(from_axis, across) / select(square > 1e-12, square, 1.0)
    room = (cylinder.size[0] * cylinder.size[0] - dot(from_axis, from_axis)) + middle * middle * square
    # Ways out of the cylinder: through the side, where the segment is closest to the axis, and through the nearer cap.
    beside = along(from_axis, across, clip(middle, -half, half))
    through_side = _push(capsule, cylinder, clip(middle, -half, half), normalised(beside, neg(otherwise)), 0.0)
    up = select(dot(offset, w) > 0.0, 1.0, -1.0)
    lowest = select(up * slope > 0.0, -half, half)
    through_cap = _push(capsule, cylinder, lowest, scale(up, w), 1.0)
    by_cap, inside = through_side.dist <= through_cap.dist, at.distance < 0.0
    first = choose_contact(inside, choose_contact(by_cap, through_cap, through_side), outside)
    over_cap = (inside & by_cap) | ((at.distance >= 0.0) & (at.side < 0.0))
    flat = over_cap & (absolute(slope) < FLAT) & (room > 0.0)
    upward = choose(inside, scale(up, w), at.upward)
    reach = sqrt(select(flat, room / select(flat, square, 1.0), 1.0))
    ends = []
    for side in (-1.0, 1.0):
        end = along(capsule.center, u, clip(middle + side * reach, -half, half))
        distance = dot(sub(end, cylinder.center), upward) - 0.5 * cylinder.size[1]
        ends.append(ball_contact(end, radius, distance, neg(upward)))
    first = choose_contact(flat, ends[0], first)
    return [keep(first.dist <= margin, first), keep(flat & (ends[1].dist <= margin), ends[1])]


CAPSULE_CYLINDER = GeomPair(2, capsule_cylinder, search, continuous=True)
