"""The energy guard: what pushes bodies apart is reduced where it would otherwise create energy.

The impulses λ of a substep change the kinetic energy of the free motion, in the norm of A, by

    λ · (s* + W λ / 2)            s* = J v*: the speeds of the free motion, without bias

Contacts that only stop what approaches, friction, and equations never add any. What may is the bias that asks a row to
open: Newton's law of restitution, v⁺ = -e v⁻, together with friction in an eccentric impact; and the speed at which a
penetration within the slop is left. Of both, every island of trees that act on each other keeps the same part κ, for
which it gains no energy. The impulses may jump as κ changes, so that energy is gained on one side and lost on the
other: then the side of the loss is taken, and the loss is part of the residual.

Every solve spends the budget of the step. Where that is used up before κ is found, nothing is kept, and the energy that
this loses is part of the residual.

Impulses that have not converged may gain energy even if nothing is kept. Then all is kept, and the impulses of the
island are multiplied by the largest θ <= 1 at which it gains none: θ λ · s* + θ² λ · W λ / 2 = 0. What it would have
gained is part of the residual.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir import (
    Index,
    Mask,
    Scalar,
    ScalarArray,
    absolute,
    any_lane,
    carry,
    interruptible,
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
from .friction_cone import FrictionCone
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
    """The bias of a row of which the guard keeps a part; where it keeps all, this is smooth at a bias of zero."""
    return bias - (1.0 - kept) * push_out(bias)


class Islands:
    """The islands of a contact problem, in every lane: trees that act on each other by constraints. Arrays over trees
    [nlink + 1], at the records of their roots; label: the same number for all trees of an island."""

    def __init__(self, problem: ContactProblem, nlink: Index) -> None:
        self.problem, self.size = problem, nlink + 1
        self.label = memory(self.size)

    def find(self) -> None:
        """Let trees that act on each other have the smallest label of both, until nothing changes."""
        problem, label, going = self.problem, self.label, memory(1)
        going[0] = 1.0
        for i in loop(self.size):
            label[i] = to_float(i)
        for _ in while_any(lambda: going[0] > 0.0, self.size):
            going[0] = 0.0
            for r in loop(problem.count):
                for _ in when(problem.other_tree[r] > 0):  # not the world
                    a, b = problem.tree[r], problem.other_tree[r]
                    first, second, acts = label[a], label[b], problem.low[r] < problem.high[r]
                    label[a] = select(acts, minimum(first, second), first)
                    label[b] = select(acts, minimum(first, second), second)
                    going[0] = select(acts & (first != second), 1.0, going[0])

    def total(self, of_rows: Callable[[Index], Scalar]) -> ScalarArray:
        """For every tree, the sum of these numbers over all rows of its island."""
        own, result = memory(self.size), memory(self.size)
        for i in loop(self.size):
            own[i] = 0.0
        for r in loop(self.problem.count):
            own[self.problem.tree[r]] = own[self.problem.tree[r]] + of_rows(r)
        for i in loop(self.size):
            sum_of_island = carry(1)
            sum_of_island[0] = 0.0
            for j in loop(self.size):
                same = self.label[j] == self.label[i]
                sum_of_island[0] = sum_of_island[0] + select(same, own[j], 0.0)
            result[i] = sum_of_island[0]
        return result


class Bracket:
    """The search for κ of every tree: it is between low and high, with the gains (J) there. side: the end that moved
    last, -1 or 1. solves: so far. last: 1 where only the lower end is left to be solved again."""

    def __init__(self, size: Index) -> None:
        self.low, self.high, self.low_gain, self.high_gain = (memory(size) for _ in range(4))
        self.side, self.solves, self.last = (memory(size) for _ in range(3))
        for i in loop(size):
            self.low[i], self.high[i], self.low_gain[i], self.high_gain[i] = 0.0, 1.0, -1.0, 1.0
            self.side[i], self.solves[i], self.last[i] = 0.0, 0.0, 0.0

    def narrow(self, i: Index, where: Mask, kept: Scalar, gain: Scalar) -> None:
        """Take in the gain at κ = kept. An end that stays twice counts half, so that it will move (Illinois)."""
        side, known = select(gain <= 0.0, -1.0, 1.0), self.solves[i] > 1.5
        for sign, end, gains in ((-1.0, self.low, self.low_gain), (1.0, self.high, self.high_gain)):
            moves, stays = where & (side == sign), where & known & (side != sign) & (self.side[i] == side)
            end[i] = select(moves, kept, end[i])
            gains[i] = select(moves, gain, select(stays, 0.5, 1.0) * gains[i])
        self.side[i] = select(where, side, self.side[i])
        self.solves[i] = self.solves[i] + select(where, 1.0, 0.0)

    def next(self, i: Index, precision: float) -> Scalar:
        """The part to try next: first none, then by false position. Sets `last` where the bracket is this narrow."""
        low, high, below, above = self.low[i], self.high[i], self.low_gain[i], self.high_gain[i]
        share = below / minimum(below - above, -1e-300)
        inside = (share > 0.0) & (share < 1.0) & (self.solves[i] < FALSE_POSITIONS)
        between = low + (high - low) * select(inside, share, 0.5)
        self.last[i] = select(high - low <= precision, 1.0, 0.0)
        return select(self.solves[i] < 1.5, 0.0, select(self.last[i] > 0.5, low, between))


# The search for the κ of an island: there is none; it goes on; it has found κ; it has found a κ at which impulses jump;
# or energy is gained whatever κ is.
NO_SEARCH, SEARCHED, FOUND, JUMPED, FAILED = 0.0, 1.0, 2.0, 3.0, -1.0


class EnergyGuard:
    """Solves a contact problem without gain of energy, in any island. Arrays over trees [nlink + 1], at the records of
    their roots: kept: κ, 1 where nothing is gained; search: NO_SEARCH, SEARCHED, FOUND, JUMPED or FAILED. guarded [1]:
    the number of islands with less than all."""

    def __init__(self, problem: ContactProblem, solver: Solver, nlink: Index, cone: FrictionCone | None) -> None:
        self.problem, self.solver, self.cone, self.islands = problem, solver, cone, Islands(problem, nlink)
        self.kept, self.search, self.guarded = memory(nlink + 1), memory(nlink + 1), memory(1)
        self.guarded[0] = 0.0
        for i in loop(nlink + 1):
            self.kept[i], self.search[i] = 1.0, NO_SEARCH

    def holds_energy(self, tree: Index) -> Mask:
        """Whether κ of this tree's island is such that the energy does not change."""
        return self.search[tree] == FOUND

    def solve(self, where: Mask) -> Scalar:
        """Solve the problem, in the lanes `where` without gain; returns the residual."""
        problem, n = self.problem, self.problem.count
        before, error, jump, going = memory(problem.capacity), memory(1), memory(1), memory(1)
        error[0], jump[0], going[0] = 0.0, 0.0, 1.0
        bracket = Bracket(self.islands.size)
        for i in interruptible(while_any(lambda: going[0] > 0.0, MOST_SOLVES)):
            for r in loop(n):
                before[r] = problem.impulse[r]
            again = going[0] > 0.0
            problem.work.want(where & again)
            now = self.solver.solve(problem) if self.cone is None else self.cone.solve(self.solver)
            error[0] = select(again, now, error[0])
            for r in loop(n):
                problem.impulse[r] = select(again, problem.impulse[r], before[r])
            going[0] = 0.0
            first = to_float(i) < 0.5
            suspect = where & again & (~first | self._may_gain() | (now > self.solver.tolerance))
            for _ in when(any_lane(suspect)):
                for _ in when(i == 0):
                    self.islands.find()
                jump[0] = maximum(jump[0], self._judge(suspect, first, bracket, going))
        problem.work.want(where)
        return maximum(error[0], jump[0])

    def free_speed(self, r: Index) -> Scalar:
        """s* of row r."""
        return self.problem.b[r] - kept_bias(self.problem.bias[r], self.kept[self.problem.tree[r]])

    def _may_gain(self) -> Mask:
        """Whether some constraint may add energy, if the impulses have converged. Of a solution, s⁺ + R λ = -bias where
        a row presses, and friction opposes its speed: so λ · (s* + s⁺) / 2 is at most λ · (s* - bias - R λ) / 2."""
        problem, most = self.problem, carry(2)
        least = GAIN * self.solver.tolerance / problem.unit[0]
        most[0], most[1] = 0.0, 0.0
        for r in loop(problem.count):
            x, bias = problem.impulse[r], problem.bias[r]
            gain = 0.5 * x * (problem.b[r] - 2.0 * bias - problem.compliance[r] * x) - least * absolute(x)
            begins = to_float(problem.normal[r] - r) == 0.0  # the first row of a constraint is the normal of the others
            most[0] = select(begins, gain, most[0] + gain)
            most[1] = maximum(most[1], most[0])
        return most[1] > 0.0

    def _judge(self, suspect: Mask, first: Mask, bracket: Bracket, going: ScalarArray) -> Scalar:
        """Judge the impulses for the parts κ, first for κ = 1; where an island gains energy, go on with its next part,
        and with none where the budget of the step is used up. Scale the impulses of islands for which no κ is of use.
        Returns the largest change of energy where impulses jump or are scaled, relative to that of impulses at the
        largest speed."""
        problem, islands, tolerance = self.problem, self.islands, self.solver.tolerance
        speed, part, shrink, jump = memory(problem.capacity), memory(islands.size), memory(islands.size), memory(1)
        for r in loop(problem.count):
            speed[r] = 0.0
        problem.delassus.apply(problem.impulse, speed, problem.count)
        given = islands.total(lambda r: problem.impulse[r] * self.free_speed(r))
        squares = islands.total(lambda r: problem.impulse[r] * speed[r])
        scales = islands.total(lambda r: absolute(problem.impulse[r]) / problem.unit[0])
        self.guarded[0], jump[0] = 0.0, 0.0
        able = problem.work.budget.allows()
        for i in loop(islands.size):
            energy, scale, kept = given[i] + 0.5 * squares[i], tolerance * scales[i], self.kept[i]
            scaled = suspect & (self.search[i] == FAILED) & (energy > 0.0)
            most = maximum(-2.0 * given[i] / maximum(squares[i], 1e-300), 0.0)
            shrink[i] = select(scaled, minimum(most, 1.0), 1.0)
            searched = suspect & ((first & (energy > GAIN * scale)) | (~first & (self.search[i] == SEARCHED)))
            given_up = searched & ~able & (kept == 0.0)
            ends = searched & ~first & ((absolute(energy) <= NO_CHANGE * scale) | (bracket.last[i] > 0.5) | given_up)
            fails = searched & ~first & (kept == 0.0) & (energy > GAIN * scale) & able
            goes, jumps = searched & ~ends & ~fails, ends & (absolute(energy) > JUMP * scale)
            jump[0] = maximum(jump[0], select(jumps | scaled, absolute(energy) / maximum(scales[i], 1e-300), 0.0))
            ended = select(jumps | given_up, JUMPED, select(ends, FOUND, select(fails, FAILED, self.search[i])))
            self.search[i] = select(goes, SEARCHED, ended)
            bracket.narrow(i, goes, kept, energy)
            following = select(able, bracket.next(i, PRECISION * tolerance), 0.0)
            part[i] = select(fails, 1.0, select(goes, following, kept))
            going[0] = select(goes | fails, 1.0, going[0])
            counts = (self.search[i] > NO_SEARCH) & (islands.label[i] == to_float(i))
            self.guarded[0] = self.guarded[0] + select(counts, 1.0, 0.0)
        self._keep(part)
        for r in loop(problem.count):  # impulses close to the solution would be accepted as the solution
            problem.impulse[r] = select(going[0] > 0.0, 0.0, shrink[problem.tree[r]] * problem.impulse[r])
        return jump[0]

    def _keep(self, part: ScalarArray) -> None:
        """Let the rows' bias be what is kept of it; part: over trees."""
        problem = self.problem
        for r in loop(problem.count):
            change = (part[problem.tree[r]] - self.kept[problem.tree[r]]) * push_out(problem.bias[r])
            problem.b[r] = problem.b[r] + change
        for i in loop(self.islands.size):
            self.kept[i] = part[i]
