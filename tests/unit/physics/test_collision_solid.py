"""Contact points of hulls: against brute-force separating axes, MuJoCo, closed forms, differences; and of kernels."""

import itertools
import os

import mujoco
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from backdrive.backends import Integer, Kernel, Rows, Table, run
from backdrive.ir import Floats, vjp
from backdrive.model.hull import convex_tables
from backdrive.physics.geometry.pairs import PAIRS
from backdrive.physics.geometry.pairs.hulls import BIAS, EDGES, INCIDENT
from backdrive.physics.geometry.solids import FAR, Hull, Solid
from backdrive.schema.layout import ShapeKind

SPHERE, CAPSULE, CYLINDER, HULL, PLANE = ShapeKind
PAIRS_SOLID = {kinds: pair for kinds, pair in PAIRS[3].items() if HULL in kinds or kinds == (CYLINDER, CYLINDER)}
I = np.eye(3)
seeds = st.integers(0, 2**32 - 1)

# ---------------------------------------------------------------------------------------------- hulls


def box_tables():
    """The unit cube: vertices [8, 3], faces [6, 6], edges [12, 12]."""
    vertices = np.array(list(itertools.product((-0.5, 0.5), repeat=3)))
    normals = np.concatenate([I, -I])
    edges = []
    for v, w in itertools.combinations(vertices, 2):
        if (v != w).sum() == 1:
            n1, n2 = (np.sign(v[k]) * I[k] for k in range(3) if v[k] == w[k])
            edges.append(np.concatenate([v, w, n1, n2]))
    return vertices, np.concatenate([normals, 0.5 * normals], 1), np.array(edges)


def prism_tables(sides=24):
    """A prism of radius and length 1 along z."""
    angles = 2 * np.pi * np.arange(sides) / sides
    ring = np.stack([np.cos(angles), np.sin(angles), 0 * angles], 1)
    middle = angles + np.pi / sides
    normals = np.stack([np.cos(middle), np.sin(middle), 0 * middle], 1)
    top, bottom = ring + 0.5 * I[2], ring - 0.5 * I[2]
    faces = [[*I[2], *0.5 * I[2]], [*-I[2], *-0.5 * I[2]]]
    edges = []
    for k in range(sides):
        l = (k + 1) % sides
        faces.append([*normals[k], *top[k]])
        edges.append([*top[k], *top[l], *normals[k], *I[2]])
        edges.append([*bottom[l], *bottom[k], *-I[2], *normals[k]])
        edges.append([*top[k], *bottom[k], *normals[k - 1], *normals[k]])
    return np.concatenate([top, bottom]), np.array(faces), np.array(edges)


def random_tables(rng, count=12):
    return tuple(convex_tables(rng.normal(size=(count, 3)) * rng.uniform(0.4, 1.0, 3)))


BOX, PRISM, ROD = box_tables(), prism_tables(), prism_tables(6)


def hull(tables):
    counted = [x for table in tables for x in (len(table), Floats(table.ravel()))]
    return Hull(*counted)


def solid(center, axes=I, size=(1.0, 1.0, 1.0)):
    return Solid(*(tuple(np.ravel(np.array(x, float)).tolist()) for x in (center, axes, size)))


def about(axis, angle):
    i, j = [k for k in range(3) if k != axis]
    R = np.eye(3)
    R[i, i] = R[j, j] = np.cos(angle)
    R[i, j], R[j, i] = -np.sin(angle), np.sin(angle)
    return R


def turned(rng):
    """A random rotation."""
    Q, R = np.linalg.qr(rng.normal(size=(3, 3)))
    Q = Q * np.sign(np.diag(R))
    return Q * np.linalg.det(Q)


def contact_points(kinds, a, b, tables_a=BOX, tables_b=BOX):
    """All slots, used or not."""
    pair = PAIRS_SOLID[kinds]
    found = pair.contacts(a, b, pair.search(a, b, hull(tables_a), hull(tables_b)))
    assert len(found) == pair.slots
    for t in found:
        assert np.isfinite(t.numbers).all()
        assert np.linalg.norm(t.normal) == pytest.approx(1.0)
    return found


def used(found):
    return [t for t in found if t.gap < FAR]


