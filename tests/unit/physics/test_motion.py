"""Motions whose laws are known: closed forms, conserved quantities, orders of accuracy."""

import itertools
import math

import numpy as np
import pytest
import torch
from models import random_inertia, random_quaternion, random_state, random_tree

import backdrive as bd

EULER, MIDPOINT = bd.SemiImplicitEuler(), bd.Midpoint()
INTEGRATORS = pytest.mark.parametrize("integrator", [EULER, MIDPOINT], ids=repr)
G, LENGTH = 9.81, 0.7


def simulate(model, dt, steps, integrator=EULER, state=None, **kwargs):
    sim = bd.Simulator(model, dt, integrator=integrator, specialize=False)
    return sim.rollout(state or model.initial_state(), steps=None if "controls" in kwargs else steps, **kwargs)


def pendulum(angle=0.0, **joint):
    """A point mass (inertia 1e-12 kg m²) on a massless rod."""
    scene = bd.Scene(dim=2, gravity=(0, -G))
    scene.add_body("bob", mass=1.3, inertia=1e-12, position=(0, -LENGTH))
    scene.add_joint("pivot", bd.Hinge(**joint), child="bob", anchor=(0, 0), position=angle)
    return scene.build()


def free_body(gravity=(0.0, 0.0, 0.0), seed=0, com=True):
    rng = np.random.default_rng(seed)
    scene = bd.Scene(dim=3, gravity=gravity)
    scene.add_body(
        "body", mass=1.7, inertia=random_inertia(rng, 1.7), com=0.2 * rng.normal(size=3) if com else None,
        quaternion=random_quaternion(rng), velocity=rng.normal(size=3), angular_velocity=3.0 * rng.normal(size=3),
    )  # fmt: skip
    return scene.build()


def matrix(record):
    xx, yy, zz, xy, xz, yz = record
    return torch.stack([torch.stack([xx, xy, xz]), torch.stack([xy, yy, yz]), torch.stack([xz, yz, zz])])


def momenta(model, path):
    """Linear momentum [T, 3], angular momentum about the world's origin [T, 3], kinetic energy [T]; of one 3D world."""
    linear, angular, energy = 0.0, 0.0, 0.0
    for k, body in enumerate(model.bodies):
        mass, com, inertia = (model.parameter(name)[k] for name in ("mass", "com", "inertia"))
        R, w = path.rotation(body), path.angular_velocity(body)
        arm = R @ com
        velocity = path.velocity(body) + torch.linalg.cross(w, arm)
        spin = (R @ matrix(inertia) @ R.mT @ w[..., None])[..., 0]
        linear = linear + mass * velocity
        angular = angular + mass * torch.linalg.cross(path.position(body) + arm, velocity) + spin
        energy = energy + 0.5 * mass * velocity.square().sum(-1) + 0.5 * (w * spin).sum(-1)
    return linear, angular, energy


def test_time():
    path = simulate(pendulum(), 0.1, 7, adjoint=bd.Checkpoint(3))
    assert path.time.dtype == torch.float64
    torch.testing.assert_close(
        path.time, 0.1 * torch.tensor([0.0, 3.0, 6.0, 7.0], dtype=torch.float64), rtol=1e-15, atol=0
    )


# ---------------------------------------------------------------------------------------------- pendulum and spring


def pendulum_energy(path):
    return 0.5 * LENGTH**2 * path.v[:, 0].square() - G * LENGTH * path.q[:, 0].cos()


