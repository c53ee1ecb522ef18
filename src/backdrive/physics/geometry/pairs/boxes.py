"""Two boxes: `hulls.search_hulls` for hulls that are cubes, without loops over faces and edges.

A box has three face normals and three edge directions, so that only 15 axes are to be tested. The rules are those of
`search_hulls`, and so are the features. The local coordinates of a cube's corners are ± 1/2. The clipping is done in
the axes of the reference face, in m: u and v along the face, n outward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....ir import Mask, Scalar, absolute, maximum, minimum, select, sqrt
from ...math.spatial import Vec, dot, matmul, scale, sub, transpose, unrotate
from ..solids import FAR, Face, Hull, ShapePair, Solid
from .common import choose, guarded
from .hull_features import NO_SCORE, ManifoldReduction, PlanarRecord
from .hulls import (
    BIAS,
    CROSSING,
    EMPTY_SLOT,
    INCIDENT,
    MERGED,
    PARALLEL,
    REFERENCE,
    SLOTS,
    STEEP,
    EdgeContact,
    FacePair,
    ManifoldFeatures,
    SlotFeatures,
    hull_hull,
    with_edges,
)

NEXT = ((1, 2), (2, 0), (0, 1))
"""The two axes that follow each axis, cyclically."""

CORNERS = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))
"""The corners of a face in sequence around it, in units of its half sides."""


def search_boxes(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    """The features of two boxes; see `hulls.ManifoldFeatures`."""
    half_a, half_b = scale(0.5, a.size), scale(0.5, b.size)
    C = matmul(transpose(a.axes), b.axes)
    d = sub(b.center, a.center)
    d_a, d_b = unrotate(a.axes, d), unrotate(b.axes, d)
    separation_a, k_a = face_separation(half_a, half_b, C, d_a)
    separation_b, k_b = face_separation(half_b, half_a, transpose(C), d_b)
    bias = BIAS * minimum(sqrt(dot(half_a, half_a)), sqrt(dot(half_b, half_b)))
    second = separation_b > separation_a + bias
    separation = select(second, separation_b, separation_a)
    face = BoxFaceContact(
        choose(second, half_b, half_a), choose(second, half_a, half_b), choose(second, transpose(C), C),
        choose(second, tuple(-x for x in d_b), d_a), select(second, k_b, k_a),
    )  # fmt: skip
    least, slots = face.clip_faces(0.1 * bias)
    # Boxes that pass beside each other: their closest points are not in the overlap of the faces, if there is any.
    beside = least > maximum(separation, 0.0) + 10.0 * bias
    vertex = SlotFeatures(INCIDENT, face.deepest_vertex())
    slots[0] = SlotFeatures.of(choose(beside, vertex.numbers, slots[0].numbers))
    edges = edge_separation(half_a, half_b, C, d_a)
    by_edges = edges.separation > separation + select(beside, -bias, bias)
    faces = FacePair(select(second, 1.0, 0.0), face.reference_face(), face.incident_face())
    return with_edges(a, b, ManifoldFeatures(faces, slots), edges, by_edges, MERGED * bias).numbers


def _sign(x: Scalar) -> Scalar:
    """-1 for negative x, else 1."""
    return select(x < 0.0, -1.0, 1.0)


def face_separation(half: Vec, other: Vec, C: Vec, d: Vec) -> tuple[Scalar, Scalar]:
    """The greatest separation (m) along a face normal of a box, and the number of that axis. half, other: half sides of
    this and of the other box; C: the other's axes in this one's; d: the other's center."""
    best: Scalar = NO_SCORE
    axis: Scalar = 0.0
    for k in range(3):
        extents = dot(other, tuple(absolute(x) for x in C[3 * k : 3 * k + 3]), half[k])
        separation = absolute(d[k]) - extents
        axis = select(separation > best, float(k), axis)
        best = maximum(separation, best)
    return best, axis


def edge_separation(half_a: Vec, half_b: Vec, C: Vec, d: Vec) -> EdgeContact:
    """The greatest separation along a cross product of an edge of each box."""
    best: Vec = (NO_SCORE,) + (0.0,) * 12
    for i, (i1, i2) in enumerate(NEXT):
        for j, (j1, j2) in enumerate(NEXT):
            x, y = -C[3 * i2 + j], C[3 * i1 + j]  # components of a_i × b_j along a_i1 and a_i2
            square = x * x + y * y
            towards = x * d[i1] + y * d[i2]
            x_b, y_b = C[3 * i + j2], -C[3 * i + j1]  # components along b_j1 and b_j2
            extents = half_a[i1] * absolute(x) + half_a[i2] * absolute(y)
            extents = extents + half_b[j1] * absolute(x_b) + half_b[j2] * absolute(y_b)
            apart = (absolute(towards) - extents) / sqrt(guarded(square))
            flip = _sign(towards)
            side_a = (0.5 * flip * _sign(x), 0.5 * flip * _sign(y))
            side_b = (-0.5 * flip * _sign(x_b), -0.5 * flip * _sign(y_b))
            # Order the ends such that (a's edge) × (b's edge) points from a to b.
            ends: list[Scalar] = []
            for k, axis, side, half in ((j, NEXT[j], side_b, 0.5 * flip), (i, NEXT[i], side_a, 0.5)):
                for end in (-half, half):
                    point: list[Scalar] = [end] * 3
                    point[axis[0]], point[axis[1]], point[k] = side[0], side[1], end
                    ends += point
            better = (square > PARALLEL) & (apart > best[0])
            best = choose(better, (apart, *ends), best)
    return EdgeContact(best[0], best[1:7], best[7:])