def corners(found, decimals=9):
    return sorted(tuple(np.round(t.position, decimals) + 0.0) for t in used(found))


# ---------------------------------------------------------------------------------------------- references


def factors(kind, size):
    return np.array([size[0], size[0], size[1]] if kind == CYLINDER else size)


def separation(a, b, tables_a, tables_b):
    """The greatest separation over all normals and all crosses of edges: brute force."""
    world, directions, lines = [], [], []
    for s, (vertices, faces, edges) in ((a, tables_a), (b, tables_b)):
        R, size = np.reshape(s.axes, (3, 3)), np.array(s.size)
        world.append((vertices * size) @ R.T + s.center)
        directions.append((faces[:, :3] / size) @ R.T)
        lines.append(((edges[:, 3:6] - edges[:, :3]) * size) @ R.T)
    crosses = np.cross(lines[0][:, None], lines[1][None]).reshape(-1, 3)
    crosses = crosses[np.linalg.norm(crosses, axis=1) > 1e-4]
    axes = np.concatenate([*directions, crosses, -crosses, -directions[0], -directions[1]])
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    return ((world[0] @ axes.T).min(0) - (world[1] @ axes.T).max(0)).max()


def mujoco_distance(kind, a, b):
    """Signed distance of a sphere or box from a box."""
    spec = mujoco.MjSpec()
    for k, s in ((kind, a), (HULL, b)):
        quaternion = np.zeros(4)
        mujoco.mju_mat2Quat(quaternion, np.array(s.axes))
        geom, size = mujoco.mjtGeom.mjGEOM_BOX, np.array(s.size) / 2
        if k == SPHERE:
            geom, size = mujoco.mjtGeom.mjGEOM_SPHERE, [s.size[0], 0, 0]
        spec.worldbody.add_geom(type=geom, size=size, pos=s.center, quat=quaternion)
    spec.option.ccd_tolerance = 1e-10
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    return mujoco.mj_geomDistance(model, data, 0, 1, 10.0, None)


def axis_distance(capsule, box):
    """Of a capsule's axis from a box: a convex function along the axis, so thirds of it can be left out."""
    R = np.reshape(box.axes, (3, 3)).T
    middle = R @ np.subtract(capsule.center, box.center)
    along = R @ np.reshape(capsule.axes, (3, 3))[:, 2] * capsule.size[1]

    def distance(t):
        return np.linalg.norm(np.maximum(np.abs(middle + t * along) - np.array(box.size) / 2, 0.0))

    low, high = -0.5, 0.5
    for _ in range(120):
        t, u = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, u) if distance(t) < distance(u) else (t, high)
    return distance(low)


# ---------------------------------------------------------------------------------------------- two hulls


def near(rng, tables_a, tables_b, kinds=(HULL, HULL), depth=0.2):
    """Two solids in random poses, moved so that they are up to `depth` in each other, or apart."""
    sizes = [rng.uniform(0.3, 1.2, 3) for _ in range(2)]
    a, b = (solid(np.zeros(3), turned(rng), s) for s in sizes)
    direction = rng.normal(size=3)
    direction /= np.linalg.norm(direction)
    as_hull = [Solid(s.center, s.axes, tuple(factors(k, s.size))) for k, s in zip(kinds, (a, b), strict=True)]
    low, high = 0.0, 10.0
    target = rng.uniform(-depth, depth)
    for _ in range(40):  # separations grow along the direction
        middle = 0.5 * (low + high)
        moved = as_hull[0]._replace(center=tuple(middle * direction))
        low, high = (middle, high) if separation(moved, as_hull[1], tables_a, tables_b) < target else (low, middle)
    offset = rng.normal(size=3)
    return a._replace(center=tuple((low * direction + offset).tolist())), b._replace(center=tuple(offset.tolist()))