def test_energy_of_a_pendulum_stays_bounded():
    """The energy of semi-implicit Euler oscillates with an amplitude proportional to dt, and does not drift."""
    wobble = []
    for dt in (0.01, 0.005, 0.0025):
        energy = pendulum_energy(simulate(pendulum(1.5), dt, round(200 / dt)))
        error = (energy - energy[0]).abs()
        wobble.append(error.max().item())
        first, last = error[: len(error) // 10].max(), error[-len(error) // 10 :].max()
        assert 0.9 < last / first < 1.1  # no drift over 120 periods
    assert wobble[0] < 0.06 * G * LENGTH
    for coarse, fine in itertools.pairwise(wobble):
        assert 1.9 < coarse / fine < 2.1


def test_energy_that_semi_implicit_euler_conserves():
    """The modified energy H - dt/2 H_q·H_p is constant to dt²."""
    wobble = []
    for dt in (0.01, 0.005):
        path = simulate(pendulum(1.5), dt, round(20 / dt))
        q, v = path.q[:, 0], path.v[:, 0]
        modified = pendulum_energy(path) - 0.5 * dt * v * G * LENGTH * q.sin()
        wobble.append((modified - modified[0]).abs().max().item())
    assert 3.8 < wobble[0] / wobble[1] < 4.2


def elliptic(m):
    """The complete elliptic integral K, by the arithmetic-geometric mean."""
    a, b = 1.0, math.sqrt(1 - m)
    for _ in range(20):
        a, b = (a + b) / 2, math.sqrt(a * b)
    return math.pi / (2 * a)


@pytest.mark.parametrize("angle", [0.01, 1.0, 2.5])
def test_period_of_a_pendulum(angle):
    period = 4 * math.sqrt(LENGTH / G) * elliptic(math.sin(angle / 2) ** 2)
    dt = period / 4000
    path = simulate(pendulum(angle), dt, 4000, MIDPOINT)
    assert path.q[-1, 0].item() == pytest.approx(angle, rel=1e-5)
    assert path.q[2000, 0].item() == pytest.approx(-angle, rel=1e-5)
    assert abs(path.q[1000, 0].item()) < 1e-4 * angle


@INTEGRATORS
def test_mass_on_a_spring(integrator):
    """x = a cos ωt with ω² = k / m; the moving mass is that of the slider plus the armature."""
    scene = bd.Scene(dim=3, gravity=(0, 0, 0))
    scene.add_body("mass", bd.Sphere(0.1), mass=2.0)
    joint = bd.Slider(axis=(1, 2, 3), stiffness=50.0, rest=0.3, armature=0.5)
    scene.add_joint("rail", joint, child="mass", position=0.7)
    frequency = math.sqrt(50.0 / 2.5)
    errors = []
    for dt in (1e-3, 5e-4):
        path = simulate(scene.build(), dt, round(1.0 / dt), integrator)
        right = 0.3 + 0.4 * (frequency * path.time).cos()
        errors.append((path.q[:, 0] - right).abs().max().item())
    order = math.log2(errors[0] / errors[1])
    assert order == pytest.approx(1 if integrator == EULER else 2, abs=0.1)
    assert errors[1] < (2e-3 if integrator == EULER else 2e-6)


def test_damped_fall():
    """m v̇ = m g - d v: the speed approaches its limit exponentially."""
    scene = bd.Scene(dim=2, gravity=(0, -G))
    scene.add_body("mass", bd.Circle(0.1), mass=2.0)
    scene.add_joint("rail", bd.Slider(axis=(0, -1), damping=4.0), child="mass")
    path = simulate(scene.build(), 1e-3, 3000, MIDPOINT)
    right = 2.0 * G / 4.0 * (1 - (-4.0 / 2.0 * path.time).exp())
    assert (path.v[:, 0] - right).abs().max() < 1e-5


@INTEGRATORS
def test_huge_damping_is_stable(integrator):
    """Damping is implicit: a thousand times the damping at which explicit steps are unstable only stops the motion."""
    rng = np.random.default_rng(0)
    scene = bd.Scene(dim=3)
    scene.add_body("base", bd.Sphere(0.2), mass=1.0)
    scene.add_joint("ball", bd.Ball(damping=1e6), child="base", anchor=(0, 0.3, 0), velocity=rng.normal(size=3))
    scene.add_body("arm", bd.Sphere(0.1), mass=1.0, position=(1, 0, 0))
    scene.add_joint("hinge", bd.Hinge(axis=(0, 1, 0), damping=1e6), parent="base", child="arm", velocity=5.0)
    path = simulate(scene.build(), 0.01, 500, integrator)
    assert torch.isfinite(path.v).all()
    assert path.v.abs().max() <= 5.0 + 1e-9
    if integrator == EULER:
        assert path.v[-1].abs().max() < 1e-4  # it hardly moves
    else:
        assert path.v[-1].abs().max() < path.v[0].abs().max()


# ---------------------------------------------------------------------------------------------- free bodies


def test_free_fall_is_exact_with_midpoint():
    """x = x₀ + v t + g t²/2 of the center of mass, while the body rotates."""
    gravity = (0.3, -2.0, -9.81)
    model = free_body(gravity, com=False)
    path = simulate(model, 0.01, 1000, MIDPOINT)
    t = path.time[:, None]
    right = path.q[0, :3] + path.v[0, :3] * t + 0.5 * torch.tensor(gravity, dtype=torch.float64) * t**2
    assert ((path.q[:, :3] - right).abs() / right.abs().clamp(min=1)).max() < 1e-12


@pytest.mark.parametrize("load", [0.0, 2.0])
def test_constant_force_is_exact_with_midpoint(load):
    """A slider under a constant wrench moves by the component along its axis."""
    scene = bd.Scene(dim=2, gravity=(0, -G))
    scene.add_body("cart", bd.Box(1, 1), mass=2.0)
    scene.add_joint("rail", bd.Slider(axis=(1, 1)), child="cart", velocity=0.4)
    wrenches = torch.tensor([load, 0.0, 5.0], dtype=torch.float64).expand(200, 1, 3)
    path = simulate(scene.build(), 0.02, 200, MIDPOINT, wrenches=wrenches)
    acceleration = (load - 2.0 * G) / math.sqrt(2) / 2.0
    right = 0.4 * path.time + 0.5 * acceleration * path.time**2
    assert ((path.q[:, 0] - right).abs() / right.abs().clamp(min=1)).max() < 1e-12


@INTEGRATORS
def test_free_body_conserves_momentum(integrator):
    """Momenta are conserved to the order of the integrator; the center of mass is away from the body's origin."""
    drifts = []
    for dt in (2e-3, 1e-3):
        model = free_body()
        linear, angular, energy = momenta(model, simulate(model, dt, round(1 / dt), integrator))
        drifts.append([((x - x[0]).abs().max() / x[0].abs().max()).item() for x in (linear, angular, energy)])
    for coarse, fine in zip(*drifts):
        assert fine < (2e-2 if integrator == EULER else 2e-5)
        assert coarse / fine == pytest.approx(2 if integrator == EULER else 4, rel=0.15)


def test_linear_momentum_of_a_body_about_its_center():
    model = free_body(com=False)
    path = simulate(model, 0.01, 1000)
    linear, _, _ = momenta(model, path)
    assert (linear - linear[0]).abs().max() < 1e-12


def test_internal_forces_leave_momentum_alone():
    """A free tree with springs, dampers and motors between its links: the center of mass moves uniformly."""
    model = random_tree(["free", "hinge", "ball", "slider"], seed=0)
    held = torch.tensor([0.0, 1.0, 1.0, 1.0], dtype=torch.float64)  # the free joint has no spring, damper or motor
    parameters = {name: held * model.parameter(name) for name in ("stiffness", "damping")}
    parameters |= {"gravity": torch.zeros(3, dtype=torch.float64), "armature": 0 * held}
    assert (model.parent[1:] >= 0).all()
    errors = []
    for dt in (1e-3, 5e-4):
        controls = torch.ones(round(0.5 / dt), model.nu, dtype=torch.float64)
        q, v = random_state(model, 1)
        state = bd.State(q[0], v[0])
        path = simulate(model, dt, None, MIDPOINT, state, controls=controls, parameters=parameters)
        linear, angular, _ = momenta(model, path)
        errors.append([(x - x[0]).abs().max().item() for x in (linear, angular)])
        assert (path.v - path.v[0]).abs().max() > 0.5  # the links do move
    for coarse, fine in zip(*errors):
        assert fine < 1e-4
        assert coarse / fine == pytest.approx(4, rel=0.2)


@INTEGRATORS
def test_quaternions_stay_unit(integrator):
    model = random_tree(["free", "ball", "ball"], seed=3)
    path = simulate(model, 0.005, 10_000, integrator, adjoint=bd.Checkpoint(100))
    assert path.status.finite.all()
    for a in (3, 7, 11):
        assert (path.q[1:, a : a + 4].norm(dim=-1) - 1).abs().max() < 1e-12


@pytest.mark.parametrize("specialize", [False, True])
def test_order_of_the_integrators(specialize):
    """Halving dt halves the error of semi-implicit Euler, and quarters that of the midpoint rule."""
    joints = ["free", "hinge", "ball", "slider", "planar"]
    model = pendulum(damping=0.1) if specialize else random_tree(joints, seed=11)
    q, v = random_state(model, 1)
    state = bd.State(q[0], v[0])

    def end(integrator, steps):
        sim = bd.Simulator(model, 0.2 / steps, integrator=integrator, specialize=specialize)
        path = sim.rollout(state, steps=steps, adjoint=bd.Checkpoint(steps))
        return torch.cat([path.q[-1], path.v[-1]])

    exact = (4 * end(MIDPOINT, 8192) - end(MIDPOINT, 4096)) / 3
    for integrator, ratio in ((EULER, 2), (MIDPOINT, 4)):
        coarse, fine = ((end(integrator, n) - exact).norm() for n in (400, 800))
        assert coarse / fine == pytest.approx(ratio, rel=0.02)


# ---------------------------------------------------------------------------------------------- dimensions, faults


@INTEGRATORS
def test_planar_scene_and_its_spatial_twin(integrator):
    """A 2D scene moves like the same scene in 3D in the plane z = 0: gravity, springs, motors and wrenches."""
    scenes = {dim: bd.Scene(dim=dim, gravity=(0.5, -G, 0.0)[:dim]) for dim in (2, 3)}
    for dim, scene in scenes.items():

        def at(x, y, dim=dim):
            return (x, y, 0.0)[:dim]

        def turned(angle, dim=dim):
            return {"angle": angle} if dim == 2 else {"quaternion": (math.cos(angle / 2), 0, 0, math.sin(angle / 2))}

        def body(name, mass, inertia, com, place, angle, dim=dim, scene=scene, at=at, turned=turned):
            inertia = inertia if dim == 2 else (inertia,) * 3
            scene.add_body(name, mass=mass, inertia=inertia, com=at(*com), position=at(*place), **turned(angle))

        axis = {} if dim == 2 else {"axis": (0, 0, 1)}
        body("cart", 1.0, 0.3, (0.1, 0.0), (0.2, 0.1), 0.4)
        scene.add_joint("rail", bd.Slider(axis=at(1, 0.2), damping=0.3), child="cart")
        body("pole", 0.5, 0.1, (0.0, 0.2), (0.3, 0.6), -0.7)
        scene.add_joint(
            "hinge", bd.Hinge(stiffness=2.0, rest=0.3, **axis), parent="cart", child="pole", anchor=at(0.2, 0.3)
        )
        body("plate", 0.4, 0.05, (0.03, 0.04), (0.5, 1.0), 0.2)
        scene.add_joint("planar", bd.Planar(armature=0.1, stiffness=1.0), parent="pole", child="plate")
        scene.add_motor("servo", bd.PositionServo(kp=3.0, kv=0.2, force_limits=(-1, 1)), joint="hinge")
    models = {dim: scene.build() for dim, scene in scenes.items()}
    generator = torch.Generator().manual_seed(0)
    q, v = (torch.randn(5, generator=generator, dtype=torch.float64) for _ in range(2))
    controls = torch.randn(100, 1, generator=generator, dtype=torch.float64)
    flat = torch.randn(100, 3, 3, generator=generator, dtype=torch.float64)
    spatial = torch.zeros(100, 3, 6, dtype=torch.float64)
    spatial[..., [0, 1, 5]] = flat
    paths = [
        simulate(models[dim], 0.01, None, integrator, bd.State(q, v), controls=controls, wrenches=w)
        for dim, w in ((2, flat), (3, spatial))
    ]
    for name in ("q", "v"):
        torch.testing.assert_close(getattr(paths[0], name), getattr(paths[1], name), rtol=1e-11, atol=1e-11)
    for body in models[2].bodies:
        for quantity in ("position", "velocity"):
            mine, right = (getattr(path, quantity)(body) for path in paths)
            torch.testing.assert_close(mine, right[:, :2], rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(paths[0].rotation(body), paths[1].rotation(body)[:, :2, :2], rtol=1e-11, atol=1e-11)
        spin = paths[1].angular_velocity(body)[:, 2]
        torch.testing.assert_close(paths[0].angular_velocity(body), spin, rtol=1e-11, atol=1e-11)
        angle, R = paths[0].orientation(body), paths[0].rotation(body)
        torch.testing.assert_close(angle.sin(), R[:, 1, 0], rtol=0, atol=1e-12)
        torch.testing.assert_close(angle.cos(), R[:, 0, 0], rtol=0, atol=1e-12)


@INTEGRATORS
@pytest.mark.parametrize("specialize", [False, True])
def test_nothing_moves(integrator, specialize):
    """A model whose bodies are all fixed has no coordinates; every function still works."""
    scene = bd.Scene(dim=3)
    scene.add_body("base", bd.Box(1, 1, 1), mass=1.0, position=(1, 2, 3))
    scene.add_joint("weld", bd.Fixed(), child="base")
    scene.add_body("top", bd.Box(1, 1, 1), mass=1.0, position=(1, 2, 4))
    scene.add_joint("weld2", bd.Fixed(), parent="base", child="top")
    model = scene.build()
    assert (model.nq, model.nv) == (0, 0)
    sim = bd.Simulator(model, 0.01, integrator=integrator, specialize=specialize)
    offset = model.parameter("offset").requires_grad_()
    path = sim.rollout(model.initial_state(3), steps=4, parameters={"offset": offset})
    assert path.q.shape == (5, 3, 0)
    assert path.status.finite.all()
    place = path.position("top")
    assert torch.allclose(place, torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64).expand(5, 3, 3))
    place.sum().backward()
    assert torch.equal(offset.grad, torch.full((2, 3), 15.0, dtype=torch.float64))
    assert sim.forward_dynamics(model.initial_state(3)).shape == (3, 0)
    assert sim.inverse_dynamics(model.initial_state(3), torch.zeros(3, 0, dtype=torch.float64)).shape == (3, 0)
    assert sim.mass_matrix(model.initial_state(3)).shape == (3, 0, 0)
    state = sim.step(model.initial_state())
    assert state.q.shape == (0,)


@INTEGRATORS
def test_motors_saturate(integrator):
    scene = bd.Scene(dim=2, gravity=(0, 0))
    for k, motor in enumerate([
        bd.Motor(gear=2.0, limits=(-1, 1)),
        bd.Motor(force_limits=(-3, 0.5)),
        bd.PositionServo(kp=10.0, force_limits=(-4, 4)),
        bd.VelocityServo(kv=1.0),
    ]):  # fmt: skip
        scene.add_body(f"cart{k}", bd.Box(1, 1), mass=2.0, position=(0.0, 2.0 * k))
        scene.add_joint(f"rail{k}", bd.Slider(axis=(1, 0)), child=f"cart{k}")
        scene.add_motor(f"motor{k}", motor, joint=f"rail{k}")
    sim = bd.Simulator(scene.build(), 0.01, integrator=integrator, specialize=False)
    controls = torch.tensor([[5.0, 5.0, 5.0, 5.0], [0.5, 0.2, 0.1, 0.3], [-5.0, -2.0, 0.0, 9.0]], dtype=torch.float64)
    controls.requires_grad_()
    state = sim.model.initial_state(3)
    path = sim.rollout(state, controls[None])
    assert path.status.clipped.tolist() == [[3, 0, 1]]
    forces = torch.tensor([[2.0, 0.5, 4.0, 5.0], [1.0, 0.2, 1.0, 0.3], [-2.0, -2.0, 0.0, 9.0]], dtype=torch.float64)
    torch.testing.assert_close(path.v[1], 0.01 * forces / 2.0, rtol=5e-3, atol=0)  # servos see some motion
    path.v[1].sum().backward()
    limited = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]], dtype=torch.bool)
    assert ((controls.grad == 0) == limited).all()


