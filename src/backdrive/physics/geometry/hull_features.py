"""What collision asks of hulls: where they are, their outermost features, and how the outlines of two faces overlap.

A hull's table is in its own frame before scaling ("local" here). The solid places it: x = center + R (size * local).
Directions in which planes face (normals) go the other way: local normals are divided by the size, and turned.

Lanes find different features, and there is no way to look one up by a lane's own index: the loops carry the
coordinates of the best feature so far, in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...ir import (
    Scalar,
    absolute,
    any_lane,
    carry,
    counters,
    loop,
    maximum,
    memory,
    minimum,
    select,
    sqrt,
    to_float,
    when,
    while_any,
)
from ..math.spatial import UNIT, ZERO3, Vec, cross, dot, matmul, rotate, scale, sub, transpose, unrotate
from .solids import EDGE, FACE, FAR, Hull, Solid

SAME = 1.0 - 1e-6  # cosine between normals of one face
ON_LINE = 1e-6  # how far beyond an outline, relative to its edge, still counts as inside
TURN = 0.9492, 0.3146  # cosine and sine of 0.32: an angle to the edges of boxes and common prisms that makes no ties
MOST_EDGES = 192  # hulls have up to 64 vertices (see model/hull.py), so at most 186 edges
NOTHING = -FAR  # the score of no feature


def choose(condition: Any, a: Vec, b: Vec) -> Vec:
    """`a` where the condition holds, else `b`."""
    return tuple(select(condition, x, y) for x, y in zip(a, b, strict=True))


def times(a: Vec, b: Vec) -> Vec:
    """Elementwise product."""
    return tuple(x * y for x, y in zip(a, b, strict=True))


def over(a: Vec, b: Vec) -> Vec:
    """Elementwise quotient."""
    return tuple(x / y for x, y in zip(a, b, strict=True))


def guarded(x: Scalar) -> Scalar:
    """x, or 1 where it is as good as zero: something to divide by."""
    return select(absolute(x) < 1e-30, 1.0, x)


def length(a: Vec) -> Scalar:
    """|a|; of (nearly) nothing 1."""
    return sqrt(guarded(dot(a, a)))


def unit(a: Vec) -> Vec:
    return scale(1.0 / length(a), a)


# ------------------------------------------------------------------------------------------ placing


def placed(solid: Solid, local: Vec) -> Vec:
    """The point of the world."""
    return rotate(solid.axes, times(solid.size, local), solid.center)


def facing(solid: Solid, normal: Vec) -> Vec:
    """The unit normal in the world of a local normal."""
    return unit(rotate(solid.axes, over(normal, solid.size)))


def measured(solid: Solid, direction: Vec) -> Vec:
    """Of a world's direction n the local vector m: n · (placed point - center) = m · point."""
    return times(solid.size, unrotate(solid.axes, direction))


def carried(solid: Solid, direction: Vec) -> Vec:
    """A world's displacement in local coordinates."""
    return over(unrotate(solid.axes, direction), solid.size)


class Body(NamedTuple):
    """A placed hull, and a point inside it (local)."""

    solid: Solid
    hull: Hull
    inner: Vec


def body(solid: Solid, hull: Hull) -> Body:
    """The inner point is the mean of the vertices."""
    total = carry(3)
    total.put(0, ZERO3)
    for k in loop(hull.vertex_count):
        total.accumulate(0, hull.vertices.get(k, 3))
    return Body(solid, hull, scale(1.0 / to_float(hull.vertex_count), total.get(0, 3)))


def reach(body: Body) -> Scalar:
    """How large a hull is, about (m): the distance of a vertex from the inner point."""
    return length(times(body.solid.size, sub(body.hull.vertices.get(0, 3), body.inner)))


def between(to: Solid, source: Solid) -> tuple[Vec, Vec]:
    """(L, t): the local point x of `source` is L x + t in the local coordinates of `to`."""
    turn = matmul(transpose(to.axes), source.axes)
    L = tuple(turn[3 * i + j] * source.size[j] / to.size[i] for i in range(3) for j in range(3))
    return L, carried(to, sub(source.center, to.center))


def tangents(normal: Vec) -> tuple[Vec, Vec]:
    """Two unit vectors across a unit normal: fixed to the axes, and the same for normals near one of the axes."""
    x, y, z = (absolute(c) for c in normal)
    along_x, along_y = (1.01 * x >= y) & (1.01 * x >= z), 1.01 * y >= z
    start = choose(along_x, UNIT[1], choose(along_y, UNIT[2], UNIT[0]))
    t1 = unit(sub(start, scale(dot(start, normal), normal)))
    return t1, cross(normal, t1)


# ------------------------------------------------------------------------------------------ outermost features


