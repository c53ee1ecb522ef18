"""Backpropagation through time: its gradient, truncation, resuming, and that it learns."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from backdrive import learn
from backdrive.envs import find
from backdrive.learn.gradients import ClipCount

from . import weights


def small(task="Pendulum", **given):
    return learn.BPTT(task, **{"num_envs": 3, "max_episode_steps": 6, "actor": (8,), "threads": 1, **given})


def doubled(**given):
    agent = small(**given)
    for network in (agent.actor, agent.normaliser):
        network.double()
    return agent, agent.state_dict()


def returns(agent, saved):
    agent.world.load_state_dict(saved["world"])
    agent.generator.set_state(saved["generator"])
    return agent.episode(ClipCount())[0].sum()


@pytest.mark.parametrize("noise", [None, -1.0])
def test_the_gradient_of_the_returns_is_that_of_differences(noise):
    agent, saved = doubled(noise=noise, discount=0.9)
    returns(agent, saved).backward()
    random = torch.Generator().manual_seed(0)
    for x in agent.actor.mean.parameters():
        direction = torch.randn(x.shape, generator=random, dtype=torch.float64)
        values = []
        for sign in (1.0, -2.0, 1.0):
            with torch.no_grad():
                x += sign * 1e-5 * direction
                values.append(float(returns(agent, saved)))
        difference = (values[0] - values[1]) / 2e-5
        assert float((x.grad * direction).sum()) == pytest.approx(difference, rel=1e-6, abs=1e-7)


def test_truncation_cuts_the_gradient_and_nothing_else():
    agents = [small(truncate=k) for k in (None, 6, 2, 1)]
    values, slopes = [], []
    for agent in agents:
        total = agent.episode(ClipCount())[0].sum()
        total.backward()
        values.append(total.detach())
        slopes.append(torch.cat([x.grad.flatten() for x in agent.actor.mean.parameters()]))
    assert all(torch.equal(x, values[0]) for x in values)
    torch.testing.assert_close(slopes[1], slopes[0])
    assert not torch.allclose(slopes[2], slopes[0]) and not torch.allclose(slopes[3], slopes[2])


def test_what_follows_a_termination_counts_no_more():
    task = find("Pendulum")

    def reward(before, action, after):
        return {"one": torch.ones(len(after.q), dtype=after.q.dtype) + 0.0 * action[:, 0]}

    clock = dataclasses.replace(task, name="clock", reward=reward, ends=lambda state: state.q[:, 0].isfinite())
    agent = small(clock)
    agent.train(steps=1)
    assert list(agent.returns) == [1.0, 1.0, 1.0] and agent.steps == 3


def test_a_training_has_the_same_bits_after_it_was_saved_and_resumed(tmp_path):
    whole, first = small(noise=-1.0), small(noise=-1.0)
    whole.train(steps=4 * 18)

    def stop(agent):
        if agent.iterations == 2:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted"):
        first.train(steps=4 * 18, save=tmp_path / "agent.pt", callback=stop)
    second = learn.BPTT.load(tmp_path / "agent.pt")
    second.train(steps=4 * 18)
    assert torch.equal(weights(whole), weights(second)) and second.steps == whole.steps == 72
    with pytest.raises(ValueError, match="an agent of BPTT, not of SHAC"):
        learn.SHAC.load(tmp_path / "agent.pt")


def test_bad_input_is_told():
    with pytest.raises(TypeError, match="did you mean 'truncate'"):
        small(truncated=3)
    with pytest.raises(ValueError, match="truncate must be"):
        small(truncate=0)
    with pytest.raises(ValueError, match="give BPTT max_episode_steps"):
        small(dataclasses.replace(find("Pendulum"), name="own"), max_episode_steps=None)
    spoilt = dataclasses.replace(find("Pendulum"), name="spoilt", reward=lambda b, a, c: {"x": c.q[:, 0] * torch.nan})
    agent = small(spoilt)
    before = weights(agent)
    with pytest.raises(ValueError, match="the return of task 'spoilt' is nan in 3 of 3"):
        agent.train(steps=100)
    assert torch.equal(weights(agent), before)


@pytest.mark.slow
def test_a_pendulum_of_two_links_reaches_up():
    agent = learn.BPTT("NLinkPendulum", options={"links": 2}, num_envs=16, learning_rate=1e-2)
    agent.train(steps=16 * 100 * 60)
    returns = agent.curve["return"]
    assert agent.mean_return > 0.5 * returns[0]  # They are costs: at least halved.
