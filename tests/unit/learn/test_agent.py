"""Training that can be watched, stopped, saved and resumed, and that tells what is wrong."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import types

import gymnasium
import numpy as np
import pytest
import torch

from backdrive import learn
from backdrive.envs import VectorEnv, find
from backdrive.learn.networks import Normaliser

from . import small, weights


def broken(**functions):
    """A pendulum with other functions."""
    return dataclasses.replace(find("Pendulum"), name="broken", **functions)


# ---------------------------------------------------------------------------------------------- saved and resumed


@pytest.mark.parametrize("task", ["Pendulum", "MuJoCoHopper"])
def test_a_killed_training_ends_with_the_same_bits(task, tmp_path):
    given = {"seed": 3, "entropy": 0.01, "max_episode_steps": 7}
    whole = small(task, **given)
    whole.train(steps=120)

    def die(agent):
        if agent.iterations == 3:
            raise MemoryError

    with pytest.raises(MemoryError):
        small(task, **given).train(steps=120, save=tmp_path / "agent.pt", callback=die)
    resumed = learn.SHAC.load(tmp_path / "agent.pt")
    assert resumed.iterations == 3 and resumed.steps < whole.steps
    resumed.train(steps=120)
    assert torch.equal(weights(whole), weights(resumed))
    assert torch.equal(whole.world.observation, resumed.world.observation)
    assert (resumed.steps, list(resumed.returns)) == (whole.steps, list(whole.returns))
    for name in ("return", "reward", "critic_loss", "gradient", "std"):
        np.testing.assert_array_equal(whole.curve[name], resumed.curve[name])


def test_a_training_does_not_depend_on_the_global_generator_or_the_threads():
    results = []
    for threads in (1, 2):
        torch.manual_seed(threads)
        agent = small(num_envs=16, threads=threads)
        agent.train(steps=240)
        results.append(weights(agent))
    assert torch.equal(*results)


def test_files_that_do_not_fit_are_told(tmp_path):
    file = small().save(tmp_path / "agent.pt")
    with pytest.raises(ValueError, match="other sizes"):
        small(actor=(9,)).resume(file)
    with pytest.raises(ValueError, match="4 environments, and here are 5"):
        small(num_envs=5).resume(file)
    with pytest.raises(ValueError, match="SHAC on Pendulum; this one is SHAC on CartPole"):
        small("CartPole").resume(file)
    (tmp_path / "text").write_text("no agent")
    with pytest.raises(ValueError, match="is no file of an agent"):
        learn.SHAC.load(tmp_path / "text")
    with pytest.raises(FileNotFoundError):
        learn.SHAC.load(tmp_path / "nothing")


def test_an_agent_keeps_what_it_had_when_a_file_does_not_fit(tmp_path):
    file = small().save(tmp_path / "agent.pt")
    agent = small(critic=(9,), seed=1)
    before = weights(agent)
    with pytest.raises(ValueError, match="other sizes"):
        agent.resume(file)
    assert torch.equal(weights(agent), before)


# ---------------------------------------------------------------------------------------------- stopped and watched


def test_interrupt_keeps_what_was_learned():
    agent = small()

    def interrupt(agent):
        if agent.iterations == 2:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted after 40 steps"):
        agent.train(steps=10_000, callback=interrupt)
    assert agent.iterations == 2
    assert torch.isfinite(weights(agent)).all()


def test_an_iteration_is_done_as_a_whole_or_not_at_all(monkeypatch):
    agent, other = small(), small()
    agent.train(steps=40)
    other.train(steps=40)

    def interrupted(window, rewards):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(agent, "_improve_critics", interrupted)
        with pytest.warns(UserWarning, match="interrupted after 40 steps"):
            agent.train(steps=80)
    for x in (agent, other):
        x.train(steps=80)
    assert torch.equal(weights(agent), weights(other))


def test_training_ends_at_steps_seconds_or_a_target():
    agent = small(max_episode_steps=5)
    assert len(agent.train(steps=50)) == 3
    assert len(agent.train(steps=50)) == 3  # Totals: nothing is left to do.
    agent.train(seconds=1e-6)
    assert len(agent.curve) == 3
    agent.train(seconds=agent.seconds + 0.05)
    assert len(agent.curve) > 3
    agent.train(target=-1e6)
    assert len(agent.returns) >= 16


def test_learning_rates_fall_to_the_end():
    agent, rates = small(), []
    agent.train(steps=200, callback=lambda x: rates.append(x.actor_step.param_groups[0]["lr"]))
    np.testing.assert_allclose(rates, 2e-3 * np.linspace(1.0, 0.1, 10))


def test_progress_tells_of_return_and_time(capsys):
    agent = small(max_episode_steps=5)
    agent.train(steps=100, progress=True)
    from backdrive.learn.budget import Budget

    text = agent._text(Budget(steps=200))
    assert "100 steps, return -" in text
    assert "s left" in text


def test_curve_is_a_table_a_file_and_a_figure(tmp_path):
    agent = small(max_episode_steps=5)
    curve = agent.train(steps=100)
    assert curve["steps"].tolist() == [20, 40, 60, 80, 100]
    assert {"return", "seconds", "clipped", "not_finite", "critic_loss"} <= set(curve.names())
    assert curve.save(tmp_path / "curve.json").stat().st_size > 100
    axes = curve.plot(label="SHAC")
    assert axes.get_ylabel() == "return"
    with pytest.raises(KeyError, match="did you mean 'return'"):
        curve["returns"]


def test_numbers_go_to_tensorboard(monkeypatch, tmp_path):
    written = []

    class SummaryWriter:
        def __init__(self, folder):
            written.append(folder)

        def add_scalar(self, name, value, steps):
            written.append((name, steps))

        def close(self):
            written.append("closed")

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    small().train(steps=40, log=tmp_path)
    assert written[0] == str(tmp_path)
    assert ("critic_loss", 40) in written
    assert written[-1] == "closed"
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        small().train(steps=40, log=tmp_path)


# ---------------------------------------------------------------------------------------------- policies


def test_exported_policy_needs_no_backdrive(tmp_path):
    agent = small()
    agent.train(steps=40)
    observation = torch.randn(5, agent.world.observation.shape[-1])
    policy = agent.policy()
    torch.testing.assert_close(policy(observation), agent.actor(agent.normaliser(observation)).detach())
    torch.save({"policy": policy, "in": observation, "out": policy(observation)}, tmp_path / "policy.pt")
    program = f"""
