"""Rewards and ends of episodes along rollouts: in kernels as by torch, with exact gradients."""

import math

import numpy as np
import pytest
import torch
from differences import require_derivative
from hoppers import hopping, start
from scenes import leaves, randn

import backdrive as bd
from backdrive.control import Rewards

STEPS, BATCH, HOLD = 14, 4, 3
DECISIONS = -(-STEPS // HOLD)


def reward(before: bd.State, u, after: bd.State):
    """Speed, a cost of control, a bonus for height, and some functions besides."""
    tall = (after.q[:, 1] > -0.05) & (after.q[:, 2].abs() < 0.4)
    return {
        "speed": (after.q[:, 0] - before.q[:, 0]) / 0.03,
        "control": -0.3 * u.square().sum(-1),
        "tall": 0.5 * tall.to(u.dtype),
        "wobble": torch.cat([after.v, torch.nn.functional.pad(before.v, (0, 1))], -1).tanh().norm(dim=-1),
    }


def ends(state: bd.State):
    return ~((state.q[:, 1:3] > -0.06).all(-1) & True) | (state.v.abs() > 4.0).any(-1)


def opaque(before: bd.State, u, after: bd.State):
    """The same reward, by a function that no formula has."""
    return sum(reward(before, u, after).values()) + 0.0 * torch.erf(u).sum(-1)


def policy(seed: int) -> bd.MLP:
    return bd.MLP((7, 8, 1), sensors=("q[1:]", "v"), output="tanh", low=-1.0, high=1.0, hold=HOLD, std=0.5,
                  generator=torch.Generator().manual_seed(seed))  # fmt: skip


def horizon(rewards: Rewards, net: bd.MLP, q, v, noise, **options):
    return rewards.rollout(hopping(), bd.State(q, v), policy=net, noise=noise, steps=STEPS, **options)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("adjoint", [None, bd.Checkpoint(HOLD), bd.Checkpoint(1)])
def test_kernels_compute_what_torch_does(seed, adjoint):
    net, found = policy(seed), []
    for function in (reward, opaque):
        rewards = Rewards(function, ends)
        q, v, noise = leaves(*start(BATCH, seed), randn(DECISIONS, BATCH, 1, seed=seed + 9))
        episodes = horizon(rewards, net, q, v, noise, adjoint=adjoint)
        assert rewards.compiled(episodes.path) == (function is reward)
        assert episodes.rewards.shape == episodes.ended.shape == (DECISIONS, BATCH)
        weights = 0.9 ** torch.arange(DECISIONS)[:, None]
        ((weights * episodes.rewards).sum() + 0.1 * episodes.path.last.v.square().sum()).backward()
        found.append([episodes.rewards, episodes.ended, q.grad, v.grad, noise.grad])
        found[-1] += [x.grad.clone() for x in net.parameters()]
        net.zero_grad()
    assert torch.equal(found[0][1], found[1][1])
    for mine, reference in zip(*found, strict=True):
        assert (mine.double() - reference.double()).abs().max() <= 1e-10 * (1e-3 + reference.double().abs().max())


def test_some_episodes_end_and_their_later_rewards_are_zero():
    rewards, counts = Rewards(reward, ends), []
    q, v = start(60, 3)
    episodes = horizon(rewards, policy(0), q, v, randn(DECISIONS, 60, 1))
    path, over = episodes.path, torch.zeros(60, dtype=torch.bool)
    for d in range(DECISIONS):
        before, after = (bd.State(path.q[k], path.v[k]) for k in (d * HOLD, min((d + 1) * HOLD, STEPS)))
        expected = torch.where(over, 0.0, sum(reward(before, path.controls[d * HOLD], after).values()))
        assert (episodes.rewards[d] - expected).abs().max() < 1e-12
        over = over | ends(after)
        assert torch.equal(episodes.ended[d], over)
        counts.append(int(over.sum()))
    assert counts[0] < counts[-1] < 60


@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_differences(seed):
    """Of the rewards of a horizon with respect to start, noise and weights, away from the ends of episodes."""
    net, rewards = policy(seed), Rewards(reward)
    everything = [*start(BATCH, seed), randn(DECISIONS, BATCH, 1, seed=6), *(x.detach() for x in net.parameters())]

    def total(numbers):
        parts = [part.view_as(x) for part, x in zip(numbers.split([x.numel() for x in everything]), everything)]
        inputs = leaves(*parts[:3])
        for parameter, part in zip(net.parameters(), parts[3:], strict=True):
            parameter.data = part.detach().clone()
        found = horizon(rewards, net, *inputs).rewards
        return (found * randn(DECISIONS, BATCH, seed=3)).sum(), [*inputs, *net.parameters()]

    x = torch.cat([part.flatten() for part in everything])
    loss, inputs = total(x)
    gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, inputs)])
    directions = [randn(len(x), seed=10 + k) for k in range(3)]
    require_derivative(gradient, lambda y: float(total(y)[0]), x, directions, 1e-6, "rewards")


