"""The batched environment of Stable-Baselines3 is that of Gymnasium, with its words for ends of episodes."""

import numpy as np
import pytest

from backdrive.envs import VectorEnv

pytest.importorskip("stable_baselines3")
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor

from backdrive.envs.stable_baselines import BatchedEnv

COUNT, LIMIT = 4, 9


def test_steps_are_those_of_the_vector_environment():
    """Ends by falling and by the time limit; terminal observations; the first ones of new episodes."""
    envs = BatchedEnv("CartPole", num_envs=COUNT, max_episode_steps=LIMIT)
    other = VectorEnv("CartPole", num_envs=COUNT, max_episode_steps=LIMIT, autoreset_mode="SameStep")
    envs.seed(7)
    assert np.array_equal(envs.reset(), other.reset(seed=7)[0])
    random, kinds = np.random.default_rng(0), set()
    for _ in range(40):
        actions = random.uniform(-1.0, 1.0, (COUNT, *envs.action_space.shape))
        observation, reward, done, infos = envs.step(actions)
        expected, rewards, terminated, truncated, info = other.step(actions)
        assert np.array_equal(observation, expected) and np.array_equal(done, terminated | truncated)
        assert reward.dtype == np.float32 and np.array_equal(reward, rewards.astype(np.float32))
        for i, one in enumerate(infos):
            assert one["TimeLimit.truncated"] == (truncated[i] and not terminated[i])
            assert ("terminal_observation" in one) == done[i]
            if done[i]:
                assert np.array_equal(one["terminal_observation"], info["final_obs"][i])
                assert not np.array_equal(one["terminal_observation"], observation[i])
                kinds.add(bool(truncated[i]))
            assert all(not name.startswith("_") and name != "path" for name in one)
    assert kinds
    envs.close()


def test_ppo_trains_with_it():
    """Every episode of this short limit is as long as its return; the time limit is bootstrapped: rewards in the
    buffer are those of the environment, 1, and more where an episode was truncated."""
    assert BatchedEnv("CartPole", num_envs=2).get_attr("max_episode_steps") == [500] * 2
    envs = VecMonitor(BatchedEnv("CartPole", num_envs=8, max_episode_steps=LIMIT))
    model = PPO("MlpPolicy", envs, n_steps=20, batch_size=160, n_epochs=1, gamma=0.9, seed=0, device="cpu")
    model.learn(160)
    episodes = list(model.ep_info_buffer)
    assert model.num_timesteps == 160 and len(episodes) == 16 and {x["l"] for x in episodes} == {LIMIT}
    assert {x["r"] for x in episodes} == {float(LIMIT)}
    rewards = model.rollout_buffer.rewards
    assert (np.abs(rewards - 1.0) > 1e-6).any(1).nonzero()[0].tolist() == [LIMIT - 1, 2 * LIMIT - 1]
    assert model.env.seed(3) == [3 + i for i in range(8)]


def test_what_is_wrong_is_said():
    envs = BatchedEnv("Pendulum", num_envs=2)
    with pytest.raises(RuntimeError, match="no actions"):
        envs.step_wait()
    with pytest.raises(ValueError, match="start anew in the step"):
        BatchedEnv("Pendulum", autoreset_mode="NextStep")
    with pytest.raises(NotImplementedError, match="one batch"):
        envs.set_attr("num_envs", 3, indices=[0])
    with pytest.raises(ValueError, match="max_episode_steps"):
        BatchedEnv("Pendulum", max_episode_steps=0)
    assert envs.env_is_wrapped(object) == [False, False] and envs.env_method("reset")[0][0].shape == (2, 3)
