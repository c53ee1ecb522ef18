"""The experiment `co-design`: measures and what follows from them, gradients, falls, learning, and MuJoCo."""

import json
import math
from pathlib import Path

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
from backdrive.experiments.co_design.learning import (
    Evaluations,
    alone,
    first_robot,
    learn,
    learn_from_the_fastest,
)
from backdrive.experiments.co_design.motion import Result, move, nominal_world, results
from backdrive.experiments.co_design.parts import finished, has_hardware, learned_robot, table
from backdrive.experiments.co_design.searches import POPULATION, search
from backdrive.experiments.co_design.transfer import in_mujoco, set_back
from backdrive.experiments.gait.learning import STARTS, loss_of
from backdrive.experiments.gait.world import GaitWorld, fallen, lowest_corner, mjcf, parameters, quadruped

matplotlib.use("Agg")

SOME = torch.linspace(-1.0, 1.0, len(MEASURES), dtype=torch.float64)


@pytest.fixture(scope="module")
def world() -> GaitWorld:
    return nominal_world(seconds=0.2)


def test_measures_are_nominal_at_zero_and_keep_their_bounds():
    before = torch.tensor([m.nominal for m in MEASURES.values()], dtype=torch.float64)
    assert torch.allclose(measures(torch.zeros(9, dtype=torch.float64)), before, rtol=1e-14)
    for x, bound in ((-30.0, "low"), (30.0, "high")):
        expected = torch.tensor([getattr(m, bound) for m in MEASURES.values()], dtype=torch.float64)
        assert torch.allclose(measures(torch.full((2, 9), x, dtype=torch.float64)), expected, atol=1e-9)
    for name, measure in MEASURES.items():
        assert getattr(nominal(), name) == pytest.approx(measure.nominal, rel=1e-14)
        if not name.endswith("spring"):
            assert (measure.low, measure.high) == pytest.approx((0.5 * measure.nominal, 1.5 * measure.nominal))


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


def test_parameters_are_those_of_the_robots_own_file(world):
    for row in measures(torch.stack([SOME, -SOME])):
        own, found = quadruped(design(row)), parameters(world, design(row))
        for name, value in found.items():
            assert torch.allclose(value, own.parameter(name), rtol=1e-12, atol=1e-12), name
        for info in own.parameters():  # The reference of a free joint does nothing.
            if info.name not in {*found, "reference"}:
                assert torch.equal(own.parameter(info.name), world.model.parameter(info.name)), info.name


def test_in_mujocos_physics_only_the_scale_of_softness_stays_nominal(world):
    """MuJoCo with the scale (``invweight0``) of the nominal robot's file moves as robots do here."""
    row = measures(SOME)
    targets = TROT.targets(world.times())
    here = move(world, targets, row[None]).q[:, 0]
    model, first = (mujoco.MjModel.from_xml_string(mjcf(d)) for d in (design(row), nominal()))
    model.body_invweight0[:], model.dof_invweight0[:] = first.body_invweight0, first.dof_invweight0
    data = mujoco.MjData(model)
    data.qpos[:] = here[0]
    for control in (float(design(row).gear) * targets[:, 0]).numpy():
        data.ctrl[:] = control
        mujoco.mj_step(model, data)
    assert torch.allclose(here[-1], torch.from_numpy(data.qpos), atol=1e-9)


@pytest.mark.parametrize("physics", ["mujoco", "rigid"])
def test_the_gradient_of_every_measure_agrees_with_differences(physics):
    errors = gradient_errors(physics)
    assert list(errors) == list(MEASURES)
    assert max(errors.values()) < 1e-6, errors


def test_the_gradient_of_masses_and_of_all_that_follows_reaches_the_measures():
    world = nominal_world(seconds=0.004)
    x = SOME.clone().requires_grad_()
    for name, value in parameters(world, design(measures(x))).items():
        (gradient,) = torch.autograd.grad(value.sum(), x, retain_graph=True, allow_unused=True)
        assert gradient is not None, name


def test_right_legs_do_what_left_legs_do_half_a_period_later():
    network = SymmetricNetwork(torch.Generator().manual_seed(3), frequency=4.0)
    times = torch.linspace(0.0, 1.0 / network.frequency, 26, dtype=torch.float64)
    with torch.no_grad():
        network.last.bias.uniform_(-1.0, 1.0, generator=torch.Generator().manual_seed(4))
        now, later = (network.targets(times + t).view(26, 4, 3) for t in (0.0, 0.5 / network.frequency))
    assert now.std(0).min() > 1e-3
    for left, right in ((0, 1), (2, 3)):  # FL, FR, RL, RR
        assert torch.allclose(now[:, right, 1:], later[:, left, 1:], atol=1e-12)
        assert torch.allclose(now[:, right, 0], -later[:, left, 0], atol=1e-12)
        assert torch.allclose(now[:, left, 1:], later[:, right, 1:], atol=1e-12)


