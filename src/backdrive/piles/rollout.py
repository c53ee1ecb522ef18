"""Rollouts of a batch of piles, one world after the other, and their derivative."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from torch import Tensor

from ..model import Model
from ..physics.scheme import Scheme
from .adjoint import Adjoint
from .memory import Spare
from .soft.adjoint import SoftAdjoint
from .soft.step import SoftEngine
from .step import Engine
from .world import PileRecord, PileWorld, StepAdjoint, StepEngine

Array = np.ndarray
MOST_KEPT = 256e6  # bytes: a world that is not in use is kept if its memory is below this
MOST_RECORDED = 512e6  # bytes: steps of a rollout are kept for its derivative up to this; the others are made again


class SparseProgram:
    """Rollouts of a model as a pile: its kernels, worlds and memory."""

    def __init__(self, model: Model, h: float, scheme: Scheme, directions: int, bits: int, threads: int) -> None:
        self.model, self.threads, self._make = model, threads, (h, scheme, directions, bits)
        self._engines: dict[tuple[bool, bool], tuple[StepEngine, StepAdjoint]] = {}
        self._worlds: dict[tuple[bool, bool], list[PileWorld]] = {}  # those that are not in use
        self._spare = Spare(np.float64 if bits == 64 else np.float32, MOST_RECORDED)

    def engine(self, bounces: bool, wrenches: bool) -> tuple[StepEngine, StepAdjoint]:
        key = (bounces, wrenches)
        if key not in self._engines:
            self._engines[key], self._worlds[key] = self._new_engine(bounces, wrenches), []
        return self._engines[key]

    def _new_engine(self, bounces: bool, wrenches: bool) -> tuple[StepEngine, StepAdjoint]:
        h, scheme, directions, bits = self._make
        if scheme.soft is not None:
            soft = SoftEngine(self.model, h, scheme, bits, wrenches)
            return soft, SoftAdjoint(soft)
        engine = Engine(self.model, h, scheme, directions, bits, bounces, wrenches)
        return engine, Adjoint(engine)

    @contextlib.contextmanager
    def world(self, bounces: bool, wrenches: bool, constants: Array) -> Iterator[PileWorld]:
        """A world with these constants. Its memory, and the pairs that its broad phase found, serve the next one."""
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
    ) -> PileRecord:  # fmt: skip
        """As the kernel `rollout`; rows: its tensors by their names. keep_steps: for the adjoint, see `PileRecord`."""
        record = PileRecord(batch, self._spare, MOST_RECORDED / batch if keep_steps and integers["every"] == 1 else 0.0)

        def one(world: PileWorld, own: dict[str, Array], k: int) -> None:
            world.rollout(own, record, k, **integers)

        self._each(batch, rows, constants, bounces, one)
        return record

    def rollout_adjoint(
        self, batch: int, rows: Mapping[str, Tensor], integers: Mapping[str, int], constants: Tensor, bounces: bool,
        record: PileRecord | None,
    ) -> None:  # fmt: skip
        """As the kernels `rollout_adjoint` and `checkpoint_adjoint`; record: of the rollout, if there is one."""

        def one(world: PileWorld, own: dict[str, Array], k: int) -> None:
            world.rollout_adjoint(own, record, k, **integers)

        self._each(batch, rows, constants, bounces, one)

    def _each(
        self, batch: int, rows: Mapping[str, Tensor], constants: Tensor, bounces: bool,
        work: Callable[[PileWorld, dict[str, Array], int], None],
    ) -> None:  # fmt: skip
        """Do the work of every environment, with its rows; in threads, but for the first one."""
        arrays = {name: as_array(x) for name, x in rows.items()}
        numbers, interrupted = as_array(constants), threading.Event()

        def one(k: int) -> None:
            own = {name: x[k] if x.ndim == 2 else x[:, k] for name, x in arrays.items()}
            with self.world(bounces, "wrenches" in rows, numbers[k] if numbers.ndim == 2 else numbers) as world:
                world.interrupted = interrupted
                work(world, own, k)

        one(0)  # compiles the kernels
        if batch > 1:
            with ThreadPoolExecutor(min(self.threads, batch - 1)) as pool:
                try:
                    list(pool.map(one, range(1, batch)))
                except BaseException:
                    interrupted.set()
                    raise


def as_array(x: Tensor) -> Array:
    """The numbers of a tensor; a copy if torch negates them when they are read, or if the tensor owns no memory."""
    x = x.detach().resolve_neg()
    return (x if x.data_ptr() or not x.numel() else x.clone()).numpy()
