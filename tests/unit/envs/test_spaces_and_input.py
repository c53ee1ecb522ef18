"""Gymnasium's own checker, seeds, pictures, and what is refused."""

import itertools
import subprocess
import sys
import warnings

import gymnasium
import matplotlib
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

import backdrive as bd
from backdrive.envs import TASKS, Env, Task, VectorEnv, find

matplotlib.use("Agg")

IDS = [f"backdrive/{name}-v0" for name in TASKS]
UNBOUNDED = ("minimum value is -infinity", "maximum value is infinity")  # speeds are; so say Gymnasium's own


@pytest.mark.parametrize("id", IDS)
def test_gymnasium_finds_no_fault(id):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = gymnasium.make(id, render_mode="rgb_array", width=64, height=48)
        check_env(env.unwrapped)
        env.close()
    others = [str(w.message) for w in caught if not any(text in str(w.message) for text in UNBOUNDED)]
    assert not others


@pytest.mark.parametrize("id", IDS)
def test_vector_environments_are_made_by_name(id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs = gymnasium.make_vec(id, num_envs=3)
    observation, _ = envs.reset(seed=0)
    assert isinstance(envs, VectorEnv) and observation in envs.observation_space
    assert envs.max_episode_steps == gymnasium.spec(id).max_episode_steps
    envs.action_space.seed(0)
    for _ in range(3):
        observation, reward, terminated, truncated, info = envs.step(envs.action_space.sample())
        assert observation in envs.observation_space and observation.dtype == np.float64
        assert reward.shape == terminated.shape == truncated.shape == (3,)
        assert reward == pytest.approx(sum(x for name, x in info.items() if name.startswith("reward_")))


def test_a_seed_says_all():
    env, other = Env("Hopper"), Env("Hopper")
    first = env.reset(seed=7)[0]
    assert np.array_equal(first, other.reset(seed=7)[0])
    second = env.reset()[0]
    assert not np.array_equal(first, second) and np.array_equal(second, other.reset()[0])
    assert not np.array_equal(first, env.reset(seed=8)[0])
    envs = VectorEnv("Hopper", num_envs=2)
    both = envs.reset(seed=7)[0]
    assert not np.array_equal(both[0], both[1]) and np.array_equal(both, envs.reset(seed=7)[0])


@pytest.mark.parametrize("name", ["NLinkPendulum", "Laikago"])
def test_pictures_show_the_state(name):
    env = Env(name, render_mode="rgb_array", width=120, height=90)
    env.reset(seed=0)
    before = env.render()
    assert before.shape == (90, 120, 3) and before.dtype == np.uint8 and before.std() > 5.0
    assert np.array_equal(before, env.render())
    q, v = env.state
    env.reset(options={"state": bd.State(q + torch.tensor([0.0] * (len(q) - 1) + [0.8]), v)})
    assert (before != env.render()).any()
    env.close()
    env.close()
    envs = VectorEnv(name, num_envs=2, render_mode="rgb_array", width=120, height=90)
    envs.reset(seed=0)
    assert [image.shape for image in envs.render()] == [(90, 120, 3)] * 2
    envs.close()


def test_every_solid_shape_is_drawn():
    scene = bd.Scene(dim=3)
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1)))
    corners = [(x, y, z) for x in (0, 0.3) for y in (0, 0.3) for z in (0, 0.3)]
    shapes = [bd.Sphere(0.2), bd.Box(0.3, 0.2, 0.1), bd.Capsule(0.1, 0.2), bd.Cylinder(0.1, 0.3), bd.Convex(corners)]
    for i, shape in enumerate(shapes):
        scene.add_body(f"body {i}", shape, mass=1.0, position=(0.5 * i - 1.0, 0.0, 0.5))
    for i, k in itertools.combinations(range(len(shapes)), 2):
        scene.exclude(f"body {i}", f"body {k}")  # fewer kernels to compile
    env = Env(_task(scene.build()), render_mode="rgb_array", width=64, height=48)
    env.reset(seed=0)
    assert env.render().std() > 5.0


def _task(model: bd.Model, **changes) -> Task:
    """Nothing to do."""
    given = {
        "name": "idle", "model": model, "dt": 0.01, "observe": lambda state: state.q,
        "start": lambda random, count: model.initial_state(count),
        "reward": lambda before, action, after: {"height": after.q[:, 0]},
    }  # fmt: skip
    return Task(**given | changes)


def test_wrong_actions():
    env = Env("Ant")
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(np.zeros(8))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"action must have the shape \(8,\), got \(7,\)"):
        env.step(np.zeros(7))
    with pytest.raises(ValueError, match=r"action is not finite: nan at \[3\]"):
        env.step(np.array([0, 0, 0, np.nan, 0, 0, 0, 0]))
    envs = VectorEnv("Ant", num_envs=2)
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"shape \(2, 8\), got \(8,\)"):
        envs.step(np.zeros(8))
    with pytest.raises(ValueError, match=r"not finite: inf at \[1, 0\]"):
        envs.step_torch(torch.tensor([[0.0] * 8, [torch.inf] + [0.0] * 7]))


