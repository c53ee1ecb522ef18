"""Contact points of round shapes and planes: against sampling, MuJoCo, closed forms, differences; and of kernels."""

import itertools
import os

import mujoco
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from placed_pairs import (
    NUMBERS,
    SEEDS,
    PlacedPair,
    about_y,
    about_z,
    axis_of,
    check_motion,
    moved,
    numbers,
    rotation,
    solid,
)

from backdrive.backends import Kernel, Rows, run
from backdrive.physics.geometry.pairs import PAIRS
from backdrive.physics.geometry.pairs.rounded import PARALLEL
from backdrive.physics.geometry.solids import FAR, Solid
from backdrive.schema.layout import ShapeKind

SPHERE, CAPSULE, CYLINDER, HULL, PLANE = ShapeKind
PAIRS_ROUND = {kinds: pair for kinds, pair in PAIRS[3].items() if HULL not in kinds and kinds != (CYLINDER, CYLINDER)}
KINDS = pytest.mark.parametrize("kinds", list(PAIRS_ROUND), ids=lambda kinds: "-".join(k.name for k in kinds))
TIGHT = settings(max_examples=40, deadline=None)
NONE = np.zeros(3)


def random_solid(rng, kind, spread=0.6):
    if kind == PLANE:
        normal = rng.normal(size=3)
        return solid(normal / np.linalg.norm(normal), size=(rng.uniform(-0.3, 0.3), 0.0, 0.0))
    return solid(rng.uniform(-spread, spread, 3), rotation(rng), (*rng.uniform(0.1, 0.5, 2), 0.0))


def placed(kinds, a, b):
    return PlacedPair(PAIRS_ROUND[kinds], a, b)


def random_pair(seed, kinds):
    rng = np.random.default_rng(seed)
    return rng, placed(kinds, *(random_solid(rng, kind) for kind in kinds))


def places(kind, s, count=400):
    """Points [count, 3] of a capsule's segment, or the center of a sphere."""
    t = np.linspace(-0.5, 0.5, count)[:, None] * s.size[1] * axis_of(s)
    return np.array(s.center) + (t if kind == CAPSULE else 0.0 * t)


def side_and_cap(cylinder, points):
    """Signed distances from the side of a cylinder (without end) and from its nearer cap's plane."""
    offset, direction = points - np.array(cylinder.center), axis_of(cylinder)
    z = offset @ direction
    side = np.linalg.norm(offset - z[..., None] * direction, axis=-1) - cylinder.size[0]
    return side, np.abs(z) - 0.5 * cylinder.size[1]


def distance_from(kind, s, points):
    """Signed distances of points from a solid."""
    if kind == PLANE:
        return points @ np.array(s.center) - s.size[0]
    offset = points - np.array(s.center)
    if kind == SPHERE:
        return np.linalg.norm(offset, axis=-1) - s.size[0]
    z = offset @ axis_of(s)
    if kind == CAPSULE:
        z = np.clip(z, -0.5 * s.size[1], 0.5 * s.size[1])
        return np.linalg.norm(offset - z[:, None] * axis_of(s), axis=-1) - s.size[0]
    side, cap = side_and_cap(s, points)
    return np.where((side > 0) & (cap > 0), np.hypot(side, cap), np.maximum(side, cap))


@KINDS
@TIGHT
@given(SEEDS)
def test_gap_by_sampling(kinds, seed):
    """The least distance over points of the first solid's axis, or, of a cylinder, of its rims."""
    _, both = random_pair(seed, kinds)
    a, b = both.solids
    if kinds[0] == CYLINDER:
        angles = np.linspace(0, 2 * np.pi, 2000)[:, None]
        x, y = np.array(a.axes[0::3]), np.array(a.axes[1::3])
        ring = a.center + a.size[0] * (np.cos(angles) * x + np.sin(angles) * y)
        points, radius = np.concatenate([ring + z * a.size[1] * axis_of(a) for z in (-0.5, 0.5)]), 0.0
    else:
        points, radius = places(kinds[0], a), a.size[0]
    right = distance_from(kinds[1], b, points).min() - radius
    assert right - 2e-3 <= both.gap <= right + 1e-12
    if both.gap > 0.0:  # the point is midway between the surfaces
        point = np.array(min(both.points).position)[None]
        assert abs(distance_from(kinds[0], a, point)[0] - 0.5 * both.gap) < 1e-8
        assert abs(distance_from(kinds[1], b, point)[0] - 0.5 * both.gap) < 1e-8


