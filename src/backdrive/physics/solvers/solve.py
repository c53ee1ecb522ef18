"""The solver that the user chose; and what it leaves, by pivoting."""

from __future__ import annotations

from typing import Any

from ...ir import Scalar, any_lane, memory, when
from ..constraints.delassus import ContactProblem
from ..math.linear import TILE
from .complementarity import refine, speeds_after
from .gauss_seidel import ProjectedGaussSeidel, solve_gauss_seidel
from .interior_point import InteriorPoint, solve_interior_point
from .pivoting import solve_by_pivoting

POLISH = 1e-3  # of the tolerance: a residual above is worth another solve,
SOLVES = 4  # and at most so many

Solver = InteriorPoint | ProjectedGaussSeidel


def solve(problem: ContactProblem, solver: Solver) -> Scalar:
    """Fill the impulses of the system, from those that it starts with; returns the residual."""
    error, exact = memory(1), True
    if isinstance(solver, InteriorPoint):
        error[0] = solve_interior_point(problem, solver)
    else:
        error[0], exact = solve_gauss_seidel(problem, solver), solver.exact
    if exact:
        solve_by_pivoting(problem, error, solver.tolerance)
        polish(problem, error, POLISH * solver.tolerance)
    return error[0]


def polish(problem: ContactProblem, error: Any, tolerance: float) -> None:
    """What has barely converged has the modes of the solution, or nearly: linear solves make it exact."""
    for _ in when(any_lane(error[0] > tolerance)):
        speed, trial, mode = (memory(problem.constraints.nimpulse + TILE) for _ in range(3))
        speeds_after(problem, problem.impulse, speed)
        refine(problem, problem.impulse, speed, trial, mode, error, tolerance, SOLVES)
