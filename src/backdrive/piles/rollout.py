"""Rollouts of a batch of big worlds, one after the other, and their derivative."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from torch import Tensor

from ..model import Model
from ..physics.scheme import Scheme
from .adjoint import Adjoint, PileOutputCotangents
from .arrangement import WarmStartTable
from .memory import Memory, Spare
from .step import Engine, PileInputs, PileStep
from .tables import PileConstants

Array = np.ndarray
MOST_KEPT = 256e6  # bytes of memory of a world that is not in use
MOST_RECORDED = 512e6  # bytes of a rollout's steps, of which the derivative then need not be found anew
_numbers = itertools.count(2)  # 0 and 1 say whether a rollout has a path
_records: weakref.WeakValueDictionary[int, Record] = weakref.WeakValueDictionary()
_last = threading.local()


class Record:
    """What the solver started from in a rollout, which its states do not tell: [environment][segment]; and, if its
    derivative is expected, its first steps [environment][step], with all that this reads, in memories of their own."""

    def __init__(self, batch: int, spare: Spare) -> None:
        self.starts: list[list[WarmStartTable | None]] = [[] for _ in range(batch)]
        self.steps: list[list[PileStep]] = [[] for _ in range(batch)]
        self.spare, self.room = spare, 0.0  # bytes, for the steps of each environment
        self._memories: list[Memory] = []
        self.number = next(_numbers)
        _records[self.number] = self
        weakref.finalize(self, spare.give_back, self._memories).atexit = False

    def memory(self) -> Memory:
        """Of one more step."""
        memory = self.spare.take()
        self._memories.append(memory)
        return memory


class SparseProgram:
    """Rollouts of a model in its sparse form."""

    def __init__(self, model: Model, h: float, scheme: Scheme, directions: int, bits: int, threads: int) -> None:
        self.model, self.threads, self._make = model, threads, (h, scheme, directions, bits)
        self._engines: dict[tuple[bool, bool], tuple[Engine, Adjoint]] = {}
        self._worlds: dict[tuple[bool, bool], list[PileWorld]] = {}  # that nobody uses now
        self._spare = Spare(np.float64 if bits == 64 else np.float32, MOST_RECORDED)

    @staticmethod
    def expect_gradient() -> None:
        """Of this thread's next rollout."""
        _last.expected = True

    @staticmethod
    def last_record() -> Record | None:
        """Of this thread's last rollout; it is given away."""
        record, _last.record = getattr(_last, "record", None), None
        return record

    def engine(self, bounces: bool, wrenches: bool) -> tuple[Engine, Adjoint]:
        key = (bounces, wrenches)
        if key not in self._engines:
            engine = Engine(self.model, *self._make, *key)
            self._engines[key], self._worlds[key] = (engine, Adjoint(engine)), []
        return self._engines[key]

    @contextlib.contextmanager
    def world(self, bounces: bool, wrenches: bool, constants: Array) -> Iterator[PileWorld]:
        """One with these constants. Its memory, and the neighbours it has found, are of use to the next one."""
        engine, free = self.engine(bounces, wrenches), self._worlds[bounces, wrenches]
        if free:
            world = free.pop()
            world.take(constants)
        else:
            world = PileWorld(*engine, constants)
        yield world
        if world.memory.size() < MOST_KEPT:
            free.append(world)

    def _new_record(self, batch: int, every: int) -> Record:
        """Of this thread's next rollout."""
        record = Record(batch, self._spare)
        if getattr(_last, "expected", False) and every == 1:
            record.room = MOST_RECORDED / batch
        _last.record, _last.expected = record, False
        return record

    def run(
        self, form: str, batch: int, rows: dict[str, Tensor], integers: dict[str, int], constants: Tensor,
        bounces: bool,
    ) -> None:  # fmt: skip
        """As `Program.run`, of rollouts and their adjoint."""
        arrays = {name: as_array(x) for name, x in rows.items()}
        numbers = as_array(constants)
        wrenches = "wrenches" in rows
        forwards = form == "rollout"
        record = self._new_record(batch, integers["every"]) if forwards else _records.get(integers.pop("record"))

        def one(k: int) -> None:
            own = {name: x[k] if x.ndim == 2 else x[:, k] for name, x in arrays.items()}
            with self.world(bounces, wrenches, numbers[k] if numbers.ndim == 2 else numbers) as world:
                if forwards:
                    assert record is not None
                    world.rollout(own, record, k, **integers)
                else:
                    world.rollout_adjoint(own, record, k, **integers)

        one(0)  # (which compiles)
        if batch > 1:
            with ThreadPoolExecutor(min(self.threads, batch - 1)) as pool:
                list(pool.map(one, range(1, batch)))