def lowest_vertex(hull: Hull, direction: Vec) -> Vec:
    """The local vertex with the least direction · vertex."""
    best = carry(4)
    best.put(0, (FAR, *ZERO3))
    for k in loop(hull.vertex_count):
        v = hull.vertices.get(k, 3)
        h = dot(direction, v)
        best.put(0, choose(h < best[0], (h, *v), best.get(0, 4)))
    return best.get(0, 4)[1:]


def widest_face(first: Body, second: Body) -> tuple[Scalar, Vec]:
    """The greatest separation of the second hull from a face of the first, and that face."""
    best, low = carry(1 + FACE), carry(1)
    best.put(0, (NOTHING,) + (0.0,) * FACE)
    within = placed(second.solid, second.inner)
    for k in loop(first.hull.face_count):
        face = first.hull.faces.get(k, FACE)
        n, p = facing(first.solid, face[:3]), placed(first.solid, face[3:])
        # No hull is further out than its inner point: faces that this is far behind need no closer look.
        for _ in when(any_lane(dot(n, sub(within, p)) > best[0])):
            m = measured(second.solid, n)
            low[0] = FAR
            for j in loop(second.hull.vertex_count):
                low[0] = minimum(low[0], dot(m, second.hull.vertices.get(j, 3)))
            separation = low[0] + dot(n, sub(second.solid.center, p))
            best.put(0, choose(separation > best[0], (separation, *face), best.get(0, 1 + FACE)))
    found = best.get(0, 1 + FACE)
    return found[0], found[1:]


def opposite_face(body: Body, normal: Vec, vertex: Vec) -> Vec:
    """Of the faces at a vertex the one that faces most against a world's normal."""
    best = carry(1 + FACE)
    best.put(0, (FAR,) + (0.0,) * FACE)
    off = 1e-4 * length(sub(vertex, body.inner))
    for k in loop(body.hull.face_count):
        face = body.hull.faces.get(k, FACE)
        apart = dot(face[:3], sub(face[3:], vertex)) > off
        score = dot(facing(body.solid, face[:3]), normal) + select(apart, 2.0, 0.0)
        best.put(0, choose(score < best[0] - 1e-6, (score, *face), best.get(0, 1 + FACE)))
    return best.get(0, 1 + FACE)[1:]


# ------------------------------------------------------------------------------------------ outlines of faces


class Clip(NamedTuple):
    """What is left of a segment over a face.

    cut0, cut1: the fraction that is cut off at its start and at its end (more than 1 in all: nothing is left), and the
    ends (local) of the edges at which it is.
    """

    cut0: Scalar
    edge0: Vec
    cut1: Scalar
    edge1: Vec


class Outline:
    """The edges around a face, and the sides of the column over it. All coordinates are local.

    A record: 1 for an edge of the lane's face, else 0 | side (3), offset: points of the column have side · x <= offset
    | ends of the edge (3, 3), in one sense around the face.
    """

    WIDTH = 11

    def __init__(self) -> None:
        self.counter, self.records = counters(1), memory(MOST_EDGES * self.WIDTH)

    def find(self, hull: Hull, normal: Vec, up: Vec, mine: Any) -> None:
        """Of the face with this normal, in the lanes where `mine` holds; up: unit vector along the column."""
        self.counter[0] = 0
        for k in loop(hull.edge_count):
            edge = hull.edges.get(k, EDGE)
            # One of the two faces at the edge is this one, and the other is not.
            first, second = dot(edge[6:9], normal), dot(edge[9:12], normal)
            on = mine & (maximum(first, second) > SAME) & (minimum(first, second) <= SAME)
            for _ in when(any_lane(on)):
                other = choose(first > SAME, edge[9:12], edge[6:9])
                back = dot(other, cross(sub(edge[3:6], edge[:3]), normal)) < 0.0
                start, end = choose(back, edge[3:6], edge[:3]), choose(back, edge[:3], edge[3:6])
                along = sub(end, start)
                side = cross(along, up)
                offset = dot(side, start) + ON_LINE * dot(along, along)
                # In other lanes, a side that everything is inside of.
                record = choose(on, (1.0, *side, offset), (0.0, *ZERO3, 1.0))
                at = self.counter[0]
                self.records.put(minimum(at, MOST_EDGES - 1), (*record, *start, *end))
                self.counter[0] = minimum(at + 1, MOST_EDGES)

    def edges(self) -> Iterator[tuple[Any, Vec, Vec]]:
        """(whether it is an edge of the lane's face, start, end) of each edge."""
        for k in loop(self.counter[0]):
            record = self.records.get(k, self.WIDTH)
            yield record[0] > 0.5, record[5:8], record[8:]

    def contains(self, x: Vec) -> Any:
        beyond = carry(1)
        beyond[0] = NOTHING
        for k in loop(self.counter[0]):
            _, *side, offset = self.records.at(k * self.WIDTH).get(0, 5)
            beyond[0] = maximum(beyond[0], dot(side, x) - offset)
        return beyond[0] <= 0.0

    def clip(self, x0: Vec, x1: Vec) -> Clip:
        """The part of the segment x0 x1 in the column."""
        cut = carry(14)
        cut.put(0, (0.0,) * 14)
        for k in loop(self.counter[0]):
            _, *side, offset = self.records.at(k * self.WIDTH).get(0, 5)
            d0, d1 = dot(side, x0) - offset, dot(side, x1) - offset
            out0, out1 = d0 > 0.0, d1 > 0.0
            for _ in when(any_lane(out0 | out1)):
                ends = self.records.at(k * self.WIDTH + 5).get(0, 6)
                fraction = absolute(d0) / guarded(absolute(d0) + absolute(d1))
                for at, out, f in ((0, out0, fraction), (7, out1, 1.0 - fraction)):
                    old = cut.at(at).get(0, 7)
                    f = select(out0 & out1, 2.0, f)
                    cut.at(at).put(0, choose(out & (f > old[0]), (f, *ends), old))
        x = cut.get(0, 14)
        return Clip(x[0], x[1:7], x[7], x[8:])


