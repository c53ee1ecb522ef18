"""Twins of Gymnasium's v5 environments: the same starts, observations, rewards and terminations from the same actions.

Motions are compared for 200 steps, or until errors of 1e-12 at the start have grown to 1e-6 in Gymnasium itself, whose
solver is set to Newton's method at full precision (the files of the humanoids ask for PGS).
"""

import gymnasium
import mujoco
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common import env_checker

import backdrive as bd
from backdrive.envs import TWINS, Env, VectorEnv

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

STEPS, TOLERANCE = 200, 1e-6
NAMES = [name.removeprefix("MuJoCo") for name in TWINS]
FORESEEABLE = {"HalfCheetah": 20, "Ant": 60, "InvertedDoublePendulum": 80}  # steps; all others: 200
SEEDS = {"Humanoid": 1}


def gymnasium_env(name: str):
    env = gymnasium.make(f"{name}-v5").unwrapped
    option = env.model.opt
    option.solver, option.jacobian = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtJacobian.mjJAC_DENSE
    option.tolerance, option.ls_tolerance, option.iterations = 0.0, 1e-10, 50
    return env


@pytest.mark.parametrize("name", NAMES)
def test_same_actions_same_numbers(name):
    seed = SEEDS.get(name, 0)
    theirs, disturbed, ours = gymnasium_env(name), gymnasium_env(name), Env(f"MuJoCo{name}")
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.metadata["render_fps"] == theirs.metadata["render_fps"]
    assert (
        gymnasium.spec(f"backdrive/MuJoCo{name}-v5").max_episode_steps == gymnasium.spec(f"{name}-v5").max_episode_steps
    )
    observation, _ = theirs.reset(seed=seed)
    assert np.abs(ours.reset(seed=seed)[0] - observation).max() < 1e-13
    random = np.random.default_rng(seed)
    disturbed.reset(seed=seed)
    disturbed.set_state(theirs.data.qpos, theirs.data.qvel + 1e-12 * random.choice([-1.0, 1.0], theirs.model.nv))
    ended, steps = False, 0
    for steps in range(1, STEPS + 1):  # noqa: B007
        action = random.uniform(ours.action_space.low, ours.action_space.high)
        expected, reward, terminated, _, info = theirs.step(action)
        if max(np.abs(disturbed.step(action)[0] - expected)) > TOLERANCE:
            break
        observation, our_reward, our_end, _, our_info = ours.step(action)
        assert np.abs(observation - expected).max() < TOLERANCE
        assert our_reward == pytest.approx(reward, abs=TOLERANCE)
        assert our_end == terminated
        for key in our_info.keys() & info.keys():
            assert our_info[key] == pytest.approx(info[key], abs=TOLERANCE)
        ended |= terminated
    assert steps >= FORESEEABLE.get(name, STEPS)
    assert ended or name in ("HalfCheetah", "HumanoidStandup", "Pusher", "Reacher", "Swimmer")


def test_gymnasium_as_it_is():
    """With the solver's own tolerance."""
    theirs, ours = gymnasium.make("Walker2d-v5").unwrapped, Env("MuJoCoWalker2d")
    theirs.reset(seed=3), ours.reset(seed=3)
    random = np.random.default_rng(3)
    for _ in range(STEPS):
        action = random.uniform(-1.0, 1.0, 6)
        expected, observation = theirs.step(action), ours.step(action)
        assert np.abs(expected[0] - observation[0]).max() < TOLERANCE


@pytest.mark.parametrize("name", NAMES)
def test_gymnasium_finds_no_fault(name):
    check_env(gymnasium.make(f"backdrive/MuJoCo{name}-v5").unwrapped, skip_render_check=True)


def test_stable_baselines_finds_no_fault():
    for name in ("HalfCheetah", "Ant", "InvertedDoublePendulum"):
        env_checker.check_env(gymnasium.make(f"backdrive/MuJoCo{name}-v5"))


@pytest.mark.parametrize("name", ["Ant", "InvertedDoublePendulum", "Reacher"])
def test_many_at_once_are_the_single_ones(name):
    """Also where episodes end, and new ones start."""
    envs, env = VectorEnv(f"MuJoCo{name}", num_envs=5, max_episode_steps=7), Env(f"MuJoCo{name}")
    envs.reset(seed=2)
    random, which = np.random.default_rng(2), 3
    env.reset(options={"state": bd.State(*(x[which] for x in envs.state))})
    ended, resets = False, 0
    for _ in range(30):
        actions = random.uniform(envs.action_space.low, envs.action_space.high)
        observation, reward, terminated, truncated, _ = envs.step(actions)
        if ended:
            expected, _ = env.reset(options={"state": bd.State(*(x[which] for x in envs.state))})
            assert reward[which] == 0.0
            resets += 1
        else:
            expected, expected_reward, *_ = env.step(actions[which])
            assert reward[which] == expected_reward
        assert np.array_equal(observation[which], expected)
        ended = terminated[which] or truncated[which]
    assert resets >= 3


def test_a_motion_that_is_not_finite_ends_alone():
    envs = VectorEnv("MuJoCoInvertedDoublePendulum", num_envs=3)
    envs.reset(seed=0)
    q, v = envs.state
    v[1] = 1e200
    envs.reset(options={"state": bd.State(q, v)})
    actions = torch.zeros(3, 1, dtype=torch.float64, requires_grad=True)
    observation, reward, terminated, *_ = envs.step_torch(actions)
    assert terminated.tolist() == [False, True, False]
    assert torch.isfinite(observation[[0, 2]]).all()
    (gradient,) = torch.autograd.grad(reward[[0, 2]].sum(), actions)
    assert torch.isfinite(gradient).all() and gradient[0] != 0.0 and gradient[1] == 0.0
