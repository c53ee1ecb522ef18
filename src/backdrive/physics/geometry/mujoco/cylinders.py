"""Two cylinders: the common normal, feature by feature, as in `ellipsoid_corners`.

    cap and anything     n is the axis
    side and side        n is orthogonal to both axes
    side and rim         n is orthogonal to an axis
    rim and rim          n is free

Where cylinders that touch so have caps that are nearly parallel, or a cap and a side that are, MuJoCo has several
contacts (`flat_faces`, `flat_lines`). Cylinders that are parallel have one contact, in the middle of the part in which
they are beside each other.
"""

from __future__ import annotations

from ....ir import Mask, Scalar, absolute, any_lane, carry, maximum, memory, minimum, rolled, select, when
from ...math.arrays import split
from ...math.spatial import ZERO3, Vec, add, cross, dot, scale, sub
from ..pairs.common import along, choose, guarded
from ..solids import FAR, Solid
from . import flat_faces
from .contacts import GeomContact, GeomPair, axis, choose_contact, contact, default_tangent, keep, normalised
from .ellipsoid_corners import TIE, Best, across, disk_of
from .ellipsoids import Gap, support
from .flat_faces import FaceOverlap, cap_of, lie_flat
from .flat_lines import LYING, FlatLine, LineEnds

CAP_1, CAP_2, SIDES, SIDE_1, SIDE_2, RIMS = (float(k) for k in range(6))
"""What touches: a cap of the first, a cap of the second, both sides, the side of the first (with a rim), ..."""

PARALLEL = 1e-5
"""Sine of the angle between the axes of two cylinders below which they are parallel."""


class _Cylinders:
    """Two cylinders: unit axes w, half lengths, middle sections as flat ellipsoids; d leads from one center to the
    other."""

    def __init__(self, a: Solid, b: Solid) -> None:
        self.d = sub(b.center, a.center)
        self.w = [normalised(axis(x)) for x in (a, b)]
        self.half = [0.5 * x.size[1] for x in (a, b)]
        self.disks = (disk_of(a), disk_of(b))
        self.centers, self.radii = (a.center, b.center), (a.size[0], b.size[0])

    def to_ends(self, signs: Vec) -> Vec:
        """d between the centers of two ends; a sign of 0: the middle."""
        d = self.d
        for w, half, sign in zip(self.w, self.half, signs, strict=True):
            d = along(d, w, -sign * half)
        return d

    def gap(self, n: Vec) -> Scalar:
        total = dot(n, self.d)
        for w, half, radius in zip(self.w, self.half, self.radii, strict=True):
            slope = dot(n, w)
            radial = along(n, w, -slope)
            total = total - radius * dot(radial, normalised(radial)) - half * absolute(slope)
        return total

    def sides(self) -> Vec:
        """The unit vector orthogonal to both axes, from the first to the second."""
        n = normalised(cross(*self.w))
        return scale(select(dot(n, self.d) < 0.0, -1.0, 1.0), n)

    def start(self, signs: Vec) -> Vec:
        """A vector within the normals of the rims with these signs; of sides where they are 0."""
        total: Vec = ZERO3
        for w, sign, side in zip(self.w, signs, (1.0, -1.0), strict=True):
            outward = across(scale(side, self.d), w)
            total = add(total, scale(side, add(outward, scale(side * sign, w))))
        return normalised(total)


def search(a: Solid, b: Solid, margin: Scalar) -> Vec:
    """What touches, the signs of the ends, the normal; and the corners of caps that lie flat on each other."""
    both, best = _Cylinders(a, b), Best()
    for code, w in ((CAP_1, both.w[0]), (CAP_2, both.w[1])):
        for sign in (-1.0, 1.0):
            n = scale(sign, w)
            signs: Vec = tuple(select(dot(n, x) < 0.0, -1.0, 1.0) for x in both.w)
            best.offer((code, *signs), n, both.gap(n))
    n = both.sides()
    best.offer((SIDES, 0.0, 0.0), n, both.gap(n))
    tie, ends = TIE * (a.size[0] + b.size[0]), ((-1.0, -1.0), (-1.0, 1.0), (1.0, -1.0), (1.0, 1.0))
    for code, k in ((SIDE_1, 0), (SIDE_2, 1)):
        for sign in (-1.0, 1.0):
            signs = (0.0, sign) if k == 0 else (sign, 0.0)
            n = Gap(both.disks, both.to_ends(signs), both.w[k]).maximum(across(both.start(signs), both.w[k]))
            best.offer((code, *signs), n, both.gap(n) - tie)
    table = memory(2 * len(ends))
    for k, pair in enumerate(ends):
        table.put(k, pair)
    for k in rolled(len(ends)):
        signs = table.get(k, 2)
        n = Gap(both.disks, both.to_ends(signs)).maximum(both.start(signs))
        best.offer((RIMS, *signs), n, both.gap(n) - 2.0 * tie)
    flat = _caps_flat(both, best.features)
    corners = carry(flat_faces.FEATURES)
    corners.put(0, flat_faces.NONE)
    for _ in when(any_lane(flat)):
        corners.put(0, choose(flat, _overlap(both, a, b, best.features[3:6]).search(margin), flat_faces.NONE))
    return (*best.features, *(corners[k] for k in range(flat_faces.FEATURES)))


