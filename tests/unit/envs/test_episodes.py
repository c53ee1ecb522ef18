"""Vector environments against single ones, and how episodes end and start, in all modes."""

import numpy as np
import pytest
import torch
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import backdrive as bd
from backdrive.envs import TASKS, Env, VectorEnv


@pytest.mark.parametrize("name", TASKS)
def test_many_move_as_each_alone(name):
    envs, env = VectorEnv(name, num_envs=5), Env(name)
    envs.reset(seed=3)
    start = envs.state
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (4, *envs.action_space.shape)).astype(np.float32)
    together = [envs.step(action) for action in actions]
    for i in (0, 4):
        env.reset(options={"state": bd.State(start.q[i], start.v[i])})
        for action, (observation, reward, terminated, _, info) in zip(actions, together):
            alone = env.step(action[i])
            assert np.array_equal(alone[0], observation[i]) and alone[1] == reward[i] and alone[2] == terminated[i]
            assert all(value == info[key][i] for key, value in alone[4].items())


def falling(**options) -> VectorEnv:
    """Carts of which the second is pushed, and lets its pole fall; the first is not, and stands long enough."""
    envs = VectorEnv("CartPole", num_envs=2, **options)
    still = bd.State(torch.tensor([[0.0, 0.0], [0.0, 0.19]]).double(), torch.zeros(2, 2).double())
    envs.reset(seed=0, options={"state": still})
    return envs


PUSH = np.array([[0.0], [1.0]])


def until_it_falls(envs: VectorEnv) -> tuple:
    for _ in range(20):
        outcome = envs.step(PUSH)
        if outcome[2].any():
            return outcome
    raise AssertionError("it stands")


def test_they_start_anew_with_the_next_step():
    envs = falling()
    observation, reward, terminated, truncated, _ = until_it_falls(envs)
    assert terminated.tolist() == [False, True] and not truncated.any() and reward.tolist() == [1.0, 1.0]
    assert abs(observation[1, 2]) > np.radians(12.0)
    observation, reward, terminated, truncated, info = envs.step(PUSH)
    assert reward.tolist() == [1.0, 0.0] and not terminated.any()
    assert info["_reward_survive"].tolist() == [True, False] and info["reward_survive"].tolist() == [1.0, 0.0]
    assert np.abs(observation[1]).max() <= 0.05
    start = observation[1].copy()
    observation, reward, *_ = envs.step(PUSH)
    assert reward.tolist() == [1.0, 1.0] and observation[1, 1] > start[1]


def test_they_start_anew_at_once():
    envs = falling(autoreset_mode="SameStep")
    observation, reward, terminated, _, info = until_it_falls(envs)
    assert terminated.tolist() == [False, True] and reward.tolist() == [1.0, 1.0]
    assert np.abs(observation[1]).max() <= 0.05
    assert info["_final_obs"].tolist() == [False, True] and info["final_obs"][0] is None
    assert abs(info["final_obs"][1][2]) > np.radians(12.0)
    assert info["final_info"]["reward_survive"][1] == 1.0
    assert not envs.step(PUSH)[2].any()


def test_they_wait_to_be_started():
    envs = falling(autoreset_mode="Disabled")
    until_it_falls(envs)
    with pytest.raises(RuntimeError, match=r"episodes of environments \[1\] have ended"):
        envs.step(PUSH)
    before = envs.state
    observation, _ = envs.reset(options={"reset_mask": np.array([False, True])})
    assert torch.equal(envs.state.q[0], before.q[0]) and np.abs(observation[1]).max() <= 0.05
    envs.step(PUSH)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_time_is_up_for_each_on_its_own(mode):
    envs = falling(max_episode_steps=20, autoreset_mode=mode)
    ends = [[], []]
    for step in range(60):
        _, _, terminated, truncated, _ = envs.step(np.zeros((2, 1)))
        for i in np.flatnonzero(terminated | truncated):
            ends[i].append((step, bool(truncated[i])))
    period = 21 if mode == "NextStep" else 20
    assert ends[0][:2] == [(19, True), (19 + period, True)]
    fell = ends[1][0][0]
    assert fell < 19 and ends[1][0] == (fell, False) and ends[1][1] == (fell + period, True)


def test_gymnasium_counts_the_episodes():
    envs = RecordEpisodeStatistics(VectorEnv("Pendulum", num_envs=3, max_episode_steps=10))
    envs.reset(seed=0)
    lengths = []
    for _ in range(33):
        *_, info = envs.step(np.zeros((3, 1)))
        if "episode" in info:
            lengths += info["episode"]["l"].tolist()
    assert lengths == [10] * 9


def test_arrays_once_given_do_not_change():
    envs = VectorEnv("Pendulum", num_envs=2)
    observation, _ = envs.reset(seed=0)
    kept = observation.copy()
    outcome = envs.step(np.ones((2, 1)))
    after = outcome[0].copy()
    outcome[0][:] = 7.0
    assert np.array_equal(observation, kept)
    assert np.array_equal(envs.batch.observation().numpy(), after)
