"""A hull with a sphere or a capsule.

Spheres, and the ends of a capsule, touch the closest point of the hull exactly, on a face, an edge or a vertex; from
inside they are pushed out through the nearest face. A capsule also touches between its ends: at an edge or a vertex of
the hull and, lying on a face that it protrudes from, at the outline of that face.
"""

from __future__ import annotations

from typing import NamedTuple

from ....ir import Mask, Scalar, absolute, carry, clip, loop, maximum, minimum, select, sqrt
from ...math.arrays import split
from ...math.spatial import UNIT, ZERO3, Vec, add, cross, dot, scale, sub, unrotate
from ..solids import FACE, FAR, ContactPoint, Face, Hull, ShapePair, Solid
from .common import choose, guarded, guarded_length, over, times, unit
from .hull_features import NO_SCORE, FaceOutline, place_hull, placed, world_normal

# Types of a contact point. ON_FACE, ON_EDGE: a ball at a face or at an edge. Of a capsule's axis: OUTLINE, where it
# crosses the outline of a face; OUTSIDE_EDGE and INSIDE_EDGE, where it passes an edge outside or inside of the hull.
NONE, ON_FACE, ON_EDGE, OUTLINE, OUTSIDE_EDGE, INSIDE_EDGE = 0.0, 1.0, 2.0, 3.0, 4.0, 5.0

HULL_FEATURE = 1 + FACE + 6
"""Numbers of a `HullFeature`."""


class HullFeature(NamedTuple):
    """The feature of a hull that a ball or a capsule touches: type of the contact point, a face, and the ends of an
    edge (local)."""

    type: Scalar
    face: Face
    start: Vec
    end: Vec

    @classmethod
    def of(cls, numbers: Vec) -> HullFeature:
        """A view of HULL_FEATURE numbers."""
        type_, face, start, end = split(numbers, 1, FACE, 3, 3)
        return cls(type_[0], Face.of(face), start, end)

    @property
    def numbers(self) -> tuple[Scalar, ...]:
        return (self.type, *self.face.numbers, *self.start, *self.end)


# ------------------------------------------------------------------------------------------ spheres


def search_sphere_hull(sphere: Solid, solid: Solid, _: Hull, hull: Hull) -> Vec:
    """The feature closest to the center."""
    center = unrotate(solid.axes, sub(sphere.center, solid.center))
    return _closest_feature(center, sphere.size[0], solid.size, hull)[1].numbers


def sphere_hull(sphere: Solid, solid: Solid, features: Vec) -> list[ContactPoint]:
    return [_ball_hull(sphere.center, sphere.size[0], solid, HullFeature.of(features))]


def _closest_feature(x: Vec, radius: Scalar, size: Vec, hull: Hull) -> tuple[Scalar, HullFeature]:
    """Signed distance (m) from a hull scaled by `size`, and the closest feature. x: center of a ball, in the hull's
    axes; radius: of the ball, a length scale."""
    face, beyond, edge = carry(1 + FACE), carry(1), carry(7)
    face.put(0, (NO_SCORE,) + (0.0,) * FACE)
    for k in loop(hull.face_count):
        candidate = hull.face(k)
        height = dot(unit(over(candidate.normal, size)), sub(x, times(size, candidate.point)))
        face.put(0, choose(height > face[0], (height, *candidate.numbers), face.get(0, 1 + FACE)))
    height, *numbers = face.get(0, 1 + FACE)
    outermost = Face.of(numbers)
    normal = unit(over(outermost.normal, size))
    # If a face is closest, it is the one that x is highest above. It is closest if the foot of x lies on that face.
    foot = sub(x, scale(height, normal))
    beyond[0] = NO_SCORE
    for k in loop(hull.face_count):
        candidate = hull.face(k)
        beyond[0] = maximum(beyond[0], dot(unit(over(candidate.normal, size)), sub(foot, times(size, candidate.point))))
    on_face = (height <= 1e-4 * radius) | (beyond[0] <= 1e-6 * height)
    edge.put(0, (FAR,) + (0.0,) * 6)
    for k in loop(hull.edge_count):
        ends = hull.edge(k)
        apart = sub(x, _closest_on_segment(x, times(size, ends.start), times(size, ends.end)))
        distance2 = dot(apart, apart)
        edge.put(0, choose(distance2 < edge[0], (distance2, *ends.ends), edge.get(0, 7)))
    (distance2,), start, end = split(edge.get(0, 7), 1, 3, 3)
    distance = select(on_face, height, sqrt(distance2))
    return distance, HullFeature(select(on_face, ON_FACE, ON_EDGE), outermost, start, end)


def _closest_on_segment(x: Vec, p: Vec, q: Vec) -> Vec:
    """The point of the segment from p to q closest to x."""
    along = sub(q, p)
    return add(p, scale(clip(dot(along, sub(x, p)) / guarded(dot(along, along)), 0.0, 1.0), along))


