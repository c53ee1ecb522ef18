"""Both solvers on random problems, as plain Python on floats: against every possible combination of modes, and each
other."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backdrive.compiler import Floats
from backdrive.physics.complementarity import residual
from backdrive.physics.gauss_seidel import ProjectedGaussSeidel, solve_gauss_seidel
from backdrive.physics.interior_point import solve_interior_point
from backdrive.physics.linear import TILE
from backdrive.physics.system import INFINITE

SEEDS = st.integers(0, 10_000)
QUIET = settings(max_examples=40, deadline=None, derandomize=True)


def problem(seed, contacts=2, redundant=False, friction=0.5):
    """An equation, a joint with friction, a limit, and contacts with two directions of friction: rows of a `System`."""
    rng = np.random.default_rng(seed)
    n = 3 + 3 * contacts
    J = rng.normal(size=(n, n + 3))
    if redundant:  # the last contact stands where the first one does
        J[-3:] = J[3:6]
    W = J @ J.T / n
    b = rng.normal(size=n)
    if redundant:
        b[-3:] = b[3:6]
    low, high = np.zeros(n), np.zeros(n)
    low[0], high[0] = -INFINITE, INFINITE
    low[1], high[1] = -0.3, 0.3
    high[[2, *range(3, n, 3)]] = INFINITE
    mu, normal = np.zeros(n), np.arange(n)
    for c in range(3, n, 3):
        mu[c + 1 : c + 3], normal[c + 1 : c + 3] = friction, c
    extra = np.full(n, 1e-8 if redundant else 1e-10)
    return W, b, extra, low, high, mu, normal


def system_of(W, b, extra, low, high, mu, normal):
    n = len(b)
    vectors = {
        name: Floats(list(map(float, x)))
        for name, x in {"b": b, "extra": extra, "low": low, "high": high, "mu": mu}.items()
    }
    return SimpleNamespace(
        count=n, constraints=SimpleNamespace(nimpulse=n - TILE), W=Floats(W.ravel().tolist()), B=Floats([0.0] * n * n),
        impulse=Floats([0.0] * n), normal=Floats(normal.tolist()), unit=Floats([1 / (1 + np.abs(b).max())]), **vectors,
    )  # fmt: skip


def by_enumeration(W, b, extra, low, high, mu, normal):
    """All impulses that satisfy the conditions: every row is at its lower bound, free, or at its upper bound."""
    n, solutions = len(b), []
    A = W + np.diag(extra)
    choices = [(0,) if low[r] <= -INFINITE else (-1, 0) if high[r] >= INFINITE else (-1, 0, 1) for r in range(n)]
    for modes in itertools.product(*choices):
        if any(modes[normal[r]] == -1 and modes[r] != -1 for r in range(n) if normal[r] != r):
            continue  # a contact that does not press has no friction
        B, c = np.zeros((n, n)), np.zeros(n)
        for r, mode in enumerate(modes):
            if mode == 0:
                B[r], c[r] = A[r], -b[r]
            else:
                B[r, r] = 1.0
                B[r, normal[r]] -= mode * mu[r]
                c[r] = low[r] if mode < 0 else high[r]
        x = np.linalg.solve(B, c)
        w, most = A @ x + b, mu * x[normal]
        inside = (x >= low - most - 1e-9).all() and (x <= high + most + 1e-9).all()
        right = all(
            abs(w[r]) < 1e-8 if m == 0 else w[r] * m <= 1e-9
            for r, m in enumerate(modes)
            if x[normal[r]] > 1e-12 or normal[r] == r
        )
        if inside and right:
            solutions.append(x)
    return solutions


def solve(name, system):
    if name == "interior point":
        return solve_interior_point(system, system.impulse, True, 60, 1e-10)
    exact = name == "Gauss-Seidel"
    return solve_gauss_seidel(system, ProjectedGaussSeidel(iterations=30 if exact else 5000, exact=exact))


SOLVERS = pytest.mark.parametrize("name", ["Gauss-Seidel", "interior point", "sweeps alone"])


@SOLVERS
@QUIET
@given(SEEDS)
def test_every_combination_of_modes(name, seed):
    rows = problem(seed)
    system = system_of(*rows)
    error = solve(name, system)
    x = np.array(system.impulse.values)
    right = by_enumeration(*rows)
    assert right, "friction this small has a solution"
    if name == "sweeps alone" and error > 1e-10:
        return  # they need not converge, and say so
    assert error <= 1e-10
    assert min(np.abs(rows[0] @ (x - y)).max() for y in right) < 1e-7


@QUIET
@given(SEEDS)
def test_redundant_contacts(seed):
    """Two contacts at one place: the speeds are determined, and both solvers share the load alike."""
    rows = problem(seed, redundant=True)
    found = []
    for name in ("Gauss-Seidel", "interior point"):
        system = system_of(*rows)
        assert solve(name, system) <= 1e-9
        found.append(np.array(system.impulse.values))
        speed = Floats([0.0] * len(rows[1]))
        assert residual(system, system.impulse, speed) <= 1e-9
    assert np.abs(rows[0] @ (found[0] - found[1])).max() < 1e-6


def test_rows_that_do_not_count():
    """Friction of frictionless contacts, and contacts of other lanes: no coupling, and no impulse."""
    for seed in range(20):
        rows = problem(seed)
        off = [4, 5, 6, 7, 8]
        W, b, extra, low, high, mu, _ = rows
        W[off], W[:, off], b[off], extra[off], low[off], high[off], mu[off] = 0, 0, 0, 1, 0, 0, 0
        found = []
        for name in ("Gauss-Seidel", "interior point"):
            system = system_of(*rows)
            assert solve(name, system) <= 1e-10
            found.append(np.array(system.impulse.values))
            assert (found[-1][off] == 0.0).all()
        assert np.abs(found[0] - found[1]).max() < 1e-7


def test_all_the_friction_there_can_be():
    """Whatever presses, sticks."""
    for seed in range(20):
        rows = problem(seed, friction=1e6)
        system = system_of(*rows)
        if solve("interior point", system) > 1e-10:
            continue  # there may be no solution: friction jams
        x = np.array(system.impulse.values)
        speed = rows[0] @ x + rows[1]
        for c in (3, 6):
            assert x[c] < 1e-7 or np.abs(speed[c + 1 : c + 3]).max() < 1e-6
