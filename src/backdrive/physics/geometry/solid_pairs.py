"""Contacts of hulls (boxes, convex meshes, prisms for cylinders) with spheres, capsules, planes and each other.

Spheres and the ends of a capsule touch the nearest point of the hull, exactly: on its face, edge or vertex; from inside
they are pushed out through the nearest face. A capsule also touches between its ends: at an edge or a vertex of the
hull, and, lying on a face that it sticks out of, at the outline of that face.
"""

from __future__ import annotations

from typing import Any

from ...ir import Scalar, absolute, carry, clip, loop, maximum, minimum, select, sqrt
from ...schema.layout import ShapeKind
from ..math.spatial import UNIT, ZERO3, Vec, add, cross, dot, scale, sub, unrotate
from .hull_features import (
    NOTHING,
    Outline,
    Spread,
    body,
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
)
from .hull_pairs import SLOTS, contacts_of_hulls, prism, search_hulls
from .solids import EDGE, FACE, FAR, Hull, Pair, Solid, Touch

MEETING = 1 + FACE + 6  # features of one contact of a round shape: what meets, a face, the ends of an edge
# A ball at a face, at an edge; the axis of a capsule over the outline of a face, beside an edge, behind an edge.
NONE, ON_FACE, ON_EDGE, OUTLINE, SIDE, INSIDE = 0.0, 1.0, 2.0, 3.0, 4.0, 5.0


# ------------------------------------------------------------------------------------------ spheres


def search_sphere(sphere: Solid, solid: Solid, _: Hull, hull: Hull) -> Vec:
    center = unrotate(solid.axes, sub(sphere.center, solid.center))
    return _nearest(center, sphere.size[0], solid.size, hull)[1]


def contacts_of_sphere(sphere: Solid, solid: Solid, features: Vec) -> list[Touch]:
    return [Touch(*_ball(sphere.center, sphere.size[0], solid, features))]


def _nearest(x: Vec, radius: Scalar, size: Vec, hull: Hull) -> tuple[Scalar, Vec]:
    """How far the center x of a ball (in the hull's axes) is from the scaled hull, and what is nearest: features."""
    face, beyond, edge = carry(1 + FACE), carry(1), carry(7)
    face.put(0, (NOTHING,) + (0.0,) * FACE)
    for k in loop(hull.face_count):
        record = hull.faces.get(k, FACE)
        height = dot(unit(over(record[:3], size)), sub(x, times(size, record[3:])))
        face.put(0, choose(height > face[0], (height, *record), face.get(0, 1 + FACE)))
    height, *outermost = face.get(0, 1 + FACE)
    normal = unit(over(outermost[:3], size))
    # If a face is nearest, then it is the one that x is most in front of; but is the foot of x on it?
    foot = sub(x, scale(height, normal))
    beyond[0] = NOTHING
    for k in loop(hull.face_count):
        record = hull.faces.get(k, FACE)
        beyond[0] = maximum(beyond[0], dot(unit(over(record[:3], size)), sub(foot, times(size, record[3:]))))
    on_face = (height <= 1e-4 * radius) | (beyond[0] <= 1e-6 * height)
    edge.put(0, (FAR,) + (0.0,) * 6)
    for k in loop(hull.edge_count):
        ends = hull.edges.get(k, EDGE)[:6]
        apart = sub(x, _on_segment(x, times(size, ends[:3]), times(size, ends[3:])))
        distance2 = dot(apart, apart)
        edge.put(0, choose(distance2 < edge[0], (distance2, *ends), edge.get(0, 7)))
    distance2, *ends = edge.get(0, 7)
    distance = select(on_face, height, sqrt(distance2))
    return distance, (select(on_face, ON_FACE, ON_EDGE), *outermost, *ends)


def _on_segment(x: Vec, p: Vec, q: Vec) -> Vec:
    """The point of the segment p q nearest to x."""
    along = sub(q, p)
    return add(p, scale(clip(dot(along, sub(x, p)) / guarded(dot(along, along)), 0.0, 1.0), along))


