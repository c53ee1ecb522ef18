"""The correction of positions in a step: impulses π, of which p = A⁻¹ Jᵀ π is a motion that is used once and discarded.

Equations are satisfied, and every penetration is reduced by a part `erp` of it. A contact or limit only pushes: which
of them do is found by pivoting.
"""

from __future__ import annotations

from ...ir import (
    Index,
    Mask,
    Scalar,
    ScalarArray,
    any_lane,
    carry,
    clip,
    interruptible,
    loop,
    maximum,
    memory,
    select,
    to_float,
    when,
    while_any,
)
from ...schema.layout import EqualityKind
from ..math.linear import factor_lu, solve_lu
from ..solvers.active_set import INFINITE, NO_ACTIVE_SET
from .problem import ContactProblem

# An equation is corrected by at most this much (m or rad) in one step, however large its violation.
REACH = 0.05

# The compliance of an equation that is violated by REACH, relative to the inverse mass it acts on.
DAMPING = 1.0

# A row that comes out more slowly than asked by less than this part of the fastest correction is fast enough.
SPEED_TOLERANCE = 1e-9

# Block pivoting may fail to reduce the number of wrong rows this many times in a row; then rows pivot one by one.
PATIENCE = 3.0

# Sweeps where there is no time for pivoting.
SWEEPS = 30

# At most this many pivots per row of the problem.
PIVOTS_PER_ROW = 4


def is_equation(problem: ContactProblem, r: Index) -> Mask:
    """Whether row r has no bounds."""
    return (problem.low[r] <= -INFINITE) & (problem.high[r] >= INFINITE)


def factor_correction(problem: ContactProblem, pushes: ScalarArray) -> None:
    """Factor W + R of the rows that correct positions (pushes [n]: 1 or 0), in `delassus.B`; other rows have π = 0.

    Equations are damped. Otherwise two that nearly contradict each other, such as two rods in one line that are both
    too short, would move bodies as far as it takes to satisfy both.
    """
    n, W, B = problem.count, problem.delassus.W, problem.delassus.B
    problem.factored[0] = NO_ACTIVE_SET
    for r in loop(n):
        row, source = B.at(r * n), W.at(r * n)
        counts = pushes[r] > 0.5
        for c in loop(n):
            row[c] = select(counts & (pushes[c] > 0.5), source[c], 0.0)
        row[r] = row[r] + select(counts, problem.compliance[r], 1.0)
    constraints = problem.constraints
    for i in loop(constraints.head("nequality")):  # equations are the first rows
        kind, support = constraints.equality(i)
        for each in EqualityKind:
            for _ in when(kind == int(each)):
                scale = constraints.inverse_mass(support, int(each == EqualityKind.ABOUT))
                B[i * n + i] = B[i * n + i] + scale * damping(problem.violation[i])
    factor_lu(B, n)


def reachable(error: Scalar) -> Scalar:
    """The part of an equation's violation that one step corrects: contradictory equations must not throw bodies."""
    return clip(error, -REACH, REACH)


def damping(violation: Scalar) -> Scalar:
    """The compliance of an equation, relative to the inverse mass; zero where it is satisfied (Levenberg 1944)."""
    return (DAMPING / REACH**2) * violation * violation


