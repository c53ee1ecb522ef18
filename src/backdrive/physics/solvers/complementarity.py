"""What both solvers of a `System` share: its residual, and its exact solution once it is known which bounds hold.

A row is free (its speed is zero), at its lower bound (separating; sliding backwards) or at its upper bound. Given these
modes the impulses solve a linear system B λ = c. The modes follow from the impulses of any solver, and so does the
derivative of its solution (`contact_adjoint`): Bᵀ y = λ̄.
"""

from __future__ import annotations

import math
from typing import Any

from ...ir import Scalar, absolute, carry, clip, loop, maximum, memory, select, while_any
from ..constraints.delassus import INFINITE, ContactProblem
from ..math.linear import TILE, factor_lu, multiply, solve_lu

NEARLY = 1e-6  # of the largest speed: what is slower than that sticks, or presses
ALIKE = 1e-5  # of the largest speed: speeds that differ by more are those of another solution


def check_settings(solver: Any, count: str) -> None:
    """Raise for numbers that no solver can have; count: the name of its number of iterations."""
    most, name = getattr(solver, count), type(solver).__name__
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(f"{name}: {count} must be an integer >= 1, got {most!r}")
    for field, fine, rule in (
        ("tolerance", lambda x: x > 0, "> 0"),
        ("erp", lambda x: 0 <= x <= 1, "between 0 and 1"),
        ("cfm", lambda x: x >= 0, ">= 0"),
    ):
        x = getattr(solver, field)
        if isinstance(x, bool) or not isinstance(x, int | float) or not math.isfinite(x) or not fine(x):
            raise ValueError(f"{name}: {field} must be a number {rule}, got {x!r}")


def bounds(problem: ContactProblem, impulse: Any, r: Any) -> tuple[Scalar, Scalar]:
    """Of row r, for the current impulse of its normal."""
    most = problem.mu[r] * impulse[problem.normal[r]]
    return problem.low[r] - most, problem.high[r] + most


def diagonal(problem: ContactProblem, r: Any) -> Scalar:
    """Of W + extra."""
    return problem.diagonal[r]


def speeds_after(problem: ContactProblem, impulse: Any, speed: Any) -> None:
    """speed = W λ + extra λ + b"""
    n = problem.count
    for r in loop(n):
        speed[r] = problem.b[r] + problem.extra[r] * impulse[r]
    multiply(problem.W, n, impulse, speed)


def residual(problem: ContactProblem, impulse: Any, speed: Any) -> Scalar:
    """The largest violation of the conditions, as a speed (m/s, rad/s), relative to 1 + the largest speed in b."""
    speeds_after(problem, impulse, speed)
    worst = carry(1)
    worst[0] = 0.0
    for r in loop(problem.count):
        d = diagonal(problem, r)
        low, high = bounds(problem, impulse, r)
        x = d * impulse[r]
        # In the order of maximum(): a NaN is kept.
        worst[0] = maximum(worst[0], absolute(x - clip(x - speed[r], d * low, d * high)))
    return worst[0] * problem.unit[0]


def modes(problem: ContactProblem, impulse: Any, speed: Any, mode: Any) -> None:
    """mode [n]: -1 at the lower bound, 1 at the upper, 0 free; where a projected step from the impulses leads to."""
    for r in loop(problem.count):
        low, high = bounds(problem, impulse, r)
        x, d = impulse[r], diagonal(problem, r)
        mode[r] = select(d * (x - low) <= speed[r], -1.0, select(d * (x - high) >= speed[r], 1.0, 0.0))


def mode_matrix(problem: ContactProblem, mode: Any) -> None:
    """B: free rows of W, and λ ± μ λₙ = bound where a bound holds; factored in place."""
    n, B = problem.count, problem.B
    for K in loop(n // TILE):
        rows, free = K * (TILE * n), [x == 0.0 for x in mode.get(K, TILE)]
        for m in loop(n // TILE):
            source, target = problem.W.at(rows + m * TILE), B.at(rows + m * TILE)
            for r in range(TILE):
                for c in range(TILE):
                    target.at(r * n)[c] = select(free[r], source.at(r * n)[c], 0.0)
    for r in loop(n):
        row, normal = B.at(r * n), problem.normal[r]
        row[r] = select(mode[r] == 0.0, row[r] + problem.extra[r], 1.0)
        row[normal] = row[normal] - mode[r] * problem.mu[r]
        problem.factored[r] = mode[r]
    factor_lu(B, n)


def solve_modes(problem: ContactProblem, mode: Any, impulse: Any) -> None:
    """The impulses for these modes."""
    mode_matrix(problem, mode)
    for r in loop(problem.count):
        bound = select(mode[r] < 0.0, problem.low[r], problem.high[r])
        impulse[r] = select(mode[r] == 0.0, -problem.b[r], bound)
    solve_lu(problem.B, problem.count, impulse)


def recall(problem: ContactProblem, speed: Any, tolerance: float) -> Scalar:
    """Where v⁺ is known (`system.known`), the impulses that led there, in place; returns their residual.

    A problem with friction may have several solutions: the adjoint must find the one that the step had. The speeds
    after it say which rows are free. Where no solution with these speeds follows (v⁺ is that of a later stretch), all
    stays as it was, and the residual is infinite.
    """
    n, most = problem.count, problem.constraints.nimpulse + TILE
    mode, trial, least = memory(most), memory(most), NEARLY / problem.unit[0]
    for r in loop(n):
        s, apart = problem.after[r], (problem.mu[r] > 0.0) & (problem.after[problem.normal[r]] > least)
        below = (problem.low[r] > -INFINITE) & ((s > least) | apart)
        above = (problem.high[r] < INFINITE) & (s < -least)
        mode[r] = select(below, -1.0, select(above, 1.0, 0.0))
    solve_modes(problem, mode, trial)
    error = residual(problem, trial, speed)
    other = carry(1)
    other[0] = 0.0
    for r in loop(n):
        other[0] = maximum(other[0], absolute(speed[r] - problem.extra[r] * trial[r] - problem.after[r]))
    found = (error <= tolerance) & (other[0] * problem.unit[0] <= ALIKE) & (problem.known[0] > 0.5)
    for r in loop(n):
        problem.impulse[r] = select(found, trial[r], problem.impulse[r])
    return select(found, error, INFINITE)


def refine(
    problem: ContactProblem,
    impulse: Any,
    speed: Any,
    trial: Any,
    mode: Any,
    error: Any,
    tolerance: float,
    iterations: int,
) -> None:
    """Newton's method on the modes, in lanes whose error[0] (the residual) is above the tolerance.

    The modes of the impulses give other impulses, whose modes give the next ones: a few iterations end at the solution
    if they start near it. What is better than `impulse` replaces it. speed: of the impulses; overwritten.
    """
    n = problem.count
    going = memory(1)
    going[0] = error[0]
    for r in loop(n):
        trial[r] = impulse[r]
    for _ in while_any(lambda: going[0] > tolerance, iterations):
        modes(problem, trial, speed, mode)
        solve_modes(problem, mode, trial)
        now = residual(problem, trial, speed)
        active = going[0] > tolerance
        better = active & (now < error[0])
        for r in loop(n):
            impulse[r] = select(better, trial[r], impulse[r])
        error[0] = select(better, now, error[0])
        going[0] = select(active, now, going[0])
