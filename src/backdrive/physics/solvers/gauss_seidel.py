"""Projected Gauss-Seidel: one row after the other takes the impulse that makes its speed zero, within its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...ir import Mask, Scalar, ScalarArray, any_lane, carry, clip, interruptible, loop, memory, select, when, while_any
from ..math.linear import TILE
from .base import check_settings
from .complementarity import Candidate, bounds, guess_active_set, refine, residual, solve_active_set
from .finish import finish

if TYPE_CHECKING:
    from ..constraints.problem import ContactProblem

# Iterations of Newton's method on the active set, from a first guess, before the first sweep.
NEWTON_ITERATIONS = 4

# Sweeps where a problem cannot be solved exactly.
LAST_SWEEPS = 10

# Sweeps of the exact solver: after them the active set is nearly right, and pivoting does the rest.
EXACT_SWEEPS = 3


@dataclass(frozen=True)
class ProjectedGaussSeidel:
    """The solver of the 2016 and 2021 papers: sweeps over the rows, from impulses that follow from the problem alone
    (in one big world, from those of the step before).

    iterations: at most this many sweeps. tolerance: the residual at which they end, a speed in m/s relative to 1 + the
    largest in the step (in float32 at least 1e-5). erp: the part of a penetration that a step corrects. cfm: compliance
    of all constraints, (m/s) per N s. exact: find which contacts stick, slide and separate, by linear solves from a
    guess, a few sweeps and pivoting, up to the exact solution; if False, sweep until the tolerance is reached, from
    impulses of zero in every step, which takes many more iterations than the default.
    """

    iterations: int = 30
    tolerance: float = 1e-10
    erp: float = 0.2
    cfm: float = 0.0
    exact: bool = True

    def __post_init__(self) -> None:
        check_settings(self, "iterations")

    def solve(self, problem: ContactProblem) -> Scalar:
        error = memory(1)
        if self.exact:
            error[0] = self._approach(problem)
            finish(problem, error, self.tolerance)
            sweep_the_rest(problem, error, self.tolerance)
        else:
            error[0] = self._sweep_to_the_end(problem)
        return error[0]

    def _approach(self, problem: ContactProblem) -> Scalar:
        """Find impulses whose active set is nearly right; returns the residual.

        A few linear solves from a good guess are often enough, and are cheaper than sweeps.
        """
        most, tolerance = problem.capacity, self.tolerance
        impulse, speed, error = problem.impulse, memory(most), memory(1)
        candidate = Candidate(impulse, speed, memory(most), memory(most))
        allowed = problem.work.first_allowed()
        for _ in when(any_lane(allowed)):
            guess_active_set(problem, candidate.active_set)
            solve_active_set(problem, candidate.active_set, impulse)
            problem.work.spend(allowed)
            for r in loop(problem.count):
                impulse[r] = select(allowed, impulse[r], 0.0)
        error[0] = residual(problem, impulse, speed)
        refine(problem, candidate, error, tolerance, NEWTON_ITERATIONS)
        active = error[0] > tolerance
        for _ in when(any_lane(active)):
            for _ in range(min(EXACT_SWEEPS, self.iterations)):
                sweep(problem, impulse, active)
            error[0] = select(active, residual(problem, impulse, speed), error[0])
        return error[0]

    def _sweep_to_the_end(self, problem: ContactProblem) -> Scalar:
        """Sweep until the tolerance is reached, or the iterations are used up; returns the residual."""
        impulse, speed, error = problem.impulse, memory(problem.capacity), memory(1)
        error[0] = residual(problem, impulse, speed)
        for _ in interruptible(while_any(lambda: error[0] > self.tolerance, self.iterations)):
            active = error[0] > self.tolerance
            sweep(problem, impulse, active)
            error[0] = select(active, residual(problem, impulse, speed), error[0])
        return error[0]


def sweep_the_rest(problem: ContactProblem, error: ScalarArray, tolerance: float) -> None:
    """Improve the impulses where the budget of the step did not suffice to solve the problem, as far as sweeps do.

    error [1]: the residual of the impulses.
    """
    left = (error[0] > tolerance) & problem.work.wanted & ~problem.work.allowed()
    problem.work.use_up(left)
    for _ in when(any_lane(left)):
        impulse, before, speed = problem.impulse, memory(problem.capacity), memory(problem.capacity)
        for r in loop(problem.count):
            before[r] = impulse[r]
        for _ in interruptible(while_any(lambda: left, LAST_SWEEPS)):
            sweep(problem, impulse, left)
        now = residual(problem, impulse, speed)
        better = left & (now < error[0])
        for r in loop(problem.count):
            impulse[r] = select(better, impulse[r], before[r])
        error[0] = select(better, now, error[0])


def sweep(problem: ContactProblem, impulse: ScalarArray, active: Mask) -> None:
    """λ ← clip(λ - s / d), row by row, with the speed s that the impulses have by then; in the lanes `active`."""
    n, total = problem.count, carry(1)
    for r in loop(n):
        row = problem.delassus.W.at(r * n)
        total[0] = problem.b[r] + problem.compliance[r] * impulse[r]
        for m in loop(n // TILE):
            w, tile = row.get(m, TILE), impulse.get(m, TILE)
            for k in range(TILE):
                total[0] = total[0] + w[k] * tile[k]
        speed = total[0]
        low, high = bounds(problem, impulse, r)
        x = impulse[r]
        impulse[r] = select(active, clip(x - speed / problem.diagonal[r], low, high), x)
