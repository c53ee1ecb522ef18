"""Wherever a number is asked for, any real number will do (numpy's, fractions), but no bool or string."""

import functools
from fractions import Fraction

import numpy as np
import pytest
import torch

import backdrive as bd
from backdrive.control import CEM, ILQR, MPPI, Shooting
from backdrive.identify import GradientDescent, LevenbergMarquardt

MJCF = """<mujoco><worldbody><body><freejoint/><geom size="0.1" mass="1"/></body></worldbody></mujoco>"""


@functools.cache
def ball() -> bd.Model:
    return scene(1.0).build()


def scene(mass, **options):
    scene = bd.Scene(dim=2, gravity=(0, -9.81))
    scene.add_static(bd.HalfSpace(normal=(0, 1)))
    scene.add_body("ball", bd.Circle(0.1), mass=mass, position=(0, 1), **options)
    return scene


@functools.cache
def loaded() -> bd.Model:
    return bd.load(MJCF)


def joint(x):
    s = bd.Scene(dim=2)
    s.add_body("rod", bd.Box(1.0, 0.1), mass=1.0, position=(0.5, 0.0))
    hinge = bd.Hinge(stiffness=x, damping=x, rest=x, limits=(-x, x))
    s.add_motor("motor", joint=s.add_joint("pivot", hinge, child="rod", anchor=(0, 0)), gear=x)
    return s.build()


ARGUMENTS = {
    "dt": lambda x: bd.Simulator(ball(), x).dt == 0.25,
    "bounce_threshold": lambda x: bd.Simulator(ball(), 0.01, bounce_threshold=x).bounce_threshold == 0.25,
    "tolerance": lambda x: bd.ProjectedGaussSeidel(tolerance=x).tolerance == 0.25,
    "erp": lambda x: bd.InteriorPoint(erp=x).erp == 0.25,
    "cfm": lambda x: bd.InteriorPoint(cfm=x).cfm == 0.25,
    "impratio": lambda x: bd.MuJoCo(impratio=x).settings(loaded()).impratio == 0.25,
    "tolerance of MuJoCo": lambda x: bd.MuJoCo(tolerance=x).settings(loaded()).tolerance == 0.25,
    "mass": lambda x: scene(x).build().parameter("mass").item() == 0.25,
    "friction": lambda x: scene(1.0, friction=x).build().parameter("friction").min() == 0.25,
    "size": lambda x: bd.Circle(x).radius == 0.25,
    "joint": lambda x: joint(x).parameter("damping").item() == 0.25,
    "ILQR": lambda x: ILQR(tolerance=x).tolerance == 0.25,
    "Shooting": lambda x: Shooting(rate=x).rate == 0.25,
    "MPPI": lambda x: MPPI(temperature=x).temperature == 0.25,
    "CEM": lambda x: CEM(elite=x).elite == 0.25,
    "LevenbergMarquardt": lambda x: LevenbergMarquardt(damping=x).damping == 0.25,
    "GradientDescent": lambda x: GradientDescent(x).rate == 0.25,
}


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize(
    "quarter",
    [0.25, np.float64(0.25), np.float32(0.25), np.float16(0.25), np.array(0.25), Fraction(1, 4)],
    ids=lambda x: type(x).__name__,
)
def test_numbers_are_accepted(name, quarter):
    assert ARGUMENTS[name](quarter)


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("wrong", [True, np.True_, "0.25", [0.25, 0.25], 0.25j, float("nan"), np.float32("nan"), -1.0])
def test_others_are_refused(name, wrong):
    with pytest.raises((ValueError, TypeError)):
        ARGUMENTS[name](wrong)


def test_a_step_of_numpy_is_a_step():
    start = ball().initial_state()
    ends = [bd.Simulator(ball(), dt).rollout(start, steps=3).last.q for dt in (0.25, np.float32(0.25))]
    assert torch.equal(*ends)
    joint_rests = [bd.Ball(rest=zero) for zero in (0, 0.0, np.float32(0.0), np.int64(0))]
    assert all(np.ndim(x.rest) == 0 for x in joint_rests)
