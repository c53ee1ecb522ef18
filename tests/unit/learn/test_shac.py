"""Short-horizon actor-critic: its gradient, its targets, and that a training can be stopped, saved and resumed."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from backdrive import learn
from backdrive.learn.gradients import ClipCount, clipped
from backdrive.learn.networks import Normaliser
from backdrive.learn.shac import Window
from backdrive.model import State


def small(**given):
    return learn.SHAC("Pendulum", **{"num_envs": 4, "horizon": 5, "actor": (8,), "critic": (8,), "threads": 1, **given})


def weights(agent):
    return torch.cat([x.detach().flatten() for network in agent.networks().values() for x in network.parameters()])


def test_the_gradient_of_the_objective_is_that_of_differences():
    agent = small(clip=None, entropy=0.01)
    for network in (agent.actor, agent.critics, agent.target, agent.normaliser):
        network.double()
    saved = copy.deepcopy(agent.state_dict())

    def objective() -> torch.Tensor:
        agent.world.load_state_dict(saved["world"])
        agent.generator.set_state(saved["generator"])
        return agent.objective()[0]

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
        assert float((x.grad * direction).sum()) == pytest.approx(difference, rel=1e-5, abs=1e-6)


def test_targets_of_the_critic_are_td_lambda_returns():
    random = torch.Generator().manual_seed(0)
    rewards, values = torch.rand(4, 1, generator=random), torch.rand(4, 1, generator=random)
    window, end = Window(), torch.tensor([[False], [True], [False], [True]])
    for h in range(4):
        window.add(torch.zeros(1, 2), torch.zeros(1, 2), rewards[h], values[h], end[h])
    returns = window.samples(0.9, 0.7)[2]
    r, v = rewards[:, 0], values[:, 0]
    expected = torch.zeros(4)
    expected[3] = r[3] + 0.9 * v[3]
    expected[2] = r[2] + 0.9 * (0.3 * v[2] + 0.7 * expected[3])
    expected[1] = r[1] + 0.9 * v[1]  # An episode ends here: nothing of what follows counts.
    expected[0] = r[0] + 0.9 * (0.3 * v[0] + 0.7 * expected[1])
    torch.testing.assert_close(returns, expected)


def test_normaliser_merges_sets_of_observations():
    x = np.random.default_rng(0).normal(3.0, 2.0, (1000, 3))
    normaliser = Normaliser(3)
    for part in np.split(x, [10, 400]):
        normaliser.update(torch.from_numpy(part))
    np.testing.assert_allclose(normaliser.total_mean, x.mean(0), rtol=1e-6)
    np.testing.assert_allclose(normaliser.total_var, x.var(0), rtol=1e-5)


def test_gradients_of_states_are_clipped_for_each_environment():
    q, v = (torch.zeros(3, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    count = ClipCount()
    state = clipped(State(q, v), 5.0, count)
    slopes = torch.tensor([[1.0, 0.0], [30.0, 40.0], [float("nan"), 1.0]], dtype=torch.float64)
    (state.q * slopes).sum().backward()
    expected = torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(q.grad, expected)
    assert (count.seen, count.clipped, count.not_finite) == (3, 2, 1)


def test_training_has_the_same_bits_after_it_was_saved_and_resumed(tmp_path):
    whole, first = small(seed=3), small(seed=3)
    for agent, parts in ((whole, 6), (first, 3)):
        for _ in range(parts):
            agent._one(0.0)
    second = small(seed=5).resume(first.save(tmp_path / "agent.pt"))
    for _ in range(3):
        second._one(0.0)
    assert torch.equal(weights(whole), weights(second))
    assert second.steps == whole.steps and len(second.curve) == len(whole.curve)


@pytest.mark.slow
def test_a_pendulum_learns_to_swing_up():
    agent = learn.SHAC("Pendulum", num_envs=64, horizon=32)
    agent.train(steps=120_000)
    score = learn.evaluate(agent.policy(), "backdrive/Pendulum-v0")
    assert score.mean > -400.0  # It hangs at -1,200; swinging up at once from every start is about -150.


def test_exported_policy_needs_no_backdrive(tmp_path):
    agent = small()
    agent.train(steps=40)
    observation = torch.randn(5, agent.world.observation.shape[-1])
    policy = agent.policy()
    torch.testing.assert_close(policy(observation), agent.actor(agent.normaliser(observation)))
    torch.save({"policy": policy, "in": observation, "out": policy(observation)}, tmp_path / "policy.pt")
    program = f"""
import sys, torch
x = torch.load({str(tmp_path / "policy.pt")!r}, weights_only=False)
assert torch.equal(x["policy"](x["in"]), x["out"]) and not any("backdrive" in name for name in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)


def test_interrupt_keeps_what_was_learned():
    agent = small()

    def interrupt(agent):
        if agent.iterations == 2:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted after 40 steps"):
        agent.train(steps=10_000, callback=interrupt)
    assert agent.iterations == 2 and torch.isfinite(weights(agent)).all()


def test_weights_that_are_not_finite_are_taken_back():
    agent = small()
    agent.train(steps=40)
    before = weights(agent)
    with torch.no_grad():
        agent.critics.each[0][0].weight.fill_(float("inf"))
    with pytest.raises(learn.Diverged, match="the critics are not finite"):
        agent.train(steps=40)
    assert agent.steps == 40 and len(before) == len(weights(agent))


def test_score_in_an_environment_of_gymnasium():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        score = learn.evaluate(small().policy(), "backdrive/Pendulum-v0", episodes=2)
    assert score.returns.shape == (2,) and (score.lengths == 200).all() and "2 episodes" in repr(score)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"horizont": 3}, "horizon"),
        ({"horizon": 0}, "horizon must be"),
        ({"discount": 1.5}, "discount must be <= 1"),
        ({"activation": "elo"}, "elu"),
        ({"learning_rate": -1.0}, "learning_rate must be > 0"),
    ],
)
def test_wrong_settings_are_told(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        small(**given)


def test_train_needs_an_end():
    with pytest.raises(TypeError, match="steps, seconds or a target"):
        small().train()
