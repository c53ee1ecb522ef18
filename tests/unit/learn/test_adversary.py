"""The experiment `adversary`: bounds, the adversary's gradient and its ascent, falls, tests, and options."""

import json
import math
from dataclasses import asdict

import matplotlib
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from quick_runs import quick_run

from backdrive import experiments
from backdrive.differences import along, least_error
from backdrive.experiments import Run, WrongOption
from backdrive.experiments.adversary import mujoco, trials
from backdrive.experiments.adversary.attack import attack, walking
from backdrive.experiments.adversary.disturbances import Disturbance, DisturbanceBounds, calm, chosen
from backdrive.experiments.adversary.learning import GaitNetworks, Learner, Robots, losses, short_window
from backdrive.experiments.adversary.world import HOLD, DisturbedWorld
from backdrive.model import State

matplotlib.use("Agg")
BOUNDS, DECIDE = DisturbanceBounds(), 0.02
NBODY = 13


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def exact() -> DisturbedWorld:
    return DisturbedWorld(torch.float64)


@pytest.fixture(scope="module")
def world() -> DisturbedWorld:
    return DisturbedWorld()


def in_float64(world: DisturbedWorld) -> GaitNetworks:
    networks = GaitNetworks(world, generator(1))
    for part in (networks.critic, networks.target, networks.normaliser):
        part.double()
    return networks


def drawn(decisions: int, batch: int, seed: int = 0, bounds: DisturbanceBounds = BOUNDS) -> Disturbance:
    return bounds.random(decisions, batch, NBODY, DECIDE, generator(seed))


def standing(world: DisturbedWorld, count: int) -> Robots:
    clock = torch.zeros(count, dtype=world.simulator.dtype)
    return Robots(world.start(count), clock, torch.ones(count, dtype=torch.bool))


def assert_within(bounds: DisturbanceBounds, found: Disturbance, seconds: float = DECIDE) -> None:
    size = found.forces.norm(dim=-1)
    assert size.max() <= bounds.force * (1.0 + 1e-9)
    assert (seconds * size.sum(0)).max() <= bounds.impulse * (1.0 + 1e-9)
    for x, (low, high) in ((found.friction, bounds.friction), (found.masses, bounds.masses)):
        assert low <= x.min() and x.max() <= high


# ---------------------------------------------------------------------------------------------- bounds


@given(st.integers(0, 10_000), st.integers(1, 30), st.floats(1.0, 500.0), st.floats(0.1, 50.0), st.floats(0.0, 1e4))
@settings(max_examples=60, deadline=None)
def test_what_is_drawn_projected_or_ascended_is_within_the_bounds(seed, decisions, force, impulse, scale):
    bounds = DisturbanceBounds(force=force, impulse=impulse)
    found = drawn(decisions, 5, seed, bounds)
    assert_within(bounds, found)
    random = generator(seed + 1)
    slope = Disturbance(*(scale * torch.randn(x.shape, generator=random, dtype=torch.float64) for x in found))
    assert_within(bounds, bounds.ascend(found, slope, DECIDE, 2.0))
    assert_within(bounds, bounds.project(Disturbance(*(x + y for x, y in zip(found, slope))), DECIDE))


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_the_projection_is_the_nearest_profile_within_the_bounds(seed):
    """No profile within the bounds is nearer: (x - P x) · (y - P x) <= 0 for all of them."""
    x = Disturbance(
        300.0 * torch.randn(12, 4, 2, generator=generator(seed), dtype=torch.float64), torch.full((4,), 0.5),
        torch.ones(4, NBODY),
    )  # fmt: skip
    nearest = BOUNDS.project(x, DECIDE).forces
    for k in range(5):
        other = drawn(12, 4, seed + k).forces
        assert ((x.forces - nearest) * (other - nearest)).sum((0, 2)).max() <= 1e-6


def test_what_is_within_the_bounds_is_its_own_projection():
    found = drawn(24, 50)
    for x, y in zip(found, BOUNDS.project(found, DECIDE), strict=True):
        assert torch.allclose(x, y, rtol=1e-9, atol=1e-9)


def test_extremes_are_at_the_bounds():
    found = BOUNDS.random(24, 200, NBODY, DECIDE, generator(), extreme=True)
    assert_within(BOUNDS, found)
    assert torch.allclose(DECIDE * found.forces.norm(dim=-1).sum(0), torch.tensor(BOUNDS.impulse, dtype=torch.float64))
    for x, ends in ((found.friction, BOUNDS.friction), (found.masses, BOUNDS.masses)):
        assert sorted(x.unique().tolist()) == list(ends)


