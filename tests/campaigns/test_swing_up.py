"""Swing-ups from rest, on 20 seeds each: other starts, other controls to begin with."""

import pytest

import backdrive as bd
from backdrive.control import ILQR, optimize
from benchmarks.swings import swings

SEEDS = 20


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pendulum", "cartpole", "acrobot"])
def test_all_seeds_stand(name):
    swing = swings()[name]
    state, controls = swing.start(SEEDS)
    assert not swing.stands(state).any()
    plan = optimize(swing.simulator(), swing.cost, state, controls, method=ILQR(max_iterations=300))
    path = swing.simulator().rollout(state, plan.controls)
    assert swing.stands(bd.State(path.q[-1], path.v[-1])).all()
    low, high = swing.model.control_limits[0]
    assert plan.controls.min() >= low and plan.controls.max() <= high
    assert (plan.cost < 0.2 * plan.history[0]).all()