def mujoco_distance(kinds, a, b):
    spec = mujoco.MjSpec()
    for kind, s in zip(kinds, (a, b)):
        R, center = np.reshape(s.axes, (3, 3)), np.array(s.center)
        size = [s.size[0], 0.5 * s.size[1], 0.0]
        if kind == PLANE:
            center, size = s.size[0] * center, [0.0, 0.0, 1.0]
            R = np.linalg.qr(np.column_stack([s.center, np.eye(3)]))[0][:, [1, 2, 0]]
            R = R * np.sign(R[:, 2] @ s.center)
            R[:, 0] *= np.linalg.det(R)
        quaternion = np.empty(4)
        mujoco.mju_mat2Quat(quaternion, R.ravel())
        body = spec.worldbody if kind == PLANE else spec.worldbody.add_body()
        body.add_geom(type=getattr(mujoco.mjtGeom, f"mjGEOM_{kind.name}"), size=size, pos=center, quat=quaternion)
        if kind != PLANE:
            body.add_freejoint()
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    order = range(2) if kinds[1] != PLANE else (1, 0)
    return mujoco.mj_geomDistance(model, data, *order, 10.0, None)


@KINDS
@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_gap_of_mujoco(kinds, seed):
    _, both = random_pair(seed, kinds)
    a, b = both.solids
    if both.gap > 1e-3:
        assert abs(both.gap - mujoco_distance(kinds, a, b)) < 1e-5


@KINDS
@TIGHT
@given(SEEDS)
@example(4243)  # a capsule whose axis is near the rim of a cylinder
def test_normals_and_gradients(kinds, seed):
    rng, both = random_pair(seed, kinds)
    if kinds == (CAPSULE, CYLINDER):
        a, b = both.solids
        side, cap = side_and_cap(b, np.array(a.center) + 0.5 * a.size[1] * both.features[0] * axis_of(a))
        assume(max(side, cap) > 1e-5)  # with the axis inside, distances have kinks
        assume(min(abs(side), abs(cap)) > 1e-5)  # where the rim begins, the curvature jumps
    # In a narrow range of angles, a capsule's second contact goes from an end to the deepest place.
    slots = [both.deepest] if kinds[0] == CAPSULE and kinds[1] != PLANE else None
    both.check_normals(slots=slots)
    both.check_gradient(rng, slots=slots)


@KINDS
@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_motion_of_the_world(kinds, seed):
    rng, both = random_pair(seed, kinds)
    R, x = rotation(rng), rng.normal(size=3)
    after = [moved(s, R, x, kind == PLANE) for kind, s in zip(kinds, both.solids)]
    check_motion(both, placed(kinds, *after), R, x)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_capsules_may_come_in_either_order(seed):
    _, both = random_pair(seed, (CAPSULE, CAPSULE))
    a, b = both.solids
    other = placed((CAPSULE, CAPSULE), b, a)
    assert abs(other.gap - both.gap) < 1e-12
    deepest, same = (min(pair.points, key=lambda point: point.gap) for pair in (both, other))
    np.testing.assert_allclose(same.position, deepest.position, rtol=0, atol=1e-9)
    np.testing.assert_allclose(np.negative(same.normal), deepest.normal, rtol=0, atol=1e-9)


UPRIGHT, LYING, SIDEWAYS = np.eye(3), about_y(np.pi / 2), np.array([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]])


@pytest.mark.slow
@KINDS
def test_nothing_is_undefined_when_degenerate(kinds):
    """Same centers, parallel and crossing axes, exact touching, no distance at all."""
    offsets = [NONE, *np.eye(3), [0, 0, -0.5], [0.5, 0, 0], [0, 0.3, 0], [0.3, 0, 0.5], [0.3, 0, 0.2]]
    turns = [UPRIGHT, LYING, SIDEWAYS, np.diag([1.0, -1.0, -1.0])]
    rng = np.random.default_rng(0)
    for offset, R, S in itertools.product(offsets, turns, turns):
        a = solid(offset, R, (0.3, 0.4, 0.0))
        b = solid(S[2] if kinds[1] == PLANE else NONE, S, (0.0 if kinds[1] == PLANE else 0.2, 0.6, 0.0))
        both = placed(kinds, a, b)
        both.gradient(rng.normal(size=7 * both.pair.slots))


