"""Run a kernel over a batch, split over threads. Environments are independent, so the split does not change results."""

from __future__ import annotations

import atexit
import functools
import os
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from ..base import Executable, Number, Picked, Rows

_local = threading.local()
_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def run(executable: Executable, batch: int, threads: int, values: dict[str, Any]) -> None:
    """Run a kernel for environments 0 ... batch - 1.

    values, by the argument's name: of Rows (address, stride between environments, stride between times, in elements),
    of Picked (address, stride, address of the indices), of Packs, Table and Ints an address, of Integer an int, of
    Number a float. Shapes are not checked.
    """
    block = _block(executable, values)
    scratch = executable.scratch_bytes(tuple([values[name] for name in executable.integers]))
    packs = -(-batch // executable.lanes)
    parts = max(1, min(threads, packs))
    ends = [min(batch, (packs * k // parts) * executable.lanes) for k in range(parts + 1)]

    def part(k: int) -> None:
        executable.call(block, scratch_memory(scratch), ends[k], ends[k + 1])

    if parts == 1:
        part(0)
        return
    futures: list[Future] = []
    try:
        for k in range(1, parts):
            futures.append(_submit(threads, part, k))
        part(0)
    finally:
        _finish(futures)
    for future in futures:
        future.result()


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


def scratch_memory(size: int) -> int:
    """The address of this thread's scratch memory, aligned to the widest register."""
    buffer = getattr(_local, "buffer", None)
    if buffer is None or buffer.nbytes < size + 64:
        buffer = _local.buffer = np.empty(size + 64, np.uint8)
        _local.address = -(-buffer.ctypes.data // 64) * 64
    return _local.address


def _submit(threads: int, function: Callable[[int], None], k: int) -> Future:
    """Call function(k) in the thread pool, which is replaced by a larger one if it has too few threads."""
    global _pool
    with _pool_lock:  # also around submit(): another caller may replace this pool by a larger one
        if _pool is None or _pool._max_workers < threads - 1:
            if _pool is not None:
                _pool.shutdown(wait=False)
            _pool = ThreadPoolExecutor(max(threads - 1, (os.cpu_count() or 2) - 1), thread_name_prefix="backdrive")
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
    """Drop the thread pool in a forked child, which has none of its threads."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
atexit.register(_forget_pool)
