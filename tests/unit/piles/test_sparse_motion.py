"""The sparse form moves bodies as the dense one does, and as physics says."""

from dataclasses import replace

import pytest
import torch
from piles import pile, settled, tower

import backdrive as bd

EXACT = bd.ProjectedGaussSeidel(iterations=20_000, tolerance=1e-12)
# Friction of a face that slides depends on how its points share the load: with some compliance, sweeps find that, too.
SHARING = replace(EXACT, cfm=1e-3)


@pytest.mark.parametrize("integrator", [bd.SemiImplicitEuler(), bd.Midpoint()], ids=["euler", "midpoint"])
@pytest.mark.parametrize(("restitution", "step"), [(0.0, True), (0.4, False)], ids=["step", "bounce"])
@pytest.mark.parametrize("dim", [2, 3])
def test_a_step_is_that_of_the_dense_form(dim, restitution, step, integrator):
    """From the same states, without impulses of steps before. With friction, some problem may have two solutions."""
    model = pile(7, seed=dim, dim=dim, spacing=0.95, restitution=restitution, step=step)
    options = {"integrator": integrator, "impacts": False}
    pivoting = bd.ProjectedGaussSeidel(cfm=SHARING.cfm)
    dense = bd.Simulator(model, 0.01, solver=pivoting, sparse=False, specialize=False, **options)
    sparse = bd.Simulator(model, 0.01, solver=SHARING, sparse=True, **options)
    path = dense.rollout(model.initial_state(), steps=60)
    state = bd.State(path.q[:-1:4], path.v[:-1:4])
    a, b = (simulator.rollout(state, steps=1) for simulator in (dense, sparse))
    assert int(a.status.contacts.max()) > 5
    good = (a.status.converged & (b.status.residual < 1e-9))[0]
    same = ((a.last.v - b.last.v).abs().amax(1) < 1e-6) & ((a.last.q - b.last.q).abs().amax(1) < 1e-8)
    assert (good & same).sum() >= 10
    assert (good & ~same).sum() <= 1
    assert torch.allclose(a.status.depth, b.status.depth, atol=1e-12)


@pytest.mark.parametrize("dim", [2, 3])
def test_sweeps_that_do_not_converge_are_reported(dim):
    model = pile(30, dim=dim)
    simulator = bd.Simulator(model, 0.01, sparse=True, solver=bd.ProjectedGaussSeidel(iterations=2, tolerance=1e-10))
    status = simulator.rollout(model.initial_state(), steps=40).status
    assert not status.converged[-10:].any()
    assert (status.residual[-10:] > 1e-10).all()
    assert status.finite.all()


def test_a_tower_comes_to_rest():
    model = tower(4)
    simulator = bd.Simulator(model, 0.005, sparse=True)
    path = simulator.rollout(model.initial_state(), steps=300)
    assert path.v[-1].abs().max() < 2e-3
    assert path.status.contacts[-1] == 16
    assert path.status.depth[-1] < 1e-5
    assert (path.q[-1] - path.q[0]).abs().max() < 1e-3


@pytest.mark.parametrize("dim", [2, 3])
def test_nothing_is_lost_in_a_pile(dim):
    """All bodies stay between the walls, no deeper in anything than a few millimetres, and lose their energy."""
    model = pile(60, dim=dim)
    simulator = bd.Simulator(model, 0.005, sparse=True)
    path = simulator.rollout(model.initial_state(), steps=400)
    assert path.status.finite.all()
    places = torch.stack([path.position(name)[-1] for name in model.bodies])
    half = 0.1 * 1.05 * round(0.8 * 60 ** (1 / dim)) + 0.1
    assert (places[:, -1] > 0.03).all()
    assert (places[:, :-1].abs() < half - 0.03).all()
    assert path.status.depth[-50:].max() < 5e-3
    speed = torch.stack([path.velocity(name) for name in model.bodies]).norm(dim=-1)
    assert speed.max() > 0.5
    assert speed[:, -1].median() < 0.05


