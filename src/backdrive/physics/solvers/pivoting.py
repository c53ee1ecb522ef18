"""From any impulses to the exact solution of a `System`: Lemke's method on the modes of its rows.

To b is added t d. At t = 1 the impulses and modes are known; while t falls to 0 the impulses move along straight lines,
λ(t) = p - t r, that turn where a free row meets a bound, or a row at a bound has no more reason to be there. One row
then changes its mode, and t goes on in the direction in which this row may move, which may be up again. A turn costs a
factorisation.

From impulses that are nearly right, d makes them right and few turns are needed. If that leads nowhere, the way starts
where all rows are at their lower bounds: no mode comes twice on it, and for contacts with friction it ends at a
solution (Anitescu and Potra 1997; Cottle, Pang and Stone, The Linear Complementarity Problem, chapter 4).
"""

from __future__ import annotations

from typing import Any

from ...ir import Scalar, absolute, carry, clip, loop, maximum, memory, select, to_float, when, while_any
from ..constraints.delassus import INFINITE, ContactProblem
from ..math.linear import TILE, multiply, solve_lu
from .complementarity import bounds, residual, solve_modes, speeds_after
from .pivot_rules import bound_slacks, parametric_term, pivot_distance, sliding_code, spread

NEAR_TURNS = 2  # at most so many for each row, from impulses that are nearly right,
FAR_TURNS = 6  # and from the lower bounds;
MORE = 10  # and these
FAR = 1e12  # if no row turns before t has gone so far, there is no solution on this way
AT = 1e-6  # so close to a bound, relative to it, an impulse starts there
MARGIN = 1e-3  # how safely rows at a bound are there at the start, relative to the largest speed


def solve_by_pivoting(problem: ContactProblem, error: Any, tolerance: float) -> None:
    """Improve the impulses of the system in lanes whose error[0], their residual, is above the tolerance."""
    most = problem.constraints.nimpulse + TILE
    mode, d, p, speed = (memory(most) for _ in range(4))
    for attempt in while_any(lambda: error[0] > tolerance, 2):
        wanted = error[0] > tolerance
        for _ in when(attempt == 0):
            begin_near(problem, mode, d, p, speed)
        for _ in when(attempt == 1):
            begin_far(problem, mode, d, p, speed)
        turns = NEAR_TURNS + attempt * (FAR_TURNS - NEAR_TURNS)
        follow(problem, mode, d, p, speed, wanted, turns * problem.count + MORE)
        now = residual(problem, p, speed)
        better = wanted & (now < error[0])
        for k in loop(problem.count):
            problem.impulse[k] = select(better, p[k], problem.impulse[k])
        error[0] = select(better, now, error[0])


def begin_near(problem: ContactProblem, mode: Any, d: Any, p: Any, speed: Any) -> None:
    """Modes of the system's impulses, and d that makes them right at t = 1. p, speed: overwritten."""
    n, scale = problem.count, 1.0 / problem.unit[0]
    for k in loop(n):
        low, high = bounds(problem, problem.impulse, k)
        x = problem.impulse[k]
        mode[k] = select(x <= low + AT * absolute(low), -1.0, select(x >= high - AT * absolute(high), 1.0, 0.0))
    for k in loop(n):
        p[k] = clip(problem.impulse[k], *bounds(problem, problem.impulse, k))
    speeds_after(problem, p, speed)
    for k in loop(n):
        mode[k] = select(idle(problem, mode, k), sliding_code(speed[k]), mode[k])
        margin = MARGIN * scale * (0.5 + fraction(problem, k))
        d[k] = select(counts(problem, k), parametric_term(mode[k], speed[k], margin), 0.0)


def begin_far(problem: ContactProblem, mode: Any, d: Any, p: Any, speed: Any) -> None:
    """All rows but equations at their lower bounds; they are kept there by d at t = 1. p, speed: overwritten."""
    n = problem.count
    for k in loop(n):
        equation = (problem.low[k] <= -INFINITE) & (problem.high[k] >= INFINITE)
        mode[k] = select(equation, 0.0, -1.0)
    solve_modes(problem, mode, p)
    speeds_after(problem, p, speed)
    least = carry(1)
    least[0] = 0.0
    for k in loop(n):
        rough = problem.mu[k] > 0.0
        pushed = (mode[k] < 0.0) & ~rough & counts(problem, k)
        mode[k] = select(rough, sliding_code(speed[k]), mode[k])
        d[k] = select(pushed, 0.5 + fraction(problem, k), 0.0)
        least[0] = maximum(least[0], select(pushed, -speed[k] / select(pushed, d[k], 1.0), 0.0))
    for k in loop(n):
        d[k] = d[k] * (1.01 * least[0] + 1e-30)


