"""Friction in 3D does not know the axes of the world: it opposes the slip, and what touches is free to turn."""

import math

import numpy as np
import pytest
import torch
from contact_scenes import INTEGRATORS, SOLVERS, G, rolled
from hypothesis import given, settings
from hypothesis import strategies as st
from models import random_quaternion

import backdrive as bd

PYRAMIDS = pytest.mark.parametrize("pyramid", [4, 6, 8])
SEEDS = st.integers(0, 2**16)


# ---------------------------------------------------------------------------------------------- billiards


def two_balls(pyramid):
    """One hits the other at the same height, with spin about the vertical; no gravity."""
    scene, angle = bd.Scene(3, gravity=(0, 0, 0)), math.pi / 6
    c, s = math.cos(angle), math.sin(angle)
    material = {"friction": 0.2, "restitution": 0.8}
    scene.add_body("a", bd.Sphere(0.1), mass=1.0, **material)
    scene.add_body(
        "b", bd.Sphere(0.1), mass=1.0, position=(0.3 * c, 0.3 * s, 0.0), angular_velocity=(0, 0, 20),
        velocity=(-2.0 * c + 0.6 * s, -2.0 * s - 0.6 * c, 0.0), **material,
    )  # fmt: skip
    return bd.Simulator(scene.build(), 0.01, specialize=False, pyramid=pyramid)


@PYRAMIDS
def test_billiards_at_one_height(pyramid):
    """A ball that is hit at its own height stays at it, and what is hit a little higher goes a little down."""
    sim = two_balls(pyramid)
    heights = torch.tensor([0.0, 1e-13, -1e-13, 1e-9, -1e-9, 1e-5, -1e-5, 1e-3, -1e-3], dtype=torch.float64)
    q, v = sim.model.initial_state(batch=len(heights))
    q[:, 9] += heights
    q.requires_grad_()
    path = sim.rollout(bd.State(q, v), steps=20)
    assert (path.status.impacts.sum(0) == 1).all() and (path.status.modes.sum(0) == path.status.modes[:, 0].sum()).all()
    up = path.last.v[:, 2]
    assert up[0].abs() < 1e-12
    (slope,) = torch.autograd.grad(up.sum(), q)
    torch.testing.assert_close(slope[:, 9], slope[:1, 9].expand(len(heights)), rtol=1e-4, atol=0)
    torch.testing.assert_close(up.detach(), slope[0, 9] * heights, rtol=1e-4, atol=1e-14)
    assert slope[0, 9] == pytest.approx((up[5] - up[6]).item() / 2e-5, rel=1e-6)


# ---------------------------------------------------------------------------------------------- rotated worlds


def rotation(quaternion):
    w, *u = quaternion
    cross = np.array([[0.0, -u[2], u[1]], [u[2], 0.0, -u[0]], [-u[1], u[0], 0.0]])
    return np.eye(3) + 2.0 * w * cross + 2.0 * cross @ cross


def product(a, b):
    return np.array([a[0] * b[0] - np.dot(a[1:], b[1:]), *(a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:]))])


def thrown(seed, turn):
    """Bodies of all shapes that hit the ground at an angle, slide and collide, in a world turned by a quaternion."""
    rng, R = np.random.default_rng(seed), rotation(turn)
    scene = bd.Scene(3, gravity=tuple(R @ (0.0, 0.0, -G)))
    scene.add_static(bd.HalfSpace(tuple(R @ (0.0, 0.0, 1.0))), friction=rng.uniform(0.1, 0.6))
    shapes = [bd.Sphere(0.1), bd.Box(0.2, 0.15, 0.1), bd.Capsule(0.05, 0.2)]
    for k in range(3):
        place = np.array([0.3 * k, 0.02 * k, 0.15 + 0.02 * k])
        velocity = np.array([*rng.uniform(0.5, 3.0, 2) * rng.choice([-1.0, 1.0], 2), -1.0])
        scene.add_body(
            f"body{k}", shapes[rng.integers(3)], density=1e3, position=tuple(R @ place), velocity=tuple(R @ velocity),
            angular_velocity=tuple(R @ rng.normal(size=3)), quaternion=tuple(product(turn, random_quaternion(rng))),
            friction=rng.uniform(0.1, 0.6), restitution=0.3,
        )  # fmt: skip
    return scene.build()


