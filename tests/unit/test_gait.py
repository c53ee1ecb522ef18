"""The quadruped of the experiment `gait`: its measures as parameters, its gradient, its learning, pushes, MuJoCo."""

import matplotlib
import pytest
import torch
from quick_runs import quick_run

from backdrive import experiments
from backdrive.experiments import Run, WrongOption
from backdrive.experiments.gait.checks import gradient_error, in_mujoco, pushes_survived
from backdrive.experiments.gait.controller import REACH, PeriodicNetwork, Trot
from backdrive.experiments.gait.learning import SpeedCurve, learn
from backdrive.experiments.gait.searches import BUDGET, speeds, tune
from backdrive.experiments.gait.world import (
    Design,
    GaitWorld,
    energy_per_metre,
    fallen,
    lowest_corner,
    parameters,
    quadruped,
    speed,
    standing_height,
    torques,
)  # fmt: skip

matplotlib.use("Agg")

OTHER = Design(
    trunk_length=0.5, trunk_width=0.2, trunk_height=0.13, trunk_mass=7.0, abduction_length=0.08, thigh_length=0.24,
    shank_length=0.19, foot_radius=0.03, thigh_mass=1.0, shank_mass=0.2, foot_mass=0.1, gear=1.3, rotor=0.02,
    hip_spring=3.0, knee_spring=20.0,
)  # fmt: skip


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_measures_as_parameters_are_those_of_the_robot_built_with_them():
    world, built = GaitWorld(seconds=0.1), quadruped(OTHER)
    for name, values in parameters(world, OTHER).items():
        assert torch.allclose(values, built.parameter(name), atol=1e-12), name


def test_a_motion_with_a_design_as_parameters_is_that_of_the_robot_built_with_it():
    """In the air, where the softness of contacts, which MuJoCo's compiler sets, has no part."""
    world, built = GaitWorld(seconds=0.1), GaitWorld(OTHER, seconds=0.1)
    targets, start = PeriodicNetwork(generator()).targets(world.times()), built.start()
    start.q[2] += 1.0
    path = world.move(targets, start, parameters=parameters(world, OTHER))
    assert torch.allclose(path.q, built.move(targets, start).q, atol=1e-9)


def test_the_gradient_with_respect_to_a_length_agrees_with_differences():
    world = GaitWorld(seconds=0.1)
    targets = PeriodicNetwork(generator()).targets(world.times()).detach()

    def distance(length: torch.Tensor) -> torch.Tensor:
        design = Design(thigh_length=length)
        start = world.start(design=design)
        return speed(world.move(targets, start, parameters=parameters(world, design)), world.seconds)

    length, eps = torch.tensor(0.21, dtype=torch.float64, requires_grad=True), 1e-6
    (found,) = torch.autograd.grad(distance(length), length)
    with torch.no_grad():
        expected = (distance(length + eps) - distance(length - eps)) / (2.0 * eps)
    assert torch.isclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("physics", ["mujoco", "rigid"])
def test_the_gradient_agrees_with_differences(physics):
    world = GaitWorld(physics=physics, seconds=0.2)
    assert gradient_error(world, PeriodicNetwork(generator(1))) < 1e-6


def test_the_robot_stands_and_its_torques_stay_within_the_limits():
    world = GaitWorld(seconds=2.0)
    still = world.stance.expand(world.steps, -1)
    path = world.move(still)
    assert not fallen(world, path.q)[-1] and abs(float(path.last.q[2]) - standing_height(world.design)) < 0.02
    assert (path.q[-1, :7] - path.q[-50, :7]).abs().max() < 1e-3  # It has settled: its servos are soft.
    wild = world.stance + 3.0 * torch.randn(world.steps, 12, generator=generator(), dtype=torch.float64)
    most = torch.tensor(world.design.torques * 4, dtype=torch.float64)
    applied = torques(world, path.q[:-1], path.v[:-1], wild)
    assert (applied.abs() <= most + 1e-12).all() and (applied.abs() >= most - 1e-12).any()


def test_a_trunk_on_the_floor_is_a_fall_and_stays_one():
    world = GaitWorld(seconds=1.0)
    q = world.start().q.repeat(3, 1)
    level = float(q[0, 2]) - 0.5 * world.design.trunk_height
    assert float(lowest_corner(world, q[0])) == pytest.approx(level, abs=1e-3)
    q[1, 2] = 0.05
    assert fallen(world, q).tolist() == [False, True, True]
    q[2, 3:7] = torch.tensor([2.0, 2.0, 0.0, 0.0], dtype=torch.float64).sqrt() / 2.0  # On its side.
    assert float(lowest_corner(world, q[2])) == pytest.approx(float(q[2, 2]) - 0.08, abs=1e-3)


