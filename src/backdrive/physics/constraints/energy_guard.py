"""The energy guard: what pushes bodies apart is reduced where it would otherwise create energy.

The impulses λ of a substep change the kinetic energy of the free motion, in the norm of A, by

    λ · (s* + W λ / 2)            s* = J v*: the speeds of the free motion, without bias

Contacts that only stop what approaches, friction, and equations never add any. What may is the bias that asks a row to
open: Newton's law of restitution, v⁺ = -e v⁻, together with friction in an eccentric impact; and the speed at which a
penetration within the slop is left. Of both, the same part κ is kept, for which no energy is gained. The impulses may
jump as κ changes, so that energy is gained on one side and lost on the other: then the side of the loss is taken, and
the loss is part of the residual.
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir import (
    Index,
    Mask,
    Scalar,
    ScalarArray,
    absolute,
    any_lane,
    carry,
    loop,
    maximum,
    memory,
    minimum,
    select,
    to_float,
    when,
    while_any,
)
from ..solvers import Solver
from .problem import ContactProblem

# In units of the solver's tolerance. Changes of energy are relative to those of impulses at the largest speed: a gain
# above the first is reduced; below the second, κ is found; above the third, the impulses jump. The last is the
# precision of κ itself.
GAIN, NO_CHANGE, JUMP, PRECISION = 1e-1, 1e-3, 1e3, 1e-2

# κ is sought by false position, and after this many solves by bisection: the impulses may jump.
FALSE_POSITIONS = 16

# At most this many solves.
MOST_SOLVES = 60


def push_out(bias: Scalar) -> Scalar:
    """The part of a row's bias (m/s, rad/s) that may create energy: that which asks the row to open."""
    return minimum(bias, 0.0)


def kept_bias(bias: Scalar, kept: Scalar) -> Scalar:
    """The bias of a row of which the guard keeps a part."""
    return maximum(bias, 0.0) + kept * push_out(bias)


class Gain(NamedTuple):
    """The energy (J) that impulses add to the free motion, and the sum of their magnitudes times the problem's largest
    speed, by which it is judged."""

    energy: Scalar
    scale: Scalar


class Bracket:
    """The search for κ in every lane: it is between low and high, with the gains (J) there. side: the end that moved
    last, -1 or 1. solves: so far. last: 1 where only the lower end is left to be solved again."""

    def __init__(self) -> None:
        self.low, self.high, self.low_gain, self.high_gain = (memory(1) for _ in range(4))
        self.side, self.solves, self.last = (memory(1) for _ in range(3))
        self.low[0], self.high[0], self.low_gain[0], self.high_gain[0] = 0.0, 1.0, -1.0, 1.0
        self.side[0], self.solves[0], self.last[0] = 0.0, 0.0, 0.0

    def narrow(self, where: Mask, kept: Scalar, gain: Scalar) -> None:
        """Take in the gain at κ = kept. An end that stays twice counts half, so that it will move (Illinois)."""
        side, known = select(gain <= 0.0, -1.0, 1.0), self.solves[0] > 1.5
        for sign, end, gains in ((-1.0, self.low, self.low_gain), (1.0, self.high, self.high_gain)):
            moves, stays = where & (side == sign), where & known & (side != sign) & (self.side[0] == side)
            end[0] = select(moves, kept, end[0])
            gains[0] = select(moves, gain, select(stays, 0.5, 1.0) * gains[0])
        self.side[0] = select(where, side, self.side[0])
        self.solves[0] = self.solves[0] + select(where, 1.0, 0.0)

    def next(self, precision: float) -> Scalar:
        """The part to try next: first none, then by false position. Sets `last` where the bracket is this narrow."""
        low, high, below, above = self.low[0], self.high[0], self.low_gain[0], self.high_gain[0]
        share = below / minimum(below - above, -1e-300)
        inside = (share > 0.0) & (share < 1.0) & (self.solves[0] < FALSE_POSITIONS)
        between = low + (high - low) * select(inside, share, 0.5)
        self.last[0] = select(high - low <= precision, 1.0, 0.0)
        return select(self.solves[0] < 1.5, 0.0, select(self.last[0] > 0.5, low, between))


