"""A capsule with a box: up to two contacts, each that of a ball on the capsule's segment with the box.

The first ball is at an end of the segment over (or in) the box, or where the segment is closest to an edge of the box.
If the segment runs through the box, that is where it passes closest to an edge, not where it is deepest. The second
ball is found by moving along the segment until the closest point leaves the box, or the segment ends. Which way and how
far depends on the feature of the box that is closest to the first ball. The search finds all this; `capsule_box`
computes the places of the balls from its result.

In the axes of the box, p is the capsule's center, u its axis, h the half sides, and s the place on the segment (m).
"""

from __future__ import annotations

from typing import NamedTuple

from ....ir import Mask, Scalar, absolute, clip, select
from ...math.arrays import split
from ...math.spatial import ZERO3, Vec, dot, scale, sub, unrotate
from ..pairs.common import along, choose, guarded
from ..solids import FAR, Solid
from .contacts import GeomContact, GeomPair, axis, keep
from .spheres import ball_box

NEXT = ((1, 2), (2, 0), (0, 1))
"""The two axes that follow each axis, cyclically."""

PARALLEL = 1e-30
"""sin² of the angle between the capsule and an edge below which no place on them is closest. In MuJoCo, rounding errors
then decide if there are one or two contacts; here there are two."""

TIE = 1e-12
"""Relative tolerance of ties between squared distances, and of whether a place is at the end of the segment or edge."""


class First(NamedTuple):
    """Place of the first ball: at an end of the segment (end: -1 or 1), or closest to an edge or a vertex (end: 0).

    fixed: 1 for the axes along which that feature has a fixed coordinate, else 0; side: the sign of that coordinate.
    """

    end: Scalar
    fixed: Vec
    side: Vec

    def place(self, p: Vec, u: Vec, h: Vec, length: Scalar) -> Scalar:
        """s; length: half of the segment's."""
        slope: Scalar = 0.0
        square: Scalar = 0.0
        for k in range(3):
            slope = slope + self.fixed[k] * u[k] * (self.side[k] * h[k] - p[k])
            square = square + self.fixed[k] * u[k] * u[k]
        at_end = absolute(self.end) > 0.5
        return select(at_end, self.end * length, slope / guarded(select(at_end, 1.0, square)))


class Second(NamedTuple):
    """Place of the second ball: at the end of the segment in the direction `towards` (-1 or 1), unless the box ends
    first along the axis `limit` (1 for that axis, else 0).

    exists: 1 or 0. across: 1 if the closest point crosses the whole box along that axis, 0 if it starts inside.
    """

    exists: Scalar
    towards: Scalar
    limit: Vec
    across: Scalar

    @property
    def numbers(self) -> tuple[Scalar, ...]:
        return (self.exists, self.towards, *self.limit, self.across)

    def place(self, p: Vec, u: Vec, h: Vec, length: Scalar, first: Scalar) -> Scalar:
        """s; first: that of the first ball."""
        limited = self.limit[0] + self.limit[1] + self.limit[2] > 0.5
        rate = select(limited, dot(self.limit, u), 1.0)
        half = dot(self.limit, h)
        sign = select(rate * self.towards > 0.0, 1.0, -1.0)
        started = select(self.across > 0.5, first + sign * half / rate, -dot(self.limit, p) / rate)
        return select(limited, started + sign * half / rate, self.towards * length)


def _local(capsule: Solid, box: Solid) -> tuple[Vec, Vec, Vec]:
    """p, u and h."""
    p = unrotate(box.axes, sub(capsule.center, box.center))
    return p, unrotate(box.axes, axis(capsule)), scale(0.5, box.size)


# ------------------------------------------------------------------------------------------ search


class _Candidate(NamedTuple):
    """A place on the segment: squared distance (m²) from its feature, s, and the feature (see `First`). vertex: whether
    the second ball follows the rule of vertices."""

    square: Scalar
    s: Scalar
    first: First
    vertex: Scalar

    @property
    def numbers(self) -> tuple[Scalar, ...]:
        return (self.square, self.s, self.first.end, *self.first.fixed, *self.first.side, self.vertex)

    @classmethod
    def of(cls, x: Vec) -> _Candidate:
        return cls(x[0], x[1], First(x[2], x[3:6], x[6:9]), x[9])


def _better(condition: Mask, a: _Candidate, b: _Candidate) -> _Candidate:
    return _Candidate.of(choose(condition, a.numbers, b.numbers))


