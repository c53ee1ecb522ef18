"""Twins of Gymnasium's v5 environments: the same starts, observations, rewards and terminations from the same actions.

Motions are compared for 200 steps, or until errors of 1e-12 at the start have grown to 1e-6 in Gymnasium itself, whose
solver is set to Newton's method at full precision (the files of the humanoids ask for PGS).
"""

import inspect
from pathlib import Path

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


def gymnasium_env(name: str, **options):
    return precise(gymnasium.make(f"{name}-v5", **options).unwrapped)


def precise(env):
    option = env.model.opt
    option.solver, option.jacobian = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtJacobian.mjJAC_DENSE
    option.tolerance, option.ls_tolerance, option.iterations = 0.0, 1e-10, 50
    return env


def same_info(ours, theirs):
    assert ours.keys() == theirs.keys()
    for key, expected in theirs.items():
        assert np.shape(ours[key]) == np.shape(expected), key
        assert ours[key] == pytest.approx(expected, abs=TOLERANCE), key


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
    (observation, info), (our_observation, our_info) = theirs.reset(seed=seed), ours.reset(seed=seed)
    assert np.abs(our_observation - observation).max() < 1e-13
    same_info(our_info, info)
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
        same_info(our_info, info)
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


@pytest.mark.parametrize("seed", [5, [9, 2, 7]])
@pytest.mark.parametrize("name", NAMES)
def test_vector_environments_start_alike(name, seed):
    """Seeds, random numbers, and info in its format; also where episodes have ended, and new ones start."""
    theirs = gymnasium.make_vec(f"{name}-v5", num_envs=3, vectorization_mode="sync")
    ours = gymnasium.make_vec(f"backdrive/MuJoCo{name}-v5", num_envs=3)
    for env in theirs.envs:
        precise(env.unwrapped)
    (expected, info), (observation, our_info) = theirs.reset(seed=seed), ours.reset(seed=seed)
    assert np.abs(observation - expected).max() < 1e-13
    same_info(our_info, info)
    actions = np.zeros(theirs.action_space.shape)
    info, our_info = theirs.step(actions)[-1], ours.step(actions)[-1]
    same_info(our_info, info)
    mask = np.array([False, True, True])
    again, our_again = (envs.reset(options={"reset_mask": mask}) for envs in (theirs, ours))
    assert np.abs(our_again[0] - again[0])[mask].max() < 1e-13  # the random numbers go on
    assert all(np.array_equal(our_again[1][key], again[1][key]) for key in again[1] if key.startswith("_"))
    seeds = [None, 4, 4]
    reseeded, ours_reseeded = (envs.reset(seed=seeds)[0] for envs in (theirs, ours))
    assert np.abs(ours_reseeded - reseeded).max() < 1e-13
    assert np.array_equal(ours_reseeded[1], ours_reseeded[2])


def test_info_of_an_environment_that_is_reset():
    """With autoreset in the next step: the info of a reset, and its masks, as Gymnasium has them."""
    options = {"healthy_z_range": (0.2, 0.76), "reset_noise_scale": 0.01}  # it starts at 0.75 m: some end at once
    theirs = gymnasium.make_vec("Ant-v5", num_envs=6, vectorization_mode="sync", **options)
    ours, resets = gymnasium.make_vec("backdrive/MuJoCoAnt-v5", num_envs=6, **options), 0
    theirs.reset(seed=1), ours.reset(seed=1)
    actions = np.zeros((6, 8))
    for _ in range(8):
        expected, observation = theirs.step(actions), ours.step(actions)
        assert all(np.array_equal(x, y) for x, y in zip(observation[2:4], expected[2:4], strict=True))
        assert np.abs(observation[0] - expected[0]).max() < 1e-4  # Gymnasium's own tolerance of the solver
        for key, x in expected[4].items():
            assert observation[4][key] == pytest.approx(x, abs=1e-4), key
        for key in observation[4].keys() - expected[4].keys():  # where all have been reset
            assert not observation[4][key].any()
        resets += not observation[4]["_x_velocity"].all()
    assert resets


