"""An ellipsoid with a box or a cylinder: the common normal, feature by feature.

As in `ellipsoids`, the signed distance is the maximum over unit vectors n of gap(n) = n · d - h(n), with the support
functions of both solids in h. Those of a box and of a cylinder have kinks, between which they are smooth:

    box          a corner: n is free; an edge: n is orthogonal to it; a face: n is its normal
    cylinder     a rim, a flat ellipsoid: n is free; the side: n is orthogonal to the axis; a cap: n is the axis

The maximum of the gap of every feature is found, as if the others were not there. It counts if the feature is the
support of the solid for that n; the greatest one is the maximum of the whole solids. Of solids that penetrate deeply
the gap of a feature has several maxima, so each search starts where the gap is greatest of some n that the feature
supports. One more Newton step on its feature makes it exact, and differentiable. MuJoCo's
iterations end within its tolerance of the same point.
"""

from __future__ import annotations

from itertools import product

from ....ir import Mask, Scalar, ScalarArray, absolute, carry, memory, minimum, rolled, select, sqrt
from ...math.arrays import split
from ...math.spatial import ZERO3, Vec, add, dot, rotate, scale, sub
from ..pairs.common import along, choose, guarded
from ..solids import FAR, Solid
from .contacts import GeomContact, GeomPair, X, axis, contact, default_tangent, keep, normalised
from .ellipsoids import Gap, around, support

SIGNS = list(product((-1.0, 0.0, 1.0), repeat=3))
CORNERS = [signs for signs in SIGNS if signs.count(0.0) == 0]
EDGES = [signs for signs in SIGNS if signs.count(0.0) == 1]
FACES = [signs for signs in SIGNS if signs.count(0.0) == 2]
"""Features of a box: the side on which each coordinate is, 0 where it is free."""


TIE = 1e-9
"""The gap at a rim must be greater by this part of the radius: that of a cap is also the limit of that of its rim."""

SUPPORTED = 1e-9
"""A component of a unit vector below this has either sign."""

LEANING = [(1.0, 1.0, 1.0), (3.0, 1.0, 1.0), (1.0, 3.0, 1.0), (1.0, 1.0, 3.0)]
"""Along the axes of a box: components of directions in which searches on edges and corners start."""


class Best:
    """The feature (signs) and the unit vector with the greatest gap so far."""

    def __init__(self) -> None:
        self.numbers = carry(7)
        self.numbers.put(0, (1.0, 1.0, 1.0, *X, -FAR))

    def offer(self, signs: Vec, n: Vec, value: Scalar) -> None:
        now = tuple(self.numbers[k] for k in range(7))
        self.numbers.put(0, choose(value > now[6], (*signs, *n, value), now))

    @property
    def features(self) -> Vec:
        return tuple(self.numbers[k] for k in range(6))


def _outward(ellipsoid: Solid, d: Vec) -> Vec:
    """The normal of the ellipsoid's surface in the direction d from its center."""
    total: Vec = ZERO3
    for k in range(3):
        column = tuple(ellipsoid.axes[k::3])
        total = along(total, column, dot(column, d) / (ellipsoid.size[k] * ellipsoid.size[k]))
    return normalised(total)


def across(n: Vec, u: Vec) -> Vec:
    """The part of n orthogonal to the unit vector u, normalised."""
    return normalised(along(n, u, -dot(n, u)), default_tangent(u))


def _between(ellipsoid: Solid, n: Vec, dist: Scalar) -> GeomContact:
    """The contact with the normal n at this distance from the ellipsoid's support point."""
    point = add(ellipsoid.center, support((ellipsoid,), n).point)
    return contact(dist, along(point, n, 0.5 * dist), n)


def _on_side(n: Vec, u: Vec, sign: Scalar) -> Vec:
    """n, mirrored if its component along the unit vector u does not have this sign; unchanged if the sign is 0."""
    return along(n, u, -2.0 * sign * minimum(sign * dot(n, u), 0.0))