def _sign(x: Scalar) -> Scalar:
    """-1 for negative x, else 1."""
    return select(x < 0.0, -1.0, 1.0)


def _outward(side: Scalar, u: Scalar) -> Mask:
    """Whether the segment's direction leads out of the side of the box with this sign; if it runs along the side, then
    out of the negative ones."""
    return (side * u > 0.0) | ((side < 0.0) & (absolute(u) <= 0.0))


def _at_end(p: Vec, u: Vec, h: Vec, s: Scalar, sign: float) -> _Candidate:
    """An end of the segment over a face, or inside the box; elsewhere it is closest to an edge."""
    point = along(p, u, s)
    beyond = [absolute(x) - y for x, y in zip(point, h, strict=True)]
    square: Scalar = 0.0
    outside = [select(x > 0.0, 1.0, 0.0) for x in beyond]
    for x, out in zip(beyond, outside, strict=True):
        square = square + out * x * x
    over_face = outside[0] + outside[1] + outside[2] < 1.5
    side = tuple(_sign(x) for x in point)
    return _Candidate(select(over_face, square, FAR), s, First(sign, tuple(outside), side), 0.0)


def _at_edge(p: Vec, u: Vec, h: Vec, length: Scalar, k: int, signs: tuple[float, float]) -> _Candidate:
    """The segment and the edge along axis k; signs: of its coordinates along the next two axes."""
    i, j = NEXT[k]
    x, y = p[i] - signs[0] * h[i], p[j] - signs[1] * h[j]
    sine2 = u[i] * u[i] + u[j] * u[j]
    parallel = sine2 < PARALLEL
    lines = select(
        parallel, select(_outward(signs[0], u[i]), -FAR, FAR), -(x * u[i] + y * u[j]) / select(parallel, 1.0, sine2)
    )
    on_edge = p[k] + u[k] * lines
    ru = p[k] * u[k] + x * u[i] + y * u[j]
    s = clip(lines, -length, length)
    s = clip(u[k] * clip(p[k] + u[k] * s, -h[k], h[k]) - ru, -length, length)
    t = p[k] + u[k] * s
    at_vertex = absolute(t) >= (1.0 - TIE) * h[k]
    gap = (x + u[i] * s, y + u[j] * s, select(at_vertex, absolute(t) - h[k], 0.0))
    end = select(absolute(s) >= (1.0 - TIE) * length, _sign(s), 0.0)
    fixed, side = [1.0] * 3, [_sign(select(at_vertex, t, on_edge))] * 3
    fixed[k], side[i], side[j] = select(at_vertex, 1.0, 0.0), *signs
    vertex = select(at_vertex | (absolute(on_edge) > h[k]), 1.0, 0.0)
    return _Candidate(dot(gap, gap), s, First(end, tuple(fixed), tuple(side)), vertex)


def _closest(p: Vec, u: Vec, h: Vec, length: Scalar) -> tuple[_Candidate, Mask]:
    """The first ball, and whether it is at an end over a face or in the box."""
    low, high = _at_end(p, u, h, -length, -1.0), _at_end(p, u, h, length, 1.0)
    best = _better(high.square < low.square, high, low)
    at_end = best.square
    for k in range(3):
        for signs in ((-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0), (1.0, 1.0)):
            edge = _at_edge(p, u, h, length, k, signs)
            best = _better(edge.square < (1.0 - TIE) * best.square, edge, best)
    return best, best.square >= at_end


class _Travel:
    """How far the closest point moves along the segment in the direction `towards` before the box ends."""

    def __init__(self, u: Vec, h: Vec, towards: Scalar, room: Scalar) -> None:
        """room: length (m) of the segment in this direction."""
        self.u, self.h, self.towards = u, h, towards
        self.distance, self.limit, self.across = room, ZERO3, 0.0

    def stop(self, condition: Mask, k: int, start: Scalar | None) -> None:
        """Where the condition holds, stop where the box ends along axis k; start: coordinate of the closest point, None
        if it has to cross the box."""
        rate = self.u[k] * self.towards
        moves = absolute(rate) > 1e-14
        width = 2.0 * self.h[k] if start is None else self.h[k] - start * _sign(rate)
        distance = width / select(moves, absolute(rate), 1.0)
        nearer = condition & moves & (distance < self.distance)
        self.distance = select(nearer, distance, self.distance)
        self.limit = choose(nearer, tuple(1.0 if j == k else 0.0 for j in range(3)), self.limit)
        self.across = select(nearer, 1.0 if start is None else 0.0, self.across)

    def second(self, exists: Mask) -> Second:
        return Second(select(exists, 1.0, 0.0), self.towards, self.limit, self.across)


