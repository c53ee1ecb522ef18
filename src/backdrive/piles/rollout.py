"""Rollouts of a batch of big worlds, one after the other, and their derivative."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from torch import Tensor

from ..model import Model
from ..physics.step import Scheme
from .adjoint import Adjoint
from .memory import Memory, Spare
from .step import Engine, Impulses, Outcome
from .tables import Numbers

Array = np.ndarray
MOST_KEPT = 256e6  # bytes of memory of a world that is not in use
MOST_RECORDED = 512e6  # bytes of a rollout's steps, of which the derivative then need not be found anew


class RolloutRecord:
    """The part of a rollout that its adjoint needs and that its states do not tell.

    starts: the warm start of every segment, [environment][segment]. steps: the first steps of every environment,
    [environment][step], with all that their derivative reads, each in a memory of its own. room: bytes for the steps of
    one environment; 0: none are kept.
    """

    def __init__(self, batch: int, spare: Spare, room: float) -> None:
        self.starts: list[list[Impulses | None]] = [[] for _ in range(batch)]
        self.steps: list[list[Outcome]] = [[] for _ in range(batch)]
        self.spare, self.room = spare, room
        self._memories: list[Memory] = []
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

    def rollout(
        self, batch: int, rows: Mapping[str, Tensor], integers: Mapping[str, int], constants: Tensor, bounces: bool,
        keep_steps: bool,
    ) -> RolloutRecord:  # fmt: skip
        """As the kernel `rollout`; rows: its tensors by their names. keep_steps: in the record, for the adjoint."""
        record = RolloutRecord(
            batch, self._spare, MOST_RECORDED / batch if keep_steps and integers["every"] == 1 else 0.0
        )

        def one(world: PileWorld, own: dict[str, Array], k: int) -> None:
            world.rollout(own, record, k, **integers)

        self._each(batch, rows, constants, bounces, one)
        return record

    def rollout_adjoint(
        self, batch: int, rows: Mapping[str, Tensor], integers: Mapping[str, int], constants: Tensor, bounces: bool,
        record: RolloutRecord | None,
    ) -> None:  # fmt: skip
        """As the kernels `rollout_adjoint` and `checkpoint_adjoint`; record: of the rollout, if there is one."""

        def one(world: PileWorld, own: dict[str, Array], k: int) -> None:
            world.rollout_adjoint(own, record, k, **integers)

        self._each(batch, rows, constants, bounces, one)

    def _each(
        self, batch: int, rows: Mapping[str, Tensor], constants: Tensor, bounces: bool,
        work: Callable[[PileWorld, dict[str, Array], int], None],
    ) -> None:  # fmt: skip
        """Do the work of every environment, with its rows."""
        arrays = {name: as_array(x) for name, x in rows.items()}
        numbers = as_array(constants)

        def one(k: int) -> None:
            own = {name: x[k] if x.ndim == 2 else x[:, k] for name, x in arrays.items()}
            with self.world(bounces, "wrenches" in rows, numbers[k] if numbers.ndim == 2 else numbers) as world:
                work(world, own, k)

        one(0)  # (which compiles)
        if batch > 1:
            with ThreadPoolExecutor(min(self.threads, batch - 1)) as pool:
                list(pool.map(one, range(1, batch)))


class PileWorld:
    """One environment. `a`: its rows of the tensors, [n] or [T, n]."""

    def __init__(self, engine: Engine, adjoint: Adjoint, constants: Array) -> None:
        self.engine, self.adjoint = engine, adjoint
        self.memory, self.near = Memory(engine.dtype), engine.neighbours()
        self.numbers = Numbers(engine.tables, engine.body, np.ascontiguousarray(constants))

    def take(self, constants: Array) -> None:
        """These are its constants from now on."""
        before, tables = self.numbers, self.engine.tables
        self.numbers = Numbers(tables, self.engine.body, np.ascontiguousarray(constants))
        planes = slice(tables.nsolid, None)
        if not np.array_equal(self.numbers.records[planes], before.records[planes]):
            self.near.forget()

    def forward(
        self, a: dict[str, Array], t: int, q: Array, v: Array, warm: Impulses | None, memory: Memory | None = None,
        keep: bool = False,
    ) -> Outcome:  # fmt: skip
        """Step t from (q, v), with the impulses of the step before; memory: of its own, if it has any."""
        memory = self.memory if memory is None else memory
        return self.engine.forward(memory, self.near, self.numbers, q, v, wrench_of(a, t), warm, keep)

    def steps(
        self, a: dict[str, Array], q: Array, v: Array, warm: Impulses | None, first: int, end: int
    ) -> list[tuple[Array, Array, Impulses | None]]:
        """What steps `first` to `end` start from, and what the last one comes to."""
        found = [(q, v, warm)]
        for t in range(first, end):
            outcome = self.forward(a, t, *found[-1])
            found.append((outcome.q, outcome.v, outcome.impulses))
        return found

    def rollout(self, a: dict[str, Array], record: RolloutRecord, k: int, steps: int, every: int) -> None:
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
        self, a: dict[str, Array], record: RolloutRecord | None, k: int, steps: int, truncate: int, every: int = 1
    ) -> None:
        """See `physics.rollout`. Without the impulses before its segments, the rollout is made again."""
        states = np.ascontiguousarray(a["path_q"]), np.ascontiguousarray(a["path_v"])
        starts, kept = (None, []) if record is None else (record.starts[k], record.steps[k])
        starts = starts or self._starts(a, *states, steps, every)
        q_bar, v_bar, impulses_bar = np.array(a["last_q_bar"]), np.array(a["last_v_bar"]), None
        links_bar, records_bar = np.zeros_like(self.numbers.links), np.zeros_like(self.numbers.records)
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
                bars = self.adjoint.backward(
                    self.memory, self.numbers, step, q, v, wrench_of(a, t), q_bar, v_bar, impulses_bar,
                    0 if warm is None else len(warm.table),
                )  # fmt: skip
                q_bar, v_bar, impulses_bar = bars.q, bars.v, bars.impulses
                links_bar += bars.links
                records_bar += bars.records
                if "wrenches_bar" in a:
                    a["wrenches_bar"][t] = bars.wrench
        a["q_bar"][:], a["v_bar"][:] = q_bar, v_bar
        if "constants_bar" in a:
            engine = self.engine
            a["constants_bar"][:] = Numbers.pull_back(engine.tables, engine.body, links_bar, records_bar)

    def _starts(self, a: dict[str, Array], q: Array, v: Array, steps: int, every: int) -> list[Impulses | None]:
        warm: Impulses | None = None
        starts: list[Impulses | None] = []
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
