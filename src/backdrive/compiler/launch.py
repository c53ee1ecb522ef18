"""Running a kernel over a batch, split over threads. The environments are independent, so the split changes no bit."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .kernel import Executable, Integer, Number, Rows

_local = threading.local()
_pool: ThreadPoolExecutor | None = None
_pool_lock = threading.Lock()


def run(executable: Executable, batch: int, threads: int, values: dict[str, Any]) -> None:
    """Run over environments 0 ... batch - 1.

    `values`: for Rows (address, stride between environments, stride between times; in elements), for Table and Ints
    an address, for Integer an int, for Number a float. The caller answers for the shapes.
    """
    words, integers = [], {}
    for a in executable.arguments:
        x = values[a.name]
        if isinstance(a, Rows):
            words += x
        elif isinstance(a, Number):
            words.append(ctypes.c_int64.from_buffer(ctypes.c_double(x)).value)
        else:
            words.append(x)
            if isinstance(a, Integer):
                integers[a.name] = x
    block = (ctypes.c_int64 * len(words))(*words)
    scratch = executable.scratch_size(integers) * executable.lanes * 8
    packs = -(-batch // executable.lanes)
    parts = max(1, min(threads, packs))
    if parts == 1:
        executable.call(block, _scratch(scratch), 0, batch)
        return
    ends = [min(batch, (packs * k // parts) * executable.lanes) for k in range(parts + 1)]

    def part(k: int) -> None:
        executable.call(block, _scratch(scratch), ends[k], ends[k + 1])

    futures = [_executor(threads).submit(part, k) for k in range(1, parts)]
    part(0)
    for future in futures:
        future.result()


def _scratch(size: int) -> int:
    """The address of this thread's scratch memory, aligned to the widest register."""
    buffer = getattr(_local, "buffer", None)
    if buffer is None or buffer.nbytes < size + 64:
        buffer = _local.buffer = np.empty(size + 64, np.uint8)
        _local.address = -(-buffer.ctypes.data // 64) * 64
    return _local.address


def _executor(threads: int) -> ThreadPoolExecutor:
    global _pool
    with _pool_lock:
        if _pool is None or _pool._max_workers < threads - 1:
            if _pool is not None:
                _pool.shutdown(wait=False)
            _pool = ThreadPoolExecutor(max(threads - 1, (os.cpu_count() or 2) - 1), thread_name_prefix="backdrive")
        return _pool


def _forget_pool() -> None:
    """Threads do not survive a fork: the child makes its own."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
atexit.register(_forget_pool)
