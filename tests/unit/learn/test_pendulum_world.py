"""The pendulum of the experiment `policy-enhancement`: its motion, its clock and its reward."""

from __future__ import annotations

import math

import pytest
import torch

from backdrive.envs import VectorEnv
from backdrive.experiments.policy_enhancement.world import DT, FRAMES, LENGTH, MASSES, TORQUE, most, pendulum


def run(links, action, frames=FRAMES):
    """Rewards [T], whether frames terminated [T], and observations [T + 1, n] of an episode with one action."""
    env = VectorEnv(pendulum(links), num_envs=1, threads=1, autoreset_mode="SameStep")
    first, _ = env.reset_torch(seed=0)
    rows = []
    for _ in range(frames):
        observation, reward, terminated, _, info = env.step_torch(torch.full((1, links), action, dtype=torch.float64))
        rows.append((reward[0], terminated[0], info.get("final_obs", observation)[0]))
    rewards, ends, seen = (torch.stack(x) for x in zip(*rows, strict=True))
    return rewards, ends, torch.cat([first, seen])


@pytest.mark.parametrize("links", [1, 3])
def test_a_return_says_how_far_the_tip_ends_from_the_highest_point(links):
    rewards, ends, seen = run(links, 0.3)
    x, y = seen[-1, 2 * links - 1], seen[-1, 3 * links - 1]
    distance = x**2 + (y - links * LENGTH) ** 2
    assert rewards.sum().item() == pytest.approx(most(links) - 2.0 * distance.item(), abs=1e-9)
    assert most(links) == pytest.approx(2.0 * (LENGTH * links) ** 2)
    assert ends.tolist() == [False] * (FRAMES - 1) + [True]
    torch.testing.assert_close(seen[:, -1], torch.arange(FRAMES + 1, dtype=torch.float64) / FRAMES)


def test_an_episode_begins_horizontally_at_rest():
    _, _, seen = run(2, 0.0, frames=1)
    assert seen[0].tolist() == [0.0, 0.0, LENGTH, 2.0 * LENGTH, 0.0, 0.0, 0.0]


def test_a_link_falls_as_a_pendulum_does():
    """From rest, its angular acceleration is (torque - m g l) / (m l² + I); friction is nowhere."""
    rewards, _, seen = run(1, 0.2, frames=1)
    inertia = MASSES[0] * LENGTH**2 + 0.00494875
    rate = (0.2 * TORQUE - MASSES[0] * 9.8 * LENGTH) / inertia * DT
    assert 10.0 * seen[1, 0].item() == pytest.approx(rate, rel=1e-3)
    assert rewards[0].item() == pytest.approx(
        2 * LENGTH**2 - (LENGTH**2 + LENGTH**2 * (1 - math.sin(rate * DT * 0.625)) ** 2), abs=1e-4
    )


def test_nothing_pushes_the_clock_and_the_clock_pushes_nothing():
    task = pendulum(2)
    mass = task.model.parameter("mass")
    assert task.model.nq == 3 and len(mass) == 3
    env = VectorEnv(task, num_envs=1, threads=1)
    env.reset_torch(seed=0)
    for _ in range(50):
        env.step_torch(torch.ones(1, 2, dtype=torch.float64))
    assert env.state.v[0, 2].item() == pytest.approx(1.0, abs=1e-12)
    assert env.state.q[0, 2].item() == pytest.approx(50 * DT, abs=1e-12)
