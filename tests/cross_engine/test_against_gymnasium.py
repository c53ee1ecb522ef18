"""The same motion and rewards as Gymnasium's own environments, wherever nothing touches."""

import math

import gymnasium
import mujoco
import numpy as np
import pytest
import torch
from mujoco_spin import implicit_spin

import backdrive as bd
from backdrive.envs import Env
from backdrive.envs.laikago import laikago_model


def state(q, v) -> dict:
    return {"state": bd.State(*(torch.tensor(np.array(x)).double() for x in (q, v)))}


def test_cart_pole():
    theirs = gymnasium.make("CartPole-v1").unwrapped
    theirs.kinematics_integrator = "semi-implicit euler"
    theirs.reset(seed=0)
    ours = Env("CartPole")
    x, x_rate, angle, angle_rate = theirs.state
    ours.reset(options=state([x, -angle], [x_rate, -angle_rate]))
    random = np.random.default_rng(0)
    for _ in range(10):
        right = int(random.integers(2))
        _, reward, terminated, *_ = theirs.step(right)
        observation, our_reward, ended, *_ = ours.step([2.0 * right - 1.0])
        assert observation == pytest.approx(np.array(theirs.state), abs=1e-12)
        assert (our_reward, ended) == (reward, terminated)


def test_pendulum():
    theirs, ours = gymnasium.make("Pendulum-v1").unwrapped, Env("Pendulum")
    random = np.random.default_rng(0)
    for _ in range(30):
        angle, rate, action = random.uniform(-4.0, 4.0, 3)
        theirs.reset()
        theirs.state = np.array([angle, rate])
        ours.reset(options=state([angle], [rate]))
        observation, reward, *_ = theirs.step(np.array([action]))
        our_observation, our_reward, *_ = ours.step([action / 2.0])
        assert our_observation == pytest.approx(observation, abs=1e-6)  # theirs is in single precision
        assert our_reward == pytest.approx(reward, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "height", "options"),
    [
        ("Hopper", 3.0, {}),
        ("HalfCheetah", 1.0, {}),
        ("Ant", 0.9, {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0}),
    ],
)
def test_robots_in_the_air(name, height, options):
    theirs, ours = gymnasium.make(f"{name}-v5", **options).unwrapped, Env(name)
    theirs.model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    assert ours.metadata["render_fps"] == theirs.metadata["render_fps"]
    assert ours.observation_space.shape == theirs.observation_space.shape
    assert np.array_equal(ours.action_space.low, theirs.action_space.low)
    limits = theirs.model.jnt_range[theirs.model.jnt_limited.astype(bool)]
    at = theirs.model.jnt_qposadr[theirs.model.jnt_limited.astype(bool)]
    random = np.random.default_rng(1)
    for _ in range(5):
        theirs.reset(seed=0)
        q, v = theirs.init_qpos.copy(), 0.3 * random.standard_normal(theirs.model.nv)
        q[2 if name == "Ant" else 1] = height
        q[at] = limits.mean(1) + 0.2 * random.uniform(-1.0, 1.0, len(at)) * (limits[:, 1] - limits[:, 0])
        action = 0.2 * random.uniform(-1.0, 1.0, theirs.model.nu)
        theirs.set_state(q, v)
        ours.reset(options=state(q, v))
        with implicit_spin():
            observation, reward, terminated, _, info = theirs.step(action)
        our_observation, our_reward, ended, _, our_info = ours.step(action)
        assert theirs.data.ncon == 0
        assert our_observation == pytest.approx(observation, abs=1e-9)
        forward = (theirs.data.qpos[0] - q[0]) / theirs.dt
        if name == "Ant":  # theirs is of a position that is one step of the simulator late
            reward += forward - info["reward_forward"]
        expected = {**{key: info[key] for key in our_info}, "reward_forward": forward}
        assert our_info == pytest.approx(expected, abs=1e-9)
        assert (our_reward, ended) == (pytest.approx(reward, abs=1e-9), terminated)


@pytest.mark.parametrize(
    ("name", "place", "value", "ends"),
    [
        ("Hopper", 1, 0.69, True),  # height
        ("Hopper", 2, 0.21, True),  # tilt
        ("Hopper", 2, 0.15, False),
        ("Ant", 2, 0.15, True),
        ("Ant", 2, 1.1, True),
        ("Ant", 2, 0.5, False),
        ("Laikago", 2, 0.2, True),
        ("HalfCheetah", 2, 2.0, False),
    ],
)
def test_where_episodes_end(name, place, value, ends):
    task = Env(name).task
    q, v = task.model.initial_state(1)
    q[0, place] = value
    assert task.ends(bd.State(q, v)).tolist() == [ends]


def test_a_tilted_laikago_has_fallen():
    task = Env("Laikago").task
    for degrees, ends in ((55.0, False), (65.0, True)):
        q, v = task.model.initial_state(1)
        half = math.radians(degrees) / 2.0
        q[0, 3:7] = torch.tensor([math.cos(half), math.sin(half), 0.0, 0.0])
        assert task.ends(bd.State(q, v)).tolist() == [ends]


def test_laikago_is_that_of_its_description():
    robots = pytest.importorskip("benchmarks.robots", reason="run from the project's folder: it has the description")
    model, described = laikago_model(), robots.laikago().model
    random = np.random.default_rng(0)
    q, v = (x.repeat(8, 1) for x in model.initial_state())
    q[:, 7:] += torch.from_numpy(random.uniform(-0.3, 0.3, (8, 12)))
    v += torch.from_numpy(random.standard_normal(v.shape))
    ours, theirs = bd.Simulator(model, 0.002), bd.Simulator(described, 0.002)
    assert torch.allclose(ours.mass_matrix(bd.State(q, v)), theirs.mass_matrix(bd.State(q, v)), atol=1e-12)
    vdot = torch.from_numpy(random.standard_normal(v.shape))
    forces = [sim.inverse_dynamics(bd.State(q, v), vdot) for sim in (ours, theirs)]
    assert torch.allclose(*forces, atol=1e-10)


def test_laikago_stands():
    env = Env("Laikago")
    env.reset(seed=0)
    for _ in range(50):
        _, _, terminated, _, info = env.step(np.zeros(12))
        assert not terminated
    assert info["reward_survive"] == 1.0
    assert env.state.q[2] == pytest.approx(env.task.model.q0[2], abs=0.03) and env.state.v.abs().max() < 0.2
