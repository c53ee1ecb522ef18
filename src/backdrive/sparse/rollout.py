"""Rollouts of a batch of big worlds, one after the other, and their derivative."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from torch import Tensor

from ..model import Model
from ..physics.step import Scheme
from .adjoint import Adjoint
from .memory import Memory
from .step import Engine, Impulses, Outcome
from .tables import Numbers

Array = np.ndarray
MOST_KEPT = 256e6  # bytes of memory of a world that is not in use
_numbers = itertools.count(2)  # 0 and 1 say whether a rollout has a path
_records: weakref.WeakValueDictionary[int, Record] = weakref.WeakValueDictionary()
_last = threading.local()


class Record:
    """What the solver started from in a rollout, which its states do not tell: [environment][segment]."""

    def __init__(self, batch: int) -> None:
        self.starts: list[list[Impulses | None]] = [[]] * batch
        self.number = next(_numbers)
        _records[self.number] = self


class SparseProgram:
    """Rollouts of a model in its sparse form."""

    def __init__(self, model: Model, h: float, scheme: Scheme, directions: int, bits: int, threads: int) -> None:
        self.model, self.threads, self._make = model, threads, (h, scheme, directions, bits)
        self._engines: dict[tuple[bool, bool], tuple[Engine, Adjoint]] = {}
        self._worlds: dict[tuple[bool, bool], list[World]] = {}  # that nobody uses now

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
    def world(self, bounces: bool, wrenches: bool, constants: Array) -> Iterator[World]:
        """One with these constants. Its memory, and the neighbours it has found, are of use to the next one."""
        engine, free = self.engine(bounces, wrenches), self._worlds[bounces, wrenches]
        if free:
            world = free.pop()
            world.take(constants)
        else:
            world = World(*engine, constants)
        yield world
        if world.memory.size() < MOST_KEPT:
            free.append(world)

    def run(
        self, form: str, batch: int, rows: dict[str, Tensor], integers: dict[str, int], constants: Tensor,
        bounces: bool,
    ) -> None:  # fmt: skip
        """As `Program.run`, of rollouts and their adjoint."""
        arrays = {name: as_array(x) for name, x in rows.items()}
        numbers = as_array(constants)
        wrenches = "wrenches" in rows
        record = Record(batch) if form == "rollout" else _records.get(integers["record"])
        _last.record = record if form == "rollout" else None

        def one(k: int) -> None:
            own = {name: x[k] if x.ndim == 2 else x[:, k] for name, x in arrays.items()}
            with self.world(bounces, wrenches, numbers[k] if numbers.ndim == 2 else numbers) as world:
                if form == "rollout":
                    assert record is not None
                    record.starts[k] = world.rollout(own, **integers)
                else:
                    world.rollout_adjoint(own, None if record is None else record.starts[k], **integers)

        one(0)  # (which compiles)
        if batch > 1:
            with ThreadPoolExecutor(min(self.threads, batch - 1)) as pool:
                list(pool.map(one, range(1, batch)))


class World:
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

    def steps(
        self, a: dict[str, Array], q: Array, v: Array, warm: Impulses | None, first: int, end: int,
        after: Callable[[int, Outcome], None],
    ) -> tuple[Array, Array, Impulses | None]:  # fmt: skip
        """Steps `first` to `end`; after each: after(its number, its outcome)."""
        for t in range(first, end):
            outcome = self.forward(q, v, wrench_of(a, t), warm)
            q, v, warm = outcome.q, outcome.v, outcome.impulses
            after(t, outcome)
        return q, v, warm

    def forward(self, q: Array, v: Array, wrench: Array | None, warm: Impulses | None, keep: bool = False) -> Outcome:
        return self.engine.forward(self.memory, self.near, self.numbers, q, v, wrench, warm, keep)

    def rollout(self, a: dict[str, Array], steps: int, every: int) -> list[Impulses | None]:
        """See `physics.rollout`; returns the impulses before every segment."""
        q, v = np.array(a["q"]), np.array(a["v"])
        warm: Impulses | None = None
        starts: list[Impulses | None] = []

        def note(t: int, outcome: Outcome) -> None:
            a["status"][t] = outcome.status

        for s, first in enumerate(range(0, steps, every)):
            starts.append(warm)
            q, v, warm = self.steps(a, q, v, warm, first, min(first + every, steps), note)
            a["path_q"][s], a["path_v"][s] = q, v
        a["last_q"][:], a["last_v"][:] = q, v
        return starts

    def rollout_adjoint(
        self, a: dict[str, Array], starts: list[Impulses | None] | None, steps: int, truncate: int, record: int,
        every: int = 1,
    ) -> None:  # fmt: skip
        """See `physics.rollout`. Without the impulses before its segments, the rollout is made again."""
        states = np.ascontiguousarray(a["path_q"]), np.ascontiguousarray(a["path_v"])
        starts = starts or self._starts(a, *states, steps, every)
        q_bar, v_bar, impulses_bar = np.array(a["last_q_bar"]), np.array(a["last_v_bar"]), None
        links_bar, records_bar = np.zeros_like(self.numbers.links), np.zeros_like(self.numbers.records)
        if "controls_bar" in a:
            a["controls_bar"][...] = 0.0  # there are none
        for s in reversed(range(len(starts))):
            first, end = s * every, min((s + 1) * every, steps)
            before: list[tuple[Array, Array, Impulses | None]] = [(states[0][s], states[1][s], starts[s])]
            self.steps(
                a, *before[0], first, end - 1,
                lambda t, x: before.append((x.q, x.v, x.impulses)),  # noqa: B023
            )  # fmt: skip
            for t in reversed(range(first, end)):
                if (t + 1) % truncate == 0 and t + 1 < steps:
                    q_bar[:], v_bar[:], impulses_bar = 0.0, 0.0, None
                if t + 1 == end:
                    q_bar, v_bar = q_bar + a["path_q_bar"][s], v_bar + a["path_v_bar"][s]
                q, v, warm = before[t - first]
                wrench = wrench_of(a, t)
                step = self.forward(q, v, wrench, warm, keep=True)
                bars = self.adjoint.backward(
                    self.memory, self.numbers, step, q, v, wrench, q_bar, v_bar, impulses_bar,
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
            *_, warm = self.steps(a, q[s], v[s], warm, first, min(first + every, steps), lambda t, x: None)
        return starts


def as_array(x: Tensor) -> Array:
    """The numbers of a tensor; those of one that torch negates when it is read, or that owns no memory, are a copy."""
    x = x.detach().resolve_neg()
    return (x if x.data_ptr() or not x.numel() else x.clone()).numpy()


def wrench_of(a: dict[str, Array], t: int) -> Array | None:
    """On all bodies in step t, [6 nbody], or None."""
    return np.ascontiguousarray(a["wrenches"][t]) if "wrenches" in a else None
