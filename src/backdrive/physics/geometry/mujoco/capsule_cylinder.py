"""A capsule with a cylinder: the common normal, feature by feature, as in `cylinder_box`.

    end and cap      n is the cylinder's axis
    side             n leads from the closest place of the segment to the axis, seen along the axis
    line and rim     n is orthogonal to the segment
    end and rim      n leads from the end of the segment to the closest place of the rim

If the capsule touches a cap or a rim and is nearly parallel to the cap, MuJoCo has two contacts with the cap's normal
(`flat_lines`).
"""

from __future__ import annotations

from itertools import product

from ....ir import Mask, Scalar, absolute, carry, clip, maximum, minimum, select
from ...math.arrays import split
from ...math.spatial import Vec, dot, scale, sub
from ..pairs.common import along, choose
from ..solids import FAR, Solid
from .contacts import GeomContact, GeomPair, axis, choose_contact, concentric_normal, contact, keep, normalised
from .ellipsoid_corners import TIE, across, disk_of
from .ellipsoids import Gap, support
from .flat_lines import LYING, FlatLine, LineEnds

CAP, SIDE, RIM_LINE, RIM_END = (float(k) for k in range(4))
"""What touches."""

PARALLEL = 1e-5
"""Sine of the angle between the axes below which they are parallel."""


class _CapsuleAndCylinder:
    """The unit axes u of the capsule and w of the cylinder, half lengths and radii of both; d leads from the center of
    the capsule to that of the cylinder."""

    def __init__(self, capsule: Solid, cylinder: Solid) -> None:
        self.center, self.d = capsule.center, sub(cylinder.center, capsule.center)
        self.u, self.length, self.ball = axis(capsule), 0.5 * capsule.size[1], capsule.size[0]
        self.w, self.half, self.radius = normalised(axis(cylinder)), 0.5 * cylinder.size[1], cylinder.size[0]
        self.disk, self.otherwise = disk_of(cylinder), concentric_normal(capsule, cylinder)

    def to_rim(self, end: Scalar, rim: Scalar) -> Vec:
        """From an end of the segment to the center of a rim; a sign of 0: from or to the middle."""
        return along(along(self.d, self.u, -end * self.length), self.w, -rim * self.half)

    def gap(self, n: Vec) -> Scalar:
        slope = dot(n, self.w)
        radial = along(n, self.w, -slope)
        reach = self.ball + self.length * absolute(dot(n, self.u)) + self.half * absolute(slope)
        return dot(n, self.d) - reach - self.radius * dot(radial, normalised(radial))

    def beside(self) -> Scalar:
        """The place of the segment that is closest to the axis, seen along the axis (m, from its center)."""
        slope = dot(self.u, self.w)
        lateral = along(self.u, self.w, -slope)
        square = dot(lateral, lateral)
        parallel = square < PARALLEL * PARALLEL
        crossing = dot(self.d, lateral) / select(parallel, 1.0, square)
        offset = dot(self.d, self.u)
        low, high = maximum(-self.length, offset - self.half), minimum(self.length, offset + self.half)
        return clip(select(parallel, 0.5 * (low + high), crossing), -self.length, self.length)

    def to_axis(self, place: Scalar) -> Vec:
        to_center = along(self.d, self.u, -place)
        return normalised(along(to_center, self.w, -dot(to_center, self.w)), self.otherwise)

    def from_end(self, end: Scalar, rim: Scalar) -> Vec:
        """The unit vector from an end of the segment to the closest place of a rim."""
        to_rim = self.to_rim(end, rim)
        radial = across(to_rim, self.w)
        return normalised(along(to_rim, radial, -self.radius), radial)


def search(capsule: Solid, cylinder: Solid, margin: Scalar) -> Vec:
    """What touches, the signs of the segment's end and of the cylinder's, the normal."""
    both = _CapsuleAndCylinder(capsule, cylinder)
    tie = TIE * both.radius
    best = carry(7)
    best.put(0, (0.0,) * 6 + (-FAR,))

    def offer(code: float, end: Scalar, rim: Scalar, n: Vec, handicap: float) -> None:
        now, value = tuple(best[k] for k in range(7)), both.gap(n) - handicap * tie
        best.put(0, choose(value > now[6], (code, end, rim, *n, value), now))

    n = scale(select(dot(both.w, both.d) < 0.0, -1.0, 1.0), both.w)
    offer(CAP, select(dot(n, both.u) < 0.0, -1.0, 1.0), select(dot(n, both.w) < 0.0, -1.0, 1.0), n, 0.0)
    offer(SIDE, 0.0, 0.0, both.to_axis(both.beside()), 1.0)
    for rim in (-1.0, 1.0):
        to_rim = both.to_rim(0.0, rim)
        start = across(along(across(to_rim, both.w), both.w, rim), both.u)
        offer(RIM_LINE, 0.0, rim, Gap((both.disk,), to_rim, both.u).maximum(start), 2.0)
    for end, rim in product((-1.0, 1.0), repeat=2):
        offer(RIM_END, end, rim, both.from_end(end, rim), 3.0)
    return tuple(best[k] for k in range(6))


def _is(code: Scalar, which: float) -> Mask:
    return absolute(code - which) < 0.5


def capsule_cylinder(capsule: Solid, cylinder: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    both = _CapsuleAndCylinder(capsule, cylinder)
    (code, end, rim), start = split(features, 3, 3)
    place, to_rim, at_rim = both.beside(), both.to_rim(0.0, rim), _is(code, RIM_LINE)
    # Elsewhere, a start at which the curvature of the rim is defined.
    free = along(start, both.u, -dot(start, both.u))
    free = normalised(choose(at_rim, free, across(both.otherwise, both.u)))
    line = Gap((both.disk,), to_rim, both.u).refined(free)
    closest = dot(both.u, sub(to_rim, support((both.disk,), line).point))
    n = choose(_is(code, CAP), scale(rim, both.w), both.to_axis(place))
    n = choose(at_rim, line, choose(_is(code, RIM_END), both.from_end(end, rim), n))
    place = select(_is(code, SIDE), place, select(at_rim, closest, end * both.length))
    dist = both.gap(n)
    single = contact(dist, along(along(both.center, both.u, place), n, both.ball + 0.5 * dist), n)
    lying = (absolute(dot(both.u, both.w)) < LYING) & (absolute(code - SIDE) > 0.5)
    ends = _line_on_cap(both, cylinder, n, rim).within(margin)
    ends = [keep(lying, point) for point in ends]
    none = (ends[0].dist >= FAR) & (ends[1].dist >= FAR)
    return [choose_contact(none, keep(single.dist <= margin, single), ends[0]), ends[1]]


def _line_on_cap(both: _CapsuleAndCylinder, cylinder: Solid, n: Vec, rim: Scalar) -> LineEnds:
    """The ends of the part of the capsule's line, in the direction n, that is over a cap."""
    normal = scale(rim, both.w)
    aside = along(n, both.u, -dot(n, both.u))
    line = FlatLine(along(both.center, aside, both.ball), both.u, both.length)
    line.cut_at_cap(cylinder)
    points = []
    for x in line.ends:
        dist = dot(normal, sub(along(both.center, both.d, 1.0), x)) - both.half
        points.append(contact(dist, along(x, normal, 0.5 * dist), normal))
    return LineEnds(line, points)


CAPSULE_CYLINDER = GeomPair(2, capsule_cylinder, search, continuous=True)
