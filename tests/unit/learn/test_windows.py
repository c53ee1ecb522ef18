"""Windows in one call of a kernel: the same as those step by step."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from backdrive import learn
from backdrive.envs import find
from backdrive.envs.task import Snapshot, nothing
from backdrive.learn.windows import selected

from . import small, weights
from .test_shac import doubled, objective_of

RUNNERS = ["MuJoCoHopper", "MuJoCoHalfCheetah", "MuJoCoWalker2d", "Hopper"]
QUIET_ANT = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0}


def ant():
    """An Ant whose reward is of the state, and not of MuJoCo's last evaluation."""
    task = find("MuJoCoAnt", QUIET_ANT)

    def look(state):
        return Snapshot(*state, state.q[:, :2])

    return dataclasses.replace(
        task, name="ant", sensors=None, info=nothing, start_info=nothing, ends=lambda x: task.ends(look(x)),
        observe=lambda x: task.observe(look(x)), reward=lambda a, u, b: task.reward(look(a), u, look(b)),
    )  # fmt: skip


def both(task, **given):
    """Agents with the same weights, noise and starts, one by one call, one by steps, with a window of each."""
    agents = [doubled(task, one_call=one_call, **given) for one_call in (True, False)]
    assert [agent.one_call is not None for agent in agents] == [True, False]
    noise = agents[0].noise().double()
    return agents, [agent.window(noise) for agent in agents], noise


def gradient(agent, window, noise):
    objective_of(agent, window, noise).backward()
    return torch.cat([x.grad.flatten() for x in agent.actor.parameters()])