def follow(problem: ContactProblem, mode: Any, d: Any, p: Any, speed: Any, wanted: Any, turns: Any) -> None:
    """The way from t = 1 to 0, in lanes where it is `wanted` (mask): p becomes the impulses there."""
    most, n = problem.constraints.nimpulse + TILE, problem.count
    r, slope = memory(most), memory(most)
    t, last, side, going = (memory(1) for _ in range(4))  # last: the row that turned; side: its mode before
    t[0], last[0], side[0], going[0] = 1.0, -1.0, 0.0, select(wanted, 1.0, 0.0)
    found, next_row, next_mode = carry(1), carry(1), carry(1)
    for _ in while_any(lambda: going[0] > 0.0, turns):
        lines(problem, mode, d, p, r, speed, slope)
        found[0] = -1.0
        for k in loop(n):
            below, above = slacks(problem, mode, p, r, speed, slope, k)
            grows = select((mode[k] == 0.0) & (side[0] > 0.0), above[1], below[1])
            found[0] = select(last[0] == to_float(k), grows, found[0])
        fall = select(found[0] < 0.0, 1.0, -1.0)  # -dt: what turned last goes away from where it turned
        found[0], next_row[0], next_mode[0] = FAR, -1.0, 0.0
        for k in loop(n):
            number, free = to_float(k), mode[k] == 0.0
            turned = last[0] == number
            for sign, (slack, grows) in zip((-1.0, 1.0), slacks(problem, mode, p, r, speed, slope, k), strict=True):
                leaving = turned & (~free | (side[0] == sign))
                closing = (fall * grows > 0.0) & ~leaving
                far = pivot_distance(slack, grows, t[0], fall, closing)
                sooner = closing & (far < found[0])
                found[0] = select(sooner, far, found[0])
                next_row[0] = select(sooner, number, next_row[0])
                next_mode[0] = select(sooner, select(free, sign, 0.0), next_mode[0])
        arrived = (fall > 0.0) & (t[0] <= found[0])
        turning = (going[0] > 0.0) & ~arrived & (next_row[0] >= 0.0)
        going[0] = select(turning, 1.0, 0.0)
        t[0] = select(turning, t[0] - fall * found[0], t[0])
        last[0] = select(turning, next_row[0], last[0])
        for k in loop(n):
            turns_now, before = turning & (next_row[0] == to_float(k)), mode[k]
            side[0] = select(turns_now, before, side[0])
            after = select((before != 0.0) & idle(problem, mode, k), -before, next_mode[0])
            mode[k] = select(turns_now, after, before)
    # Of what friction that jams has cost in digits, a correction by the same factors brings most back.
    speeds_after(problem, p, speed)
    for k in loop(n):
        low, high = bounds(problem, p, k)
        r[k] = select(mode[k] == 0.0, -speed[k], select(mode[k] < 0.0, low, high) - p[k])
    solve_lu(problem.B, n, r)
    for k in loop(n):
        p[k] = p[k] + r[k]


def lines(problem: ContactProblem, mode: Any, d: Any, p: Any, r: Any, speed: Any, slope: Any) -> None:
    """λ = p - t r and W λ + extra λ + b + t d = speed + t slope, for these modes."""
    n = problem.count
    solve_modes(problem, mode, p)
    speeds_after(problem, p, speed)
    for k in loop(n):
        r[k] = select(mode[k] == 0.0, d[k], 0.0)
    solve_lu(problem.B, n, r)
    for k in loop(n):
        slope[k] = problem.extra[k] * r[k]
    multiply(problem.W, n, r, slope)
    for k in loop(n):
        slope[k] = d[k] - slope[k]


def slacks(
    problem: ContactProblem, mode: Any, p: Any, r: Any, speed: Any, slope: Any, k: Any
) -> tuple[tuple[Scalar, Scalar], tuple[Scalar, Scalar]]:
    """How far row k is from changing its mode, as (a, b) of a + b t: for a free row from its lower and upper bound.

    For a row at a bound it is its speed away from it: the first of the two; the second then never closes.
    """
    m, free = mode[k], mode[k] == 0.0
    most, most_grows = problem.mu[k] * p[problem.normal[k]], -problem.mu[k] * r[problem.normal[k]]
    slack_below, slack_above = bound_slacks(p[k], problem.low[k], problem.high[k], most)
    below, above = (slack_below, most_grows - r[k]), (slack_above, most_grows + r[k])
    return (
        (select(free, below[0], -m * speed[k]), select(free, below[1], -m * slope[k])),
        (select(free, above[0], 1.0), select(free, above[1], 0.0)),
    )


def idle(problem: ContactProblem, mode: Any, k: Any) -> Any:
    """Whether row k is friction of a contact that does not press (mask): both its bounds are zero, so that it is at the
    one or the other by the direction in which it slides."""
    return (problem.mu[k] > 0.0) & (mode[problem.normal[k]] < 0.0)


def counts(problem: ContactProblem, k: Any) -> Any:
    """Whether row k can have an impulse at all (mask)."""
    return (problem.low[k] < problem.high[k]) | (problem.mu[k] > 0.0)


def fraction(problem: ContactProblem, k: Any) -> Scalar:
    """A number in [0, 1), unlike that of other rows, lest two turn at once; it is the same whatever rows there are."""
    return spread(problem.place[k])
