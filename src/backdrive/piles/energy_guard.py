"""The energy guard of piles: as `physics.constraints.energy_guard`, for every island on its own.

On whitened velocities, the impulses λ of a step change the kinetic energy by λ · s* + y · y / 2. Islands, which have no
moving body in common, keep a part κ each of the bias that asks contacts to open, and none where the budget of the step
is used up before κ is found.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ..physics.constraints.energy_guard import FALSE_POSITIONS, GAIN, JUMP, MOST_SOLVES
from .memory import Memory
from .solvers.base import (
    BlockCotangents,
    GuardRecord,
    PileForm,
    PileProblem,
    PileSolution,
    PileSolver,
    SolutionCotangents,
)

Array = np.ndarray

# An island gains energy, and κ is not found yet, when its energy changes by more than this many roundings, however far
# the sweeps have converged; the bracket of κ is not made narrower than that. The derivative of κ is that of an energy
# that does not change.
NO_CHANGE, PRECISION = 64.0, 64.0


class GuardedSolver:
    """A solver of piles whose solutions gain no energy."""

    def __init__(self, form: PileForm, solver: PileSolver, tolerance: float) -> None:
        self.form, self.solver, self.tolerance = form, solver, tolerance
        block = form.contact.block
        self._b, self._normal, self._bias = block["b"], block.first("b"), block.first("bias")
        self._softness = block["softness"]

    def kept_sweeps(self, cold: bool, keep: bool) -> int:
        return self.solver.kept_sweeps(cold, keep)

    def solve(self, memory: Memory, problem: PileProblem) -> PileSolution:
        """As `PileSolver.solve`; where the guard acts, the blocks then have the speeds b with what is kept."""
        if not problem.contacts.count:
            return self.solver.solve(memory, problem)
        blocks, start = problem.blocks, problem.impulses[0].copy()
        solution, bias = self.solver.solve(memory, problem), blocks[:, self._bias].copy()
        b, fastest = blocks[:, self._normal].copy(), 1.0 + float(np.abs(blocks[:, self._b]).max())
        least, rounding = self.tolerance * fastest, float(np.finfo(blocks.dtype).eps)
        none = NO_CHANGE * rounding * fastest
        if not self._may_gain(blocks, solution.impulses, none + solution.residual * fastest):
            return solution
        islands = Islands(self.form, problem)
        gain, scale = islands.gains(solution, self._free_speeds(blocks, b, bias))
        search = PartSearch(gain, gain > none * scale)
        for _ in range(MOST_SOLVES):
            if not (search.going.any() or search.again):
                break
            if not problem.budget.left:
                search.give_up()
            kept = islands.of_cells(search.next(PRECISION * rounding))
            blocks[:, self._normal] = b - (1.0 - kept) * np.minimum(bias, 0.0)
            problem.impulses[0] = start
            solution = self.solver.solve(memory, problem)
            gain, scale = islands.gains(solution, self._free_speeds(blocks, b, bias))
            search.take(gain, np.abs(gain) <= none * scale, gain > GAIN * least * scale)
        jump = np.where(
            search.acts & (np.abs(gain) > JUMP * least * scale), np.abs(gain) / np.maximum(scale, 1e-300), 0.0
        )
        held = search.acts & (jump == 0.0) & ~search.given_up
        number = np.where(held, np.cumsum(held) - 1, -1)
        record = GuardRecord(islands.of_cells(search.part), islands.of_cells(number, -1), int(search.acts.sum()))
        residual = max(solution.residual, float(jump.max()) * self.tolerance / least)
        return replace(solution, residual=residual, guard=record if record.count else None)

    def _may_gain(self, blocks: Array, impulses: Array, off: float) -> bool:
        """Whether some contact may add energy, if one is asked to open: a bound as in `EnergyGuard`; off: by how much
        the speeds of rows may be off, m/s."""
        b, bias, softness = blocks[:, self._b], blocks[:, self._bias], blocks[:, self._softness]
        most = (impulses * (b - softness * impulses)).sum(1) - 2.0 * impulses[:, 0] * bias
        return bool((bias < 0.0).any() and (0.5 * most > -off * np.abs(impulses).sum(1)).any())

    def _free_speeds(self, blocks: Array, b: Array, bias: Array) -> Array:
        """s* of all rows [register, row, lane]; b: of the normals, with all of their bias."""
        speeds = blocks[:, self._b].astype(np.float64)
        speeds[:, 0] = b - bias
        return speeds

    def vjp(
        self, memory: Memory, problem: PileProblem, solution: PileSolution, reversed_blocks: Array,
        cotangents: SolutionCotangents,
    ) -> BlockCotangents:  # fmt: skip
        """As `PileSolver.vjp`. Where the guard acts, κ follows from the inputs, so that the gain stays zero: of the
        cotangents of the gain, as many are subtracted as it takes for that of κ to vanish."""
        found = self.solver.vjp(memory, problem, solution, reversed_blocks, cotangents)
        if solution.guard is None:
            return found
        record, blocks = solution.guard, problem.blocks
        bias, impulses = blocks[:, self._bias], solution.impulses
        pushed = np.minimum(bias, 0.0)
        b = blocks[:, self._normal] + (1.0 - record.kept) * pushed
        own, free = BlockCotangents(found.blocks.copy(), found.start.copy()), self._free_speeds(blocks, b, bias)
        gained = self.solver.vjp(memory, problem, solution, reversed_blocks, self._seeds(memory, solution, free))
        z = record.ratio(*(pushed * x.blocks[::-1, self._normal] for x in (own, gained)))
        bars = own.blocks - z[::-1, None] * gained.blocks
        in_order = bars[::-1]
        in_order[:, self._bias] -= (1.0 - record.kept) * (bias < 0.0) * in_order[:, self._normal]
        in_order[:, self._b] -= z[:, None] * impulses
        in_order[:, self._bias] += z * impulses[:, 0]
        found.blocks[...] = bars
        found.start[...] = own.start - z[:, None] * gained.start
        return found

    def _seeds(self, memory: Memory, solution: PileSolution, free: Array) -> SolutionCotangents:
        """The cotangents of a solution for the gains of energy of all islands; free: s* of all rows."""
        (rows, width), nv = solution.y.shape, self.form.contact.body.nv
        y, shift = memory.zeros("gain y_bar", 2, rows, width), memory.zeros("gain shift", rows, 2 * width)
        y[0, :, :nv], shift[:, :width] = solution.y[:, :nv], solution.shift
        impulses = memory.array("gain impulses_bar", *free.shape)
        impulses[...] = free
        return SolutionCotangents(y, shift, impulses)


class Islands:
    """The islands of the contacts of a problem, numbered from 0 on; those of all cells are `label` [register, lane],
    where a cell without a contact belongs to one more that does not count."""

    def __init__(self, form: PileForm, problem: PileProblem) -> None:
        contacts, lanes = problem.contacts, form.target.lanes
        a, b = (contacts.at[f"body_{end}_at"][contacts.cell] for end in "ab")
        bodies = len(contacts.row_of)
        both = (a > 0) & (b > 0)
        graph = coo_matrix((np.ones(both.sum()), (a[both], b[both])), shape=(bodies, bodies))
        self.count, of_body = connected_components(graph, directed=False)
        label = np.full(contacts.registers * lanes, self.count)
        label[contacts.cell] = of_body[np.maximum(a, b)]
        self.label, self.nv = label.reshape(contacts.registers, lanes), form.contact.body.nv
        self._bodies = np.nonzero(contacts.row_of > 0)[0]
        self._rows, self._of_body = contacts.row_of[self._bodies], of_body[self._bodies]

    def of_cells(self, numbers: Array, rest: float = 1) -> Array:
        """The number of every cell's island."""
        return np.append(numbers, rest)[self.label]

    def gains(self, solution: PileSolution, free: Array) -> tuple[Array, Array]:
        """The energy (J) that every island gains, and the sum of its impulses; free: s* of all rows."""
        impulses, y = solution.impulses.astype(np.float64), solution.y[self._rows, : self.nv].astype(np.float64)
        gains = self._total((impulses * free).sum(1))
        gains += np.bincount(self._of_body, 0.5 * (y * y).sum(1), minlength=self.count)
        return gains, self._total(np.abs(impulses).sum(1))

    def _total(self, of_cells: Array) -> Array:
        return np.bincount(self.label.ravel(), of_cells.ravel(), minlength=self.count + 1)[:-1]


