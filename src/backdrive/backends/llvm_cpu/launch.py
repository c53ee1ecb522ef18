"""Run a kernel over a batch, split over threads. Environments are independent, so the split does not change results.

Signals are handled while a kernel runs, and may end it: see `interrupts`.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np

from ..base import Executable, Number, Picked, Rows
from ..cores import available_cores
from . import interrupts
from .abi import HEADER

_local = threading.local()
_of_handlers = threading.local()
"""Scratch memory of a handler of a signal: that of its thread is in use by the kernel that the signal interrupted."""
_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


class Regrouping(NamedTuple):
    """A call of a kernel as several, one after the other: before each, the environments of every thread are packed
    anew, with others like them. Which ones share a pack changes how fast it is, and no result.

    parts: of every call, the values that are its own. between: memory that they refer to. order [batch]: that of the
    kernel's `Order`. likeness [batch]: numbers that the kernel writes, close to each other where environments are
    alike.
    """

    parts: Sequence[dict[str, Any]]
    between: Any
    order: np.ndarray
    likeness: np.ndarray

    def sort(self, first: int, last: int) -> None:
        """Sort the environments of a range, which it does not leave."""
        order = self.order[first:last]
        order[:] = order[np.argsort(self.likeness[order], kind="stable")]


def run(
    executable: Executable, batch: int, threads: int, values: dict[str, Any], regrouping: Regrouping | None = None
) -> None:
    """Run a kernel for environments 0 ... batch - 1.

    values, by the argument's name: of Rows (address, stride between environments, stride between times, in elements),
    of Picked (address, stride, address of the indices), of Packs, Table and Ints an address, of Integer an int, of
    Number a float. Shapes are not checked.
    """
    blocks = [_block(executable, values | part) for part in (({},) if regrouping is None else regrouping.parts)]
    scratch = executable.scratch_bytes(tuple([values[name] for name in executable.integers]))
    packs = -(-batch // executable.lanes)
    parts = max(1, min(threads, packs))
    ends = [min(batch, (packs * k // parts) * executable.lanes) for k in range(parts + 1)]

    def blocks_of(first: int, last: int) -> Iterator[bytes]:
        for block in blocks:
            if regrouping is not None:
                regrouping.sort(first, last)
            yield block

    if parts == 1:
        for block in blocks_of(0, batch):
            call(executable, block, scratch, 0, batch)
        return
    pulse = interrupts.Pulse()  # of the other threads: it ends them if this one is interrupted

    def part(k: int) -> None:
        for block in blocks_of(ends[k], ends[k + 1]):
            executable.call(block, scratch_memory(scratch, pulse), ends[k], ends[k + 1])

    futures: list[Future] = []
    try:
        for k in range(1, parts):
            futures.append(_submit(threads, part, k))
        for block in blocks_of(ends[0], ends[1]):
            call(executable, block, scratch, ends[0], ends[1])
        wait(futures)
    except BaseException:
        pulse.set()
        raise
    finally:
        _finish(futures)
    for future in futures:
        future.result()


def call(executable: Executable, block: bytes, scratch: int, first: int, last: int) -> None:
    """Call a kernel in this thread; scratch: the bytes of scratch memory that it needs. Raises what interrupts it."""
    try:
        executable.call(block, scratch_memory(scratch), first, last)
    finally:
        if interrupts.caught:
            interrupts.reraise()


def _block(executable: Executable, values: dict[str, Any]) -> Any:
    """The arguments as a block of words, as the kernel's entry point expects them."""
    words: list[int] = []
    for name, kind in executable.layout:
        if kind is Rows or kind is Picked:
            words += values[name]
        elif kind is Number:
            words.append(float_bits(values[name]))
        else:
            words.append(values[name])
    return executable.block(*words)


@functools.lru_cache(64)
def float_bits(x: float) -> int:
    """The word of a `Number`: the bits of a float64 as an integer."""
    return struct.unpack("q", struct.pack("d", x))[0]


def scratch_memory(size: int, pulse: interrupts.Pulse | None = None) -> int:
    """The address of this thread's scratch memory, aligned to the widest register; the address of the thread's pulse is
    in its header. pulse: another one, which this call has."""
    memory = _local
    if interrupts.asking.gi_running and interrupts.handling():
        memory = _of_handlers
    buffer = getattr(memory, "buffer", None)
    if buffer is None or buffer.nbytes < size + 2 * HEADER:
        buffer = memory.buffer = np.empty(size + 2 * HEADER, np.uint8)
        memory.address = HEADER - (-buffer.ctypes.data // HEADER) * HEADER
        memory.pulse = ctypes.c_int64.from_address(memory.address - HEADER)
        memory.pulse.value = (interrupts.QUIET if memory is _of_handlers else interrupts.pulse_of_this_thread()).address
    if pulse is not None:
        memory.pulse.value = pulse.address
    return memory.address


def _submit(threads: int, function: Callable[[int], None], k: int) -> Future:
    """Call function(k) in the thread pool, which is replaced by a larger one if it has too few threads."""
    global _pool
    with _pool_lock:  # also around submit(): another caller may replace this pool by a larger one
        if _pool is None or _pool._max_workers < threads - 1:
            if _pool is not None:
                _pool.shutdown(wait=False)
            _pool = ThreadPoolExecutor(max(threads - 1, available_cores() - 1, 1), thread_name_prefix="backdrive")
        return _pool.submit(function, k)


def _finish(futures: list[Future]) -> None:
    """Wait for all threads, even if the user interrupts: they write to memory that the caller may free."""
    interrupt = None
    while True:
        try:
            wait(futures)
            break
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


def _forget_pool() -> None:
    """Drop the thread pool in a forked child, which has none of its threads, but another main thread, perhaps."""
    global _pool, _pool_lock, _local
    _pool, _pool_lock, _local = None, threading.Lock(), threading.local()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
atexit.register(_forget_pool)
