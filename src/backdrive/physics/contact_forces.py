"""The forces of constraints along a path: a step from every state, of which only the forces are kept."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import Index, TimedArray, interruptible, loop, memory
from .constraints.forces import forces_size
from .control_source import ControlSource
from .math.arrays import copy, zero
from .rollout import at_time
from .rollout_adjoint import BackwardSweep, InputCotangents
from .scheme import StepContext
from .state import StateArrays, StatePath, StepInputs
from .step import step


@dataclass(frozen=True)
class ForcesRows:
    """Rows of the caller: states at `times` times, and the forces of the steps from them (`add_forces`)."""

    states: StatePath
    out: TimedArray
    times: Index
    wrenches: TimedArray | None = None


def forces(ctx: StepContext, source: ControlSource, rows: ForcesRows) -> None:
    """Kernel: the forces of a step from every state."""
    tree = ctx.tree
    size = forces_size(tree.constraints)
    written, state = memory(size), StateArrays.in_memory(tree)
    for t in interruptible(loop(rows.times)):
        state.copy_from(tree, rows.states.row(t))
        inputs = StepInputs(source.control(t, *state), at_time(rows.wrenches, t))
        zero(size, written)
        step(ctx, state, inputs, written)
        copy(size, written, rows.out.row(t))


@dataclass(frozen=True, kw_only=True)
class ForcesAdjointRows(InputCotangents):
    """Rows of the caller, as in `ForcesRows`."""

    states: StatePath
    out_bar: TimedArray
    states_bar: StatePath
    times: Index


def forces_adjoint(ctx: StepContext, source: ControlSource, rows: ForcesAdjointRows) -> None:
    """Kernel: the vector-Jacobian product of `forces`."""
    tree, sweep = ctx.tree, BackwardSweep(ctx, source, rows)
    size = forces_size(tree.constraints)
    forces_bar = memory(size)
    for t in interruptible(loop(rows.times)):
        copy(size, rows.out_bar.row(t), forces_bar)
        sweep.state_bar.clear(tree)
        sweep.step(t, rows.states.row(t), forces_bar)
        rows.states_bar.row(t).copy_from(tree, sweep.state_bar)
    sweep.finish_constants()
