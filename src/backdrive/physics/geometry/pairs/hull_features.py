"""Features of convex hulls: supporting vertices, faces of greatest separation, outlines of faces, and the reduction of
a contact manifold to four points.

Local coordinates of a hull are those of its tables, before scaling. The solid places a local point x at
center + R (size * x). Normals transform inversely: they are divided by the size, rotated, and normalised.

Lanes find different features, and a lane cannot index a table by a value of its own. So the loops visit all features
and carry the coordinates of the best one so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ....ir import (
    Index,
    IndexArray,
    Mask,
    Scalar,
    ScalarArray,
    absolute,
    any_lane,
    carry,
    counters,
    loop,
    maximum,
    memory,
    minimum,
    select,
    to_float,
    when,
    while_any,
)
from ...math.spatial import UNIT, ZERO3, Vec, cross, dot, matmul, rotate, scale, sub, transpose, unrotate
from ..solids import FACE, FAR, Face, Hull, Solid
from .common import choose, guarded, guarded_length, over, times, unit

SAME_NORMAL = 1.0 - 1e-6
"""Two normals with a larger cosine of the angle between them are those of the same face."""

ON_OUTLINE = 1e-6
"""A point is inside an outline up to this distance beyond an edge, relative to the edge's length."""

FIRST_DIRECTION = 0.9492, 0.3146
"""Cosine and sine of 0.32 rad: no two corners of a box or of a common prism are equally far out in this direction."""

MOST_EDGES = 192
"""Room for the edges of an outline: hulls have up to 64 vertices (`model.hull`), and so at most 186 edges."""

NO_SCORE = -FAR
"""The score (m) from which a maximum over features starts."""


# ------------------------------------------------------------------------------------------ placing


def placed(solid: Solid, local: Vec) -> Vec:
    """World position (m) of a local point."""
    return rotate(solid.axes, times(solid.size, local), solid.center)


def world_normal(solid: Solid, normal: Vec) -> Vec:
    """The unit normal in the world of a face with this local normal."""
    return unit(rotate(solid.axes, over(normal, solid.size)))


def local_covector(solid: Solid, direction: Vec) -> Vec:
    """The vector m with direction · (placed(x) - center) = m · x for all local points x; direction: in the world."""
    return times(solid.size, unrotate(solid.axes, direction))


def local_displacement(solid: Solid, displacement: Vec) -> Vec:
    """A displacement in the world (m), in local coordinates."""
    return over(unrotate(solid.axes, displacement), solid.size)


class PlacedHull(NamedTuple):
    """A hull, the solid that places it, and an interior point (local)."""

    solid: Solid
    hull: Hull
    interior: Vec


def place_hull(solid: Solid, hull: Hull) -> PlacedHull:
    """The interior point is the mean of the vertices."""
    total = carry(3)
    total.put(0, ZERO3)
    for k in loop(hull.vertex_count):
        total.accumulate(0, hull.vertex(k))
    return PlacedHull(solid, hull, scale(1.0 / to_float(hull.vertex_count), total.get(0, 3)))


def hull_size(body: PlacedHull) -> Scalar:
    """A length scale of a hull (m): the distance of its first vertex from the interior point."""
    return guarded_length(times(body.solid.size, sub(body.hull.vertex(0), body.interior)))


def local_transform(to: Solid, source: Solid) -> tuple[Vec, Vec]:
    """(L, t): a point at x in the local coordinates of `source` is at L x + t in those of `to`."""
    rotation = matmul(transpose(to.axes), source.axes)
    L = tuple(rotation[3 * i + j] * source.size[j] / to.size[i] for i in range(3) for j in range(3))
    return L, local_displacement(to, sub(source.center, to.center))


def tangents(normal: Vec) -> tuple[Vec, Vec]:
    """Two unit vectors that span the plane across a unit normal. They depend on the coordinate axes, and are constant
    near each of these axes."""
    x, y, z = (absolute(c) for c in normal)
    along_x, along_y = (1.01 * x >= y) & (1.01 * x >= z), 1.01 * y >= z
    start = choose(along_x, UNIT[1], choose(along_y, UNIT[2], UNIT[0]))
    t1 = unit(sub(start, scale(dot(start, normal), normal)))
    return t1, cross(normal, t1)


