"""Soft actor-critic: its equations by hand, its gradient through the simulator, seeds side by side, files, errors."""

from __future__ import annotations

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch

from backdrive import State, learn
from backdrive.differences import along
from backdrive.envs import VectorEnv, find
from backdrive.learn.replay import Replay
from backdrive.learn.sac import Transitions
from backdrive.learn.seeds import Actors, Layers, TwinCritics


def small(task="Pendulum", **given):
    sizes = {"actor": (8,), "critic": (8,), "threads": 1, "window": 10, "explore": 10, "batch": 8, "updates": 2}
    return learn.SAC(task, **{**sizes, **given})


def weights(agent, which=0):
    """All weights of one seed."""
    seeds = len(agent.generators)
    actor = [x.detach()[which].flatten() for x in agent.actors.parameters()]
    critics = [x.detach()[k * seeds + which].flatten() for x in agent.critics.parameters() for k in (0, 1)]
    return torch.cat([*actor, *critics, agent.temperatures.log.detach()[which]])


def generators(*seeds):
    return [torch.Generator().manual_seed(x) for x in seeds]


# ---------------------------------------------------------------------------------------------- networks


def test_layers_are_those_of_torch():
    layers = Layers((3, 5, 4, 2), generators(1, 2))
    x = torch.randn(2, 7, 3, generator=torch.Generator().manual_seed(0))
    out = layers(x)
    for k in range(2):
        alone = torch.nn.Sequential(*layers.one(k))
        torch.testing.assert_close(alone(x[k]), out[k])
        torch.testing.assert_close(torch.nn.Sequential(*layers.one(k, slice(1)))(x[k]), out[k, :, :1])
    assert not torch.equal(layers.weight0[0], layers.weight0[1])
    assert layers.weight0.abs().max() <= 1.0 / math.sqrt(3) and layers.weight1.abs().max() <= 1.0 / math.sqrt(5)