def test_diagonal_legs_of_a_trot_move_together():
    times = torch.linspace(0.0, 1.0, 33, dtype=torch.float64)
    front_left, front_right, rear_left, rear_right = Trot(2.0, 0.3, 0.1, 0.4, 0.0, 0.7).targets(times).split(3, -1)
    assert torch.equal(front_left, rear_right) and torch.equal(front_right, rear_left)
    assert torch.allclose(front_left[8:16], front_right[:8])  # Half a stride later.


def test_targets_of_a_network_are_periodic_and_within_reach():
    network = PeriodicNetwork(generator(), frequency=4.0)
    with torch.no_grad():
        network.last.weight.mul_(100.0)
        targets = network.targets(torch.linspace(0.0, 0.5, 101, dtype=torch.float64))
    assert torch.allclose(targets[:50], targets[50:100])
    deviation = (targets - network.stance).abs()
    assert (deviation <= torch.tensor(REACH * 4, dtype=torch.float64) + 1e-12).all()


def test_mujoco_itself_moves_the_robot_alike():
    world = GaitWorld(seconds=0.4)
    targets = PeriodicNetwork(generator()).targets(world.times()).detach()
    there, fell = in_mujoco(world, targets)
    assert not fell and there == pytest.approx(float(speed(world.move(targets), world.seconds)), abs=1e-4)


def test_pushes_make_some_robots_fall_and_energy_is_positive(monkeypatch):
    from backdrive.experiments.gait import checks

    world = GaitWorld(seconds=1.5)
    still = world.stance.expand(world.steps, -1)
    monkeypatch.setattr(checks, "PUSH_FORCE", (1.0, 2.0))
    assert pushes_survived(world, still, generator()) == 1.0
    monkeypatch.setattr(checks, "PUSH_FORCE", (2000.0, 2000.0))
    assert pushes_survived(world, still, generator()) < 0.2
    targets = Trot(2.0, 0.3, 0.0, 0.3, 0.0, 1.0).targets(world.times())
    path = world.move(targets)
    assert energy_per_metre(world, path, targets) * float(speed(path, 1.5)) > 0.0


def test_the_best_speed_counts_no_falls():
    assert SpeedCurve([1.0, 3.0, 2.0], [False, True, False], []).best() == [1.0, 1.0, 2.0]


def test_learning_is_repeatable_and_ends_with_its_fastest_motion():
    world, results = GaitWorld(seconds=1.0), []
    for _ in range(2):
        network = PeriodicNetwork(generator(3))
        curve = learn(world, network, 15, lambda done: None)
        results.append(curve.best())
    assert results[0] == results[1] and len(results[0]) == 15
    assert results[0][-1] > max(results[0][0], 0.0) + 0.05
    with torch.no_grad():
        reached = float(speed(world.move(network.targets(world.times())), world.seconds))
    assert reached == pytest.approx(results[0][-1], abs=1e-9)


def test_the_search_of_a_trot_keeps_its_best():
    pytest.importorskip("cma")
    world = GaitWorld(seconds=1.0)
    numbers, curve = tune(world, "hand", 0, 48, lambda done: None)
    reached, fell = speeds(world, numbers[None])
    assert len(curve) == 48 < BUDGET and curve == sorted(curve)
    assert curve[-1] == pytest.approx(float(reached[0]) - 0.5 * fell[0], abs=1e-9)


def test_wrong_options_are_refused(tmp_path):
    for options, words in (({"method": "trott"}, "trot"), ({"physics": "soft"}, "physics")):
        with pytest.raises(WrongOption, match=words):
            experiments.find("gait").run(Run(tmp_path, quick=True, options=options))


@pytest.mark.slow
def test_the_experiment(tmp_path):
    pytest.importorskip("cma")
    done = quick_run("gait", tmp_path)
    assert {"curves.png", "pictures-network-mujoco.png", "network-mujoco.mp4"} <= done.names
    assert done.results["gradient_against_differences_mujoco"] < 1e-6
    assert [part["method"] for part in done.results["parts"]] == ["trot", "trot-wide", "network"]
    again = quick_run("gait", tmp_path)
    assert sum("is finished already" in line for line in again.lines) == 3
