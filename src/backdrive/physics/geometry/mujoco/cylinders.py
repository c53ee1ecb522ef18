"""Two cylinders: the common normal, feature by feature, as in `ellipsoid_corners`.

    cap and anything     n is the axis
    side and side        n is orthogonal to both axes
    side and rim         n is orthogonal to an axis
    rim and rim          n is free

If a cap lies flat on the other cylinder, or the two are parallel, MuJoCo has several contacts. They are then those of
the rigid engine, for which cylinders are prisms.
"""

from __future__ import annotations

from ....ir import Mask, Scalar, absolute, memory, rolled, select
from ....schema.layout import GeomKind
from ...math.arrays import split
from ...math.spatial import ZERO3, Vec, add, cross, dot, scale, sub
from ..pairs.common import along, choose, guarded
from ..solids import Hull, Solid
from .borrowed import borrowed
from .contacts import GeomContact, GeomPair, axis, choose_contact, contact, default_tangent, keep, normalised
from .ellipsoid_corners import TIE, Best, across, disk_of
from .ellipsoids import Gap, support

BORROWED = borrowed(GeomKind.CYLINDER, GeomKind.CYLINDER)

CAP_1, CAP_2, SIDES, SIDE_1, SIDE_2, RIMS = (float(k) for k in range(6))
"""What touches: a cap of the first, a cap of the second, both sides, the side of the first (with a rim), ..."""

FLAT = 0.0888
"""Sine of the angle between a cap and what it lies on, below which there are several contacts, ..."""

PARALLEL = 1e-3
"""... and between the axes of two cylinders that touch side by side."""


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


def search(a: Solid, b: Solid, margin: Scalar, hull_a: Hull, hull_b: Hull) -> Vec:
    """What touches, the signs of the ends, the normal; and the features of the rigid engine."""
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
    return (*best.features, *BORROWED.features(a, b, margin, (hull_a, hull_b)))


def _is(code: Scalar, which: float) -> Mask:
    return absolute(code - which) < 0.5


def cylinder_cylinder(a: Solid, b: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    both = _Cylinders(a, b)
    (code, *signs), n, rest = split(features, 3, 3, len(features) - 6)
    first, second = both.w
    caps, to_ends = (_is(code, CAP_1), _is(code, CAP_2)), both.to_ends(tuple(signs))
    free = choose(caps[0] | caps[1], both.start(tuple(signs)), n)  # on a cap the curvature of the rim is not defined
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
    cosine = dot(first, second)
    s = (dot(both.d, first) - cosine * dot(both.d, second)) / guarded(1.0 - cosine * cosine)
    on_side = along(along(a.center, first, s), n, a.size[0])
    from_first = _is(code, CAP_2) | _is(code, SIDE_2)
    position = choose(from_first, along(points[0], n, 0.5 * dist), along(points[1], n, -0.5 * dist))
    position = choose(_is(code, SIDES), along(on_side, n, 0.5 * dist), position)
    single = contact(dist, position, n)
    lateral = cross(first, second)
    sine2 = dot(lateral, lateral)
    flat = (caps[0] | caps[1]) & ((sine2 < FLAT * FLAT) | (absolute(cosine) < FLAT))
    flat = flat | (~(caps[0] | caps[1]) & (sine2 < PARALLEL * PARALLEL))
    several = BORROWED.contacts(a, b, margin, rest)
    only = keep(~flat & (single.dist <= margin), single)
    return [choose_contact(flat, several[0], only), *(keep(flat & (x.dist <= margin), x) for x in several[1:])]


CYLINDER_CYLINDER = GeomPair(BORROWED.slots, cylinder_cylinder, continuous=True, hull_search=search)