def correct(
    problem: ContactProblem, erp: float, duration: Scalar, correction: ScalarArray, pushes: ScalarArray
) -> Mask:
    """Find π [n] (`correction`), with J A⁻¹ Jᵀ π = -violation / duration for equations; duration: of the substep, s.

    Penetrations are complementary: each is reduced by at least a part `erp`, π ≥ 0, and by exactly that part where
    π > 0, which is where `pushes` [n] is 1. If penetrations were equations, of two contacts at nearly the same place,
    one of them deeper, one would pull and turn the body.

    Guess which rows push; then remove those that pull and add those that come out too slowly: all of them as long as
    their number falls, otherwise one at a time, which terminates (block principal pivoting, Júdice and Pires 1994).
    Returns the lanes in which the budget of the step does not suffice for it: there, sweeps find roughly what pushes.
    """
    n, most = problem.count, problem.capacity
    speed, wrong = memory(most), memory(most)
    going, fewest, patience, left, failed = (memory(1) for _ in range(5))
    possible = problem.work.possible() & problem.work.wanted
    going[0], fewest[0], patience[0] = 0.0, INFINITE, PATIENCE
    left[0], failed[0] = PIVOTS_PER_ROW * problem.work.rows[0], select(problem.work.wanted & ~possible, 1.0, 0.0)
    number, last, tolerance = carry(1), carry(1), carry(1)
    tolerance[0] = 0.0
    for r in loop(n):
        deep = ~is_equation(problem, r) & (problem.violation[r] < 0.0)
        pushes[r] = select(possible & (deep | is_equation(problem, r)), 1.0, 0.0)
        going[0] = maximum(going[0], pushes[r])  # a lane with nothing to correct spends nothing
        correction[r] = 0.0
        tolerance[0] = maximum(
            tolerance[0], select(deep, -SPEED_TOLERANCE * erp / duration * problem.violation[r], 0.0)
        )
    for _ in interruptible(while_any(lambda: going[0] > 0.0, PIVOTS_PER_ROW * n)):
        factor_correction(problem, pushes)
        problem.work.spend(going[0] > 0.0)
        left[0] = left[0] - 1.0
        for r in loop(n):
            rate = select(is_equation(problem, r), 1.0 / duration, erp / duration)
            correction[r] = select(pushes[r] > 0.5, -rate * problem.violation[r], 0.0)
        solve_lu(problem.delassus.B, n, correction)
        for r in loop(n):
            speed[r] = 0.0
        problem.delassus.apply(correction, speed, n)
        number[0], last[0] = 0.0, -1.0
        for r in loop(n):
            pushing, excess = pushes[r] > 0.5, speed[r] + erp / duration * problem.violation[r]
            slow = ~pushing & (problem.violation[r] < 0.0) & (excess < -tolerance[0])  # equations always push
            pulls = pushing & ~is_equation(problem, r) & (problem.diagonal[r] * correction[r] < -tolerance[0])
            wrong[r] = select(slow | pulls, 1.0, 0.0)
            number[0] = number[0] + wrong[r]
            last[0] = select(wrong[r] > 0.5, to_float(r), last[0])
        fewer = number[0] < fewest[0]
        together = fewer | (patience[0] > 0.0)
        patience[0] = select(fewer, PATIENCE, patience[0] - 1.0)
        fewest[0] = select(fewer, number[0], fewest[0])
        wanted, allowed = (going[0] > 0.0) & (number[0] > 0.0), (left[0] > 0.5) & problem.work.allowed()
        for r in loop(n):
            pivots = (wrong[r] > 0.5) & (together | (last[0] == to_float(r))) & wanted & allowed
            pushes[r] = select(pivots, 1.0 - pushes[r], pushes[r])
        failed[0] = select(wanted & ~allowed, 1.0, failed[0])
        going[0] = select(wanted & allowed, 1.0, 0.0)
    given_up = failed[0] > 0.5
    problem.work.use_up(given_up)
    for _ in when(any_lane(given_up)):
        sweep_corrections(problem, erp, duration, correction, given_up)
        for r in loop(n):
            pushes[r] = select(given_up, select((correction[r] > 0.0) | is_equation(problem, r), 1.0, 0.0), pushes[r])
    return given_up


def sweep_corrections(
    problem: ContactProblem, erp: float, duration: Scalar, correction: ScalarArray, where: Mask
) -> None:
    """Find π [n] by sweeps over the rows (Gauss-Seidel), in the lanes `where`."""
    n, total = problem.count, carry(1)
    for r in loop(n):
        correction[r] = select(where, 0.0, correction[r])
    for _ in interruptible(while_any(lambda: where, SWEEPS)):
        for r in loop(n):
            equation, x = is_equation(problem, r), correction[r]
            row, rate = problem.delassus.W.at(r * n), select(equation, 1.0 / duration, erp / duration)
            total[0] = rate * problem.violation[r] + problem.compliance[r] * x
            for c in loop(n):
                total[0] = total[0] + row[c] * correction[c]
            solved = x - total[0] / problem.diagonal[r]
            wanted = select(equation, solved, select(problem.violation[r] < 0.0, maximum(solved, 0.0), 0.0))
            correction[r] = select(where, wanted, x)
