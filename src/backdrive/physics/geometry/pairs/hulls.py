"""Two hulls, a hull and a half-space, and cylinders as prisms.

The separating axis of two hulls is the normal of a face of one of them, or the cross product of an edge of each. A face
contact: the face with the separating normal is the reference face, and the face of the other hull most opposed to it is
the incident face. The contact points are the outermost corners of the overlap of the two faces, seen along the normal.
An edge contact has one point, where the two edges are closest; corners of the faces' overlap that are still apart are
kept as further points.
"""

from __future__ import annotations

from typing import NamedTuple

from ....ir import Mask, Scalar, ScalarArray, any_lane, carry, clip, loop, maximum, minimum, select, sqrt, when
from ...math.arrays import split
from ...math.spatial import UNIT, ZERO3, Vec, add, cross, dot, neg, rotate, scale, sub, transpose, unrotate
from ..solids import FACE, FAR, ContactPoint, Face, Hull, ShapePair, Solid
from .common import choose, guarded, guarded_length, over, times, unit
from .hull_features import (
    NO_SCORE,
    FaceOutline,
    ManifoldReduction,
    PlacedHull,
    PlanarRecord,
    hull_size,
    incident_face,
    local_covector,
    local_displacement,
    local_transform,
    lowest_vertex,
    place_hull,
    placed,
    reference_face,
    tangents,
    world_normal,
)

SLOTS = 4  # contact points of two hulls, or of a hull and a half-space

BIAS = 1e-3
"""Relative to the smaller hull: edges must separate this much more than faces to be preferred, and a face of the second
hull this much more than one of the first, so that the choice does not flicker."""

MERGED = 100.0
"""In units of the bias: contact points nearer than this to an edge contact are dropped."""

STEEP = 0.3
"""Cosine of the angle between the reference normal and the opposite incident normal: on a steeper incident face, the
vertices of the reference face are not projected."""

PARALLEL = 1e-6
"""sin² of the angle between two edges below which they are parallel and their cross product is no separating axis."""


# ------------------------------------------------------------------------------------------ features


NONE, INCIDENT, REFERENCE, CROSSING, EDGES = 0.0, 1.0, 2.0, 3.0, 4.0
"""Types of contact points: none; a vertex of the incident face over the reference face; a vertex of the reference face
under the incident face; a crossing of the outlines of both faces; the closest points of two edges."""

SLOT_FEATURES = 13
"""Numbers of a `SlotFeatures`."""


class SlotFeatures(NamedTuple):
    """The features of one contact point: its type, two local points of the incident hull (a vertex, or the ends of an
    edge) and two of the reference hull."""

    type: Scalar
    incident_start: Vec = ZERO3
    incident_end: Vec = ZERO3
    reference_start: Vec = ZERO3
    reference_end: Vec = ZERO3

    @classmethod
    def of(cls, numbers: Vec) -> SlotFeatures:
        type_, *points = split(numbers, 1, 3, 3, 3, 3)
        return cls(type_[0], *points)

    @property
    def numbers(self) -> tuple[Scalar, ...]:
        return (self.type, *(x for point in self[1:] for x in point))


class FacePair(NamedTuple):
    """Which hull has the reference face (0: the first, 1: the second), that face, and the other's incident face."""

    of_second: Scalar
    reference: Face
    incident: Face

    @property
    def numbers(self) -> tuple[Scalar, ...]:
        return (self.of_second, *self.reference.numbers, *self.incident.numbers)


class ManifoldFeatures(NamedTuple):
    """The features of a pair of hulls: its faces, and those of each slot."""

    faces: FacePair
    slots: list[SlotFeatures]

    @classmethod
    def of(cls, numbers: Vec) -> ManifoldFeatures:
        of_second, reference, incident, *slots = split(numbers, 1, FACE, FACE, *[SLOT_FEATURES] * SLOTS)
        faces = FacePair(of_second[0], Face.of(reference), Face.of(incident))
        return cls(faces, [SlotFeatures.of(slot) for slot in slots])

    @property
    def numbers(self) -> tuple[Scalar, ...]:
        return (*self.faces.numbers, *(x for slot in self.slots for x in slot.numbers))


EMPTY_SLOT = SlotFeatures(NONE)


