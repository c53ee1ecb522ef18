"""Contacts of two hulls (cylinders are prisms here).

Along which direction are they least deep in each other? It is the normal of a face of one of them, or is across an edge
of each. A face (the reference, of either hull) meets the face of the other that faces it most (the incident one):
the contacts are the outermost points of where the two overlap, seen along the normal. Two edges meet in one point;
what of the faces is ahead of each other elsewhere are contacts, too.

Features: which hull has the reference face (0: the first) | reference face, incident face (FACE each) | four slots:
what meets, two points of the incident hull, two of the reference hull (SLOT).
"""

from __future__ import annotations

from typing import Any

from ...ir import Scalar, any_lane, carry, clip, loop, maximum, minimum, select, sqrt, when
from ..math.spatial import UNIT, ZERO3, Vec, add, cross, dot, neg, rotate, scale, sub, transpose
from .hull_features import (
    NOTHING,
    Body,
    Outline,
    Spread,
    between,
    body,
    carried,
    choose,
    facing,
    guarded,
    length,
    lowest_vertex,
    measured,
    opposite_face,
    over,
    placed,
    reach,
    tangents,
    times,
    unit,
    widest_face,
)
from .solids import EDGE, FACE, FAR, Hull, Solid, Touch

SLOTS = 4
SLOT = 13
NONE, INCIDENT, REFERENCE, CROSSING, EDGES = 0.0, 1.0, 2.0, 3.0, 4.0  # vertex over face, ..., two outlines, two edges

BIAS = 1e-3  # of the smaller hull: how much better edges must be than faces, and the second's face than the first's
APART = 100.0  # times that: what is nearer to each other is one contact
STEEP = 0.3  # cosine: an incident face that is steeper has no say on the reference hull's vertices
PARALLEL = 1e-6  # squared sine of the angle between edges


def prism(solid: Solid) -> Solid:
    """A cylinder as a hull: its table is of radius and length 1."""
    radius, extent, _ = solid.size
    return Solid(solid.center, solid.axes, (radius, radius, extent))


# ------------------------------------------------------------------------------------------ search


