"""Gradients of bodies that spin fast are those of central differences: flying, hitting a floor, in big worlds."""

import numpy as np
import pytest
import torch
from contact_differences import check_gradients
from contact_scenes import INTEGRATORS, parameters, rolled
from hypothesis import given, settings
from hypothesis import strategies as st
from impact_scenes import Random, simulator
from models import random_inertia, random_quaternion

import backdrive as bd
from backdrive.differences import central

BOTH = pytest.mark.parametrize("integrator", INTEGRATORS)
DT, SAMPLES = 1 / 120, 3


def spinner(seed, speed=60.0, bodies=1, height=0.4):
    """Bodies with centers of mass off their origins that fall to the floor; speed: rad/s, of each component."""
    rng = np.random.default_rng(seed)
    scene = bd.Scene(3)
    scene.add_static(bd.HalfSpace((0.0, 0.0, 1.0)), restitution=0.6, friction=0.4)
    for k in range(bodies):
        scene.add_body(
            f"body{k}", bd.Sphere(0.2), mass=0.7, inertia=random_inertia(rng, 0.7), com=0.005 * rng.normal(size=3),
            position=(k, 0.0, height), quaternion=random_quaternion(rng), velocity=(0.5, 0.2, -4.0),
            angular_velocity=speed * rng.normal(size=3), restitution=0.6, friction=0.4,
        )  # fmt: skip
    return scene.build()


def inputs_of(model, seed):
    state, random = model.initial_state(SAMPLES), Random(seed, SAMPLES)
    inputs = {"q": state.q + random(-0.01, 0.01, model.nq), "v": state.v + random(-0.3, 0.3, model.nv)}
    inputs |= parameters(model, SAMPLES, spread=0.02, seed=seed)
    inputs["armature"] = random(0.0, 0.01, model.nlink)
    return inputs


@BOTH
@settings(max_examples=4)
@given(st.floats(1.0, 100.0), st.integers(0, 10**6))
def test_flight(integrator, speed, seed):
    model = spinner(seed, speed, height=50.0)
    sim = rolled(model, DT, integrator=INTEGRATORS[integrator])
    check_gradients(sim, inputs_of(model, seed), 6, step=1e-5).require("q", "v", "inertia", "mass", "com", least=0.5)


@BOTH
@settings(max_examples=3)
@given(st.integers(0, 10**6))
def test_impacts(integrator, seed):
    """The time of an impact depends on the spin, and the spin after it on the time that it had before and has left."""
    model = spinner(seed)
    sim, inputs = simulator(model, DT, integrator), inputs_of(model, seed)
    rest = {name: x for name, x in inputs.items() if name not in ("q", "v")}
    status = sim.rollout(bd.State(inputs["q"], inputs["v"]), steps=12, parameters=rest).status
    assert (status.impacts.sum(0) >= 1).any()
    check_gradients(sim, inputs, 12, step=1e-5).require("q", "v", "inertia", "mass", "com", least=0.5)


@BOTH
@pytest.mark.parametrize("specialize", [False, True])
def test_jacobians(integrator, specialize):
    """A and B of a step of a body on a ball joint that carries another."""
    rng = np.random.default_rng(5)
    scene = bd.Scene(3)
    for k, (name, parent) in enumerate((("upper", None), ("lower", "upper"))):
        scene.add_body(name, mass=1.0, inertia=random_inertia(rng, 1.0), position=(0.2, 0.1, -0.5 * k))
        scene.add_joint(f"joint{k}", bd.Ball(damping=0.1, armature=0.02), parent=parent, child=name,
                        anchor=(0.0, 0.0, 0.3 - 0.5 * k))  # fmt: skip
    model = scene.build()
    sim = bd.Simulator(model, 0.01, integrator=INTEGRATORS[integrator], specialize=specialize)
    q, v = model.initial_state().q, torch.tensor(40.0 * rng.normal(size=6))
    A, _ = sim.linearize(bd.State(q, v))
    for k in range(6):
        e = torch.eye(6, dtype=torch.float64)[k]
        column = central(lambda x, e=e: sim.step(bd.State(q, v + x * e)).v, 1e-4)
        torch.testing.assert_close(A[6:, 6 + k], column, rtol=1e-6, atol=1e-7)


@BOTH
def test_big_worlds(integrator):
    model = spinner(3, bodies=3)
    sim = bd.Simulator(model, DT, integrator=INTEGRATORS[integrator], sparse=True)
    inputs = {name: x[:1] for name, x in inputs_of(model, 3).items() if name in ("q", "v", "inertia", "mass", "com")}
    check_gradients(sim, inputs, 4, step=1e-5).require("q", "v", "inertia", "mass", "com", least=0.5)
