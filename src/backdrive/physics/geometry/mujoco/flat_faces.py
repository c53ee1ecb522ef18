"""Two faces that lie flat on each other: a cap of a cylinder on a cap, or on a face of a box.

MuJoCo takes a cap for a polygon with sixteen corners, cuts the two faces with each other, seen along the normal, and
keeps up to four corners of the overlap that are within the margin. Which four is an artefact of rounding errors there,
as those of a regular polygon are all alike. If there are more, they are here the outermost ones in four directions that
are fixed to a face: those of its corners if it belongs to a box, else the axes of the cylinder.

A corner of the overlap is a corner of one of the faces or a crossing of two edges. The search finds which; `contacts`
computes the place, on the face of the corner or on the second one, and its foot on the other face.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ....ir import Mask, Scalar, ScalarArray, absolute, carry, memory, rolled, select
from ...math.arrays import split
from ...math.spatial import Vec, dot, scale, sub
from ..pairs.common import along, choose, guarded
from ..solids import FAR, Solid
from .contacts import GeomContact, contact

SLOTS = 4
"""The most contacts of two faces."""

FLAT = 0.996
"""Cosine of the angle between the normals of two faces above which they lie flat on each other."""

ROUND = 16
"""Corners of a cap."""

SQUARE: tuple[tuple[float, float], ...] = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))
CIRCLE = tuple((math.cos(2.0 * math.pi * k / ROUND), math.sin(2.0 * math.pi * k / ROUND)) for k in range(ROUND))
"""Corners in units of the spans of a face."""

OF_A, OF_B, CROSSING = 1.0, 2.0, 3.0
"""Kinds of corners of the overlap; 0: none."""

SLOT = 9
"""Numbers of a corner: its kind, and the ends of an edge of each face, in units of its spans."""

FEATURES = SLOTS * SLOT
NONE: Vec = (0.0,) * FEATURES

EDGE = 1e-12
"""Corners that are outside of a face by less than this part of it are on its edge."""


class FlatFace(NamedTuple):
    """A face: its center, and two half diameters (m), orthogonal to each other, along which its corners are given."""

    center: Vec
    p: Vec
    q: Vec
    corners: tuple[tuple[float, float], ...]

    def place(self, u: Scalar, v: Scalar) -> Vec:
        return along(along(self.center, self.p, u), self.q, v)

    def coordinates(self, point: Vec) -> tuple[Scalar, Scalar]:
        """Of the foot of a point on the face."""
        r = sub(point, self.center)
        return dot(r, self.p) / guarded(dot(self.p, self.p)), dot(r, self.q) / guarded(dot(self.q, self.q))

    def foot(self, point: Vec) -> Vec:
        """The foot of a point on the plane of the face."""
        return self.place(*self.coordinates(point))

    def has(self, point: Vec) -> Mask:
        """Whether the foot of a point is on the face."""
        u, v = self.coordinates(point)
        if self.corners is SQUARE:
            return (absolute(u) <= 1.0 + EDGE) & (absolute(v) <= 1.0 + EDGE)
        inside: Mask = True
        for k in range(ROUND // 2):
            angle = (2.0 * k + 1.0) * math.pi / ROUND
            over = absolute(math.cos(angle) * u + math.sin(angle) * v)
            inside = inside & (over <= math.cos(math.pi / ROUND) * (1.0 + EDGE))
        return inside


def cap_of(cylinder: Solid, upward: Vec) -> FlatFace:
    """The cap whose normal is this, up to its sign."""
    x, y = (scale(cylinder.size[0], tuple(cylinder.axes[k::3])) for k in range(2))
    return FlatFace(along(cylinder.center, upward, 0.5 * cylinder.size[1]), x, y, CIRCLE)


def box_face(box: Solid, signs: Vec) -> FlatFace:
    """The face of a box in the direction of the one sign that is not zero."""
    axes = [scale(0.5 * box.size[k], tuple(box.axes[k::3])) for k in range(3)]
    center = box.center
    for half, sign in zip(axes, signs, strict=True):
        center = along(center, half, sign)
    first, second = absolute(signs[0]) > 0.5, absolute(signs[1]) > 0.5
    p = choose(first, axes[1], axes[0])
    return FlatFace(center, p, choose(first | second, axes[2], axes[1]), SQUARE)


class FaceOverlap:
    """Faces a and b of the first and the second solid, and the normal of their contacts."""

    def __init__(self, a: FlatFace, b: FlatFace, n: Vec) -> None:
        self.a, self.b, self.n = a, b, n

    def between(self, x: Vec, y: Vec) -> GeomContact:
        """The contact of a point of a and a point of b."""
        dist = dot(self.n, sub(y, x))
        return contact(dist, along(x, self.n, 0.5 * dist), self.n)

    def crossing(self, ends_a: Vec, ends_b: Vec) -> tuple[Scalar, Scalar, Vec]:
        """Where an edge of b crosses an edge of a, seen along the normal of a: the parts of the way along both, and the
        place on b."""
        y0, y1 = self.b.place(*ends_b[:2]), self.b.place(*ends_b[2:])
        first, second = self.a.coordinates(y0), self.a.coordinates(y1)
        (ax, ay), (bx, by), (dx, dy) = sub(ends_a[2:], ends_a[:2]), sub(second, first), sub(first, ends_a[:2])
        inverse = 1.0 / guarded(ax * by - ay * bx)
        s, t = (dx * by - dy * bx) * inverse, (dx * ay - dy * ax) * inverse
        return s, t, along(y0, sub(y1, y0), t)

    def contacts(self, features: Vec) -> list[GeomContact]:
        """The contacts of all slots, also where a slot is empty."""
        found = []
        for slot in split(features, *[SLOT] * SLOTS):
            (kind,), ends_a, ends_b = split(slot, 1, 4, 4)
            corner = self.a.place(*ends_a[:2])
            on_b = choose(kind > 2.5, self.crossing(ends_a, ends_b)[2], self.b.place(*ends_b[:2]))
            of_a = kind < 1.5
            x, y = choose(of_a, corner, self.a.foot(on_b)), choose(of_a, self.b.foot(corner), on_b)
            found.append(self.between(x, y))
        return found

    def search(self, margin: Scalar) -> Vec:
        """The corners of the overlap that are outermost, within the margin."""
        a, b = self.a, self.b
        of_a, of_b = _table(a), _table(b)
        outermost = _Outermost(b if b.corners is SQUARE else a)
        none: Vec = (0.0,) * 4

        def offer(is_there: Mask, x: Vec, y: Vec, corner: Vec) -> None:
            outermost.offer(is_there & (self.between(x, y).dist <= margin), x, corner)

        for k in rolled(len(a.corners)):
            corner = of_a.get(k, 2)
            x = a.place(*corner)
            offer(b.has(x), x, b.foot(x), (OF_A, *corner, *corner, *none))
        for k in rolled(len(b.corners)):
            corner = of_b.get(k, 2)
            y = b.place(*corner)
            offer(a.has(y), a.foot(y), y, (OF_B, *none, *corner, *corner))
        for k in rolled(len(a.corners)):
            ends_a = (*of_a.get(k, 2), *of_a.get(k + 1, 2))
            for m in rolled(len(b.corners)):
                ends_b = (*of_b.get(m, 2), *of_b.get(m + 1, 2))
                s, t, y = self.crossing(ends_a, ends_b)
                cuts = (s > EDGE) & (s < 1.0 - EDGE) & (t > EDGE) & (t < 1.0 - EDGE)
                offer(cuts, a.foot(y), y, (CROSSING, *ends_a, *ends_b))
        return outermost.features()


def _table(face: FlatFace) -> ScalarArray:
    """The corners of a face, the first one again at the end."""
    table = memory(2 * (len(face.corners) + 1))
    for k, corner in enumerate((*face.corners, face.corners[0])):
        table.put(k, corner)
    return table


class _Outermost:
    """The first SLOTS corners, and those that are farthest in each of SLOTS directions along a face: towards its
    corners if it is that of a box; else along its axes."""

    def __init__(self, face: FlatFace) -> None:
        self.face = face
        self.best = [carry(SLOT + 3) for _ in range(SLOTS)]
        for best in self.best:
            best.put(0, (-FAR, 0.0, 0.0, *NONE[:SLOT]))
        self.count, self.first = carry(1), [carry(SLOT) for _ in range(SLOTS)]
        self.count.put(0, (0.0,))
        for first in self.first:
            first.put(0, NONE[:SLOT])

    def offer(self, is_there: Mask, x: Vec, corner: Vec) -> None:
        u, v = self.face.coordinates(x)
        diagonal = 1.0 if self.face.corners is SQUARE else 0.0
        a, b = u + diagonal * v, v - diagonal * u
        for value, best in zip((a, b, -a, -b), self.best, strict=True):
            now = tuple(best[m] for m in range(SLOT + 3))
            best.put(0, choose(is_there & (value > now[0]), (value, u, v, *corner), now))
        for k, first in enumerate(self.first):
            here = is_there & (absolute(self.count[0] - k) < 0.5)
            first.put(0, choose(here, corner, tuple(first[m] for m in range(SLOT))))
        self.count[0] = self.count[0] + select(is_there, 1.0, 0.0)

    def features(self) -> Vec:
        """All corners if they are few; else those that are farthest: of those at the same place, only the first."""
        found: list[Vec] = []
        few = self.count[0] < SLOTS + 0.5
        for k, best in enumerate(self.best):
            again: Mask = False
            for other in self.best[:k]:
                again = again | (absolute(best[1] - other[1]) + absolute(best[2] - other[2]) < EDGE**0.5)
            farthest = choose(again, NONE[:SLOT], tuple(best[m] for m in range(3, SLOT + 3)))
            found.append(choose(few, tuple(self.first[k][m] for m in range(SLOT)), farthest))
        return tuple(x for corner in found for x in corner)


def lie_flat(normal_a: Vec, normal_b: Vec) -> Mask:
    return absolute(dot(normal_a, normal_b)) > FLAT


def count_of(features: Vec) -> list[Mask]:
    """Which slots have a contact."""
    return [kind > 0.5 for kind in features[::SLOT]]
