"""Projected Gauss-Seidel: one row after the other takes the impulse that satisfies it, within its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..compiler import Scalar, any_lane, carry, clip, loop, memory, select, when, while_any
from .complementarity import bounds, diagonal, refine, residual
from .linear import TILE
from .system import System

NEWTON = 4  # iterations on the modes, before each sweep


@dataclass(frozen=True)
class ProjectedGaussSeidel:
    """The solver of the 2016 and 2021 papers: sweeps over the rows, starting from the impulses of the step before.

    iterations: at most so many sweeps; tolerance: the residual at which they end, a speed in m/s relative to 1 + the
    largest in the step (in float32 at least 1e-5). erp: the part of a penetration or drift that a step corrects. cfm:
    softness of all constraints, (m/s) per N s. exact: before each sweep, see whether the impulses tell which contacts
    stick, slide and separate; then a linear solve gives the solution itself. Without, convergence is left to the sweeps
    alone.
    """

    iterations: int = 60
    tolerance: float = 1e-11
    erp: float = 0.2
    cfm: float = 0.0
    exact: bool = True


def sweep(system: System, impulse: Any, active: Any) -> None:
    """λ ← clip(λ - w / d), row by row, in the lanes that are `active` (mask)."""
    n, total = system.count, carry(TILE)
    for r in loop(n):
        row = system.W.at(r * n)
        total[0] = system.b[r] + system.extra[r] * impulse[r]
        for k in range(1, TILE):
            total[k] = 0.0
        for m in loop(n // TILE):
            w, x = row.get(m, TILE), impulse.get(m, TILE)
            for k in range(TILE):
                total[k] = total[k] + w[k] * x[k]
        speed = total[0]
        for k in range(1, TILE):
            speed = speed + total[k]
        low, high = bounds(system, impulse, r)
        x = impulse[r]
        impulse[r] = select(active, clip(x - speed / diagonal(system, r), low, high), x)


def solve_gauss_seidel(system: System, solver: ProjectedGaussSeidel) -> Scalar:
    """From the impulses of the system to its solution, in place; returns the residual."""
    most = system.constraints.nimpulse + TILE
    impulse, speed, mode, trial = system.impulse, memory(most), memory(most), memory(most)
    error = memory(1)
    error[0] = residual(system, impulse, speed)
    for _ in while_any(lambda: error[0] > solver.tolerance, solver.iterations):
        if solver.exact:
            refine(system, impulse, speed, trial, mode, error, solver.tolerance, NEWTON)
        active = error[0] > solver.tolerance
        for _ in when(any_lane(active)):
            sweep(system, impulse, active)
            error[0] = select(active, residual(system, impulse, speed), error[0])
    return error[0]