class PileWorld:
    """One environment. `a`: its rows of the tensors, [n] or [T, n]."""

    def __init__(self, engine: Engine, adjoint: Adjoint, constants: Array) -> None:
        self.engine, self.adjoint = engine, adjoint
        self.memory, self.near = Memory(engine.dtype), engine.broad_phase()
        self.constants = PileConstants(engine.tables, engine.body, np.ascontiguousarray(constants))

    def take(self, constants: Array) -> None:
        """Replace the constants."""
        before, tables = self.constants, self.engine.tables
        self.constants = PileConstants(tables, self.engine.body, np.ascontiguousarray(constants))
        planes = slice(tables.nsolid, None)
        if not np.array_equal(self.constants.records[planes], before.records[planes]):
            self.near.forget()

    def forward(
        self, a: dict[str, Array], t: int, q: Array, v: Array, warm: WarmStartTable | None,
        memory: Memory | None = None, keep: bool = False,
    ) -> PileStep:  # fmt: skip
        """Step t from (q, v), with the impulses of the step before; memory: for the arrays of this step, None: the
        world's, which the next step overwrites."""
        memory = self.memory if memory is None else memory
        return self.engine.forward(memory, self.near, self.constants, PileInputs(q, v, wrench_of(a, t), warm), keep)

    def steps(
        self, a: dict[str, Array], q: Array, v: Array, warm: WarmStartTable | None, first: int, end: int
    ) -> list[tuple[Array, Array, WarmStartTable | None]]:
        """What steps `first` to `end` start from, and what the last one comes to."""
        found = [(q, v, warm)]
        for t in range(first, end):
            outcome = self.forward(a, t, *found[-1])
            found.append((outcome.q, outcome.v, outcome.impulses))
        return found

    def rollout(self, a: dict[str, Array], record: Record, k: int, steps: int, every: int) -> None:
        """See `physics.rollout`; of environment k of a record."""
        q, v, warm = np.array(a["q"]), np.array(a["v"]), None
        starts, kept, room = record.starts[k], record.steps[k], record.room
        for t in range(steps):
            if t % every == 0:
                starts.append(warm)
            own = record.memory() if room > 0.0 else None
            outcome = self.forward(a, t, q, v, warm, own, keep=own is not None)
            if own is not None:
                kept.append(outcome)
                room -= own.size()
            q, v, warm = outcome.q, outcome.v, outcome.impulses
            a["status"][t], a["path_q"][t // every], a["path_v"][t // every] = outcome.status, q, v
        a["last_q"][:], a["last_v"][:] = q, v

    def rollout_adjoint(
        self, a: dict[str, Array], record: Record | None, k: int, steps: int, truncate: int, every: int = 1
    ) -> None:
        """See `physics.rollout`. Without the impulses before its segments, the rollout is made again."""
        states = np.ascontiguousarray(a["path_q"]), np.ascontiguousarray(a["path_v"])
        starts, kept = (None, []) if record is None else (record.starts[k], record.steps[k])
        starts = starts or self._starts(a, *states, steps, every)
        q_bar, v_bar, impulses_bar = np.array(a["last_q_bar"]), np.array(a["last_v_bar"]), None
        links_bar, records_bar = np.zeros_like(self.constants.links), np.zeros_like(self.constants.records)
        if "controls_bar" in a:
            a["controls_bar"][...] = 0.0  # there are none
        for s in reversed(range(len(starts))):
            first, end = s * every, min((s + 1) * every, steps)
            before = self.steps(a, states[0][s], states[1][s], starts[s], first, end - 1)
            for t in reversed(range(first, end)):
                if (t + 1) % truncate == 0 and t + 1 < steps:
                    q_bar[:], v_bar[:], impulses_bar = 0.0, 0.0, None
                if t + 1 == end:
                    q_bar, v_bar = q_bar + a["path_q_bar"][s], v_bar + a["path_v_bar"][s]
                q, v, warm = before[t - first]
                step = kept[t] if t < len(kept) else self.forward(a, t, q, v, warm, keep=True)
                inputs = PileInputs(q, v, wrench_of(a, t), warm)
                after_bar = PileOutputCotangents(q_bar, v_bar, impulses_bar)
                bars = self.adjoint.backward(self.memory, self.constants, inputs, step, after_bar)
                q_bar, v_bar, impulses_bar = bars.q, bars.v, bars.impulses
                links_bar += bars.links
                records_bar += bars.records
                if "wrenches_bar" in a:
                    a["wrenches_bar"][t] = bars.wrench
        a["q_bar"][:], a["v_bar"][:] = q_bar, v_bar
        if "constants_bar" in a:
            engine = self.engine
            a["constants_bar"][:] = PileConstants.vjp(engine.tables, engine.body, links_bar, records_bar)

    def _starts(self, a: dict[str, Array], q: Array, v: Array, steps: int, every: int) -> list[WarmStartTable | None]:
        warm: WarmStartTable | None = None
        starts: list[WarmStartTable | None] = []
        for s, first in enumerate(range(0, steps, every)):
            starts.append(warm)
            *_, warm = self.steps(a, q[s], v[s], warm, first, min(first + every, steps))[-1]
        return starts


def as_array(x: Tensor) -> Array:
    """The numbers of a tensor; those of one that torch negates when it is read, or that owns no memory, are a copy."""
    x = x.detach().resolve_neg()
    return (x if x.data_ptr() or not x.numel() else x.clone()).numpy()


def wrench_of(a: dict[str, Array], t: int) -> Array | None:
    """On all bodies in step t, [6 nbody], or None."""
    return np.ascontiguousarray(a["wrenches"][t]) if "wrenches" in a else None
