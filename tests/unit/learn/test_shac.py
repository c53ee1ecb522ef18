"""Short-horizon actor-critic: its gradient and its targets, and that it learns."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backdrive import learn
from backdrive.learn.gradients import ClipCount, clipped
from backdrive.learn.windows import ShortWindow
from backdrive.model import State

from . import small


def doubled(task, **given):
    agent = small(task, **given)
    for network in (agent.actor, agent.critics, agent.target, agent.normaliser):
        network.double()
    return agent


def objective_of(agent, window, noise):
    entropy = agent.actor.entropy(window.actions, noise)
    return agent.objective(window, window.rewards + agent.temperature * entropy)


@pytest.mark.parametrize("terminal_value", [True, False])
@pytest.mark.parametrize("task", ["Pendulum", "Hopper", "MuJoCoHopper"])
def test_the_gradient_of_the_objective_is_that_of_differences(task, terminal_value):
    agent = doubled(task, clip=None, entropy=0.01, terminal_value=terminal_value, max_episode_steps=4)
    saved, noise = agent.state_dict(), agent.noise().double()

    def objective() -> torch.Tensor:
        agent.world.load_state_dict(saved["world"])
        window = agent.window(noise)
        assert window.done[:-1].any()  # The window goes over ends of episodes.
        return objective_of(agent, window, noise)

    objective().backward()
    random = torch.Generator().manual_seed(0)
    for x in agent.actor.parameters():
        direction = torch.randn(x.shape, generator=random, dtype=torch.float64)
        values = []
        for sign in (1.0, -2.0, 1.0):
            with torch.no_grad():
                x += sign * 1e-5 * direction
                values.append(float(objective()))
        difference = (values[0] - values[1]) / 2e-5
        assert float((x.grad * direction).sum()) == pytest.approx(difference, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(("clip", "goes_to"), [(1e-9, 2), (1e9, 12)])
def test_the_horizon_follows_the_share_of_clipped_gradients(clip, goes_to):
    agent = small("Pendulum", clip=clip, horizon=4, most_clipped=0.3, longest=12)
    agent.train(steps=4 * 4)
    shares = []
    for _ in range(3):
        before = agent.horizon
        agent.train(steps=agent.steps + 1)
        assert agent.curve.last()["horizon"] == round(before)
        shares.append(agent.horizon / before)
    assert all(x < 1.0 for x in shares) if goes_to == 2 else all(x > 1.0 for x in shares)
    agent.horizon = float(goes_to)
    agent.train(steps=agent.steps + 1)
    assert agent.horizon == goes_to  # It stays within its range.


def test_a_discount_that_changes_looks_further_ahead_evenly():
    agent = small("Pendulum", discount=0.9, last_discount=0.98)  # 10 steps ahead at first, 50 at last
    ahead = []
    agent.train(steps=400, callback=lambda agent: ahead.append(1.0 / (1.0 - agent.discount)))
    before = [row["steps"] - 20 for row in agent.curve.rows]  # an iteration has 20 steps
    assert ahead == pytest.approx([10.0 + 40.0 * steps / 400.0 for steps in before])
    assert small("Pendulum", discount=0.9).discount == 0.9


def test_noise_falls_evenly_to_what_is_left_at_the_end(monkeypatch):
    agent, sizes = small("Pendulum", last_noise=0.1), []
    monkeypatch.setattr(agent, "noise", lambda: torch.ones(5, 4, 1))
    window = agent.window
    monkeypatch.setattr(agent, "window", lambda noise: sizes.append(float(noise.mean())) or window(noise))
    agent.train(steps=400)
    assert sizes == pytest.approx([1.0 - 0.9 * k / 20 for k in range(20)])


def test_observations_are_normalised_unless_they_are_not_to_be():
    given, plain = (learn.SHAC("Pendulum", num_envs=4, seed=0, normalise=x) for x in (True, False))
    for agent in (given, plain):
        agent.train(steps=200)
    assert not torch.equal(given.normaliser.mean, torch.zeros(3))
    assert torch.equal(plain.normaliser.mean, torch.zeros(3)) and torch.equal(plain.normaliser.var, torch.ones(3))


def test_first_episodes_end_at_different_times_unless_they_start_together():
    staggered, together = (
        learn.SHAC("Pendulum", num_envs=8, seed=0, staggered=x).world.env.steps for x in (True, False)
    )
    assert len(set(staggered.tolist())) > 1
    assert set(together.tolist()) == {0}


def test_the_adapted_horizon_is_saved(tmp_path):
    agent = small("Pendulum", clip=1e-9, horizon=4, most_clipped=0.3)
    agent.train(steps=100)
    agent.save(tmp_path / "agent.pt")
    assert learn.SHAC.load(tmp_path / "agent.pt").horizon == agent.horizon < 4.0
    assert learn.SHAC.load(tmp_path / "agent.pt", most_clipped=None, horizon=7).horizon == 7.0


def window(rewards, done):
    nothing = torch.zeros(*rewards.shape, 1)
    everywhere = torch.ones_like(done)
    return ShortWindow(everywhere, nothing, nothing, nothing, rewards, done, done, nothing, ClipCount)


def test_targets_of_the_critic_are_td_lambda_returns():
    random = torch.Generator().manual_seed(0)
    rewards, values = torch.rand(4, 1, generator=random), torch.rand(4, 1, generator=random)
    done = torch.tensor([[False], [True], [False], [False]])
    returns = window(rewards, done).returns(rewards, values, 0.9, 0.7)[:, 0]
    r, v = rewards[:, 0], values[:, 0]
    expected = torch.zeros(4)
    expected[3] = r[3] + 0.9 * v[3]
    expected[2] = r[2] + 0.9 * (0.3 * v[2] + 0.7 * expected[3])
    expected[1] = r[1] + 0.9 * v[1]  # An episode ends here: nothing of what follows counts.
    expected[0] = r[0] + 0.9 * (0.3 * v[0] + 0.7 * expected[1])
    torch.testing.assert_close(returns, expected)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 8), st.integers(0, 10_000), st.floats(0.0, 1.0))
def test_returns_of_one_step_and_of_whole_windows_are_the_ends_of_td_lambda(steps, seed, discount):
    random = torch.Generator().manual_seed(seed)
    rewards, values = (torch.randn(steps, 3, generator=random, dtype=torch.float64) for _ in range(2))
    seen = window(rewards, torch.rand(steps, 3, generator=random) < 0.3)
    torch.testing.assert_close(seen.returns(rewards, values, discount, 0.0), rewards + discount * values)
    # With λ = 1 the return of the first step is the window's objective up to the first end.
    whole, weights, ends = seen.returns(rewards, values, discount, 1.0), seen.weights(discount), seen.ends()
    for i in range(3):
        last = int(ends[:, i].nonzero()[0])
        total = (weights * rewards)[: last + 1, i].sum() + discount * weights[last, i] * values[last, i]
        torch.testing.assert_close(whole[0, i], total)


def test_gradients_of_states_are_clipped_for_each_environment():
    q, v = (torch.zeros(3, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    count = ClipCount()
    state = clipped(State(q, v), 5.0, count)
    slopes = torch.tensor([[1.0, 0.0], [30.0, 40.0], [float("nan"), 1.0]], dtype=torch.float64)
    (state.q * slopes).sum().backward()
    expected = torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(q.grad, expected)
    assert (count.seen, count.clipped, count.not_finite) == (3, 1, 1)


def test_the_limit_of_gradients_is_that_of_the_return_of_one_environment():
    shares = []
    for num_envs in (4, 64):
        agent = small("Hopper", num_envs=num_envs, clip=10.0)
        window = agent.window(agent.noise())
        shares.append(agent._improve_actor(window, window.rewards)[1].share)
    assert min(shares) > 0.8  # Of a mean over environments, none would be that large.


def test_clipping_changes_no_motion_and_is_counted():
    for one_call in (True, False):
        agents = [small("Hopper", clip=clip, one_call=one_call) for clip in (None, 1e-3)]
        windows = [agent.window(agent.noise()) for agent in agents]
        assert torch.equal(windows[0].rewards, windows[1].rewards)
        assert torch.equal(windows[0].finals, windows[1].finals)
        slopes, clips = zip(*(a._improve_actor(w, w.rewards) for a, w in zip(agents, windows)))
        assert slopes[0] != slopes[1]
        assert clips[0].clipped == 0
        assert (clips[1].seen, clips[1].share) == (4 * 4, 1.0)


@pytest.mark.slow
def test_a_pendulum_learns_to_swing_up():
    agent = learn.SHAC("Pendulum", num_envs=64, horizon=32)
    agent.train(steps=120_000)
    score = learn.evaluate(agent.policy(), "backdrive/Pendulum-v0")
    assert score.mean > -400.0  # It hangs at -1,200; swinging up at once from every start is about -150.


@pytest.mark.slow
def test_an_ant_learns_to_walk_in_mujoco():
    options = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0}
    agent = learn.SHAC("MuJoCoAnt", options=options, dtype="float32")
    agent.train(steps=800_000, target=1_200.0)
    assert agent.steps < 800_000
    policy = learn.widened(agent.policy(), 105, range(27))
    score = learn.evaluate(policy, "Ant-v5", episodes=5)
    assert score.returns.sum() / score.lengths.sum() > 1.8  # per step; standing still is worth 1