@pytest.mark.parametrize("specialize", [False, True])
def test_faults_stay_in_their_environment(specialize):
    """NaN and overflow are reported where they happen; other environments and their gradients keep every bit."""
    model = random_tree(["free", "hinge"], seed=5)
    sim = bd.Simulator(model, 0.01, specialize=specialize, nonfinite="mark")
    state, bad = random_state(model, 20), [3, 11]
    fine = [k for k in range(20) if k not in bad]

    def run(q, v):
        q, v = q.clone().requires_grad_(), v.clone().requires_grad_()
        path = sim.rollout(bd.State(q, v), steps=30)
        path.q[:, fine].sum().backward()
        return path, q.grad, v.grad

    good = run(state.q, state.v)
    q, v = state.q.clone(), state.v.clone()
    q[3, 0], v[11, 4] = math.nan, 1e200
    faulty = run(q, v)
    for mine, right in (
        (faulty[0].q[:, fine], good[0].q[:, fine]),
        *((faulty[k][fine], good[k][fine]) for k in (1, 2)),
    ):
        assert torch.equal(mine, right)
    assert good[0].status.finite.all()
    assert faulty[0].status.finite[:, fine].all()
    assert not faulty[0].status.finite[:, 3].any()
    assert not faulty[0].status.finite[-1, 11]


def test_overflow_is_announced():
    model = random_tree(["free", "hinge"], seed=5)
    state = random_state(model, 20)
    state.v[11, 4] = 1e200
    with pytest.warns(RuntimeWarning, match="environment 11 is no longer finite"):
        bd.Simulator(model, 0.01, specialize=False).rollout(state, steps=30)
