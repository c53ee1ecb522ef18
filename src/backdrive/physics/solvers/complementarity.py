"""What solvers of a `ContactProblem` share: its residual, and its exact solution once the active set is known.

Given the active set (`active_set`), the impulses solve a linear system B λ = c: a free row says that its speed is zero,
a clamped row that its impulse equals its bound. An active set follows from the impulses of any solver, and so does the
derivative of the solution (`constrain_adjoint`): Bᵀ y = λ̄.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...ir import (
    Index,
    Mask,
    Scalar,
    ScalarArray,
    absolute,
    carry,
    clip,
    interruptible,
    loop,
    maximum,
    memory,
    minimum,
    select,
    while_any,
)
from ..math.linear import TILE, factor_lu, solve_lu
from .active_set import FREE, LOWER, ROUNDED, UPPER

if TYPE_CHECKING:
    from ..constraints.problem import ContactProblem


def bounds(problem: ContactProblem, impulse: ScalarArray, r: Index) -> tuple[Scalar, Scalar]:
    """The bounds of row r (N s), for the impulse that its normal has now."""
    widening = problem.mu[r] * impulse[problem.normal[r]]
    return problem.low[r] - widening, problem.high[r] + widening


def counts(problem: ContactProblem, r: Index) -> Mask:
    """Whether row r can have an impulse at all."""
    return (problem.low[r] < problem.high[r]) | (problem.mu[r] > 0.0)


def evaluate_speeds(problem: ContactProblem, impulse: ScalarArray, speed: ScalarArray) -> None:
    """speed [n] = W λ + R λ + b"""
    n = problem.count
    for r in loop(n):
        speed[r] = problem.b[r] + problem.compliance[r] * impulse[r]
    problem.delassus.apply(impulse, speed, n)


def residual(problem: ContactProblem, impulse: ScalarArray, speed: ScalarArray) -> Scalar:
    """The largest violation of the complementarity conditions, as a speed (m/s, rad/s), relative to 1 + the largest
    speed in b. speed [n]: becomes the speeds of the impulses."""
    evaluate_speeds(problem, impulse, speed)
    worst = carry(1)
    worst[0] = 0.0
    for r in loop(problem.count):
        d = problem.diagonal[r]
        low, high = bounds(problem, impulse, r)
        x = d * impulse[r]
        # maximum() returns its second argument if one of them is NaN: in this order, a NaN is kept.
        worst[0] = maximum(worst[0], absolute(x - clip(x - speed[r], d * low, d * high)))
    return worst[0] * problem.unit[0]


def find_active_set(problem: ContactProblem, impulse: ScalarArray, speed: ScalarArray, active_set: ScalarArray) -> None:
    """active_set [n]: the bounds at which a projected step from the impulses ends; speed [n]: of the impulses."""
    for r in loop(problem.count):
        low, high = bounds(problem, impulse, r)
        x, d = impulse[r], problem.diagonal[r]
        active_set[r] = select(d * (x - low) <= speed[r], LOWER, select(d * (x - high) >= speed[r], UPPER, FREE))


def active_set_of_solution(
    problem: ContactProblem, speed: ScalarArray, tolerance: Scalar, active_set: ScalarArray
) -> None:
    """active_set [n]: the one whose equations the problem's impulses satisfy; speed [n]: of the impulses.

    A solution is exact up to the tolerance (m/s, rad/s): an impulse at its bound may have a speed of the wrong sign,
    and a free one may lie beyond its bound. A projected step (`find_active_set`) from there leads to another active
    set, whose own impulses may be far away. So, of the two equations of such a row, the one counts that holds; that of
    the bound, if both do: an impulse that is free meets a bound by chance only, but a speed may be zero whatever the
    impulse is (where a corner slides on two surfaces at once, its friction does no work on its motion).
    """
    find_active_set(problem, problem.impulse, speed, active_set)
    for r in loop(problem.count):
        low, high = bounds(problem, problem.impulse, r)
        x, d, code = problem.impulse[r], problem.diagonal[r], active_set[r]
        below, above = absolute(d * (x - low)), absolute(d * (high - x))
        bound, off = minimum(below, above), maximum(absolute(speed[r]), ROUNDED * absolute(d * x))
        close = maximum(bound, off) <= tolerance
        code = select(close & (off < bound), FREE, code)
        at_bound = (bound <= off) & (absolute(speed[r]) <= tolerance) & (code == FREE)
        active_set[r] = select(at_bound, select(below < above, LOWER, UPPER), code)


def guess_active_set(problem: ContactProblem, active_set: ScalarArray) -> None:
    """active_set [n]: where every row would be if it were alone, or (friction) alone with its normal.

    So rows that approach press, and those that slide no faster than their friction can stop stick.
    """
    for r in loop(problem.count):
        normal = problem.normal[r]
        pressing = maximum(-problem.b[normal] / problem.diagonal[normal], 0.0)
        low, high = problem.low[r] - problem.mu[r] * pressing, problem.high[r] + problem.mu[r] * pressing
        x = -problem.b[r] / problem.diagonal[r]
        active_set[r] = select(x <= low, LOWER, select(x >= high, UPPER, FREE))


def factor_active_set(problem: ContactProblem, active_set: ScalarArray) -> None:
    """Factor the matrix B of an active set in place: free rows of W + R, and λ ± μ λₙ = bound for clamped rows."""
    n, W, B = problem.count, problem.delassus.W, problem.delassus.B
    for K in loop(n // TILE):
        rows, free = K * (TILE * n), [x == FREE for x in active_set.get(K, TILE)]
        for m in loop(n // TILE):
            source, target = W.at(rows + m * TILE), B.at(rows + m * TILE)
            for r in range(TILE):
                for c in range(TILE):
                    target.at(r * n)[c] = select(free[r], source.at(r * n)[c], 0.0)
    for r in loop(n):
        row, normal = B.at(r * n), problem.normal[r]
        row[r] = select(active_set[r] == FREE, row[r] + problem.compliance[r], 1.0)
        row[normal] = row[normal] - active_set[r] * problem.mu[r]
        problem.factored[r] = active_set[r]
    factor_lu(B, n)


def solve_active_set(problem: ContactProblem, active_set: ScalarArray, impulse: ScalarArray) -> None:
    """impulse [n]: the impulses for this active set."""
    factor_active_set(problem, active_set)
    for r in loop(problem.count):
        bound = select(active_set[r] < FREE, problem.low[r], problem.high[r])
        impulse[r] = select(active_set[r] == FREE, -problem.b[r], bound)
    solve_lu(problem.delassus.B, problem.count, impulse)


class Candidate(NamedTuple):
    """Impulses [n] that are to be improved, and memory for it: their speeds [n], trial impulses and an active set."""

    impulse: ScalarArray
    speed: ScalarArray
    trial: ScalarArray
    active_set: ScalarArray


def refine(
    problem: ContactProblem, candidate: Candidate, error: ScalarArray, tolerance: float, iterations: int
) -> Mask:
    """Newton's method on the active set, in lanes whose error[0], the residual of the impulses, exceeds the tolerance,
    as far as the budget of the step allows.

    The active set of the impulses gives other impulses, whose active set gives the next ones. Close to the solution, a
    few iterations lead to it; where an active set leads to itself, nothing but rounding is left. Impulses with a
    smaller residual replace the candidate's; `candidate.speed` must be that of its impulses, and is overwritten.
    Returns the lanes in which the active set was still changing after the last iteration.
    """
    n, (impulse, speed, trial, active_set) = problem.count, candidate
    going, changes = memory(1), carry(1)
    going[0] = select(problem.work.allowed(), error[0], 0.0)
    for r in loop(n):
        trial[r] = impulse[r]
    find_active_set(problem, trial, speed, active_set)
    for _ in interruptible(while_any(lambda: going[0] > tolerance, iterations)):
        solve_active_set(problem, active_set, trial)
        now = residual(problem, trial, speed)
        active = going[0] > tolerance
        problem.work.spend(active)
        better = active & (now < error[0])
        for r in loop(n):
            impulse[r] = select(better, trial[r], impulse[r])
        error[0] = select(better, now, error[0])
        find_active_set(problem, trial, speed, active_set)
        changes[0] = 0.0
        for r in loop(n):
            changes[0] = changes[0] + absolute(active_set[r] - problem.factored[r])
        going[0] = select(active & (changes[0] > 0.0) & problem.work.allowed(), now, 0.0)
    return going[0] > tolerance