def _ball_hull(center: Vec, radius: Scalar, solid: Solid, feature: HullFeature) -> ContactPoint:
    """A ball at a face, at an edge, or at an end of an edge."""
    normal, level = world_normal(solid, feature.face.normal), placed(solid, feature.face.point)
    q = _closest_on_segment(center, placed(solid, feature.start), placed(solid, feature.end))
    on_face = feature.type == ON_FACE
    apart = choose(on_face, normal, sub(center, q))
    height = select(on_face, dot(normal, sub(center, level)), guarded_length(apart))
    normal = choose(on_face, normal, unit(apart))
    gap = height - radius
    return ContactPoint(gap, sub(center, scale(radius + 0.5 * gap, normal)), normal)


# ------------------------------------------------------------------------------------------ capsules


def _axis_ends(capsule: Solid) -> tuple[Vec, Vec]:
    """The ends of a capsule's axis: the centers of its end caps (m)."""
    half = scale(0.5 * capsule.size[1], capsule.axes[2::3])
    return sub(capsule.center, half), add(capsule.center, half)


def search_capsule_hull(capsule: Solid, solid: Solid, _: Hull, hull: Hull) -> Vec:
    """Three features: those that touch the capsule near the start of its axis, near its end, and in between."""
    p, q = (unrotate(solid.axes, sub(end, solid.center)) for end in _axis_ends(capsule))
    radius, size = capsule.size[0], solid.size
    separation, face = _reference_face(p, q, size, hull)
    depth, between = _feature_between_ends(p, q, radius, solid, hull, separation)
    # An end that protrudes from the face the capsule lies on may be farther from the hull than the point of the axis
    # over the outline of that face: then the capsule touches at the outline.
    face = Face.of(choose(depth > separation, between.face.numbers, face.numbers))
    normal = unit(over(face.normal, size))
    up = unit(over(normal, size))
    outline = FaceOutline()
    outline.find(hull, face.normal, up, True)
    left = outline.clip(over(p, size), over(q, size))
    over_face = left.cut0 + left.cut1 <= 1.0
    features: list[Scalar] = []
    for end, other, cut, edge in ((p, q, left.cut0, left.edge0), (q, p, left.cut1, left.edge1)):
        distance, feature = _closest_feature(end, radius, size, hull)
        at_outline = add(end, scale(cut, sub(other, end)))
        height = dot(normal, sub(at_outline, times(size, face.point)))
        lower = (height < distance) & (height > maximum(depth, separation) - 0.1 * radius)
        difference = sub(add(edge[:3], edge[3:]), add(between.start, between.end))
        # The third contact point may be at this edge already.
        new = (between.type < 0.5) | (dot(difference, difference) > 0.0)
        nearer = over_face & (cut > 0.0) & lower & new
        features += choose(nearer, (OUTLINE, *face.numbers, *edge), feature.numbers)
    return (*features, *between.numbers)


def _reference_face(p: Vec, q: Vec, size: Vec, hull: Hull) -> tuple[Scalar, Face]:
    """The greatest separation (m) of the segment from p to q along a face normal, and that face."""
    best = carry(1 + FACE)
    best.put(0, (NO_SCORE,) + (0.0,) * FACE)
    for k in loop(hull.face_count):
        face = hull.face(k)
        n, level = unit(over(face.normal, size)), times(size, face.point)
        separation = minimum(dot(n, sub(p, level)), dot(n, sub(q, level)))
        best.put(0, choose(separation > best[0], (separation, *face.numbers), best.get(0, 1 + FACE)))
    found = best.get(0, 1 + FACE)
    return found[0], Face.of(found[1:])


