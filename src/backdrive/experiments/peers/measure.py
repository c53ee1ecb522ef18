"""Time and memory of a call. Only the standard library: it runs wherever a tool runs."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 2  # whose difference is the noise


def shortest(call: Callable[[], object], seconds: float, most: int = 200) -> list[float]:
    """Seconds of a call, the shortest of each of two rounds. What else the machine does makes calls longer only.

    It is the processor's time: that on the clock, if there is one thread, less what other processes take away from it.
    seconds: to spend, or two calls. Calls shorter than a millisecond are timed in groups.
    """
    first = _time(call, 1)
    group = max(1, int(1e-3 / max(first, 1e-7)))
    best = []
    for k in range(ROUNDS):
        end = time.perf_counter() + seconds / ROUNDS
        times = [first] if k == 0 and first > seconds else [_time(call, group)]
        while time.perf_counter() < end and len(times) < most:
            times.append(_time(call, group))
        best.append(min(times))
    return best


def _time(call: Callable[[], object], group: int) -> float:
    start = time.process_time()
    for _ in range(group):
        call()
    return (time.process_time() - start) / group


def growth(call: Callable[[], object]) -> float | None:
    """MB by which a call raises the peak of resident memory; None where the system does not tell (it is not Linux).

    The system keeps the peak since the process began (getrusage has no other), and importing and compiling set that
    higher than any rollout: it is reset (5 in /proc/self/clear_refs) to what is resident now. What malloc holds free
    but resident would hide new memory: it is given back first.
    """
    reset = Path("/proc/self/clear_refs")
    if not reset.exists():
        return None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    reset.write_text("5")
    before = _peak()
    kept = call()
    after = _peak()
    del kept
    return (after - before) / 1e6


def _peak() -> int:
    """Bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not report VmHWM")