import sys, torch
sys.modules["backdrive"] = None  # Any import of it raises.
x = torch.load({str(tmp_path / "policy.pt")!r}, weights_only=False)
assert torch.equal(x["policy"](x["in"]), x["out"])
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)


def test_normaliser_merges_sets_of_observations():
    x = np.random.default_rng(0).normal(3.0, 2.0, (1000, 3))
    normaliser = Normaliser(3)
    for part in np.split(x, [10, 400]):
        normaliser.update(torch.from_numpy(part))
    np.testing.assert_allclose(normaliser.total_mean, x.mean(0), rtol=1e-6)
    np.testing.assert_allclose(normaliser.total_var, x.var(0), rtol=1e-5)


def test_scores_in_environments_of_gymnasium():
    policy = small().policy()
    ours = learn.evaluate(policy, "backdrive/Pendulum-v0", episodes=2)
    assert ours.returns.shape == (2,)
    assert (ours.lengths == 200).all()
    assert "2 episodes of 200 steps" in repr(ours)
    opened = gymnasium.make("Pendulum-v1")
    theirs = learn.evaluate(torch.nn.Sequential(policy, torch.nn.Linear(1, 1, bias=False)), opened, episodes=2)
    assert (theirs.lengths == 200).all()


def test_a_vector_environment_runs_one_episode_in_each():
    policy = small("MuJoCoHopper").policy()
    many = VectorEnv("MuJoCoHopper", num_envs=3, max_episode_steps=1000, threads=1)
    one_by_one = learn.evaluate(policy, "backdrive/MuJoCoHopper-v5", episodes=3, seed=5)
    at_once = learn.evaluate(policy, many, seed=5)
    np.testing.assert_array_equal(at_once.lengths, one_by_one.lengths)
    np.testing.assert_allclose(at_once.returns, one_by_one.returns, rtol=1e-4)