def test_what_is_at_rest_does_not_feel_what_moves_elsewhere():
    """Islands are solved on their own: beside a heap that falls, towers stand as they do without it."""
    scenes = []
    for falling in (0, 20):
        scene = bd.Scene(dim=3)
        scene.add_static(bd.HalfSpace(normal=(0, 0, 1)), friction=0.6)
        for i in range(12):  # more pairs than a group of several islands may have
            for k in range(3):
                place = (0.5 * i, 0.003 * k, 0.2 * (k + 0.5))
                scene.add_body(f"box {i} {k}", bd.Box(0.2, 0.2, 0.2), density=500.0, position=place, friction=0.6)
        for i in range(falling):
            place = (20.0 + 0.3 * (i % 3), 0.02 * i, 0.15 + 0.25 * (i // 3))
            scene.add_body(f"loose {i}", bd.Box(0.2, 0.15, 0.1), density=500.0, position=place, friction=0.6)
        scenes.append(scene.build())
    paths = [bd.Simulator(m, 0.005, sparse=True).rollout(m.initial_state(), steps=60) for m in scenes]
    assert paths[1].status.contacts[-1] > paths[0].status.contacts[-1] + 10
    moved = [torch.stack([path.position(f"box {i} 2") for i in range(8)]) for path in paths]
    assert (moved[0] - moved[1]).abs().max() < 1e-6
    assert paths[0].v[-1].abs().max() < 1e-2


def test_momentum_is_kept_between_bodies():
    """Without gravity and walls, what one body gains the others lose; and so it is with angular momentum."""
    scene = bd.Scene(dim=3, gravity=(0, 0, 0))
    generator = torch.Generator().manual_seed(0)
    for i in range(8):
        place = (torch.rand(3, generator=generator) * 0.5).tolist()
        toward = (torch.rand(3, generator=generator) - 0.5).tolist()
        shape = bd.Box(0.3, 0.2, 0.25) if i % 2 else bd.Capsule(0.1, 0.2)
        scene.add_body(f"{i}", shape, mass=1.0 + i, position=place, velocity=toward, friction=0.5, restitution=0.5)
    model = scene.build()
    simulator = bd.Simulator(model, 0.01, sparse=True)
    path = simulator.rollout(model.initial_state(), steps=50)
    assert path.status.contacts.max() > 3
    mass = model.parameter("mass")
    velocity = torch.stack([path.velocity(name) for name in model.bodies], 1)
    momentum = (mass[:, None] * velocity).sum(1)
    assert (momentum - momentum[0]).abs().max() < 1e-12


@pytest.mark.parametrize(("slope", "slides"), [(0.4, False), (0.6, True)])
def test_friction_holds_on_a_slope(slope, slides):
    """With μ = 0.5; the acceleration of what slides is g (sin a - μ cos a)."""
    scene = bd.Scene(dim=2)
    angle = torch.atan(torch.tensor(slope, dtype=torch.float64))
    normal = (-float(angle.sin()), float(angle.cos()))
    scene.add_static(bd.HalfSpace(normal=normal), friction=0.5)
    along = (float(angle.cos()), float(angle.sin()))
    for i in range(3):
        place = tuple(i * x + 0.1 * n for x, n in zip(along, normal))
        scene.add_body(f"{i}", bd.Box(0.4, 0.2), mass=1.0, position=place, angle=float(angle), friction=0.5)
    simulator = bd.Simulator(scene.build(), 0.01, sparse=True, solver=EXACT)
    path = simulator.rollout(simulator.model.initial_state(), steps=50)
    expected = -9.81 * (angle.sin() - 0.5 * angle.cos()) * 0.5 if slides else 0.0
    for i in range(3):
        speed = path.velocity(f"{i}")[-1] @ torch.tensor(along, dtype=torch.float64)
        assert abs(speed - expected) < 1e-6


def test_float32_is_close():
    model = pile(30)
    state = settled(bd.Simulator(model, 0.005, sparse=True), 40)
    double = bd.Simulator(model, 0.005, sparse=True).rollout(state, steps=3)
    state = bd.State(state.q.float(), state.v.float())
    single = bd.Simulator(model, 0.005, sparse=True, dtype=torch.float32).rollout(state, steps=3)
    assert single.q.dtype == torch.float32
    assert (double.q - single.q).abs().max() < 1e-4
    assert (double.v - single.v).abs().max() < 2e-2


def test_wrenches_and_parameters_act():
    model = pile(5, dim=2, kinds=("box",))
    simulator = bd.Simulator(model, 0.01, sparse=True)
    state = model.initial_state()
    free = simulator.rollout(state, steps=1).last.v
    wrench = torch.zeros(1, 5, 3, dtype=torch.float64)
    wrench[0, 2] = torch.tensor([1.0, 2.0, 0.3])
    pushed = simulator.rollout(state, wrenches=wrench).last.v
    mass, inertia = model.parameter("mass")[2], model.parameter("inertia")[2]
    change = (pushed - free).reshape(5, 3)[2]
    assert torch.allclose(change, 0.01 * torch.stack([1.0 / mass, 2.0 / mass, 0.3 / inertia]), rtol=1e-9)
    up = simulator.rollout(state, steps=1, parameters={"gravity": torch.tensor([0.0, 5.0], dtype=torch.float64)}).last.v
    assert abs(up.reshape(5, 3)[4, 1] - 0.05) < 1e-12