def check_gap(kinds, a, b, tables_a, tables_b):
    found = used(contact_points(kinds, a, b, tables_a, tables_b))
    hulls = [s._replace(size=tuple(factors(k, s.size))) for k, s in zip(kinds, (a, b), strict=True)]
    truth = separation(*hulls, tables_a, tables_b)
    slack = 3 * BIAS * max(max(s.size) for s in hulls)
    gap = min(t.gap for t in found)
    assert gap > truth - slack
    if truth < 0.0:
        assert gap < truth + slack
    return gap, truth


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_boxes_against_all_axes(seed):
    rng = np.random.default_rng(seed)
    a, b = near(rng, BOX, BOX)
    gap, truth = check_gap((HULL, HULL), a, b, BOX, BOX)
    if truth > 0.0:
        assert gap < 3.0 * mujoco_distance(HULL, a, b) + 1e-3


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_convex_hulls_against_all_axes(seed):
    rng = np.random.default_rng(seed)
    tables = random_tables(rng), random_tables(rng)
    a, b = near(rng, *tables)
    check_gap((HULL, HULL), a, b, *tables)


@settings(max_examples=4, deadline=None)
@given(seeds, st.sampled_from([(CYLINDER, CYLINDER), (CYLINDER, HULL)]))
def test_cylinders_against_all_axes(seed, kinds):
    tables = PRISM, PRISM if kinds[1] == CYLINDER else BOX
    a, b = near(np.random.default_rng(seed), *tables, kinds)
    check_gap(kinds, a, b, *tables)


SQUARE = [(-0.5, -0.5), (-0.5, 0.5), (0.5, -0.5), (0.5, 0.5)]


@pytest.mark.parametrize("lift", [0.0, 1e-9, -1e-9, 0.05, -0.05])
@pytest.mark.parametrize("side", [(1, 2), (-1, 2), (1, 0), (-1, 1)])
def test_boxes_exactly_stacked(lift, side):
    """Four corners, whichever face they share."""
    sign, axis = side
    center = sign * (1.0 + lift) * I[axis]
    found = contact_points((HULL, HULL), solid(center), solid(np.zeros(3)))
    assert [t.gap for t in found] == pytest.approx([lift] * 4, abs=1e-15)
    assert all(np.allclose(t.normal, sign * I[axis]) for t in found)
    across = [k for k in range(3) if k != axis]
    assert [tuple(np.array(p)[across]) for p in corners(found)] == SQUARE


@settings(max_examples=40, deadline=None)
@given(seeds, st.floats(0.0, 1e-4))
def test_a_resting_box_keeps_its_corners(seed, noise):
    """Small rotations and shifts of equal boxes, and of a smaller one on a larger one, change no contact."""
    rng = np.random.default_rng(seed)
    tilt = np.eye(3) + noise * np.cross(I, rng.normal(size=3))
    for size in (1.0, 0.3):
        exact = contact_points((HULL, HULL), solid((0, 0, 0.5 + size / 2), I, (size,) * 3), solid(np.zeros(3)))
        center = np.array([0, 0, 0.5 + size / 2]) + noise * rng.normal(size=3)
        found = contact_points((HULL, HULL), solid(center, tilt, (size,) * 3), solid(np.zeros(3)))
        for t, u in zip(exact, found, strict=True):
            assert abs(t.gap - u.gap) < 10 * noise + 1e-12
            np.testing.assert_allclose(t.position, u.position, rtol=0, atol=10 * noise + 1e-12)
            np.testing.assert_allclose(t.normal, u.normal, rtol=0, atol=10 * noise + 1e-12)


def test_overlaps_of_faces():
    on = solid(np.zeros(3))
    # shifted along both sides: a corner of each, and two crossings
    found = contact_points((HULL, HULL), solid((0.3, 0.4, 0.99)), on)
    xs, ys = (-0.2, 0.5), (-0.1, 0.5)
    np.testing.assert_allclose(corners(found), [(x, y, 0.495) for x in xs for y in ys], atol=1e-12)
    assert [t.gap for t in found] == pytest.approx([-0.01] * 4)
    # planks across each other
    found = contact_points((HULL, HULL), solid((0, 0, 0.1), I, (2, 0.2, 0.1)), solid(np.zeros(3), I, (0.3, 2, 0.1)))
    xs, ys = (-0.15, 0.15), (-0.1, 0.1)
    np.testing.assert_allclose(corners(found), [(x, y, 0.05) for x in xs for y in ys], atol=1e-12)
    # equal squares, turned: four of the eight corners of their overlap, a quarter turn apart
    found = contact_points((HULL, HULL), solid((0, 0, 1), about(2, 0.5)), on)
    points = np.array([t.position for t in used(found)])
    assert len(points) == 4
    np.testing.assert_allclose(points.mean(0), (0, 0, 0.5), atol=1e-12)


