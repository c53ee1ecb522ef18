"""The adjoint of whole rollouts: the loop backwards over time."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import Index, ScalarArray, TimedArray, interruptible, loop, memory, when, workspace
from .clipping import Clipping
from .control_source import ControlSource
from .math.arrays import all_elements, copy, gradient_memory, zero
from .math.spatial import BODY
from .rollout import at_time, segment_end, segments
from .scheme import StepContext
from .state import StateArrays, StatePath, StepInputs
from .step import step
from .step_adjoint import step_adjoint
from .tree.dynamics_adjoint import Cotangents, bodies_adjoint


@dataclass(frozen=True)
class InputCotangents:
    """Rows of the caller: the wrenches, None if there are none; and the cotangents of wrenches and constants, None if
    they are not wanted. clipping: how the cotangents of states are limited, None if they are not."""

    wrenches: TimedArray | None = None
    wrenches_bar: TimedArray | None = None
    constants_bar: ScalarArray | None = None
    clipping: Clipping | None = None


@dataclass(frozen=True, kw_only=True)
class PathAdjointRows(InputCotangents):
    """Rows of the caller.

    Row s of `path` is the state before segment s. Row s of `path_bar` is the cotangent of the state after segment s.
    start_bar: the result. Cotangents do not pass back over states whose number is a multiple of `truncate`.
    """

    path: StatePath
    path_bar: StatePath
    last_bar: StateArrays
    start_bar: StateArrays
    steps: Index
    truncate: Index


@dataclass(frozen=True, kw_only=True)
class RolloutAdjointRows(PathAdjointRows):
    """Of segments of one step. solution: what the solvers of the steps found; None if it was not kept."""

    solution: TimedArray | None = None


def rollout_adjoint(ctx: StepContext, source: ControlSource, rows: RolloutAdjointRows) -> None:
    """Kernel: from the cotangents of the path and of the last state to those of everything before."""
    sweep = BackwardSweep(ctx, source, rows)
    rows.last_bar.add_to(ctx.tree, sweep.state_bar)
    for t in interruptible(loop(rows.steps, reverse=True)):
        rows.path.row(t - 1).prefetch(ctx.tree)
        rows.path_bar.row(t - 1).prefetch(ctx.tree)
        source.prefetch_adjoint(t)
        sweep.cut(t + 1, rows.steps, rows.truncate)
        rows.path_bar.row(t).add_to(ctx.tree, sweep.state_bar)
        sweep.limit(t, rows.steps)
        sweep.step(t, rows.path.row(t), solution=at_time(rows.solution, t))
    sweep.finish(rows.start_bar)


@dataclass(frozen=True, kw_only=True)
class CheckpointAdjointRows(PathAdjointRows):
    """Of segments of `every` steps, the last of which may be shorter."""

    every: Index


def checkpoint_adjoint(ctx: StepContext, source: ControlSource, rows: CheckpointAdjointRows) -> None:
    """Kernel: as `rollout_adjoint`, when only the state before every `every`-th step was kept.

    The states in between are computed again, a segment at a time; with them the solutions, if the adjoint of a step
    starts from one, and then also that of the last step.
    """
    tree, every = ctx.tree, rows.every
    size = ctx.scheme.solutions * tree.nv
    solutions = memory(every * size) if ctx.scheme.solutions and tree.constraints is not None else None

    def solution(i: Index) -> ScalarArray | None:
        return None if solutions is None else solutions.at(i * size)

    sweep = BackwardSweep(ctx, source, rows)
    rows.last_bar.add_to(tree, sweep.state_bar)
    state, states = StateArrays.in_memory(tree), StateArrays.in_memory(tree, every + 1)
    for s in interruptible(loop(segments(rows.steps, every), reverse=True)):
        start, end = s * every, segment_end(s, rows.steps, every)
        state.copy_from(tree, rows.path.row(s))
        states.copy_from(tree, state)
        for t in interruptible(loop(end - 1 if solutions is None else end, start=start)):
            inputs = StepInputs(source.again(t), at_time(rows.wrenches, t))
            step(ctx, state, inputs, solution=solution(t - start))
            states.number(tree, t + 1 - start).copy_from(tree, state)
        for t in interruptible(loop(end, start=start, reverse=True)):
            sweep.cut(t + 1, rows.steps, rows.truncate)
            for _ in when(t + 1 == end):
                rows.path_bar.row(s).add_to(tree, sweep.state_bar)
            sweep.limit(t, rows.steps)
            sweep.step(t, states.number(tree, t - start), solution=solution(t - start))
    sweep.finish(rows.start_bar)


class BackwardSweep:
    """The cotangent of the current state on its way back in time, `state_bar`, and the sums over time."""

    def __init__(self, ctx: StepContext, source: ControlSource, rows: InputCotangents) -> None:
        tree = ctx.tree
        self.ctx, self.tree, self.source, self.rows = ctx, tree, source, rows
        self.state_bar = StateArrays.in_memory(tree)
        self.state_bar.clear(tree)
        self.constants_bar: ScalarArray | None = None
        self.moments_bar: ScalarArray | None = None
        if rows.constants_bar is not None:
            self.constants_bar = gradient_memory(rows.constants_bar, tree.nconst)
            self.moments_bar = memory((tree.nlink + 1) * BODY)
            whole = all_elements(self.constants_bar)
            assert whole is not None
            zero(tree.nconst, whole)
            zero((tree.nlink + 1) * BODY, self.moments_bar)

    def cut(self, number: Index, steps: Index, truncate: Index) -> None:
        """Nothing of later states passes back over the state of this number, if it is a multiple of `truncate`."""
        for _ in when((number % truncate == 0) & (number < steps)):
            self.state_bar.clear(self.tree)

    def limit(self, t: Index, steps: Index) -> None:
        """Limit the cotangent of the state after step t of a rollout of some steps."""
        if self.rows.clipping is not None:
            self.rows.clipping.limit(self.tree, t, steps, self.state_bar)

    def step(
        self, t: Index, start: StateArrays, forces_bar: ScalarArray | None = None, solution: ScalarArray | None = None
    ) -> None:
        """Back over step t from the state `start`; forces_bar: cotangents of the forces of its constraints; solution:
        what its solver found, if it was kept."""
        tree, rows = self.tree, self.rows
        array = memory if self.ctx.scheme.sums_over_parts else workspace
        controls_bar, wrenches_bar = array(tree.nu), None
        zero(tree.nu, controls_bar)
        if rows.wrenches_bar is not None:
            wrenches_bar = array(tree.nlink * 6)
            zero(tree.nlink * 6, wrenches_bar)
        state = StateArrays.local_copy(tree, start)
        inputs = StepInputs(self.source.control(t, *state), at_time(rows.wrenches, t))
        cotangents = Cotangents(*self.state_bar, controls_bar, wrenches_bar, self.constants_bar, self.moments_bar)
        step_adjoint(self.ctx, state, inputs, cotangents, forces_bar, solution)
        if rows.clipping is not None:
            rows.clipping.drop(tree, t, self.state_bar, controls_bar, wrenches_bar)
        self.source.vjp(t, controls_bar, *state, Cotangents(*self.state_bar, constants=self.constants_bar))
        if rows.wrenches_bar is not None:
            assert wrenches_bar is not None
            copy(tree.nlink * 6, wrenches_bar, rows.wrenches_bar.row(t))

    def finish(self, start_bar: StateArrays) -> None:
        start_bar.copy_from(self.tree, self.state_bar)
        self.finish_constants()
        self.source.finish()

    def finish_constants(self) -> None:
        if self.rows.constants_bar is not None:
            assert self.constants_bar is not None
            assert self.moments_bar is not None
            bodies_adjoint(self.tree, self.moments_bar, self.constants_bar)
            copy(self.tree.nconst, self.constants_bar, self.rows.constants_bar)
