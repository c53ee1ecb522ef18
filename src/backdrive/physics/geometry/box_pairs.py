"""Which features of two boxes meet: `collision_hulls.search_hulls` for hulls that are cubes, without loops.

A box has three directions, not six faces and twelve edges: that is all there is to look at. The rules are those of
`search_hulls`, and so are the features. Local coordinates of a cube's corners are ± 1/2; here a box is seen in the axes
of the reference face, u and v along it and n outward, in m.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir import Scalar, absolute, maximum, minimum, select, sqrt
from ..math.spatial import Vec, dot, matmul, scale, sub, transpose, unrotate
from .hull_features import NOTHING, Spread, choose, guarded
from .hull_pairs import APART, BIAS, CROSSING, INCIDENT, NONE, PARALLEL, REFERENCE, SLOT, STEEP, with_edges
from .solids import FAR, Hull, Solid

NEXT = ((1, 2), (2, 0), (0, 1))  # the two axes after each
CORNERS = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))  # around a face


def search_boxes(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    half_a, half_b = scale(0.5, a.size), scale(0.5, b.size)
    C = matmul(transpose(a.axes), b.axes)
    d = sub(b.center, a.center)
    to_b, from_a = unrotate(a.axes, d), unrotate(b.axes, d)
    separation_a, k_a = _widest(half_a, half_b, C, to_b)
    separation_b, k_b = _widest(half_b, half_a, transpose(C), from_a)
    bias = BIAS * minimum(sqrt(dot(half_a, half_a)), sqrt(dot(half_b, half_b)))
    second = separation_b > separation_a + bias
    separation = select(second, separation_b, separation_a)
    face = Meeting(
        choose(second, half_b, half_a), choose(second, half_a, half_b), choose(second, transpose(C), C),
        choose(second, tuple(-x for x in from_a), to_b), select(second, k_b, k_a),
    )  # fmt: skip
    least, slots = face.contacts(0.1 * bias)
    # Boxes that pass beside each other: the overlap (if any) is not where they are nearest.
    beside = least > maximum(separation, 0.0) + 10.0 * bias
    slots[0] = choose(beside, (INCIDENT, *face.deepest()) + (0.0,) * (SLOT - 4), slots[0])
    crossed, edges = _widest_edges(half_a, half_b, C, to_b)
    by_edges = crossed > separation + select(beside, -bias, bias)
    faces = (select(second, 1.0, 0.0), *face.reference_face(), *face.incident_face())
    slots = with_edges(a, b, faces, slots, edges, by_edges, crossed, APART * bias)
    return (*faces, *(x for s in slots for x in s))


def _sign(x: Scalar) -> Scalar:
    return select(x < 0.0, -1.0, 1.0)


def _widest(half: Vec, other: Vec, C: Vec, d: Vec) -> tuple[Scalar, Scalar]:
    """The greatest separation along an axis of a box, and the number of that axis. C: the other's axes in this one's;
    d: to the other's center."""
    best, axis = NOTHING, 0.0
    for k in range(3):
        reach = dot(other, tuple(absolute(x) for x in C[3 * k : 3 * k + 3]), half[k])
        separation = absolute(d[k]) - reach
        axis = select(separation > best, float(k), axis)
        best = maximum(separation, best)
    return best, axis


def _widest_edges(half_a: Vec, half_b: Vec, C: Vec, d: Vec) -> tuple[Scalar, Vec]:
    """The greatest separation across an edge of each box, and the ends of the edges: b's, a's."""
    best: Vec = (NOTHING,) + (0.0,) * 12
    for i, (i1, i2) in enumerate(NEXT):
        for j, (j1, j2) in enumerate(NEXT):
            x, y = -C[3 * i2 + j], C[3 * i1 + j]  # a_i × b_j, along a_i1 and a_i2
            square = x * x + y * y
            towards = x * d[i1] + y * d[i2]
            x_b, y_b = C[3 * i + j2], -C[3 * i + j1]  # and along b_j1 and b_j2
            reach = half_a[i1] * absolute(x) + half_a[i2] * absolute(y)
            reach = reach + half_b[j1] * absolute(x_b) + half_b[j2] * absolute(y_b)
            apart = (absolute(towards) - reach) / sqrt(guarded(square))
            flip = _sign(towards)
            side_a = (0.5 * flip * _sign(x), 0.5 * flip * _sign(y))
            side_b = (-0.5 * flip * _sign(x_b), -0.5 * flip * _sign(y_b))
            # In this order of the ends, (a's edge) × (b's edge) is from a to b.
            ends = []
            for k, axis, side, half in ((j, NEXT[j], side_b, 0.5 * flip), (i, NEXT[i], side_a, 0.5)):
                for end in (-half, half):
                    point: list[Scalar] = [end] * 3
                    point[axis[0]], point[axis[1]], point[k] = side[0], side[1], end
                    ends += point
            better = (square > PARALLEL) & (apart > best[0])
            best = choose(better, (apart, *ends), best)
    return best[0], best[1:]


