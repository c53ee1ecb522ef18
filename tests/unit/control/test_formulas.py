"""Costs as kernels: the same sums and derivatives as torch's, what is left to torch, and what may change."""

import types

import pytest
import torch
from worlds import WrongGradient, arm, craft, double, random, random_state, simulator

import backdrive as bd
from backdrive.control import MPC, Cost, SimulatedDynamics, TorchDynamics, costs, quadratic
from backdrive.control.costs import TrajectoryCost

GOAL = double(0.3, -0.2)
TURN = double([0.5, 0.1], [-0.2, 0.4])


def q_only(function):
    return Cost(lambda s, u, t: function(s.q) + 0.1 * u.square().sum(), lambda s: function(s.v))


FORMULAS = {
    "sums": Cost(lambda s, u, t: 0.02 * (1 - s.q.cos()).sum() + (s.v - GOAL).square().mean() + u.sum() * s.q[0]),
    "time": Cost(lambda s, u, t: (1 + 0.1 * t) * s.q.square().sum() / (2.0 - t / 100), lambda s: s.v @ TURN @ s.q),
    "powers": q_only(lambda x: (x**3).sum() + x[0] ** 2 * x[1] + (2 + x * x).sqrt().sum() + (3 + x[1] ** 2) ** 0.5),
    "quotients": q_only(lambda x: (1 / (1 + x * x)).sum() - x[0] / (2 + x[1].square()) + (3 + x).reciprocal()[0]),
    "circles": q_only(lambda x: torch.sin(x[0]) * torch.cos(x[1]) + torch.tan(0.3 * x).sum() + torch.atan2(x[0], x[1])),
    "squashed": q_only(lambda x: torch.tanh(x).sum() + torch.sigmoid(2 * x)[1] * x[0] + torch.relu(x).square().sum()),
    "limits": q_only(lambda x: x.clamp(-0.2, 0.3).square().sum() + x.clamp_min(0.1).sum() * x[0] + x.clip(max=0.5)[1]),
    "larger": q_only(lambda x: torch.maximum(x[0], x[1]) * torch.minimum(x, 2 * GOAL).sum() + x.abs().sum() * x[0]),
    "where": q_only(lambda x: torch.where((x > 0.1) & ~(x > 0.9) | (x <= -0.5), x * x, torch.zeros_like(x)).sum()),
    "shapes": q_only(
        lambda x: (
            (torch.stack([x, 2 * x]).reshape(4).view(2, 2).T @ torch.cat([x, x.unsqueeze(0)[0]])[1:3])
            .unsqueeze(-1)
            .squeeze(-1)
            .flatten()
            .cumsum(0)
            .square()
            .sum()
            + (x.unbind()[0] * x.split(1)[1]).sum()
            + sum(x)
        )
    ),
    "reversed": q_only(lambda x: (1.5 - x).sum() + (GOAL - x).square().sum() + (2.0 / (3 + x)).sum() + (TURN @ x)[0]),
    "indices": q_only(lambda x: x[[1, 0]] @ x + x[..., :1].sum() * x[-1] + x[torch.tensor([0, 0])].sum(0).square()),
    "constant": Cost(lambda s, u, t: torch.zeros(()).double(), lambda s: s.q[0]),
}


def bills(cost, dynamics, monkeypatch):
    """By kernels, and by torch."""
    compiled = TrajectoryCost(cost, dynamics, 3)
    states, controls = motion(dynamics)
    assert compiled._compiled(states, controls) is not None
    monkeypatch.setattr(costs, "cost_kernels", lambda *args: None)
    plain = TrajectoryCost(cost, SimulatedDynamics(dynamics.simulator), 3)
    assert plain._compiled(states, controls) is None
    return compiled, plain, states, controls


def motion(dynamics, steps=7, batch=5):
    model, dtype = dynamics.simulator.model, dynamics.simulator.dtype
    state = random_state(model, batch, 0)
    controls = random(1)(steps, batch, model.nu)
    with torch.no_grad():
        states = dynamics.rollout(dynamics.pack(bd.State(state.q.to(dtype), state.v.to(dtype))), controls.to(dtype))
    return states, controls.to(dtype)