def test_falls_are_those_of_each_robots_own_trunk(world):
    values = measures(torch.stack([0.0 * SOME, SOME]))
    lengths = [float(row[0]) for row in values]
    q = torch.zeros(5, 2, 19, dtype=torch.float64)
    q[..., 2], q[..., 3] = 0.3, 1.0
    q[2, :, 3], q[2, :, 5] = math.cos(0.3), math.sin(0.3)
    lowest = lowest_corner(world, q, design(values.T))
    for k, length in enumerate(lengths):
        below = 0.5 * (length * math.sin(0.6) + nominal().trunk_height * math.cos(0.6))
        assert float(lowest[2, k]) == pytest.approx(0.3 - below, abs=5e-4)
    q[2, :, 2] -= lowest[2].mean() - 0.01  # Between those of the two.
    longer = lengths[1] > lengths[0]
    assert fallen(world, q, design(values.T)).tolist() == [[False, False]] * 2 + [[not longer, longer]] * 3


def test_results_are_speed_and_the_way_before_a_fall(world):
    values = measures(torch.zeros(2, 9, dtype=torch.float64))
    robot = first_robot(0, True)
    with torch.no_grad():
        targets = robot.network.targets(world.times())
        path = move(world, torch.stack([targets, torch.full_like(targets, 3.0)], 1), values)
    upright, other = results(world, path, values)
    assert not upright.fell and upright.speed == pytest.approx(float(path.q[-1, 0, 0]) / 0.2)
    assert upright.distance == pytest.approx(float(path.q[-1, 0, 0]))
    down = fallen(world, path.q)[:, 1]
    assert other.fell == bool(down[-1])
    assert other.distance == pytest.approx(float(path.q[int((~down).sum()) - 1, 1, 0]))


def test_losses_of_robots_at_once_are_those_of_each_alone(world):
    values = measures(torch.stack([0.0 * SOME, SOME]))
    targets = first_robot(0, True).network.targets(world.times()).detach()
    aims = torch.tensor([1.0, 3.0], dtype=torch.float64)
    both = loss_of(world, move(world, targets[:, None].expand(-1, 2, -1), values), aims, design(values.T))
    for k, row in enumerate(values):
        path = move(world, targets[:, None], row[None])
        assert float(both[k]) == pytest.approx(float(loss_of(world, path, float(aims[k]), design(row))), rel=1e-12)


def test_only_motions_of_the_robots_own_file_are_the_best(world):
    robot = first_robot(0, True)
    curve = Evaluations(3, 0.2)
    assert not curve.add(Result(5.0, True, 1.0), robot) and curve.best == 0.0  # A fall.
    with torch.no_grad():
        robot.hardware.copy_(SOME)
    own = alone(robot, 0.2)
    assert curve.add(Result(5.0, False, 1.0), robot) == (own.speed > 0.0 and not own.fell)
    assert curve.best == pytest.approx(max(own.speed, 0.0), abs=1e-6) and curve.speeds[1] == 5.0 and curve.full
    assert not curve.add(Result(9.0, False, 1.0), robot) and len(curve.speeds) == 3
    nominal_one = first_robot(0, False)
    other = Evaluations(3, 0.2)
    assert other.add(Result(5.0, False, 1.0), nominal_one) and other.best == 5.0  # Its file is that of the world.


def test_learning_is_repeatable_and_leaves_hardware_alone_if_asked(world):
    def learned(hardware: str) -> list[Evaluations]:
        robots = [first_robot(seed, has_hardware(hardware)) for seed in (0, 1)]
        return learn(world, robots, (0, 1), 3, lambda done: None).curves

    for method in ("controller", "co-design"):
        first, second = learned(method), learned(method)
        assert [x.speeds for x in first] == [x.speeds for x in second]
        assert all(len(x.speeds) == 3 and len(set(x.speeds)) > 1 for x in first)
        for curve in first:
            changed = bool((curve.best_state["hardware"] != 0.0).any())
            assert changed == (method == "co-design" and curve.best_at > 1)


def test_seeds_that_learn_at_once_do_not_know_of_each_other(world):
    alone = learn(world, [first_robot(1, True)], (1,), 3, lambda done: None).curves[0]
    both = learn(world, [first_robot(seed, True) for seed in (0, 1)], (0, 1), 3, lambda done: None).curves[1]
    assert alone.speeds == both.speeds


