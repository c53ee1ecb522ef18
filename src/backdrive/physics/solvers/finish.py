"""The last stage of solvers that end at the exact solution: pivoting, then Newton's method on the active set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import ScalarArray, any_lane, memory, when
from .complementarity import Candidate, evaluate_speeds, refine
from .pivoting import solve_by_pivoting

if TYPE_CHECKING:
    from ..constraints.problem import ContactProblem

# Impulses whose residual exceeds this part of the tolerance are polished.
POLISH = 1e-3

# Polishing takes at most this many linear solves.
POLISH_SOLVES = 4


def finish(problem: ContactProblem, error: ScalarArray, tolerance: float) -> None:
    """Improve the impulses of the problem, whose residual is error[0], up to the exact solution."""
    solve_by_pivoting(problem, error, tolerance)
    polish(problem, error, POLISH * tolerance)


def polish(problem: ContactProblem, error: ScalarArray, tolerance: float) -> None:
    """Impulses that have barely converged have the active set of the solution, or nearly: linear solves make them
    exact."""
    for _ in when(any_lane(error[0] > tolerance)):
        speed, trial, active_set = (memory(problem.capacity) for _ in range(3))
        evaluate_speeds(problem, problem.impulse, speed)
        candidate = Candidate(problem.impulse, speed, trial, active_set)
        refine(problem, candidate, error, tolerance, POLISH_SOLVES)
