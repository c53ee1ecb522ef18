"""From any impulses to the exact solution of a `ContactProblem`: Lemke's method on its active set.

t d is added to b. At t = 1 the impulses and their active set are known. While t falls to 0, the impulses move along
straight lines λ(t) = p - t r, until a free row reaches a bound, or the speed of a clamped row reaches zero. That row
then changes its place in the active set (a pivot), and t continues in the direction in which the row may move, which
may be upwards. A pivot costs one factorisation.

From impulses that are nearly right, d makes them right, and few pivots are needed. If that leads nowhere, the path
starts with all rows at their lower bounds: no active set occurs twice on it, and for contacts with friction it ends at
a solution (Anitescu and Potra 1997; Cottle, Pang and Stone, The Linear Complementarity Problem, chapter 4).
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
    select,
    to_float,
    when,
    while_any,
)
from ..math.linear import solve_lu
from .active_set import CLAMPED, FREE, INFINITE, LOWER, NO_PIVOT, START_MARGIN, UPPER
from .complementarity import bounds, counts, evaluate_speeds, residual, solve_active_set
from .pivot_rules import bound_slacks, parametric_term, pivot_distance, sliding_code, spread

if TYPE_CHECKING:
    from ..constraints.problem import ContactProblem

# At most this many pivots per row, on a path from impulses that are nearly right, and on one from the lower bounds.
NEAR_PIVOTS, FAR_PIVOTS = 2, 6

# At most this many pivots more, whatever the number of rows.
MORE_PIVOTS = 10


class Line(NamedTuple):
    """A quantity that is linear in t: value + slope t."""

    value: Scalar
    slope: Scalar


class PivotPath:
    """The path of the impulses as t goes from 1 to 0. All arrays are [n].

    d: the direction that t adds to b. active_set: at the current t. p, speed: impulses and speeds at t = 0 for this
    active set. `follow` adds r and slope: λ(t) = p - t r, and the speeds are speed + t slope.
    """

    def __init__(self, problem: ContactProblem) -> None:
        self.problem = problem
        self.active_set, self.d, self.p, self.speed = (memory(problem.capacity) for _ in range(4))

    def improve(self, error: ScalarArray, wanted: Mask, far: Index) -> None:
        """Replace the problem's impulses, whose residual is error[0], by those at the end of the path, in the lanes
        `wanted` where these are better. far: 0 for the path from the impulses, 1 for that from the lower bounds."""
        problem = self.problem
        for _ in when(far == 0):
            self.begin_near()
        for _ in when(far == 1):
            self.begin_far()
        self.follow(wanted, NEAR_PIVOTS + far * (FAR_PIVOTS - NEAR_PIVOTS))
        now = residual(problem, self.p, self.speed)
        better = wanted & (now < error[0])
        for k in loop(problem.count):
            problem.impulse[k] = select(better, self.p[k], problem.impulse[k])
        error[0] = select(better, now, error[0])

    def begin_near(self) -> None:
        """Start from the active set of the problem's impulses, with a d for which they are the solution at t = 1."""
        problem, active_set, p, speed = self.problem, self.active_set, self.p, self.speed
        n, scale = problem.count, 1.0 / problem.unit[0]
        for k in loop(n):
            low, high = bounds(problem, problem.impulse, k)
            x = problem.impulse[k]
            at_lower, at_upper = x <= low + CLAMPED * absolute(low), x >= high - CLAMPED * absolute(high)
            active_set[k] = select(at_lower, LOWER, select(at_upper, UPPER, FREE))
        for k in loop(n):
            p[k] = clip(problem.impulse[k], *bounds(problem, problem.impulse, k))
        evaluate_speeds(problem, p, speed)
        for k in loop(n):
            active_set[k] = select(self._is_idle(k), sliding_code(speed[k]), active_set[k])
            margin = START_MARGIN * scale * (0.5 + fraction(problem, k))
            self.d[k] = select(counts(problem, k), parametric_term(active_set[k], speed[k], margin), 0.0)

    def begin_far(self) -> None:
        """Start with all rows but equations at their lower bounds, and a d that keeps them there at t = 1."""
        problem, active_set, d, p, speed = self.problem, self.active_set, self.d, self.p, self.speed
        n = problem.count
        for k in loop(n):
            equation = (problem.low[k] <= -INFINITE) & (problem.high[k] >= INFINITE)
            active_set[k] = select(equation, FREE, LOWER)
        solve_active_set(problem, active_set, p)
        evaluate_speeds(problem, p, speed)
        least = carry(1)
        least[0] = 0.0
        for k in loop(n):
            rough = problem.mu[k] > 0.0
            pushed = (active_set[k] < FREE) & ~rough & counts(problem, k)
            active_set[k] = select(rough, sliding_code(speed[k]), active_set[k])
            d[k] = select(pushed, 0.5 + fraction(problem, k), 0.0)
            least[0] = maximum(least[0], select(pushed, -speed[k] / select(pushed, d[k], 1.0), 0.0))
        for k in loop(n):
            d[k] = d[k] * (1.01 * least[0] + 1e-30)

    def follow(self, wanted: Mask, pivots_per_row: Index) -> None:
        """Go from t = 1 to 0 in the lanes `wanted`: p becomes the impulses there. pivots_per_row: at most
        so many for each row that can have an impulse, and a few more."""
        problem, active_set, n = self.problem, self.active_set, self.problem.count
        r, slope = memory(problem.capacity), memory(problem.capacity)
        t, last, side, going = (memory(1) for _ in range(4))  # last: the row that pivoted; side: its code before
        t[0], last[0], side[0], going[0] = 1.0, -1.0, 0.0, select(wanted, 1.0, 0.0)
        left = memory(1)
        left[0] = to_float(pivots_per_row) * problem.work.rows[0] + MORE_PIVOTS
        found, next_row, next_code = carry(1), carry(1), carry(1)
        for _ in interruptible(while_any(lambda: going[0] > 0.0, pivots_per_row * n + MORE_PIVOTS)):
            self._find_lines(r, slope)
            problem.work.spend(going[0] > 0.0)
            left[0] = left[0] - 1.0
            found[0] = -1.0
            for k in loop(n):
                below, above = self._slacks(r, slope, k)
                grows = select((active_set[k] == FREE) & (side[0] > 0.0), above.slope, below.slope)
                found[0] = select(last[0] == to_float(k), grows, found[0])
            fall = select(found[0] < 0.0, 1.0, -1.0)  # -dt: the row that pivoted last moves away from its pivot
            found[0], next_row[0], next_code[0] = NO_PIVOT, -1.0, 0.0
            for k in loop(n):
                number, free = to_float(k), active_set[k] == FREE
                pivoted = last[0] == number
                for bound, slack in zip((LOWER, UPPER), self._slacks(r, slope, k), strict=True):
                    leaving = pivoted & (~free | (side[0] == bound))
                    closing = (fall * slack.slope > 0.0) & ~leaving
                    far = pivot_distance(slack.value, slack.slope, t[0], fall, closing)
                    sooner = closing & (far < found[0])
                    found[0] = select(sooner, far, found[0])
                    next_row[0] = select(sooner, number, next_row[0])
                    next_code[0] = select(sooner, select(free, bound, FREE), next_code[0])
            arrived = (fall > 0.0) & (t[0] <= found[0])
            turning = (going[0] > 0.0) & ~arrived & (next_row[0] >= 0.0) & (left[0] > 0.5) & problem.work.allowed()
            going[0] = select(turning, 1.0, 0.0)
            t[0] = select(turning, t[0] - fall * found[0], t[0])
            last[0] = select(turning, next_row[0], last[0])
            for k in loop(n):
                pivots_now, before = turning & (next_row[0] == to_float(k)), active_set[k]
                side[0] = select(pivots_now, before, side[0])
                switches = self._is_idle(k) & (before != FREE)
                code = select(switches, -before, next_code[0])
                active_set[k] = select(pivots_now, code, before)
        self._correct(n, r)

    def _find_lines(self, r: ScalarArray, slope: ScalarArray) -> None:
        """Fill p and r of λ = p - t r, and W λ + R λ + b + t d = speed + t slope, for the current active set."""
        problem, n = self.problem, self.problem.count
        solve_active_set(problem, self.active_set, self.p)
        evaluate_speeds(problem, self.p, self.speed)
        for k in loop(n):
            r[k] = select(self.active_set[k] == FREE, self.d[k], 0.0)
        solve_lu(problem.delassus.B, n, r)
        for k in loop(n):
            slope[k] = problem.compliance[k] * r[k]
        problem.delassus.apply(r, slope, n)
        for k in loop(n):
            slope[k] = self.d[k] - slope[k]

    def _slacks(self, r: ScalarArray, slope: ScalarArray, k: Index) -> tuple[Line, Line]:
        """How far row k is from a pivot. A free row: the distances of its impulse from its lower and upper bound.

        A clamped row: the speed at which it presses against its bound; the second slack then never closes.
        """
        problem, p = self.problem, self.p
        code, free = self.active_set[k], self.active_set[k] == FREE
        widening = Line(problem.mu[k] * p[problem.normal[k]], -problem.mu[k] * r[problem.normal[k]])
        slack_below, slack_above = bound_slacks(p[k], problem.low[k], problem.high[k], widening.value)
        below, above = Line(slack_below, widening.slope - r[k]), Line(slack_above, widening.slope + r[k])
        return (
            Line(select(free, below.value, -code * self.speed[k]), select(free, below.slope, -code * slope[k])),
            Line(select(free, above.value, 1.0), select(free, above.slope, 0.0)),
        )

    def _correct(self, n: Index, r: ScalarArray) -> None:
        """Correct p once more by the same factors: that restores most of the digits that jamming friction costs."""
        problem, p, speed = self.problem, self.p, self.speed
        evaluate_speeds(problem, p, speed)
        for k in loop(n):
            low, high = bounds(problem, p, k)
            code = self.active_set[k]
            r[k] = select(code == FREE, -speed[k], select(code < FREE, low, high) - p[k])
        solve_lu(problem.delassus.B, n, r)
        for k in loop(n):
            p[k] = p[k] + r[k]

    def _is_idle(self, k: Index) -> Mask:
        """Whether row k is friction of a contact that does not press. Both its bounds are then zero, and it counts as
        clamped at the one or the other by the direction in which it slides."""
        return (self.problem.mu[k] > 0.0) & (self.active_set[self.problem.normal[k]] < FREE)


def fraction(problem: ContactProblem, k: Index) -> Scalar:
    """A number in [0, 1) that differs from row to row, so that no two rows pivot at the same time. It depends on the
    row's slot only, and not on the other rows of the problem."""
    return spread(problem.slot[k])
