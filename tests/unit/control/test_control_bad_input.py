"""What is wrong is said, with names, shapes and values."""

import pytest
import torch
from worlds import arm, double, simulator

import backdrive as bd
from backdrive.control import CEM, ILQR, MPC, MPPI, Cost, Shooting, TorchDynamics, optimize, quadratic

COST = Cost(lambda s, u, t: u.square().sum())


def call(**changes):
    given = {"state": arm().initial_state(3), "controls": torch.zeros(5, 3, 2).double(), "cost": COST} | changes
    dynamics = given.pop("dynamics", simulator(arm))
    return optimize(dynamics, given.pop("cost"), given.pop("state"), given.pop("controls"), **given)


def zeros(*shape):
    return torch.zeros(*shape, dtype=torch.float64)


CASES = {
    "controls for another batch": (
        {"controls": zeros(5, 4, 2)}, ValueError, r"controls must be \[T, 3, 2\].*\[5, 4, 2\]",
    ),
    "controls of another size": ({"controls": zeros(5, 3)}, ValueError, r"controls must be \[T, 3, 2\]"),
    "no steps": ({"controls": zeros(0, 3, 2)}, ValueError, r"T >= 1 steps"),
    "controls of float32": ({"controls": torch.zeros(5, 3, 2)}, TypeError, "the state's dtype torch.float64"),
    "controls as a list": ({"controls": [[0.0, 0.0]]}, TypeError, "controls must be a tensor"),
    "NaN in the controls": (
        {"controls": zeros(5, 3, 2) * torch.nan}, ValueError, r"controls must be finite: nan at \[0, 0, 0\]",
    ),
    "NaN in the state": (
        {"state": bd.State(zeros(3, 2), zeros(3, 2) + torch.inf)}, ValueError, r"state must be finite: inf at \[0, 2\]",
    ),
    "a state of another size": (
        {"state": bd.State(zeros(3, 4), zeros(3, 2))}, ValueError, r"state.q must be \[2\] or \[B, 2\]",
    ),
    "no state": ({"state": None}, TypeError, "state must be State"),
    "batches that differ": ({"state": bd.State(zeros(3, 2), zeros(2))}, ValueError, "the same batch"),
    "limits upside down": ({"limits": (1.0, -1.0)}, ValueError, "low must not be above high, got 1 > -1 for control 0"),
    "limits of another size": ({"limits": (zeros(3), 1.0)}, ValueError, r"low must be a number or \[2\], got \[3\]"),
    "limits that are NaN": ({"limits": (-1.0, torch.nan)}, ValueError, "limits: high must not be NaN"),
    "limits that are no pair": ({"limits": 3.0}, TypeError, "limits must be a pair"),
    "dynamics that are none": ({"dynamics": 3}, TypeError, "dynamics must be a Simulator"),
    "a method that is none": ({"method": "ilqr"}, TypeError, "method must be ILQR"),
    "a cost that is none": ({"cost": 3}, TypeError, "cost must be Cost"),
    "a cost of vectors": ({"cost": Cost(lambda s, u, t: u)}, ValueError, r"stage must return one number.*got \[2\]"),
    "a cost of floats": ({"cost": Cost(lambda s, u, t: 1.0)}, TypeError, "stage must return a tensor, got float"),
    "a final cost of vectors": (
        {"cost": Cost(COST.stage, lambda s: s.q)}, ValueError, r"final must return one number.*got \[2\]",
    ),
    "dynamics of another size": (
        {"dynamics": lambda x, u: x[:, :1], "state": zeros(3, 4)}, ValueError, r"must return states of the shape",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_optimize(name):
    changes, error, message = CASES[name]
    with pytest.raises(error, match=message):
        call(**changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ILQR(max_iterations=0), "max_iterations must be an integer >= 1, got 0"),
        (lambda: ILQR(tolerance=-1.0), "tolerance must be >= 0"),
        (lambda: ILQR(step_sizes=(2.0,)), "step_sizes must be numbers above 0 and up to 1"),
        (lambda: ILQR(regularization=(0.0, 0.0)), "not both 0"),
        (lambda: Shooting("newton"), "optimizer must be 'lbfgs' or 'adam', got 'newton'"),
        (lambda: Shooting(rate=0.0), "rate must be > 0"),
        (lambda: MPPI(samples=1), "samples must be an integer >= 2"),
        (lambda: MPPI(noise=-1.0), "noise must be a deviation above 0"),
        (lambda: CEM(elite=1.5), "elite must be a part above 0 and up to 1"),
        (lambda: CEM(smoothing=1.0), "smoothing must be a part"),
        (lambda: MPC(lambda x, u: x, COST, 5), "does not tell how many controls"),
        (lambda: MPC(simulator(arm), COST, 0), "horizon must be an integer >= 1"),
        (lambda: MPC(simulator(arm), COST, 5, controls=zeros(4, 2)), r"controls must be \[5, nu\]"),
        (
            lambda: quadratic(simulator(arm), arm().initial_state(), zeros(3), zeros(2)),
            r"Q must be \[4, 4\].*got \[3, 3\]",
        ),
        (lambda: quadratic(simulator(arm), arm().initial_state(2), zeros(4), zeros(2)), "must be unbatched"),
        (lambda: quadratic(simulator(arm), arm().initial_state(), zeros(4) * torch.nan, zeros(2)), "Q must be finite"),
    ],
)
def test_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_types():
    with pytest.raises(TypeError, match="stage must be a function"):
        Cost(3)
    with pytest.raises(TypeError, match="function must be callable"):
        TorchDynamics(3)
    with pytest.raises(ValueError, match="see outcomes"):
        _ = call().outcome
    assert call(limits=(-1, double(1, 2))).converged.all()