def _ball(center: Vec, radius: Scalar, solid: Solid, meeting: Vec) -> tuple[Scalar, Vec, Vec]:
    """(gap, point, normal) of a ball at a face, or at an edge or its end."""
    normal, level = facing(solid, meeting[1:4]), placed(solid, meeting[4:7])
    q = _on_segment(center, placed(solid, meeting[7:10]), placed(solid, meeting[10:]))
    on_face = meeting[0] == ON_FACE
    apart = choose(on_face, normal, sub(center, q))
    height = select(on_face, dot(normal, sub(center, level)), length(apart))
    normal = choose(on_face, normal, unit(apart))
    gap = height - radius
    return gap, sub(center, scale(radius + 0.5 * gap, normal)), normal


# ------------------------------------------------------------------------------------------ capsules


def _axis(capsule: Solid) -> tuple[Vec, Vec]:
    """The ends of a capsule's axis: the centers of its end spheres."""
    half = scale(0.5 * capsule.size[1], capsule.axes[2::3])
    return sub(capsule.center, half), add(capsule.center, half)


def search_capsule(capsule: Solid, solid: Solid, _: Hull, hull: Hull) -> Vec:
    """Features of three contacts: near the start of the axis, near its end, and in between."""
    p, q = (unrotate(solid.axes, sub(end, solid.center)) for end in _axis(capsule))
    radius, size = capsule.size[0], solid.size
    separation, face = _widest_face(p, q, size, hull)
    depth, side = _beside(p, q, radius, solid, hull, separation)
    # Of an end that sticks out of the face the capsule lies on, the outline of that face may be nearer to the axis.
    face = choose(depth > separation, side[1 : 1 + FACE], face)
    normal = unit(over(face[:3], size))
    up = unit(over(normal, size))
    outline = Outline()
    outline.find(hull, face[:3], up, True)
    left = outline.clip(over(p, size), over(q, size))
    over_face = left.cut0 + left.cut1 <= 1.0
    meetings = []
    for end, other, cut, edge in ((p, q, left.cut0, left.edge0), (q, p, left.cut1, left.edge1)):
        distance, meeting = _nearest(end, radius, size, hull)
        at_outline = add(end, scale(cut, sub(other, end)))
        height = dot(normal, sub(at_outline, times(size, face[3:])))
        lower = (height < distance) & (height > maximum(depth, separation) - 0.1 * radius)
        again = sub(add(edge[:3], edge[3:]), add(side[1 + FACE : 4 + FACE], side[4 + FACE :]))
        new = (side[0] < 0.5) | (dot(again, again) > 0.0)  # not the edge that it touches anyway
        nearer = over_face & (cut > 0.0) & lower & new
        meetings.append(choose(nearer, (OUTLINE, *face, *edge), meeting))
    return (*meetings[0], *meetings[1], *side)


def _widest_face(p: Vec, q: Vec, size: Vec, hull: Hull) -> tuple[Scalar, Vec]:
    """The greatest separation of the segment p q from a face, and that face."""
    best = carry(1 + FACE)
    best.put(0, (NOTHING,) + (0.0,) * FACE)
    for k in loop(hull.face_count):
        face = hull.faces.get(k, FACE)
        n, level = unit(over(face[:3], size)), times(size, face[3:])
        separation = minimum(dot(n, sub(p, level)), dot(n, sub(q, level)))
        best.put(0, choose(separation > best[0], (separation, *face), best.get(0, 1 + FACE)))
    found = best.get(0, 1 + FACE)
    return found[0], found[1:]


