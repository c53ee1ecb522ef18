"""Shooting, MPPI, the cross-entropy method and MPC on the interface of iLQR."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import arm, double, random, random_state, simulator

import backdrive as bd
from backdrive.control import CEM, ILQR, MPC, MPPI, Cost, Outcome, Shooting, optimize, quadratic

HOLD = Cost(
    lambda s, u, t: 0.01 * u.square().sum() + 0.05 * (s.q - double(0.4, -0.3)).square().sum(),
    lambda s: 5 * (s.q - double(0.4, -0.3)).square().sum() + 0.1 * s.v.square().sum(),
)
METHODS = [
    Shooting(), Shooting("adam", rate=0.05, max_iterations=400), MPPI(noise=0.5), CEM(noise=1.0, samples=400),
]  # fmt: skip


def plan_by(method, seed=0):
    sim, state = simulator(arm), random_state(arm(), 3, 0)
    return optimize(
        sim, HOLD, state, torch.zeros(10, 2).double(), method=method, generator=torch.Generator().manual_seed(seed)
    )


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__ + getattr(m, "optimizer", ""))
def test_every_method_finds_what_ilqr_finds(method):
    best, plan = plan_by(ILQR(tolerance=1e-12)), plan_by(method)
    assert best.converged.all()
    gained, possible = plan.history[0] - plan.cost, best.history[0] - best.cost
    exact = isinstance(method, Shooting) and method.optimizer == "lbfgs"
    assert (gained > (1 - 1e-6 if exact else 0.97) * possible).all()
    assert (gained <= possible * (1 + 1e-9)).all()
    assert (plan.history[1:] <= plan.history[:-1]).all() and torch.equal(plan.history[-1], plan.cost)
    assert plan.controls.abs().amax((0, 1)).le(double(3, 2)).all()
    path = simulator(arm).rollout(random_state(arm(), 3, 0), plan.controls)
    torch.testing.assert_close(path.q, plan.states.q)


@pytest.mark.parametrize("method", [MPPI(max_iterations=3), CEM(max_iterations=3)])
def test_random_methods_repeat_with_their_seed(method):
    first, same, other = plan_by(method, 1), plan_by(method, 1), plan_by(method, 2)
    assert torch.equal(first.controls, same.controls) and not torch.equal(first.controls, other.controls)
    assert first.outcomes == [Outcome.MAX_ITERATIONS] * 3 and first.history.shape == (4, 3)


def test_cem_converges():
    assert plan_by(CEM(samples=100, tolerance=0.2)).outcomes == [Outcome.CONVERGED] * 3


@pytest.mark.parametrize("method", [Shooting(), Shooting("adam"), MPPI(), CEM()])
def test_a_motion_that_explodes_does_not_disturb_the_others(method):
    def f(x, u):
        return torch.where(x > 5, torch.inf, x * x + 0.1 * u)

    cost = Cost(lambda x, u, t: (x - 0.3).square().sum() + 0.01 * u.square().sum())
    start = double(0.5, 3.0).unsqueeze(-1)
    generator = torch.Generator().manual_seed(0)
    plan = optimize(f, cost, start, torch.zeros(6, 1).double(), method=method, limits=(-1, 1), generator=generator)
    assert plan.outcomes[1] == Outcome.DIVERGED and plan.outcomes[0] != Outcome.DIVERGED
    assert plan.cost[0] < plan.history[0, 0] and plan.cost[1] == torch.inf


def pole():
    scene = bd.Scene(dim=2)
    scene.add_body("cart", mass=1.0, inertia=1.0)
    rail = scene.add_joint("rail", bd.Slider(axis=(1, 0)), parent=None, child="cart")
    scene.add_body("pole", mass=0.1, inertia=0.1 / 12, com=(0, 0.5))
    scene.add_joint("hinge", bd.Hinge(), parent="cart", child="pole")
    scene.add_motor("push", joint=rail, limits=(-10, 10))
    return scene.build()


def test_mpc_balances_a_pole_against_pushes():
    model, draw = pole(), random(0)
    sim = bd.Simulator(model, 0.02)
    weights = double(1, 10, 1, 1)
    cost = quadratic(sim, model.initial_state(), weights, double(0.01), final=30 * weights)
    mpc = MPC(sim, cost, 30, method=ILQR(max_iterations=3))
    state = bd.State(double(0.3, 0.2).repeat(4, 1), torch.zeros(4, 2).double())
    still = sim.rollout(state, steps=100)
    assert still.q[-1, :, 1].abs().min() > 1.0
    for k in range(100):
        u = mpc.act(state)
        assert u.shape == (4, 1) and mpc.time == k + 1
        state = sim.step(state, u + (2.0 * draw(4, 1) if k < 60 else 0.0))
    assert state.q[:, 1].abs().max() < 0.05 and state.q[:, 0].abs().max() < 0.5 and state.v.abs().max() < 0.2


def test_mpc_moves_its_plan_on_and_counts():
    """In a world that is as planned, the tail of a plan is the next plan; the cost sees the time."""
    seen = []

    def stage(x, u, t):
        seen.append(t)
        target = torch.sin(0.3 * (t + 1))
        return (x + u - target).square().sum() + 1e-6 * u.square().sum()

    mpc, x = MPC(lambda x, u: x + u, Cost(stage), 5, nu=1), torch.zeros(1).double()
    for k in range(10):
        x = x + mpc.act(x)
        assert abs(float(x) - math.sin(0.3 * (k + 1))) < 1e-4
    first = mpc.plan.controls
    mpc.act(x)
    assert (mpc.plan.controls[:3] - first[1:4]).abs().max() < 1e-4 and mpc.plan.iterations <= 1
    mpc.reset()
    assert mpc.time == 0 and mpc.plan is None
    mpc.act(x)
    with pytest.raises(ValueError, match=r"the state has the batch \[2\], the last plan \[\]: reset\(\) first"):
        mpc.act(x.repeat(2, 1))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([1e-8, 1e-3, 1.0, 1e3, 1e6]), st.floats(1e-2, 1e2), st.booleans())
def test_adam_says_converged_only_at_a_minimum(seed, rate, scale, limited):
    """Quadratic costs of all scales, and rates from far too small to far too large: whatever Adam says is true."""
    draw = random(seed)
    H = draw(3, 3)
    H = scale * (H @ H.mT + 0.1 * torch.eye(3).double())
    goal = draw(3)
    cost = Cost(lambda x, u, t: 0.5 * (u - goal) @ H @ (u - goal) + 0.1 * scale)
    limits = (-0.5, 0.5) if limited else None
    plan = optimize(
        lambda x, u: x, cost, torch.zeros(1).double(), torch.zeros(1, 3).double(), limits=limits,
        method=Shooting("adam", rate=rate, max_iterations=150, tolerance=1e-7),
    )  # fmt: skip
    best = optimize(
        lambda x, u: x, cost, torch.zeros(1).double(), torch.zeros(1, 3).double(), limits=limits,
        method=Shooting(tolerance=1e-14),
    )  # fmt: skip
    gap = float(plan.cost - best.cost) / float(best.cost)
    assert gap >= -1e-9
    if plan.outcome is Outcome.CONVERGED:
        assert gap < 1e-3
    else:
        assert plan.outcome is Outcome.MAX_ITERATIONS


def test_adam_with_too_large_a_rate_finds_the_minimum():
    plan = plan_by(Shooting("adam", rate=100.0, max_iterations=400))
    best = plan_by(ILQR(tolerance=1e-12))
    assert (plan.cost < plan.history[0]).all()
    assert (plan.history[0] - plan.cost > 0.97 * (best.history[0] - best.cost)).all()


def test_adam_where_the_cost_jumps_says_that_no_step_helps():
    """A cost whose gradient promises a decrease that does not come."""

    def stage(x, u, t):
        return u.detach().abs().sum() + 1.0 + (u - u.detach()).sum()

    plan = optimize(lambda x, u: x, Cost(stage), torch.zeros(1).double(), torch.zeros(2, 3).double(),
                    method=Shooting("adam", max_iterations=100))  # fmt: skip
    assert plan.outcome is Outcome.LINE_SEARCH_FAILED and float(plan.cost) == 2.0
