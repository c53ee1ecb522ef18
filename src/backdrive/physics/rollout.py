"""Whole rollouts: the loop over time that runs inside a kernel. `rollout_adjoint` goes backwards over it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..ir import (
    Index,
    ScalarArray,
    TimedArray,
    carry,
    clip,
    interruptible,
    loop,
    minimum,
    select,
    switch,
    workspace,
)
from .control_source import ControlSource
from .math.arrays import all_finite, copy
from .scheme import Scheme, StepContext
from .state import StateArrays, StatePath, StepInputs
from .step import StepStatus, step
from .tree.joints import JOINTS, JointModel
from .tree.tree import Tree

STATUS = (2, 7, 10)  # numbers of a step's status: without constraints, with them, and with impacts


@dataclass(frozen=True)
class RolloutRows:
    """Rows of the caller. path: the states after every `every` steps, and after the last. status [steps, n]. solution:
    what the solvers of the steps found, None if their adjoints do not want it. likeness [1]: that of the last step
    (`step`), None if nobody asks.
    """

    start: StateArrays
    path: StatePath
    last: StateArrays
    status: TimedArray
    steps: Index
    every: Index
    wrenches: TimedArray | None = None
    solution: TimedArray | None = None
    likeness: ScalarArray | None = None


def rollout(ctx: StepContext, source: ControlSource, rows: RolloutRows) -> None:
    """Kernel: fill the path from the state at the start."""
    tree, every = ctx.tree, rows.every
    state, size = StateArrays.in_memory(tree), status_size(ctx.scheme, tree.constraints is not None)
    state.copy_from(tree, rows.start)
    for s in interruptible(loop(segments(rows.steps, every))):
        rows.path.row(s).prefetch(tree)  # a row is far from the one before it
        for t in interruptible(loop(segment_end(s, rows.steps, every), start=s * every)):
            source.prefetch(t + 1)
            rows.status.row(t).prefetch(size)
            controls = source.control(t, *state)
            inputs = StepInputs(controls, at_time(rows.wrenches, t))
            status = step(ctx, state, inputs, solution=at_time(rows.solution, t), likeness=rows.likeness)
            write_status(tree, state, status, rows.status.row(t), size)
        rows.path.row(s).copy_from(tree, state)
    rows.last.copy_from(tree, state)


@dataclass(frozen=True)
class TrackingRows:
    """Rows of the caller. gains: at every time nu rows of 2 nv numbers, for the displacement of q and the change of v.
    origin: the states that are tracked. low, high [nu]: limits of the controls. used: the controls applied."""

    start: StateArrays
    gains: TimedArray
    origin: StatePath
    low: ScalarArray
    high: ScalarArray
    path: StatePath
    used: TimedArray
    status: TimedArray
    steps: Index


def tracking(ctx: StepContext, source: ControlSource, rows: TrackingRows) -> None:
    """Kernel: as `rollout`, with all states, and controls u = clip(controls + gains (x ⊖ origin), low, high)."""
    tree = ctx.tree
    nv, nu, size = tree.nv, tree.nu, status_size(ctx.scheme, tree.constraints is not None)
    state = StateArrays.in_memory(tree)
    state.copy_from(tree, rows.start)
    for t in interruptible(loop(rows.steps)):
        change, u, planned, origin = workspace(2 * nv), workspace(nu), source.control(t, *state), rows.origin.row(t)
        displacement(tree, state.q, origin.q, change)
        for k in loop(nv):
            change[nv + k] = state.v[k] - origin.v[k]
        for m in loop(nu):
            total, row = carry(1), rows.gains.row(t).at(m * (2 * nv))
            total[0] = planned[m]
            for k in loop(2 * nv):
                total[0] = total[0] + row[k] * change[k]
            u[m] = clip(total[0], rows.low[m], rows.high[m])
        copy(nu, u, rows.used.row(t))
        status = step(ctx, state, StepInputs(u, None))
        write_status(tree, state, status, rows.status.row(t), size)
        rows.path.row(t).copy_from(tree, state)


def displacement(tree: Tree, q: ScalarArray, origin: ScalarArray, target: ScalarArray) -> None:
    """target [nv] = q ⊖ origin"""

    def one(joint: JointModel, i: Index) -> None:
        a, b = tree.q_start(i), tree.v_start(i)
        target.at(b).put(0, joint.displacement(q.at(a).get(0, joint.nq), origin.at(a).get(0, joint.nq)))

    for i in tree.links():
        switch(tree.kind(i), [partial(one, joint) for joint in JOINTS], i)


def status_size(scheme: Scheme, constrained: bool) -> int:
    """How many numbers the status of a step has: whether the state is finite, and fields of `StepStatus`."""
    return STATUS[constrained + (constrained and scheme.splits_at_impacts)]


def write_status(tree: Tree, state: StateArrays, status: StepStatus, row: ScalarArray, size: int) -> None:
    finite = all_finite(*zip(state, StateArrays.sizes(tree), strict=True))
    row.put(0, (select(finite, 1.0, 0.0), *status)[:size])


def segments(steps: Index, every: Index) -> Index:
    """The number of segments of `every` steps; the last one may be shorter."""
    return (steps + every - 1) // every


def segment_end(s: Index, steps: Index, every: Index) -> Index:
    return minimum((s + 1) * every, steps)


def at_time(array: TimedArray | None, t: Index) -> ScalarArray | None:
    return None if array is None else array.row(t)
