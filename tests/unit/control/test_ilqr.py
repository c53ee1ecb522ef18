"""iLQR on simulators: optima, limits, batches, warm starts, quaternions, contact, result codes."""

import matplotlib
import pytest
import torch
from worlds import WrongGradient, arm, craft, double, random, random_state, simulator, sled

import backdrive as bd
from backdrive.control import ILQR, Cost, Outcome, optimize, quadratic

REACH = Cost(
    lambda s, u, t: 1e-3 * u.square().sum() + 1e-4 * s.v.square().sum(),
    lambda s: 20 * (s.q - double(1.2, -0.7)).square().sum() + s.v.square().sum(),
)


def gradient(sim, cost, state, controls):
    """Of the whole cost, by the simulator's adjoint."""
    u = controls.clone().requires_grad_()
    path = sim.rollout(state, u)
    stage = torch.func.vmap(torch.func.vmap(lambda q, v, u, t: cost.stage(bd.State(q, v), u, t), (0, 0, 0, None)))
    total = stage(path.q[:-1], path.v[:-1], u, torch.arange(len(u))).sum(0)
    total = total + torch.func.vmap(lambda q, v: cost.final(bd.State(q, v)))(path.q[-1], path.v[-1])
    (g,) = torch.autograd.grad(total.sum(), u)
    return total.detach(), g


def test_the_plan_is_an_optimum_of_the_simulated_motion():
    sim, state = simulator(arm), random_state(arm(), 5, 0)
    start = 0.1 * random(1)(40, 5, 2)
    plan = optimize(sim, REACH, state, start, method=ILQR(tolerance=1e-12))
    assert plan.converged.all()
    total, g = gradient(sim, REACH, state, plan.controls)
    _, before = gradient(sim, REACH, state, start)
    torch.testing.assert_close(total, plan.cost, rtol=1e-12, atol=0)
    inside = plan.controls.abs() < double(3.0, 2.0) - 1e-9
    assert (g.abs() * inside).max() < 1e-5 * before.abs().max()
    assert (plan.history[1:] <= plan.history[:-1]).all() and (plan.history[-1] == plan.cost).all()
    path = sim.rollout(state, plan.controls)
    assert torch.equal(path.q, plan.states.q) and torch.equal(path.v, plan.states.v)


def test_the_motors_limits_hold_and_tighter_ones_too():
    sim, state = simulator(arm), random_state(arm(), 3, 0)
    free = optimize(sim, REACH, state, torch.zeros(20, 2).double())
    assert free.controls.abs().amax((0, 1)).tolist() == [3.0, 2.0]
    tight = optimize(sim, REACH, state, torch.zeros(20, 2).double(), limits=(double(-1, -0.5), double(1, 2)))
    assert (tight.controls >= double(-1, -0.5)).all() and (tight.controls <= double(1, 2)).all()
    assert (tight.cost > free.cost).all()
    assert (free.gains[free.controls.abs() >= double(3, 2)] == 0).all()


def test_an_environment_of_a_batch_is_planned_as_if_alone():
    sim, state = simulator(arm), random_state(arm(), 4, 2, spread=1.0)
    start = 0.1 * random(3)(30, 4, 2)
    all_of_them = optimize(sim, REACH, state, start)
    for b in range(4):
        alone = optimize(sim, REACH, bd.State(state.q[b], state.v[b]), start[:, b])
        assert alone.controls.shape == (30, 2) and alone.cost.ndim == 0 and alone.gains.shape == (30, 2, 4)
        torch.testing.assert_close(alone.controls, all_of_them.controls[:, b], rtol=1e-7, atol=1e-8)
        assert alone.outcome == all_of_them.outcomes[b]
        assert int(alone.iterations) == int(all_of_them.iterations[b])


def test_a_warm_start_is_done_at_once():
    sim, state = simulator(arm), random_state(arm(), 2, 4)
    plan = optimize(sim, REACH, state, torch.zeros(30, 2).double())
    again = optimize(sim, REACH, state, plan.controls)
    assert (plan.iterations > 3).all() and (again.iterations <= 1).all()