def test_the_density_of_an_action_is_that_of_a_squashed_gaussian():
    actors = Actors((3, 6, 2), generators(4)).double()
    x, noise = torch.randn(2, 1, 9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    noise = noise[..., :2]
    action, density = actors(x, noise)
    mean, log_std = actors.layers(x).chunk(2, -1)
    normal = torch.distributions.Normal(mean, log_std.exp())
    squashed = torch.distributions.TransformedDistribution(normal, torch.distributions.TanhTransform())
    torch.testing.assert_close(squashed.log_prob(action).sum(-1), density)
    torch.testing.assert_close(actors.mean(x), mean.tanh())


def test_the_smaller_estimate_of_two_critics_counts():
    critics = TwinCritics((3, 4), generators(0, 1))
    x, action = torch.randn(2, 5, 2), torch.randn(2, 5, 1)
    both = critics(x, action)
    assert both.shape == (2, 2, 5)
    assert torch.equal(critics.least(x, action), both.min(0).values)
    assert (both[0] != both[1]).all()


# ---------------------------------------------------------------------------------------------- updates by hand


def hand_made(**given):
    """An agent with an actor and critics that are linear in observations, all weights 0 but those that tests set."""
    agent = small("Pendulum", actor=(), critic=(), learning_rate=0.01, keep=0.9, target_entropy=-0.5, **given)
    for network in (agent.actors, agent.critics, agent.target):
        for x in network.parameters():
            x.data.zero_()
    return agent


def some(**given):
    """Two transitions of the pendulum."""
    seen = {
        "observation": torch.tensor([[[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]]]), "action": torch.tensor([[[0.5], [-0.5]]]),
        "reward": torch.tensor([[1.0, -3.0]]), "following": torch.tensor([[[0.0, 0.0, 1.0], [0.0, 0.0, 3.0]]]),
        "alive": torch.tensor([[1.0, 0.0]]),
    }  # fmt: skip
    return Transitions(**{**seen, **given})


def test_the_backup_of_the_critics_by_hand():
    agent = hand_made(discount=0.5, temperature=0.2)
    first, second = agent.target.layers.weight0.data
    first[2], second[2] = 2.0, 1.0  # estimates 2 s[2] and s[2]: the smaller one is s[2] = 1
    goal = agent.backup(agent.target, some().reward, some().following, some().alive, torch.zeros(1, 2, 1))
    density = -0.5 * math.log(2.0 * math.pi)  # of the mean action of a unit Gaussian, not bent by tanh
    expected = torch.tensor([[1.0 + 0.5 * (1.0 - 0.2 * density), -3.0]])  # a terminated episode has no more value
    torch.testing.assert_close(goal, expected)


def test_an_update_by_hand():
    """One step of Adam moves each weight by the learning rate against the sign of its gradient."""
    agent = hand_made(discount=0.5, temperature=0.2)
    before = agent.critics.layers.bias0.detach().clone()
    losses = agent.update(some(), None, torch.zeros(3, 1, 2, 1))
    density = -0.5 * math.log(2.0 * math.pi)
    goals = torch.tensor([1.0 - 0.5 * 0.2 * density, -3.0])
    torch.testing.assert_close(losses[0], goals.square().mean())  # both critics said 0
    assert losses[2] == pytest.approx(-density)
    rate = 0.01
    # The mean goal is negative: biases fall. The first goal belongs to the action 0.5 and the second to -0.5: rises.
    torch.testing.assert_close(agent.critics.layers.bias0 - before, torch.full_like(before, -rate))
    torch.testing.assert_close(agent.critics.layers.weight0[:, 3], torch.full((2, 1), rate))
    torch.testing.assert_close(agent.target.layers.weight0[:, 3], torch.full((2, 1), 0.1 * rate))
    # The entropy 0.92 is above its target -0.5, so the temperature falls, and the critics now like larger actions.
    torch.testing.assert_close(agent.temperatures.log, torch.tensor([[math.log(0.2) - rate]]))
    assert agent.actors.layers.bias0.detach()[0, 0, 0].item() == pytest.approx(rate, rel=1e-3)


# ---------------------------------------------------------------------------------------------- enhanced


def test_the_gradient_of_policy_enhancement_agrees_with_differences():
    """That of the actor's objective with respect to the action and all of the actor's weights, in float64."""
    agent = small("Pendulum", enhance="policy", seed=[0, 1], discount=0.9, actor=(5,), critic=(6,))
    for network in (agent.actors, agent.critics):
        network.double()
    random = torch.Generator().manual_seed(0)
    states = torch.randn(2, 8, 2, dtype=torch.float64, generator=random)
    action = torch.rand(2, 8, 1, dtype=torch.float64, generator=random) - 0.5
    noise = torch.randn(2, 8, 1, dtype=torch.float64, generator=random)

    def value(action):
        return agent.simulated_value(states, action, noise)[0]

    _, slope = agent.simulated_value(states, action, noise)
    expected = along(value, action, torch.ones_like(action), 1e-4, order=4)  # each value depends on its own action only
    np.testing.assert_allclose(slope[..., 0].numpy(), expected.numpy(), rtol=1e-6, atol=1e-7)
    assert (expected.abs() > 1e-3).all()

    seen = agent.batch.task.observe(State(*states.flatten(0, 1).split(1, -1))).view(2, 8, 3)
    weight = agent.actors.layers.weight0
    kept = weight.detach().clone()

    def objective(x):
        """The actor's, with other weights for its first action; those for the second one do not change."""
        first = copy.deepcopy(agent.actors)
        first.layers.weight0.data.copy_(x)
        action, density = first(seen, noise)
        return (0.1 * density - value(action)).mean(-1).sum()

    for x in agent.actors.layers.weights:
        x.grad = torch.zeros_like(x)
    with torch.no_grad():
        sample = agent.actors.sample(seen, noise)
    _, slope = agent.simulated_value(states, sample.action, noise)
    with torch.no_grad():
        sample.learn(slope / -8.0, torch.full((2, 8), 0.1 / 8.0, dtype=torch.float64))
    slope = weight.grad
    for _ in range(5):
        direction = torch.randn(weight.shape, dtype=torch.float64, generator=random)
        expected = along(objective, kept, direction, 1e-4, order=4)
        assert float((slope * direction).sum()) == pytest.approx(float(expected), rel=1e-6, abs=1e-8)


def test_policy_enhancement_counts_what_it_simulates():
    agent = small(enhance="policy", seed=[0, 1])
    agent.train(steps=60)
    assert agent.steps == 60
    assert agent.simulated == 60 + 20 * 2 * 2 * 8  # 20 steps after exploring, 2 updates each, of 2 seeds and 8 states


def test_the_value_of_policy_enhancement_is_that_of_the_environment():
    """Reward and next observation in an update are those of the step that was seen."""
    agent = small(enhance="policy", explore=40, window=10)
    agent.train(steps=10)
    places = torch.arange(8)[None]
    _, a, r, following, alive = agent.replay.at(places).split(agent.columns, -1)
    noise = torch.zeros(1, 8, 1)
    goal = agent.backup(agent.critics, r[..., 0], following, alive[..., 0], noise)
    torch.testing.assert_close(agent.simulated_value(agent.states.at(places), a, noise)[0], goal)


def test_neighbours_are_where_the_simulator_goes():
    agent = small("NLinkPendulum", options={"links": 2}, enhance="samples", extra=3, spread=1e-3, explore=20)
    state = agent.world.env.batch.where()
    agent.train(steps=10)
    rows = agent.replay.rows[0, :4]  # the first transition and its neighbours
    _, action, reward, following, _ = rows.split(agent.columns, -1)
    assert (action[1:] - action[0]).abs().max() <= 1e-3 and (action[1:] != action[0]).all()
    batch = agent.world.env.batch
    batch.state = type(state)(*(x.expand(4, -1) for x in state))
    step = batch.step(action.double())
    moved = (step.observation - step.observation[0]).abs().max()
    torch.testing.assert_close(following, step.observation.float(), rtol=0.0, atol=2e-3 * float(moved) + 1e-6)
    torch.testing.assert_close(reward[:, 0], step.reward.float(), rtol=1e-5, atol=1e-6)
    assert agent.simulated == agent.steps == 10 and agent.replay.added == 40


# ---------------------------------------------------------------------------------------------- seeds side by side


@pytest.mark.parametrize("enhance", [None, "policy", "samples"])
def test_what_a_seed_learns_does_not_depend_on_the_others(enhance):
    """To rounding: torch sums in another order if there are more seeds."""
    several = small(seed=[5, 3, 8], enhance=enhance)
    several.train(steps=3 * 40)
    alone = small(seed=3, enhance=enhance)
    alone.train(steps=40)
    torch.testing.assert_close(weights(several, 1), weights(alone), rtol=0.0, atol=1e-5)
    assert (weights(several, 0) - weights(several, 1)).abs().max() > 0.1
    x = torch.randn(3, 4, 3)
    torch.testing.assert_close(several.mean_action(x)[1], several.policy(1)(x[1]))
    torch.testing.assert_close(several.policy(1)(x[1]), alone.policy()(x[1]), rtol=0.0, atol=1e-5)


def test_several_environments_of_a_seed():
    agent = small(seed=[0, 1], num_envs=3, max_episode_steps=7)
    agent.train(steps=120)
    assert agent.steps == 120 and agent.replay.added == 60 and len(agent.returns) == 2 * 6
    assert len(set(np.round(agent.returns, 6))) == 12


# ---------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("enhance", [None, "policy", "samples"])
def test_a_killed_training_ends_with_the_same_bits(enhance, tmp_path):
    given = {"seed": [3, 4], "max_episode_steps": 7, "enhance": enhance, "replay": 25}  # a replay that is overwritten
    whole = small(**given)
    whole.train(steps=120)

    def die(agent):
        if agent.steps == 80:
            raise MemoryError

    with pytest.raises(MemoryError):
        small(**given).train(steps=120, save=tmp_path / "agent.pt", callback=die)
    resumed = learn.SAC.load(tmp_path / "agent.pt")
    assert resumed.steps == 80
    resumed.train(steps=120)
    for k in range(2):
        assert torch.equal(weights(whole, k), weights(resumed, k))
    assert torch.equal(whole.world.observation, resumed.world.observation)
    assert (resumed.steps, resumed.simulated, list(resumed.returns)) == (
        whole.steps,
        whole.simulated,
        list(whole.returns),
    )
    for name in ("critic_loss", "value", "entropy", "temperature"):
        np.testing.assert_array_equal(whole.curve[name], resumed.curve[name])


@pytest.mark.parametrize("enhance", [None, "policy", "samples"])
def test_an_iteration_is_done_as_a_whole_or_not_at_all(enhance, monkeypatch):
    agent, other = (small(enhance=enhance, replay=15) for _ in range(2))
    agent.train(steps=40)
    other.train(steps=40)
    calls = []

    def interrupted(*given):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return learn.SAC.update(agent, *given)

    with monkeypatch.context() as patch:
        patch.setattr(agent, "update", interrupted)
        with pytest.warns(UserWarning, match="interrupted after 40 steps"):
            agent.train(steps=80)
    for x in (agent, other):
        x.train(steps=80)
    assert torch.equal(weights(agent), weights(other))


def test_a_policy_is_exported_in_the_units_of_the_actions():
    agent = small("MuJoCoHopper")
    env = VectorEnv("MuJoCoHopper", num_envs=2, threads=1, max_episode_steps=5)
    score = learn.evaluate(agent.policy(), env)
    assert score.lengths.tolist() == [5, 5]
    assert {type(x).__module__.split(".")[0] for x in agent.policy().modules()} == {"torch"}


# ---------------------------------------------------------------------------------------------- replay


def test_a_replay_keeps_the_last_rows():
    replay = Replay(2, 1, capacity=5, slack=3)
    for k in range(7):
        replay.add(torch.full((2, 2, 1), float(k)))
        low = max(0, replay.added - 5)
        chance = torch.linspace(0.0, 0.999, 50).expand(2, -1)
        found = replay.at(replay.places(chance))
        assert sorted(set(found.flatten().tolist())) == sorted({float(x // 2) for x in range(low, replay.added)})


def test_a_replay_grows_with_what_it_holds():
    replay = Replay(1, 2, capacity=10_000, slack=10)
    assert replay.rows.shape[1] < 2_000
    for _ in range(3):
        replay.add(torch.ones(1, 1000, 2))
    assert 3_000 <= replay.rows.shape[1] <= 5_000 and bool((replay.rows[:, :3000] == 1.0).all())


# ---------------------------------------------------------------------------------------------- bad input


def broken(**functions):
    return dataclasses.replace(find("Pendulum"), name="broken", **functions)


def test_a_reward_that_is_not_finite_is_told_and_nothing_is_lost():
    def reward(before, action, after):
        return {"reward": torch.where(after.q[:, 0] > 0.0, math.nan, 1.0)}

    agent = small(broken(reward=reward), seed=[7])
    before = weights(agent)
    with pytest.raises(ValueError, match="the reward of task 'broken' is nan, first in environment 0 of seed 7"):
        agent.train(steps=2_000)
    assert agent.steps % 10 == 0
    if agent.steps == 0:
        assert torch.equal(weights(agent), before)


def test_episodes_that_end_at_once_are_told():
    agent = small(broken(ends=lambda state: torch.ones(len(state.q), dtype=torch.bool)))
    with pytest.warns(UserWarning, match="terminates at its first step"):
        agent.train(steps=20)


def test_a_learning_rate_that_is_too_large_is_told():
    agent = small(learning_rate=1e4, updates=20)
    with pytest.raises(learn.Diverged, match="as it was before this iteration"):
        agent.train(steps=200)
    assert torch.isfinite(weights(agent)).all()


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"enhance": "sample"}, ValueError, "enhance must be None, 'policy' or 'samples'"),
        ({"batch": 0}, ValueError, "batch"),
        ({"discount": 1.5}, ValueError, "discount"),
        ({"spread": 0.0}, ValueError, "spread"),
        ({"seed": []}, ValueError, "seed must be a number or several ones"),
        ({"batches": 4}, TypeError, "did you mean 'batch'"),
    ],
)
def test_wrong_settings_are_told(given, error, message):
    with pytest.raises(error, match=message):
        small(**given)
