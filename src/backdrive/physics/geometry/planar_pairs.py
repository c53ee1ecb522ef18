"""Where polygons touch circles, half-planes and each other, in 2D.

Every contact of a polygon is one of a point (a corner, or the center of a circle) with an edge. Inside an edge's width
the normal is the edge's; beyond its ends it points from the corner there: distances are exact. `search` finds the edges
that meet; they are the features: corners in the polygons' own coordinates, before they are scaled.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir import Scalar, carry, clip, loop, maximum, minimum, select, sqrt
from ...schema.layout import ShapeKind
from ..math.spatial import Vec, add, dot, scale, sub
from .round_pairs import direction_of, sphere_plane, sphere_sphere, two_or_one
from .solids import Hull, Pair, Solid, Touch

Edge = tuple[Vec, Vec]  # its ends, counter-clockwise


# ------------------------------------------------------------------------------------------ pieces


def turn(solid: Solid, a: Vec) -> Vec:
    """From a solid's axes to the world's."""
    R = solid.axes
    return (R[0] * a[0] + R[1] * a[1], R[3] * a[0] + R[4] * a[1])


def turn_back(solid: Solid, a: Vec) -> Vec:
    """From the world's axes to a solid's."""
    R = solid.axes
    return (R[0] * a[0] + R[3] * a[1], R[1] * a[0] + R[4] * a[1])


def scaled(solid: Solid, corner: Vec) -> Vec:
    return (solid.size[0] * corner[0], solid.size[1] * corner[1])


def placed(solid: Solid, corner: Vec) -> Vec:
    """A corner in the world."""
    return add(solid.center[:2], turn(solid, scaled(solid, corner)))


def right_of(a: Vec) -> Vec:
    """a turned by -90°: from an edge to the outside."""
    return (a[1], -a[0])


def choose(condition: Scalar, a: Vec, b: Vec) -> Vec:
    return tuple(select(condition, x, y) for x, y in zip(a, b, strict=True))


def point_edge(point: Vec, edge: Edge, slack: float = 0.0) -> tuple[Scalar, Vec]:
    """The distance of a point from an edge (negative behind it), and the direction in which it grows.

    slack: the part of its length by which the edge is taken to be longer: a corner above its end is not beyond it.
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


def touch_at(gap: Scalar, surface: Vec, normal: Vec) -> Touch:
    """`surface`: the point of the first solid."""
    x, y = (p - 0.5 * gap * n for p, n in zip(surface, normal, strict=True))
    return Touch(gap, (x, y, 0.0), (*normal, 0.0))


# ------------------------------------------------------------------------------------------ searches


class Best:
    """What a loop has found so far: the numbers that came with the least key."""

    def __init__(self, width: int) -> None:
        self.width, self.state = width, carry(width + 1)
        self.state.put(0, (1e30,) + (0.0,) * width)

    def offer(self, key: Scalar, values: Vec) -> None:
        less, old = key < self.state[0], self.state.get(0, self.width + 1)
        self.state.put(0, choose(less, (key, *values), old))

    def get(self) -> tuple[Scalar, Vec]:
        key, *values = self.state.get(0, self.width + 1)
        return key, tuple(values)


def edges(hull: Hull) -> Iterator[Edge]:
    """The edges of a polygon, from corner to corner, in its own coordinates."""
    start = carry(2)
    start.put(0, hull.vertices.get(hull.vertex_count - 1, 3)[:2])
    for k in loop(hull.vertex_count):
        before, corner = start.get(0, 2), hull.vertices.get(k, 3)[:2]
        start.put(0, corner)
        yield before, corner


def lowest_edge(solid: Solid, hull: Hull, up: Vec) -> Vec:
    """The lowest corner of a polygon along `up` and the lower one of its neighbours, in order: the edge that is lowest
    in the middle."""
    x, y = scaled(solid, turn_back(solid, up))
    best = Best(4)
    for start, end in edges(hull):
        best.offer(x * (start[0] + end[0]) + y * (start[1] + end[1]), (*start, *end))
    return best.get()[1]


# ------------------------------------------------------------------------------------------ circle and polygon


