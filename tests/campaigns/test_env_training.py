"""Libraries train on the environments as they are."""

import gymnasium
import numpy as np
import pytest
import torch

import backdrive.envs

torch.set_num_threads(1)
sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is missing: pip install stable-baselines3")


@pytest.mark.parametrize("id", ["backdrive/CartPole-v0", "backdrive/Ant-v0"])
def test_stable_baselines_ppo(id):
    agent = sb3.PPO("MlpPolicy", id, n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu")
    before = [x.clone() for x in agent.policy.parameters()]
    agent.learn(256)
    assert agent.num_timesteps == 256
    assert any(not torch.equal(a, b) for a, b in zip(before, agent.policy.parameters()))
    observation, _ = gymnasium.make(id).reset(seed=0)
    assert np.isfinite(agent.predict(observation)[0]).all()


def test_stable_baselines_sac_on_many():
    from stable_baselines3.common.env_checker import check_env
    from stable_baselines3.common.env_util import make_vec_env

    check_env(gymnasium.make("backdrive/Hopper-v0").unwrapped)
    envs = make_vec_env("backdrive/Hopper-v0", n_envs=2, seed=0)
    small = {"net_arch": [32]}
    agent = sb3.SAC("MlpPolicy", envs, learning_starts=50, batch_size=32, seed=0, device="cpu", policy_kwargs=small)
    agent.learn(200)
    assert agent.num_timesteps == 200


def test_a_gradient_step_through_the_physics_is_better():
    """One policy for all, descent on the return of 20 steps: a swing-up begins."""
    envs = backdrive.envs.VectorEnv("NLinkPendulum", num_envs=16, links=2)
    torch.manual_seed(0)
    policy = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2), torch.nn.Tanh())
    policy = policy.double()
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    returns = []
    for _ in range(15):
        observation, _ = envs.reset_torch(seed=0)
        total = torch.zeros(16, dtype=torch.float64)
        for _ in range(20):
            observation, reward, *_ = envs.step_torch(policy(observation))
            total = total + reward
        optimizer.zero_grad()
        (-total.mean()).backward()
        optimizer.step()
        returns.append(total.mean().item())
    assert returns[-1] > returns[0] + 10.0