@KINDS
@settings(max_examples=8, deadline=None)
@given(SEEDS)
def test_gaps_are_continuous(kinds, seed):
    """Along a path through deep and no penetration, with turns through parallel and upright: by small steps."""
    rng = np.random.default_rng(seed)
    a, b = (random_solid(rng, kind, 0.3) for kind in kinds)
    shift = rng.normal(size=3)
    gaps = []
    for t in np.linspace(-1, 1, 1001):
        R = about_z(2 * t) @ about_y(3 * t)
        gaps.append(placed(kinds, solid(np.array(a.center) + t * shift, R @ np.reshape(a.axes, (3, 3)), a.size), b).gap)
    assert np.abs(np.diff(gaps)).max() < 2e-3 * (4.0 + np.linalg.norm(shift))


# ------------------------------------------------------------------------------------------ support


def active(both):
    """Contact points with a small gap, from left to right."""
    return sorted((t for t in both.points if t.gap < 0.05), key=lambda t: tuple(np.round(t.position, 6)))


def test_a_capsule_rests_on_a_parallel_one():
    below = solid(NONE, LYING, (0.2, 2.0, 0.0))
    for shift, ends in ((0.0, (-0.5, 0.5)), (0.8, (0.3, 1.0)), (-1.2, (-1.0, -0.7))):
        for R in (LYING, about_z(np.pi) @ LYING):
            both = placed((CAPSULE, CAPSULE), solid([shift, 0, 0.299], R, (0.1, 1.0, 0.0)), below)
            points = active(both)
            np.testing.assert_allclose([t.position[0] for t in points], ends, rtol=0, atol=1e-12)
            np.testing.assert_allclose([t.gap for t in points], -0.001, rtol=0, atol=1e-12)
            both.check_normals()


