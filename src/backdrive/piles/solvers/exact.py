"""`InteriorPoint` on piles: a few sweeps, then the interior point method, then pivoting where that does not converge.

The derivative is that of the solution (`ContactSolution.vjp`), whatever led to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...physics.solvers.interior_point import InteriorPoint
from ..arrangement import Arrangement
from ..memory import Memory
from .active_set import ContactSolution, ProblemCotangents
from .base import BlockCotangents, PileForm, PileProblem, PileSolution, SolutionCotangents
from .interior_point import solve
from .pivoting import solve_by_pivoting
from .sparse_delassus import SparseDelassus
from .sweeps import SweepSolver

Array = np.ndarray
START_SWEEPS = 100  # sweeps that find the impulses from which the interior point method starts
RETRY_SWEEPS = 30000  # sweeps, at most, before it starts again if it did not converge
PIVOTED_CONTACTS = 1500  # a problem of more contacts is not solved by pivoting, which would take too long


class PositionSolution(NamedTuple):
    """The correction of positions; contacts: those that penetrate."""

    solution: ContactSolution
    contacts: Array


@dataclass
class ExactRecord:
    """Solutions for velocities, and for positions if a contact penetrates; None if there is no contact, or a number is
    not finite."""

    cells: ContactCells
    velocities: ContactSolution
    positions: PositionSolution | None


class ExactSolver:
    """The interior point method and pivoting on a `SparseDelassus` problem."""

    def __init__(self, form: PileForm, settings: InteriorPoint) -> None:
        self.form, self.settings = form, settings
        self.sweeps = SweepSolver(form, settings, START_SWEEPS)

    def kept_sweeps(self, cold: bool, keep: bool) -> int:
        return self.sweeps.kept_sweeps(cold, keep=False)

    def solve(self, memory: Memory, problem: PileProblem) -> PileSolution:
        problem.impulses[0] = 0.0  # of several solutions, one is found that follows from the problem alone
        swept, record = self.sweeps.sweep(memory, problem, START_SWEEPS), None
        shift = memory.zeros("shift", max(1, problem.contacts.rows), self.form.stride)
        if problem.contacts.count and np.isfinite(problem.blocks).all():
            cells, history = ContactCells(self.form, problem.contacts), problem.impulses

            def sweep_on() -> Array:
                history[0] = swept.impulses
                most = min(RETRY_SWEEPS, problem.budget.sweeps(problem.contacts.count))
                return cells.take(self.sweeps.sweep(memory, problem, most).impulses)

            start = cells.take(swept.impulses)
            velocities = solve_velocities(cells.problem(problem), self.settings, start, sweep_on)
            cells.put(history[0], velocities.impulses)
            swept = self.sweeps.sweep(memory, problem, 0)  # y, residual and active sets of these impulses
            record = ExactRecord(cells, velocities, self.correct(cells, problem, shift))
        return PileSolution(swept.impulses, swept.y, shift, swept.active_sets, swept.residual, record)

    def correct(self, cells: ContactCells, given: PileProblem, shift: Array) -> PositionSolution | None:
        """Move bodies out of penetrations: the whitened velocities of that motion are put into `shift`."""
        deep = cells.penetrating(given.blocks)
        if not len(deep):
            return None
        problem = cells.position_problem(given, deep)
        solution = solve(problem, self.settings)
        cells.put_y(problem, problem.whitened(solution.impulses), shift)
        return PositionSolution(solution, deep)

    def vjp(
        self, memory: Memory, problem: PileProblem, solution: PileSolution, reversed_blocks: Array,
        cotangents: SolutionCotangents,
    ) -> BlockCotangents:  # fmt: skip
        """As `PileSolver.vjp`; the solution does not depend on the impulses that the solver started from. NaN for a
        problem whose blocks are not finite."""
        record, stride = solution.record, self.form.stride
        blocks_bar, y_bar = memory.zeros("blocks_bar", *reversed_blocks.shape), cotangents.y[0]
        if record is None:
            blocks_bar.fill(np.nan)
        else:
            cells: ContactCells = record.cells
            in_order = blocks_bar[::-1]
            bars = record.velocities.vjp(
                cells.take_y(record.velocities.problem, y_bar), cells.take(cotangents.impulses)
            )
            cells.add_velocity_cotangents(in_order, bars)
            if record.positions is not None:
                found, deep = record.positions
                bars = found.vjp(
                    cells.take_y(found.problem, cotangents.shift[:, stride:]), np.zeros_like(found.impulses)
                )
                cells.add_position_cotangents(in_order, bars, deep)
        cotangents.impulses.fill(0.0)
        return BlockCotangents(blocks_bar, cotangents.impulses)


class ContactCells:
    """Moves numbers between contacts, [contact, n], and their cells, [register, n, lane]."""

    def __init__(self, form: PileForm, contacts: Arrangement) -> None:
        lanes = form.target.lanes
        self.form, self.register, self.lane = form.contact, contacts.cell // lanes, contacts.cell % lanes
        self.bodies = np.column_stack([contacts.at[f"body_{end}_at"][contacts.cell] for end in "ab"])
        self.row_of = contacts.row_of

    def take(self, array: Array) -> Array:
        return array[self.register, :, self.lane].astype(np.float64)

    def put(self, array: Array, numbers: Array) -> None:
        array[self.register, :, self.lane] = numbers

    def put_y(self, problem: SparseDelassus, y: Array, table: Array) -> None:
        """From blocks of a problem to a table [row, stride]."""
        table[self.row_of[problem.touched], : problem.nv] = y[:-1]

    def take_y(self, problem: SparseDelassus, table: Array) -> Array:
        y = np.zeros((problem.blocks + 1, problem.nv))
        y[:-1] = table[self.row_of[problem.touched], : problem.nv]
        return y

    def problem(self, given: PileProblem) -> SparseDelassus:
        """The problem of velocities, of all contacts."""
        numbers, block = self.take(given.blocks), self.form.block
        pushes, b, softness, mu = (numbers[:, block[name]] for name in ("pushes", "b", "softness", "mu"))
        return SparseDelassus(self._by_row(pushes), self.bodies, b, softness, mu[:, 0], given.budget)

    def penetrating(self, blocks: Array) -> Array:
        """The contacts that have penetrated."""
        return np.nonzero(self.take(blocks)[:, self.form.block.first("rate")] < 0.0)[0]

    def position_problem(self, given: PileProblem, deep: Array) -> SparseDelassus:
        """The problem of positions: the normal rows of penetrating contacts, without friction."""
        numbers, block = self.take(given.blocks)[deep], self.form.block
        pushes, softness, rate = (numbers[:, block[name]] for name in ("pushes", "softness", "rate"))
        normals, frictionless = self._by_row(pushes)[:, :1], np.zeros(len(deep))
        return SparseDelassus(normals, self.bodies[deep], rate, softness[:, :1], frictionless, given.budget)

    def _by_row(self, pushes: Array) -> Array:
        return pushes.reshape(-1, self.form.rows, self.form.push)

    def add_velocity_cotangents(self, blocks_bar: Array, bars: ProblemCotangents) -> None:
        """Add the cotangents of `problem` to those of the blocks."""
        block, numbers = self.form.block, np.zeros((len(self.bodies), self.form.block.size))
        numbers[:, block["pushes"]] = bars.pushes.reshape(len(self.bodies), -1)
        numbers[:, block["b"]] = bars.b
        numbers[:, block["softness"]], numbers[:, block.first("mu")] = bars.softness, bars.mu
        self.put(blocks_bar, self.take(blocks_bar) + numbers)

    def add_position_cotangents(self, blocks_bar: Array, bars: ProblemCotangents, deep: Array) -> None:
        """Add the cotangents of `position_problem` to those of the blocks."""
        block, numbers = self.form.block, np.zeros((len(self.bodies), self.form.block.size))
        numbers[deep, : self.form.push] = bars.pushes[:, 0]
        numbers[deep, block.first("softness")] = bars.softness[:, 0]
        numbers[deep, block["rate"]] = bars.b
        self.put(blocks_bar, self.take(blocks_bar) + numbers)


def solve_velocities(
    problem: SparseDelassus, settings: InteriorPoint, swept: Array, sweep_on: Callable[[], Array]
) -> ContactSolution:
    """From the impulses of a few sweeps; if that does not converge, from those of more sweeps (`sweep_on`).

    Islands that are not solved then are left to pivoting; or where that would take too long, to a start from the middle
    of all bounds. All of this only as far as the budget of the step allows.
    """
    tolerance, budget = settings.tolerance * problem.fastest, problem.budget
    best = solve(problem, settings, swept)
    if best.residual() > tolerance and budget.left:
        swept = sweep_on()
        best = better(best, solve(problem, settings, swept))
    if best.residual() > tolerance and budget.left and problem.count > PIVOTED_CONTACTS:
        return better(best, solve(problem, settings))
    speeds = problem.row_speeds(best.impulses)
    solved = problem.per_contact(problem.island_max(problem.residual(best.impulses, speeds))) <= tolerance
    for near in (problem.projected(best.impulses, speeds), swept):
        if best.residual() > tolerance and budget.left:
            best = better(best, solve_by_pivoting(problem, np.where(solved, best.impulses, near)))
    return best


def better(a: ContactSolution, b: ContactSolution | None) -> ContactSolution:
    return b if b is not None and b.residual() < a.residual() else a
