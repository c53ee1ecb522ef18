"""The experiment `co-design`: measures and what follows from them, gradients, falls, learning, and MuJoCo."""

import json
import math

import matplotlib
import mujoco
import numpy as np
import pytest
import torch
from quick_runs import quick_run

from backdrive import experiments
from backdrive.experiments import Run, WrongOption
from backdrive.experiments.co_design import experiment
from backdrive.experiments.co_design.checks import TROT, gradient_errors
from backdrive.experiments.co_design.controller import SymmetricNetwork
from backdrive.experiments.co_design.hardware import FRICTION, MEASURES, TORQUE_LOSS, design, measures, nominal
from backdrive.experiments.co_design.learning import Curve, learn
from backdrive.experiments.co_design.motion import clearance, fallen, losses, move, standing, start_world
from backdrive.experiments.co_design.parts import finished, first_robot, learned_robot, table
from backdrive.experiments.co_design.searches import POPULATION, search
from backdrive.experiments.co_design.transfer import in_mujoco, set_back
from backdrive.experiments.gait.world import GaitWorld, mjcf, parameters

matplotlib.use("Agg")

SOME = torch.linspace(-1.0, 1.0, len(MEASURES), dtype=torch.float64)


@pytest.fixture(scope="module")
def world() -> GaitWorld:
    return start_world(seconds=0.2)


def test_measures_are_nominal_at_zero_and_keep_their_bounds():
    before = torch.tensor([m.nominal for m in MEASURES.values()], dtype=torch.float64)
    assert torch.allclose(measures(torch.zeros(9, dtype=torch.float64)), before, rtol=1e-14)
    for x, bound in ((-30.0, "low"), (30.0, "high")):
        expected = torch.tensor([getattr(m, bound) for m in MEASURES.values()], dtype=torch.float64)
        assert torch.allclose(measures(torch.full((2, 9), x, dtype=torch.float64)), expected, atol=1e-9)
    for name, measure in MEASURES.items():
        assert getattr(nominal(), name) == pytest.approx(measure.nominal, rel=1e-14)
        if not name.endswith("spring"):
            assert (measure.low, measure.high) == pytest.approx((0.7 * measure.nominal, 1.3 * measure.nominal))


def test_masses_and_the_loss_of_torque_follow():
    first, small, large = nominal(), design(measures(-SOME)), design(measures(SOME))
    for d in (small, large):
        assert d.thigh_mass / d.thigh_length == pytest.approx(first.thigh_mass / first.thigh_length)
        assert d.shank_mass / d.shank_length == pytest.approx(first.shank_mass / first.shank_length)
        assert d.foot_mass / d.foot_radius**3 == pytest.approx(first.foot_mass / first.foot_radius**3)
        shell = (d.trunk_mass - 4.0) / (d.trunk_length * d.trunk_width)
        assert shell == pytest.approx(2.0 / (first.trunk_length * first.trunk_width))
        assert d.damping == pytest.approx(FRICTION + TORQUE_LOSS * d.gear**2)
        assert (d.torques, d.rotor, d.kp, d.kv) == (first.torques, first.rotor, first.kp, first.kv)


def test_joints_have_the_torque_and_the_loss_of_geared_motors():
    """In the compiled file: limit, armature and damping of a joint, for a learned gear."""
    d = design(measures(SOME))
    model, gear = mujoco.MjModel.from_xml_string(mjcf(d)), float(d.gear)
    assert gear != 1.0
    assert np.allclose(model.actuator_gear[:, 0], gear) and np.allclose(model.actuator_forcerange[1], [-20.0, 20.0])
    assert np.allclose(model.dof_armature[6:], 0.01 * gear**2)
    assert np.allclose(model.dof_damping[6:], FRICTION + TORQUE_LOSS * gear**2)