@pytest.mark.parametrize("clip", [None, 20.0])
@pytest.mark.parametrize("task", [*RUNNERS, ant()], ids=[*RUNNERS, "Ant"])
def test_one_call_is_the_same_as_steps(task, clip):
    agents, windows, noise = both(task, clip=clip, entropy=0.1, horizon=6, log_std=0.0)
    assert not windows[1].done.any()
    for name in ("observations", "finals", "actions", "rewards", "terminated", "done", "last"):
        torch.testing.assert_close(getattr(windows[0], name), getattr(windows[1], name), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(agents[0].world.observation, agents[1].world.observation, rtol=1e-9, atol=1e-9)
    mine, reference = (gradient(agent, window, noise) for agent, window in zip(agents, windows))
    assert (mine - reference).abs().max() <= 1e-9 * reference.abs().max()
    clips = [window.clips() for window in windows]
    assert clips[0].clipped == clips[1].clipped and (clip is None or clips[0].clipped > 0)


@pytest.mark.parametrize("limit", [12, 1000])
def test_an_environment_whose_episode_ended_waits_for_the_end_of_the_window(limit):
    """By steps it starts anew at once: without what follows, the gradient is the same."""
    short = dataclasses.replace(find("MuJoCoHopper"), name="short", ends=lambda x: x.q[:, 3] < -0.03)
    agents, windows, noise = both(short, max_episode_steps=limit, log_std=0.5, horizon=8, num_envs=8)
    one, steps = windows
    first = steps.done.cumsum(0) - steps.done.long() == 0  # up to the end of the first episode
    assert torch.equal(one.counts, first) and not first.all() and first[-1].any()
    assert (one.terminated.any(), (one.done & ~one.terminated).any()) == (True, limit == 12)
    kept = torch.zeros_like(first)
    kept[steps.ends()] = first[steps.ends()]
    masked = dataclasses.replace(steps, counts=first, last=steps.last[kept[steps.ends()]])
    mine, reference = gradient(agents[0], one, noise), gradient(agents[1], masked, noise)
    assert (mine - reference).abs().max() <= 1e-9 * reference.abs().max()
    over = one.done.any(0)
    assert torch.equal(agents[0].world.env.steps == 0, over) and over.any() and not over.all()
    starts = agents[0].world.env.state.q[over]
    assert (starts - torch.tensor(find("MuJoCoHopper").model.q0)).abs().max() < 0.006


def test_returns_of_episodes_and_steps_count_what_happened():
    agent = small("MuJoCoHopper", max_episode_steps=7, horizon=5, num_envs=3)
    agent.train(steps=300)
    lengths = agent.curve["steps"]
    assert np.diff(lengths, prepend=0).min() < 15  # some environments waited
    assert len(agent.returns) > 20 and 4.0 < np.mean(agent.returns) < 12.0  # about 1 a step, and the speed


def test_the_window_of_an_ant_is_one_call_without_contact_forces_only():
    assert small("MuJoCoAnt").one_call is None
    assert small("MuJoCoAnt", options=QUIET_ANT).one_call is not None
    assert small("Pendulum").one_call is None  # observes sine and cosine
    assert small("MuJoCoHopper", activation="silu").one_call is None  # kernels do not have it
    steps = small("MuJoCoAnt", options=QUIET_ANT, one_call=False)
    call = small("MuJoCoAnt", options=QUIET_ANT)
    noise = call.noise()
    windows = [agent.window(noise) for agent in (call, steps)]
    # MuJoCo's reward is of positions at the last stage of a step.
    torch.testing.assert_close(windows[0].rewards, windows[1].rewards, rtol=0.02, atol=0.05)


def test_observations_that_are_elements_of_the_state_are_found():
    def found(observe):
        return selected(observe, 3, 2, torch.float64)

    clipped = found(lambda s: torch.cat([s.v.clamp(-10.0, 5.0), s.q[:, [2, 0]]], -1))
    assert clipped.places == [3, 4, 2, 0]
    assert clipped.low.tolist() == [-10.0, -10.0, -np.inf, -np.inf]
    assert clipped.high.tolist() == [5.0, 5.0, np.inf, np.inf]
    for other in (
        lambda s: s.q.sin(), lambda s: 2.0 * s.q, lambda s: s.q[:, :1] * s.v[:, :1], lambda s: s.q[:, :1] + s.v[:, :1],
        lambda s: s.q + 0.1, lambda s: torch.where(s.q > 3.0, 0.0, s.q),
    ):  # fmt: skip
        assert found(other) is None


def test_motions_that_are_not_finite_end_and_reach_no_weight():
    agent = small("MuJoCoHalfCheetah", num_envs=3, clip=None)
    state = agent.world.env.state
    v = state.v.clone()
    v[1] = 1e200
    agent.world.env.take(type(state)(state.q, v), agent.world.env.steps)
    window = agent.window(agent.noise())
    assert window.terminated[:, 1].any() and not window.terminated[:, [0, 2]].any()
    slope, _ = agent._improve_actor(window, window.rewards)
    assert np.isfinite(slope) and slope > 0.0
    assert torch.isfinite(weights(agent)).all()
    assert torch.isfinite(agent.world.observation).all()


def test_rewards_that_are_not_finite_are_told():
    good = find("MuJoCoHopper")

    def reward(before, action, after):
        return {**good.reward(before, action, after), "spoilt": (action[:, 0] - 0.5).sqrt()}

    agent = small(dataclasses.replace(good, name="spoilt", reward=reward))
    assert agent.one_call is not None
    before = weights(agent)
    with pytest.raises(ValueError, match="the reward of task 'spoilt' is nan in"):
        agent.train(steps=80)
    assert torch.equal(weights(agent), before) and agent.steps == 0


def test_environments_that_end_at_once_are_told():
    task = dataclasses.replace(find("MuJoCoHopper"), name="short", ends=lambda x: x.q[:, 1] < 100.0)
    agent = small(task)
    assert agent.one_call is not None
    with pytest.warns(UserWarning, match="every episode of task 'short' terminates at its first step"):
        agent.train(steps=20)
    assert torch.isfinite(weights(agent)).all() and agent.steps == 20


def test_a_learning_rate_that_diverges_is_told_and_nothing_is_lost():
    agent = small("MuJoCoHopper", learning_rate=10.0)
    with pytest.raises(learn.Diverged, match="learning_rate is too large|not finite"):
        agent.train(steps=10_000)
    assert torch.isfinite(weights(agent)).all()


def test_threads_change_no_bit():
    results = []
    for threads in (1, 2):
        agent = small("MuJoCoHopper", num_envs=64, threads=threads, horizon=16)
        agent.train(steps=3 * 64 * 16)
        results.append(weights(agent))
    assert torch.equal(*results)