@pytest.mark.parametrize("turn", [0.0, 0.1, np.pi / 4, 1.2])
def test_a_cylinder_stands_and_lies_on_a_box(turn):
    wide = solid(np.zeros(3), I, (2.0, 2.0, 1.0))
    found = contact_points((CYLINDER, HULL), solid((0, 0, 1.0), about(2, turn), (0.3, 1.0, 0)), wide, PRISM, BOX)
    points = np.array([t.position for t in used(found)])
    assert len(points) == 4
    np.testing.assert_allclose([t.gap for t in found], 0.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(points[:, :2], axis=1), 0.3, rtol=1e-9)
    assert np.abs(points.mean(0)[:2]).max() < 0.02
    lying = solid((0, 0, 0.8), about(2, turn) @ about(1, np.pi / 2), (0.3, 1.0, 0))
    resting = [t for t in contact_points((CYLINDER, HULL), lying, wide, PRISM, BOX) if abs(t.gap) < 1e-9]
    assert len(resting) == 2
    assert np.linalg.norm(np.subtract(resting[0].position, resting[1].position)) == pytest.approx(1.0)


def test_edges_meet_in_a_point():
    a = solid((0.1, 0.2, np.sqrt(2.0) - 0.02), about(2, 1.0) @ about(0, np.pi / 4))
    b = solid((0, 0, 0), about(0, np.pi / 4))
    found = contact_points((HULL, HULL), a, b)
    t, *others = used(found)
    assert t.gap == pytest.approx(-0.02) and all(other.gap > 0.0 for other in others)
    np.testing.assert_allclose(t.normal, (0, 0, 1), atol=1e-12)
    # the axis of a crosses that of b (y = 0) where its direction (cos 1, sin 1) leads
    x = 0.1 - 0.2 / np.tan(1.0)
    np.testing.assert_allclose(t.position, (x, 0, np.sqrt(0.5) - 0.01), atol=1e-12)


@pytest.mark.parametrize("tilt", [0.02, 0.1, 0.3])
def test_what_stands_on_an_edge_has_a_face_ahead(tilt):
    """The lowest edge of a cube crosses an edge of a lower cube: corners of its base are contacts, too."""
    R = about(2, 0.4) @ about(1, tilt) @ about(0, 0.5 * tilt)
    low = (R @ box_tables()[0].T)[2].min()
    a, b = solid((-0.55, 0.1, 0.5 - low), R), solid(np.zeros(3))  # the lowest corner is beside the lower cube
    for pair in ((a, b), (b, a)):
        first, *others = used(contact_points((HULL, HULL), *pair))
        assert first.gap > 0.0 and len(others) == 2
        assert all(other.gap > first.gap for other in others)


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_the_order_of_hulls_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    a, b = near(rng, BOX, BOX)
    forth, back = used(contact_points((HULL, HULL), a, b)), used(contact_points((HULL, HULL), b, a))
    one, other = (min(x, key=lambda t: t.gap) for x in (forth, back))
    assert one.gap == pytest.approx(other.gap, abs=3 * BIAS)


DEGENERATE = [
    (solid(np.zeros(3)), solid(np.zeros(3))),
    (solid(np.zeros(3)), solid(np.zeros(3), about(2, np.pi / 2))),
    (solid(np.zeros(3), I, (1, 1, 1e-3)), solid(np.zeros(3), I, (1e-3, 1, 1))),
    (solid((1, 1, 1)), solid(np.zeros(3))),  # corner to corner
    (solid((1, 1, 0)), solid(np.zeros(3))),  # edge to edge
    (solid((1, 1, 0), about(2, 1e-9)), solid(np.zeros(3))),
    (solid((0, 0, 0.5 + np.sqrt(0.5)), about(0, np.pi / 4)), solid(np.zeros(3))),
    (solid((0, 0, np.sqrt(2)), about(0, np.pi / 4)), solid(np.zeros(3), about(0, np.pi / 4))),
    (solid((0, 0, 0.5 + np.sqrt(0.75)), about(0, np.arctan(np.sqrt(0.5))) @ about(1, np.pi / 4)), solid(np.zeros(3))),
    (solid((40, 3, 2)), solid(np.zeros(3))),
]