@pytest.mark.parametrize(
    ("sparse", "impacts"), [(False, False), (False, True), (True, False)], ids=["plain", "impacts", "big"]
)
@settings(max_examples=6)
@given(seed=SEEDS)
def test_worlds_can_be_turned(sparse, impacts, seed):
    """All moves as before, in the turned world: to 1e-9, until impacts in quick succession make a chaos of it."""
    rng, paths, calm = np.random.default_rng(seed), [], 13
    for turn in (np.array([1.0, 0.0, 0.0, 0.0]), random_quaternion(rng)):
        model = thrown(seed, turn)
        options = {"sparse": True, "solver": bd.ProjectedGaussSeidel(20_000, 1e-14)} if sparse else {}
        make = bd.Simulator if sparse else rolled
        path = make(model, 0.005, impacts=impacts, **options).rollout(model.initial_state(), steps=12)
        R = torch.tensor(rotation(turn))
        found = [torch.stack([path.velocity(b), path.angular_velocity(b)], 1) @ R for b in model.bodies]
        paths.append(torch.stack(found, 1))
        assert path.status.contacts.sum() + path.status.impacts.sum() > 0
        calm = min(calm, 1 + int((path.status.impacts.cumsum(0) <= 3).sum()))
    torch.testing.assert_close(paths[1][:calm], paths[0][:calm], rtol=0, atol=1e-9 if not sparse else 1e-8)


@pytest.mark.parametrize(
    ("pyramid", "solver", "integrator"), [(4, "gauss-seidel", "euler"), (6, "interior-point", "midpoint")]
)
@settings(max_examples=4)
@given(seed=SEEDS)
def test_sliding_friction_opposes_the_slip(pyramid, solver, integrator, seed):
    """A box on a level floor in any direction, with any turn: v falls by μ g, and keeps its direction."""
    rng = np.random.default_rng(seed)
    up = rng.normal(size=3)
    up /= np.linalg.norm(up)
    along = np.cross(up, rng.normal(size=3))
    along /= np.linalg.norm(along)
    R = np.stack([along, np.cross(up, along), up], 1)
    w = 0.5 * math.sqrt(max(0.0, 1.0 + np.trace(R)))
    if w < 0.1:
        return
    turn = np.array([w, *(np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]]) / (4.0 * w))])
    spin = rng.uniform(0.0, 2.0 * math.pi)
    scene = bd.Scene(3, gravity=tuple(-G * up))
    scene.add_static(bd.HalfSpace(tuple(up)), friction=0.3)
    quaternion = tuple(product(turn, np.array([math.cos(spin / 2), 0.0, 0.0, math.sin(spin / 2)])))
    flat = {"position": tuple(0.001 * up), "quaternion": quaternion, "velocity": tuple(2.0 * along), "friction": 0.3}
    scene.add_body("box", bd.Box(0.4, 0.4, 0.002), mass=1.0, **flat)
    model = scene.build()
    sim = rolled(model, 0.002, pyramid=pyramid, solver=SOLVERS[solver], integrator=INTEGRATORS[integrator])
    path = sim.rollout(model.initial_state(), steps=50)
    right = (2.0 - 0.3 * G * 0.002 * torch.arange(51, dtype=torch.float64))[:, None] * torch.tensor(along)
    torch.testing.assert_close(path.velocity("box"), right, rtol=0, atol=1e-6)


# ---------------------------------------------------------------------------------------------- hits on what rests


def struck(shape, azimuth, elevation, friction):
    """A body that rests on the floor, and a smooth ball that hits it from obliquely above, all turned by an azimuth."""
    c, s = math.cos(azimuth), math.sin(azimuth)
    downwards = np.array([c * math.cos(elevation), s * math.cos(elevation), -math.sin(elevation)])
    scene = bd.Scene(3, combine="min")
    scene.add_static(bd.HalfSpace((0, 0, 1)), friction=friction, restitution=0.0)
    turn = (math.cos(azimuth / 2), 0.0, 0.0, math.sin(azimuth / 2))
    scene.add_body(
        "rests", shape, mass=1.0, inertia=(0.01, 0.01, 0.01), position=(0, 0, 0.1), quaternion=turn, friction=friction,
        restitution=0.5,
    )  # fmt: skip
    away = 0.201 if isinstance(shape, bd.Sphere) else 0.3
    scene.add_body(
        "ball", bd.Sphere(0.1), mass=1.0, position=tuple(np.array([0, 0, 0.1]) - away * downwards), friction=0.0,
        velocity=tuple(2.0 * downwards), restitution=0.5,
    )  # fmt: skip
    return scene.build()