def _beside(p: Vec, q: Vec, radius: Scalar, solid: Solid, hull: Hull, separation: Scalar) -> tuple[Scalar, Vec]:
    """The contact between the ends of the axis p q, and the greatest separation of its line across an edge.

    The contact is with the nearest edge, or, if the axis is (nearly) in the hull, with the edge across which it is
    least deep, if it is less deep so than behind the widest face. The features also have the face at that edge that is
    most along the axis.
    """
    size, outside, inside, ahead = solid.size, carry(7), carry(10), carry(1)
    outside.put(0, (FAR,) + (0.0,) * 6)
    inside.put(0, (NOTHING,) + (0.0,) * 9)
    along, inner = sub(q, p), times(size, body(solid, hull).inner)
    for k in loop(hull.edge_count):
        edge = hull.edges.get(k, EDGE)
        e0, e1 = times(size, edge[:3]), times(size, edge[3:6])
        s, t = _closest(p, along, e0, sub(e1, e0))
        apart = sub(add(p, scale(s, along)), add(e0, scale(t, sub(e1, e0))))
        distance2 = dot(apart, apart)
        outside.put(0, choose(distance2 < outside[0], (distance2, *edge[:6]), outside.get(0, 7)))
        # Seen along the axis, the edge is on the silhouette if one of its faces is seen and the other is not.
        axis = cross(sub(e1, e0), along)
        n1, n2 = unit(over(edge[6:9], size)), unit(over(edge[9:12], size))
        slope1, slope2 = dot(n1, along), dot(n2, along)
        flat = choose(absolute(slope1) < absolute(slope2), edge[6:9], edge[9:12])
        inward = dot(axis, sub(inner, e0)) > 0.0
        depth = dot(axis, sub(p, e0)) / length(axis)
        depth = select(inward, -depth, depth)
        ends = choose(inward, (*edge[3:6], *edge[:3]), edge[:6])  # edge × axis is outward
        better = (slope1 * slope2 < 0.0) & (depth > inside[0])
        inside.put(0, choose(better, (depth, *flat, *ends), inside.get(0, 10)))

    def where(edge: Vec) -> tuple[Vec, Vec, Any]:
        """The closest point of the axis, that of the edge, and whether they are between their ends."""
        e0, e1 = times(size, edge[:3]), times(size, edge[3:])
        s, t = _closest(p, along, e0, sub(e1, e0))
        margin = 1e-3 * radius / length(along)
        return add(p, scale(s, along)), add(e0, scale(t, sub(e1, e0))), (s > margin) & (s < 1.0 - margin)

    distance2, *edge = outside.get(0, 7)
    x, y, between = where(tuple(edge))
    apart = sub(x, y)
    ahead[0] = NOTHING  # is there more of the hull ahead of y, towards x? Then y is not its nearest point.
    for k in loop(hull.vertex_count):
        ahead[0] = maximum(ahead[0], dot(apart, sub(times(size, hull.vertices.get(k, 3)), y)))
    large = length(sub(inner, y))
    free = between & (distance2 > 0.01 * radius * radius) & (ahead[0] < 0.01 * large * sqrt(distance2))
    found = inside.get(0, 10)
    depth, flat, crossed = found[0], found[1:4], found[4:]
    _, _, between = where(crossed)
    stuck = between & (depth > separation - 1e-6 * large) & (depth < 0.2 * radius)
    what = select(free, SIDE, select(stuck, INSIDE, NONE))
    return depth, (what, *flat, *crossed[:3], *choose(free, tuple(edge), crossed))


def _closest(p: Vec, u: Vec, q: Vec, v: Vec) -> tuple[Scalar, Scalar]:
    """(s, t) in [0, 1]: where the segments p + s u and q + t v are closest; of parallel ones, somewhere in between."""
    r = sub(p, q)
    uu, vv, uv, ur, vr = dot(u, u), dot(v, v), dot(u, v), dot(u, r), dot(v, r)
    square = uu * vv - uv * uv
    skew = square > 1e-6 * uu * vv
    s = select(skew, clip((uv * vr - ur * vv) / select(skew, square, 1.0), 0.0, 1.0), 0.5)
    t = clip((uv * s + vr) / guarded(vv), 0.0, 1.0)
    return clip((uv * t - ur) / guarded(uu), 0.0, 1.0), t