# ------------------------------------------------------------------------------------------ extremal features


def lowest_vertex(hull: Hull, direction: Vec) -> Vec:
    """The local vertex with the least direction · vertex."""
    best = carry(4)
    best.put(0, (FAR, *ZERO3))
    for k in loop(hull.vertex_count):
        v = hull.vertex(k)
        h = dot(direction, v)
        best.put(0, choose(h < best[0], (h, *v), best.get(0, 4)))
    return best.get(0, 4)[1:]


def reference_face(first: PlacedHull, second: PlacedHull) -> tuple[Scalar, Face]:
    """The face of the first hull along whose normal the separation of the second hull (m) is greatest, and that
    separation."""
    best, low = carry(1 + FACE), carry(1)
    best.put(0, (NO_SCORE,) + (0.0,) * FACE)
    interior = placed(second.solid, second.interior)
    for k in loop(first.hull.face_count):
        face = first.hull.face(k)
        n, p = world_normal(first.solid, face.normal), placed(first.solid, face.point)
        # The separation is at most the height of the interior point above the face: skip faces where that is too small.
        may = dot(n, sub(interior, p)) > best[0]
        for _ in when(any_lane(may)):
            m = local_covector(second.solid, n)
            low[0] = FAR
            for j in loop(second.hull.vertex_count):
                low[0] = minimum(low[0], dot(m, second.hull.vertex(j)))
            separation = low[0] + dot(n, sub(second.solid.center, p))
            best.put(0, choose(may & (separation > best[0]), (separation, *face.numbers), best.get(0, 1 + FACE)))
    found = best.get(0, 1 + FACE)
    return found[0], Face.of(found[1:])


def incident_face(body: PlacedHull, normal: Vec, vertex: Vec) -> Face:
    """Of the faces at a local vertex, the one whose normal is most opposed to a normal in the world."""
    best = carry(1 + FACE)
    best.put(0, (FAR,) + (0.0,) * FACE)
    off = 1e-4 * guarded_length(sub(vertex, body.interior))
    for k in loop(body.hull.face_count):
        face = body.hull.face(k)
        elsewhere = dot(face.normal, sub(face.point, vertex)) > off
        score = dot(world_normal(body.solid, face.normal), normal) + select(elsewhere, 2.0, 0.0)
        best.put(0, choose(score < best[0] - 1e-6, (score, *face.numbers), best.get(0, 1 + FACE)))
    return Face.of(best.get(0, 1 + FACE)[1:])


# ------------------------------------------------------------------------------------------ outlines of faces


class ClippedSegment(NamedTuple):
    """A segment clipped to the column over a face.

    cut0, cut1: the fractions that are cut off at its start and at its end; if they add up to more than 1, nothing is
    left. edge0, edge1: the ends (local, 3 + 3 numbers) of the face's edges that cut it there.
    """

    cut0: Scalar
    edge0: Vec
    cut1: Scalar
    edge1: Vec


class OutlineEdge(NamedTuple):
    """An edge of an outline: whether it belongs to the lane's face, and its ends (local)."""

    valid: Mask
    start: Vec
    end: Vec