@pytest.mark.parametrize("name", FORMULAS)
def test_kernels_sum_and_differentiate_as_torch_does(name, monkeypatch):
    compiled, plain, states, controls = bills(FORMULAS[name], SimulatedDynamics(simulator(arm)), monkeypatch)
    torch.testing.assert_close(compiled.total(states, controls), plain.total(states, controls), rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(compiled.expand(states, controls), plain.expand(states, controls), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
        assert torch.equal(ours, ours.mT)


def test_single_precision(monkeypatch):
    dynamics = SimulatedDynamics(simulator(arm, dtype=torch.float32))
    cost = Cost(lambda s, u, t: s.q.sin().sum() * u[0] + 0.3 * s.v.square().sum(), lambda s: s.q[0] * s.v[1])
    compiled, plain, states, controls = bills(cost, dynamics, monkeypatch)
    torch.testing.assert_close(compiled.total(states, controls), plain.total(states, controls))
    torch.testing.assert_close(compiled.expand(states, controls), plain.expand(states, controls))


def test_quaternions_are_displaced_in_the_tangent_space(monkeypatch):
    sim = simulator(craft)
    nv, goal = sim.model.nv, random_state(sim.model, 1, 5)
    weights = torch.linspace(0.5, 2.0, 2 * nv).double()
    cost = quadratic(sim, bd.State(goal.q[0], goal.v[0]), weights, double(0.1, 0.2))
    compiled, plain, states, controls = bills(cost, SimulatedDynamics(sim), monkeypatch)
    torch.testing.assert_close(compiled.total(states, controls), plain.total(states, controls), rtol=1e-11, atol=0)
    for ours, theirs in zip(compiled.expand(states, controls), plain.expand(states, controls), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9)


def test_kinks_have_the_derivatives_of_torch(monkeypatch):
    at_kinks = q_only(lambda x: x.abs().sum() + torch.maximum(x[0], x[1]) + x.relu().sum() + x.clamp(0.0, 1.0).sum())
    compiled, plain, states, controls = bills(at_kinks, SimulatedDynamics(simulator(arm)), monkeypatch)
    still = torch.zeros_like(states)
    torch.testing.assert_close(compiled.expand(still, controls), plain.expand(still, controls), rtol=0, atol=0)


def no_grad(s, u, t):
    with torch.no_grad():
        target = 0.5 * s.q
    return (s.q - target).square().sum()


TABLE = torch.linspace(0, 1, 50).double()
TO_TORCH = {
    "exponential": lambda s, u, t: s.q.exp().sum(),
    "detached": lambda s, u, t: (s.q * s.q.detach()).sum(),
    "no_grad": no_grad,
    "own gradient": lambda s, u, t: WrongGradient.apply(s.q).sum(),
    "table of time": lambda s, u, t: TABLE[t.long()] * s.q[0],
    "keyword": lambda s, u, t: torch.add(s.q, s.v, alpha=2).sum(),
    "network": lambda s, u, t: torch.nn.functional.linear(s.q, TURN).sum(),
    "longer than pays": lambda s, u, t: sum((s.q * k / 7).sin().sum() for k in range(2000)),
}


@pytest.mark.parametrize("name", TO_TORCH)
def test_what_is_no_formula_is_left_to_torch(name):
    dynamics = SimulatedDynamics(simulator(arm))
    states, controls = motion(dynamics)
    cost_of_path = TrajectoryCost(Cost(TO_TORCH[name]), dynamics)
    assert cost_of_path._compiled(states, controls) is None
    assert torch.isfinite(cost_of_path.total(states, controls)).all()


def test_gradients_pass_through_torch():
    dynamics = SimulatedDynamics(simulator(arm))
    states, controls = motion(dynamics)
    u = controls.clone().requires_grad_()
    (g,) = torch.autograd.grad(TrajectoryCost(FORMULAS["sums"], dynamics).total(states, u).sum(), u)
    torch.testing.assert_close(g, states[:-1, :, :1].expand_as(g))


WEIGHT = 1.0


def test_what_a_cost_refers_to_may_change_between_plans():
    """The first plan of every case would go to x = 1; each change moves that."""
    global WEIGHT
    dynamics = TorchDynamics(lambda x, u: x + u, nu=1)
    at, box, thing, inner = double(1.0), [1.0], types.SimpleNamespace(goal=1.0), 1.0
    layer = [0.0]

    def beyond(distance, function):
        return lambda x: function(x - distance[0])

    def goal():
        return inner

    def plan(function):
        mpc = MPC(dynamics, Cost(lambda x, u, t: 1e-9 * u.square().sum(), function), 1)
        return [mpc, float(mpc.act(torch.zeros(1).double()))]

    cases = [
        plan(lambda x: (x - at).square().sum()), plan(lambda x: (x - box[0]).square().sum()),
        plan(lambda x: (x - thing.goal).square().sum()), plan(lambda x: (x - goal()).square().sum()),
        plan(lambda x: (x - WEIGHT).square().sum()),
        plan(beyond([0.5], beyond(layer, beyond([0.5], lambda x: x.square().sum())))),
    ]  # fmt: skip
    assert all(u == pytest.approx(1.0, abs=1e-6) for _, u in cases)
    at += 1.0
    box[0], thing.goal, inner, WEIGHT, layer[0] = 2.0, 2.0, 2.0, 2.0, 1.0
    assert all(float(mpc.act(torch.zeros(1).double())) == pytest.approx(2.0, abs=1e-6) for mpc, _ in cases)
    WEIGHT = 1.0


def test_other_numbers_in_a_formula_need_no_other_kernel():
    from backdrive.control import formulas

    dynamics = SimulatedDynamics(simulator(arm))
    states, controls = motion(dynamics)

    def total(weight):
        return TrajectoryCost(Cost(lambda s, u, t: weight * s.q.square().sum() + weight), dynamics).total(
            states, controls
        )

    once, count = total(0.3), len(formulas._built)
    torch.testing.assert_close(total(0.6), 2 * once)
    assert len(formulas._built) == count


def test_a_motion_that_is_not_finite_is_infinitely_dear():
    dynamics = SimulatedDynamics(simulator(arm))
    states, controls = motion(dynamics)
    states[3, 1, 0] = torch.nan
    total = TrajectoryCost(FORMULAS["sums"], dynamics).total(states, controls)
    assert total[1] == torch.inf and torch.isfinite(total[[0, 2, 3, 4]]).all()
