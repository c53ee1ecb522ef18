"""The arm of the experiment `arm`: its geometry, its targets, its gradient, its learning, and a robot of a file."""

import json
import math

import matplotlib
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from quick_runs import quick_run

from backdrive import experiments
from backdrive.experiments import Run, WrongOption
from backdrive.experiments.arm import experiment, learning
from backdrive.experiments.arm.checks import gradient_error
from backdrive.experiments.arm.controller import controller, encoded, inputs, parameters_of
from backdrive.experiments.arm.learning import Test as ArmTest
from backdrive.experiments.arm.learning import learn
from backdrive.experiments.arm.parts import finished, table
from backdrive.experiments.arm.searches import search
from backdrive.experiments.arm.world import PARTS, REACH, SECONDS, ReachWorld, paper_arm, robot_arm

matplotlib.use("Agg")

SERVO_ARM = """
<mujoco>
  <worldbody>
    <body name="upper"><joint name="shoulder" axis="0 1 0" range="-90 90" damping="1" armature="0.1"/>
      <geom type="capsule" size="0.03" fromto="0 0 0 0 0 0.5"/>
      <body name="lower" pos="0 0 0.5"><joint name="elbow" axis="0 1 0" range="0 120" damping="1" armature="0.1"/>
        <geom type="capsule" size="0.03" fromto="0 0 0 0 0 0.5"/>
        <body name="tip" pos="0 0 0.5"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position joint="shoulder" kp="200" kv="20" ctrlrange="-1.57 1.57" forcerange="-80 80"/>
    <position joint="elbow" kp="200" kv="20" ctrlrange="0 2.09" forcerange="-80 80"/>
  </actuator>
  <keyframe><key name="home" qpos="0.3 0.4"/></keyframe>
</mujoco>
"""


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def arm() -> ReachWorld:
    return paper_arm()


def test_the_arm_is_one_metre_with_four_hinges(arm):
    assert arm.model.nq == arm.model.nu == 4 and pytest.approx(1.0) == REACH
    straight = arm.tip_of(torch.zeros(1, 4))
    assert torch.allclose(straight, torch.tensor([[0.0, 0.0, 1.0]]), atol=1e-6)
    turn, shoulder, elbow, wrist = q = torch.tensor([0.7, 0.4, 0.9, -0.5])
    lengths = [length for _, length, *_ in PARTS.values()][1:]
    slopes = [shoulder, shoulder + elbow, shoulder + elbow + wrist]
    out = sum(length * math.sin(slope) for length, slope in zip(lengths, slopes, strict=True))
    up = sum(length * math.cos(slope) for length, slope in zip(lengths, slopes, strict=True))
    expected = torch.tensor([[out * math.cos(turn), out * math.sin(turn), up]])
    assert torch.allclose(arm.tip_of(q[None]), expected, atol=1e-6)


def test_targets_are_within_reach_and_differ(arm):
    points = arm.targets(500, generator())
    assert points.norm(dim=-1).max() <= REACH + 1e-5
    assert points.std(0).min() > 0.2


def test_networks_have_17000_parameters_and_stay_within_the_torques(arm):
    policy = controller(arm, "feedback", generator())
    assert parameters_of(policy) == 17_000 and policy.in_kernel
    with torch.no_grad():
        controls = policy(100.0 * torch.randn(64, 18, generator=generator()))
    most = torch.tensor([torque for *_, torque, _ in PARTS.values()])
    assert (controls.abs() <= most).all() and (controls.abs() > 0.9 * most).any()


def test_what_networks_observe(arm):
    points = arm.targets(3, generator())
    assert torch.equal(inputs(arm, "target", points), encoded(points).expand(arm.decisions, 3, 7))
    timed = inputs(arm, "time", points)
    assert torch.equal(timed[:, :, 1:], encoded(points).expand(arm.decisions, 3, 7))
    assert torch.equal(timed[[0, -1], :, 0], torch.tensor([[-1.0] * 3, [1.0] * 3]))
    for observes, count in (("feedback", 18), ("target", 7), ("time", 8)):
        assert controller(arm, observes, generator()).sizes[0] == count


@given(st.floats(1e-4, 2.0), st.floats(-math.pi, math.pi), st.floats(-1.0, 1.0))
def test_targets_are_observed_with_distances_and_azimuth(radius, azimuth, height):
    across, along = math.cos(azimuth), math.sin(azimuth)
    point = torch.tensor([radius * across, radius * along, height], dtype=torch.float64)
    expected = [*point.tolist(), radius, across, along, math.hypot(radius, height)]
    assert torch.allclose(encoded(point), torch.tensor(expected, dtype=torch.float64), atol=1e-9)


def test_a_target_on_the_vertical_axis_is_finite():
    assert encoded(torch.tensor([0.0, 0.0, 0.5])).tolist() == [0.0, 0.0, 0.5, pytest.approx(1e-6), 0.0, 0.0, 0.5]


def test_new_networks_see_the_vector_from_the_tip_to_the_target(arm):
    policy = controller(arm, "feedback", generator())
    seen = torch.randn(18, generator=generator(1))
    tip, target = (torch.zeros(18).index_fill_(0, torch.arange(k, k + 3), 0.4) for k in (8, 11))
    with torch.no_grad():
        assert torch.allclose(policy(seen + tip + target), policy(seen), rtol=1e-4, atol=1e-3)
        assert not torch.allclose(policy(seen + tip - target), policy(seen), rtol=1e-2, atol=1e-2)