def test_random_pushes_fill_their_bounds():
    found = drawn(24, 2000)
    impulse = DECIDE * found.forces.norm(dim=-1).sum(0)
    assert impulse.max() > 0.98 * BOUNDS.impulse and abs(impulse.mean() / BOUNDS.impulse - 0.5) < 0.03
    directions = found.forces.sum(0) / impulse[:, None]
    assert directions.mean(0).norm() * DECIDE < 0.06
    assert found.friction.min() < 0.32 and found.friction.max() > 0.98


@pytest.mark.parametrize(
    "wrong", [{"force": 0.0}, {"impulse": -1.0}, {"friction": (0.5, 0.3)}, {"masses": (0.0, 1.0)}, {"force": math.nan}]
)  # fmt: skip
def test_bounds_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong)) + "|low|high|must"):
        DisturbanceBounds(**wrong)


def test_disturbances_reach_the_trunk_the_floor_and_all_masses(exact):
    found = drawn(3, 2)
    wrenches = found.wrenches(HOLD)
    assert wrenches.shape == (3 * HOLD, 2, NBODY, 6)
    assert torch.equal(wrenches[::HOLD, :, 0, :2], found.forces) and wrenches[:, :, 1:].abs().max() == 0.0
    parameters = found.parameters(exact.model)
    assert torch.equal(parameters["friction"].amax(-1), found.friction)
    assert torch.equal(parameters["mass"], exact.model.parameter("mass") * found.masses)


def test_without_disturbance_the_motion_is_that_of_the_robot_as_it_is(exact):
    networks = in_float64(exact)
    robots, count = standing(exact, 2), 10
    path = exact.go(networks.policy, robots.state, robots.clock, exact.calm(count, 2))
    plain = exact.simulator.rollout(
        robots.state, policy=networks.policy, inputs=exact.phases(robots.clock, count), steps=HOLD * count
    )  # fmt: skip
    assert torch.allclose(path.q, plain.q, atol=1e-12)


# ---------------------------------------------------------------------------------------------- the gradient


@pytest.mark.parametrize("name", Disturbance._fields)
def test_the_adversarys_gradient_agrees_with_differences(exact, name):
    networks, robots = in_float64(exact), standing(exact, 4)
    with torch.no_grad():  # On the way, with feet that stand and slip.
        path = exact.go(networks.policy, robots.state, robots.clock, drawn(15, 4, 3))
    robots = robots._replace(state=path.last, clock=robots.clock + 15 * DECIDE)
    at = drawn(8, 4, 4)

    def loss(x: torch.Tensor) -> torch.Tensor:
        window, _ = short_window(exact, networks.policy, robots, at._replace(**{name: x}), clip=None)
        return losses(window, networks).sum()

    x = getattr(at, name).clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(x), x)
    assert slope.abs().sum() > 0.0
    direction = torch.randn(x.shape, generator=generator(5), dtype=torch.float64)
    direction /= direction.norm()
    found = float((slope * direction).sum())
    error = least_error(
        found, lambda step: float(along(loss, x.detach(), direction, step, 4)), (1e-4, 1e-5, 1e-6), enough=1e-6
    )  # fmt: skip
    assert error < 1e-5, (found, error)


def test_the_ascent_finds_the_worst_of_a_linear_loss():
    """The loss is the impulse along a direction in one decision, less friction, more mass of one body."""
    at = calm(10, 1, type("Model", (), {"nbody": NBODY}), 0.8, torch.float64)
    forces = torch.zeros(10, 1, 2, dtype=torch.float64)
    forces[4, 0] = torch.tensor([0.6, 0.8])
    masses = torch.zeros(1, NBODY, dtype=torch.float64)
    masses[0, 0] = 1.0
    slope = Disturbance(forces, -torch.ones(1, dtype=torch.float64), masses)
    bounds = DisturbanceBounds(force=200.0, impulse=3.0)
    for _ in range(5):
        at = bounds.ascend(at, slope, DECIDE, 0.5)
    assert torch.allclose(at.forces[4, 0], torch.tensor([90.0, 120.0], dtype=torch.float64))  # 3 N s in 20 ms.
    assert at.forces.norm(dim=-1).sum() == pytest.approx(150.0)
    assert float(at.friction) == bounds.friction[0] and float(at.masses[0, 0]) == bounds.masses[1]
    assert torch.equal(at.masses[0, 1:], torch.ones(NBODY - 1, dtype=torch.float64))