class FaceOutline:
    """The edges around a face, and the side planes of the column over the face. All coordinates are local.

    A record: 1 for an edge of the lane's face, else 0 | a side plane: points x of the column have side · x <= offset
    (side 3, offset 1) | start and end of the edge (3, 3), in one sense around the face.
    """

    SIDE, ENDS, WIDTH = 1, 5, 11  # positions of the side plane and of the ends in a record; numbers of a record

    def __init__(self) -> None:
        self.counter: IndexArray = counters(1)
        self.records: ScalarArray = memory(MOST_EDGES * self.WIDTH)

    def find(self, hull: Hull, normal: Vec, up: Vec, lanes: Mask) -> None:
        """Find the outline of the face with this normal, in these lanes; up: unit vector along the column."""
        self.counter[0] = 0
        for k in loop(hull.edge_count):
            edge = hull.edge(k)
            # An edge of the outline: one of its two faces is this one, and the other is not.
            first, second = dot(edge.first_normal, normal), dot(edge.second_normal, normal)
            on = lanes & (maximum(first, second) > SAME_NORMAL) & (minimum(first, second) <= SAME_NORMAL)
            for _ in when(any_lane(on)):
                other = choose(first > SAME_NORMAL, edge.second_normal, edge.first_normal)
                back = dot(other, cross(sub(edge.end, edge.start), normal)) < 0.0
                start, end = choose(back, edge.end, edge.start), choose(back, edge.start, edge.end)
                along = sub(end, start)
                side = cross(along, up)
                offset = dot(side, start) + ON_OUTLINE * dot(along, along)
                # In the other lanes, store a side plane that has every point inside.
                record = choose(on, (1.0, *side, offset), (0.0, *ZERO3, 1.0))
                at = self.counter[0]
                self.records.put(minimum(at, MOST_EDGES - 1), (*record, *start, *end))
                self.counter[0] = minimum(at + 1, MOST_EDGES)

    def edges(self) -> Iterator[OutlineEdge]:
        """All edges, in one sense around the face."""
        for k in loop(self.counter[0]):
            record = self.records.get(k, self.WIDTH)
            yield OutlineEdge(record[0] > 0.5, record[self.ENDS : self.ENDS + 3], record[self.ENDS + 3 :])

    def _side(self, k: Index) -> tuple[Vec, Scalar]:
        """The side plane of edge k."""
        _, *side, offset = self.records.at(k * self.WIDTH).get(0, self.ENDS)
        return side, offset

    def contains(self, x: Vec) -> Mask:
        """Whether a local point is in the column."""
        beyond = carry(1)
        beyond[0] = NO_SCORE
        for k in loop(self.counter[0]):
            side, offset = self._side(k)
            beyond[0] = maximum(beyond[0], dot(side, x) - offset)
        return beyond[0] <= 0.0

    def clip(self, x0: Vec, x1: Vec) -> ClippedSegment:
        """Clip the segment from x0 to x1 (local) to the column."""
        width = 7  # of each end of the segment: fraction that is cut off, ends of the edge that cuts
        cuts = carry(2 * width)
        cuts.put(0, (0.0,) * 2 * width)
        for k in loop(self.counter[0]):
            side, offset = self._side(k)
            d0, d1 = dot(side, x0) - offset, dot(side, x1) - offset
            out0, out1 = d0 > 0.0, d1 > 0.0
            for _ in when(any_lane(out0 | out1)):
                ends = self.records.at(k * self.WIDTH + self.ENDS).get(0, 6)
                fraction = absolute(d0) / guarded(absolute(d0) + absolute(d1))
                for at, out, f in ((0, out0, fraction), (width, out1, 1.0 - fraction)):
                    old = cuts.at(at).get(0, width)
                    f = select(out0 & out1, 2.0, f)
                    cuts.at(at).put(0, choose(out & (f > old[0]), (f, *ends), old))
        x = cuts.get(0, 2 * width)
        return ClippedSegment(x[0], x[1:width], x[width], x[width + 1 :])


# ------------------------------------------------------------------------------------------ reduction to four points


class PlanarRecord(NamedTuple):
    """A candidate of `ManifoldReduction`: coordinates in the plane (m), gap (m), and further numbers to keep."""

    x: Scalar
    y: Scalar
    gap: Scalar
    payload: Vec

    @classmethod
    def of(cls, numbers: Vec) -> PlanarRecord:
        return cls(numbers[0], numbers[1], numbers[2], numbers[3:])

    @property
    def numbers(self) -> tuple[Scalar, ...]:
        return (self.x, self.y, self.gap, *self.payload)


