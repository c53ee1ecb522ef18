"""One world of a batch: its steps one after the other, and their derivative."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import CancelledError
from typing import Any, Protocol

import numpy as np

from ..ir import Scalar
from .adjoint import PileInputCotangents, PileOutputCotangents
from .arrangement import WarmStartTable
from .broad_phase import BroadPhase
from .memory import Memory, Spare
from .step import PileInputs, WorldState
from .tables import PileConstants, PileTables

Array = np.ndarray
WorldRows = dict[str, Array]  # the rows of a world in the tensors of a call, by their names: [n] or [T, n]


class StepResult(Protocol):
    """A step: the state after it, its status, and the keys (growing) and FORCE numbers of its contacts."""

    @property
    def status(self) -> tuple[Scalar, ...]: ...
    @property
    def after(self) -> WorldState: ...
    @property
    def key(self) -> Array: ...
    @property
    def forces(self) -> Array: ...


class StepEngine(Protocol):
    """The stages of a step: `Engine`, or MuJoCo's physics (`soft`)."""

    @property
    def dtype(self) -> np.dtype: ...
    @property
    def tables(self) -> PileTables: ...
    def broad_phase(self) -> BroadPhase: ...
    def constants_of(self, numbers: Array, /) -> PileConstants: ...
    def forward(
        self, memory: Memory, near: BroadPhase, constants: PileConstants, inputs: PileInputs, keep: bool = False
    ) -> StepResult: ...


class StepAdjoint(Protocol):
    """The stages of a step, backwards."""

    def backward(
        self, memory: Memory, constants: PileConstants, inputs: PileInputs, step: Any, bars: PileOutputCotangents
    ) -> PileInputCotangents: ...


class PileRecord:
    """The part of a rollout that its adjoint needs and that its states do not tell.

    starts: the warm start of every segment, [environment][segment]. steps: the first steps of every environment,
    [environment][step], with all that their derivative reads, each in a memory of its own. room: bytes for the steps of
    one environment; 0: none are kept.
    """

    def __init__(self, batch: int, spare: Spare, room: float) -> None:
        self.starts: list[list[WarmStartTable | None]] = [[] for _ in range(batch)]
        self.steps: list[list[StepResult]] = [[] for _ in range(batch)]
        self.spare, self.room = spare, room
        self._memories: list[Memory] = []
        weakref.finalize(self, spare.give_back, self._memories).atexit = False

    def memory(self) -> Memory:
        """The memory of one more step."""
        memory = self.spare.take()
        self._memories.append(memory)
        return memory