def _table(rows: list[tuple[float, ...]]) -> ScalarArray:
    table = memory(3 * len(rows))
    for k, row in enumerate(rows):
        table.put(k, row)
    return table


# ------------------------------------------------------------------------------------------ boxes


def _box_axes(box: Solid) -> list[Vec]:
    return [tuple(box.axes[k::3]) for k in range(3)]


def _to_feature(box: Solid, d: Vec, signs: Vec) -> Vec:
    """From the ellipsoid's center to a corner, or to the middle of an edge, that faces it."""
    for k, a in enumerate(_box_axes(box)):
        d = along(d, a, -0.5 * signs[k] * box.size[k])
    return d


def _along_edge(box: Solid, signs: Vec) -> Vec:
    """The direction of an edge; that of the free coordinate."""
    u: Vec = ZERO3
    for k, a in enumerate(_box_axes(box)):
        u = along(u, a, 1.0 - absolute(signs[k]))
    return normalised(u)


def search_box(ellipsoid: Solid, box: Solid, margin: Scalar) -> Vec:
    """The signs of the feature, and the normal."""
    d, axes, best = sub(box.center, ellipsoid.center), _box_axes(box), Best()

    def gap(n: Vec) -> Scalar:
        total = dot(n, d) - support((ellipsoid,), n).value
        for k, a in enumerate(axes):
            total = total - 0.5 * box.size[k] * absolute(dot(n, a))
        return total

    for signs in FACES:
        n: Vec = ZERO3
        for sign, a in zip(signs, axes, strict=True):
            n = along(n, a, sign)
        best.offer(signs, n, gap(n))

    def offer(signs: Vec, feature: Gap, starts: list[Vec]) -> None:
        n = feature.maximum(feature.best([_supported(box, start, signs) for start in starts]))
        best.offer(signs, n, select(_supports(box, signs, n), gap(n), -FAR))

    table = _table(EDGES)
    for k in rolled(len(EDGES)):
        edge = table.get(k, 3)
        u, to_edge = _along_edge(box, edge), _to_feature(box, d, edge)
        starts = [across(_outward(ellipsoid, to_edge), u), *(across(x, u) for x in _leaning(box))]
        offer(edge, Gap((ellipsoid,), to_edge, u), starts)
    table = _table(CORNERS)
    for k in rolled(len(CORNERS)):
        corner = table.get(k, 3)
        to_corner = _to_feature(box, d, corner)
        offer(corner, Gap((ellipsoid,), to_corner), [_outward(ellipsoid, to_corner), *_leaning(box)])
    return best.features


def _leaning(box: Solid) -> list[Vec]:
    """The directions of LEANING in the world."""
    return [normalised(rotate(box.axes, components)) for components in LEANING]


def _supported(box: Solid, n: Vec, signs: Vec) -> Vec:
    """n, mirrored so that its components have the signs of a feature."""
    for a, sign in zip(_box_axes(box), signs, strict=True):
        n = _on_side(n, a, sign)
    return n


def _supports(box: Solid, signs: Vec, n: Vec) -> Mask:
    """Whether a feature is the support of the box for n: no component of n has the opposite sign."""
    least: Scalar = 0.0
    for a, sign in zip(_box_axes(box), signs, strict=True):
        least = minimum(least, sign * dot(n, a))
    return least > -SUPPORTED


