"""Gradients of stiff servos with respect to everything, kp, kv and gear included, are those of central differences."""

import pytest
import torch
from contact_differences import check_gradients
from contact_scenes import INTEGRATORS, parameters, rolled
from differences import weights
from hypothesis import given, settings
from hypothesis import strategies as st
from impact_scenes import Random, simulator

import backdrive as bd
from backdrive.differences import central

BOTH = pytest.mark.parametrize("integrator", INTEGRATORS)
DT, SAMPLES = 1 / 120, 4


def walker():
    """A trunk on a planar stage, x held by a stiff servo, with two driven legs that hit the floor."""
    scene = bd.Scene(2)
    scene.add_static(bd.HalfSpace((0.0, 1.0)), restitution=0.3, friction=0.6)
    scene.add_body("trunk", bd.Box(0.5, 0.2), mass=2.0, position=(0.0, 0.56), velocity=(0.5, -1.0))
    scene.add_joint("stage", bd.Planar(), child="trunk")
    scene.add_motor("pull", bd.PositionServo(kp=300.0, kv=80.0), joint="stage", dof="x")
    for k, x in enumerate((-0.2, 0.2)):
        scene.add_body(f"leg{k}", bd.Circle(0.1), mass=0.1, position=(x, 0.2 + 0.03 * k), friction=0.7, restitution=0.3)
        scene.add_joint(f"hip{k}", bd.Hinge(), parent="trunk", child=f"leg{k}", anchor=(x, 0.46))
    scene.add_motor("hip0", bd.PositionServo(kp=60.0, kv=10.0, gear=1.3, force_limits=(-3.0, 3.0)), joint="hip0")
    scene.add_motor("hip1", bd.VelocityServo(kv=25.0, gear=0.8), joint="hip1")
    return scene.build()


def inputs_of(model, seed, steps):
    state, random = model.initial_state(SAMPLES), Random(seed, SAMPLES)
    inputs = {"q": state.q + random(-0.01, 0.01, model.nq), "v": state.v + random(-0.3, 0.3, model.nv)}
    inputs["controls"] = random(-0.2, 0.2, steps, model.nu)
    return inputs | parameters(model, SAMPLES, spread=0.02, seed=seed)


@BOTH
@pytest.mark.parametrize("impacts", [False, True])
@settings(max_examples=2)
@given(seed=st.integers(0, 10**6))
def test_driven_legs_that_hit_the_floor(integrator, impacts, seed):
    model = walker()
    sim = simulator(model, DT, integrator) if impacts else rolled(model, DT, integrator=INTEGRATORS[integrator])
    inputs = inputs_of(model, seed, 12)
    rest = {name: x for name, x in inputs.items() if name not in ("q", "v", "controls")}
    path = sim.rollout(bd.State(inputs["q"], inputs["v"]), inputs["controls"].transpose(0, 1), parameters=rest)
    assert (path.status.contacts > 0).any() and (not impacts or path.status.impacts.sum() >= SAMPLES)
    check_gradients(sim, inputs, 12).require("q", "v", "controls", "kp", "kv", "gear", "mass", least=0.6)


def test_jacobians_of_a_step_in_contact():
    model = walker()
    sim, (q, v) = rolled(model, DT), (x[0] for x in model.initial_state(1))
    q, u = q - torch.tensor([0.0, 0.105, 0.0, 0.0, 0.0], dtype=torch.float64), weights(model.nu)
    A, B = sim.linearize(bd.State(q, v), u)
    x = torch.cat([q, v, u])

    def after(y):
        return torch.cat(sim.step(bd.State(y[: model.nq], y[model.nq : model.nq + model.nv]), y[model.nq + model.nv :]))

    columns = [central(lambda e, d=d: after(x + e * d), 1e-6) for d in torch.eye(len(x), dtype=torch.float64)]
    torch.testing.assert_close(torch.cat([A, B], -1), torch.stack(columns, -1), rtol=1e-6, atol=1e-6)


def arm(limit, kp, kv, links=3):
    """Light links in a row, without gravity, each with a servo of limited force."""
    scene, parent = bd.Scene(2, gravity=(0.0, 0.0)), None
    for k in range(links):
        scene.add_body(f"link{k}", bd.Box(0.04, 0.2), mass=0.2, position=(0.0, -0.1 - 0.2 * k))
        scene.add_joint(f"hinge{k}", bd.Hinge(), parent=parent, child=f"link{k}", anchor=(0.0, -0.2 * k))
        servo = bd.PositionServo(kp=kp, kv=kv, force_limits=(-limit, limit))
        scene.add_motor(f"servo{k}", servo, joint=f"hinge{k}")
        parent = f"link{k}"
    return scene.build()


@BOTH
@settings(max_examples=10)
@given(
    limit=st.floats(0.5, 50.0),
    kv=st.floats(0.1, 30.0),
    speeds=st.lists(st.floats(-10.0, 10.0), min_size=3, max_size=3),
    dt=st.sampled_from([1 / 60, 1 / 240]),
)
def test_brakes_of_limited_force_do_not_drive(integrator, limit, kv, speeds, dt):
    """With targets of zero speed and hardly any stiffness, no step gains energy, limit or not."""
    model = arm(limit, 1e-9, kv)
    sim = rolled(model, dt, integrator=INTEGRATORS[integrator])
    v = torch.tensor(speeds, dtype=torch.float64)
    path = sim.rollout(bd.State(torch.zeros_like(v), v), torch.zeros(120, 3, dtype=torch.float64))
    energy = 0.5 * torch.einsum("ti,tij,tj->t", path.v, sim.mass_matrix(bd.State(path.q, path.v)), path.v)
    assert (energy[1:] <= energy[:-1] * (1.0 + 0.02) + 1e-9).all()
    assert energy[-1] <= energy[0]


@BOTH
@settings(max_examples=4)
@given(seed=st.integers(0, 10**6), limit=st.floats(1.0, 6.0))
def test_arms_of_limited_force(integrator, seed, limit):
    model, random = arm(limit, 40.0, 3.0), Random(seed, SAMPLES)
    sim = rolled(model, DT, integrator=INTEGRATORS[integrator])
    inputs = {"q": random(-1, 1, 3), "v": random(-5, 5, 3), "controls": random(-1, 1, 8, 3)}
    inputs |= parameters(model, SAMPLES, spread=0.02, seed=seed)
    check_gradients(sim, inputs, 8).require("q", "v", "controls", "kp", "kv", "gear", "mass", least=0.6)