class ManifoldReduction:
    """Reduces many points of a contact manifold to four: extreme points along four directions in the contact plane, one
    of which is replaced by the deepest point if that is none of them.

        for searching in reduction.rounds():
            ... reduction.offer(searching & valid, record) for all points

    If the four directions yield fewer than four points (triangles, slender outlines), a second round takes directions
    along and across the longest distance between the points found.
    """

    SCORE = 1  # before every record: the score, or whether the point was chosen

    def __init__(self, payload: int, tolerance: Scalar) -> None:
        """payload: numbers of a record's payload. tolerance: points nearer to each other than this (m) are the same."""
        self.width, self.tolerance = 3 + payload, tolerance
        stored = self.SCORE + self.width
        self.best, self.chosen = memory(5 * stored), memory(4 * stored)
        self.direction, self.searching = carry(2), carry(1)
        self.direction.put(0, FIRST_DIRECTION)
        self.searching[0] = 1.0
        self.chosen.at(0).put(0, (0.0,) * 4 * stored)

    def rounds(self) -> Iterator[Mask]:
        """One or two rounds; yields the lanes that take part in it."""
        for _ in while_any(lambda: self.searching[0] > 0.5, 2):
            for k in range(5):
                self.best.put(k, (NO_SCORE,) + (0.0,) * self.width)
            searching = self.searching[0] > 0.5
            yield searching
            self._finish_round(searching)

    def offer(self, valid: Mask, record: PlanarRecord) -> None:
        """A candidate, in the lanes where it is valid."""
        c, s = self.direction.get(0, 2)
        u, v = c * record.x + s * record.y, c * record.y - s * record.x
        stored = self.SCORE + self.width
        for k, score in enumerate((u, v, -u, -v, -record.gap)):
            better = valid & (score > self.best.at(k * stored)[0] + 0.01 * self.tolerance)
            for _ in when(any_lane(better)):
                old = self.best.get(k, stored)
                self.best.put(k, choose(better, (score, *record.numbers), old))

    def found(self) -> list[tuple[Mask, PlanarRecord]]:
        """Four times: whether there is a point, and its record."""
        stored = [self.chosen.get(k, self.SCORE + self.width) for k in range(4)]
        return [(numbers[0] > 0.5, PlanarRecord.of(numbers[self.SCORE :])) for numbers in stored]

    def _finish_round(self, searching: Mask) -> None:
        """Choose four of the extreme points, and decide whether another round is needed."""
        stored = self.SCORE + self.width
        scored = [self.best.get(k, stored) for k in range(5)]
        *points, deepest = [PlanarRecord.of(numbers[self.SCORE :]) for numbers in scored]
        # The deepest point replaces the nearest of the four, unless one of them is as deep.
        least = minimum(minimum(points[0].gap, points[1].gap), minimum(points[2].gap, points[3].gap))
        missing: Scalar = select(deepest.gap < least - 0.01 * self.tolerance, 1.0, 0.0)
        distances = [_distance2(p, deepest) for p in points]
        nearest = minimum(minimum(distances[0], distances[1]), minimum(distances[2], distances[3]))
        for k in range(4):
            here = (missing > 0.5) & (distances[k] <= nearest)
            points[k] = PlanarRecord.of(choose(here, deepest.numbers, points[k].numbers))
            missing = select(here, 0.0, missing)
        along: Vec = FIRST_DIRECTION
        count: Scalar = 0.0
        longest: Scalar = 0.0
        for k in range(4):
            used = scored[k][0] > 0.5 * NO_SCORE
            for j in range(k):
                distance2 = _distance2(points[k], points[j])
                used = used & (distance2 > self.tolerance * self.tolerance)
                difference = (points[k].x - points[j].x, points[k].y - points[j].y)
                along = choose(distance2 > longest, difference, along)
                longest = maximum(distance2, longest)
            count = count + select(used, 1.0, 0.0)
            record = (select(used, 1.0, 0.0), *points[k].numbers)
            self.chosen.put(k, choose(searching, record, self.chosen.get(k, stored)))
        self.direction.put(0, unit(along))
        self.searching[0] = select((count < 3.5) & (count > 1.5), 1.0, 0.0)


def _distance2(a: PlanarRecord, b: PlanarRecord) -> Scalar:
    """Squared distance in the plane (m²)."""
    return (a.x - b.x) * (a.x - b.x) + (a.y - b.y) * (a.y - b.y)
