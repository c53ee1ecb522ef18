"""Polygons with circles, half-planes and each other, in 2D.

Every contact point of a polygon is that of a point (a corner, or the center of a circle) and an edge. Above the edge
the normal is that of the edge; beyond its ends it points away from the corner there, so that distances are exact. The
searches find the closest edges. These are the features: their corners in the polygons' local coordinates, unscaled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ....ir import Scalar, carry, clip, loop, maximum, minimum, select, sqrt
from ...math.arrays import split
from ...math.spatial import Vec, add, dot, scale, sub
from ..solids import ContactPoint, Hull, ShapePair, Solid
from .common import choose, direction_of, merge_near


class PolygonEdge(NamedTuple):
    """An edge of a polygon: its ends [2], counter-clockwise."""

    start: Vec
    end: Vec

    @classmethod
    def of(cls, numbers: Vec) -> PolygonEdge:
        """A view of four numbers."""
        return cls(numbers[:2], numbers[2:])

    @property
    def numbers(self) -> tuple[Scalar, ...]:
        return (*self.start, *self.end)


# ------------------------------------------------------------------------------------------ pieces


def to_world(solid: Solid, a: Vec) -> Vec:
    """A vector [2] in a solid's axes, in world axes."""
    R = solid.axes
    return (R[0] * a[0] + R[1] * a[1], R[3] * a[0] + R[4] * a[1])


def to_local(solid: Solid, a: Vec) -> Vec:
    """A vector [2] in world axes, in a solid's axes."""
    R = solid.axes
    return (R[0] * a[0] + R[3] * a[1], R[1] * a[0] + R[4] * a[1])


def scaled(solid: Solid, corner: Vec) -> Vec:
    """A vector [2] times the solid's size, elementwise."""
    return (solid.size[0] * corner[0], solid.size[1] * corner[1])


def placed(solid: Solid, corner: Vec) -> Vec:
    """World position [2] of a corner."""
    return add(solid.center[:2], to_world(solid, scaled(solid, corner)))


def right_of(a: Vec) -> Vec:
    """a, rotated by -90°: from the direction of a counter-clockwise edge to its outward normal."""
    return (a[1], -a[0])


def point_edge(point: Vec, edge: PolygonEdge, slack: float = 0.0) -> tuple[Scalar, Vec]:
    """Signed distance (m) of a point from an edge, negative behind it, and its gradient (a unit vector).

    slack: the edge is extended at both ends by this fraction of its length, so that a corner right above one of its
    ends counts as above it, in spite of rounding.
    """
    start, end = edge
    along, offset = sub(end, start), sub(point, start)
    inverse = 1.0 / sqrt(dot(along, along))
    part = dot(offset, along) * (inverse * inverse)
    outward = scale(inverse, right_of(along))
    height = dot(offset, outward)
    beyond = (part < -slack) | (part > 1.0 + slack)
    nearest = clip(part, 0.0, 1.0)
    corner = tuple(select(beyond, o - nearest * x, n) for o, x, n in zip(offset, along, outward, strict=True))
    distance, direction = direction_of(corner, outward)
    return select(beyond, distance, height), choose(beyond, direction, outward)


def contact_at(gap: Scalar, witness: Vec, normal: Vec) -> ContactPoint:
    """The contact point whose witness point on the first solid is given [2]."""
    x, y = (p - 0.5 * gap * n for p, n in zip(witness, normal, strict=True))
    return ContactPoint(gap, (x, y, 0.0), (*normal, 0.0))


# ------------------------------------------------------------------------------------------ searches


class Minimizer:
    """A minimum over a loop: keeps the least key so far, and the `width` numbers that came with it."""

    def __init__(self, width: int) -> None:
        self.width, self.state = width, carry(width + 1)
        self.state.put(0, (1e30,) + (0.0,) * width)

    def offer(self, key: Scalar, values: Vec) -> None:
        """A candidate."""
        less, old = key < self.state[0], self.state.get(0, self.width + 1)
        self.state.put(0, choose(less, (key, *values), old))

    def get(self) -> tuple[Scalar, Vec]:
        """The least key, and its numbers."""
        key, *values = self.state.get(0, self.width + 1)
        return key, tuple(values)


def edges(hull: Hull) -> Iterator[PolygonEdge]:
    """The edges of a polygon, counter-clockwise, in local coordinates."""
    start = carry(2)
    start.put(0, hull.vertex(hull.vertex_count - 1)[:2])
    for k in loop(hull.vertex_count):
        previous, corner = start.get(0, 2), hull.vertex(k)[:2]
        start.put(0, corner)
        yield PolygonEdge(previous, corner)


def incident_edge(solid: Solid, hull: Hull, normal: Vec) -> Vec:
    """The edge of a polygon whose midpoint is lowest along a world direction: the support of the polygon along -normal,
    and the lower one of its neighbours."""
    x, y = scaled(solid, to_local(solid, normal))
    best = Minimizer(4)
    for start, end in edges(hull):
        best.offer(x * (start[0] + end[0]) + y * (start[1] + end[1]), (*start, *end))
    return best.get()[1]


# ------------------------------------------------------------------------------------------ circle and polygon


