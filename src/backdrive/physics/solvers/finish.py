"""The last stage of solvers that end at the exact solution: pivoting, then Newton's method on the active set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import Mask, ScalarArray, any_lane, interruptible, memory, select, when, while_any
from .complementarity import Candidate, evaluate_speeds, refine
from .pivoting import PivotPath

if TYPE_CHECKING:
    from ..constraints.problem import ContactProblem

# Impulses whose residual exceeds this part of the tolerance are polished.
POLISH = 1e-3

# Polishing takes at most this many linear solves.
POLISH_SOLVES = 4

# The attempts of `finish`: pivoting from the solver's impulses, from the lower bounds, and from polished impulses.
FROM_IMPULSES, FROM_BOUNDS, FROM_POLISHED = range(3)


def finish(problem: ContactProblem, error: ScalarArray, tolerance: float) -> None:
    """Improve the impulses of the problem, whose residual is error[0], up to the exact solution.

    Impulses that have barely converged have the active set of the solution, or nearly: then linear solves make them
    exact. They may also count as sticking where contacts slide more slowly than the tolerance. If Newton's method does
    not find its way out of that, pivoting does: a gradient needs the active set of the exact solution.
    """
    path, wanted, exact = PivotPath(problem), memory(1), POLISH * tolerance
    attempts = while_any(lambda: (error[0] > exact) & problem.work.allowed(), 3)
    for attempt in interruptible(attempts):
        wanted[0] = select(error[0] > tolerance, 1.0, 0.0)
        for _ in when(attempt == FROM_POLISHED):
            lost = polish(problem, error, exact)
            wanted[0] = select(lost & (error[0] <= tolerance), 1.0, 0.0)
        goes = (wanted[0] > 0.5) & problem.work.allowed()
        for _ in when(any_lane(goes)):
            path.improve(error, goes, far=attempt % FROM_POLISHED)  # 1 if FROM_BOUNDS


def polish(problem: ContactProblem, error: ScalarArray, tolerance: float) -> Mask:
    """Improve the impulses by linear solves; returns the lanes in which these have not found an active set."""
    speed, trial, active_set = (memory(problem.capacity) for _ in range(3))
    evaluate_speeds(problem, problem.impulse, speed)
    candidate = Candidate(problem.impulse, speed, trial, active_set)
    return refine(problem, candidate, error, tolerance, POLISH_SOLVES)
