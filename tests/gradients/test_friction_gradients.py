"""Gradients through the directions of friction in 3D, which follow the slip: against central differences."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from contact_differences import Tally, check_gradients, gradients
from contact_scenes import INTEGRATORS, SOLVERS, parameters, rolled
from differences import require_derivative, weights
from models import random_quaternion
from piles import pile, settled

import backdrive as bd

DT = 0.01
EVERY_DAY = (("gauss-seidel", "euler", False), ("interior-point", "midpoint", True))  # the rest is slow
SCHEMES = pytest.mark.parametrize(
    ("solver", "integrator", "impacts"),
    [
        pytest.param(*scheme, marks=() if scheme in EVERY_DAY else pytest.mark.slow)
        for scheme in itertools.product(SOLVERS, INTEGRATORS, (False, True))
    ],
)
NAMES = ("friction", "mass", "inertia", "gravity", "restitution")


def simulator(model, solver="gauss-seidel", integrator="euler", impacts=False, pyramid=4):
    settings = {"solver": SOLVERS[solver], "integrator": INTEGRATORS[integrator]}
    return rolled(model, DT, **settings, impacts=impacts, pyramid=pyramid)


@functools.cache
def skater(friction):
    """A trunk on two legs with feet at different heights: hinges with motors, and a slope beneath."""
    scene = bd.Scene(3)
    scene.add_static(bd.HalfSpace((0.1, -0.05, 1.0)), friction=friction)
    scene.add_body("trunk", bd.Box(0.5, 0.3, 0.1), mass=3.0, position=(0, 0, 0.5), friction=friction)
    for k, (x, y) in enumerate(((-0.2, 0.1), (0.2, -0.1))):
        scene.add_body(f"leg{k}", bd.Sphere(0.06), mass=0.5, position=(x, y, 0.2), friction=friction)
        hinge = bd.Hinge(axis=(0.3, 1.0, 0.1), damping=0.1, stiffness=20.0)
        scene.add_joint(f"hip{k}", hinge, parent="trunk", child=f"leg{k}", anchor=(x, y, 0.45))
        scene.add_motor(f"motor{k}", joint=f"hip{k}", gear=2.0)
    return scene.build()


def skating(friction, samples, speed, seed=0, approach=0.5):
    """Both feet touch the ground, and slide at this speed (m/s); controls are random."""
    model = skater(friction)
    q, v = model.initial_state(batch=samples)
    q = q.clone()
    normal = np.array([0.1, -0.05, 1.0])
    lowest = min(normal @ place for place in ((-0.2, 0.1, 0.2), (0.2, -0.1, 0.2))) / np.linalg.norm(normal)
    q[:, 2] -= (lowest - 0.06 - 1e-3) * np.linalg.norm(normal)
    v = 0.3 * weights(samples, model.nv, seed=seed)
    turn = weights(samples, seed=seed + 1)
    v[:, 0], v[:, 1], v[:, 2] = speed * turn.cos(), speed * turn.sin(), -approach
    controls = weights(samples, 2, model.nu, seed=seed + 2)
    given = parameters(model, samples, *NAMES, "damping", spread=0.02, seed=seed)
    return model, {"q": q, "v": v, "controls": controls} | given


@SCHEMES
@pytest.mark.parametrize(("friction", "speed"), [(0.2, 2.0), (0.9, 0.3)], ids=["slides", "sticks"])
def test_a_robot_that_slides_or_sticks(friction, speed, solver, integrator, impacts):
    model, inputs = skating(friction, 3, speed)
    tally = check_gradients(simulator(model, solver, integrator, impacts), inputs, 2)
    tally.require("q", "v", "controls", "friction", "mass", "gravity")


def thrown(samples, seed):
    """A box and a capsule that hit a slope, tumbling."""
    scene = bd.Scene(3)
    scene.add_static(bd.HalfSpace((0.2, 0.1, 1.0)), friction=0.3)
    scene.add_body("box", bd.Box(0.3, 0.2, 0.1), mass=1.0, friction=0.2)
    scene.add_body("capsule", bd.Capsule(0.06, 0.2), mass=0.7, position=(1.0, 0.0, 0.0), friction=0.4)
    model, rng = scene.build(), np.random.default_rng(seed)
    q, v = model.initial_state(batch=samples)
    q = q.clone()
    for s in range(samples):
        for start in (0, 7):
            q[s, start + 3 : start + 7] = torch.tensor(random_quaternion(rng))
            q[s, start + 2] = rng.uniform(0.15, 0.2) - (0.2 if start else 0.0)
    v = v + torch.tensor(rng.normal(size=(samples, model.nv))) + torch.tensor([1.0, -2.0, -2.0, 0.0, 0.0, 0.0] * 2)
    return model, {"q": q, "v": v} | parameters(model, samples, *NAMES, spread=0.02, seed=seed)


@SCHEMES
def test_bodies_that_hit_a_slope(solver, integrator, impacts):
    tally = Tally()
    for seed in range(2):
        model, inputs = thrown(3, seed)
        check_gradients(simulator(model, solver, integrator, impacts), inputs, 3, tally)
    tally.require("q", "v", "friction", "mass", "inertia")


@pytest.mark.parametrize(("solver", "integrator"), [("gauss-seidel", "euler"), ("interior-point", "midpoint")])
@pytest.mark.parametrize("speed", [2.0, 0.02], ids=["fast", "slow"])
def test_round_cones_in_plain_steps(speed, solver, integrator):
    """Also where the slip is so slow that pyramids would not follow it."""
    model, inputs = skating(0.2, 3, speed, approach=0.0 if speed < 0.1 else 0.5)
    tally = check_gradients(simulator(model, solver, integrator, pyramid=math.inf), inputs, 2)
    tally.require("q", "v", "controls", "friction", "mass", "gravity")


def test_bodies_that_are_hit_at_rest():
    """A box and a ball that rest on the floor until others hit them obliquely: they slide after the hit, in directions
    that no contact has before it."""
    scene = bd.Scene(3)
    scene.add_static(bd.HalfSpace((0, 0, 1)), friction=0.2, restitution=0.0)
    shapes, samples = (bd.Box(0.2, 0.2, 0.2), bd.Sphere(0.1)), 2
    for k, shape in enumerate(shapes):
        scene.add_body(f"rests{k}", shape, mass=1.0, position=(2.0 * k, 0, 0.1), friction=0.2, restitution=0.0)
        scene.add_body(
            f"ball{k}", bd.Sphere(0.1), mass=0.7, position=(2.0 * k - 0.21, 0.03, 0.15), friction=0.1, restitution=0.6,
        )  # fmt: skip
    model = scene.build()
    q, v = model.initial_state(batch=samples)
    q, v, rng = q.clone(), v.clone(), np.random.default_rng(0)
    for s in range(samples):
        for k in range(2):
            ball = slice(12 * k + 6, 12 * k + 9)
            v[s, ball] = torch.tensor([3.0, *rng.normal(size=2)]) * torch.tensor([1.0, 1.0, 0.3])
    inputs = {"q": q, "v": v} | parameters(model, samples, "friction", "mass", spread=0.02)
    tally = check_gradients(simulator(model, impacts=True), inputs, 2)
    tally.require("v", "friction", "mass", least=0.3)


def test_forces_of_what_slides():
    """The gradient of contact forces, whose direction follows the slip."""
    model, inputs = skating(0.2, 3, 2.0, seed=5)
    check_gradients(simulator(model), inputs, 2, forces=()).require("q", "v", "controls", "friction", "mass")


def test_nothing_depends_on_the_company():
    """Where one environment slides, the gradients of those that stick are the same, to the bit."""
    model, slides = skating(0.6, 1, 3.0, approach=0.0)
    _, rests = skating(0.6, 1, 0.0, seed=3, approach=0.0)
    sim, both = simulator(model), {name: torch.cat([rests[name], slides[name]]) for name in rests}
    alone, together = gradients(sim, rests, 2), gradients(sim, both, 2)
    assert all(torch.equal(alone[name][0], together[name][0]) for name in rests)


@pytest.mark.parametrize("pyramid", [4, math.inf])
def test_linearize_what_slides(pyramid):
    """The Jacobians of the kernel that finds them at once are those of repeated backward passes."""
    model, inputs = skating(0.2, 1, 2.0, seed=7)
    sim, state = simulator(model, pyramid=pyramid), bd.State(inputs["q"][0], inputs["v"][0])
    control = inputs["controls"][0, 0]
    A, B = sim.linearize(state, control)
    v, u = (x.clone().requires_grad_() for x in (state.v, control))
    after = sim.step(bd.State(state.q, v), u).v
    for k in range(model.nv):
        by_v, by_u = torch.autograd.grad(after[k], [v, u], retain_graph=True)
        torch.testing.assert_close(A[model.nv + k, model.nv :], by_v, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(B[model.nv + k], by_u, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_forces_in_big_worlds(integrator):
    """Of bodies that slide over each other: with respect to the velocities, on which directions depend."""
    model = pile(6, seed=1)
    sim = bd.Simulator(model, DT, sparse=True, integrator=INTEGRATORS[integrator])
    state = settled(sim, 30)
    start = state.v + 0.5 * weights(model.nv, seed=3)

    def force(v):
        found = sim.rollout(bd.State(state.q, v), steps=1).contacts.force
        return (found * weights(*found.shape, seed=4)).sum()

    v = start.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(force(v), v)
    direction = weights(model.nv, seed=5)
    require_derivative(gradient, lambda x: float(force(x).detach()), start, [direction], 1e-6, "v")