def ellipsoid_box(ellipsoid: Solid, box: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    signs, n = split(features, 3, 3)
    fixed = absolute(signs[0]) + absolute(signs[1]) + absolute(signs[2])
    face, corner = fixed < 1.5, fixed > 2.5
    d, u = sub(box.center, ellipsoid.center), _along_edge(box, signs)
    to_feature = _to_feature(box, d, signs)
    normal: Vec = ZERO3
    for sign, a in zip(signs, _box_axes(box), strict=True):
        normal = along(normal, a, sign)
    at_edge = Gap((ellipsoid,), to_feature, u).refined(across(n, u))
    at_corner = Gap((ellipsoid,), to_feature).refined(n)
    n = choose(face, normalised(normal), choose(corner, at_corner, at_edge))
    only = _between(ellipsoid, n, dot(n, to_feature) - support((ellipsoid,), n).value)
    return [keep(only.dist <= margin, only)]


# ------------------------------------------------------------------------------------------ cylinders


def disk_of(cylinder: Solid) -> Solid:
    """The middle section of a cylinder, as a flat ellipsoid."""
    return Solid(cylinder.center, cylinder.axes, (cylinder.size[0], cylinder.size[0], 0.0))


def search_cylinder(ellipsoid: Solid, cylinder: Solid, margin: Scalar) -> Vec:
    """The signs of the feature (the cap, or 0 on the side; 1 on a rim; not used), and the normal."""
    d, w, best, disk = sub(cylinder.center, ellipsoid.center), normalised(axis(cylinder)), Best(), disk_of(cylinder)
    half = 0.5 * cylinder.size[1]

    def gap(n: Vec) -> Scalar:
        slope = dot(n, w)
        radial = along(n, w, -slope)
        flat = dot(radial, radial) < 1e-30
        reach = cylinder.size[0] * sqrt(guarded(dot(radial, radial)))
        return dot(n, d) - support((ellipsoid,), n).value - select(flat, 0.0, reach) - half * absolute(slope)

    for sign in (-1.0, 1.0):
        n = scale(sign, w)
        best.offer((sign, 0.0, 0.0), n, gap(n))
    side = Gap((ellipsoid, disk), d, w)
    n = side.maximum(side.best(around(w)))
    best.offer(ZERO3, n, gap(n))
    table = _table([(-1.0, 1.0, 0.0), (1.0, 1.0, 0.0)])
    for k in rolled(2):
        rim = table.get(k, 3)
        to_rim = along(d, w, -rim[0] * half)
        radial = across(to_rim, w)
        start = _outward(ellipsoid, along(to_rim, radial, -cylinder.size[0]))
        at_rim = Gap((ellipsoid, disk), to_rim)
        starts = [start, *(normalised(along(x, w, rim[0])) for x in around(w))]
        n = at_rim.maximum(at_rim.best([_on_side(x, w, rim[0]) for x in starts]))
        supported = rim[0] * dot(n, w) > -SUPPORTED
        best.offer(rim, n, select(supported, gap(n) - TIE * cylinder.size[0], -FAR))
    return best.features


def ellipsoid_cylinder(ellipsoid: Solid, cylinder: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    (end, rim, _), n = split(features, 3, 3)
    d, w, disk = sub(cylinder.center, ellipsoid.center), normalised(axis(cylinder)), disk_of(cylinder)
    cap, side = (absolute(end) > 0.5) & (rim < 0.5), absolute(end) < 0.5
    to_end = along(d, w, -0.5 * end * cylinder.size[1])
    at_side = Gap((ellipsoid, disk), to_end, w).refined(across(n, w))
    free = choose(cap, default_tangent(w), n)  # on a cap the rim's curvature is not defined
    at_rim = Gap((ellipsoid, disk), to_end).refined(free)
    n = choose(cap, scale(end, w), choose(side, at_side, at_rim))
    reach = support((disk,), choose(cap, default_tangent(w), n)).value
    dist = dot(n, to_end) - support((ellipsoid,), n).value - select(cap, 0.0, reach)
    only = _between(ellipsoid, n, dist)
    return [keep(only.dist <= margin, only)]


ELLIPSOID_BOX = GeomPair(1, ellipsoid_box, search_box, continuous=True)
ELLIPSOID_CYLINDER = GeomPair(1, ellipsoid_cylinder, search_cylinder, continuous=True)
