"""Linear dynamics and quadratic costs: iLQR is the Riccati recursion, and done after one iteration."""

import pytest
import torch
from worlds import random

from backdrive.control import ILQR, Cost, Outcome, Shooting, optimize


def problem(seed, n, m):
    """A system that neither grows nor dies fast, and its costs, with cross terms and a target."""
    draw = random(seed)
    A = torch.linalg.qr(draw(n, n))[0] * 0.97
    half = draw(n + m, n + m)
    W = half @ half.T / (n + m) + 0.1 * torch.eye(n + m, dtype=torch.float64)
    return A, draw(n, m), W, 0.3 * draw(n + m), draw(3, n)


def cost_of(W, w, n):
    def stage(x, u, t):
        z = torch.cat([x, u])
        return 0.5 * z @ W @ z + w @ z * (1 + 0.1 * t)

    return Cost(stage, lambda x: x @ W[:n, :n] @ x)


def riccati(A, B, W, w, n, steps):
    """Gains and feedforward of the exact solution, by the textbook."""
    P, p = 2 * W[:n, :n], torch.zeros(n, dtype=A.dtype)
    policy = []
    for t in reversed(range(steps)):
        g = w * (1 + 0.1 * t)
        Huu, Hux = W[n:, n:] + B.T @ P @ B, W[n:, :n] + B.T @ P @ A
        K, k = -torch.linalg.solve(Huu, Hux), -torch.linalg.solve(Huu, g[n:] + B.T @ p)
        p = g[:n] + A.T @ p + Hux.T @ k
        P = W[:n, :n] + A.T @ P @ A + Hux.T @ K
        policy.append((K, k))
    return policy[::-1]


@pytest.mark.parametrize(("seed", "n", "m"), [(0, 4, 1), (1, 4, 2), (2, 7, 3), (3, 1, 1), (4, 3, 5), (5, 12, 4)])
def test_one_iteration_is_the_riccati_solution(seed, n, m):
    A, B, W, w, x = problem(seed, n, m)
    steps = 25
    start = random(seed + 100)(steps, 3, m)
    plan = optimize(lambda x, u: x @ A.T + u @ B.T, cost_of(W, w, n), x, start)
    assert plan.outcomes == [Outcome.CONVERGED] * 3
    assert plan.iterations.tolist() == [1, 1, 1] and len(plan.history) == 2
    for t, (K, k) in enumerate(riccati(A, B, W, w, n, steps)):
        u = x @ K.T + k
        assert (plan.gains[t] - K).abs().max() < 1e-10
        assert (plan.states[t] - x).abs().max() < 1e-10
        assert (plan.controls[t] - u).abs().max() < 1e-10
        x = x @ A.T + u @ B.T


def test_limited_controls_satisfy_the_conditions_of_the_optimum():
    """The gradient points outward where a control is at its limit, and is zero elsewhere."""
    n, m, steps = 4, 3, 15
    for seed in range(4):
        A, B, W, w, x = problem(seed, n, m)
        cost, low, high = cost_of(W, w, n), -torch.tensor([0.3, 0.2, 0.5]).double(), torch.tensor(0.25).double()

        def f(x, u, A=A, B=B):
            return x @ A.T + u @ B.T

        exact = ILQR(tolerance=1e-14)
        plan = optimize(f, cost, x, torch.zeros(steps, 3, m).double(), limits=(low, high), method=exact)
        assert plan.converged.all()
        u = plan.controls.clone().requires_grad_()
        now, total = x, 0.0
        for t in range(steps):
            total = total + torch.func.vmap(cost.stage, (0, 0, None))(now, u[t], torch.tensor(float(t))).sum()
            now = f(now, u[t])
        total = total + torch.func.vmap(cost.final)(now).sum()
        (g,) = torch.autograd.grad(total, u)
        lower, upper = u <= low, u >= high
        assert lower.any() and upper.any() and not (lower | upper).all()
        assert (u >= low).all() and (u <= high).all()
        assert (g[lower] > -1e-6).all() and (g[upper] < 1e-6).all()
        assert g[~lower & ~upper].abs().max() < 1e-4 * g.abs().max()
        by_gradient = optimize(f, cost, x, torch.zeros(steps, 3, m).double(), limits=(low, high), method=Shooting())
        torch.testing.assert_close(by_gradient.cost, plan.cost, rtol=1e-6, atol=0)


def test_costs_that_look_up_a_table_by_time():
    table = random(0)(8, 2)
    cost = Cost(lambda x, u, t: (x + u - table[t.long()]).square().sum())
    plan = optimize(lambda x, u: x + u, cost, torch.zeros(3, 2).double(), torch.zeros(5, 3, 2).double(), start=3)
    torch.testing.assert_close(plan.states[1:], table[3:, None].expand(5, 3, 2), rtol=0, atol=1e-10)


def test_float32():
    A, B, W, w, x = (y.float() for y in problem(0, 4, 2))
    plan = optimize(lambda x, u: x @ A.T + u @ B.T, cost_of(W, w, 4), x, torch.zeros(20, 3, 2))
    assert plan.controls.dtype == torch.float32 and plan.converged.all()
    exact = [y.double() for y in (A, B, W, w, x)]
    same = optimize(
        lambda x, u: x @ exact[0].T + u @ exact[1].T, cost_of(*exact[2:4], 4), exact[4], torch.zeros(20, 3, 2).double()
    )
    torch.testing.assert_close(plan.controls.double(), same.controls, rtol=1e-3, atol=1e-4)


def test_a_cost_that_is_not_convex_in_the_controls_is_reported():
    plan = optimize(
        lambda x, u: x + u,
        lambda x, u, t: -1e14 * u.square().sum(),
        torch.ones(2, 1).double(),
        torch.zeros(3, 1).double(),
    )
    assert plan.outcomes == [Outcome.NOT_CONVEX] * 2