class EnergyGuard:
    """Solves a contact problem without gain of energy. kept [1]: κ; 1 where nothing is gained. guarded [1]: 1 where
    less is kept."""

    def __init__(self, problem: ContactProblem, solver: Solver) -> None:
        self.problem, self.solver = problem, solver
        self.kept, self.guarded = memory(1), memory(1)
        self.kept[0], self.guarded[0] = 1.0, 0.0

    def solve(self, where: Mask) -> Scalar:
        """Solve the problem, in the lanes `where` without gain; returns the residual."""
        problem, n = self.problem, self.problem.count
        before, error, going = memory(problem.capacity), memory(1), memory(1)
        error[0], going[0] = 0.0, 1.0
        bracket = Bracket()
        for i in while_any(lambda: going[0] > 0.0, MOST_SOLVES):
            for r in loop(n):
                before[r] = problem.impulse[r]
            now, again = self.solver.solve(problem), going[0] > 0.0
            error[0] = select(again, now, error[0])
            for r in loop(n):
                problem.impulse[r] = select(again, problem.impulse[r], before[r])
            going[0] = 0.0
            suspect = where & again & ((to_float(i) > 0.5) | self._may_gain())
            for _ in when(any_lane(suspect)):
                change = self._judge(suspect, bracket, going)
                error[0] = maximum(error[0], select(going[0] > 0.0, 0.0, change))
        return error[0]

    def _free_speed(self, r: Index) -> Scalar:
        """s* of row r."""
        return self.problem.b[r] - kept_bias(self.problem.bias[r], self.kept[0])

    def _may_gain(self) -> Mask:
        """Whether a bound of the gain exceeds the tolerance. Of a solution, s⁺ + R λ = -bias where a row presses, and
        friction opposes its speed: so λ · (s* + s⁺) / 2 is at most λ · (s* - bias - R λ) / 2."""
        problem, total = self.problem, carry(2)
        total[0], total[1] = 0.0, 0.0
        for r in loop(problem.count):
            x, bias = problem.impulse[r], problem.bias[r]
            total[0] = total[0] + 0.5 * x * (problem.b[r] - 2.0 * bias - problem.compliance[r] * x)
            total[1] = total[1] + absolute(x)
        return total[0] > GAIN * self.solver.tolerance / problem.unit[0] * total[1]

    def _gain(self) -> Gain:
        problem, total = self.problem, carry(2)
        speed = memory(problem.capacity)
        for r in loop(problem.count):
            speed[r] = 0.0
        problem.delassus.apply(problem.impulse, speed, problem.count)
        total[0], total[1] = 0.0, 0.0
        for r in loop(problem.count):
            x = problem.impulse[r]
            total[0] = total[0] + x * (self._free_speed(r) + 0.5 * speed[r])
            total[1] = total[1] + absolute(x)
        return Gain(total[0], total[1] / problem.unit[0])

    def _judge(self, suspect: Mask, bracket: Bracket, going: ScalarArray) -> Scalar:
        """Judge the impulses for the part κ; where they gain energy, go on with the next part. Returns the change of
        energy where the impulses jump, relative to that of impulses at the largest speed."""
        problem, tolerance, (energy, scale) = self.problem, self.solver.tolerance, self._gain()
        first, kept = bracket.solves[0] < 0.5, self.kept[0]
        starts = first & (energy > GAIN * tolerance * scale)
        searches = suspect & (starts | ~first)
        ends = ~first & ((absolute(energy) <= NO_CHANGE * tolerance * scale) | (bracket.last[0] > 0.5))
        self.guarded[0] = select(searches, 1.0, self.guarded[0])
        goes = searches & ~ends
        bracket.narrow(goes, kept, energy)
        self.keep(select(goes, bracket.next(PRECISION * tolerance), kept))
        for r in loop(problem.count):  # impulses close to the solution would be accepted as the solution
            problem.impulse[r] = select(goes, 0.0, problem.impulse[r])
        going[0] = select(goes, 1.0, 0.0)
        jumps = searches & (absolute(energy) > JUMP * tolerance * scale)
        return select(jumps, absolute(energy) / maximum(scale, 1e-300), 0.0)

    def keep(self, part: Scalar) -> None:
        """Let the rows' bias be what is kept of it."""
        problem, change = self.problem, part - self.kept[0]
        for r in loop(problem.count):
            problem.b[r] = problem.b[r] + change * push_out(problem.bias[r])
        self.kept[0] = part