@pytest.mark.parametrize("physics", ["mujoco", "rigid"])
def test_parameters_are_those_of_the_robots_own_file(physics):
    """Robots of different measures, simulated at once, move as each of them does in a world built of its design."""
    world = start_world(physics, 0.2)
    values = measures(torch.stack([SOME, -SOME, 0.0 * SOME]))
    targets = TROT.targets(world.times())
    together = move(world, targets.expand(-1, 3, -1), values)
    for k, row in enumerate(values):
        own = GaitWorld(design(row), physics=physics, seconds=0.2)
        alone = own.move(targets[:, 0], standing(own, design(row)))
        assert torch.allclose(together.path.q[:, k], alone.q, atol=1e-9)


@pytest.mark.parametrize("physics", ["mujoco", "rigid"])
def test_the_gradient_of_every_measure_agrees_with_differences(physics):
    errors = gradient_errors(physics)
    assert list(errors) == list(MEASURES)
    assert max(errors.values()) < 1e-6, errors


def test_the_gradient_of_masses_and_of_all_that_follows_reaches_the_measures():
    world = start_world(seconds=0.004)
    x = SOME.clone().requires_grad_()
    for name, value in parameters(world, design(measures(x))).items():
        (gradient,) = torch.autograd.grad(value.sum(), x, retain_graph=True, allow_unused=True)
        assert gradient is not None, name


def test_right_legs_do_what_left_legs_do_half_a_period_later():
    network = SymmetricNetwork(torch.Generator().manual_seed(3))
    assert float(network.frequency) == pytest.approx(4.0)
    times = torch.linspace(0.0, 0.25, 26, dtype=torch.float64)
    with torch.no_grad():
        network.last.bias.uniform_(-1.0, 1.0, generator=torch.Generator().manual_seed(4))
        now, later = (network.targets(times + t).view(26, 4, 3) for t in (0.0, 0.125))
    assert now.std(0).min() > 1e-3
    for left, right in ((0, 1), (2, 3)):  # FL, FR, RL, RR
        assert torch.allclose(now[:, right, 1:], later[:, left, 1:], atol=1e-12)
        assert torch.allclose(now[:, right, 0], -later[:, left, 0], atol=1e-12)
        assert torch.allclose(now[:, left, 1:], later[:, right, 1:], atol=1e-12)


def test_falls_are_seen_and_stay():
    values = measures(torch.zeros(1, 9, dtype=torch.float64))
    q = torch.zeros(5, 1, 19, dtype=torch.float64)
    q[..., 2], q[..., 3] = 0.3, 1.0
    height = nominal().trunk_height
    assert torch.allclose(clearance(q, values), torch.tensor(0.3 - height / 2, dtype=torch.float64), atol=5e-4)
    assert not fallen(q, values).any()
    low, tilted, pitched = q.clone(), q.clone(), q.clone()
    low[2, 0, 2] = height / 2 + 0.005
    tilted[2, 0, 2], tilted[2, 0, 3:5] = 3.0, torch.tensor([math.cos(0.53), math.sin(0.53)])  # 61 degrees
    pitched[2, 0, 3], pitched[2, 0, 5], pitched[2, 0, 2] = math.cos(0.4), math.sin(0.4), 0.19
    for one in (low, tilted, pitched):
        assert fallen(one, values)[:, 0].tolist() == [False, False, True, True, True]
    pitched[2, 0, 2] = 0.22  # A corner is 0.5 (0.44 sin 0.8 + 0.11 cos 0.8) = 0.196 m below the center.
    assert not fallen(pitched, values).any()


def test_the_loss_is_that_of_posture_and_speed(world):
    """Standing robots: the distance of their velocity from the target alone, which is smoothed below 0.1 m/s."""
    values = measures(torch.zeros(2, 9, dtype=torch.float64))
    still = move(world, world.stance.expand(world.steps, 2, -1), values)
    targets = torch.tensor([0.0, 3.0], dtype=torch.float64)
    expected = (targets.square() + 0.01).sqrt().tolist()
    assert losses(still, targets, world.simulator.dt).tolist() == pytest.approx(expected, rel=0.02)


