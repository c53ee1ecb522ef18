"""Coulomb's law in 3D: from the friction pyramids of a contact problem to its round cones.

A contact sticks where its friction is inside the cone, |λt| <= μ λn; otherwise it slides, and λt = -μ λn s / |s|, where
s is its slip in the solution. Solvers know pyramids only, whose directions are rows of the problem: along a slip and
across it. From their solution, the directions of contacts that slide are turned by Newton's method on

    λt = P(λt - st / d)         P: the projection on the disc of radius μ λn;  d: the mean diagonal of the two rows

(Alart and Curnier 1991). Where x = λt - st / d is outside the disc, the linearisation, in the directions of x, is

    along x:   λ = μ λn (clamped)          across x:   s + R λ = 0,   R = d (|x| - μ λn) / (μ λn),

which is an active set of a problem with pyramids that are aligned with x and have the compliance R across it. In the
solution R = |s| / (μ λn), and λ and s across the slip are zero: turning the directions changes nothing to first order.
So the adjoint is that of the pyramids with these directions and R, as if they were constant.

Newton's method may fail where many contacts share a load. There the directions and the solution stay those of the
pyramids, with the directions of the free motion (`rows.contact_slip`), of which the adjoint knows the derivative.
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
    clip,
    interruptible,
    loop,
    maximum,
    memory,
    select,
    sqrt,
    when,
    while_any,
)
from ..geometry.contact_points import ContactPoints
from ..math import spatial as sp
from ..math.arrays import copy
from ..math.spatial import Vec
from ..solvers import Solver
from ..solvers.active_set import FREE, LOWER, NO_ACTIVE_SET
from ..solvers.complementarity import bounds, evaluate_speeds, find_active_set, solve_active_set
from ..solvers.finish import POLISH
from .problem import ContactProblem
from .rows import SLIP, Row, Slip, contact_rows

# At most this many iterations of Newton's method.
ITERATIONS = 10

# Friction inside the cone by less than this part of its bound counts as outside.
ON_CONE = 1e-9

# In R, the bound of friction is at least this part of |x|.
LEAST_BOUND = 1e-12


class Friction(NamedTuple):
    """The friction of a contact at some impulses: its two rows; d ((m/s) per N s), the bound μ λn (N s), x (of both
    rows) and its norm (see above); whether it is outside the disc (mask)."""

    across: Index
    along: Index
    d: Scalar
    bound: Scalar
    x: tuple[Scalar, Scalar]
    size: Scalar
    slides: Mask


class FrictionCone:
    """Solves a contact problem in 3D with round cones, in some lanes; in the others, with pyramids.

    free_slips [nslot, SLIP]: of the contacts in the free motion, after which the pyramids are aligned first. slips: the
    same for the directions that the problem has now. round [1]: 1 where the solution is that with cones.
    """

    def __init__(
        self, problem: ContactProblem, contacts: ContactPoints, first: Index, free_slips: ScalarArray, where: Mask
    ) -> None:
        """first: the first row of the contacts. where: the lanes whose cones are round."""
        self.where = where
        self.problem, self.contacts, self.first, self.free_slips = problem, contacts, first, free_slips
        self.slips, self.round = memory(problem.constraints.nslot * SLIP), memory(1)
        self._give, self._trial, self._best = (memory(problem.capacity) for _ in range(3))  # give: R of the rows

    def begin(self) -> None:
        """To be called when the problem has all its rows."""
        self.round[0] = select(self.where, 1.0, 0.0)
        copy(self.contacts.count[0] * SLIP, self.free_slips, self.slips)
        for c in loop(self.contacts.count[0]):
            self._yield(self._normal(c) + 1, select(self.where, 0.0, self._free_give(c)))

    def solve(self, solver: Solver) -> Scalar:
        """Solve the problem; returns the residual."""
        problem, error, before = self.problem, memory(1), memory(self.problem.capacity)
        error[0] = solver.solve(problem)
        outside, failed = problem.work.wanted & self.where & self._outside(), memory(1)
        failed[0] = 0.0
        for _ in when(any_lane(outside)):
            found = self._iterate(outside, error, solver.tolerance)
            failed[0] = select(outside & ~found, 1.0, 0.0)
        fails = failed[0] > 0.5
        for _ in when(any_lane(fails)):
            asked = memory(1)
            asked[0] = select(problem.work.wanted, 1.0, 0.0)
            self._turn_back(fails)
            copy(problem.count, problem.impulse, before)
            for r in loop(problem.count):
                problem.impulse[r] = select(fails, 0.0, problem.impulse[r])
            problem.work.want(fails)
            now = solver.solve(problem)
            problem.work.want(asked[0] > 0.5)
            copy(problem.count, before, problem.impulse, ~fails)
            error[0] = select(fails, now, error[0])
        return error[0]

    def _iterate(self, wanted: Mask, error: ScalarArray, tolerance: float) -> Mask:
        """Newton's method in the lanes `wanted`, from the impulses of the problem. Returns the lanes in which it has
        found the solution; error[0] becomes its residual there."""
        problem, trial, best, impulse = self.problem, self._trial, self._best, self.problem.impulse
        n, (speed, active_set) = problem.count, (memory(problem.capacity) for _ in range(2))
        going, least = memory(1), memory(1)
        copy(n, impulse, trial)
        copy(n, impulse, best)
        least[0] = self._residual(trial, speed)
        going[0] = select(wanted & problem.work.allowed(), least[0], 0.0)
        for _ in interruptible(while_any(lambda: going[0] > POLISH * tolerance, ITERATIONS)):
            active = going[0] > POLISH * tolerance
            find_active_set(problem, trial, speed, active_set)
            self._align(trial, speed, active_set, active)
            solve_active_set(problem, active_set, trial)
            problem.work.spend(active)
            now = self._residual(trial, speed)
            better = active & (now < least[0])
            copy(n, trial, best, better)
            least[0] = select(better, now, least[0])
            going[0] = select(active & problem.work.allowed(), now, 0.0)
        found = wanted & (least[0] <= tolerance)
        self._residual(best, speed)
        self._align(best, speed, active_set, found)
        copy(n, best, impulse, found)
        self.round[0] = select(found, 1.0, self.round[0])
        error[0] = select(found, least[0], error[0])
        return found

    def _outside(self) -> Mask:
        """Whether friction of some contact that presses is not inside its cone, or yields across a slip (R > 0)."""
        found = carry(1)
        found[0] = 0.0
        for c in loop(self.contacts.count[0]):
            normal = self._normal(c)
            across, along = (self.problem.impulse[normal + k] for k in (1, 2))
            bound = self.problem.mu[normal + 1] * self.problem.impulse[normal] * (1.0 - ON_CONE)
            outside = (across * across + along * along >= bound * bound) | (self._give[normal + 1] > 0.0)
            found[0] = select(outside & (bound > 0.0), 1.0, found[0])
        return found[0] > 0.5

    def _normal(self, c: Index) -> Index:
        """The row of the normal of contact c."""
        return self.first + c * self.problem.constraints.block

    def _friction(self, c: Index, impulse: ScalarArray, speed: ScalarArray) -> Friction:
        """speed [n]: of the impulses, without what R gives."""
        problem, normal = self.problem, self._normal(c)
        across, along = normal + 1, normal + 2
        d = 0.5 * (problem.diagonal[across] - self._give[across] + problem.diagonal[along])
        bound = problem.mu[across] * maximum(impulse[normal] - speed[normal] / problem.diagonal[normal], 0.0)
        x = (impulse[across] - speed[across] / d, impulse[along] - speed[along] / d)
        square = x[0] * x[0] + x[1] * x[1]
        return Friction(across, along, d, bound, x, sqrt(square), (square > bound * bound) & (bound > 0.0))

    def _residual(self, impulse: ScalarArray, speed: ScalarArray) -> Scalar:
        """The residual with cones, like `complementarity.residual`. speed [n]: becomes that of the impulses, without
        what R gives."""
        problem, worst = self.problem, carry(1)
        evaluate_speeds(problem, impulse, speed)
        for c in loop(self.contacts.count[0]):
            across = self._normal(c) + 1
            speed[across] = speed[across] - self._give[across] * impulse[across]
        worst[0] = 0.0
        for r in loop(problem.count):
            low, high = bounds(problem, impulse, r)
            d = problem.diagonal[r]
            x = d * impulse[r]
            off = absolute(x - clip(x - speed[r], d * low, d * high))
            worst[0] = maximum(worst[0], select(problem.mu[r] > 0.0, 0.0, off))
        for c in loop(self.contacts.count[0]):
            f = self._friction(c, impulse, speed)
            part = select(f.size > f.bound, f.bound / select(f.size > 0.0, f.size, 1.0), 1.0)
            apart = [impulse[r] - part * x for r, x in zip((f.across, f.along), f.x, strict=True)]
            rough = problem.mu[f.across] > 0.0
            worst[0] = maximum(worst[0], select(rough, f.d * sqrt(sp.dot(apart, apart)), 0.0))
        return worst[0] * problem.unit[0]

    def _align(self, impulse: ScalarArray, speed: ScalarArray, active_set: ScalarArray, where: Mask) -> None:
        """Align the directions of contacts that slide with x, in the lanes `where`, and let friction across x yield by
        R. active_set [n]: the rows of friction get their codes. speed [n]: of the impulses, without what R gives."""
        problem = self.problem
        for c in loop(self.contacts.count[0]):
            f = self._friction(c, impulse, speed)
            turns, rough, idle = f.slides & where, problem.mu[f.across] > 0.0, f.bound <= 0.0
            backwards = -1.0 / select(turns, f.size, 1.0)  # the direction along the slip is opposite to x
            turn = select(turns, backwards * f.x[1], 1.0), select(turns, backwards * f.x[0], 0.0)
            give = f.d * (f.size - f.bound) / maximum(f.bound, LEAST_BOUND * f.size)
            give = select(turns, give, select(where, 0.0, self._give[f.across]))
            active_set[f.across] = select(rough, select(idle, LOWER, FREE), active_set[f.across])
            active_set[f.along] = select(rough, select(f.slides | idle, LOWER, FREE), active_set[f.along])
            for _ in when(any_lane(turns)):
                rows = self._tangents(c, self.slips)
                direction = sp.add(sp.scale(turn[0], rows[1].force), sp.scale(turn[1], rows[0].force))
                self._turn(c, turns, turn, (*direction, 0.0, 0.0))
            self._yield(f.across, give)
        problem.factored[0] = select(where, NO_ACTIVE_SET, problem.factored[0])

    def _turn_back(self, where: Mask) -> None:
        """Let the directions be those of the free motion again, in the lanes `where`."""
        problem = self.problem
        for c in loop(self.contacts.count[0]):
            _, start = self._tangents(c, self.free_slips)
            across, along = self._tangents(c, self.slips)
            cosine, sine = sp.dot(start.force, along.force), sp.dot(start.force, across.force)
            turn = select(where, cosine, 1.0), select(where, sine, 0.0)
            self._turn(c, where, turn, self.free_slips.get(c, SLIP))
            row = self._normal(c) + 1
            self._yield(row, select(where, self._free_give(c), self._give[row]))
        problem.factored[0] = select(where, NO_ACTIVE_SET, problem.factored[0])
        self.round[0] = select(where, 0.0, self.round[0])

    def _tangents(self, c: Index, slips: ScalarArray) -> list[Row]:
        """The rows of friction of contact c, across and along its slip."""
        point, _ = self.contacts.point(self.contacts.slots[c])
        constraints = self.problem.constraints
        surface = constraints.pair_surface(self.contacts.pairs[c])
        slip = Slip.of(slips.get(c, SLIP))
        return contact_rows(point, surface, slip, constraints.dim, constraints.directions).rows[1:]

    def _free_give(self, c: Index) -> Scalar:
        """R of contact c with pyramids that are aligned with the free motion."""
        *_, support = self.problem.constraints.pair(self.contacts.pairs[c])
        yielding = Slip.of(self.free_slips.get(c, SLIP)).yielding * self.problem.constraints.inverse_mass(support)
        return select(self.problem.mu[self._normal(c) + 1] > 0.0, yielding, 0.0)

    def _yield(self, across: Index, give: Scalar) -> None:
        """Let R of a row across the slip be `give`; the row along it has the same compliance otherwise."""
        problem = self.problem
        self._give[across] = give
        problem.compliance[across] = problem.compliance[across + 1] + give
        for r in (across, across + 1):
            problem.delassus.set_diagonal(r, problem.compliance)

    def _turn(self, c: Index, where: Mask, turn: tuple[Scalar, Scalar], slip: Vec) -> None:
        """Turn the directions of friction of contact c about its normal, by an angle given by its cosine and sine (1
        and 0 outside the lanes `where`); slip: the numbers of the `Slip` that has these directions."""
        problem, across, along = self.problem, self._normal(c) + 1, self._normal(c) + 2
        self.slips.put(c, [select(where, x, y) for x, y in zip(slip, self.slips.get(c, SLIP), strict=True)])
        cosine, sine = turn
        for x in (problem.b, self._trial, self._best):
            a, b = x[across], x[along]
            x[across], x[along] = cosine * a - sine * b, cosine * b + sine * a
        *_, support = problem.constraints.pair(self.contacts.pairs[c])
        problem.delassus.turn(support, across, along, turn)