class EdgeContact(NamedTuple):
    """The edges of a and b whose cross product separates the hulls the most: that separation (m), and the ends (local,
    3 + 3 numbers) of b's and of a's edge."""

    separation: Scalar
    ends_b: Vec
    ends_a: Vec


# ------------------------------------------------------------------------------------------ search


def search_hulls(solid_a: Solid, solid_b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    """The faces or edges of the separating axis, and the features of up to four contact points."""
    a, b = place_hull(solid_a, hull_a), place_hull(solid_b, hull_b)
    (separation_a, face_a), (separation_b, face_b) = reference_face(a, b), reference_face(b, a)
    bias = BIAS * minimum(hull_size(a), hull_size(b))
    first, second = separation_b <= separation_a + bias, separation_b > separation_a + bias
    separation = select(second, separation_b, separation_a)

    rest = carry(FACE + 3)  # incident face, deepest vertex
    rest.put(0, (0.0,) * (FACE + 3))
    points, outlines = ManifoldReduction(SLOT_FEATURES, 0.1 * bias), (FaceOutline(), FaceOutline())
    for searching in points.rounds():
        for lanes, ref, inc, face in ((searching & first, a, b, face_a), (searching & second, b, a, face_b)):
            for _ in when(any_lane(lanes)):
                _overlap(lanes, ref, inc, face, outlines, points, rest)
    least: Scalar = FAR
    slots: list[SlotFeatures] = []
    for used, record in points.found():
        least = minimum(least, select(used, record.gap, FAR))
        slots.append(SlotFeatures.of(choose(used, record.payload, EMPTY_SLOT.numbers)))
    # Hulls that pass beside each other: their closest points are not in the overlap of the faces, if there is any.
    beside = least > maximum(separation, 0.0) + 10.0 * bias
    *incident, x, y, z = rest.get(0, FACE + 3)
    slots[0] = _with_vertex(beside, (x, y, z), slots[0])

    edges = _closest_edges(a, b, separation)
    by_edges = edges.separation > separation + select(beside, -bias, bias)
    of_second, reference = select(second, 1.0, 0.0), Face.of(choose(second, face_b.numbers, face_a.numbers))
    faces = FacePair(of_second, reference, Face.of(incident))
    return with_edges(solid_a, solid_b, ManifoldFeatures(faces, slots), edges, by_edges, MERGED * bias).numbers


def _with_vertex(where: Mask, vertex: Vec, slot: SlotFeatures) -> SlotFeatures:
    """The slot; where the condition holds, with a vertex of the incident hull."""
    return SlotFeatures.of(choose(where, SlotFeatures(INCIDENT, vertex).numbers, slot.numbers))


def with_edges(
    a: Solid, b: Solid, features: ManifoldFeatures, edges: EdgeContact, by_edges: Mask, distance: Scalar
) -> ManifoldFeatures:
    """The features with an edge contact in the first slot, where there is one (`by_edges`).

    It replaces the nearest contact point. The other points stay if they are farther than `distance` (m) from it and
    their surfaces do not penetrate more than the edges do: a body that rolls over an edge comes down on a face.
    """
    faces, slots = features
    first = slots[0]
    # The ends of the incident hull's edge come first.
    ends = choose(faces.of_second > 0.5, (*edges.ends_a, *edges.ends_b), (*edges.ends_b, *edges.ends_a))
    edge_slot = SlotFeatures.of((EDGES, *ends))
    alone = ManifoldFeatures(faces, [edge_slot, *[EMPTY_SLOT] * (SLOTS - 1)])
    position = hull_hull(a, b, alone.numbers)[0].position
    distances, stays = [], []
    for point in hull_hull(a, b, features.numbers):
        between = sub(point.position, position)
        used = point.gap < 0.5 * FAR
        distances.append(select(used, dot(between, between), FAR))
        stays.append(used & (point.gap > maximum(edges.separation, 0.0)) & (distances[-1] > distance * distance))
    nearest = minimum(minimum(*distances[:2]), minimum(*distances[2:]))
    nothing = EMPTY_SLOT.numbers
    result = [SlotFeatures.of(choose(by_edges, edge_slot.numbers, first.numbers))]
    missing: Scalar = select(distances[0] <= nearest, 0.0, 1.0)  # 1 until the point of the first slot has a new slot
    for k in range(1, SLOTS):
        here = (missing > 0.5) & (distances[k] <= nearest)
        missing = select(here, 0.0, missing)
        kept_first, kept = choose(stays[0], first.numbers, nothing), choose(stays[k], slots[k].numbers, nothing)
        left = choose(here, kept_first, kept)
        result.append(SlotFeatures.of(choose(by_edges, left, slots[k].numbers)))
    return ManifoldFeatures(faces, result)


def _overlap(
    lanes: Mask,
    reference: PlacedHull,
    incident: PlacedHull,
    face: Face,
    outlines: tuple[FaceOutline, FaceOutline],
    points: ManifoldReduction,
    rest: ScalarArray,
) -> None:
    """Offer the corners of the overlap of the reference hull's face and the other hull's incident face, seen along the
    normal. The incident face and the deepest vertex of its hull are written to `rest`."""
    ref, inc = reference.solid, incident.solid
    normal = world_normal(ref, face.normal)
    deepest = lowest_vertex(incident.hull, local_covector(inc, normal))
    other = incident_face(incident, normal, deepest)
    rest.put(0, choose(lanes, (*other.numbers, *deepest), rest.get(0, FACE + 3)))
    to_ref, to_inc = local_transform(ref, inc), local_transform(inc, ref)
    up_ref, up_inc = unit(local_displacement(ref, normal)), unit(neg(local_displacement(inc, normal)))
    # Coordinates in the contact plane are t1 · x and t2 · x of points x local to the reference hull.
    t1, t2 = (times(ref.size, t) for t in tangents(unit(over(face.normal, ref.size))))

    def height(solid: Solid, face: Face, point: Vec) -> Scalar:
        """Distance (m) of a local point from the plane of a face."""
        return dot(face.normal, sub(point, face.point)) / guarded_length(over(face.normal, solid.size))

    column, column_inc = outlines
    column.find(reference.hull, face.normal, up_ref, lanes)
    column_inc.find(incident.hull, other.normal, up_inc, lanes)
    for on, v, w in column_inc.edges():
        x, y = rotate(to_ref[0], v, to_ref[1]), rotate(to_ref[0], w, to_ref[1])
        left = column.clip(x, y)
        on = on & (left.cut0 + left.cut1 <= 1.0)
        corner = add(x, scale(left.cut0, sub(y, x)))
        type_ = select(left.cut0 > 0.0, CROSSING, INCIDENT)
        place = (dot(t1, corner), dot(t2, corner), height(ref, face, corner))
        points.offer(on, PlanarRecord(*place, (type_, *v, *w, *left.edge0)))
        leaves = on & (left.cut1 > 0.0)  # otherwise the edge's end is the start of the next edge
        for _ in when(any_lane(leaves)):
            corner = add(y, scale(left.cut1, sub(x, y)))
            place = (dot(t1, corner), dot(t2, corner), height(ref, face, corner))
            points.offer(leaves, PlanarRecord(*place, (CROSSING, *w, *v, *left.edge1)))
    slope = -dot(world_normal(inc, other.normal), normal)
    for on, v, _ in column.edges():
        x = rotate(to_inc[0], v, to_inc[1])
        under = on & (slope > STEEP) & column_inc.contains(x)
        for _ in when(any_lane(under)):
            place = (dot(t1, v), dot(t2, v), height(inc, other, x) / select(slope > STEEP, slope, 1.0))
            points.offer(under, PlanarRecord(*place, SlotFeatures(REFERENCE, reference_start=v).numbers))


def _closest_edges(a: PlacedHull, b: PlacedHull, separation: Scalar) -> EdgeContact:
    """The two edges whose cross product is the axis of greatest separation. separation: that of the faces (m).

    Only edges that build a face of the Minkowski difference count: on the Gauss sphere, the arc between the normals at
    a's edge crosses the arc between the negated normals at b's edge. That test is invariant under affine maps, and is
    done in b's local coordinates. Edges whose faces both look away from the other hull are skipped.
    """
    best = carry(13)
    best.put(0, (NO_SCORE,) + (0.0,) * 12)
    L, t = local_transform(b.solid, a.solid)
    normals_to_b = transpose(local_transform(a.solid, b.solid)[0])  # maps local normals of a to local normals of b
    interior_a = rotate(L, a.interior, t)
    deep = minimum(separation, 0.0)
    deep_b = deep / minimum(minimum(b.solid.size[0], b.solid.size[1]), b.solid.size[2])
    for k in loop(a.hull.edge_count):
        edge = a.hull.edge(k)
        p, u = rotate(L, edge.start, t), rotate(L, sub(edge.end, edge.start))
        n1, n2 = rotate(normals_to_b, edge.first_normal), rotate(normals_to_b, edge.second_normal)
        to_b = sub(b.interior, p)
        seen1 = dot(n1, to_b) >= deep * guarded_length(over(edge.first_normal, a.solid.size))
        seen2 = dot(n2, to_b) >= deep * guarded_length(over(edge.second_normal, a.solid.size))
        arc = cross(n2, n1)
        for _ in when(any_lane(seen1 | seen2)):
            for j in loop(b.hull.edge_count):
                other = b.hull.edge(j)
                q, m1, m2 = other.start, other.first_normal, other.second_normal
                to_a = sub(interior_a, q)
                seen = (seen1 | seen2) & ((dot(m1, to_a) >= deep_b) | (dot(m2, to_a) >= deep_b))
                for _ in when(any_lane(seen)):
                    arc_b = cross(m2, m1)
                    s1, s2, r1, r2 = dot(m1, arc), dot(m2, arc), dot(n1, arc_b), dot(n2, arc_b)
                    arcs_cross = seen & (s1 * s2 < 0.0) & (r1 * r2 < 0.0) & (s1 * r2 < 0.0)
                    for _ in when(any_lane(arcs_cross)):
                        v = sub(other.end, q)
                        axis = cross(u, v)
                        inward = dot(axis, sub(interior_a, p)) > 0.0
                        square = dot(axis, axis)
                        apart = dot(axis, sub(q, p)) / guarded_length(over(axis, b.solid.size))
                        apart = select(inward, -apart, apart)
                        skew = square > PARALLEL * dot(u, u) * dot(v, v)
                        better = arcs_cross & skew & (apart > best[0])
                        # Order the ends such that (a's edge) × (b's edge) points from a to b.
                        ends = choose(inward, (*other.end, *q), (*q, *other.end))
                        best.put(0, choose(better, (apart, *ends, *edge.ends), best.get(0, 13)))
    found = best.get(0, 13)
    return EdgeContact(found[0], found[1:7], found[7:])


# ------------------------------------------------------------------------------------------ contact points


def hull_hull(a: Solid, b: Solid, features: Vec) -> list[ContactPoint]:
    """The contact points of two hulls; see `ManifoldFeatures`."""
    faces, slots = ManifoldFeatures.of(features)
    second = faces.of_second > 0.5
    ref = Solid(*(choose(second, y, x) for x, y in zip(a, b, strict=True)))
    inc = Solid(*(choose(second, x, y) for x, y in zip(a, b, strict=True)))
    normal, level = world_normal(ref, faces.reference.normal), placed(ref, faces.reference.point)
    incident_normal, incident_level = world_normal(inc, faces.incident.normal), placed(inc, faces.incident.point)
    points = []
    for k, slot in enumerate(slots):
        i0, i1 = placed(inc, slot.incident_start), placed(inc, slot.incident_end)
        r0, r1 = placed(ref, slot.reference_start), placed(ref, slot.reference_end)
        along_i, along_r = sub(i1, i0), sub(r1, r0)
        # Over the reference face: a vertex of the incident face, or where its outline crosses the reference outline.
        side = cross(along_r, normal)
        crossing = clip(dot(side, sub(r0, i0)) / guarded(dot(side, along_i)), 0.0, 1.0)
        q = add(i0, scale(select(slot.type == CROSSING, crossing, 0.0), along_i))
        gap = dot(normal, sub(q, level))
        # Under the incident face: a vertex of the reference face.
        at_vertex = slot.type == REFERENCE
        under = dot(incident_normal, sub(r0, incident_level)) / select(at_vertex, -dot(incident_normal, normal), 1.0)
        gap = select(at_vertex, under, gap)
        below = choose(at_vertex, r0, sub(q, scale(gap, normal)))
        point = ContactPoint(gap, add(below, scale(0.5 * gap, normal)), normal)
        if k == 0:
            by_edges, crossed = slot.type == EDGES, _edge_edge(r0, along_r, i0, along_i)
            point = ContactPoint.of(choose(by_edges, crossed.numbers, point.numbers))
        point = ContactPoint.of(choose(slot.type > 0.5, point.numbers, ABSENT.numbers))
        towards_a = choose(second, point.normal, neg(point.normal))
        points.append(ContactPoint(point.gap, point.position, towards_a))
    return points


ABSENT = ContactPoint(FAR, ZERO3, UNIT[2])
"""The contact point of a slot without features."""


def _edge_edge(p: Vec, u: Vec, q: Vec, v: Vec) -> ContactPoint:
    """The closest points of the edges p + s u and q + t v, 0 <= s, t <= 1; the normal has the direction of u × v."""
    axis = cross(u, v)
    square = guarded(dot(axis, axis))
    between = sub(q, p)
    s, t = dot(cross(between, v), axis) / square, dot(cross(between, u), axis) / square
    normal = scale(1.0 / sqrt(square), axis)
    x, y = add(p, scale(clip(s, 0.0, 1.0), u)), add(q, scale(clip(t, 0.0, 1.0), v))
    position = scale(0.5, add(x, y))
    return ContactPoint(dot(normal, between), position, normal)


# ------------------------------------------------------------------------------------------ hull and half-space


def search_hull_plane(solid: Solid, plane: Solid, hull: Hull, _: Hull) -> Vec:
    """Vertices of the incident face: of the faces at the lowest vertex, the one most opposed to the plane's normal.
    Features of each slot: 1 (0 if unused), and a local vertex."""
    body, up = place_hull(solid, hull), local_covector(solid, plane.center)
    face = incident_face(body, plane.center, lowest_vertex(hull, up))
    points, outline = ManifoldReduction(3, 1e-4 * hull_size(body)), FaceOutline()
    outline.find(hull, face.normal, face.normal, True)
    t1, t2 = (times(solid.size, t) for t in tangents(unrotate(solid.axes, plane.center)))
    for searching in points.rounds():
        for on, v, _end in outline.edges():
            points.offer(on & searching, PlanarRecord(dot(t1, v), dot(t2, v), dot(up, v), v))
    return tuple(x for used, record in points.found() for x in (select(used, 1.0, 0.0), *record.payload))


def hull_plane(solid: Solid, plane: Solid, features: Vec) -> list[ContactPoint]:
    """Vertices of the incident face."""
    normal, points = plane.center, []
    for present, *vertex in split(features, *[4] * SLOTS):
        x = placed(solid, vertex)
        gap = dot(normal, x) - plane.size[0]
        used, point = present > 0.5, ContactPoint(gap, sub(x, scale(0.5 * gap, normal)), normal)
        points.append(ContactPoint.of(choose(used, point.numbers, ABSENT.numbers)))
    return points


# ------------------------------------------------------------------------------------------ cylinders as prisms


def prism(solid: Solid) -> Solid:
    """A cylinder as a hull: its table is that of a prism of radius 1 and length 1."""
    radius, extent, _ = solid.size
    return Solid(solid.center, solid.axes, (radius, radius, extent))


def search_cylinders(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    return search_hulls(prism(a), prism(b), hull_a, hull_b)


def cylinder_cylinder(a: Solid, b: Solid, features: Vec) -> list[ContactPoint]:
    return hull_hull(prism(a), prism(b), features)


def search_cylinder_hull(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    return search_hulls(prism(a), b, hull_a, hull_b)


def cylinder_hull(a: Solid, b: Solid, features: Vec) -> list[ContactPoint]:
    return hull_hull(prism(a), b, features)


HULL_HULL = ShapePair(SLOTS, hull_hull, search_hulls)
HULL_PLANE = ShapePair(SLOTS, hull_plane, search_hull_plane)
CYLINDER_CYLINDER = ShapePair(SLOTS, cylinder_cylinder, search_cylinders)
CYLINDER_HULL = ShapePair(SLOTS, cylinder_hull, search_cylinder_hull)