def test_updates_that_are_not_finite_are_left_out(arm, monkeypatch):
    policy = controller(arm, "feedback", generator())
    before = [weight.detach().clone() for weight in policy.parameters()]
    monkeypatch.setattr(learning, "TESTS", 4)
    monkeypatch.setattr(learning, "losses", lambda *_: policy.linear[0].weight.sum(-1) * math.inf)
    test = ArmTest(arm, "feedback")
    learn(test, policy, 2, generator(1), 1, lambda update: None)
    assert test.clips.not_finite == 2
    assert all(torch.equal(weight, old) for weight, old in zip(policy.parameters(), before, strict=True))


def test_the_gradient_agrees_with_differences():
    world = paper_arm(torch.float64)
    assert gradient_error(world, controller(world, "feedback", generator(1)), generator(2)) < 1e-6


@pytest.mark.parametrize("method", ["gradient", "cma", "point"])
def test_every_method_improves_and_is_repeatable(arm, monkeypatch, method):
    if method != "gradient":
        pytest.importorskip("cma")
    monkeypatch.setattr(learning, "TESTS", 64)
    curves = []
    for _ in range(2):
        point = arm.targets(1, generator(7))[0] if method == "point" else None
        test = ArmTest(arm, "feedback", None if point is None else point[None])
        policy, numbers = controller(arm, "feedback", generator(1)), generator(2)
        if method == "gradient":
            learn(test, policy, 12, numbers, 3, lambda update: None)
        else:
            search(test, policy, 3, numbers, 3, lambda update: None, point)
        curves.append(test.curve)
    first, second = curves
    assert first.mean == second.mean and first.evaluations[-1] == 256 * (12 if method == "gradient" else 3)
    assert first.mean[-1] < 0.95 * first.mean[0]


def test_a_robot_of_a_file_has_its_own_servos_limits_and_pose(tmp_path):
    file = tmp_path / "servo_arm.xml"
    file.write_text(SERVO_ARM)
    world = robot_arm(file, dtype=torch.float64)
    assert world.tip == "tip" and world.start.tolist() == [0.3, 0.4]
    assert torch.allclose(world.low, torch.tensor([-math.pi / 2, 0.0]).double())
    policy = controller(world, "feedback", generator(1))
    assert torch.allclose(policy.high, torch.tensor([math.pi, math.radians(120)]).double() / SECONDS)
    assert gradient_error(world, policy, generator(2)) < 1e-6
    with pytest.raises(ValueError, match="'tip'"):
        robot_arm(file, "tipp")
    file.write_text(
        SERVO_ARM.replace('<position joint="elbow" kp="200" kv="20" ctrlrange="0 2.09"', '<motor joint="elbow"')
    )
    with pytest.raises(ValueError, match="limits of the controls"):
        robot_arm(file)


def test_servos_that_are_told_speeds_move_as_if_told_angles(tmp_path):
    file = tmp_path / "servo_arm.xml"
    file.write_text(SERVO_ARM)
    world = robot_arm(file, dtype=torch.float64)
    assert world.own.lead.tolist() == pytest.approx([0.1, 0.1])
    policy = controller(world, "feedback", generator(1))
    seen = inputs(world, "feedback", world.targets(20, generator(2)))
    with torch.no_grad():
        policy.linear[-1].weight.mul_(10.0)  # motions of some size
        told_speeds, told_angles = world.reach(policy, seen), world.reach_by_servos(policy, seen)
    moved = (told_angles.q[-1] - world.start).abs().amax(0)
    low, high = torch.as_tensor(world.own.simulator.model.control_limits).T
    within = ((told_angles.controls >= low) & (told_angles.controls <= high)).all(-1).all(0)
    assert within.sum() >= 5 and moved.min() > 0.2  # rad
    assert torch.allclose(told_speeds.q[:, within], told_angles.q[:, within], atol=1e-9)


def test_servos_that_are_told_the_angles_of_a_target_come_near_it(tmp_path):
    file = tmp_path / "servo_arm.xml"
    file.write_text(SERVO_ARM)
    world = robot_arm(file, dtype=torch.float64)
    q = world.angles(50, generator(1))
    assert torch.equal(world.tip_of(q), world.targets(50, generator(1)))
    misses = world.misses(world.reach_angles(q), world.tip_of(q)).norm(dim=-1)
    assert misses[-1].median() < 0.05 < misses[0].median()
    with pytest.raises(ValueError, match="position servos"):
        paper_arm().reach_angles(q)


def test_wrong_options_are_refused(tmp_path):
    for options, words in (({"method": "feedbak"}, "feedback"), ({"robot": "none.xml"}, "there is no file")):
        with pytest.raises(WrongOption, match=words):
            experiments.find("arm").run(Run(tmp_path, quick=True, options={**{"method": "feedback"}, **options}))


@pytest.mark.slow
def test_the_experiment(tmp_path, monkeypatch):
    pytest.importorskip("cma")
    monkeypatch.setattr(experiment, "QUICK_UPDATES", dict.fromkeys(experiment.QUICK_UPDATES, 5))
    done = quick_run("arm", tmp_path)
    assert {"curves.png", "domain-arm-feedback.png", "arm-feedback.mp4"} <= done.names
    assert done.results["gradient_against_differences"] < 1e-6
    rows = done.results["table"]
    assert [row["method"] for row in rows] == ["feedback", "time", "target", "cma", "cma-point"]
    assert all(row["evaluations"] == 5 * 256 for row in rows)
    assert table(finished(tmp_path)) == json.loads(json.dumps(rows))
    again = quick_run("arm", tmp_path)
    assert sum("is finished already" in line for line in again.lines) == 5