def search_circle_polygon(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    """The edge closest to the circle's center, which may be outside or inside the polygon."""
    center = to_local(b, sub(a.center[:2], b.center[:2]))
    best = Minimizer(4)
    for start, end in edges(hull_b):
        offset, along = sub(center, scaled(b, start)), scaled(b, sub(end, start))
        part = clip(dot(offset, along) / dot(along, along), 0.0, 1.0)
        away = tuple(o - part * x for o, x in zip(offset, along, strict=True))
        best.offer(dot(away, away), (*start, *end))
    return best.get()[1]


def circle_polygon(a: Solid, b: Solid, features: Vec) -> list[ContactPoint]:
    center, radius, edge = a.center[:2], a.size[0], PolygonEdge.of(features)
    distance, normal = point_edge(center, PolygonEdge(placed(b, edge.start), placed(b, edge.end)))
    witness = tuple(c - radius * n for c, n in zip(center, normal, strict=True))
    return [contact_at(distance - radius, witness, normal)]


# ------------------------------------------------------------------------------------------ polygon and half-plane


def search_polygon_plane(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    return incident_edge(a, hull_a, b.center[:2])


def polygon_plane(a: Solid, b: Solid, features: Vec) -> list[ContactPoint]:
    """Both ends of the incident edge."""
    normal, edge = b.center[:2], PolygonEdge.of(features)
    ends = (placed(a, edge.start), placed(a, edge.end))
    return [contact_at(dot(normal, end) - b.size[0], end, normal) for end in ends]


# ------------------------------------------------------------------------------------------ two polygons


def _reference_edge(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> tuple[Scalar, Vec]:
    """Minus the greatest separation (m) of b from a along an edge normal of a, and that edge."""
    between = to_local(a, sub(b.center[:2], a.center[:2]))
    best = Minimizer(4)
    for start, end in edges(hull_a):
        along = scaled(a, sub(end, start))
        inverse = 1.0 / sqrt(dot(along, along))
        outward = scale(inverse, right_of(along))
        x, y = scaled(b, to_local(b, to_world(a, outward)))
        nearest = carry(1)
        nearest[0] = 1e30
        for k in loop(hull_b.vertex_count):
            corner = hull_b.vertex(k)
            nearest[0] = minimum(nearest[0], x * corner[0] + y * corner[1])
        separation = nearest[0] + dot(outward, sub(between, scaled(a, start)))
        best.offer(-separation, (*start, *end))
    return best.get()


def search_polygon_polygon(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    """The reference edge, along whose normal the polygons are separated the most (or penetrate the least), and the
    incident edge of the other polygon. Features: 1 if the reference edge is b's, else 0; reference edge; incident edge.
    """
    key_a, edge_a = _reference_edge(a, b, hull_a, hull_b)
    key_b, edge_b = _reference_edge(b, a, hull_b, hull_a)
    swap = key_b < key_a
    along_a, along_b = (
        scaled(solid, sub(edge.end, edge.start))
        for solid, edge in ((a, PolygonEdge.of(edge_a)), (b, PolygonEdge.of(edge_b)))
    )
    incident_a = incident_edge(b, hull_b, to_world(a, right_of(along_a)))
    incident_b = incident_edge(a, hull_a, to_world(b, right_of(along_b)))
    return (select(swap, 1.0, 0.0), *choose(swap, edge_b, edge_a), *choose(swap, incident_b, incident_a))


def polygon_polygon(a: Solid, b: Solid, features: Vec) -> list[ContactPoint]:
    """Clip the incident edge to the reference edge. At each end of the overlap one of the two edges ends, and its
    corner touches the other edge. Where the overlap vanishes, two corners touch, and the two contact points merge."""
    (of_b,), *edges_of_features = split(features, 1, 4, 4)
    swap = of_b > 0.5
    mine, other = (Solid(*(choose(swap, *x) for x in zip(*pair, strict=True))) for pair in ((b, a), (a, b)))
    local_reference, local_incident = (PolygonEdge.of(edge) for edge in edges_of_features)
    reference = PolygonEdge(placed(mine, local_reference.start), placed(mine, local_reference.end))
    incident = PolygonEdge(placed(other, local_incident.start), placed(other, local_incident.end))
    along, facing = sub(reference.end, reference.start), sub(incident.end, incident.start)
    squared = dot(along, along)
    # The ends of the incident edge, projected onto the reference edge (0 to 1); the two edges run in opposite senses.
    first, last = (dot(sub(corner, reference.start), along) / squared for corner in incident)
    sign = 2.0 * of_b - 1.0  # from the reference edge's outward normal to the contact normal, towards a
    points = []
    # At each end of the overlap: whether the reference edge ends first, the incident corner, and the reference corner.
    # The first point is where a's edge ends and b's starts, whichever is the reference: points keep their slots.
    overlap_ends = (
        (select(first > 1.0, 1.0, 0.0), *incident.start, *reference.end),
        (select(last < 0.0, 1.0, 0.0), *incident.end, *reference.start),
    )
    for ended, *corners in (choose(swap, *reversed(overlap_ends)), choose(swap, *overlap_ends)):
        beyond, incident_corner, reference_corner = ended > 0.5, corners[:2], corners[2:]
        corner = choose(beyond, reference_corner, incident_corner)
        start, end = choose(beyond, incident.start, reference.start), choose(beyond, incident.end, reference.end)
        gap, outward = point_edge(corner, PolygonEdge(start, end), slack=1e-9)
        x, y = (p - 0.5 * gap * n for p, n in zip(corner, outward, strict=True))
        s = select(beyond, -sign, sign)
        points.append(ContactPoint(gap, (x, y, 0.0), (s * outward[0], s * outward[1], 0.0)))
    size = sqrt(minimum(squared, dot(facing, facing)))
    overlap = sqrt(squared) * (minimum(first, 1.0) - maximum(last, 0.0))
    return merge_near(points, overlap, size)


CIRCLE_POLYGON = ShapePair(1, circle_polygon, search_circle_polygon)
POLYGON_PLANE = ShapePair(2, polygon_plane, search_polygon_plane)
POLYGON_POLYGON = ShapePair(2, polygon_polygon, search_polygon_polygon)
