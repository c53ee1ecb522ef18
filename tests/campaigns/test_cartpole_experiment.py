"""cartpole: the environment is Gymnasium's, boxes are learned from a few steps, and models plan as they predict."""

import math
import sys

import matplotlib
import pytest
import torch
from quick_runs import quick_run

from backdrive import experiments
from backdrive.control import Dynamics
from backdrive.differences import along
from backdrive.experiments import Run
from backdrive.experiments.cartpole import balance, boxes, experiment, game
from backdrive.experiments.cartpole import networks as learning
from backdrive.experiments.cartpole.boxes import Boxes, identifiable
from backdrive.experiments.cartpole.game import CartPole, Steps
from backdrive.experiments.cartpole.model_batch import ModelBatch
from backdrive.experiments.cartpole.networks import Networks
from backdrive.simulator import Simulator
from backdrive.threads import one_torch_thread

gymnasium = pytest.importorskip("gymnasium")
matplotlib.use("Agg")

TRUTH = torch.tensor(boxes.TRUTH, dtype=torch.float64)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def set_cap(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    for module in (game, balance, experiment):
        monkeypatch.setattr(module, "CAP", steps)


def random_boxes(count: int, seed: int = 0) -> torch.Tensor:
    stream = generator(seed)
    return torch.stack([boxes.guess(stream) for _ in range(count)])


def random_states(count: int, models: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """x [count, 5], with models in no order, and forces [count, 1]."""
    stream = generator(seed)
    seen = torch.tensor([1.0, 1.0, 0.2, 1.0]) * torch.randn(count, 4, generator=stream, dtype=torch.float64)
    model = torch.randint(models, (count, 1), generator=stream)
    return torch.cat([seen, model.double()], -1), 3.0 * torch.randn(count, 1, generator=stream, dtype=torch.float64)


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    return Simulator(boxes.build(), game.DT)


@pytest.fixture(scope="module")
def steps() -> Steps:
    return game.play_at_random(60, 5, generator())


@pytest.fixture(scope="module")
def networks(steps) -> Networks:
    """Two: of the first 40 steps, and of the last 40."""
    with pytest.MonkeyPatch.context() as patch, one_torch_thread():
        patch.setattr(learning, "UPDATES", 300)
        return Networks.train([steps.first(40), Steps(*(x[20:] for x in vars(steps).values()))], generator())


def test_it_is_in_the_registry():
    found = experiments.find("cartpole")
    assert "2018" in found.paper and "figure 5" in found.paper


# ---------------------------------------------------------------------------------------------- the environment


@pytest.mark.parametrize("seed", range(5))
def test_with_the_forces_of_cartpole_v1_it_is_cartpole_v1(seed):
    mine, theirs = CartPole(), gymnasium.make("CartPole-v1")
    assert mine.reset(seed) == theirs.reset(seed=seed)[0].tolist()
    over = False
    for action in torch.randint(2, (200,), generator=generator(seed)).tolist():
        seen, over = mine.push(10.0 if action else -10.0)
        expected, reward, terminated, truncated, _ = theirs.step(action)
        assert seen == expected.tolist() and over == (terminated or truncated) and reward == 1.0
        if over:
            break
    assert over


def test_a_force_between_has_its_share():
    """Accelerations are linear in the force."""
    after = {}
    for force in (-10.0, 2.5, 10.0):
        env = CartPole()
        env.reset(3)
        after[force] = torch.tensor(env.push(force)[0])
    share = 12.5 / 20.0
    assert torch.allclose(after[2.5], (1 - share) * after[-10.0] + share * after[10.0], atol=1e-7)
    assert (after[10.0] - after[-10.0]).abs()[1] > 0.1


def test_bad_forces_and_the_cap(monkeypatch):
    env = CartPole()
    env.reset(0)
    for force in (10.1, -11.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="between -10 and 10 N"):
            env.push(force)
    set_cap(monkeypatch, 4)
    env = CartPole()
    env.reset(0)
    assert [env.push(0.1)[1] for _ in range(4)] == [False, False, False, True]


def test_random_play_is_repeatable_and_goes_on_after_an_episode(steps):
    again = game.play_at_random(60, 5, generator())
    assert torch.equal(steps.before, again.before) and torch.equal(steps.force, again.force)
    joined = (steps.after[:-1] == steps.before[1:]).all(-1)
    assert 0 < int((~joined).sum()) < 6
    assert (steps.before[1:][~joined].abs() <= 0.05).all()  # a new episode
    assert steps.force.abs().max() <= 10.0 and steps.force.std() > 4.0


# ---------------------------------------------------------------------------------------------- boxes


def test_boxes_like_the_truth_have_its_velocities(simulator, steps):
    thin = torch.tensor([[1.0, 0.1, 1.0, 1e-6]], dtype=torch.float64)
    expected = Boxes(simulator, thin).predict(
        torch.zeros(60, dtype=torch.int64), steps.before, steps.force.unsqueeze(-1)
    )
    difference = expected - steps.after
    assert difference[:, [1, 3]].abs().max() < 1e-6  # what is seen is float32
    gained = game.DT * (steps.after - steps.before)[:, [1, 3]]  # semi-implicit: the new velocity, not the old one
    assert torch.allclose(difference[:, [0, 2]], gained, atol=1e-6)
    assert gained.abs().max() > 1e-3


def test_boxes_that_differ_move_alike_if_three_numbers_are_the_same(simulator):
    total, arm, inertia = identifiable(TRUTH).tolist()
    pole = 0.3
    length = 2.0 * arm / pole
    width = math.sqrt(12.0 * (inertia / pole - length**2 / 3.0))
    other = torch.tensor([[total - pole, pole, length, width], boxes.TRUTH], dtype=torch.float64)
    assert torch.allclose(identifiable(other[0]), identifiable(TRUTH))
    x, u = random_states(50, 1)
    dynamics = Boxes(simulator, other)
    first, second = (dynamics.predict(torch.full((50,), k), x[:, :4], u) for k in (0, 1))
    assert torch.allclose(first, second, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_gradients_of_masses_and_sizes(simulator, steps, seed):
    values = random_boxes(4, seed)
    which = torch.arange(60) % 4

    def loss(values: torch.Tensor) -> torch.Tensor:
        expected = Boxes(simulator, values).predict(which, steps.before, steps.force.unsqueeze(-1))
        return (expected - steps.after).square().sum()

    exact = torch.func.grad(loss)(values)
    for k in range(values.numel()):
        axis = torch.zeros_like(values)
        axis.view(-1)[k] = 1.0
        difference = along(loss, values, axis, 1e-4 * float(values.flatten()[k]), order=4)
        row = (exact * values)[k // 4].abs().max()  # of the same box, as ratios
        assert abs(float((exact.flatten()[k] - difference) * values.flatten()[k])) <= 1e-6 * float(row)


@pytest.mark.parametrize("seed", range(3))
def test_few_steps_tell_three_numbers_and_no_more(simulator, seed):
    record = game.play_at_random(5, seed, generator(seed))
    found = boxes.learn_boxes(simulator, record, random_boxes(1, seed)[0])
    assert str(found.outcome) == "converged"
    numbers, deviations = boxes.identifiable_with_deviations(found)
    assert torch.allclose(numbers, identifiable(TRUTH), rtol=0.01)
    assert torch.isinf(found.std).all()  # none of the four can be told from the others
    assert torch.isfinite(deviations).all()
    assert ((numbers - identifiable(TRUTH)).abs() < 2.0 * deviations).all()


def test_a_known_width_tells_the_rest(simulator, steps):
    found = boxes.learn_boxes(simulator, steps, random_boxes(1)[0], width=1e-3)
    assert found.labels == ["mass of cart", "mass of pole", "size of pole.y"]
    assert torch.allclose(found.value, TRUTH[:3], rtol=0.01)
    assert torch.isfinite(found.std).all()
    assert ((found.interval[:, 0] < TRUTH[:3]) & (TRUTH[:3] < found.interval[:, 1])).all()


# ---------------------------------------------------------------------------------------------- both models


def models(simulator: Simulator, networks: Networks) -> list[ModelBatch]:
    return [Boxes(simulator, random_boxes(2)), networks]


def test_linearisations_agree_with_differences(simulator, networks):
    x, u = random_states(30, 2)
    for dynamics in models(simulator, networks):
        A, B = dynamics.linearize(x, u)
        end = dynamics.step(x, u)

        def change(delta, control, dynamics=dynamics, end=end):
            return dynamics.difference(dynamics.step(dynamics.displace(x, delta), control), end)

        for k, axis in enumerate(torch.eye(4, dtype=torch.float64)):
            slope = along(lambda delta: change(delta, u), torch.zeros(4, dtype=torch.float64), axis, 1e-5)
            assert torch.allclose(slope, A[:, :, k], rtol=1e-6, atol=1e-8)
        slope = along(lambda control: change(torch.zeros(4, dtype=torch.float64), control), u, torch.ones_like(u), 1e-5)
        assert torch.allclose(slope, B[:, :, 0], rtol=1e-6, atol=1e-8)


def test_every_state_goes_on_with_its_own_model(simulator, networks):
    x, u = random_states(40, 2)
    for dynamics in models(simulator, networks):
        together = dynamics.step(x, u)
        alone = torch.cat([dynamics.step(x[k : k + 1], u[k : k + 1]) for k in range(40)])
        assert torch.allclose(together, alone, rtol=1e-12, atol=1e-14)
        other = x.clone()
        other[:, 4] = 1.0 - x[:, 4]
        assert ((dynamics.step(other, u) - together)[:, :4].abs().amax(-1) > 1e-6).all()


def test_rollouts_of_boxes_are_steps(simulator):
    dynamics = Boxes(simulator, random_boxes(2))
    x, _ = random_states(6, 2)
    stream = generator(1)
    controls = torch.randn(5, 6, 1, generator=stream, dtype=torch.float64)
    gains = 0.3 * torch.randn(5, 6, 1, 4, generator=stream, dtype=torch.float64)
    origin = dynamics.rollout(x, controls)
    assert torch.allclose(origin, Dynamics.rollout(dynamics, x, controls), rtol=1e-12, atol=1e-14)
    start = dynamics.displace(x, torch.full((4,), 0.01, dtype=torch.float64))
    limits = (torch.tensor([-1.0]).double(), torch.tensor([1.0]).double())
    mine = dynamics.track(start, controls, gains, origin, *limits)
    theirs = Dynamics.track(dynamics, start, controls, gains, origin, *limits)
    for a, b in zip(mine, theirs):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-14)


def test_joined_networks_are_as_they_were(networks, steps):
    both = Networks.joined([networks, networks])
    assert both.count == 4
    errors = both.errors(steps)
    assert torch.allclose(errors[:2], errors[2:]) and torch.allclose(errors[:2], networks.errors(steps))


def test_networks_learn_their_own_samples(networks, steps):
    changes = (steps.after - steps.before)[:40].square().mean(0)
    first, second = networks.errors(steps.first(40))
    assert (first < 0.02 * changes).all()
    assert (second > first).all()


def test_a_network_learns_from_one_sample(steps, monkeypatch):
    monkeypatch.setattr(learning, "UPDATES", 20)
    one = Networks.train([steps.first(1)], generator())
    assert torch.isfinite(one.errors(steps)).all()


def test_good_models_balance_and_bad_ones_do_not(simulator, monkeypatch):
    set_cap(monkeypatch, 150)

    class Reversed(Boxes):
        """Believes that it is pushed the other way."""

        def _of(self, model):
            return {**super()._of(model), "gear": (1.0 - 2.0 * (model == 1)).double().unsqueeze(-1)}

    good = torch.tensor([1.0, 0.1, 1.0, 0.01], dtype=torch.float64).repeat(2, 1)
    dynamics = Reversed(simulator, good)
    ticks = []
    rewards = balance.balance(dynamics, [0, 1, 0, 1], [7, 7, 8, 8], lambda *told: ticks.append(told))
    assert rewards[0] == rewards[2] == 150
    assert rewards[1] < 40 and rewards[3] < 40
    assert ticks[0] == (0, 150) and len(ticks) == 150
    assert balance.balance(dynamics, [1], [8]) == rewards[3:]  # whoever else plays


# ---------------------------------------------------------------------------------------------- the experiment


@pytest.mark.slow
def test_the_experiment(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "QUICK", experiment.CartPoleSettings((5, 20), 2, 1, 40))
    set_cap(monkeypatch, 60)
    monkeypatch.setattr(learning, "UPDATES", 30)
    run = quick_run("cartpole", tmp_path)
    found = run.results
    assert run.names == {"curves.png", "learned.png", "results.json"}
    assert list(found["boxes"]) == ["0", "5", "20"] and list(found["network"]) == ["5", "20"]
    for samples in ("5", "20"):
        row = found["boxes"][samples]
        assert row["reward"] == [60.0, 60.0] and row["good_seeds"] == 0  # of 60, not of 1000
        assert all(error < 1e-5 for error in row["one_step_mse"])
        assert all(error < 1e-6 for error in row["one_step_mse_of_velocities"])
    assert min(found["boxes"]["0"]["one_step_mse"]) > 1e-4
    learned = found["learned"]
    assert learned["samples"] == 20
    assert learned["deviations"] == [[None] * 4] * 2  # infinite
    for values in learned["told"]["values"]:
        assert values == pytest.approx([1.1, 0.05, 1 / 30], rel=0.01)
    for values in learned["width_known"]["values"]:
        assert values == pytest.approx([1.0, 0.1, 1.0], rel=0.01)
    assert sum("; one-step error" in line for line in run.lines) == 5


def test_without_gymnasium_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ImportError, match=r"backdrive\[envs\]"):
        experiments.find("cartpole").run(Run(tmp_path, quick=True))
