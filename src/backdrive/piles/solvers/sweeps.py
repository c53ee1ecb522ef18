"""`ProjectedGaussSeidel` on piles: sweeps for velocities, and for positions; the derivative is that of the sweeps."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Kernel
from ..arguments import kernel_arguments
from ..arrangement import Arrangement
from ..contacts import ContactForm
from ..kernels import make_kernel
from ..memory import Memory
from . import position_sweeps, sweep_adjoint, sweep_kernels
from .base import BlockCotangents, PileForm, PileProblem, PileSolution, SolutionCotangents
from .sweep_parts import MOMENTUM, PERIOD

Array = np.ndarray
COLD_FACTOR = 10  # without the impulses of the step before, this many times more sweeps are allowed

# Cotangents of sweeps that have not converged grow at most this many times on the way back through them.
MOST_GROWTH = 100.0


@dataclass
class SweptVelocities:
    """The result of the sweeps for velocities.

    impulses [register, row, lane], y [row, stride], active_sets [register, lane], residual: as in `PileSolution`. made:
    sweeps of every group. schedules: their momentum. history, history_y: impulses and y of the sweeps. most: sweeps, at
    most. deep, deep_packs: packs with penetrating contacts.
    """

    impulses: Array
    y: Array
    active_sets: Array
    residual: float
    made: Array
    schedules: Array
    history: Array
    history_y: Array
    most: int
    deep: Array
    deep_packs: Array


@dataclass
class SweptPositions:
    """The result of the sweeps for positions: shift [row, stride]; history: pseudo impulses of the sweeps, None if
    nothing penetrates; made: sweeps of every group."""

    shift: Array
    history: Array | None
    made: Array


class SweepSolver:
    """Projected Gauss-Seidel with momentum (`sweep_kernels`).

    settings: the solver that the user chose. sweeps: the most for a step with a warm start; None: the setting.
    """

    def __init__(self, form: PileForm, settings: Any, sweeps: int | None = None) -> None:
        self.form, self.tolerance = form, settings.tolerance
        self.sweeps: int = settings.iterations if sweeps is None else sweeps
        self._momentum = np.array(MOMENTUM, form.target.dtype)
        self._solve, self._solve_adjoint, self._correct, self._correct_adjoint = (
            form.target.stage(make, form.contact) for make in (solving, solving_adjoint, correcting, correcting_adjoint)
        )

    def most(self, cold: bool) -> int:
        """Sweeps for velocities, at most."""
        return self.sweeps * (COLD_FACTOR if cold else 1)

    def kept_sweeps(self, cold: bool, keep: bool) -> int:
        return self.most(cold) + 2 if keep else 2

    def solve(self, memory: Memory, problem: PileProblem) -> PileSolution:
        velocities = self.sweep(memory, problem, self.most(problem.cold))
        positions = self.correct(memory, problem, velocities)
        return PileSolution(
            velocities.impulses, velocities.y, positions.shift, velocities.active_sets, velocities.residual,
            (velocities, positions),
        )  # fmt: skip

    def sweep(self, memory: Memory, problem: PileProblem, most: int) -> SweptVelocities:
        """At most this many sweeps for velocities, from the first entry of the problem's impulses."""
        contacts, history, lanes = problem.contacts, problem.impulses, self.form.target.lanes
        ring, rows, registers, groups = len(history), contacts.rows, contacts.registers, contacts.groups
        history_y = memory.array("history y", ring, rows, self.form.stride)
        final = memory.array("impulses", registers, self.form.contact.rows, lanes)
        final_y = memory.array("y", max(1, rows), self.form.stride)
        active_sets, worst = memory.array("active sets", registers, lanes), memory.array("residual", lanes)
        made, deep = memory.integers("made", groups), memory.integers("deep", contacts.packs)
        schedules = memory.zeros("schedules", groups, most // PERIOD + 1, dtype=np.int64)
        deep_packs = memory.integers("deep packs", groups + 1)
        residual = 0.0
        if contacts.count:
            speeds = problem.blocks[:, self.form.contact.block["b"]]
            fastest = 1.0 + max(float(speeds.max()), -float(speeds.min()))
            self._solve(
                1, blocks=problem.blocks, impulses=history, y=history_y, **contacts.group_values(),
                momentum=self._momentum, final=final, final_y=final_y, active_sets=active_sets, residual=worst,
                made=made, schedules=schedules, deep=deep, deep_packs=deep_packs, registers=registers,
                width=self._width(contacts), most=most, ring=ring, tolerance=self.tolerance * fastest,
            )  # fmt: skip
            residual = float(worst.max()) / fastest
            problem.budget.sweep(int(made.max()), contacts.count)
        else:
            final_y[0], deep_packs[0] = 0.0, 0
        return SweptVelocities(
            final, final_y, active_sets, residual, made, schedules, history, history_y, most, deep, deep_packs
        )

    def _width(self, contacts: Arrangement) -> int:
        """Registers of all rows of y."""
        return contacts.rows * self.form.stride // self.form.target.lanes

    def correct(self, memory: Memory, problem: PileProblem, velocities: SweptVelocities) -> SweptPositions:
        """Sweeps that move bodies out of penetrations."""
        contacts = problem.contacts
        shift = memory.zeros("shift", max(1, contacts.rows), self.form.stride)
        made = memory.integers("corrections made", contacts.groups)
        if not velocities.deep_packs[-1]:
            return SweptPositions(shift, None, made)
        kept = self.sweeps + 1 if problem.keep else 1
        history = memory.array("corrections", kept, contacts.registers, self.form.target.lanes)
        history[0] = 0.0
        self._correct(
            1, blocks=problem.blocks, impulses=history, y=shift, starts=contacts.starts, ends=contacts.ends,
            deep=velocities.deep, deep_packs=velocities.deep_packs, made=made, groups=contacts.groups,
            most=self.sweeps, step=contacts.registers if problem.keep else 0, tolerance=self.tolerance,
        )  # fmt: skip
        return SweptPositions(shift, history, made)

    def vjp(
        self, memory: Memory, problem: PileProblem, solution: PileSolution, reversed_blocks: Array,
        cotangents: SolutionCotangents,
    ) -> BlockCotangents:  # fmt: skip
        contacts, form = problem.contacts, self.form
        velocities, positions = solution.record
        blocks_bar = memory.zeros("blocks_bar", *reversed_blocks.shape)
        if positions.history is not None:
            self._correct_adjoint(
                1, blocks=reversed_blocks, impulses=positions.history, y=cotangents.shift, starts=contacts.starts,
                ends=contacts.ends, deep=velocities.deep, deep_packs=velocities.deep_packs, made=positions.made,
                impulses_bar=memory.zeros("corrections_bar", contacts.registers, form.target.lanes),
                blocks_bar=blocks_bar, groups=contacts.groups, registers=contacts.registers,
            )  # fmt: skip
        self._solve_adjoint(
            1, blocks=reversed_blocks, impulses=velocities.history, y=velocities.history_y, **contacts.group_values(),
            momentum=self._momentum, made=velocities.made, schedules=velocities.schedules, y_bar=cotangents.y,
            impulses_bar=cotangents.impulses, before_bar=memory.zeros("before_bar", *cotangents.impulses.shape),
            blocks_bar=blocks_bar, work=memory.array("work", contacts.rows, 2 * form.stride),
            registers=contacts.registers, width=self._width(contacts), most=velocities.most,
            ring=len(velocities.history), limit=self._largest_cotangent(problem, solution, cotangents),
        )  # fmt: skip
        return BlockCotangents(blocks_bar, cotangents.impulses)

    def _largest_cotangent(self, problem: PileProblem, solution: PileSolution, cotangents: SolutionCotangents) -> float:
        """The largest cotangent of y that sweeps pass on to those before them: none, if they have converged.

        The sweeps of a contact turn a cotangent of its impulses into one of y that is at most √(1/d) times as large.
        """
        if solution.residual <= self.tolerance:
            return math.inf
        inverse = problem.blocks[:, self.form.contact.block["inverse"]]
        by_impulses = np.abs(cotangents.impulses).max(initial=0.0) * math.sqrt(inverse.max(initial=0.0))
        return MOST_GROWTH * float(np.abs(cotangents.y).max(initial=0.0) + by_impulses)


# ------------------------------------------------------------------------------------------ kernels


@functools.cache
def solving(form: ContactForm) -> Kernel:
    def body(**a: Any) -> None:
        sweep_kernels.solve(form, sweep_kernels.SolveArguments(**a))

    return make_kernel("solve", form, kernel_arguments(sweep_kernels.SolveArguments), body)


@functools.cache
def solving_adjoint(form: ContactForm) -> Kernel:
    def body(**a: Any) -> None:
        sweep_adjoint.solve_adjoint(form, sweep_adjoint.SolveAdjointArguments(**a))

    return make_kernel("solve_adjoint", form, kernel_arguments(sweep_adjoint.SolveAdjointArguments), body)


@functools.cache
def correcting(form: ContactForm) -> Kernel:
    def body(**a: Any) -> None:
        position_sweeps.correct(form, position_sweeps.CorrectArguments(**a))

    return make_kernel("correct", form, kernel_arguments(position_sweeps.CorrectArguments), body)


@functools.cache
def correcting_adjoint(form: ContactForm) -> Kernel:
    def body(**a: Any) -> None:
        position_sweeps.correct_adjoint(form, position_sweeps.CorrectAdjointArguments(**a))

    return make_kernel("correct_adjoint", form, kernel_arguments(position_sweeps.CorrectAdjointArguments), body)