class PileWorld:
    """One world, with its memory and its broad phase. adjoint: None if no derivative is wanted.

    interrupted: another thread sets it when the call of which this world is a part is to end.
    """

    def __init__(self, engine: StepEngine, adjoint: StepAdjoint | None, constants: Array) -> None:
        self.engine, self.adjoint = engine, adjoint
        self.memory, self.near = Memory(engine.dtype), engine.broad_phase()
        self.constants = engine.constants_of(np.ascontiguousarray(constants))
        self.interrupted = threading.Event()

    def take(self, constants: Array) -> None:
        """Replace the constants."""
        before, tables = self.constants, self.engine.tables
        self.constants = self.engine.constants_of(np.ascontiguousarray(constants))
        planes = slice(tables.nsolid, None)
        if not np.array_equal(self.constants.records[planes], before.records[planes]):
            self.near.forget()

    # ------------------------------------------------------------------------------------------ steps

    def forward(
        self, a: WorldRows, t: int, state: WorldState, memory: Memory | None = None, keep: bool = False
    ) -> StepResult:
        """Step t. memory: for the arrays of this step; None: the world's, which the next step overwrites. keep: its
        derivative is expected."""
        memory = self.memory if memory is None else memory
        self._go_on()
        return self.engine.forward(memory, self.near, self.constants, inputs_of(a, t, state), keep)

    def backward(
        self, a: WorldRows, t: int, state: WorldState, step: StepResult, bars: PileOutputCotangents
    ) -> PileInputCotangents:
        """The derivative of step t, which started from `state`."""
        assert self.adjoint is not None
        self._go_on()
        return self.adjoint.backward(self.memory, self.constants, inputs_of(a, t, state), step, bars)

    def _go_on(self) -> None:
        if self.interrupted.is_set():
            raise CancelledError

    def states(self, a: WorldRows, state: WorldState, first: int, end: int) -> list[WorldState]:
        """The states from which steps `first` to `end` start, and the one after the last."""
        found = [state]
        for t in range(first, end):
            found.append(self.forward(a, t, found[-1]).after)
        return found

    # ------------------------------------------------------------------------------------------ rollouts

    def rollout(self, a: WorldRows, record: PileRecord, k: int, steps: int, every: int) -> None:
        """As `physics.rollout.rollout`, of environment k of a record."""
        state = WorldState(np.array(a["q"]), np.array(a["v"]), None)
        starts, kept, room = record.starts[k], record.steps[k], record.room
        for t in range(steps):
            if t % every == 0:
                starts.append(state.warm)
            own = record.memory() if room > 0.0 else None
            step = self.forward(a, t, state, own, keep=own is not None)
            if own is not None:
                kept.append(step)
                room -= own.size()
            state = step.after
            a["status"][t], a["path_q"][t // every], a["path_v"][t // every] = step.status, state.q, state.v
        a["last_q"][:], a["last_v"][:] = state.q, state.v

    def rollout_adjoint(
        self, a: WorldRows, record: PileRecord | None, k: int, steps: int, truncate: int, every: int = 1
    ) -> None:
        """As `physics.rollout_adjoint`. Without a record, the rollout is made again to find its warm starts."""
        path_q, path_v = np.ascontiguousarray(a["path_q"]), np.ascontiguousarray(a["path_v"])
        starts, kept = (None, []) if record is None else (record.starts[k], record.steps[k])
        starts = starts or self._starts(a, path_q, path_v, steps, every)
        bars = PileOutputCotangents(np.array(a["last_q_bar"]), np.array(a["last_v_bar"]), None)
        total = self.no_constants_bar()
        if "controls_bar" in a:
            a["controls_bar"][...] = 0.0  # a pile has no motors
        for s in reversed(range(len(starts))):
            first, end = s * every, min((s + 1) * every, steps)
            states = self.states(a, WorldState(path_q[s], path_v[s], starts[s]), first, end - 1)
            for t in reversed(range(first, end)):
                if (t + 1) % truncate == 0 and t + 1 < steps:
                    bars = PileOutputCotangents(np.zeros_like(bars.q), np.zeros_like(bars.v), None)
                if t + 1 == end:
                    bars = bars._replace(q=bars.q + a["path_q_bar"][s], v=bars.v + a["path_v_bar"][s])
                state = states[t - first]
                step = kept[t] if t < len(kept) else self.forward(a, t, state, keep=True)
                before = self.backward(a, t, state, step, bars)
                bars = PileOutputCotangents(before.q, before.v, before.impulses)
                total.add(before)
                if "wrenches_bar" in a:
                    a["wrenches_bar"][t] = before.wrench
        a["q_bar"][:], a["v_bar"][:] = bars.q, bars.v
        if "constants_bar" in a:
            a["constants_bar"][:] = total.of_model(self)

    def no_constants_bar(self) -> ConstantsCotangent:
        """A cotangent of the constants to which those of steps can be added."""
        return ConstantsCotangent(np.zeros_like(self.constants.links), np.zeros_like(self.constants.records))

    def _starts(
        self, a: WorldRows, path_q: Array, path_v: Array, steps: int, every: int
    ) -> list[WarmStartTable | None]:
        """The warm starts of all segments."""
        starts: list[WarmStartTable | None] = []
        warm: WarmStartTable | None = None
        for s, first in enumerate(range(0, steps, every)):
            starts.append(warm)
            state = WorldState(path_q[s], path_v[s], warm)
            warm = self.states(a, state, first, min(first + every, steps))[-1].warm
        return starts


class ConstantsCotangent:
    """The cotangent of the constants over several steps: of links and records of `PileConstants`."""

    def __init__(self, links: Array, records: Array) -> None:
        self.links, self.records = links, records

    def add(self, step: PileInputCotangents) -> None:
        self.links += step.links
        self.records += step.records

    def of_model(self, world: PileWorld) -> Array:
        """The cotangent of the model's constants."""
        return world.constants.vjp(self.links, self.records)


def inputs_of(a: WorldRows, t: int, state: WorldState) -> PileInputs:
    """The inputs of step t: the state, and the wrenches of that step."""
    wrench = np.ascontiguousarray(a["wrenches"][t]) if "wrenches" in a else None
    return PileInputs(state.q, state.v, wrench, state.warm)