def test_a_twin_scores_as_in_mujoco():
    policy = small("MuJoCoHopper").policy()
    scores = [learn.evaluate(policy, name, episodes=3) for name in ("backdrive/MuJoCoHopper-v5", "Hopper-v5")]
    np.testing.assert_allclose(scores[0].returns, scores[1].returns, rtol=1e-3)


def test_widened_policy_sees_some_columns():
    policy = small().policy()
    x = torch.randn(4, 7)
    assert torch.equal(learn.widened(policy, 7, [4, 0, 2])(x), policy(x[:, [4, 0, 2]]))


def test_policies_of_wrong_size_are_told():
    with pytest.raises(ValueError, match="observations of \\(11,\\)"):
        learn.evaluate(small().policy(), "Hopper-v5", episodes=1)
    with pytest.raises(ValueError, match="shape \\(2,\\), those of the environment \\(1,\\)"):
        learn.evaluate(torch.nn.Linear(3, 2), "backdrive/Pendulum-v0", episodes=1)


# ---------------------------------------------------------------------------------------------- bad input


def test_rewards_that_are_not_finite_are_told_and_nothing_is_lost():
    good, spoil = find("Pendulum"), False

    def reward(before, action, after):
        terms = dict(good.reward(before, action, after))
        return {**terms, "spoilt": after.v[:, 0] * float("nan")} if spoil else terms

    agent = small(broken(reward=reward))
    agent.train(steps=40)
    before, spoil = weights(agent), True
    with pytest.raises(ValueError, match="the reward of task 'broken' is nan in 20 of 20 steps"):
        agent.train(steps=80)
    assert agent.steps == 40
    assert torch.equal(weights(agent), before)


def test_environments_that_end_at_once_are_told():
    agent = small(broken(ends=lambda state: torch.ones(len(state.q), dtype=torch.bool)))
    with pytest.warns(UserWarning, match="every episode of task 'broken' terminates at its first step") as told:
        agent.train(steps=80)
    assert len(told) == 1
    assert torch.isfinite(weights(agent)).all()


def test_actions_without_limits_are_told():
    with pytest.raises(ValueError, match="'broken' has actions without limits"):
        small(broken(action_low=-np.inf))


@pytest.mark.parametrize(("name", "rate"), [("learning_rate", 10.0), ("critic_rate", 1e3), ("critic_rate", 1e40)])
def test_a_learning_rate_that_diverges_is_told_and_nothing_is_lost(name, rate):
    agent = small()
    agent.train(steps=40)
    before = weights(agent)
    agent.given = dataclasses.replace(agent.given, **{name: rate})
    with pytest.raises(learn.Diverged, match=f"{name} is too large|not finite"):
        agent.train(steps=10_000)
    assert torch.isfinite(weights(agent)).all()
    assert agent.steps == 20 * len(agent.curve)
    assert agent.steps > 40 or torch.equal(weights(agent), before)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"horizont": 3}, "horizon"),
        ({"horizon": 0}, "horizon must be"),
        ({"last_discount": 1.0}, "last_discount must be <= 0.9999"),
        ({"last_noise": -0.1}, "last_noise must be >= 0"),
        ({"last_noise": 0.1, "entropy": 0.1}, "one of the two"),
        ({"most_clipped": 1.5}, "most_clipped must be <= 1"),
        ({"most_clipped": 0.2, "clip": None}, "set clip"),
        ({"most_clipped": 0.2, "horizon": 20, "longest": 10}, "longest must be at least the horizon, 20"),
        ({"discount": 1.5}, "discount must be <= 1"),
        ({"activation": "elo"}, "elu"),
        ({"learning_rate": -1.0}, "learning_rate must be > 0"),
        ({"critic_rate": float("nan")}, "critic_rate must be finite"),
        ({"actor": (8, 0)}, "actor must be"),
        ({"clip": 0.0}, "clip must be > 0"),
        ({"num_envs": 0}, "num_envs must be"),
        ({"options": {"gravitas": 1.0}}, "gravitas"),
        ({"dtype": "float16"}, "dtype"),
    ],
)
def test_wrong_settings_are_told(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        small(**given)


def test_train_needs_an_end():
    with pytest.raises(TypeError, match="steps, seconds or a target"):
        small().train()
    for given in ({"steps": 0}, {"seconds": -1.0}, {"target": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(given))):
            small().train(**given)