def test_the_ascent_makes_a_push_worse(exact):
    """For robots that stand: their mean loss rises with the adversary's steps."""
    networks = in_float64(exact)
    start = drawn(8, 16, 6)
    end, loss, _ = attack(exact, networks, standing(exact, 16), start, BOUNDS, 4)
    assert_within(BOUNDS, end)
    assert loss[-1].mean() > loss[0].mean() + 0.1
    assert (loss[-1] > loss[0]).double().mean() >= 0.75


def test_gradients_that_are_not_finite_move_nothing():
    at = drawn(5, 2)
    lost = Disturbance(*(torch.full_like(x, math.nan) for x in at))
    for x, y in zip(at, BOUNDS.ascend(at, lost, DECIDE, 0.5), strict=True):
        assert torch.allclose(x, y)


# ---------------------------------------------------------------------------------------------- learning


def test_robots_that_are_not_disturbed_stay_so(world):
    learner = Learner(world, GaitNetworks(world, generator(1)), "adversary", BOUNDS, 3, generator(2))
    left = ~learner.robots.disturbed
    assert 0 < int(left.sum()) < len(left)
    before = learner._drawn()
    slope = Disturbance(*(torch.ones_like(x) for x in before))
    found = learner.worse(before, slope)
    assert found.forces[:, left].abs().max() == 0.0
    assert torch.equal(found.masses[left], torch.ones_like(found.masses[left]))
    assert (found.masses[~left] > before.masses[~left]).any()


def test_each_method_draws_what_it_says(world):
    for against in ("nothing", "random", "extreme"):
        learner = Learner(world, GaitNetworks(world, generator(1)), against, BOUNDS, 3, generator(2))
        drawn, pushed = learner._drawn(), learner.pushed
        disturbed = learner.robots.disturbed
        impulse = world.decide * drawn.forces.norm(dim=-1).sum(0)[pushed]
        assert int(disturbed.sum()) == {"nothing": 0}.get(against, 96)
        if against == "nothing":
            assert drawn.forces.abs().max() == 0.0 and (drawn.masses == 1.0).all() and (drawn.friction == 0.8).all()
        else:
            assert 20 < int(pushed.sum()) < 76
            at_bounds = impulse > BOUNDS.impulse * (1.0 - 1e-5)
            assert at_bounds.all() if against == "extreme" else at_bounds.sum() < 5


@pytest.mark.parametrize("against", ["nothing", "random", "replayed", "extreme", "adversary"])
def test_learning_is_repeatable_and_uses_all_evaluations(world, against):
    found = []
    for _ in range(2):
        networks = GaitNetworks(world, generator(1))
        before = networks.policy.linear[0].weight.detach().clone()
        curve = Learner(world, networks, against, BOUNDS, 4, generator(2)).learn(lambda done: None, 2)
        assert curve.evaluations == [2, 4]
        assert not torch.equal(networks.policy.linear[0].weight, before)
        found.append((curve, networks.policy.linear[0].weight.detach()))
    assert found[0][0] == found[1][0] and torch.equal(found[0][1], found[1][1])


def test_networks_are_kept_and_taken_back(world):
    first, second = GaitNetworks(world, generator(1)), GaitNetworks(world, generator(2))
    second.load_state_dict(first.state_dict())
    x = torch.randn(5, world.observations, generator=generator(3))
    assert torch.equal(first.policy(x), second.policy(x)) and torch.equal(first.critic(x), second.critic(x))


# ---------------------------------------------------------------------------------------------- trials


def test_falls_are_tilts_and_corners_on_the_floor(world):
    q, v = world.start(4)
    q[1, 2] = 0.05  # The trunk's lower side is at 0.055 m below its center.
    turned = math.radians(61.0)
    q[2, 3:7] = torch.tensor([math.cos(turned / 2), math.sin(turned / 2), 0.0, 0.0])
    q[2, 2] = 1.0
    q[3, 2] = 0.06
    assert world.fallen(State(q, v)).tolist() == [False, True, True, False]
    pitched = world.start(1)
    pitched.q[0, 3:7] = torch.tensor([math.cos(0.2), 0.0, math.sin(0.2), 0.0])
    lowest = 0.22 * math.sin(0.4) + 0.055 * math.cos(0.4)
    for height, down in ((lowest - 0.001, True), (lowest + 0.001, False)):
        pitched.q[0, 2] = height
        assert world.fallen(pitched).tolist() == [down]


