"""Contact points of polygons: against brute force, closed forms and differences; floats against kernels."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from placed_pairs import NUMBERS, SEEDS, PlacedPair, about_z, check_motion, moved, numbers, solid

from backdrive.backends import Integer, Kernel, Rows, Table, run
from backdrive.ir import Floats
from backdrive.physics.geometry.pairs import PAIRS
from backdrive.physics.geometry.solids import FAR, Hull, Solid
from backdrive.schema.layout import ShapeKind

SPHERE, _, _, HULL, PLANE = ShapeKind
PAIRS_2D = PAIRS[2]
KINDS = pytest.mark.parametrize("kinds", list(PAIRS_2D), ids=lambda kinds: "-".join(k.name for k in kinds))
TIGHT = settings(max_examples=60, deadline=None)
UP = np.array([0.0, 1.0, 0.0])


def polygon(corners):
    """A hull [n, 2], counter-clockwise."""
    table = np.column_stack([corners, np.zeros(len(corners))])
    return Hull(len(table), Floats(table.ravel().tolist()), 0, None, 0, None)


def random_corners(rng, count):
    """Of an ellipse, around its middle, at angles that are neither too close nor too far from each other."""
    steps = rng.uniform(0.3, 1.0, count)
    angles = rng.uniform(0, 7) + np.cumsum(steps) * 2 * np.pi / steps.sum()
    return np.stack([np.cos(angles), np.sin(angles)], 1) * rng.uniform(0.2, 0.6, 2)


BOX = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])


def random_shape(rng, kind, spread=0.6):
    """A solid and the corners of its hull."""
    if kind == PLANE:
        angle = rng.uniform(0, 7)
        return solid([np.cos(angle), np.sin(angle), 0], size=(rng.uniform(-0.3, 0.3), 0, 0)), BOX
    center = [*rng.uniform(-spread, spread, 2), 0.0]
    size = rng.uniform(0.5, 1.5, 3) if kind == HULL else (rng.uniform(0.05, 0.4), 0.0, 0.0)
    return solid(center, about_z(rng.uniform(0, 7)), size), random_corners(rng, rng.integers(3, 8))


def placed(kinds, a, b, corners_a=BOX, corners_b=BOX):
    return PlacedPair(PAIRS_2D[kinds], a, b, polygon(corners_a), polygon(corners_b))


def random_pair(seed, kinds):
    rng = np.random.default_rng(seed)
    (a, corners_a), (b, corners_b) = (random_shape(rng, kind) for kind in kinds)
    return rng, placed(kinds, a, b, corners_a, corners_b), (corners_a, corners_b)


# ------------------------------------------------------------------------------------------ brute force


def world(s, corners):
    R = np.reshape(s.axes, (3, 3))[:2, :2]
    return np.array(s.center[:2]) + (corners * s.size[:2]) @ R.T


def depths(points, corners):
    """Height of every point above the line of every edge [points, edges]: all negative inside."""
    along = np.roll(corners, -1, 0) - corners
    outward = np.stack([along[:, 1], -along[:, 0]], 1) / np.linalg.norm(along, axis=1)[:, None]
    return np.einsum("pek,ek->pe", points[:, None] - corners, outward)


def distances(points, corners):
    """Distances of points from the outline."""
    along = np.roll(corners, -1, 0) - corners
    part = np.einsum("pek,ek->pe", points[:, None] - corners, along) / (along**2).sum(1)
    nearest = corners + np.clip(part, 0, 1)[..., None] * along
    return np.linalg.norm(points[:, None] - nearest, axis=-1).min(1)


def true_gap(kinds, a, b, corners_a, corners_b):
    """Distance, or minus the least translation that ends a penetration."""
    if kinds[1] == PLANE:
        points = world(a, corners_a) if kinds[0] == HULL else np.array([a.center[:2]])
        return (points @ b.center[:2]).min() - b.size[0] - (a.size[0] if kinds[0] == SPHERE else 0.0)
    if kinds == (SPHERE, SPHERE):
        return np.linalg.norm(np.subtract(a.center, b.center)) - a.size[0] - b.size[0]
    other = world(b, corners_b)
    if kinds[0] == SPHERE:
        center = np.array([a.center[:2]])
        inside = (depths(center, other) < 0).all()
        return (-1 if inside else 1) * distances(center, other)[0] - a.size[0]
    mine = world(a, corners_a)
    separation = max(depths(mine, other).min(0).max(), depths(other, mine).min(0).max())
    if separation <= 0.0:
        return separation
    return min(distances(mine, other).min(), distances(other, mine).min())


@KINDS
@TIGHT
@given(SEEDS)
def test_gap_by_brute_force(kinds, seed):
    _, both, corners = random_pair(seed, kinds)
    right = true_gap(kinds, *both.solids, *corners)
    assert abs(both.gap - right) < 1e-12
    deepest = both.points[both.deepest]
    if right > 0.0:  # the point is midway between the surfaces
        point = np.array([deepest.position[:2]])
        for kind, s, c in zip(kinds, both.solids, corners):
            if kind == HULL:
                assert abs(distances(point, world(s, c))[0] - 0.5 * right) < 1e-9
    # Moved out by the gap, they deepest.
    a, b = both.solids
    apart = placed(kinds, moved(a, np.eye(3), -both.gap * np.array(deepest.normal)), b, *corners)
    assert abs(apart.gap) < 1e-9


@KINDS
@TIGHT
@given(SEEDS)
def test_normals_and_gradients(kinds, seed):
    rng, both, _ = random_pair(seed, kinds)
    slots = [both.deepest] if fading(both) else None
    both.check_normals(2, slots)
    both.check_gradient(rng, slots=slots)
    assert all(t.position[2] == 0.0 and t.normal[2] == 0.0 for t in both.points)


def fading(both):
    """Whether two contact points of polygons are so near to each other that they merge."""
    if both.pair.slots == 1:
        return False
    apart = np.linalg.norm(np.subtract(*(t.position for t in both.points)))
    return apart < 0.1 or both.points[1 - both.deepest].gap == FAR


@KINDS
@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_motion_of_the_world(kinds, seed):
    rng, both, corners = random_pair(seed, kinds)
    R, x = about_z(rng.uniform(0, 7)), np.array([*rng.normal(size=2), 0.0])
    after = [moved(s, R, x, kind == PLANE) for kind, s in zip(kinds, both.solids)]
    check_motion(both, placed(kinds, *after, *corners), R, x)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_polygons_may_come_in_either_order(seed):
    _, both, (corners_a, corners_b) = random_pair(seed, (HULL, HULL))
    a, b = both.solids
    other = placed((HULL, HULL), b, a, corners_b, corners_a)
    # The first point is at the end of the first polygon's edge; where two points merge, either may remain.
    found, others = ([t for t in points if t.gap < FAR] for points in (both.points, reversed(other.points)))
    for s, t in zip(found, others, strict=True):
        assert abs(s.gap - t.gap) < 1e-12
        np.testing.assert_allclose(s.position, t.position, rtol=0, atol=1e-9)
        np.testing.assert_allclose(np.negative(s.normal), t.normal, rtol=0, atol=1e-9)


@KINDS
def test_nothing_is_undefined_when_degenerate(kinds):
    """Same centers, aligned edges, corners on corners, corners on edges, a center on a corner."""
    rng = np.random.default_rng(0)
    for x in (0.0, 0.25, 0.5, 1.0, 1.5):
        for y in (0.0, -0.5, 1.0):
            for angle in (0.0, np.pi / 4, np.pi / 2, np.pi):
                a = solid([x, y, 0], about_z(angle), (0.5 if kinds[0] == SPHERE else 1.0, 1.0, 1.0))
                b = solid(UP if kinds[1] == PLANE else [0, 0, 0], size=(1.0, 1.0, 1.0))
                both = placed(kinds, a, b)
                both.gradient(rng.normal(size=7 * both.pair.slots))
                np.testing.assert_allclose([np.linalg.norm(t.normal) for t in both.points], 1.0, rtol=1e-12)


@KINDS
@settings(max_examples=8, deadline=None)
@given(SEEDS)
def test_gaps_are_continuous(kinds, seed):
    rng = np.random.default_rng(seed)
    (a, corners_a), (b, corners_b) = (random_shape(rng, kind, 0.3) for kind in kinds)
    shift, gaps = rng.normal(size=3) * [1, 1, 0], []
    for t in np.linspace(-1, 1, 501):
        turned = solid(np.array(a.center) + t * shift, about_z(3 * t) @ np.reshape(a.axes, (3, 3)), a.size)
        gaps.append(placed(kinds, turned, b, corners_a, corners_b).gap)
    assert np.abs(np.diff(gaps)).max() < 4e-3 * (4.0 + np.linalg.norm(shift))


# ------------------------------------------------------------------------------------------ support


def places(both):
    return sorted((t.position[0], t.position[1]) for t in both.points if t.gap < 0.01)


@pytest.mark.parametrize("angle", [0.0, 1e-15, -1e-15, np.pi / 2, np.pi])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(("shift", "ends"), [(0.0, (-0.3, 0.3)), (0.8, (0.5, 1.0)), (-1.1, (-1.0, -0.8))])
def test_a_box_stands_on_a_longer_one(angle, flip, shift, ends):
    """At the ends of the common edge, whichever polygon has the reference edge, which rounding decides."""
    sizes = (0.6, 0.4, 1.0) if angle != np.pi / 2 else (0.4, 0.6, 1.0)
    top, bottom = solid([shift, 0.699, 0], about_z(angle), sizes), solid([0, 0, 0], size=(2.0, 1.0, 1.0))
    both = placed((HULL, HULL), *((bottom, top) if flip else (top, bottom)))
    np.testing.assert_allclose(places(both), [(ends[0], 0.4995), (ends[1], 0.4995)], rtol=0, atol=1e-9)
    np.testing.assert_allclose([t.gap for t in both.points], -0.001, rtol=0, atol=1e-9)
    np.testing.assert_allclose([t.normal for t in both.points], [-UP if flip else UP] * 2, rtol=0, atol=1e-9)
    both.check_normals(2)


def test_contacts_of_a_rocking_box_are_continuous():
    """While it tilts from one corner to the other, through the flat contact, both contact points stay in place."""
    bottom, found = solid([0, 0, 0], size=(2.0, 1.0, 1.0)), []
    for tilt in np.linspace(-0.05, 0.05, 201):
        both = placed((HULL, HULL), solid([0.3, 0.8, 0], about_z(tilt), (0.5, 0.6, 1.0)), bottom)
        found.append(sorted(numbers([t])[1:] + [t.gap] for t in both.points))
    assert np.abs(np.diff(found, axis=0)).max() < 2e-3


def test_corners_beside_corners_touch_once():
    both = placed((HULL, HULL), solid([1.03, 1.04, 0]), solid([0, 0, 0]))
    assert sum(t.gap < FAR for t in both.points) == 1
    assert abs(both.gap - 0.05) < 1e-12
    np.testing.assert_allclose(both.points[both.deepest].normal, [0.6, 0.8, 0.0], rtol=0, atol=1e-12)
    both.check_normals(2)


def test_a_polygon_on_a_plane_rests_on_its_lowest_edge():
    both = placed((HULL, PLANE), solid([1.0, 0.2, 0], about_z(np.pi / 2), (0.4, 0.6, 1.0)), solid(UP, size=(0, 0, 0)))
    np.testing.assert_allclose(places(both), [(0.7, 0.0), (1.3, 0.0)], rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------ kernels


@pytest.mark.parametrize("rolled", [True, False])
@pytest.mark.parametrize("kinds", [k for k in PAIRS_2D if HULL in k], ids=lambda kinds: "-".join(k.name for k in kinds))
def test_kernels_compute_the_same(kinds, rolled):
    """With counts of corners known at run time only, or unrolled; every lane finds its own features."""
    pair, rng = PAIRS_2D[kinds], np.random.default_rng(3)
    corners = [random_corners(rng, 5), random_corners(rng, 4)]
    tables = [np.column_stack([c, np.zeros(len(c))]).ravel() for c in corners]

    def body(x, y, table_a, table_b, n=5, m=4):
        solids = (Solid(s[:3], s[3:12], s[12:]) for s in (x.get(0, NUMBERS), x.get(1, NUMBERS)))
        a, b = solids
        hulls = Hull(n, table_a, 0, None, 0, None), Hull(m, table_b, 0, None, 0, None)
        y.put(0, numbers(pair.contacts(a, b, pair.search(a, b, *hulls))))

    counts = [Integer("n"), Integer("m")] if rolled else []
    arguments = [Rows("x"), Rows("y", writable=True), Table("table_a"), Table("table_b"), *counts]
    kernel = Kernel("planar", arguments, body, unroll=not rolled, key=f"{os.getpid()} {kinds} {rolled}")
    found = []
    for _ in range(100):
        a, b = (random_shape(rng, kind, 0.4)[0] for kind in kinds)
        found.append(placed(kinds, a, b, *corners))
    x = np.stack([both.x for both in found])
    y = np.empty((len(x), 7 * pair.slots))
    words = {name: (z.ctypes.data, z.shape[1], 0) for name, z in (("x", x), ("y", y))}
    words |= {"table_a": tables[0].ctypes.data, "table_b": tables[1].ctypes.data}
    run(kernel.build(64), len(x), 1, words | ({"n": 5, "m": 4} if rolled else {}))
    np.testing.assert_allclose(y, [numbers(both.points) for both in found], rtol=1e-9, atol=1e-9)