@pytest.mark.parametrize("function", [reward, opaque])
def test_motion_that_is_not_finite_has_ended(function):
    sim, rewards, net = hopping(nonfinite="mark"), Rewards(function, ends), policy(1)
    q, v = start(3)
    q[1] = math.nan
    episodes = rewards.rollout(sim, bd.State(q, v), policy=net, steps=STEPS, clip=10.0)
    assert bool(episodes.ended[:, 1].all()) and bool((episodes.rewards[:, 1] == 0.0).all())
    episodes.rewards.sum().backward()
    assert all(bool(torch.isfinite(x.grad).all()) for x in net.parameters() if x.grad is not None)


def test_one_world_given_controls_and_float32():
    sim = hopping(dtype=torch.float32)
    q, v = (x[0] for x in start(2, dtype=torch.float32))
    u = torch.full((6, 1), 0.3, requires_grad=True)
    episodes = Rewards(reward).rollout(sim, bd.State(q, v), u)
    assert episodes.rewards.shape == (6,) and episodes.rewards.dtype == torch.float32
    assert not bool(episodes.ended.any())
    episodes.rewards.sum().backward()
    assert u.grad.shape == (6, 1) and bool((u.grad != 0.0).all())
    found = Rewards(reward).rollout(sim, bd.State(q, v), u).rewards.sum()
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(found, u, create_graph=True)


def test_what_is_wrong_is_said():
    q, v = start(2)
    path = hopping().rollout(bd.State(q, v), steps=9, adjoint=bd.Checkpoint(2))
    with pytest.raises(ValueError, match="every 2-th state"):
        Rewards(reward)(path, hold=3)
    with pytest.raises(TypeError, match="reward must be a function"):
        Rewards(3.0)
    with pytest.raises(TypeError, match="ends must be a function"):
        Rewards(reward, True)
    with pytest.raises(ValueError, match=r"reward must return a tensor \[B\], here \[10\], got \[\]"):
        Rewards(lambda before, u, after: after.q.sum())(path, hold=2)


@pytest.mark.parametrize("name", ["MuJoCoHopper", "MuJoCoHalfCheetah", "MuJoCoAnt"])
def test_rewards_of_tasks_are_formulas(name):
    """Those of Gymnasium's twins; of the Ant without contact forces, and with its position at the end of a step."""
    from backdrive.envs import find
    from backdrive.envs.batch import Batch

    options = {"contact_cost_weight": 0.0, "include_cfrc_ext_in_observation": False} if name == "MuJoCoAnt" else {}
    task = find(name, options)
    batch = Batch(task, 3, torch.float64, 1, None)
    batch.start([np.random.default_rng(k) for k in range(3)], None)
    begin, actions = bd.State(batch.where().q, batch.where().v), 0.5 * randn(4, 3, task.model.nu).tanh()
    rewards = task.rewards(batch.simulator)
    episodes = rewards.rollout(batch.simulator, begin, actions.repeat_interleave(task.frame_skip, 0))
    rewarded = rewards(episodes.path, task.frame_skip)
    assert rewards.compiled(episodes.path)
    for action, found, ended in zip(actions, *rewarded, strict=True):
        step = batch.step(action)
        assert (step.reward - found).abs().max() < (0.05 if name == "MuJoCoAnt" else 1e-9)
        assert torch.equal(step.terminated, ended)
