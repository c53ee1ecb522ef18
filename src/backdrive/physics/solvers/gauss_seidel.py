"""Projected Gauss-Seidel: one row after the other takes the impulse that satisfies it, within its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...ir import Scalar, any_lane, carry, clip, loop, memory, select, when, while_any
from ..constraints.delassus import INFINITE, ContactProblem
from ..math.linear import TILE
from .complementarity import bounds, check_settings, diagonal, recall, refine, residual

NEWTON = 2  # iterations on the modes: most steps have those of the step before
SWEEPS = 3  # lead to where few modes are wrong


@dataclass(frozen=True)
class ProjectedGaussSeidel:
    """The solver of the 2016 and 2021 papers: sweeps over the rows, starting from the impulses of the step before.

    iterations: at most so many sweeps; tolerance: the residual at which they end, a speed in m/s relative to 1 + the
    largest in the step (in float32 at least 1e-5). erp: the part of a penetration that a step corrects. cfm:
    softness of all constraints, (m/s) per N s. exact: a few sweeps nearly tell which contacts stick, slide and
    separate; from there linear solves lead to the solution itself (`pivoting`). Without, it is left to the sweeps.
    """

    iterations: int = 30
    tolerance: float = 1e-10
    erp: float = 0.2
    cfm: float = 0.0
    exact: bool = True

    def __post_init__(self) -> None:
        check_settings(self, "iterations")

    @property
    def recalls(self) -> bool:
        return self.exact


def sweep(problem: ContactProblem, impulse: Any, active: Any) -> None:
    """λ ← clip(λ - w / d), row by row, in the lanes that are `active` (mask)."""
    n, total = problem.count, carry(1)
    for r in loop(n):
        row = problem.W.at(r * n)
        total[0] = problem.b[r] + problem.extra[r] * impulse[r]
        for m in loop(n // TILE):
            w, x = row.get(m, TILE), impulse.get(m, TILE)
            for k in range(TILE):
                total[0] = total[0] + w[k] * x[k]
        speed = total[0]
        low, high = bounds(problem, impulse, r)
        x = impulse[r]
        impulse[r] = select(active, clip(x - speed / diagonal(problem, r), low, high), x)


def solve_gauss_seidel(problem: ContactProblem, solver: ProjectedGaussSeidel) -> Scalar:
    """From the impulses of the system towards its solution, in place; returns the residual."""
    most, tolerance = problem.constraints.nimpulse + TILE, solver.tolerance
    impulse, speed, error = problem.impulse, memory(most), memory(1)
    if solver.exact:
        error[0] = INFINITE
        if problem.after is not None:
            for _ in when(any_lane(problem.known[0] > 0.5)):
                error[0] = recall(problem, speed, tolerance)
        for _ in when(any_lane(error[0] > tolerance)):
            error[0] = residual(problem, impulse, speed)
            refine(problem, impulse, speed, memory(most), memory(most), error, tolerance, NEWTON)
            active = error[0] > tolerance
            for _ in when(any_lane(active)):
                for _ in range(min(SWEEPS, solver.iterations)):
                    sweep(problem, impulse, active)
                error[0] = select(active, residual(problem, impulse, speed), error[0])
    else:
        error[0] = residual(problem, impulse, speed)
        for _ in while_any(lambda: error[0] > tolerance, solver.iterations):
            active = error[0] > tolerance
            sweep(problem, impulse, active)
            error[0] = select(active, residual(problem, impulse, speed), error[0])
    return error[0]