def test_learning_is_repeatable_and_leaves_hardware_alone_if_asked(world):
    def learned(hardware: str) -> list[Curve]:
        robots = [first_robot(seed, hardware) for seed in (0, 1)]
        return learn(world, robots, 3, lambda done: None).curves

    for method in ("controller", "co-design"):
        first, second = learned(method), learned(method)
        assert [x.speeds for x in first] == [x.speeds for x in second]
        assert all(len(x.speeds) == 3 and len(set(x.speeds)) > 1 for x in first)
        for curve in first:
            changed = bool((curve.best_state["hardware"] != 0.0).any())
            assert changed == (method == "co-design" and curve.best_at > 1)


def test_seeds_that_learn_at_once_do_not_know_of_each_other(world):
    alone = learn(world, [first_robot(1, "co-design")], 3, lambda done: None).curves[0]
    both = learn(world, [first_robot(seed, "co-design") for seed in (0, 1)], 3, lambda done: None).curves[1]
    assert alone.speeds == both.speeds


def test_cma_searches_measures_and_weights(world):
    pytest.importorskip("cma")
    runs = [
        search(world, [first_robot(seed, "cma") for seed in (0, 1)], (0, 1), 2 * POPULATION, lambda done: None).curves
        for _ in range(2)
    ]
    assert [x.speeds for x in runs[0]] == [x.speeds for x in runs[1]]
    for curve in runs[0]:
        assert len(curve.speeds) == 2 * POPULATION and curve.best > 0.0
        assert (curve.best_state["hardware"] != 0.0).all()
    assert runs[0][0].speeds != runs[0][1].speeds


def test_mujoco_moves_the_learned_robot_in_the_same_way(world):
    robot = first_robot(0, "co-design")
    with torch.no_grad():
        robot.hardware.copy_(SOME)
        robot.network.last.bias.add_(0.2)
    found = in_mujoco(world, robot)
    assert found["seconds_within_1_mm"] == pytest.approx(0.2) and not found["falls"]
    assert found["speed_m_s"] == pytest.approx(found["speed_here_m_s"], abs=1e-6) and found["speed_m_s"] != 0.0


def test_measures_are_set_back_one_by_one(world):
    robot = first_robot(0, "co-design")
    with torch.no_grad():
        robot.hardware[list(MEASURES).index("gear")] = 1.0
    found = set_back(world, robot)
    assert list(found) == [*MEASURES, "all"]
    kept = {found[name]["speed_m_s"] for name in MEASURES if name != "gear"}
    assert max(kept) - min(kept) < 1e-9  # These are nominal already.
    assert found["gear"]["speed_m_s"] == pytest.approx(found["all"]["speed_m_s"], abs=1e-9)
    assert abs(found["gear"]["speed_m_s"] - min(kept)) > 1e-6


def test_wrong_options_are_refused(tmp_path):
    for options, words in (
        ({"method": "codesign"}, "co-design"), ({"evaluations": "30"}, "multiple of 20"), ({"evaluations": "-1"}, "> 0")
    ):  # fmt: skip
        with pytest.raises(WrongOption, match=words):
            experiments.find("co-design").run(Run(tmp_path, quick=True, options=options))


@pytest.mark.slow
def test_the_experiment(tmp_path, monkeypatch):
    pytest.importorskip("cma")
    monkeypatch.setattr(experiment, "QUICK_EVALUATIONS", POPULATION)
    done = quick_run("co-design", tmp_path)
    assert {"curves.png", "measures.png", "robots.png"} <= done.names
    for errors in done.results["gradient_of_measures_against_differences"].values():
        assert max(errors.values()) < 1e-6
    rows = done.results["table"]
    assert [row["method"] for row in rows] == ["controller", "co-design", "cma"]
    assert [row["unknowns"] for row in rows] == [493, 502, 502]
    assert table(finished(tmp_path)) == json.loads(json.dumps(rows))
    before = {name: m.nominal for name, m in MEASURES.items()}
    for results in finished(tmp_path):
        for training in results["trainings"]:
            robot = learned_robot(results["method"], training)
            assert measures(robot.hardware).tolist() == pytest.approx(list(training["measures"].values()), rel=1e-12)
            if results["method"] == "controller":
                assert training["measures"] == pytest.approx(before)
    again = quick_run("co-design", tmp_path)
    assert sum("is finished already" in line for line in again.lines) == 3
