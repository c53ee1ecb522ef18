"""A cylinder with a box: the common normal, feature by feature, as in `ellipsoid_corners`.

    face (of the box) and anything     n is its normal
    cap and anything                   n is the axis
    edge and side                      n is orthogonal to both
    corner and side                    n leads from the axis to the corner
    edge and rim                       n is orthogonal to the edge
    corner and rim                     n leads from the closest place of the rim to the corner

Both solids are symmetric about their centers, so that the gap is greater for n than for -n where n leads from the first
center to the second. Where solids that touch so have a face and an edge, or two faces, that are nearly parallel, MuJoCo
has several contacts with the normal of the face, whatever the common normal is:

    a cap flat on a face               see `flat_faces`
    the side on a face                 the ends of the line of the side that touches, cut off at the sides of the face
    an edge on a cap                   the ends of the edge, cut off at the corners of the cap
"""

from __future__ import annotations

from itertools import product

from ....ir import Mask, Scalar, absolute, any_lane, carry, memory, rolled, select, when
from ...math.arrays import split
from ...math.spatial import ZERO3, Vec, add, cross, dot, scale, sub
from ..pairs.common import along, choose, guarded
from ..solids import FAR, Solid
from . import flat_faces
from .contacts import GeomContact, GeomPair, axis, choose_contact, contact, keep, normalised
from .ellipsoid_corners import CORNERS, EDGES, TIE, across, disk_of
from .ellipsoids import Gap
from .flat_faces import FaceOverlap, box_face, cap_of, lie_flat
from .flat_lines import LYING, FlatLine, LineEnds

FACE, CAP, SIDE_EDGE, SIDE_CORNER, RIM_EDGE, RIM_CORNER = (float(k) for k in range(6))
"""What touches."""

FLAT, SIDE, EDGE = 1.0, 2.0, 3.0
"""What lies flat on the other: a cap on a face, the side on a face, an edge on a cap; 0: nothing."""

ANGLE = 1e-6
"""Sine of the angle between the axis and an edge below which they are parallel: a corner is then as close."""


class _CylinderAndBox:
    """The cylinder's unit axis w, half length and radius; the box's axes and half sides; d leads from the center of the
    cylinder to that of the box."""

    def __init__(self, cylinder: Solid, box: Solid) -> None:
        self.center, self.d = cylinder.center, sub(box.center, cylinder.center)
        self.w, self.radius, self.half = normalised(axis(cylinder)), cylinder.size[0], 0.5 * cylinder.size[1]
        self.disk = disk_of(cylinder)
        self.axes = [tuple(box.axes[k::3]) for k in range(3)]
        self.sides = [0.5 * x for x in box.size]

    def facing(self, n: Vec) -> Vec:
        return scale(select(dot(n, self.d) < 0.0, -1.0, 1.0), n)

    def signs(self, n: Vec) -> Vec:
        """The signs of the box's corner, and of the cylinder's end, that are at the other solid."""
        return tuple(select(dot(n, x) < 0.0, -1.0, 1.0) for x in (*self.axes, self.w))

    def to_box(self, signs: Vec) -> Vec:
        """From the center of an end to a corner; to the middle of an edge or face, or from the middle of the cylinder,
        where signs are 0."""
        d = along(self.d, self.w, -signs[3] * self.half)
        for a, half, sign in zip(self.axes, self.sides, signs[:3], strict=True):
            d = along(d, a, -sign * half)
        return d

    def edge(self, signs: Vec) -> Vec:
        """The direction in which the sign of an edge is 0."""
        u: Vec = ZERO3
        for k, a in enumerate(self.axes):
            u = along(u, a, 1.0 - absolute(signs[k]))
        return normalised(u)

    def normal(self, signs: Vec) -> Vec:
        """The sum of the axes in the directions of the signs."""
        n: Vec = ZERO3
        for a, sign in zip(self.axes, signs[:3], strict=True):
            n = along(n, a, sign)
        return n

    def gap(self, n: Vec) -> Scalar:
        slope = dot(n, self.w)
        radial = along(n, self.w, -slope)
        total = dot(n, self.d) - self.half * absolute(slope) - self.radius * dot(radial, normalised(radial))
        for a, half in zip(self.axes, self.sides, strict=True):
            total = total - half * absolute(dot(n, a))
        return total


class _BestFeature:
    """What touches, signs and the normal with the greatest gap so far."""

    def __init__(self) -> None:
        self.numbers = carry(9)
        self.numbers.put(0, (0.0,) * 8 + (-FAR,))

    def offer(self, code: float, signs: Vec, n: Vec, value: Scalar) -> None:
        now = tuple(self.numbers[k] for k in range(9))
        self.numbers.put(0, choose(value > now[8], (code, *signs, *n, value), now))

    @property
    def features(self) -> Vec:
        return tuple(self.numbers[k] for k in range(8))