@pytest.mark.parametrize("shape", [bd.Sphere(0.1), bd.Box(0.2, 0.2, 0.2)], ids=["sphere", "box"])
@settings(max_examples=4)
@given(
    azimuth=st.floats(0.0, 2.0 * math.pi), elevation=st.floats(0.2, 1.2), friction=st.floats(0.05, 1.0),
)  # fmt: skip
def test_friction_of_what_is_hit_at_rest(shape, azimuth, elevation, friction):
    """A contact at rest has no slip to align friction with before it is hit: all turns with the hit."""
    ends = []
    for angle in (0.0, azimuth):
        model = struck(shape, angle, elevation, friction)
        path = rolled(model, 0.01, impacts=True).rollout(model.initial_state(), steps=8)
        assert path.status.impacts.sum() > 0 and path.status.converged.all()
        hit = int((path.status.impacts.cumsum(0) == 0).sum()) + 1  # the states up to the end of the step of the hit
        R = torch.tensor(rotation(np.array([math.cos(angle / 2), 0.0, 0.0, math.sin(angle / 2)])))
        both = [path.velocity("rests")[: hit + 1], path.angular_velocity("rests")[: hit + 1]]
        ends.append(torch.stack(both, 1) @ R)
    torch.testing.assert_close(ends[1], ends[0], rtol=0, atol=1e-9)


@settings(max_examples=5)
@given(azimuth=st.floats(0.0, 2.0 * math.pi), elevation=st.floats(0.3, 0.8))
def test_a_hit_slides_as_coulomb_says(azimuth, elevation):
    """Both bodies weigh 1 kg, and cannot turn. The ball gives the other one an impulse I, and so the floor gives it
    λn = I sin(elevation), and friction μ λn against its motion; the ball's bounce determines I."""
    friction, e, speed = 0.4, 0.5, 2.0
    model = struck(bd.Sphere(0.1), azimuth, elevation, friction)
    inertia = 1e9 * model.parameter("inertia")
    path = rolled(model, 0.01, impacts=True).rollout(
        model.initial_state(), steps=1, parameters={"inertia": inertia, "gravity": torch.zeros(3).double()}
    )
    assert path.status.impacts.sum() == 1
    c, s = math.cos(elevation), math.sin(elevation)
    # After the hit, the bodies part at e times the speed: I c (c - μ s) + I = (1 + e) speed.
    impulse = (1.0 + e) * speed / (1.0 + c * (c - friction * s))
    expected = impulse * (c - friction * s) * np.array([math.cos(azimuth), math.sin(azimuth), 0.0])
    np.testing.assert_allclose(path.velocity("rests")[-1], expected, rtol=0, atol=1e-8)


# ---------------------------------------------------------------------------------------------- slow slips


def pushed(azimuth, impacts, solver, integrator):
    """Twists, turned back by the azimuth, of a foot that slides slowly on the floor, and of a ball that pushes it.

    The foot has one contact: rounding would decide how several share its weight.
    """
    c, s = math.cos(azimuth), math.sin(azimuth)
    R = rotation(np.array([math.cos(azimuth / 2), 0.0, 0.0, math.sin(azimuth / 2)]))
    scene = bd.Scene(3, combine="min")
    scene.add_static(bd.HalfSpace((0, 0, 1)), friction=0.5)
    scene.add_body(
        "foot", bd.Sphere(0.1), mass=1.0, inertia=(10.0, 10.0, 10.0), position=(0, 0, 0.1), friction=0.5,
        velocity=tuple(R @ (0.004, 0.003, 0.0)),
    )  # fmt: skip
    scene.add_body(
        "ball", bd.Sphere(0.1), mass=3.0, position=tuple(R @ (-0.19, 0.06, 0.1)), friction=0.5,
        velocity=(0.08 * c, 0.08 * s, 0.0),
    )  # fmt: skip
    model = scene.build()
    sim = rolled(model, 0.01, pyramid=math.inf, impacts=impacts, solver=solver, integrator=integrator)
    path = sim.rollout(model.initial_state(), steps=4)
    assert path.status.converged.all() and path.status.contacts[-1] == 3
    twists = [x for b in model.bodies for x in (path.velocity(b), path.angular_velocity(b))]
    return torch.stack(twists) @ torch.tensor(R)