def search_circle_polygon(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    """The edge that is nearest to the center, whether that is outside or inside."""
    center = turn_back(b, sub(a.center[:2], b.center[:2]))
    best = Best(4)
    for start, end in edges(hull_b):
        offset, along = sub(center, scaled(b, start)), scaled(b, sub(end, start))
        part = clip(dot(offset, along) / dot(along, along), 0.0, 1.0)
        away = tuple(o - part * x for o, x in zip(offset, along, strict=True))
        best.offer(dot(away, away), (*start, *end))
    return best.get()[1]


def circle_polygon(a: Solid, b: Solid, features: Vec) -> list[Touch]:
    center, radius = a.center[:2], a.size[0]
    distance, normal = point_edge(center, (placed(b, features[:2]), placed(b, features[2:])))
    surface = tuple(c - radius * n for c, n in zip(center, normal, strict=True))
    return [touch_at(distance - radius, surface, normal)]


# ------------------------------------------------------------------------------------------ polygon and half-plane


def search_polygon_plane(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    return lowest_edge(a, hull_a, b.center[:2])


def polygon_plane(a: Solid, b: Solid, features: Vec) -> list[Touch]:
    """Both ends of the lowest edge."""
    normal = b.center[:2]
    ends = (placed(a, features[:2]), placed(a, features[2:]))
    return [touch_at(dot(normal, end) - b.size[0], end, normal) for end in ends]


# ------------------------------------------------------------------------------------------ two polygons


def _best_separation(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> tuple[Scalar, Vec]:
    """Minus the largest distance of b from the line of an edge of a, and that edge."""
    between = turn_back(a, sub(b.center[:2], a.center[:2]))
    best = Best(4)
    for start, end in edges(hull_a):
        along = scaled(a, sub(end, start))
        inverse = 1.0 / sqrt(dot(along, along))
        outward = scale(inverse, right_of(along))
        x, y = scaled(b, turn_back(b, turn(a, outward)))
        nearest = carry(1)
        nearest[0] = 1e30
        for k in loop(hull_b.vertex_count):
            corner = hull_b.vertices.get(k, 3)
            nearest[0] = minimum(nearest[0], x * corner[0] + y * corner[1])
        separation = nearest[0] + dot(outward, sub(between, scaled(a, start)))
        best.offer(-separation, (*start, *end))
    return best.get()


def search_polygon_polygon(a: Solid, b: Solid, hull_a: Hull, hull_b: Hull) -> Vec:
    """The reference edge: that from whose line the other polygon is farthest; and the other polygon's edge that faces
    it. 1 if the reference edge is b's, its ends, the ends of the other."""
    key_a, edge_a = _best_separation(a, b, hull_a, hull_b)
    key_b, edge_b = _best_separation(b, a, hull_b, hull_a)
    swap = key_b < key_a
    along_a, along_b = (scaled(s, sub(e[2:], e[:2])) for s, e in ((a, edge_a), (b, edge_b)))
    facing_a = lowest_edge(b, hull_b, turn(a, right_of(along_a)))
    facing_b = lowest_edge(a, hull_a, turn(b, right_of(along_b)))
    return (select(swap, 1.0, 0.0), *choose(swap, edge_b, edge_a), *choose(swap, facing_b, facing_a))


def polygon_polygon(a: Solid, b: Solid, features: Vec) -> list[Touch]:
    """The ends of the stretch over which the two edges face each other: there one of them ends, and its corner touches
    the other. Where no such stretch is left, two corners touch, and are one contact."""
    of_b, *corners = features
    swap = of_b > 0.5
    mine, other = (Solid(*(choose(swap, *x) for x in zip(*pair, strict=True))) for pair in ((b, a), (a, b)))
    start, end = placed(mine, corners[0:2]), placed(mine, corners[2:4])
    facing_start, facing_end = placed(other, corners[4:6]), placed(other, corners[6:8])
    along, facing = sub(end, start), sub(facing_end, facing_start)
    squared = dot(along, along)
    # Places of the facing edge's ends along the reference edge, from 0 to 1; it runs the other way.
    first, last = (dot(sub(corner, start), along) / squared for corner in (facing_start, facing_end))
    sign = 2.0 * of_b - 1.0  # from the reference edge's outward normal to the contact's
    touches = []
    # The first is where a's edge ends and b's starts, whichever is the reference edge: contacts keep their slots.
    ends = (select(first > 1.0, 1.0, 0.0), *facing_start, *end), (select(last < 0.0, 1.0, 0.0), *facing_end, *start)
    for ended, *places in (choose(swap, *reversed(ends)), choose(swap, *ends)):
        beyond, corner, end_of_mine = ended > 0.5, places[:2], places[2:]
        point = choose(beyond, end_of_mine, corner)
        edge = choose(beyond, facing_start, start), choose(beyond, facing_end, end)
        gap, outward = point_edge(point, edge, slack=1e-9)
        x, y = (p - 0.5 * gap * n for p, n in zip(point, outward, strict=True))
        s = select(beyond, -sign, sign)
        touches.append(Touch(gap, (x, y, 0.0), (s * outward[0], s * outward[1], 0.0)))
    size = sqrt(minimum(squared, dot(facing, facing)))
    stretch = sqrt(squared) * (minimum(first, 1.0) - maximum(last, 0.0))
    return two_or_one(touches, stretch, size)


S, H, P = ShapeKind.SPHERE, ShapeKind.HULL, ShapeKind.PLANE
PAIRS_2D: dict[tuple[ShapeKind, ShapeKind], Pair] = {
    (S, S): Pair(1, sphere_sphere),
    (S, H): Pair(1, circle_polygon, search_circle_polygon),
    (S, P): Pair(1, sphere_plane),
    (H, H): Pair(2, polygon_polygon, search_polygon_polygon),
    (H, P): Pair(2, polygon_plane, search_polygon_plane),
}