def search(cylinder: Solid, box: Solid, margin: Scalar) -> Vec:
    """What touches, the signs, the normal; what lies flat, on which face, and the corners of two faces that do."""
    both, best = _CylinderAndBox(cylinder, box), _BestFeature()
    tie = TIE * both.radius
    for k, a in enumerate(both.axes):
        n = both.facing(a)
        signs = both.signs(n)
        best.offer(FACE, tuple(signs[m] if m in (k, 3) else 0.0 for m in range(4)), n, both.gap(n))
    n = both.facing(both.w)
    best.offer(CAP, both.signs(n), n, both.gap(n))
    for k, a in enumerate(both.axes):
        lateral = cross(a, both.w)
        n = both.facing(normalised(lateral))
        signs = both.signs(n)
        lost = select(dot(lateral, lateral) < ANGLE * ANGLE, FAR, tie)
        best.offer(SIDE_EDGE, tuple(0.0 if m in (k, 3) else signs[m] for m in range(4)), n, both.gap(n) - lost)
    corners = [(*signs, end) for signs, end in product(CORNERS, (-1.0, 0.0, 1.0))]
    table = memory(4 * len(corners))
    for k, corner in enumerate(corners):
        table.put(k, corner)
    for k in rolled(len(corners)):
        signs = table.get(k, 4)
        rim = absolute(signs[3]) > 0.5
        n = _to_corner(both, signs)
        value = both.gap(n)
        best.offer(SIDE_CORNER, signs, n, select(rim, -FAR, value - tie))
        best.offer(RIM_CORNER, signs, n, select(rim, value - 3.0 * tie, -FAR))
    edges = [(*signs, end) for signs, end in product(EDGES, (-1.0, 1.0))]
    table = memory(4 * len(edges))
    for k, edge in enumerate(edges):
        table.put(k, edge)
    for k in rolled(len(edges)):
        signs = table.get(k, 4)
        u = both.edge(signs)
        start = across(along(both.normal(signs), both.w, signs[3]), u)
        n = Gap((both.disk,), both.to_box(signs), u).maximum(start)
        best.offer(RIM_EDGE, signs, n, both.gap(n) - 2.0 * tie)
    flat = _lies_flat(both, best.features)
    corners_of_faces = carry(flat_faces.FEATURES)
    corners_of_faces.put(0, flat_faces.NONE)
    faces_flat = _is(flat[0], FLAT)
    for _ in when(any_lane(faces_flat)):
        corners_of_faces.put(0, choose(faces_flat, _overlap(cylinder, box, flat[1:]).search(margin), flat_faces.NONE))
    return (*best.features, *flat, *(corners_of_faces[k] for k in range(flat_faces.FEATURES)))


def _to_corner(both: _CylinderAndBox, signs: Vec) -> Vec:
    """From the axis to a corner (the sign of the end is 0), or from the closest place of a rim."""
    to_corner = both.to_box(signs)
    radial = across(to_corner, both.w)
    from_rim = normalised(along(to_corner, radial, -both.radius), radial)
    return choose(absolute(signs[3]) < 0.5, radial, from_rim)


def _lies_flat(both: _CylinderAndBox, features: Vec) -> Vec:
    """What lies flat, and the signs of the face of the box that takes part: the first one that does."""
    (code,), signs, _ = split(features, 1, 4, 3)
    has_cap, has_line = _is(code, FACE, CAP, RIM_EDGE, RIM_CORNER), absolute(code - CAP) > 0.5
    found: Vec = (0.0, 0.0, 0.0, 0.0)
    for which, has in ((SIDE, has_line), (FLAT, has_cap)):  # the latter is preferred
        for k in reversed(range(3)):
            slope = dot(both.axes[k], both.w)
            aligned = lie_flat(both.axes[k], both.w) if which == FLAT else absolute(slope) < LYING
            face = tuple(signs[k] if m == k else 0.0 for m in range(3))
            found = choose(has & aligned & (absolute(signs[k]) > 0.5), (which, *face), found)
    on_cap = _is(code, RIM_EDGE) & (absolute(dot(both.edge(signs), both.w)) < LYING) & (found[0] < 0.5)
    return choose(on_cap, (EDGE, 0.0, 0.0, 0.0), found)


def _overlap(cylinder: Solid, box: Solid, face: Vec) -> FaceOverlap:
    """A cap and a face, seen along the normal of the face."""
    both = _CylinderAndBox(cylinder, box)
    n = both.normal(face)
    end = select(dot(n, both.w) < 0.0, -1.0, 1.0)
    return FaceOverlap(cap_of(cylinder, scale(end, both.w)), box_face(box, scale(-1.0, face)), n)


def _is(code: Scalar, *which: float) -> Mask:
    found: Mask = False
    for x in which:
        found = found | (absolute(code - x) < 0.5)
    return found