@pytest.mark.parametrize("name", ["Hopper", "InvertedPendulum", "InvertedDoublePendulum"])
def test_info_of_an_environment_that_is_reset_in_the_same_step(name):
    """Its own terms are in final_info, those of the others in info, as Gymnasium has them."""
    mode, options = gymnasium.vector.AutoresetMode.SAME_STEP, {"reset_noise_scale": 0.1}
    theirs = gymnasium.make_vec(
        f"{name}-v5", num_envs=4, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}, **options
    )
    for env in theirs.envs:
        precise(env.unwrapped)
    ours, ended = VectorEnv(f"MuJoCo{name}", num_envs=4, autoreset_mode=mode, **options), 0
    theirs.reset(seed=3), ours.reset(seed=3)
    random = np.random.default_rng(3)
    for _ in range(40):
        actions = random.uniform(ours.action_space.low, ours.action_space.high)
        (*_, info), (*_, our_info) = theirs.step(actions), ours.step(actions)
        if "final_info" in info and not info["_final_info"].all():
            ended += 1
            same_info(our_info.pop("final_info"), info.pop("final_info"))
            finals = our_info.pop("final_obs"), info.pop("final_obs")
            for mine, expected in zip(*finals, strict=True):
                assert (mine is None) == (expected is None)
                assert mine is None or np.abs(mine - expected).max() < TOLERANCE
            same_info(our_info, info)
    assert ended


OPTIONS = {
    "Hopper": {"healthy_z_range": (0.5, 2.0), "healthy_state_range": (-50.0, 50.0), "ctrl_cost_weight": 0.1},
    "Walker2d": {"terminate_when_unhealthy": False, "reset_noise_scale": 0.02, "frame_skip": 2},
    "HalfCheetah": {"exclude_current_positions_from_observation": False, "forward_reward_weight": 2.0},
    "Swimmer": {"exclude_current_positions_from_observation": False, "ctrl_cost_weight": 0.1},
    "Ant": {"include_cfrc_ext_in_observation": False, "main_body": "aux_1", "contact_force_range": (-0.1, 0.1)},
    "Humanoid": {"include_cinert_in_observation": False, "contact_cost_range": (0.0, 0.1), "healthy_reward": 1.0},
    "HumanoidStandup": {"impact_cost_weight": 1e-3, "include_cvel_in_observation": False},
    "Pusher": {"reward_near_weight": 2.0, "reward_control_weight": 1.0},
    "Reacher": {"reward_dist_weight": 2.0, "frame_skip": 4},
    "InvertedPendulum": {"reset_noise_scale": 0.1},
    "InvertedDoublePendulum": {"healthy_reward": 3.0, "frame_skip": 2},
}


@pytest.mark.parametrize("name", NAMES)
def test_options_mean_the_same(name):
    theirs, ours = gymnasium_env(name, **OPTIONS[name]), Env(f"MuJoCo{name}", **OPTIONS[name])
    assert ours.observation_space == theirs.observation_space
    expected, observation = theirs.reset(seed=1)[0], ours.reset(seed=1)[0]
    random = np.random.default_rng(1)
    for _ in range(5):
        assert np.abs(observation - expected).max() < TOLERANCE
        action = random.uniform(ours.action_space.low, ours.action_space.high)
        expected, reward, terminated, _, info = theirs.step(action)
        observation, our_reward, our_end, _, our_info = ours.step(action)
        assert our_reward == pytest.approx(reward, abs=TOLERANCE) and our_end == terminated
        same_info(our_info, info)


def test_options_are_gymnasiums():
    """All that its constructors name, but those of the camera; others are refused, with the nearest name."""
    for name in NAMES:
        with pytest.raises(TypeError, match=rf"MuJoCo{name}: unknown option 'frame_skp'; did you mean 'frame_skip'\?"):
            Env(f"MuJoCo{name}", frame_skp=2)
        signature = inspect.signature(type(gymnasium_env(name)).__init__).parameters
        own = [x for x in signature if x not in ("self", "kwargs", "default_camera_config")]
        defaults = {x: signature[x].default for x in own}
        Env(f"MuJoCo{name}", **defaults)
    with pytest.raises(TypeError, match="unknown option 'healthy_z_range'"):
        Env("MuJoCoHalfCheetah", healthy_z_range=(0.0, 1.0))


def test_another_file(tmp_path):
    path = tmp_path / "heavy.xml"
    assets = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
    path.write_text((assets / "hopper.xml").read_text().replace('timestep="0.002"', 'timestep="0.004"'))
    theirs, ours = gymnasium_env("Hopper", xml_file=str(path)), Env("MuJoCoHopper", xml_file=str(path))
    theirs.reset(seed=0), ours.reset(seed=0)
    for _ in range(5):
        assert ours.step(np.ones(3))[0] == pytest.approx(theirs.step(np.ones(3))[0], abs=TOLERANCE)
    with pytest.raises(FileNotFoundError, match=r"there is no file '\./nowhere.xml'|there is no file 'nowhere.xml'"):
        Env("MuJoCoHopper", xml_file="./nowhere.xml")