def contacts_of_capsule(capsule: Solid, solid: Solid, features: Vec) -> list[Touch]:
    p, q = _axis(capsule)
    radius, along = capsule.size[0], sub(q, p)
    touches = []
    for k, end in enumerate((p, q)):
        what, *meeting = features[k * MEETING : (k + 1) * MEETING]
        normal = facing(solid, meeting[:3])
        e0, e1 = placed(solid, meeting[6:9]), placed(solid, meeting[9:])
        side = cross(sub(e1, e0), normal)
        crossing = clip(dot(side, sub(e0, p)) / guarded(dot(side, along)), 0.0, 1.0)
        at_outline = add(p, scale(crossing, along))
        center = choose(what == OUTLINE, at_outline, end)
        what = select(what == OUTLINE, ON_FACE, what)
        touches.append(Touch(*_ball(center, radius, solid, (what, *meeting))))
    what, *meeting = features[2 * MEETING :]
    e0, e1 = placed(solid, meeting[6:9]), placed(solid, meeting[9:])
    edge = sub(e1, e0)
    s, t = _closest(p, along, e0, edge)
    x = add(p, scale(s, along))
    apart = sub(x, add(e0, scale(t, edge)))
    inside = what == INSIDE
    normal = unit(choose(inside, cross(edge, along), apart))
    gap = dot(normal, apart) - radius
    used = what > 0.5
    point = choose(used, sub(x, scale(radius + 0.5 * gap, normal)), ZERO3)
    touches.append(Touch(select(used, gap, FAR), point, choose(used, normal, UNIT[2])))
    return touches


# ------------------------------------------------------------------------------------------ planes


def search_plane(solid: Solid, plane: Solid, hull: Hull, _: Hull) -> Vec:
    """Four times 1 (or 0: none) and a vertex: corners of the face at the lowest vertex that faces the plane most."""
    placed_hull, up = body(solid, hull), measured(solid, plane.center)
    face = opposite_face(placed_hull, plane.center, lowest_vertex(hull, up))
    points, outline = Spread(6, 1e-4 * reach(placed_hull)), Outline()
    outline.find(hull, face[:3], face[:3], True)
    t1, t2 = (times(solid.size, t) for t in tangents(unrotate(solid.axes, plane.center)))
    for searching in points.rounds():
        for on, v, _end in outline.edges():
            points.offer(on & searching, (dot(t1, v), dot(t2, v), dot(up, v), *v))
    return tuple(x for used, record in points.found() for x in (select(used, 1.0, 0.0), *record[3:]))


def contacts_with_plane(solid: Solid, plane: Solid, features: Vec) -> list[Touch]:
    normal, touches = plane.center, []
    for k in range(SLOTS):
        used, *vertex = features[4 * k : 4 * k + 4]
        x = placed(solid, vertex)
        gap = dot(normal, x) - plane.size[0]
        touch = choose(used > 0.5, (gap, *sub(x, scale(0.5 * gap, normal)), *normal), (FAR, *ZERO3, *UNIT[2]))
        touches.append(Touch(touch[0], touch[1:4], touch[4:]))
    return touches


# ------------------------------------------------------------------------------------------ cylinders as prisms


def _search_prisms(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    return search_hulls(prism(a), prism(b), hull_a, hull_b)


def _search_prism(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    return search_hulls(prism(a), b, hull_a, hull_b)


def _contacts_of_prisms(a: Solid, b: Solid, features: Vec) -> list[Touch]:
    return contacts_of_hulls(prism(a), prism(b), features)


def _contacts_of_prism(a: Solid, b: Solid, features: Vec) -> list[Touch]:
    return contacts_of_hulls(prism(a), b, features)


SPHERE, CAPSULE, CYLINDER, HULL, PLANE = ShapeKind
PAIRS_SOLID: dict[tuple[ShapeKind, ShapeKind], Pair] = {
    (SPHERE, HULL): Pair(1, contacts_of_sphere, search_sphere),
    (CAPSULE, HULL): Pair(3, contacts_of_capsule, search_capsule),
    (CYLINDER, CYLINDER): Pair(SLOTS, _contacts_of_prisms, _search_prisms),
    (CYLINDER, HULL): Pair(SLOTS, _contacts_of_prism, _search_prism),
    (HULL, HULL): Pair(SLOTS, contacts_of_hulls, search_hulls),
    (HULL, PLANE): Pair(SLOTS, contacts_with_plane, search_plane),
}