def _feature_between_ends(
    p: Vec, q: Vec, radius: Scalar, solid: Solid, hull: Hull, separation: Scalar
) -> tuple[Scalar, HullFeature]:
    """The greatest separation (m) of the capsule's axis along a cross product with an edge, and the feature that
    touches the capsule between the ends p and q of its axis.

    The feature is the closest edge. If the axis is inside the hull, or nearly, it is the edge across which the axis is
    least deep, if it is less deep there than behind the reference face (`separation`, m). The feature's face is the
    face at that edge that is most parallel to the axis.
    """
    size, outside, inside, ahead = solid.size, carry(7), carry(10), carry(1)
    outside.put(0, (FAR,) + (0.0,) * 6)
    inside.put(0, (NO_SCORE,) + (0.0,) * 9)
    along, interior = sub(q, p), times(size, place_hull(solid, hull).interior)
    for k in loop(hull.edge_count):
        edge = hull.edge(k)
        e0, e1 = times(size, edge.start), times(size, edge.end)
        s, t = _closest_parameters(p, along, e0, sub(e1, e0))
        apart = sub(add(p, scale(s, along)), add(e0, scale(t, sub(e1, e0))))
        distance2 = dot(apart, apart)
        outside.put(0, choose(distance2 < outside[0], (distance2, *edge.ends), outside.get(0, 7)))
        # Seen along the axis, the edge is on the silhouette if one of its faces looks forward and the other back.
        axis = cross(sub(e1, e0), along)
        n1, n2 = unit(over(edge.first_normal, size)), unit(over(edge.second_normal, size))
        slope1, slope2 = dot(n1, along), dot(n2, along)
        flat = choose(absolute(slope1) < absolute(slope2), edge.first_normal, edge.second_normal)
        inward = dot(axis, sub(interior, e0)) > 0.0
        depth = dot(axis, sub(p, e0)) / guarded_length(axis)
        depth = select(inward, -depth, depth)
        ends = choose(inward, (*edge.end, *edge.start), edge.ends)  # edge × axis points outward
        better = (slope1 * slope2 < 0.0) & (depth > inside[0])
        inside.put(0, choose(better, (depth, *flat, *ends), inside.get(0, 10)))

    def closest(start: Vec, end: Vec) -> tuple[Vec, Vec, Mask]:
        """The closest points of the axis and of an edge, and whether the one of the axis is between its ends."""
        e0, e1 = times(size, start), times(size, end)
        s, t = _closest_parameters(p, along, e0, sub(e1, e0))
        margin = 1e-3 * radius / guarded_length(along)
        return add(p, scale(s, along)), add(e0, scale(t, sub(e1, e0))), (s > margin) & (s < 1.0 - margin)

    (distance2,), *nearest = split(outside.get(0, 7), 1, 3, 3)
    x, y, between = closest(*nearest)
    apart = sub(x, y)
    ahead[0] = NO_SCORE  # if parts of the hull are ahead of y, towards x, then y is not the hull's closest point
    for k in loop(hull.vertex_count):
        ahead[0] = maximum(ahead[0], dot(apart, sub(times(size, hull.vertex(k)), y)))
    large = guarded_length(sub(interior, y))
    free = between & (distance2 > 0.01 * radius * radius) & (ahead[0] < 0.01 * large * sqrt(distance2))
    (depth,), flat, *crossed = split(inside.get(0, 10), 1, 3, 3, 3)
    _, _, between = closest(*crossed)
    stuck = between & (depth > separation - 1e-6 * large) & (depth < 0.2 * radius)
    type_ = select(free, OUTSIDE_EDGE, select(stuck, INSIDE_EDGE, NONE))
    start, end = split(choose(free, (*nearest[0], *nearest[1]), (*crossed[0], *crossed[1])), 3, 3)
    return depth, HullFeature(type_, Face(flat, crossed[0]), start, end)


def _closest_parameters(p: Vec, u: Vec, q: Vec, v: Vec) -> tuple[Scalar, Scalar]:
    """(s, t) in [0, 1] of the closest points p + s u and q + t v of two segments; of parallel segments, any pair
    of closest points."""
    r = sub(p, q)
    uu, vv, uv, ur, vr = dot(u, u), dot(v, v), dot(u, v), dot(u, r), dot(v, r)
    square = uu * vv - uv * uv
    skew = square > 1e-6 * uu * vv
    s = select(skew, clip((uv * vr - ur * vv) / select(skew, square, 1.0), 0.0, 1.0), 0.5)
    t = clip((uv * s + vr) / guarded(vv), 0.0, 1.0)
    return clip((uv * t - ur) / guarded(uu), 0.0, 1.0), t


def capsule_hull(capsule: Solid, solid: Solid, features: Vec) -> list[ContactPoint]:
    """Contact points near the two ends of the capsule's axis, and between them."""
    p, q = _axis_ends(capsule)
    radius, along = capsule.size[0], sub(q, p)
    *at_ends, between = (HullFeature.of(numbers) for numbers in split(features, *[HULL_FEATURE] * 3))
    points = []
    for feature, end in zip(at_ends, (p, q), strict=True):
        normal = world_normal(solid, feature.face.normal)
        e0, e1 = placed(solid, feature.start), placed(solid, feature.end)
        side = cross(sub(e1, e0), normal)
        crossing = clip(dot(side, sub(e0, p)) / guarded(dot(side, along)), 0.0, 1.0)
        at_outline = add(p, scale(crossing, along))
        center = choose(feature.type == OUTLINE, at_outline, end)
        type_ = select(feature.type == OUTLINE, ON_FACE, feature.type)
        points.append(_ball_hull(center, radius, solid, feature._replace(type=type_)))
    e0, e1 = placed(solid, between.start), placed(solid, between.end)
    edge = sub(e1, e0)
    s, t = _closest_parameters(p, along, e0, edge)
    x = add(p, scale(s, along))
    apart = sub(x, add(e0, scale(t, edge)))
    inside = between.type == INSIDE_EDGE
    normal = unit(choose(inside, cross(edge, along), apart))
    gap = dot(normal, apart) - radius
    used = between.type > 0.5
    position = choose(used, sub(x, scale(radius + 0.5 * gap, normal)), ZERO3)
    points.append(ContactPoint(select(used, gap, FAR), position, choose(used, normal, UNIT[2])))
    return points


SPHERE_HULL = ShapePair(1, sphere_hull, search_sphere_hull)
CAPSULE_HULL = ShapePair(3, capsule_hull, search_capsule_hull)