def test_parallel_capsules_end_to_end_touch_once():
    both = placed((CAPSULE, CAPSULE), solid([0, 0, 1.55], size=(0.3, 1.0, 0)), solid(NONE, size=(0.3, 1.0, 0)))
    assert len(active(both)) == 1
    np.testing.assert_allclose(active(both)[0].normal, [0, 0, 1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("pitch", [1e-9, 1e-4, 0.01, 0.3])
def test_capsules_in_a_plane_touch_by_their_ends(pitch):
    """However much one tilts towards the other, both ends count, each with its exact gap."""
    a = solid([0, 0, 0.4], about_y(pitch) @ LYING, (0.1, 1.0, 0.0))
    both = placed((CAPSULE, CAPSULE), a, solid(NONE, LYING, (0.2, 2.0, 0.0)))
    gaps = sorted(t.gap for t in both.points)
    np.testing.assert_allclose(gaps, [0.1 - 0.5 * np.sin(pitch), 0.1 + 0.5 * np.sin(pitch)], rtol=0, atol=1e-12)
    both.check_normals()
    both.check_gradient(np.random.default_rng(0))


def test_crossing_capsules_touch_once_and_what_is_between_is_continuous():
    below, sweep = solid(NONE, LYING, (0.2, 2.0, 0.0)), np.linspace(0.0, 0.02, 4001)
    found = [
        placed((CAPSULE, CAPSULE), solid([0, 0, 0.3], about_z(yaw) @ LYING, (0.1, 1.0, 0.0)), below) for yaw in sweep
    ]
    first = np.array([numbers(both.points[:1]) for both in found])
    assert np.abs(np.diff(first, axis=0)).max() < 2e-3
    assert np.abs(first[:, 0]).max() < 5e-6  # the gap, exactly 0, is that of the ends when nearly parallel
    crossed = sweep**2 > 1.01 * PARALLEL
    assert (np.abs(first[crossed, :3]) < 1e-12).all()
    second = np.array([both.points[1].gap for both in found])
    assert (second[crossed] == FAR).all() and (second[~crossed][:100] < 1e-5).all()


def test_a_capsule_lies_on_a_cap_and_along_a_side():
    stool = solid(NONE, UPRIGHT, (0.3, 1.0, 0.0))
    for length, ends in ((0.4, 0.2), (1.0, 0.3)):  # on the cap; over its rim on both sides
        both = placed((CAPSULE, CYLINDER), solid([0, 0, 0.599], LYING, (0.1, length, 0.0)), stool)
        np.testing.assert_allclose([t.position[0] for t in active(both)], [-ends, ends], rtol=0, atol=1e-9)
        np.testing.assert_allclose([t.gap for t in active(both)], -0.001, rtol=0, atol=1e-9)
        np.testing.assert_allclose([t.normal for t in active(both)], [[0, 0, 1]] * 2, rtol=0, atol=1e-9)
    both = placed((CAPSULE, CYLINDER), solid([0.4, 0, 0.3], UPRIGHT, (0.1, 1.0, 0.0)), stool)
    np.testing.assert_allclose([t.position[2] for t in active(both)], [-0.2, 0.5], rtol=0, atol=1e-9)
    np.testing.assert_allclose([t.gap for t in active(both)], 0.0, rtol=0, atol=1e-9)
    both = placed((CAPSULE, CYLINDER), solid([0.4, 0, 0], SIDEWAYS @ about_z(0.3), (0.1, 1.0, 0.0)), stool)
    assert len(active(both)) == 1


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.sampled_from([0.0, 1e-12, 1e-8, 1e-5, 5e-4, 1.1e-3, 5e-3, 0.02, 0.3, 1.4, np.pi / 2]))
def test_a_cylinder_on_a_plane(seed, tilt):
    """Its lowest point is found, upright it rests on three points around its middle, lying on two."""
    rng = np.random.default_rng(seed)
    spin, heading, flip = about_z(rng.uniform(0, 7)), about_z(rng.uniform(0, 7)), rng.choice([0.0, np.pi])
    R = heading @ about_y(tilt) @ spin @ about_y(flip)
    both = placed((CYLINDER, PLANE), solid([0, 0, 0.5], R, (0.2, 0.6, 0.0)), solid([0, 0, 1], size=(0, 0, 0)))
    lowest = 0.5 - 0.3 * np.cos(tilt) - 0.2 * np.sin(tilt)
    # almost upright it is between the lowest points of the cap and of the fixed triangle
    assert -1e-12 < both.gap - lowest < (1e-12 if tilt > 1e-3 else 0.5 * 0.2 * tilt + 1e-12)
    both.check_normals()
    if tilt < 1.5:  # lying, the near cap is either
        both.check_gradient(rng, 1e-5 if tilt < 0.01 else 1e-7)
    if tilt < 1e-4:
        points = np.array([t.position[:2] for t in both.points])[1:]
        np.testing.assert_allclose(np.linalg.norm(points, axis=1), 0.2, rtol=1e-3)
        np.testing.assert_allclose(points.mean(0), 0.0, rtol=0, atol=1e-3)
        np.testing.assert_allclose([t.gap for t in both.points], lowest, rtol=0, atol=1e-4)
    if tilt == np.pi / 2:
        np.testing.assert_allclose([t.gap for t in both.points[:2]], lowest, rtol=0, atol=1e-9)


# ------------------------------------------------------------------------------------------ kernels


@KINDS
def test_kernels_compute_the_same(kinds):
    pair = PAIRS_ROUND[kinds]

    def body(x, y):
        a, b = (Solid(s[:3], s[3:12], s[12:]) for s in (x.get(0, NUMBERS), x.get(1, NUMBERS)))
        features = () if pair.search is None else pair.search(a, b, None, None)
        y.put(0, numbers(pair.contacts(a, b, features)))

    kernel = Kernel("round", [Rows("x"), Rows("y", writable=True)], body, key=f"{os.getpid()} {kinds}")
    found = [random_pair(seed, kinds)[1] for seed in range(50)]
    x = np.stack([both.x for both in found])
    y = np.empty((len(x), 7 * pair.slots))
    words = {name: (z.ctypes.data, z.shape[1], 0) for name, z in (("x", x), ("y", y))}
    run(kernel.build(64), len(x), 1, words)
    np.testing.assert_allclose(y, [numbers(both.points) for both in found], rtol=1e-9, atol=1e-9)
