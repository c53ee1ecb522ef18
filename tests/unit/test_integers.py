"""Wherever an integer is asked for, any whole number will do (numpy's, torch's, `__index__`), but no bool or float."""

import functools

import numpy as np
import pytest
import torch

import backdrive as bd
from backdrive.control import CEM, ILQR, MPC, MPPI, Shooting, optimize
from backdrive.identify import GaussNewton, GradientDescent, LevenbergMarquardt, Observations, TorchOptimizer, fit


class Four:
    def __index__(self):
        return 4


@functools.cache
def pendulum() -> bd.Simulator:
    scene = bd.Scene(dim=2)
    scene.add_body("bob", bd.Circle(0.1), mass=1.0, position=(0, -1))
    scene.add_joint("hinge", bd.Hinge(), child="bob", anchor=(0, 0), position=0.5)
    scene.add_motor("motor", joint="hinge")
    return bd.Simulator(scene.build(), 0.02, specialize=False)


def start(batch=None):
    return pendulum().model.initial_state(batch)


def rollout(**options):
    return pendulum().rollout(start(), **options)


def fitted(**options):
    seen = Observations.of(rollout(steps=4), every=2)
    learn = [bd.identify.Learn("damping", bounds=(0.1, 1.0), start=None if "starts" in options else 0.5)]
    method = GaussNewton(max_iterations=1)
    return fit(pendulum(), seen, learn, optimizer=method, generator=torch.Generator(), **options)


def cost(state, u, t):
    return state.q.square().sum() + u.square().sum()


def planned(method):
    controls = torch.zeros(2, 1, dtype=torch.float64)
    return optimize(pendulum(), cost, start(), controls, method=method, generator=torch.Generator())


ARGUMENTS = {
    "rollout steps": lambda n: len(rollout(steps=n)) == 5,
    "gradcheck steps": lambda n: len(bd.gradcheck(pendulum(), start(), steps=n).steps["q"]) == 4,
    "batch": lambda n: start(n).q.shape == (4, 1),
    "Checkpoint": lambda n: len(rollout(steps=8, adjoint=bd.Checkpoint(n))) == 3,
    "Truncated": lambda n: len(rollout(steps=8, adjoint=bd.Truncated(n))) == 9,
    "threads": lambda n: bd.Simulator(pendulum().model, 0.01, threads=n).threads == 4,
    "pyramid": lambda n: bd.Simulator(pendulum().model, 0.01, pyramid=n).pyramid == 4,
    "ProjectedGaussSeidel": lambda n: bd.ProjectedGaussSeidel(iterations=n).iterations == 4,
    "InteriorPoint": lambda n: bd.InteriorPoint(max_iterations=n).max_iterations == 4,
    "samples": lambda n: (
        bd.smoothed(lambda x: x, torch.zeros(()), 1.0, samples=n, generator=torch.Generator()).ndim == 0
    ),
    "MLP sizes": lambda n: bd.MLP([n, n]).sizes == (4, 4),
    "Observations every": lambda n: len(Observations.of(rollout(steps=8), every=n).time) == 3,
    "starts": lambda n: len(fitted(starts=n).values) == 4,
    "windows": lambda n: len(fitted(windows=n).history.window.unique()) == 3,
    "ILQR": lambda n: planned(ILQR(max_iterations=n)).iterations <= 4,
    "Shooting": lambda n: planned(Shooting(max_iterations=n, memory=n)).iterations <= 4,
    "MPPI": lambda n: planned(MPPI(max_iterations=n, samples=n)).iterations <= 4,
    "CEM": lambda n: planned(CEM(max_iterations=n, samples=n)).iterations <= 4,
    "MPC horizon": lambda n: MPC(pendulum(), cost, n).horizon == 4,
    "LevenbergMarquardt": lambda n: LevenbergMarquardt(max_iterations=n).max_iterations == 4,
    "GradientDescent": lambda n: GradientDescent(0.1, max_iterations=n).max_iterations == 4,
    "TorchOptimizer": lambda n: TorchOptimizer(torch.optim.Adam, max_iterations=n).max_iterations == 4,
    "seed": lambda n: bd.experiments.Run("nowhere", True, n, log=print).seed == 4,
}


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize(
    "four", [4, np.int64(4), np.uint8(4), np.array(4), torch.tensor(4), Four()], ids=lambda n: type(n).__name__
)
def test_whole_numbers_are_accepted(name, four):
    assert ARGUMENTS[name](four)


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("wrong", [True, np.True_, torch.tensor(True), 4.0, np.float64(4.0), "4", -1, np.int64(-1)])
def test_others_are_refused(name, wrong):
    with pytest.raises((ValueError, TypeError)):
        ARGUMENTS[name](wrong)