def _caps_flat(both: _Cylinders, features: Vec) -> Mask:
    """Whether two caps lie flat on each other."""
    return lie_flat(*both.w) & _is(features[0], CAP_1, CAP_2, RIMS)


def _overlap(both: _Cylinders, a: Solid, b: Solid, n: Vec) -> FaceOverlap:
    """The caps of both, with the normal of the second one's."""
    first, second = (scale(select(dot(n, w) < 0.0, -1.0, 1.0), w) for w in both.w)
    return FaceOverlap(cap_of(a, first), cap_of(b, scale(-1.0, second)), second)


def _is(code: Scalar, *which: float) -> Mask:
    found: Mask = False
    for x in which:
        found = found | (absolute(code - x) < 0.5)
    return found


def cylinder_cylinder(a: Solid, b: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    both = _Cylinders(a, b)
    (code, *signs), start, corners = split(features, 3, 3, flat_faces.FEATURES)
    single = _single(both, code, tuple(signs), start)
    several, exist = _overlap(both, a, b, start).contacts(corners), flat_faces.count_of(corners)
    flat, lying = _caps_flat(both, features), absolute(dot(both.w[0], both.w[1])) < LYING
    first, second = (_side_on_cap(both, (a, b), k, single.normal).within(margin) for k in range(2))
    of_second, of_first = lying & _is(code, SIDE_2), lying & _is(code, CAP_2, RIMS, SIDE_1)
    result = []
    for k, point in enumerate(several):
        point = keep(flat & exist[k] & (point.dist <= margin), point)
        if k < 2:
            point = choose_contact(of_second, second[k], choose_contact(of_first, first[k], point))
        result.append(point)
    none: Mask = True
    for point in result:
        none = none & (point.dist >= FAR)
    return [choose_contact(none, keep(single.dist <= margin, single), result[0]), *result[1:]]


def _side_on_cap(both: _Cylinders, solids: tuple[Solid, Solid], k: int, n: Vec) -> LineEnds:
    """The ends of the part of the line of cylinder k's side, towards the other, that is over a cap of the other."""
    side = 1.0 - 2.0 * k
    w, other = both.w[k], both.w[1 - k]
    line = FlatLine(along(both.centers[k], across(n, w), side * both.radii[k]), w, both.half[k])
    line.cut_at_cap(solids[1 - k])
    outward = scale(select(side * dot(n, other) < 0.0, 1.0, -1.0), other)  # of the cap
    normal = scale(-side, outward)
    points = []
    for x in line.ends:
        dist = dot(outward, sub(x, both.centers[1 - k])) - both.half[1 - k]
        points.append(contact(dist, along(x, outward, -0.5 * dist), normal))
    return LineEnds(line, points)


def _single(both: _Cylinders, code: Scalar, signs: Vec, n: Vec) -> GeomContact:
    """The contact of the solids' closest points, or of their smallest penetration."""
    first, second = both.w
    caps, to_ends = (_is(code, CAP_1), _is(code, CAP_2)), both.to_ends(signs)
    free = choose(caps[0] | caps[1], both.start(signs), n)  # on a cap the curvature of the rim is not defined
    found = Gap(both.disks, to_ends).refined(free)
    for which, w in ((SIDE_1, first), (SIDE_2, second)):
        found = choose(_is(code, which), Gap(both.disks, to_ends, w).refined(across(free, w)), found)
    found = choose(_is(code, SIDES), both.sides(), found)
    for cap, w in zip(caps, both.w, strict=True):
        along_w = scale(select(dot(n, w) < 0.0, -1.0, 1.0), w)
        found = choose(cap, along_w, found)
    n = found
    dist = both.gap(n)
    # The surface point of the solid that has only one: a rim's; or the points of two lines that are closest.
    points = []
    for k, side in ((0, 1.0), (1, -1.0)):
        safe = choose(caps[k], default_tangent(both.w[k]), n)
        rim = along(both.centers[k], both.w[k], side * signs[k] * both.half[k])
        points.append(along(rim, support((both.disks[k],), safe).point, side))
    cosine, from_first = dot(first, second), _is(code, CAP_2, SIDE_2)
    s = (dot(both.d, first) - cosine * dot(both.d, second)) / guarded(1.0 - cosine * cosine)
    lateral = cross(first, second)
    parallel = (dot(lateral, lateral) < PARALLEL * PARALLEL) & _is(code, SIDES, SIDE_1, SIDE_2)
    s = select(parallel, _middle(both), s)
    on_side = along(along(both.centers[0], first, s), across(n, first), both.radii[0])
    position = choose(from_first, along(points[0], n, 0.5 * dist), along(points[1], n, -0.5 * dist))
    position = choose(_is(code, SIDES) | parallel, along(on_side, n, 0.5 * dist), position)
    return contact(dist, position, n)


def _middle(both: _Cylinders) -> Scalar:
    """The middle of the part of the first cylinder's axis that is beside the second cylinder (m, from its center)."""
    offset = dot(both.d, both.w[0])
    low, high = maximum(-both.half[0], offset - both.half[1]), minimum(both.half[0], offset + both.half[1])
    return 0.5 * (low + high)


CYLINDER_CYLINDER = GeomPair(flat_faces.SLOTS, cylinder_cylinder, search, continuous=True)
