"""Projected Gauss-Seidel: one row after the other takes the impulse that satisfies it, within its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..compiler import Scalar, any_lane, carry, clip, loop, memory, select, when, while_any
from .complementarity import bounds, diagonal, refine, residual
from .interior_point import check_settings, solve_interior_point
from .linear import TILE
from .system import System

NEWTON = 4  # iterations on the modes,
SWEEPS = 5  # between so many sweeps
STEPS = 40  # of the interior point method, if all that fails


@dataclass(frozen=True)
class ProjectedGaussSeidel:
    """The solver of the 2016 and 2021 papers: sweeps over the rows, starting from the impulses of the step before.

    iterations: at most so many sweeps; tolerance: the residual at which they end, a speed in m/s relative to 1 + the
    largest in the step (in float32 at least 1e-5). erp: the part of a penetration that a step corrects. cfm:
    softness of all constraints, (m/s) per N s. exact: see between the sweeps whether the impulses tell which contacts
    stick, slide and separate, since then a linear solve gives the solution itself; and where the sweeps do not get
    there, use the interior point method. Without, convergence is left to the sweeps alone.
    """

    iterations: int = 30
    tolerance: float = 1e-10
    erp: float = 0.2
    cfm: float = 0.0
    exact: bool = True

    def __post_init__(self) -> None:
        check_settings(self, "iterations")


def sweep(system: System, impulse: Any, active: Any) -> None:
    """λ ← clip(λ - w / d), row by row, in the lanes that are `active` (mask)."""
    n, total = system.count, carry(1)
    for r in loop(n):
        row = system.W.at(r * n)
        total[0] = system.b[r] + system.extra[r] * impulse[r]
        for m in loop(n // TILE):
            w, x = row.get(m, TILE), impulse.get(m, TILE)
            for k in range(TILE):
                total[0] = total[0] + w[k] * x[k]
        speed = total[0]
        low, high = bounds(system, impulse, r)
        x = impulse[r]
        impulse[r] = select(active, clip(x - speed / diagonal(system, r), low, high), x)


def solve_by_sweeps(system: System, iterations: int, tolerance: float, exact: bool) -> Scalar:
    """From the impulses of the system to its solution, in place; returns the residual."""
    most = system.constraints.nimpulse + TILE
    impulse, speed, mode, trial, error = system.impulse, memory(most), memory(most), memory(most), memory(1)
    error[0] = residual(system, impulse, speed)
    sweeps = SWEEPS if exact else 1
    for _ in while_any(lambda: error[0] > tolerance, -(-iterations // sweeps)):
        if exact:
            refine(system, impulse, speed, trial, mode, error, tolerance, NEWTON)
        active = error[0] > tolerance
        for _ in while_any(lambda: error[0] > tolerance, sweeps):
            sweep(system, impulse, active)
        error[0] = select(active, residual(system, impulse, speed), error[0])
    return error[0]


def solve_gauss_seidel(system: System, solver: ProjectedGaussSeidel) -> Scalar:
    """`solve_by_sweeps`, and where that is not enough, the interior point method."""
    error = memory(1)
    error[0] = solve_by_sweeps(system, solver.iterations, solver.tolerance, solver.exact)
    if solver.exact:
        failed = error[0] > solver.tolerance
        for _ in when(any_lane(failed)):
            trial = memory(system.constraints.nimpulse + TILE)
            other = solve_interior_point(system, trial, failed, STEPS, solver.tolerance)
            better = failed & (other < error[0])
            for r in loop(system.count):
                system.impulse[r] = select(better, trial[r], system.impulse[r])
            error[0] = select(better, other, error[0])
    return error[0]
