"""Gradients along a motion, as the viewer draws them, against central differences."""

import math

import pytest
import torch

import backdrive as bd
from backdrive.view import gradients

STEPS, DT, STEP = 6, 0.02, 1e-6


def arm() -> bd.Model:
    """A rod on a slider, and a free box beside them that touches nothing."""
    scene = bd.Scene(dim=3)
    cart = scene.add_body("cart", bd.Box(0.2, 0.2, 0.2), mass=2.0)
    rod = scene.add_body("rod", bd.Capsule(0.05, 0.6), mass=0.7, position=(0.0, 0.0, -0.4))
    scene.add_joint("rail", bd.Slider(axis=(1.0, 0.0, 0.0), damping=0.3), parent=None, child=cart)
    scene.add_joint("pin", bd.Hinge(axis=(0.0, 1.0, 0.0)), parent=cart, child=rod, anchor=(0.0, 0.0, 0.0))
    scene.add_motor("drive", joint="rail", gear=2.0)
    scene.add_body("box", bd.Box(0.3, 0.2, 0.1), mass=0.4, position=(0.0, 2.0, 0.0), angular_velocity=(1.0, -2.0, 0.5))
    return scene.build()


def case(batch: int) -> tuple[bd.Simulator, bd.Trajectory]:
    model = arm()
    simulator = bd.Simulator(model, DT, impacts=False)
    start, draw = model.initial_state(batch), torch.Generator().manual_seed(batch)
    v = start.v + 0.3 * torch.randn(start.v.shape, generator=draw, dtype=torch.float64)
    controls = torch.randn(STEPS, batch, model.nu, generator=draw, dtype=torch.float64)
    return simulator, simulator.rollout(bd.State(start.q, v), controls)


def loss_of(path: bd.Trajectory) -> torch.Tensor:
    """Places on the way, the spin at the end, and the effort."""
    places = (path.position("rod") - torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)).square().sum(-1)
    turn = path.rotation("box")[..., 0, 1]
    return (places + turn).mean() + path.last.v.square().sum() + 0.1 * path.controls.square().sum()


def continued(simulator: bd.Simulator, path: bd.Trajectory, t: int, state: bd.State, **inputs) -> float:
    """The loss of the motion whose state at step t is replaced; inputs: others than those of the path."""
    controls = inputs.get("controls", path.controls)
    rest = None
    if t < STEPS:
        given = {name: x[t:] for name, x in inputs.items() if name == "wrenches"}
        rest = simulator.rollout(state, controls[t:], **given, parameters=inputs.get("parameters"))
    after = (state.q[None], state.v[None]) if rest is None else (rest.q, rest.v)
    q, v = (torch.cat([old[:t], new]) for old, new in zip((path.q, path.v), after, strict=True))
    motion = bd.trajectory.RolloutResult((q, v), (q[-1], v[-1]), path._numbers)
    return loss_of(bd.Trajectory(simulator, motion, path._inputs._replace(controls=controls))).item()


def slope(function) -> float:
    return (function(STEP) - function(-STEP)) / (2.0 * STEP)


@pytest.mark.parametrize("t", [0, 3, STEPS])
def test_position_and_velocity_are_the_total_derivatives_by_the_state(t):
    simulator, path = case(2)
    found = gradients(path, loss_of)
    assert found.loss == pytest.approx(loss_of(path).item(), rel=1e-12)
    for k in range(simulator.model.nv):
        moved = torch.zeros(2, simulator.model.nv, dtype=torch.float64)
        moved[1, k] = 1.0
        displaced = lambda e: bd.State(simulator._tangent.displace(path.q[t], e * moved), path.v[t])  # noqa: E731, B023
        kicked = lambda e: bd.State(path.q[t], path.v[t] + e * moved)  # noqa: E731, B023
        for values, other in ((found.position, displaced), (found.velocity, kicked)):
            expected = slope(lambda e: continued(simulator, path, t, other(e)))  # noqa: B023
            assert values[t, 1, k] == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_controls_and_wrenches_act_during_one_step():
    simulator, path = case(2)
    found, model, t = gradients(path, loss_of), simulator.model, 2
    one = torch.zeros_like(path.controls)
    one[t, 1, 0] = 1.0
    expected = slope(lambda e: continued(simulator, path, 0, path[0], controls=path.controls + e * one))
    assert found.control[t, 1, 0] == pytest.approx(expected, rel=1e-6)
    for body in range(model.nbody):
        for k in range(6):
            one = torch.zeros(STEPS, 2, model.nbody, 6, dtype=torch.float64)
            one[t, 1, body, k] = 1.0
            expected = slope(lambda e: continued(simulator, path, 0, path[0], wrenches=e * one))  # noqa: B023
            value = (found.force if k < 3 else found.torque)[t, 1, body, k % 3]
            assert value == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_an_impulse_is_a_change_of_velocity():
    """On a free body, dloss/dforce of a step is dt / mass times dloss/dvelocity after it: here of the box."""
    simulator, path = case(1)
    found, box = gradients(path, loss_of), simulator.model.body_index("box")
    at = simulator.model.vadr[simulator.model.body_link[box]]
    seen = 2.0 * path.v[-1, 0, at : at + 3]  # the loss sees the last velocity itself
    assert found.force[-1, 0, box].tolist() == pytest.approx((DT / 0.4 * seen).tolist(), rel=1e-9)


def test_sensitivities_are_by_the_logarithm_of_parameters():
    simulator, path = case(2)
    found, mass = gradients(path, loss_of, parameters=("mass", "damping")), simulator.model.parameter("mass")
    for body in range(3):

        def changed(e, body=body):
            values = mass.repeat(2, 1)
            values[1, body] *= math.exp(e)
            return continued(simulator, path, 0, path[0], parameters={"mass": values})

        assert found.log_parameters["mass"][1, body] == pytest.approx(slope(changed), rel=1e-6, abs=1e-8)
    assert found.log_parameters["damping"].shape == (2, simulator.model.njoint)


def test_a_loss_can_be_a_tensor_with_its_graph():
    model = arm()
    simulator, state = bd.Simulator(model, DT, impacts=False), model.initial_state()
    state.v.requires_grad_()
    path = simulator.rollout(state, steps=STEPS)
    loss = path.position("rod")[2, 0].square() + path.last.v[0]
    found = gradients(path, loss)
    (expected,) = torch.autograd.grad(loss, state.v)
    assert found.velocity[0, 0].tolist() == pytest.approx(expected.tolist(), rel=1e-9, abs=1e-14)
    assert found.position.shape == (STEPS + 1, 1, model.nv)


def test_what_has_no_gradient_is_refused():
    simulator, path = case(1)
    with pytest.raises(ValueError, match="has no graph to the trajectory"):
        gradients(path, path.q.sum())
    with pytest.raises(ValueError, match=r"must be a scalar, got a tensor of shape \[1, 2\]"):
        gradients(path, lambda p: p.q[-1, :, :2])
    with pytest.raises(ValueError, match="the loss is nan"):
        gradients(path, lambda p: p.q.sum() * math.nan)
    with pytest.raises(ValueError, match="weight"):
        gradients(path, loss_of, parameters=("weight",))
    with pytest.raises(TypeError, match="must be what Simulator.rollout returned"):
        gradients(simulator, loss_of)