def search_hulls(solid_a: Solid, solid_b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    a, b = body(solid_a, hull_a), body(solid_b, hull_b)
    (separation_a, face_a), (separation_b, face_b) = widest_face(a, b), widest_face(b, a)
    bias = BIAS * minimum(reach(a), reach(b))
    first, second = separation_b <= separation_a + bias, separation_b > separation_a + bias
    separation = select(second, separation_b, separation_a)

    rest = carry(FACE + 3)  # incident face, deepest vertex
    rest.put(0, (0.0,) * (FACE + 3))
    points, outlines = Spread(3 + SLOT, 0.1 * bias), (Outline(), Outline())
    for searching in points.rounds():
        for mine, ref, inc, face in ((searching & first, a, b, face_a), (searching & second, b, a, face_b)):
            for _ in when(any_lane(mine)):
                _overlap(mine, ref, inc, face, outlines, points, rest)
    least, slots = FAR, []
    for used, record in points.found():
        least = minimum(least, select(used, record[2], FAR))
        slots.append(choose(used, record[3:], (NONE,) + (0.0,) * (SLOT - 1)))
    # Hulls that pass beside each other: the overlap (if any) is not where they are nearest.
    beside = least > maximum(separation, 0.0) + 10.0 * bias
    *incident, x, y, z = rest.get(0, FACE + 3)
    slots[0] = choose(beside, (INCIDENT, x, y, z) + (0.0,) * (SLOT - 4), slots[0])

    crossed, edges = _widest_edges(a, b, separation)
    by_edges = crossed > separation + select(beside, -bias, bias)
    faces = (select(second, 1.0, 0.0), *choose(second, face_b, face_a), *incident)
    slots = with_edges(solid_a, solid_b, faces, slots, edges, by_edges, crossed, APART * bias)
    return (*faces, *(x for s in slots for x in s))


def with_edges(
    a: Solid, b: Solid, faces: Vec, slots: list[Vec], edges: Vec, by_edges: Any, crossed: Scalar, apart: Scalar
) -> list[Vec]:
    """The slots with two edges that meet, where they do (mask), in the first one. edges: ends of b's, a's; crossed: how
    far they are from each other.

    They take the place of the nearest contact. The others stay if they are `apart` from it, and in front of each other:
    what rolls over an edge comes down on a face.
    """
    ends = choose(faces[0] > 0.5, (*edges[6:], *edges[:6]), edges)  # the incident hull's come first
    nothing = (NONE,) + (0.0,) * (SLOT - 1)
    place = contacts_of_hulls(a, b, (*faces, EDGES, *ends, *nothing * (SLOTS - 1)))[0].point
    distances, stays = [], []
    for touch in contacts_of_hulls(a, b, (*faces, *(x for s in slots for x in s))):
        between = sub(touch.point, place)
        used = touch.gap < 0.5 * FAR
        distances.append(select(used, dot(between, between), FAR))
        stays.append(used & (touch.gap > maximum(crossed, 0.0)) & (distances[-1] > apart * apart))
    nearest, first = minimum(minimum(*distances[:2]), minimum(*distances[2:])), slots[0]
    result = [choose(by_edges, (EDGES, *ends), first)]
    missing = select(distances[0] <= nearest, 0.0, 1.0)  # 1 until the contact of the first slot has another place
    for k in range(1, SLOTS):
        here = (missing > 0.5) & (distances[k] <= nearest)
        missing = select(here, 0.0, missing)
        left = choose(here, choose(stays[0], first, nothing), choose(stays[k], slots[k], nothing))
        result.append(choose(by_edges, left, slots[k]))
    return result


def _overlap(mine: Any, r: Body, i: Body, face: Vec, outlines: Any, points: Spread, rest: Any) -> None:
    """Offer the corners of the overlap of the reference face of r and the incident one of i."""
    ref, inc = r.solid, i.solid
    normal = facing(ref, face[:3])
    deepest = lowest_vertex(i.hull, measured(inc, normal))
    incident = opposite_face(i, normal, deepest)
    rest.put(0, choose(mine, (*incident, *deepest), rest.get(0, FACE + 3)))
    to_ref, to_inc = between(ref, inc), between(inc, ref)
    up_r, up_i = unit(carried(ref, normal)), unit(neg(carried(inc, normal)))
    t1, t2 = (times(ref.size, t) for t in tangents(unit(over(face[:3], ref.size))))  # measure places, local to ref

    def height(solid: Solid, face: Vec, point: Vec) -> Scalar:
        return dot(face[:3], sub(point, face[3:])) / length(over(face[:3], solid.size))

    column, column_i = outlines
    column.find(r.hull, face[:3], up_r, mine)
    column_i.find(i.hull, incident[:3], up_i, mine)
    for on, v, w in column_i.edges():
        x, y = rotate(to_ref[0], v, to_ref[1]), rotate(to_ref[0], w, to_ref[1])
        left = column.clip(x, y)
        on = on & (left.cut0 + left.cut1 <= 1.0)
        corner = add(x, scale(left.cut0, sub(y, x)))
        what = select(left.cut0 > 0.0, CROSSING, INCIDENT)
        place = (dot(t1, corner), dot(t2, corner), height(ref, face, corner))
        points.offer(on, (*place, what, *v, *w, *left.edge0))
        leaves = on & (left.cut1 > 0.0)  # else its end is the start of the next one
        for _ in when(any_lane(leaves)):
            corner = add(y, scale(left.cut1, sub(x, y)))
            place = (dot(t1, corner), dot(t2, corner), height(ref, face, corner))
            points.offer(leaves, (*place, CROSSING, *w, *v, *left.edge1))
    slope = -dot(facing(inc, incident[:3]), normal)
    for on, v, _ in column.edges():
        x = rotate(to_inc[0], v, to_inc[1])
        under = on & (slope > STEEP) & column_i.contains(x)
        for _ in when(any_lane(under)):
            place = (dot(t1, v), dot(t2, v), height(inc, incident, x) / select(slope > STEEP, slope, 1.0))
            points.offer(under, (*place, REFERENCE, *ZERO3, *ZERO3, *v, *ZERO3))


def _widest_edges(a: Body, b: Body, separation: Scalar) -> tuple[Scalar, Vec]:
    """The greatest separation across an edge of each hull, and the ends of the edges: b's, a's.

    Only two edges whose faces make a face of the hulls' difference count: on the sphere of directions, the arc between
    the normals at a's edge crosses the one between the opposite normals at b's. The test holds in any affine frame: it
    is done in b's local one. Edges that do not face the other hull are left out.
    """
    best = carry(13)
    best.put(0, (NOTHING,) + (0.0,) * 12)
    L, t = between(b.solid, a.solid)
    back = transpose(between(a.solid, b.solid)[0])  # turns local normals of a into local ones of b
    inner_a = rotate(L, a.inner, t)
    deep = minimum(separation, 0.0)
    deep_b = deep / minimum(minimum(b.solid.size[0], b.solid.size[1]), b.solid.size[2])
    for k in loop(a.hull.edge_count):
        edge = a.hull.edges.get(k, EDGE)
        p, u = rotate(L, edge[:3], t), rotate(L, sub(edge[3:6], edge[:3]))
        n1, n2 = rotate(back, edge[6:9]), rotate(back, edge[9:12])
        to_b = sub(b.inner, p)
        seen1 = dot(n1, to_b) >= deep * length(over(edge[6:9], a.solid.size))
        seen2 = dot(n2, to_b) >= deep * length(over(edge[9:12], a.solid.size))
        arc = cross(n2, n1)
        for _ in when(any_lane(seen1 | seen2)):
            for j in loop(b.hull.edge_count):
                other = b.hull.edges.get(j, EDGE)
                q, m1, m2 = other[:3], other[6:9], other[9:12]
                to_a = sub(inner_a, q)
                seen = (seen1 | seen2) & ((dot(m1, to_a) >= deep_b) | (dot(m2, to_a) >= deep_b))
                for _ in when(any_lane(seen)):
                    arc_b = cross(m2, m1)
                    s1, s2, r1, r2 = dot(m1, arc), dot(m2, arc), dot(n1, arc_b), dot(n2, arc_b)
                    cross_each_other = seen & (s1 * s2 < 0.0) & (r1 * r2 < 0.0) & (s1 * r2 < 0.0)
                    for _ in when(any_lane(cross_each_other)):
                        v = sub(other[3:6], q)
                        axis = cross(u, v)
                        inward = dot(axis, sub(inner_a, p)) > 0.0
                        square = dot(axis, axis)
                        apart = dot(axis, sub(q, p)) / length(over(axis, b.solid.size))
                        apart = select(inward, -apart, apart)
                        skew = square > PARALLEL * dot(u, u) * dot(v, v)
                        better = cross_each_other & skew & (apart > best[0])
                        # In this order of the ends, (a's edge) × (b's edge) is from a to b.
                        ends = choose(inward, (*other[3:6], *q), (*q, *other[3:6]))
                        best.put(0, choose(better, (apart, *ends, *edge[:6]), best.get(0, 13)))
    found = best.get(0, 13)
    return found[0], found[1:]


# ------------------------------------------------------------------------------------------ contacts


def contacts_of_hulls(a: Solid, b: Solid, features: Vec) -> list[Touch]:
    second = features[0] > 0.5
    ref = Solid(*(choose(second, y, x) for x, y in zip(a, b, strict=True)))
    inc = Solid(*(choose(second, x, y) for x, y in zip(a, b, strict=True)))
    face, incident = features[1 : 1 + FACE], features[1 + FACE : 1 + 2 * FACE]
    normal, level = facing(ref, face[:3]), placed(ref, face[3:])
    facing_back, incident_level = facing(inc, incident[:3]), placed(inc, incident[3:])
    touches = []
    for k in range(SLOTS):
        what, *ends = features[1 + 2 * FACE + k * SLOT :][:SLOT]
        i0, i1 = placed(inc, ends[:3]), placed(inc, ends[3:6])
        r0, r1 = placed(ref, ends[6:9]), placed(ref, ends[9:])
        along_i, along_r = sub(i1, i0), sub(r1, r0)
        # Over the reference face: a vertex of the incident face, or where its outline crosses the reference's.
        side = cross(along_r, normal)
        crossing = clip(dot(side, sub(r0, i0)) / guarded(dot(side, along_i)), 0.0, 1.0)
        q = add(i0, scale(select(what == CROSSING, crossing, 0.0), along_i))
        gap = dot(normal, sub(q, level))
        # Under the incident face: a vertex of the reference face.
        at_vertex = what == REFERENCE
        under = dot(facing_back, sub(r0, incident_level)) / select(at_vertex, -dot(facing_back, normal), 1.0)
        gap = select(at_vertex, under, gap)
        below = choose(at_vertex, r0, sub(q, scale(gap, normal)))
        touch: Vec = (gap, *add(below, scale(0.5 * gap, normal)), *normal)
        if k == 0:
            touch = choose(what == EDGES, _across(r0, along_r, i0, along_i), touch)
        touch = choose(what > 0.5, touch, (FAR, *ZERO3, *UNIT[2]))
        towards_a = choose(second, touch[4:], neg(touch[4:]))
        touches.append(Touch(touch[0], touch[1:4], towards_a))
    return touches


def _across(p: Vec, u: Vec, q: Vec, v: Vec) -> Vec:
    """Where the edges p + s u and q + t v are closest: gap, the point midway, and the normal, towards u × v."""
    axis = cross(u, v)
    square = guarded(dot(axis, axis))
    between = sub(q, p)
    s, t = dot(cross(between, v), axis) / square, dot(cross(between, u), axis) / square
    normal = scale(1.0 / sqrt(square), axis)
    x, y = add(p, scale(clip(s, 0.0, 1.0), u)), add(q, scale(clip(t, 0.0, 1.0), v))
    point = scale(0.5, add(x, y))
    return (dot(normal, between), *point, *normal)