@pytest.mark.parametrize(("a", "b"), DEGENERATE)
@pytest.mark.parametrize("tables", [BOX, ROD], ids=["box", "prism"])
def test_degenerate_hulls_give_finite_contacts_and_gradients(a, b, tables):
    found = contact_points((HULL, HULL), a, b, tables, tables)
    assert used(found)
    assert np.isfinite(gradients((HULL, HULL), a, b, tables, tables)[0]).all()
    far = np.linalg.norm(np.subtract(a.center, b.center)) > 10
    assert not far or min(t.gap for t in found) > 10


# ---------------------------------------------------------------------------------------------- round shapes


@settings(max_examples=60, deadline=None)
@given(seeds, st.sampled_from([SPHERE, CAPSULE]))
def test_round_shapes_at_a_box(seed, kind):
    """The exact distance; of a capsule as long as its axis is outside."""
    rng = np.random.default_rng(seed)
    b = solid(rng.normal(size=3), turned(rng), rng.uniform(0.3, 1.5, 3))
    size = (rng.uniform(0.1, 0.5), rng.uniform(0.1, 2.0), 0)
    a = solid(np.array(b.center) + rng.normal(size=3) * 0.6, turned(rng), size)
    if kind == SPHERE:
        truth = mujoco_distance(kind, a, b)
    else:
        truth = axis_distance(a, b) - size[0]
        assume(truth > 1e-3 - size[0])
    found = contact_points((kind, HULL), a, b)
    assert min(t.gap for t in found) == pytest.approx(truth, abs=1e-6)
    assert len({np.round(t.position, 6).tobytes() for t in used(found)}) == len(used(found))


@pytest.mark.parametrize(
    ("center", "gap", "normal"),
    [
        ((0.1, 0.2, 0.65), 0.05, (0, 0, 1)),
        ((0.1, 0.2, 0.45), -0.15, (0, 0, 1)),
        ((0.1, -0.46, 0.45), -0.14, (0, -1, 0)),
        ((0.8, 0.0, 0.9), 0.4, (0.6, 0, 0.8)),
        ((0.6, 0.7, 0.7), 0.2, (1 / 3, 2 / 3, 2 / 3)),
    ],
)
def test_a_sphere_at_face_edge_and_corner(center, gap, normal):
    (t,) = contact_points((SPHERE, HULL), solid(center, I, (0.1, 0, 0)), solid(np.zeros(3)))
    assert t.gap == pytest.approx(gap)
    np.testing.assert_allclose(t.normal, normal, atol=1e-12)
    np.testing.assert_allclose(t.position, np.array(center) - (0.1 + gap / 2) * np.array(normal), atol=1e-12)


@pytest.mark.parametrize("center", [(0, 0, 0), (0.5, 0, 0.5), (0.5, 0.5, 0.5), (0.5 + 1e-16, 0, 0.5 + 1e-16)])
def test_a_sphere_whose_center_is_on_the_hull(center):
    a, b = solid(center, I, (0.1, 0, 0)), solid(np.zeros(3))
    (t,) = contact_points((SPHERE, HULL), a, b)
    assert t.gap <= -0.1 + 1e-9
    assert np.isfinite(gradients((SPHERE, HULL), a, b)[0]).all()


LYING = about(1, np.pi / 2)  # along x


def capsule(center, axes=LYING, radius=0.1, extent=0.5):
    return solid(center, axes, (radius, extent, 0))