def _pick(number: Scalar, values: Sequence[Scalar]) -> Scalar:
    """values[number]"""
    result = values[-1]
    for k in range(len(values) - 2, -1, -1):
        result = select(number < k + 0.5, values[k], result)
    return result


class Meeting:
    """A box (the incident one) over a face of another (the reference).

    half, other: half sides of the reference and of the incident box; C: axes of the incident box in those of the
    reference; d: the incident box's center; k: the axis along which the reference face looks.
    """

    def __init__(self, half: Vec, other: Vec, C: Vec, d: Vec, k: Scalar) -> None:
        self.k = k
        order = [_pick(k, d_) for d_ in ((d[1], d[2], d[0]), (d[2], d[0], d[1]), d)]
        self.sign = _sign(order[2])
        rows = [[_pick(k, [C[3 * NEXT[axis][0] + m] for axis in range(3)]) for m in range(3)]]
        rows.append([_pick(k, [C[3 * NEXT[axis][1] + m] for axis in range(3)]) for m in range(3)])
        rows.append([self.sign * _pick(k, [C[3 * axis + m] for axis in range(3)]) for m in range(3)])
        self.half = [_pick(k, [half[NEXT[axis][m]] for axis in range(3)]) for m in range(2)]
        self.level = _pick(k, half)
        center = [order[0], order[1], self.sign * order[2]]
        down = rows[2]  # n · axes of the incident box
        steepness = [absolute(x) for x in down]
        self.j = select(
            (steepness[0] >= steepness[1]) & (steepness[0] >= steepness[2]),
            0.0,
            select(steepness[1] >= steepness[2], 1.0, 2.0),
        )
        self.slope = _pick(self.j, steepness)
        self.down = down
        self.facing = -_sign(_pick(self.j, down))  # the incident face is that way along its axis
        columns = [[_pick(self.j, row) for row in rows]]
        for m in range(2):
            columns.append([_pick(self.j, [row[NEXT[axis][m]] for axis in range(3)]) for row in rows])
        out = self.facing * _pick(self.j, other)
        self.middle = [c + out * x for c, x in zip(center, columns[0], strict=True)]
        sides = [_pick(self.j, [other[NEXT[axis][m]] for axis in range(3)]) for m in range(2)]
        self.p, self.r = (scale(side, column) for side, column in zip(sides, columns[1:], strict=True))

    # ---------------------------------------------------------------------------------------- features

    def on_reference(self, u: Scalar, v: Scalar) -> Vec:
        """A point of the reference face, in its box's local coordinates."""
        n = 0.5 * self.sign
        return (_pick(self.k, (n, v, u)), _pick(self.k, (u, n, v)), _pick(self.k, (v, u, n)))

    def on_incident(self, x: Scalar, y: Scalar) -> Vec:
        """A point of the incident face, in its box's local coordinates."""
        n = 0.5 * self.facing
        return (_pick(self.j, (n, y, x)), _pick(self.j, (x, n, y)), _pick(self.j, (y, x, n)))

    def reference_face(self) -> Vec:
        """Outward normal, and a point."""
        normal = [select(absolute(self.k - axis) < 0.5, self.sign, 0.0) for axis in (0.0, 1.0, 2.0)]
        return (*normal, *scale(0.5, tuple(normal)))

    def incident_face(self) -> Vec:
        normal = [select(absolute(self.j - axis) < 0.5, self.facing, 0.0) for axis in (0.0, 1.0, 2.0)]
        return (*normal, *scale(0.5, tuple(normal)))

    def deepest(self) -> Vec:
        """The lowest corner of the incident box."""
        return tuple(-0.5 * _sign(x) for x in self.down)

    # ---------------------------------------------------------------------------------------- overlap

    def corner(self, e: int) -> Vec:
        """Of the incident face, in the axes of the reference face."""
        x, y = CORNERS[e % 4]
        return tuple(m + x * p + y * r for m, p, r in zip(self.middle, self.p, self.r, strict=True))

    def _clip(self, start: Vec, end: Vec) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        """What fraction of a segment is cut off at its start and its end, and by which of the face's four sides."""
        cut0, side0, cut1, side1 = 0.0, 0.0, 0.0, 0.0
        for number, (axis, sign) in enumerate(((0, 1.0), (0, -1.0), (1, 1.0), (1, -1.0))):
            d0, d1 = sign * start[axis] - self.half[axis], sign * end[axis] - self.half[axis]
            out0, out1 = d0 > 0.0, d1 > 0.0
            fraction = absolute(d0) / guarded(absolute(d0) + absolute(d1))
            both = out0 & out1
            first, last = select(both, 2.0, fraction), select(both, 2.0, 1.0 - fraction)
            more0, more1 = out0 & (first > cut0), out1 & (last > cut1)
            side0, cut0 = select(more0, float(number), side0), select(more0, first, cut0)
            side1, cut1 = select(more1, float(number), side1), select(more1, last, cut1)
        return cut0, side0, cut1, side1

    def contacts(self, tolerance: Scalar) -> tuple[Scalar, list[Vec]]:
        """The least gap, and the records (SLOT) of up to four contacts."""
        points = Spread(4, tolerance)
        corners, cuts = [self.corner(e) for e in range(4)], []
        offers: list[tuple[Any, Vec]] = []
        for e in range(4):
            x, y = corners[e], corners[(e + 1) % 4]
            cut = self._clip(x, y)
            cuts.append(cut)
            on = cut[0] + cut[2] <= 1.0
            for number, part, valid in ((e, cut[0], on), (e + 4, 1.0 - cut[2], on & (cut[2] > 0.0))):
                u, v, n = (p + part * (q - p) for p, q in zip(x, y, strict=True))
                offers.append((valid, (u, self.sign * v, n - self.level, float(number))))
        (pu, pv, pn), (ru, rv, rn) = self.p, self.r
        inverse = 1.0 / guarded(pu * rv - pv * ru)
        steep = self.slope > STEEP
        for number, signs in enumerate(CORNERS):
            u, v = signs[0] * self.half[0], signs[1] * self.half[1]
            du, dv = u - self.middle[0], v - self.middle[1]
            along_p, along_r = (du * rv - dv * ru) * inverse, (dv * pu - du * pv) * inverse
            under = steep & (absolute(along_p) <= 1.0) & (absolute(along_r) <= 1.0)
            gap = self.middle[2] + along_p * pn + along_r * rn - self.level
            offers.append((under, (u, self.sign * v, gap, float(8 + number))))
        for searching in points.rounds():
            for valid, record in offers:
                points.offer(searching & valid, record)
        least: Any = FAR
        slots: list[Vec] = []
        for used, (_, _, gap, number) in points.found():
            least = minimum(least, select(used, gap, FAR))
            slots.append(choose(used, self._record(number, cuts), (NONE,) + (0.0,) * (SLOT - 1)))
        return least, slots

    def _record(self, number: Scalar, cuts: list[tuple[Scalar, ...]]) -> Vec:
        """0 to 3: where an edge of the incident face starts over the reference face; 4 to 7: where it ends; 8 to 11: a
        corner of the reference face."""
        ends, vertex = number > 3.5, number > 7.5
        e = number - select(vertex, 8.0, select(ends, 4.0, 0.0))
        here = [_pick(e, [c[m] for c in CORNERS]) for m in range(2)]
        there = [_pick(e, [CORNERS[(k + 1) % 4][m] for k in range(4)]) for m in range(2)]
        start, end = choose(ends, tuple(there), tuple(here)), choose(ends, tuple(here), tuple(there))
        cut = select(ends, 1.0, _pick(e, [c[0] for c in cuts]))
        side = select(ends, _pick(e, [c[3] for c in cuts]), _pick(e, [c[1] for c in cuts]))
        what = select(vertex, REFERENCE, select(cut > 0.0, CROSSING, INCIDENT))
        along_u = side > 1.5  # the sides 2 and 3 run along u, at v = ± 1/2
        at = 0.5 - (side - select(along_u, 2.0, 0.0))
        r0 = choose(along_u, (-0.5, at), (at, -0.5))
        r1 = choose(along_u, (0.5, at), (at, 0.5))
        r0 = choose(vertex, scale(0.5, tuple(here)), r0)
        i0, i1 = self.on_incident(*scale(0.5, start)), self.on_incident(*scale(0.5, end))
        return (what, *i0, *i1, *self.on_reference(*r0), *self.on_reference(*r1))
