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
