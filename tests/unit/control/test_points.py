"""Costs of the positions of bodies: exact gradients, Gauss-Newton Hessians, and a hand that reaches a point."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import arm, craft, double, random, random_state, simulator

import backdrive as bd
from backdrive.control import MPC, Cost, Outcome, Shooting, SimulatedDynamics, costs, optimize
from backdrive.control.costs import TrajectoryCost
from backdrive.differences import along

HAND = {"hand": ("link1", (0.0, -0.4)), "elbow": "link1"}
GOAL = double(0.4, -0.3)
REACH = Cost(
    lambda s, u, t: 1e-3 * u.square().sum() + 0.1 * (s.position("hand") - GOAL).square().sum(),
    lambda s: 50 * (s.position("hand") - GOAL).square().sum() + s.v.square().sum(),
    points=HAND,
)
WORLDS = {
    2: (arm, HAND, ("hand", "elbow")),
    3: (craft, {"tip": ("tail", (-0.2, 0.1, 0.0)), "nose": ("left", (0.3, 0.0, 0.1))}, ("tip", "nose")),
}


def squares(dim, seed):
    """A convex cost of positions, coupled with the coordinates and the controls."""
    _, points, (a, b) = WORLDS[dim]
    draw = random(seed)
    goal, weight = draw(dim), draw(dim).exp()

    def stage(s, u, t):
        apart = s.position(a) - goal
        return (weight * apart.square()).sum() + (s.position(b) - s.position(a)).square().sum() + u.square().sum()

    def final(s):
        return (1.0 + (s.position(a) - goal).square().sum()).sqrt() + 0.1 * s.v.square().sum()

    return Cost(stage, final, points)


def case(dim, seed, steps=2, batch=3, parameters=None):
    make = WORLDS[dim][0]
    dynamics = SimulatedDynamics(simulator(make), parameters)
    controls = random(seed + 1)(steps, batch, make().nu)
    states = dynamics.rollout(dynamics.pack(random_state(make(), batch, seed)), controls)
    return dynamics, TrajectoryCost(squares(dim, seed), dynamics), states, controls


@settings(max_examples=8, deadline=None)
@given(st.sampled_from([2, 3]), st.integers(0, 10_000))
def test_gradients_are_exact_and_hessians_are_positive(dim, seed):
    """The gradient of every term against differences of its value along random changes of state and control."""
    dynamics, cost, states, controls = case(dim, seed)
    H, end = cost.expand(states, controls)
    nu = controls.shape[-1]
    draw = random(seed + 2)
    for t in range(2):
        change = draw(3, nu + dynamics.tangent.nv * 2)

        def value(e, t=t, change=change):
            x = dynamics.displace(states[t], e * change[:, nu:])
            one = cost._placed(torch.stack([x, states[-1]]), jacobian=False)
            return torch.stack([cost._one[0](a, b + e * c[:nu], double(*[t])[0]) for a, b, c in zip(
                one[0], controls[t], change, strict=True)])  # fmt: skip

        slope = along(value, torch.zeros(()).double(), torch.ones(()).double(), 1e-3, order=6)
        torch.testing.assert_close((H[t, :, :-1, -1] * change).sum(-1), slope, rtol=1e-7, atol=1e-9)
    assert torch.linalg.eigvalsh(H[..., :-1, :-1]).min() > -1e-9
    assert torch.linalg.eigvalsh(end[..., :-1, :-1]).min() > -1e-9


@pytest.mark.parametrize("dim", [2, 3])
def test_the_hessian_is_that_of_gauss_and_newton(dim):
    """Of |p - goal|² it is 2 JᵀJ, with the Jacobian J of the positions, by differences."""
    make, points, (name, _) = WORLDS[dim]
    dynamics = SimulatedDynamics(simulator(make))
    cost = TrajectoryCost(Cost(lambda s, u, t: s.position(name).square().sum(), points=points), dynamics)
    x = dynamics.pack(random_state(make(), 1, 3))
    H, _ = cost.expand(torch.stack([x, x]), torch.zeros(1, 1, make().nu).double())
    nv, nu = make().nv, make().nu
    unit = torch.eye(2 * nv).double()[:nv]

    def positions(e):
        return dynamics.positions(dynamics.displace(x.expand(nv, -1), e * unit), cost._points.list)[:, :dim]

    J = along(positions, torch.zeros(()).double(), torch.ones(()).double(), 1e-3, order=6).T
    expected = torch.zeros(nu + 2 * nv, nu + 2 * nv).double()
    expected[nu : nu + nv, nu : nu + nv] = 2 * J.T @ J
    torch.testing.assert_close(H[0, 0, :-1, :-1], expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("dim", [2, 3])
def test_kernels_and_torch_agree(dim, monkeypatch):
    _, compiled, states, controls = case(dim, 5)
    found = compiled.total(states, controls), *compiled.expand(states, controls)
    assert compiled._kernels is not None
    monkeypatch.setattr(costs, "cost_kernels", lambda *args: None)
    _, plain, states, controls = case(dim, 5)
    expected = plain.total(states, controls), *plain.expand(states, controls)
    assert plain._kernels is None
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-11, atol=1e-12)


def test_positions_are_those_of_the_trajectory_also_with_parameters():
    model, longer = arm(), {"anchor": arm().parameter("anchor"), "offset": arm().parameter("offset") * 1.5}
    for parameters in (None, longer):
        dynamics, cost, states, controls = case(2, 1, parameters=parameters)
        path = dynamics.simulator.rollout(random_state(model, 3, 1), controls, parameters=parameters)
        tip = path.position("link1") + (path.rotation("link1") @ double(0.0, -0.4).unsqueeze(-1)).squeeze(-1)
        placed = cost._points.attach(states, jacobian=False)
        torch.testing.assert_close(placed[..., 4:8], torch.cat([tip, path.position("link1")], -1))


@pytest.mark.parametrize("method", [None, Shooting()], ids=["ILQR", "Shooting"])
def test_a_hand_reaches_a_point(method):
    model, sim = arm(), simulator(arm)
    guess = 0.1 * random(0)(60, 4, 2)
    plan = optimize(sim, REACH, model.initial_state(4), guess, method=method)
    assert method is not None or plan.outcomes == [Outcome.CONVERGED] * 4
    path = sim.rollout(model.initial_state(4), plan.controls)
    hand = path.position("link1")[-1] + (path.rotation("link1")[-1] @ double(0.0, -0.4).unsqueeze(-1)).squeeze(-1)
    assert (hand - GOAL).norm(dim=-1).max() < 5e-3 and path.v[-1].abs().max() < 0.2
    assert (hand - GOAL).norm(dim=-1).max() < 0.02 * (path.position("link1")[0] + double(0, -0.4) - GOAL).norm()


def test_mpc_follows_a_point_that_moves():
    model, sim = arm(), simulator(arm)

    def stage(s, u, t):
        goal = torch.stack([0.3 + 0.1 * (0.05 * t).sin(), -0.5 + 0.0 * t])
        return (s.position("hand") - goal).square().sum() + 1e-4 * (u.square().sum() + s.v.square().sum())

    cost = Cost(stage, points=HAND)
    mpc, state = MPC(sim, cost, 25), model.initial_state()
    for _ in range(80):
        state = sim.step(state, mpc.act(state))
    one = sim.rollout(state, steps=1)
    hand = one.position("link1")[0] + one.rotation("link1")[0] @ double(0.0, -0.4)
    assert (hand - double(0.3 + 0.1 * float(double(4.0).sin()), -0.5)).norm() < 0.03


@pytest.mark.parametrize(
    ("cost", "error", "message"),
    [
        (Cost(lambda s, u, t: s.position("hnd").sum(), points=HAND), ValueError, "unknown point of the cost 'hnd'"),
        (Cost(lambda s, u, t: s.position("a").sum(), points={"a": "link7"}), ValueError, "unknown body 'link7'"),
        (Cost(lambda s, u, t: u.sum(), points={"a": ("link1", (0, 0, 0))}), ValueError, "must have 2 elements, got 3"),
        (Cost(lambda s, u, t: u.sum(), points={"a": 3}), TypeError, "must be a body, or"),
        (Cost(lambda s, u, t: u.sum(), points="link1"), TypeError, "points must be names of bodies"),
    ],
)
def test_bad_points(cost, error, message):
    with pytest.raises(error, match=message):
        optimize(simulator(arm), cost, arm().initial_state(), torch.zeros(3, 2).double())


def test_functions_have_no_bodies():
    cost = Cost(lambda x, u, t: u.sum(), points=["ball"])
    with pytest.raises(TypeError, match="TorchDynamics has no bodies"):
        optimize(lambda x, u: x + u, cost, torch.zeros(2).double(), torch.zeros(3, 2).double())


def test_bodies_by_name():
    cost = Cost(lambda s, u, t: s.position("link1").square().sum() + u.square().sum(), points=["link1"])
    plan = optimize(simulator(arm), cost, arm().initial_state(), torch.zeros(3, 2).double())
    path = simulator(arm).rollout(bd.State(*arm().initial_state()), plan.controls)
    expected = path.position("link1")[:-1].square().sum() + plan.controls.square().sum()
    torch.testing.assert_close(plan.cost, expected)