def pick(number: Scalar, values: Sequence[Scalar]) -> Scalar:
    """values[number], where lanes have different numbers."""
    result = values[-1]
    for k in range(len(values) - 2, -1, -1):
        result = select(number < k + 0.5, values[k], result)
    return result


class EdgeClip(NamedTuple):
    """A segment clipped to the reference face: the fractions cut off at its start and its end (more than 1 together:
    nothing is left), and the side of the face (0 to 3: +u, -u, +v, -v) that cuts it there."""

    cut0: Scalar
    side0: Scalar
    cut1: Scalar
    side1: Scalar


class BoxFaceContact:
    """A box (the incident one) over a face of another box (the reference)."""

    def __init__(self, half: Vec, other: Vec, C: Vec, d: Vec, k: Scalar) -> None:
        """half, other: half sides of the reference and of the incident box (m). C: axes of the incident box in those of
        the reference box. d: center of the incident box in the reference box's axes. k: axis of the reference face."""
        self.k = k
        order = [pick(k, d_) for d_ in ((d[1], d[2], d[0]), (d[2], d[0], d[1]), d)]
        self.sign = _sign(order[2])  # the reference face looks along this direction of its axis
        rows = [[pick(k, [C[3 * NEXT[axis][0] + m] for axis in range(3)]) for m in range(3)]]
        rows.append([pick(k, [C[3 * NEXT[axis][1] + m] for axis in range(3)]) for m in range(3)])
        rows.append([self.sign * pick(k, [C[3 * axis + m] for axis in range(3)]) for m in range(3)])
        self.half = [pick(k, [half[NEXT[axis][m]] for axis in range(3)]) for m in range(2)]
        self.level = pick(k, half)
        center = [order[0], order[1], self.sign * order[2]]
        down = rows[2]  # components of the normal n along the axes of the incident box
        steepness = [absolute(x) for x in down]
        self.j = select(  # axis of the incident face
            (steepness[0] >= steepness[1]) & (steepness[0] >= steepness[2]),
            0.0,
            select(steepness[1] >= steepness[2], 1.0, 2.0),
        )
        self.slope = pick(self.j, steepness)
        self.down = down
        self.facing = -_sign(pick(self.j, down))  # the incident face looks along this direction of its axis
        columns = [[pick(self.j, row) for row in rows]]
        for m in range(2):
            columns.append([pick(self.j, [row[NEXT[axis][m]] for axis in range(3)]) for row in rows])
        out = self.facing * pick(self.j, other)
        # The incident face is the set of points middle + x p + y r with |x|, |y| <= 1.
        self.middle = [c + out * x for c, x in zip(center, columns[0], strict=True)]
        sides = [pick(self.j, [other[NEXT[axis][m]] for axis in range(3)]) for m in range(2)]
        self.p, self.r = (scale(side, column) for side, column in zip(sides, columns[1:], strict=True))

    # ---------------------------------------------------------------------------------------- features

    def on_reference(self, u: Scalar, v: Scalar) -> Vec:
        """A point of the reference face, in its box's local coordinates; u, v: in ± 1/2."""
        n = 0.5 * self.sign
        return (pick(self.k, (n, v, u)), pick(self.k, (u, n, v)), pick(self.k, (v, u, n)))

    def on_incident(self, x: Scalar, y: Scalar) -> Vec:
        """A point of the incident face, in its box's local coordinates; x, y: in ± 1/2."""
        n = 0.5 * self.facing
        return (pick(self.j, (n, y, x)), pick(self.j, (x, n, y)), pick(self.j, (y, x, n)))

    def reference_face(self) -> Face:
        normal = tuple(select(absolute(self.k - axis) < 0.5, self.sign, 0.0) for axis in (0.0, 1.0, 2.0))
        return Face(normal, scale(0.5, normal))

    def incident_face(self) -> Face:
        normal = tuple(select(absolute(self.j - axis) < 0.5, self.facing, 0.0) for axis in (0.0, 1.0, 2.0))
        return Face(normal, scale(0.5, normal))

    def deepest_vertex(self) -> Vec:
        """The lowest corner of the incident box along the normal (local)."""
        return tuple(-0.5 * _sign(x) for x in self.down)

    # ---------------------------------------------------------------------------------------- clipping

    def corner(self, e: int) -> Vec:
        """Corner e (modulo 4) of the incident face, in the axes of the reference face (m)."""
        x, y = CORNERS[e % 4]
        return tuple(m + x * p + y * r for m, p, r in zip(self.middle, self.p, self.r, strict=True))

    def clip_edge(self, start: Vec, end: Vec) -> EdgeClip:
        """Clip a segment to the column over the reference face."""
        cut0: Scalar = 0.0
        side0: Scalar = 0.0
        cut1: Scalar = 0.0
        side1: Scalar = 0.0
        for number, (axis, sign) in enumerate(((0, 1.0), (0, -1.0), (1, 1.0), (1, -1.0))):
            d0, d1 = sign * start[axis] - self.half[axis], sign * end[axis] - self.half[axis]
            out0, out1 = d0 > 0.0, d1 > 0.0
            fraction = absolute(d0) / guarded(absolute(d0) + absolute(d1))
            both = out0 & out1
            first, last = select(both, 2.0, fraction), select(both, 2.0, 1.0 - fraction)
            more0, more1 = out0 & (first > cut0), out1 & (last > cut1)
            side0, cut0 = select(more0, float(number), side0), select(more0, first, cut0)
            side1, cut1 = select(more1, float(number), side1), select(more1, last, cut1)
        return EdgeClip(cut0, side0, cut1, side1)

    def clip_faces(self, tolerance: Scalar) -> tuple[Scalar, list[SlotFeatures]]:
        """The least gap (m) over the overlap of the two faces, and the features of up to four of its corners.

        The candidates are numbered: 0 to 3, where an edge of the incident face starts over the reference face; 4 to 7,
        where it ends; 8 to 11, a corner of the reference face.
        """
        points = ManifoldReduction(1, tolerance)
        corners, clips = [self.corner(e) for e in range(4)], []
        offers: list[tuple[Mask, PlanarRecord]] = []
        for e in range(4):
            x, y = corners[e], corners[(e + 1) % 4]
            clip = self.clip_edge(x, y)
            clips.append(clip)
            on = clip.cut0 + clip.cut1 <= 1.0
            for number, part, valid in ((e, clip.cut0, on), (e + 4, 1.0 - clip.cut1, on & (clip.cut1 > 0.0))):
                u, v, n = (p + part * (q - p) for p, q in zip(x, y, strict=True))
                offers.append((valid, PlanarRecord(u, self.sign * v, n - self.level, (float(number),))))
        (pu, pv, pn), (ru, rv, rn) = self.p, self.r
        inverse = 1.0 / guarded(pu * rv - pv * ru)
        flat = self.slope > STEEP
        for number, signs in enumerate(CORNERS):
            u, v = signs[0] * self.half[0], signs[1] * self.half[1]
            du, dv = u - self.middle[0], v - self.middle[1]
            along_p, along_r = (du * rv - dv * ru) * inverse, (dv * pu - du * pv) * inverse
            under = flat & (absolute(along_p) <= 1.0) & (absolute(along_r) <= 1.0)
            gap = self.middle[2] + along_p * pn + along_r * rn - self.level
            offers.append((under, PlanarRecord(u, self.sign * v, gap, (float(8 + number),))))
        for searching in points.rounds():
            for valid, record in offers:
                points.offer(searching & valid, record)
        least: Scalar = FAR
        slots: list[SlotFeatures] = []
        for used, record in points.found():
            least = minimum(least, select(used, record.gap, FAR))
            features = self._features(record.payload[0], clips)
            slots.append(SlotFeatures.of(choose(used, features.numbers, EMPTY_SLOT.numbers)))
        return least, slots

    def _features(self, number: Scalar, clips: Sequence[EdgeClip]) -> SlotFeatures:
        """The features of a candidate; see `clip_faces`."""
        ends, vertex = number > 3.5, number > 7.5
        e = number - select(vertex, 8.0, select(ends, 4.0, 0.0))
        here = [pick(e, [c[m] for c in CORNERS]) for m in range(2)]
        there = [pick(e, [CORNERS[(k + 1) % 4][m] for k in range(4)]) for m in range(2)]
        start, end = choose(ends, tuple(there), tuple(here)), choose(ends, tuple(here), tuple(there))
        cut = select(ends, 1.0, pick(e, [clip.cut0 for clip in clips]))
        side = select(ends, pick(e, [clip.side1 for clip in clips]), pick(e, [clip.side0 for clip in clips]))
        type_ = select(vertex, REFERENCE, select(cut > 0.0, CROSSING, INCIDENT))
        along_u = side > 1.5  # sides 2 and 3 run along u, at v = ± 1/2
        at = 0.5 - (side - select(along_u, 2.0, 0.0))
        r0 = choose(along_u, (-0.5, at), (at, -0.5))
        r1 = choose(along_u, (0.5, at), (at, 0.5))
        r0 = choose(vertex, scale(0.5, tuple(here)), r0)
        i0, i1 = self.on_incident(*scale(0.5, start)), self.on_incident(*scale(0.5, end))
        return SlotFeatures(type_, i0, i1, self.on_reference(*r0), self.on_reference(*r1))


BOX_BOX = ShapePair(SLOTS, hull_hull, search_boxes)
"""Two hulls whose local corners are those of a cube."""
