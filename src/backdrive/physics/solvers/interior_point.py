"""The primal-dual interior point method of the 2018 paper, on the impulses of a `System`.

With s₋ = λ - low + μ λₙ and s₊ = high + μ λₙ - λ the conditions are

    W λ + extra λ + b = α₋ - α₊,        s₋ α₋ = s₊ α₊ = 0,        s, α >= 0.

Newton steps go to s α = σ, with σ → 0, and stop short of the bounds. α is eliminated: a step is one linear system of
the size of λ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...ir import Scalar, absolute, any_lane, carry, loop, maximum, memory, minimum, select, when, while_any
from ..constraints.delassus import INFINITE, NO_MODE, ContactProblem
from ..math.linear import TILE, factor_lu, solve_lu
from .complementarity import check_settings, diagonal, refine, residual, speeds_after
from .pivot_rules import bound_slacks

SHORT = 0.99  # a step goes at most so much of the way to a bound
WORSE = 1e3  # a step may increase the residual, but not by so much
NEAR = 1e-2  # from this residual on, the modes are tried


@dataclass(frozen=True)
class InteriorPoint:
    """Newton's method on the complementarity conditions; what it does not solve is left to pivoting.

    max_iterations: at most so many steps; tolerance: the residual at which they end, a speed in m/s relative to 1 + the
    largest in the step (in float32 at least 1e-5). erp: the part of a penetration that a step corrects. cfm:
    softness of all constraints, (m/s) per N s.
    """

    max_iterations: int = 40
    tolerance: float = 1e-10
    erp: float = 0.2
    cfm: float = 0.0

    def __post_init__(self) -> None:
        check_settings(self, "max_iterations")


def solve_interior_point(problem: ContactProblem, solver: InteriorPoint) -> Scalar:
    """Fill the impulses of the system with its solution; returns the residual."""
    most, impulse, tolerance = problem.constraints.nimpulse + TILE, problem.impulse, solver.tolerance
    speed, mode, trial, step = (memory(most) for _ in range(4))
    below, above, exact = memory(most), memory(most), memory(most)  # α, and impulses of the modes
    error, scale, best, going = (memory(1) for _ in range(4))
    n = problem.count
    scale[0] = 0.0
    for r in loop(n):
        scale[0] = maximum(scale[0], absolute(problem.b[r]))
    for r in loop(n):
        one_sided = bounded(problem.low[r]) & ~bounded(problem.high[r])
        impulse[r] = select(one_sided, (0.1 * scale[0] + 1e-12) / diagonal(problem, r), 0.0)
    for r in loop(n):
        low, high = has_bounds(problem, r)
        below[r], above[r] = select(low, scale[0] + 1e-12, 0.0), select(high, scale[0] + 1e-12, 0.0)
    error[0] = residual(problem, impulse, speed)
    going[0] = error[0]
    for _ in while_any(lambda: going[0] > tolerance, solver.max_iterations):
        active = going[0] > tolerance
        for r in loop(n):
            exact[r] = impulse[r]
        newton_step(problem, impulse, speed, below, above, step, active)
        now = residual(problem, impulse, speed)
        # Where it stagnates, slacks underflow in the end: what is no number, or worse by much, is not taken.
        taken = active & (now < WORSE * error[0])
        for r in loop(n):
            impulse[r] = select(taken, impulse[r], exact[r])
        error[0] = select(taken, now, error[0])
        going[0] = select(taken, now, 0.0)
        near = taken & (now < NEAR)
        for _ in when(any_lane(near)):
            for r in loop(n):
                exact[r] = impulse[r]
            best[0] = select(near, now, 0.0)
            refine(problem, exact, speed, trial, mode, best, tolerance, 1)
            done = near & (best[0] <= tolerance)
            for r in loop(n):
                impulse[r] = select(done, exact[r], impulse[r])
            error[0] = select(done, best[0], error[0])
            going[0] = select(done, 0.0, going[0])
            speeds_after(problem, impulse, speed)
    return error[0]


def bounded(x: Scalar) -> Any:
    return absolute(x) < 0.5 * INFINITE


def has_bounds(problem: ContactProblem, r: Any) -> tuple[Any, Any]:
    """Masks: whether row r has a lower and an upper bound. A row that does not count needs none."""
    low, high = problem.low[r], problem.high[r]
    off = (low == 0.0) & (high == 0.0) & (problem.mu[r] == 0.0)
    return bounded(low) & ~off, bounded(high) & ~off


def slacks(problem: ContactProblem, impulse: Any, r: Any) -> tuple[Scalar, Scalar, Any, Any]:
    """s₋, s₊ (1 where there is no bound), and whether there are bounds."""
    has_low, has_high = has_bounds(problem, r)
    most = problem.mu[r] * impulse[problem.normal[r]]
    low, high = bound_slacks(impulse[r], problem.low[r], problem.high[r], most)
    return select(has_low, low, 1.0), select(has_high, high, 1.0), has_low, has_high


def newton_step(
    problem: ContactProblem, impulse: Any, speed: Any, below: Any, above: Any, step: Any, active: Any
) -> None:
    """One step of λ and α towards σ = a part of the mean of s α; `speed`: of the impulses before."""
    n, B = problem.count, problem.B
    sums = carry(3)  # Σ s α, number of bounds, length of the step
    sums[0], sums[1] = 0.0, 0.0
    for r in loop(n):
        s_low, s_high, has_low, has_high = slacks(problem, impulse, r)
        sums[0] = sums[0] + (s_low * below[r] + s_high * above[r])
        sums[1] = sums[1] + select(has_low, 1.0, 0.0) + select(has_high, 1.0, 0.0)
    sigma = 0.1 * sums[0] / maximum(sums[1], 1.0)
    for r in loop(n):
        s_low, s_high, has_low, has_high = slacks(problem, impulse, r)
        a, c = below[r] / s_low, above[r] / s_high
        row, source = B.at(r * n), problem.W.at(r * n)
        for k in loop(n):
            row[k] = source[k]
        row[r] = row[r] + (problem.extra[r] + a + c)
        normal = problem.normal[r]
        row[normal] = row[normal] + problem.mu[r] * (a - c)
        push = select(has_low, sigma / s_low, 0.0) - select(has_high, sigma / s_high, 0.0)
        step[r] = push - speed[r]
    factor_lu(B, n)
    problem.factored[0] = NO_MODE
    solve_lu(B, n, step)
    sums[2] = 1.0

    def change(r: Any) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        """Of s₋, s₊, α₋, α₊."""
        s_low, s_high, has_low, has_high = slacks(problem, impulse, r)
        most = problem.mu[r] * step[problem.normal[r]]
        d_low, d_high = select(has_low, step[r] + most, 0.0), select(has_high, most - step[r], 0.0)
        d_below = select(has_low, (sigma - below[r] * d_low) / s_low - below[r], 0.0)
        d_above = select(has_high, (sigma - above[r] * d_high) / s_high - above[r], 0.0)
        return d_low, d_high, d_below, d_above

    def shorten(x: Scalar, d: Scalar) -> None:
        sums[2] = minimum(sums[2], select(d < 0.0, -SHORT * x / minimum(d, -1e-30), 1.0))

    for r in loop(n):
        s_low, s_high, _, _ = slacks(problem, impulse, r)
        d_low, d_high, d_below, d_above = change(r)
        for x, d in ((s_low, d_low), (s_high, d_high), (below[r], d_below), (above[r], d_above)):
            shorten(x, d)
    length = sums[2]
    for r in loop(n):
        _, _, d_below, d_above = change(r)
        below[r] = select(active, below[r] + length * d_below, below[r])
        above[r] = select(active, above[r] + length * d_above, above[r])
    for r in loop(n):
        impulse[r] = select(active, impulse[r] + length * step[r], impulse[r])