@pytest.mark.parametrize("noise", [0.0, 1e-9, 1e-5, -1e-5])
def test_a_capsule_lies_on_a_box(noise):
    turn = about(2, 0.3) @ LYING @ about(0, noise)
    on = solid(np.zeros(3))

    def resting(center, extent):
        found = used(contact_points((CAPSULE, HULL), capsule(center, turn, extent=extent), on))
        near = [t for t in found if t.gap < 1e-3]
        assert all(np.allclose(t.normal, (0, 0, 1), atol=1e-3) and abs(t.gap) < 1e-4 for t in near)
        return np.array(sorted(t.position[0] for t in near))

    c = np.cos(0.3)
    np.testing.assert_allclose(resting((0, 0, 0.6), 0.5), (-0.25 * c, 0.25 * c), atol=1e-4)  # on its ends
    np.testing.assert_allclose(resting((0.45, 0.1, 0.6), 0.5), (0.45 - 0.25 * c, 0.5), atol=1e-4)  # one sticks out
    np.testing.assert_allclose(resting((0.2, 0.1, 0.6), 3.0), (-0.5, 0.5), atol=1e-4)  # both do


def test_a_capsule_across_an_edge_and_at_a_corner():
    on = solid(np.zeros(3))
    across = about(1, -3 * np.pi / 4)
    for lift in (0.02, -0.02, -0.12, -0.2):  # also with its axis inside of the box
        center = np.array([0.5, 0.1, 0.5]) + (0.1 + lift) * np.array([1, 0, 1]) / np.sqrt(2)
        found = contact_points((CAPSULE, HULL), capsule(center, across, extent=1.0), on)
        near = [t for t in used(found) if t.gap < 0.1]
        assert len(near) == 1
        assert near[0].gap == pytest.approx(lift)
        np.testing.assert_allclose(near[0].normal, np.array([1, 0, 1]) / np.sqrt(2), atol=1e-12)
        assert min(t.gap for t in found) == near[0].gap
    center = np.full(3, 0.5) + 0.15 * np.ones(3) / np.sqrt(3)
    found = contact_points((CAPSULE, HULL), capsule(center, about(2, -np.pi / 4) @ LYING, extent=1.0), on)
    t = min(found, key=lambda t: t.gap)
    assert t.gap == pytest.approx(0.05)
    np.testing.assert_allclose(t.normal, np.ones(3) / np.sqrt(3), atol=1e-12)


def test_a_standing_capsule_touches_once():
    found = contact_points((CAPSULE, HULL), capsule((0.1, 0.2, 0.85), I), solid(np.zeros(3)))
    assert sorted(t.gap for t in found) == pytest.approx([0.0, 0.5, FAR])


# ---------------------------------------------------------------------------------------------- planes


def test_a_box_on_a_plane():
    ground = solid((0, 0, 1), I, (0.2, 0, 0))
    found = contact_points((HULL, PLANE), solid((0, 0, 0.69)), ground)
    assert [t.gap for t in found] == pytest.approx([-0.01] * 4)
    assert corners(found) == [(*p, 0.195) for p in SQUARE]
    on_edge = sorted(t.gap for t in contact_points((HULL, PLANE), solid((0, 0, 1), about(0, np.pi / 4)), ground))
    assert on_edge == pytest.approx([0.8 - np.sqrt(0.5)] * 2 + [0.8] * 2)


@settings(max_examples=60, deadline=None)
@given(seeds, st.booleans())
def test_the_lowest_vertices_over_a_plane(seed, flat):
    """The lowest vertex always; no vertex twice; all in the supporting face if the hull stands on one."""
    rng = np.random.default_rng(seed)
    tables = random_tables(rng, 30)
    vertices, faces, _ = tables
    s = solid(rng.normal(size=3), turned(rng), rng.uniform(0.5, 1.5, 3))
    normal = rng.normal(size=3)
    R = np.reshape(s.axes, (3, 3))
    if flat:
        normal = -R @ (faces[seed % len(faces), :3] / s.size)
    normal /= np.linalg.norm(normal)
    found = used(contact_points((HULL, PLANE), s, solid(normal, I, (0.3, 0, 0)), tables, BOX))
    heights = ((vertices * s.size) @ R.T + s.center) @ normal - 0.3
    assert min(t.gap for t in found) == pytest.approx(heights.min(), abs=1e-6)
    assert len(set(corners(found))) == len(found)
    if flat:
        assert sum(t.gap < heights.min() + 1e-6 for t in found) >= 3
    for t in found:
        assert np.abs(heights - t.gap).min() < 1e-12


# ---------------------------------------------------------------------------------------------- derivatives


def numbers(*solids):
    return [x for s in solids for part in s for x in part]