# ------------------------------------------------------------------------------------------ four of many


class Spread:
    """Of points over a plane, the outermost four, among them the one of least gap.

        for searching in points.rounds():
            ... points.offer(searching & ..., record) for all points

    They are the extreme ones in four directions. If those are fewer points (of triangles, or of slender outlines), a
    second round takes directions along and across the longest distance that the first one found.

    A record of a point: its place in the plane (x, y), gap, and what else is to be known of it.
    """

    def __init__(self, width: int, tolerance: Scalar) -> None:
        """tolerance: distance below which points are the same."""
        self.width, self.tolerance = width, tolerance
        self.best, self.chosen = memory(5 * (1 + width)), memory(4 * (1 + width))
        self.direction, self.searching = carry(2), carry(1)
        self.direction.put(0, TURN)
        self.searching[0] = 1.0
        self.chosen.at(0).put(0, (0.0,) * 4 * (1 + width))

    def rounds(self) -> Iterator[Any]:
        for _ in while_any(lambda: self.searching[0] > 0.5, 2):
            for k in range(5):
                self.best.put(k, (NOTHING,) + (0.0,) * self.width)
            searching = self.searching[0] > 0.5
            yield searching
            self._settle(searching)

    def offer(self, valid: Any, record: Vec) -> None:
        (x, y, gap), (c, s) = record[:3], self.direction.get(0, 2)
        u, v = c * x + s * y, c * y - s * x
        for k, score in enumerate((u, v, -u, -v, -gap)):
            better = valid & (score > self.best.at(k * (1 + self.width))[0] + 0.01 * self.tolerance)
            for _ in when(any_lane(better)):
                old = self.best.get(k, 1 + self.width)
                self.best.put(k, choose(better, (score, *record), old))

    def found(self) -> list[tuple[Any, Vec]]:
        """Four times: whether there is a point, and its record."""
        records = [self.chosen.get(k, 1 + self.width) for k in range(4)]
        return [(r[0] > 0.5, r[1:]) for r in records]

    def _settle(self, searching: Any) -> None:
        scored = [self.best.get(k, 1 + self.width) for k in range(5)]
        *points, deepest = [r[1:] for r in scored]
        # The deepest takes the place of the nearest of the four, unless one of them is as deep.
        least = minimum(minimum(points[0][2], points[1][2]), minimum(points[2][2], points[3][2]))
        missing = select(deepest[2] < least - 0.01 * self.tolerance, 1.0, 0.0)
        distances = [_distance2(p, deepest) for p in points]
        nearest = minimum(minimum(distances[0], distances[1]), minimum(distances[2], distances[3]))
        for k in range(4):
            here = (missing > 0.5) & (distances[k] <= nearest)
            points[k] = choose(here, deepest, points[k])
            missing = select(here, 0.0, missing)
        along: Vec = TURN
        count, longest = 0.0, 0.0
        for k in range(4):
            used = scored[k][0] > 0.5 * NOTHING
            for j in range(k):
                distance2 = _distance2(points[k], points[j])
                used = used & (distance2 > self.tolerance * self.tolerance)
                along = choose(distance2 > longest, sub(points[k][:2], points[j][:2]), along)
                longest = maximum(distance2, longest)
            count = count + select(used, 1.0, 0.0)
            record = (select(used, 1.0, 0.0), *points[k])
            self.chosen.put(k, choose(searching, record, self.chosen.get(k, 1 + self.width)))
        self.direction.put(0, unit(along))
        self.searching[0] = select((count < 3.5) & (count > 1.5), 1.0, 0.0)


def _distance2(a: Vec, b: Vec) -> Scalar:
    return (a[0] - b[0]) * (a[0] - b[0]) + (a[1] - b[1]) * (a[1] - b[1])
