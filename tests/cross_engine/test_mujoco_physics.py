"""A step of MuJoCo's physics is the step of MuJoCo: from states of motions under random controls, with contacts, to
rounding; with every integrator, both friction cones, and every kind of friction."""

import mujoco
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mujoco_worlds import LINKED, load, mujoco_model, steps_of_mujoco, tensors, visited, zoo

import backdrive as bd

TOLERANCE = 1e-9  # of q and v, relative to the largest velocity, or to 1 if that is larger
COUNT = 60

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def differences(name: str, options: bd.MuJoCo, seed: int) -> tuple[np.ndarray, np.ndarray, bd.Status]:
    """The differences after a step, in v relative to the largest; numbers of contacts; status."""
    model = mujoco_model(name, options)
    q, v, u = visited(model, COUNT, seed)
    simulator = bd.Simulator(load(name), physics=options)
    path = simulator.rollout(bd.State(*tensors(q, v)), tensors(u)[0].unsqueeze(0))
    q_next, v_next, contacts = steps_of_mujoco(model, q, v, u)
    scale = np.maximum(np.abs(v_next).max(1), 1.0)
    by_q, by_v = np.abs(path.q[-1].numpy() - q_next).max(1), np.abs(path.v[-1].numpy() - v_next).max(1)
    return np.maximum(by_q, by_v) / scale, contacts, path.status


def check(name: str, options: bd.MuJoCo, seed: int, touching: bool = True) -> None:
    found, contacts, status = differences(name, options, seed)
    assert found.max() < TOLERANCE
    assert status.converged.all()
    assert (contacts > 0).any() or not touching


@pytest.mark.parametrize("name", ["hopper", "half_cheetah", "walker2d", "ant", "humanoid", "pusher"])
def test_step_with_the_options_of_the_file(name):
    check(name, bd.MuJoCo(), seed=1)


@pytest.mark.parametrize("name", ["reacher", "inverted_pendulum", "inverted_double_pendulum"])
def test_step_without_contact(name):
    check(name, bd.MuJoCo(), seed=1, touching=False)


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize("integrator", ["euler", "rk4", "implicitfast"])
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_integrators_and_cones(integrator, cone, seed):
    check(zoo(), bd.MuJoCo(integrator=integrator, cone=cone), seed)


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
@pytest.mark.parametrize(("condim", "impratio", "power"), [(1, 1.0, 1), (4, 2.5, 3), (6, 0.5, 2)])
def test_frictions_and_impedances(condim, impratio, power, cone):
    check(zoo(condim, impratio, power), bd.MuJoCo(integrator="euler", cone=cone), seed=condim)


@pytest.mark.parametrize("integrator", ["euler", "rk4"])
def test_connect_and_weld(integrator):
    check(LINKED, bd.MuJoCo(integrator=integrator), seed=5)


def test_a_rollout_stays_with_mujoco():
    """Until chaos parts them: errors of rounding grow with time."""
    model = mujoco_model("half_cheetah", bd.MuJoCo())
    q, v, _ = visited(model, 1, seed=0)
    rng, data, steps = np.random.default_rng(0), mujoco.MjData(model), 60
    controls = rng.uniform(-1.0, 1.0, (steps, model.nu))
    data.qpos[:], data.qvel[:] = q[0], v[0]
    for control in controls:
        data.ctrl[:] = control
        mujoco.mj_step(model, data)
    path = bd.Simulator(load("half_cheetah"), physics="mujoco").rollout(
        bd.State(*tensors(q[0], v[0])), tensors(controls)[0]
    )
    assert np.abs(path.q[-1].numpy() - data.qpos).max() < 1e-7


@pytest.mark.parametrize("name", ["half_cheetah", "humanoid"])  # limbs of the latter touch each other in some states
def test_the_batch_changes_no_bit(name):
    model = mujoco_model(name, bd.MuJoCo())
    q, v, u = tensors(*visited(model, 21, seed=3))
    simulator = bd.Simulator(load(name), physics="mujoco")
    together = simulator.step(bd.State(q, v), u)
    for i in range(len(q)):
        alone = simulator.step(bd.State(q[i], v[i]), u[i])
        assert torch.equal(alone.q, together.q[i])
        assert torch.equal(alone.v, together.v[i])


def test_takes_the_step_size_of_the_file():
    assert bd.Simulator(load("half_cheetah"), physics="mujoco").dt == 0.01


def test_refuses_what_it_does_not_know():
    scene = bd.Scene(dim=3)
    scene.add_body("ball", bd.Sphere(0.1), mass=1.0)
    with pytest.raises(ValueError, match="MJCF"):
        bd.Simulator(scene.build(), 0.01, physics="mujoco")
    model = load("half_cheetah")
    with pytest.raises(ValueError, match="physics must be"):
        bd.Simulator(model, physics="soft")
    with pytest.raises(ValueError, match="setting of rigid physics"):
        bd.Simulator(model, physics="mujoco", solver=bd.InteriorPoint())
    with pytest.raises(ValueError, match="dt must be a positive number of seconds, got None"):
        bd.Simulator(model)
    state = model.initial_state()
    for physics, name in (("mujoco", "restitution"), ("rigid", "solref")):
        simulator = bd.Simulator(model, 0.01, physics=physics)
        with pytest.raises(ValueError, match=repr(name)):
            simulator.step(state, parameters={name: model.parameter(name)})
    path = bd.Simulator(model, physics="mujoco").rollout(state, steps=1)
    with pytest.raises(NotImplementedError, match="contact forces"):
        path.contacts  # noqa: B018


@pytest.mark.parametrize(
    ("name", "at", "value", "words"),
    [("solref", 0, -0.02, "both negative"), ("solref", 1, 0.0, "both negative"), ("limit_solref", 0, 0.0, "both"),
     ("solimp", 1, 1.5, "below 1"), ("solimp", 2, -1.0, ">= 0"), ("margin", None, float("nan"), "'margin'")],
)  # fmt: skip
def test_refuses_impossible_parameters(name, at, value, words):
    model = load("half_cheetah")
    x = model.parameter(name).clone()
    x[(-1,) if at is None else (-1, at)] = value
    with pytest.raises(ValueError, match=words):
        bd.Simulator(model, physics="mujoco").step(model.initial_state(), parameters={name: x})
