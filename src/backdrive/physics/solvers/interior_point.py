"""The primal-dual interior point method of the 2018 paper, on the impulses of a `ContactProblem`.

With the slacks s₋ = λ - low + μ λₙ and s₊ = high + μ λₙ - λ and their multipliers α, the complementarity conditions are

    W λ + R λ + b = α₋ - α₊,        s₋ α₋ = s₊ α₊ = 0,        s, α ≥ 0.

Newton steps aim at s α = σ, with σ → 0, and stop short of the bounds. The multipliers are eliminated: a step is one
linear system of the size of λ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...ir import (
    Index,
    Mask,
    Scalar,
    ScalarArray,
    absolute,
    any_lane,
    carry,
    interruptible,
    loop,
    maximum,
    memory,
    minimum,
    select,
    when,
    while_any,
)
from ..math.linear import factor_lu, solve_lu
from .active_set import INFINITE, NO_ACTIVE_SET
from .base import check_settings
from .complementarity import Candidate, evaluate_speeds, refine, residual
from .finish import finish
from .gauss_seidel import sweep_the_rest
from .pivot_rules import bound_slacks

if TYPE_CHECKING:
    from ..constraints.problem import ContactProblem

# A Newton step goes at most this part of the way to a bound.
STEP_FRACTION = 0.99

# A step aims at products s α of this part of their mean.
CENTERING = 0.1

# A step whose residual exceeds the one before by this factor is not taken.
DIVERGED = 1e3

# From this residual on (relative, see `residual`), the active set of the iterate is tried.
NEAR = 1e-2

# Impulses of one-sided rows start at this part of the impulse that would stop the fastest row.
FIRST_IMPULSE = 0.1


@dataclass(frozen=True)
class InteriorPoint:
    """Newton's method on the complementarity conditions; what it does not solve is left to pivoting.

    max_iterations: at most this many steps. tolerance: the residual at which they end, a speed in m/s relative to 1 +
    the largest in the step (in float32 at least 1e-5). erp: the part of a penetration that a step corrects. cfm:
    compliance of all constraints, (m/s) per N s.
    """

    max_iterations: int = 40
    tolerance: float = 1e-10
    erp: float = 0.2
    cfm: float = 0.0

    def __post_init__(self) -> None:
        check_settings(self, "max_iterations")

    def solve(self, problem: ContactProblem) -> Scalar:
        error = memory(1)
        error[0] = self._iterate(problem)
        finish(problem, error, self.tolerance)
        sweep_the_rest(problem, error, self.tolerance)
        return error[0]

    def _iterate(self, problem: ContactProblem) -> Scalar:
        """Replace the impulses of the problem by the last iterate; returns its residual."""
        most, impulse, tolerance = problem.capacity, problem.impulse, self.tolerance
        speed, active_set, trial, step = (memory(most) for _ in range(4))
        below, above, other = memory(most), memory(most), memory(most)
        error, scale, best, going = (memory(1) for _ in range(4))
        iterate, candidate = Iterate(impulse, speed, below, above), Candidate(other, speed, trial, active_set)
        n = problem.count
        scale[0] = 0.0
        for r in loop(n):
            scale[0] = maximum(scale[0], absolute(problem.b[r]))
        for r in loop(n):
            one_sided = is_finite_bound(problem.low[r]) & ~is_finite_bound(problem.high[r])
            impulse[r] = select(one_sided, (FIRST_IMPULSE * scale[0] + 1e-12) / problem.diagonal[r], 0.0)
        for r in loop(n):
            low, high = has_bounds(problem, r)
            below[r], above[r] = select(low, scale[0] + 1e-12, 0.0), select(high, scale[0] + 1e-12, 0.0)
        error[0] = residual(problem, impulse, speed)
        going[0] = select(problem.work.allowed(), error[0], 0.0)
        for _ in interruptible(while_any(lambda: going[0] > tolerance, self.max_iterations)):
            active = going[0] > tolerance
            problem.work.spend(active)
            for r in loop(n):
                other[r] = impulse[r]
            newton_step(problem, iterate, step, active)
            now = residual(problem, impulse, speed)
            # Where the method stagnates, slacks underflow in the end: a step to NaN, or far away, is not taken.
            taken = active & (now < DIVERGED * error[0])
            for r in loop(n):
                impulse[r] = select(taken, impulse[r], other[r])
            error[0] = select(taken, now, error[0])
            going[0] = select(taken & problem.work.allowed(), now, 0.0)
            near = taken & (now < NEAR)
            for _ in when(any_lane(near)):
                for r in loop(n):
                    other[r] = impulse[r]
                best[0] = select(near, now, 0.0)
                refine(problem, candidate, best, tolerance, 1)
                done = near & (best[0] <= tolerance)
                for r in loop(n):
                    impulse[r] = select(done, other[r], impulse[r])
                error[0] = select(done, best[0], error[0])
                going[0] = select(done, 0.0, going[0])
                evaluate_speeds(problem, impulse, speed)
        return error[0]


class Iterate(NamedTuple):
    """Arrays [n] of an iterate: λ, its speeds W λ + R λ + b, and the multipliers α₋ and α₊ (zero without a bound)."""

    impulse: ScalarArray
    speed: ScalarArray
    below: ScalarArray
    above: ScalarArray


def is_finite_bound(x: Scalar) -> Mask:
    return absolute(x) < 0.5 * INFINITE


def has_bounds(problem: ContactProblem, r: Index) -> tuple[Mask, Mask]:
    """Whether row r has a lower and an upper bound. A row that does not count, with both bounds zero, needs none."""
    low, high = problem.low[r], problem.high[r]
    off = (low == 0.0) & (high == 0.0) & (problem.mu[r] == 0.0)
    return is_finite_bound(low) & ~off, is_finite_bound(high) & ~off


def slacks(problem: ContactProblem, impulse: ScalarArray, r: Index) -> tuple[Scalar, Scalar, Mask, Mask]:
    """s₋ and s₊ of row r (1 where there is no bound), and whether there are bounds."""
    has_low, has_high = has_bounds(problem, r)
    widening = problem.mu[r] * impulse[problem.normal[r]]
    low, high = bound_slacks(impulse[r], problem.low[r], problem.high[r], widening)
    return select(has_low, low, 1.0), select(has_high, high, 1.0), has_low, has_high


def newton_step(problem: ContactProblem, iterate: Iterate, step: ScalarArray, active: Mask) -> None:
    """Take one step of λ and α, in the lanes `active`, towards products s α of CENTERING times their mean.

    `iterate.speed` stays that of the impulses before the step. step [n]: overwritten.
    """
    n, W, B = problem.count, problem.delassus.W, problem.delassus.B
    impulse, speed, below, above = iterate
    sums = carry(3)  # Σ s α, the number of bounds, the length of the step
    sums[0], sums[1] = 0.0, 0.0
    for r in loop(n):
        s_low, s_high, has_low, has_high = slacks(problem, impulse, r)
        sums[0] = sums[0] + (s_low * below[r] + s_high * above[r])
        sums[1] = sums[1] + select(has_low, 1.0, 0.0) + select(has_high, 1.0, 0.0)
    sigma = CENTERING * sums[0] / maximum(sums[1], 1.0)
    for r in loop(n):
        s_low, s_high, has_low, has_high = slacks(problem, impulse, r)
        a, c = below[r] / s_low, above[r] / s_high
        row, source = B.at(r * n), W.at(r * n)
        for k in loop(n):
            row[k] = source[k]
        row[r] = row[r] + (problem.compliance[r] + a + c)
        normal = problem.normal[r]
        row[normal] = row[normal] + problem.mu[r] * (a - c)
        centering = select(has_low, sigma / s_low, 0.0) - select(has_high, sigma / s_high, 0.0)
        step[r] = centering - speed[r]
    factor_lu(B, n)
    problem.factored[0] = NO_ACTIVE_SET
    solve_lu(B, n, step)
    sums[2] = 1.0

    def change(r: Index) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        """Of s₋, s₊, α₋, α₊ of row r, by the whole step."""
        s_low, s_high, has_low, has_high = slacks(problem, impulse, r)
        widening = problem.mu[r] * step[problem.normal[r]]
        d_low, d_high = select(has_low, step[r] + widening, 0.0), select(has_high, widening - step[r], 0.0)
        d_below = select(has_low, (sigma - below[r] * d_low) / s_low - below[r], 0.0)
        d_above = select(has_high, (sigma - above[r] * d_high) / s_high - above[r], 0.0)
        return d_low, d_high, d_below, d_above

    def shorten(x: Scalar, d: Scalar) -> None:
        """Limit the length of the step so that x, which it changes by d, stays positive."""
        sums[2] = minimum(sums[2], select(d < 0.0, -STEP_FRACTION * x / minimum(d, -1e-30), 1.0))

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