class PartSearch:
    """The search for κ of every island, by false position as in `physics.constraints.energy_guard`.

    gain: at κ = 1. acts: the islands in which it is too large. part: κ. going: the islands in which it is not found.
    again: the last parts were no use, and the problem is to be solved once more with those before. given_up: the
    islands in which the search ended early.
    """

    def __init__(self, gain: Array, acts: Array) -> None:
        self.acts, self.going, self.part = acts, acts.copy(), np.ones(len(gain))
        self.low, self.high = np.zeros(len(gain)), np.ones(len(gain))
        self.low_gain, self.high_gain = np.full(len(gain), -1.0), gain
        self.side, self.solves, self.last = np.zeros(len(gain)), 1, np.zeros(len(gain), bool)
        self.again, self.given_up = False, np.zeros(len(gain), bool)

    def give_up(self) -> None:
        """Let the next parts be the last ones: none."""
        self.given_up = self.going.copy()

    def next(self, precision: float) -> Array:
        """The parts to try: first none."""
        share = self.low_gain / np.minimum(self.low_gain - self.high_gain, -1e-300)
        inside = (share > 0.0) & (share < 1.0) & (self.solves < FALSE_POSITIONS)
        between = self.low + (self.high - self.low) * np.where(inside, share, 0.5)
        self.last = self.high - self.low <= precision
        tried = np.zeros_like(between) if self.solves == 1 else np.where(self.last, self.low, between)
        self.part = np.where(self.going, np.where(self.given_up, 0.0, tried), self.part)
        return self.part

    def take(self, gain: Array, none: Array, some: Array) -> None:
        """Take in the gains for these parts; none, some: whether they count as none, or as too much.

        Impulses that have not converged may gain energy even if nothing is kept: that is not to be helped.
        """
        fails = self.going & (self.part == 0.0) & some & ~self.given_up
        self.acts, self.part = self.acts & ~fails, np.where(fails, 1.0, self.part)
        self.again = bool(fails.any())
        self.going &= ~(none | self.last | fails | self.given_up)
        below = gain <= 0.0
        for moves, sign, end, gains in ((below, -1, self.low, self.low_gain), (~below, 1, self.high, self.high_gain)):
            stays = self.going & ~moves & (self.side == -sign) & (self.solves > 1)
            end[self.going & moves] = self.part[self.going & moves]
            gains[self.going & moves] = gain[self.going & moves]
            gains[stays] *= 0.5
        self.side = np.where(self.going, np.where(below, -1, 1), self.side)
        self.solves += 1