@pytest.mark.parametrize("name", ["CartPole", "Hopper", "Laikago"])
def test_actions_beyond_their_limits_are_clipped(name):
    envs = VectorEnv(name, num_envs=2)
    envs.reset(seed=0)
    same = bd.State(*(x[:1].repeat(2, 1) for x in envs.state))
    envs.reset(options={"state": same})
    action = np.ones(envs.action_space.shape)
    action[1] = 5.0
    observation, *_, info = envs.step(action)
    assert np.array_equal(observation[0], observation[1])
    if "reward_ctrl" in info:  # the cost is that of what was asked for, as in Gymnasium
        assert info["reward_ctrl"][1] == pytest.approx(25.0 * info["reward_ctrl"][0])


def test_wrong_names_and_numbers():
    with pytest.raises(ValueError, match="unknown task 'Hoper'; did you mean 'Hopper'?"):
        Env("Hoper")
    with pytest.raises(gymnasium.error.Error, match="Did you mean: `Hopper`"):
        gymnasium.make("backdrive/Hoper-v0")
    with pytest.raises(TypeError, match="unknown option 'lnks'; did you mean 'links'"):
        gymnasium.make("backdrive/NLinkPendulum-v0", lnks=3)
    with pytest.raises(ValueError, match="links must be an integer >= 1, got 0"):
        Env("NLinkPendulum", links=0)
    with pytest.raises(ValueError, match="num_envs must be an integer >= 1, got 0"):
        VectorEnv("Pendulum", num_envs=0)
    with pytest.raises(ValueError, match="render_mode must be None or 'rgb_array', got 'human'"):
        VectorEnv("Pendulum", render_mode="human")
    with pytest.raises(ValueError, match="render_mode must be None, 'human' or 'rgb_array', got 'ascii'"):
        Env("Pendulum", render_mode="ascii")
    with pytest.raises(ValueError, match="unknown dtype 'float16'"):
        Env("Pendulum", dtype="float16")
    with pytest.raises(TypeError, match="a Task takes no options, got links"):
        Env(find("NLinkPendulum"), links=2)
    with pytest.raises(ValueError, match="q of 1 and v of 1 numbers, got"):
        Env("Pendulum").reset(options={"state": bd.State(torch.zeros(2), torch.zeros(2))})
    with pytest.raises(ValueError, match=r"options\['reset_mask'\] must be bool \(2,\)"):
        VectorEnv("Pendulum", num_envs=2).reset(options={"reset_mask": np.zeros(3, bool)})
    model = find("Pendulum").model
    with pytest.raises(ValueError, match="frame_skip must be an integer >= 1, got 0"):
        _task(model, frame_skip=0)
    with pytest.raises(ValueError, match="is above action_high"):
        _task(model, action_low=2.0)


def test_what_flies_apart_ends_alone():
    envs = VectorEnv("HalfCheetah", num_envs=3)
    envs.reset(seed=0)
    q, v = envs.state
    v[1, 4] = 1e200
    envs.reset(options={"state": bd.State(q, v)})
    observation, reward, terminated, truncated, _ = envs.step(np.zeros((3, 6)))
    assert terminated.tolist() == [False, True, False] and not truncated.any()
    assert np.isfinite(observation).all() and np.isfinite(reward).all()
    observation, reward, terminated, *_ = envs.step(np.zeros((3, 6)))
    assert not terminated.any() and np.abs(observation).max() < 100.0
    envs.reset(options={"state": bd.State(q, v)})
    actions = torch.zeros(2, 3, 6, dtype=torch.float64, requires_grad=True)
    total = sum(envs.step_torch(action)[1].sum() for action in actions)
    (gradient,) = torch.autograd.grad(total, actions)
    assert (gradient[0, [0, 2]] != 0.0).all() and (gradient[0, 1] == 0.0).all() and gradient.isfinite().all()


def test_single_precision():
    env = gymnasium.make("backdrive/Hopper-v0", dtype="float32")
    observation, _ = env.reset(seed=0)
    reference = Env("Hopper")
    expected, _ = reference.reset(seed=0)
    assert observation.dtype == np.float32 and observation == pytest.approx(expected, abs=1e-6)
    for _ in range(5):
        action = np.full(3, 0.1, np.float32)
        observation, *_ = env.step(action)
        expected, *_ = reference.step(action)
    assert observation == pytest.approx(expected, abs=1e-3)


def test_only_its_users_load_gymnasium():
    code = """
import sys, backdrive
print('gymnasium' in sys.modules)
import gymnasium  # whose names can say what to import
print(gymnasium.make('backdrive.envs:backdrive/CartPole-v0').reset(seed=0)[0].shape, backdrive.envs.__name__)
"""
    assert _run(code).stdout.split("\n")[:2] == ["False", "(4,) backdrive.envs"]


def test_without_gymnasium_it_says_what_to_install():
    code = "import sys; sys.modules['gymnasium'] = None; import backdrive.envs"
    assert "backdrive.envs needs gymnasium: pip install 'backdrive[envs]'" in _run(code).stderr


def _run(code: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