@pytest.mark.parametrize(
    ("impacts", "solver", "integrator"),
    [(False, "gauss-seidel", "euler"), (False, "interior-point", "midpoint"), (True, "gauss-seidel", "midpoint")],
)
@settings(max_examples=4)
@given(azimuth=st.floats(0.0, 2.0 * math.pi))
def test_slow_slips_with_round_cones(impacts, solver, integrator, azimuth):
    """With pyramid=math.inf, friction of what a ball pushes slowly does not depend on the direction."""
    of = impacts, SOLVERS[solver], INTEGRATORS[integrator]
    torch.testing.assert_close(pushed(azimuth, *of), pushed(0.0, *of), rtol=0, atol=1e-10)


@pytest.mark.parametrize("pyramid", ["round", -math.inf, math.nan, 5, 4.0])
def test_what_is_no_pyramid(pyramid):
    with pytest.raises((ValueError, TypeError), match="pyramid must be"):
        bd.Simulator(thrown(0, np.array([1.0, 0.0, 0.0, 0.0])), 0.01, pyramid=pyramid)


def test_big_worlds_have_no_round_cones():
    model = thrown(0, np.array([1.0, 0.0, 0.0, 0.0]))
    with pytest.raises(ValueError, match="not round cones"):
        bd.Simulator(model, 0.01, pyramid=math.inf, sparse=True)
    assert not bd.Simulator(model, 0.01, pyramid=math.inf).sparse


# ---------------------------------------------------------------------------------------------- Coulomb's law


def sliding_plate(velocity, spin, duration, mu, half=0.25, dt=5e-5):
    """Velocity and spin of a square plate of 1 kg on its four corners, which carry the same load: by its equations."""
    v, w, angle = np.array(velocity), spin, 0.0
    corners, inertia = half * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]), (2 * half) ** 2 / 6
    for _ in range(round(duration / dt)):
        c, s = math.cos(angle), math.sin(angle)
        r = corners @ np.array([[c, s], [-s, c]])
        slip = v + w * np.stack([-r[:, 1], r[:, 0]], 1)
        force = -mu * G / 4 * slip / np.linalg.norm(slip, axis=1, keepdims=True)
        v, w = v + dt * force.sum(0), w + dt * (r[:, 0] * force[:, 1] - r[:, 1] * force[:, 0]).sum() / inertia
        angle += dt * w
    return np.array([*v, w])


@pytest.mark.parametrize(("velocity", "spin"), [((2.0, 0.5), 3.0), ((0.5, 0.0), 6.0)])
def test_a_plate_that_slides_and_turns(velocity, spin):
    """Its corners slip in different directions: friction holds none of them across its slip."""
    scene, inertia = bd.Scene(3), 0.5**2 / 6
    scene.add_static(bd.HalfSpace((0, 0, 1)), friction=0.3)
    scene.add_body(
        "plate", bd.Box(0.5, 0.5, 0.002), mass=1.0, inertia=(inertia / 2, inertia / 2, inertia), friction=0.3,
        position=(0, 0, 0.001), velocity=(*velocity, 0.0), angular_velocity=(0, 0, spin),
    )  # fmt: skip
    model = scene.build()
    path = rolled(model, 0.002).rollout(model.initial_state(), steps=50)
    found = [*path.velocity("plate")[-1, :2].tolist(), path.angular_velocity("plate")[-1, 2].item()]
    np.testing.assert_allclose(found, sliding_plate(velocity, spin, 0.1, 0.3), rtol=0, atol=1e-3)


@PYRAMIDS
@settings(max_examples=5)
@given(azimuth=st.floats(0.0, 2.0 * math.pi))
def test_the_angle_of_repose_is_the_same_all_around(pyramid, azimuth):
    """What rests on a slope begins to slide where its tangent exceeds μ, whichever way the slope goes down."""
    for steeper, slides in ((0.98, False), (1.02, True)):
        angle = math.atan(0.5 * steeper)
        down = np.array([math.cos(azimuth), math.sin(azimuth)])
        scene = bd.Scene(3, gravity=(*(G * math.sin(angle) * down), -G * math.cos(angle)))
        scene.add_static(bd.HalfSpace((0, 0, 1)), friction=0.5)
        scene.add_body("box", bd.Box(0.3, 0.3, 0.01), mass=1.0, position=(0, 0, 0.005), friction=0.5)
        model = scene.build()
        last = rolled(model, 0.01, pyramid=pyramid).rollout(model.initial_state(), steps=20).last
        expected = 0.2 * G * (math.sin(angle) - 0.5 * math.cos(angle)) if slides else 0.0
        np.testing.assert_allclose(last.v[:2], expected * down, rtol=1e-6, atol=1e-7)