def _beside_face(p: Vec, u: Vec, h: Vec, length: Scalar, found: _Candidate) -> Second:
    """From an end over a face to the other end, or to the outline of the face. None if the end is inside the box."""
    fixed = found.first.fixed
    travel = _Travel(u, h, -found.first.end, 2.0 * length)
    for k in range(3):
        travel.stop(fixed[k] < 0.5, k, p[k] + u[k] * found.s)
    return travel.second(fixed[0] + fixed[1] + fixed[2] > 0.5)


def _beside_edge(p: Vec, u: Vec, h: Vec, length: Scalar, found: _Candidate) -> Second:
    """From an edge along the face that is more parallel to the capsule, away from which the segment must lead. None if
    the segment crosses the edge like a tangent."""
    fixed = found.first.fixed
    rates = [fixed[k] * found.first.side[k] * u[k] for k in range(3)]  # outwards
    steepest: Scalar = 0.0
    outward: Scalar = 0.0  # how many of the two sides the segment leads out of
    for k, rate in enumerate(rates):
        steepest = select(absolute(rate) > absolute(steepest), rate, steepest)
        outward = outward + fixed[k] * select(_outward(found.first.side[k], u[k]), 1.0, 0.0)
    towards = -_sign(steepest)
    travel = _Travel(u, h, towards, length - towards * found.s)
    for k in range(3):
        travel.stop((fixed[k] > 0.5) & (absolute(rates[k]) >= absolute(steepest)), k, None)
        travel.stop(fixed[k] < 0.5, k, p[k] + u[k] * found.s)
    return travel.second(absolute(outward - 1.0) < 0.5)


def _beside_vertex(u: Vec, h: Vec, length: Scalar, found: _Candidate) -> Second:
    """From a vertex along an edge, if the capsule is within 45° of it, or else along a face. None if the segment leads
    straight away from the box."""
    rates = [found.first.side[k] * u[k] for k in range(3)]  # outwards
    outward = [select(_outward(found.first.side[k], u[k]), 1.0, 0.0) for k in range(3)]
    count = outward[0] + outward[1] + outward[2]
    one, two = absolute(count - 1.0) < 0.5, absolute(count - 2.0) < 0.5
    majority = select(two, 1.0, 0.0)
    odd: Scalar = 0.0  # the rate of the axis along which the segment leads the other way than along both others
    for k in range(3):
        odd = select(absolute(outward[k] - majority) > 0.5, rates[k], odd)
    along_edge = select(2.0 * odd * odd > 1.0, -1.0, 1.0)
    towards = along_edge * (1.0 - 2.0 * majority)
    travel = _Travel(u, h, towards, length - towards * found.s)
    for k in range(3):
        travel.stop(rates[k] * towards < 0.0, k, None)
    return travel.second(one | two)


def search(capsule: Solid, box: Solid, margin: Scalar) -> Vec:
    """The numbers of `First` and `Second`."""
    p, u, h = _local(capsule, box)
    length = 0.5 * capsule.size[1]
    found, at_end = _closest(p, u, h, length)
    face, edge = _beside_face(p, u, h, length, found), _beside_edge(p, u, h, length, found)
    vertex = _beside_vertex(u, h, length, found)
    second = choose(at_end, face.numbers, choose(found.vertex > 0.5, vertex.numbers, edge.numbers))
    return (found.first.end, *found.first.fixed, *found.first.side, *second)


# ------------------------------------------------------------------------------------------ contacts


def capsule_box(capsule: Solid, box: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    (end,), fixed, side, (exists, towards), limit, (across,) = split(features, 1, 3, 3, 2, 3, 1)
    p, u, h = _local(capsule, box)
    length = 0.5 * capsule.size[1]
    s = First(end, fixed, side).place(p, u, h, length)
    t = Second(exists, towards, limit, across).place(p, u, h, length, s)
    first, second = (ball_box(along(capsule.center, axis(capsule), x), capsule.size[0], box) for x in (s, t))
    return [keep(first.dist <= margin, first), keep((exists > 0.5) & (second.dist <= margin), second)]


CAPSULE_BOX = GeomPair(2, capsule_box, search)