def parted(x):
    return [Solid(tuple(x[k : k + 3]), tuple(x[k + 3 : k + 12]), tuple(x[k + 12 : k + 15])) for k in (0, 15)]


def flat(found):
    return [x for t in found for x in t.numbers]


def gradients(kinds, a, b, tables_a=BOX, tables_b=BOX):
    """By vjp: d (each output) / d (center, axes, size of a and b) [slots * 7, 30]; and the features."""
    pair = PAIRS_SOLID[kinds]
    features = pair.search(a, b, hull(tables_a), hull(tables_b))
    rows = []
    for k in range(7 * pair.slots):
        seed = [1.0 if i == k else 0.0 for i in range(7 * pair.slots)]
        rows.append(vjp(lambda *x: flat(pair.contacts(*parted(x), features)), numbers(a, b), seed)[1])
    return np.array(rows, float), features


def check_gradients(kinds, a, b, tables_a=BOX, tables_b=BOX):
    pair = PAIRS_SOLID[kinds]
    exact, features = gradients(kinds, a, b, tables_a, tables_b)
    x, compared = np.array(numbers(a, b)), 0
    for k in range(30):
        ends = []
        for step in (1e-6, -1e-6):
            y = x.copy()
            y[k] += step
            moved = parted(y.tolist())
            if pair.search(*moved, hull(tables_a), hull(tables_b)) == features:
                ends.append(np.array(flat(pair.contacts(*moved, features))))
        if len(ends) == 2:
            np.testing.assert_allclose(exact[:, k], (ends[0] - ends[1]) / 2e-6, rtol=1e-7, atol=1e-7)
            compared += 1
    assert compared > 20
    for t, row in zip(pair.contacts(a, b, features), exact.reshape(pair.slots, 7, 30), strict=True):
        if t.gap == FAR:
            assert (row == 0.0).all()
    return exact


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seeds, st.booleans())
def test_derivatives_of_two_hulls(seed, stacked):
    rng = np.random.default_rng(seed)
    if stacked:  # faces that overlap, with all kinds of corners
        tilt = about(2, rng.uniform(0, 2)) @ about(0, 0.02 * rng.normal())
        a, b = solid((*rng.uniform(-0.4, 0.4, 2), 0.8), tilt, rng.uniform(0.5, 1.0, 3)), solid(np.zeros(3))
    else:
        a, b = near(rng, BOX, BOX)
    exact = check_gradients((HULL, HULL), a, b)
    features = PAIRS_SOLID[HULL, HULL].search(a, b, hull(BOX), hull(BOX))
    for k, t in enumerate(contact_points((HULL, HULL), a, b)):
        if features[13 + 13 * k] in (INCIDENT, EDGES):  # others slide along tilted faces and edges
            np.testing.assert_allclose(exact[7 * k, :3], t.normal, atol=1e-12)
            np.testing.assert_allclose(exact[7 * k, 15:18], np.negative(t.normal), atol=1e-12)


