"""Soft actor-critic learns as that of Stable-Baselines3 does, and faster with policy enhancement."""

import statistics

import gymnasium
import pytest
import torch

from backdrive import learn
from backdrive.envs import VectorEnv
from backdrive.threads import one_torch_thread

STEPS, SETTINGS = 6_000, {"learning_rate": 1e-3, "batch": 128, "actor": (64, 64), "critic": (64, 64), "threads": 1}
SOLVED = -200.0
"""A policy that swings the rod up from every start has a mean return of about -130."""


def score(policy):
    return learn.evaluate(policy, VectorEnv("Pendulum", num_envs=10, max_episode_steps=200, threads=1)).mean


def scores(seeds, steps, **settings):
    """Of each of several seeds, after a number of steps each."""
    agent = learn.SAC("Pendulum", seed=range(seeds), **SETTINGS, **settings)
    agent.train(steps=seeds * steps)
    return [score(agent.policy(k)) for k in range(seeds)]


@pytest.mark.slow
def test_it_learns_as_stable_baselines_does():
    """With the same settings and environment: the best of five seeds, since about half of them spin the rod."""
    from stable_baselines3 import SAC

    ours = max(scores(5, STEPS))
    with one_torch_thread():
        sizes = {"net_arch": [64, 64]}
        env = gymnasium.make("backdrive/Pendulum-v0")
        other = SAC("MlpPolicy", env, seed=0, learning_rate=1e-3, batch_size=128, policy_kwargs=sizes, device="cpu")
        other.learn(STEPS)
        theirs = score(lambda x: torch.as_tensor(other.predict(x.numpy(), deterministic=True)[0]))
    assert ours > SOLVED and theirs > SOLVED, (ours, theirs)
    assert abs(ours - theirs) < 50.0, (ours, theirs)


@pytest.mark.slow
def test_policy_enhancement_needs_fewer_samples():
    """After half of the steps, the median of five seeds nearly swings the rod up; without it, it is far off.

    On the machine on which this was written, it was -190 with enhancement and -727 without.
    """
    enhanced, plain = (statistics.median(scores(5, STEPS // 2, enhance=enhance)) for enhance in ("policy", None))
    assert enhanced > 1.5 * SOLVED, (enhanced, plain)
    assert plain < enhanced - 100.0, (enhanced, plain)