def test_the_fastest_of_several_networks_goes_on(world):
    """All evaluations count, and only the last of them may have other measures."""
    told = []
    robots, found = learn_from_the_fastest(world, (0, 1), True, 20, told.append)
    assert [robot.hardware.requires_grad for robot in robots] == [True, True] and max(told) == 20
    for curve in found.curves:
        assert len(curve.speeds) == len(curve.fell) == len(curve.bests) == 20 and curve.bests == sorted(curve.bests)
        assert curve.bests[-1] == curve.best == curve.speeds[curve.best_at - 1] > 0.0
        assert not curve.fell[curve.best_at - 1]
    alone = learn_from_the_fastest(world, (0, 1), False, 20, told.append)[1]
    assert all(not curve.best_state["hardware"].any() for curve in alone.curves)
    assert [x.speeds[:STARTS] for x in alone.curves] == [x.speeds[:STARTS] for x in found.curves]


def test_cma_searches_measures_and_weights(world):
    pytest.importorskip("cma")
    runs = [
        search(world, [first_robot(seed, True) for seed in (0, 1)], (0, 1), 2 * POPULATION, lambda done: None).curves
        for _ in range(2)
    ]
    assert [x.speeds for x in runs[0]] == [x.speeds for x in runs[1]]
    for curve in runs[0]:
        assert len(curve.speeds) == 2 * POPULATION and curve.best > 0.0
        assert (curve.best_state["hardware"] != 0.0).all()
    assert runs[0][0].speeds != runs[0][1].speeds


def test_mujoco_moves_the_learned_robot_in_the_same_way(world):
    robot = first_robot(0, True)
    with torch.no_grad():
        robot.hardware.copy_(SOME)
        robot.network.last.bias.add_(0.2)
    found = in_mujoco(robot, 0.2)
    assert found["seconds_within_1_mm"] == pytest.approx(0.2) and not found["falls"]
    assert found["speed_m_s"] == pytest.approx(found["speed_here_m_s"], abs=1e-6) and found["speed_m_s"] != 0.0


def test_measures_are_set_back_one_by_one(world):
    robot = first_robot(0, True)
    with torch.no_grad():
        robot.hardware[list(MEASURES).index("gear")] = 1.0
    found = set_back(world, robot)
    assert list(found) == [*MEASURES, "all"]
    kept = {found[name]["speed_m_s"] for name in MEASURES if name != "gear"}
    assert max(kept) - min(kept) < 1e-9  # These are nominal already.
    assert found["gear"]["speed_m_s"] == pytest.approx(found["all"]["speed_m_s"], abs=1e-9)
    assert abs(found["gear"]["speed_m_s"] - min(kept)) > 1e-6


def test_wrong_options_are_refused(tmp_path):
    for options, words in (({"method": "codesign"}, "co-design"), ({"evaluations": "-1"}, "> 0")):
        with pytest.raises(WrongOption, match=words):
            experiments.find("co-design").run(Run(tmp_path, quick=True, options=options))


def test_published_curves_end_at_published_speeds():
    """Those of the docs."""
    folder = next(x for x in Path(__file__).parents if (x / "docs").is_dir()) / "docs" / "co_design"
    parts = finished(folder)
    assert [part["method"] for part in parts] == ["controller", "co-design", "cma", "cma-controller"]
    for part in parts:
        for training in part["trainings"]:
            curve = training["curve"]["best"]
            assert len(curve) == part["evaluations"] and curve == sorted(curve)
            assert curve[-1] == pytest.approx(training["best_m_s"])


@pytest.mark.slow
def test_the_experiment(tmp_path, monkeypatch):
    pytest.importorskip("cma")
    monkeypatch.setattr(experiment, "QUICK_EVALUATIONS", POPULATION)
    done = quick_run("co-design", tmp_path)
    assert {"curves.png", "measures.png", "robots.png"} <= done.names
    for errors in done.results["gradient_of_measures_against_differences"].values():
        assert max(errors.values()) < 1e-6
    rows = done.results["table"]
    assert [row["method"] for row in rows] == ["controller", "co-design", "cma", "cma-controller"]
    assert [row["unknowns"] for row in rows] == [492, 501, 501, 492]
    assert table(finished(tmp_path)) == json.loads(json.dumps(rows))
    before = {name: m.nominal for name, m in MEASURES.items()}
    for part in finished(tmp_path):
        for training in part["trainings"]:
            robot = learned_robot(part["method"], training)
            assert measures(robot.hardware).tolist() == pytest.approx(list(training["measures"].values()), rel=1e-12)
            assert training["curve"]["best"][-1] == pytest.approx(training["best_m_s"])
            if part["method"].endswith("controller"):
                assert training["measures"] == pytest.approx(before)
    again = quick_run("co-design", tmp_path)
    assert sum("is finished already" in line for line in again.lines) == 4