@pytest.mark.parametrize(
    "kinds", [k for k in PAIRS_SOLID if k != (HULL, HULL)], ids=lambda k: f"{k[0].name}-{k[1].name}"
)
@settings(max_examples=4, deadline=None)
@given(seed=seeds)
def test_derivatives(kinds, seed):
    rng = np.random.default_rng(seed)
    tables = [ROD if k == CYLINDER else BOX for k in kinds]
    if kinds[0] in (SPHERE, CAPSULE):
        b = solid(rng.normal(size=3), turned(rng), rng.uniform(0.3, 1.5, 3))
        a = solid(np.array(b.center) + 0.5 * rng.normal(size=3), turned(rng), (0.2, rng.uniform(0.2, 2.0), 0.5))
    elif kinds[1] == PLANE:
        normal = rng.normal(size=3)
        a, b = solid(rng.normal(size=3), turned(rng)), solid(normal / np.linalg.norm(normal), I, (0.2, 0, 0))
    else:
        a, b = near(rng, *tables, kinds)
    exact = check_gradients(kinds, a, b, *tables)
    found = contact_points(kinds, a, b, *tables)
    if kinds in ((SPHERE, HULL), (HULL, PLANE)):
        for k, t in enumerate(found):
            if t.gap < FAR:
                np.testing.assert_allclose(exact[7 * k, :3], t.normal, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(seeds, st.sampled_from([k for k in PAIRS_SOLID if CYLINDER not in k]))
def test_contacts_move_with_the_solids(seed, kinds):
    """A rigid motion of everything moves the contacts; lengths scale."""
    rng = np.random.default_rng(seed)
    a, b = near(rng, BOX, BOX)
    if kinds[1] == PLANE:
        b = solid((0, 0, 1), I, (0.3, 0, 0))
    R, shift, s = turned(rng), rng.normal(size=3), rng.uniform(0.5, 2.0)

    def moved(x):
        axes = R @ np.reshape(x.axes, (3, 3))
        return solid(s * (R @ x.center) + shift, axes, s * np.array(x.size))

    to = moved(b)
    if kinds[1] == PLANE:
        normal = R @ b.center
        to = solid(normal, b.axes, (s * b.size[0] + normal @ shift, 0, 0))
    before, after = contact_points(kinds, a, b), contact_points(kinds, moved(a), to)
    for t, u in zip(before, after, strict=True):
        if t.gap < FAR:
            assert u.gap == pytest.approx(s * t.gap, abs=1e-9)
            np.testing.assert_allclose(u.position, s * (R @ t.position) + shift, atol=1e-8)
            np.testing.assert_allclose(u.normal, R @ t.normal, atol=1e-8)


# ---------------------------------------------------------------------------------------------- kernels

CASES = [
    ((SPHERE, HULL), BOX, BOX),
    ((CAPSULE, HULL), BOX, BOX),
    ((HULL, PLANE), BOX, BOX),
    ((HULL, HULL), BOX, PRISM),
    ((CYLINDER, HULL), ROD, BOX),
]


@pytest.mark.parametrize(
    ("kinds", "tables_a", "tables_b"), CASES, ids=lambda x: "-".join(k.name for k in x) if len(x) == 2 else ""
)
def test_a_kernel_over_tables_gives_what_floats_give(kinds, tables_a, tables_b, monkeypatch, tmp_path):
    """Loops rolled over counts that are known at run time; lanes with different features; derivatives too."""
    monkeypatch.setenv("BACKDRIVE_CACHE", str(tmp_path))
    pair = PAIRS_SOLID[kinds]
    names = [f"{part}_{which}" for which in "ab" for part in ("vertices", "faces", "edges")]
    weights = np.cos(np.arange(7 * pair.slots)).tolist()

    def body(x, y, **arguments):
        a, b = parted([x[k] for k in range(30)])
        hulls = [Hull(*(arguments[p + name] for name in names[3 * k : 3 * k + 3] for p in ("n_", ""))) for k in (0, 1)]
        features = pair.search(a, b, *hulls)
        found, gradient = vjp(lambda *x: flat(pair.contacts(*parted(x), features)), numbers(a, b), weights)
        y.put(0, (*found, *gradient))

    arguments = [Rows("x"), Rows("y", writable=True), *(Table(n) for n in names), *(Integer("n_" + n) for n in names)]
    executable = Kernel("hulls", arguments, body, key=f"{os.getpid()} {kinds}").build(64)
    rng = np.random.default_rng(1)
    rows = []
    for _ in range(11):
        a, b = near(rng, tables_a, tables_b, kinds)
        rows.append(numbers(a, solid((0, 0, 1), I, (0.1, 0, 0)) if kinds[1] == PLANE else b))
    x, tables = np.array(rows), dict(zip(names, (*tables_a, *tables_b), strict=True))
    y = np.zeros((len(x), 7 * pair.slots + 30))
    words = {n: np.ascontiguousarray(t).ctypes.data for n, t in tables.items()} | {
        f"n_{n}": len(t) for n, t in tables.items()
    }
    run(executable, len(x), 1, words | {"x": (x.ctypes.data, 30, 0), "y": (y.ctypes.data, y.shape[1], 0)})
    for row, result in zip(rows, y, strict=True):
        a, b = parted(row)
        exact, features = gradients(kinds, a, b, tables_a, tables_b)
        np.testing.assert_allclose(
            result, [*flat(pair.contacts(a, b, features)), *(weights @ exact)], rtol=1e-9, atol=1e-9
        )
