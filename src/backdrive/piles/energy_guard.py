"""The energy guard of piles: as `physics.constraints.energy_guard`, for every island on its own.

On whitened velocities, the impulses λ of a step change the kinetic energy by λ · s* + y · y / 2. Islands, which have no
moving body in common, keep a part κ each of the bias that asks contacts to open, and none where the budget of the step
is used up before κ is found. The impulses of an island that gains energy even so have not converged: they are all
multiplied by the same θ < 1 (`ScaledIslands`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        if solution.residual <= self.tolerance and not self._may_gain(
            blocks, solution.impulses, none + solution.residual * fastest
        ):
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
        scaled = ScaledIslands.of(solution, self._free_speeds(blocks, b, bias), islands, gain > none * scale)
        jump = np.where(
            search.acts & (np.abs(gain) > JUMP * least * scale), np.abs(gain) / np.maximum(scale, 1e-300), 0.0
        )
        held = search.acts & (jump == 0.0) & ~search.given_up & (gain <= none * scale)
        number = np.where(held, np.cumsum(held) - 1, -1)
        record = GuardRecord(islands.of_cells(search.part), islands.of_cells(number, -1), int(search.acts.sum()))
        residual = max(solution.residual, float(jump.max()) * self.tolerance / least)
        return replace(
            solution if scaled is None else scaled.solution, residual=residual, guard=record if record.count else None,
            scaled=scaled,
        )  # fmt: skip

    def _may_gain(self, blocks: Array, impulses: Array, off: float) -> bool:
        """Whether some contact may add energy, if one is asked to open and the impulses have converged: a bound as in
        `EnergyGuard`; off: by how much the speeds of rows may be off, m/s."""
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
        """As `PileSolver.vjp`."""
        scaled = solution.scaled
        if scaled is None:
            return self._guard_vjp(memory, problem, solution, reversed_blocks, cotangents)
        bars, free_bar = scaled.vjp(cotangents)
        found = self._guard_vjp(memory, problem, scaled.whole(solution), reversed_blocks, bars)
        in_order = found.blocks[::-1]
        in_order[:, self._b] += free_bar
        in_order[:, self._bias] -= free_bar[:, 0]
        return found

    def _guard_vjp(
        self, memory: Memory, problem: PileProblem, solution: PileSolution, reversed_blocks: Array,
        cotangents: SolutionCotangents,
    ) -> BlockCotangents:  # fmt: skip
        """As `vjp`, of impulses that are not scaled. Where the guard acts, κ follows from the inputs, so that the gain
        stays zero: of the cotangents of the gain, as many are subtracted as it takes for that of κ to vanish."""
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

    def of_rows(self, count: int) -> Array:
        """The island of every row of y."""
        label = np.full(count, self.count)
        label[self._rows] = self._of_body
        return label

    def powers(self, solution: PileSolution, free: Array) -> tuple[Array, Array]:
        """λ · s* and y · y of every island, J; free: s* of all rows."""
        impulses, y = solution.impulses.astype(np.float64), solution.y[self._rows, : self.nv].astype(np.float64)
        return self._total((impulses * free).sum(1)), np.bincount(self._of_body, (y * y).sum(1), minlength=self.count)

    def gains(self, solution: PileSolution, free: Array) -> tuple[Array, Array]:
        """The energy (J) that every island gains, and the sum of its impulses; free: s* of all rows."""
        given, squares = self.powers(solution, free)
        return given + 0.5 * squares, self._total(np.abs(solution.impulses.astype(np.float64)).sum(1))

    def _total(self, of_cells: Array) -> Array:
        return np.bincount(self.label.ravel(), of_cells.ravel(), minlength=self.count + 1)[:-1]


@dataclass(frozen=True)
class ScaledIslands:
    """Impulses that have not converged, multiplied by the largest θ <= 1 for which their island gains no energy:
    θ = -2 λ · s* / y · y, or 0 where that is negative.

    solution: with λ and y times θ. impulses, y, free: λ, y, and s* of all rows, as they were. cells [register, lane],
    rows [row]: θ; cell_island, row_island: numbers of islands, the last of which is no island. squares [island]: y · y
    where 0 < θ < 1; elsewhere infinite, so that θ has no derivative.
    """

    solution: PileSolution
    impulses: Array
    y: Array
    free: Array
    cells: Array
    rows: Array
    cell_island: Array
    row_island: Array
    squares: Array

    @classmethod
    def of(cls, solution: PileSolution, free: Array, islands: Islands, gains: Array) -> ScaledIslands | None:
        """gains: the islands that gain energy; None if there are none."""
        if not gains.any():
            return None
        given, squares = islands.powers(solution, free)
        part = np.where(gains, np.clip(-2.0 * given / np.maximum(squares, 1e-300), 0.0, 1.0), 1.0)
        cell_island, row_island = islands.label, islands.of_rows(len(solution.y))
        squares = np.append(np.where((part > 0.0) & (part < 1.0), squares, np.inf), np.inf)
        cells, rows = (np.append(part, 1.0)[label] for label in (cell_island, row_island))
        impulses, y = solution.impulses.copy(), solution.y.copy()
        solution.impulses[...] = cells[:, None] * impulses
        solution.y[...] = rows[:, None] * y
        return cls(solution, impulses, y, free, cells, rows, cell_island, row_island, squares)

    def whole(self, solution: PileSolution) -> PileSolution:
        """The solution with the impulses and y as they were."""
        return replace(solution, impulses=self.impulses, y=self.y)

    def vjp(self, cotangents: SolutionCotangents) -> tuple[SolutionCotangents, Array]:
        """Cotangents of λ and y as they were, and of s* [register, row, lane]."""
        y_bar, shift, impulses_bar = cotangents
        count, width = len(self.squares), self.y.shape[1]
        part_bar = np.bincount(self.row_island, (y_bar[0, :, :width] * self.y).sum(1), minlength=count)
        of_cells = (impulses_bar * self.impulses).sum(1).ravel()
        part_bar += np.bincount(self.cell_island.ravel(), of_cells, minlength=count)
        slope = -2.0 * part_bar / self.squares
        at_rows, at_cells = slope[self.row_island, None], slope[self.cell_island][:, None]
        y_bar[0, :, :width] = self.rows[:, None] * (y_bar[0, :, :width] + at_rows * self.y)
        impulses_bar[...] = self.cells[:, None] * impulses_bar + at_cells * self.free
        return SolutionCotangents(y_bar, shift, impulses_bar), at_cells * self.impulses


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

        Impulses that have not converged may gain energy even if nothing is kept: then all is kept.
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