def test_trials_have_three_pushes_of_their_impulse(world):
    small, large = (trials.trials(world, impulse, 40) for impulse in (5.0, 20.0))
    assert torch.allclose(large.forces, 4.0 * small.forces, rtol=1e-5)
    total = world.decide * small.forces.double().norm(dim=-1).sum(0)
    assert total.max() <= 15.0 * (1 + 1e-5) and total.median() > 14.0  # Overlapping pushes cancel in part.
    assert small.friction.min() < BOUNDS.friction[0] and small.masses.max() > BOUNDS.masses[1]
    assert torch.equal(small.friction, large.friction)


def test_survival_needs_no_fall_and_a_third_of_the_speed():
    fell, speed = torch.tensor([False, False, True, False]), torch.tensor([1.0, 0.49, 1.4, math.nan])
    assert trials.survival(fell, speed).tolist() == [True, False, False, False]


def test_scores_do_not_depend_on_chunks(world, monkeypatch):
    networks = GaitNetworks(world, generator(1))
    some = trials.part(trials.trials(world, 10.0, 8), slice(6))
    together = trials.outcomes(world, networks.policy, some)
    monkeypatch.setattr(trials, "CHUNK", 4)
    for x, y in zip(together, trials.outcomes(world, networks.policy, some), strict=True):
        assert torch.equal(x, y)


def test_a_push_moves_the_robot_as_in_mujoco(exact, monkeypatch):
    """With the masses as they are: see `mujoco.outcomes`."""
    monkeypatch.setattr(exact, "seconds", 1.0)
    start = exact.start(3)
    start.q[:, 2] -= 1e-3  # Feet that touch the floor in a point do so within rounding only.
    monkeypatch.setattr(exact, "start", lambda count=None: State(*(x[0] if count is None else x for x in start)))
    networks = in_float64(exact)
    some = drawn(6, 3, 8, DisturbanceBounds(impulse=4.0))._replace(masses=torch.ones(3, NBODY, dtype=torch.float64))
    path = exact.go(networks.policy, exact.start(3), torch.zeros(3, dtype=torch.float64), some)
    _, distance = mujoco.outcomes(exact, networks.policy, some)
    assert torch.allclose(path.last.q[:, 0].detach(), distance, rtol=0.0, atol=1e-8)
    assert distance.abs().max() > 1e-3


# ---------------------------------------------------------------------------------------------- the experiment


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "advers"}, "adversary"),
        ({"evaluations": "-3"}, "--evaluations must be a number > 0"),
        ({"seeds": "3"}, "option of adversary"),
    ],
)
def test_bad_options_are_refused(tmp_path, options, words):
    with pytest.raises(WrongOption, match=words):
        experiments.find("adversary").run(Run(tmp_path, quick=True, options=options))


@pytest.mark.slow
def test_the_quick_experiment(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    found = quick_run("adversary", tmp_path)
    methods = [row["method"] for row in found.results["table"]]
    assert methods == ["before", "nothing", "random", "replayed", "extreme", "adversary"]
    for row in found.results["table"]:
        assert all(0.0 <= share <= 1.0 for share in row["survived_mean"])
    assert {"survival.png", "choices.png"} <= found.names
    kept = json.loads((tmp_path / "adversary-24-seed0.json").read_text("utf-8"))
    assert kept["bounds"] == json.loads(json.dumps(asdict(BOUNDS)))
    assert kept["attack"]["loss"][-1] > kept["attack"]["loss"][0]
    lines: list[str] = []
    again = Run(tmp_path, quick=True, options={"method": "before"}, log=lines.append)
    experiments.find("adversary").run(again)
    assert any("finished already" in line for line in lines)


def test_walking_robots_are_on_their_way(world):
    robots = walking(world, GaitNetworks(world, generator(1)), 5, generator(2))
    assert robots.state.q.shape == (5, world.model.nq) and (robots.clock >= 1.0).all() and (robots.clock < 8.0).all()


def test_the_first_of_two_disturbances_is_chosen_where_it_is_said():
    first, second = drawn(3, 4, 1), drawn(3, 4, 2)
    where = torch.tensor([True, False, False, True])
    found = chosen(where, first, second)
    assert torch.equal(found.forces[:, where], first.forces[:, where])
    assert torch.equal(found.masses[~where], second.masses[~where])
    assert torch.equal(found.friction[~where], second.friction[~where])