@pytest.mark.parametrize("seed", range(3))
def test_a_craft_turns_itself_by_moving_its_rods(seed):
    """Free fall without torque from outside: the hull turns against its rods. Quaternions all the way."""
    sim = simulator(craft, 0.05)
    state = random_state(craft(), 2, seed, spread=0.2)
    nv = craft().nv
    weights, end = torch.zeros(2 * nv), torch.zeros(2 * nv)
    end[3:6], end[nv:] = 20.0, 0.1
    goal = craft().initial_state()
    cost = quadratic(sim, goal, weights, 0.01 * torch.ones(2), final=end)
    plan = optimize(sim, cost, state, torch.zeros(30, 2).double(), method=ILQR(max_iterations=60, tolerance=1e-10))
    _, g = gradient(sim, cost, state, plan.controls)
    _, before = gradient(sim, cost, state, torch.zeros(30, 2, 2).double())
    assert (plan.cost < 0.7 * plan.history[0]).all()
    assert g.abs().max() < 1e-3 * before.abs().max()


def test_through_contact():
    """A foot that must be pressed down to slide slowly: friction is 0.4 of the force on it."""
    sim, goal = simulator(sled), 0.5
    cost = Cost(
        lambda s, u, t: 1e-4 * u.square().sum(),
        lambda s: 50 * (s.q[0] - goal).square() + 5 * s.v[0].square(),
    )
    state = sled().initial_state(3)
    plan = optimize(sim, cost, state, 3.0 + random(0)(40, 3, 2), method=ILQR(max_iterations=100))
    assert (plan.states.q[-1, :, 0] - goal).abs().max() < 0.02
    assert plan.states.v[-1, :, 0].abs().max() < 0.05
    assert sim.rollout(state, plan.controls).status.contacts.sum() > 100


def test_result_codes():
    sim, state = simulator(arm), random_state(arm(), 2, 0)
    few = optimize(sim, REACH, state, torch.zeros(30, 2).double(), method=ILQR(max_iterations=1))
    assert few.outcomes == [Outcome.MAX_ITERATIONS] * 2 and not few.converged.any()

    def explodes(x, u):
        return torch.where(x > 5, torch.inf, x * x + u)

    start = double(0.5, 3.0).unsqueeze(-1)
    plan = optimize(
        explodes, Cost(lambda x, u, t: x.square().sum() + u.square().sum()), start, torch.zeros(6, 1).double()
    )
    assert plan.outcomes[1] == Outcome.DIVERGED and plan.outcomes[0] == Outcome.CONVERGED
    assert plan.cost[1] == torch.inf and torch.isfinite(plan.controls).all()

    # The derivative that is given points uphill: no step helps.
    lie = Cost(lambda x, u, t: u.square().sum() + 3 * WrongGradient.apply(u.sum()))
    stuck = optimize(lambda x, u: x, lie, torch.zeros(1, 1).double(), torch.zeros(2, 1).double())
    assert stuck.outcomes == [Outcome.LINE_SEARCH_FAILED]
    assert "line_search_failed" in str(stuck) and "ILQR" in str(stuck)


def test_regularisation_on_state_or_control_alone():
    sim, state = simulator(arm), random_state(arm(), 3, 5, spread=1.5)
    start = random(6)(30, 3, 2)
    plans = [optimize(sim, REACH, state, start, method=ILQR(regularization=w)) for w in ((1, 0), (0, 1), (1, 1))]
    assert all(plan.converged.all() for plan in plans)


def test_the_cost_is_plotted_and_progress_shown(capsys):
    matplotlib.use("Agg")
    sim, state = simulator(arm), random_state(arm(), 3, 0)
    plan = optimize(sim, REACH, state, torch.zeros(20, 2).double(), progress=True)
    figure = plan.plot()
    lines = figure.axes[0].lines
    assert len(lines) == 3 and len(lines[1].get_xdata()) == int(plan.iterations[1]) + 1
    assert lines[1].get_ydata()[-1] == plan.cost[1]
    matplotlib.pyplot.close(figure)