def cylinder_box(cylinder: Solid, box: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    both = _CylinderAndBox(cylinder, box)
    (code,), signs, start, (flat,), face, corners = split(features, 1, 4, 3, 1, 3, flat_faces.FEATURES)
    single = _single(both, code, tuple(signs), start)
    safe = choose(_is(flat, FLAT, SIDE), tuple(face), (1.0, 0.0, 0.0))
    several, exist = _overlap(cylinder, box, safe).contacts(corners), flat_faces.count_of(corners)
    on_face, on_cap = _is(flat, SIDE), _is(flat, EDGE)
    side, edge = _side_on_face(both, single.normal, safe), _edge_on_cap(both, cylinder, tuple(signs))
    pairs = zip(side.within(margin), edge.within(margin), strict=True)
    ends = [choose_contact(on_face, x, keep(on_cap, y)) for x, y in pairs]
    result = []
    for k, point in enumerate(several):
        point = keep(_is(flat, FLAT) & exist[k] & (point.dist <= margin), point)
        result.append(choose_contact(on_face | on_cap, ends[k], point) if k < 2 else point)
    none: Mask = True
    for point in result:
        none = none & (point.dist >= FAR)
    return [choose_contact(none, keep(single.dist <= margin, single), result[0]), *result[1:]]


def _single(both: _CylinderAndBox, code: Scalar, signs: Vec, start: Vec) -> GeomContact:
    """The contact of the solids' closest points, or of their smallest penetration."""
    w, u, to_box = both.w, both.edge(signs), both.to_box(signs)
    cap = _is(code, CAP)
    n = choose(_is(code, SIDE_CORNER, RIM_CORNER), _to_corner(both, signs), start)
    sides = normalised(cross(u, w))
    n = choose(_is(code, SIDE_EDGE), scale(select(dot(sides, start) < 0.0, -1.0, 1.0), sides), n)
    rim_edge = _is(code, RIM_EDGE)
    # Elsewhere, an edge and a start at which the curvature of the rim is defined.
    edge = choose(rim_edge, u, both.axes[0])
    free = choose(rim_edge, across(start, edge), across(along(both.axes[1], both.axes[2], 0.5), edge))
    n = choose(rim_edge, Gap((both.disk,), to_box, edge).refined(free), n)
    n = choose(cap, scale(signs[3], w), choose(_is(code, FACE), both.normal(signs), n))
    radial = across(n, w)
    dist = dot(n, to_box) - select(cap, 0.0, both.radius * dot(n, radial))
    on_rim = along(along(both.center, w, signs[3] * both.half), radial, both.radius)
    corner = along(add(both.center, to_box), w, signs[3] * both.half)
    # The place on the axis that is closest to the line of an edge.
    slope = dot(u, w)
    s = (dot(to_box, w) - slope * dot(to_box, u)) / guarded(1.0 - slope * slope)
    on_side = along(along(both.center, w, s), n, both.radius)
    surface = choose(_is(code, SIDE_EDGE), on_side, on_rim)
    from_box = _is(code, CAP, SIDE_CORNER, RIM_CORNER)
    return contact(dist, choose(from_box, along(corner, n, -0.5 * dist), along(surface, n, 0.5 * dist)), n)


def _side_on_face(both: _CylinderAndBox, n: Vec, face: Vec) -> LineEnds:
    """The ends of the part of the line of the side, in the direction n, that is over a face."""
    normal, center = both.normal(face), add(both.center, both.d)
    line = FlatLine(along(both.center, across(n, both.w), both.radius), both.w, both.half)
    for a, half, sign in zip(both.axes, both.sides, face, strict=True):
        line.cut(a, center, half, absolute(sign) < 0.5)
    level = dot(normal, both.to_box((*face, 0.0)))
    points = []
    for x in line.ends:
        dist = level - dot(normal, sub(x, both.center))
        points.append(contact(dist, along(x, normal, 0.5 * dist), normal))
    return LineEnds(line, points)


def _edge_on_cap(both: _CylinderAndBox, cylinder: Solid, signs: Vec) -> LineEnds:
    """The ends of the part of an edge that is over a cap."""
    half: Scalar = 0.0
    for k in range(3):
        half = half + (1.0 - absolute(signs[k])) * both.sides[k]
    n = scale(signs[3], both.w)
    line = FlatLine(along(add(both.center, both.to_box(signs)), n, both.half), both.edge(signs), half)
    line.cut_at_cap(cylinder)
    points = []
    for y in line.ends:
        dist = dot(n, sub(y, both.center)) - both.half
        points.append(contact(dist, along(y, n, -0.5 * dist), n))
    return LineEnds(line, points)


CYLINDER_BOX = GeomPair(flat_faces.SLOTS, cylinder_box, search, continuous=True)
