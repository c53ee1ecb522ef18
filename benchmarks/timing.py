"""How times and memory are measured. Only the standard library: it runs wherever a peer runs.

The time of a case is that of its shortest call: other processes on the machine make calls longer, never shorter. All
cases of a table take turns in one process, round after round (`Run.interleave`). A turn has several calls, because the
first one finds the caches full of another case's data. Slow engines get less work per call, not longer calls: a long
call would hardly ever run undisturbed. Odd and even rounds are kept apart: the difference of these two halves is the
noise of the measurement. A peer, alone in its process, is timed by `shortest`, in two rounds as well.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Case = tuple[Callable[[], Any], int]  # a call, and how many units of work (env-steps) it does
LEAST_ROUNDS = 5
HALVES = 2  # of every measurement, whose difference is its noise
TURN, GROUP = 10e-3, 0.5e-3  # s: a turn of one case, and the least that is timed at once


@dataclass
class Run:
    """How long to measure, and whom to tell. scale: of all times that sections ask for."""

    quick: bool
    tell: Callable[[str], None] = lambda text: None
    scale: float = 1.0
    taken: dict[str, list[float]] = field(default_factory=dict)
    """Every case so far: seconds per unit of work, of the two halves."""

    def interleave(self, cases: Mapping[str, Case], seconds: float) -> dict[str, float]:
        """Seconds per unit of work of each case, the shortest in `seconds` (quick: in a fifteenth)."""
        groups = {}
        for name, (call, _) in cases.items():
            self.tell(f"{name}: warm-up")
            call()
            groups[name] = max(1, int(GROUP / _time(call, 1)))
        best = {name: [float("inf")] * HALVES for name in cases}
        end = time.perf_counter() + self.scale * (seconds / 15 if self.quick else seconds)
        names, rounds = list(cases), 0
        enabled = gc.isenabled()
        gc.disable()
        try:
            while rounds < LEAST_ROUNDS or time.perf_counter() < end:
                for name in names[rounds % len(names) :] + names[: rounds % len(names)]:
                    self.tell(f"{name} (round {rounds + 1})")
                    call, work = cases[name]
                    half = best[name]
                    half[rounds % HALVES] = min(half[rounds % HALVES], _turn(call, groups[name], TURN) / work)
                rounds += 1
        finally:
            if enabled:
                gc.enable()
        self.taken |= best
        return {name: min(halves) for name, halves in best.items()}

    def fresh(self, probe: str, *args: Any, cache: str | None = None) -> dict[str, float]:
        """What a function of ``probes`` measures in a process of its own; `cache`: its kernel cache."""
        self.tell(f"{probe}{args} in a fresh process")
        command = [sys.executable, "-m", "benchmarks.probes", probe, json.dumps(args)]
        environment = dict(os.environ) if cache is None else {**os.environ, "BACKDRIVE_CACHE": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users have it, too
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"{probe}{args} failed:\n{result.stderr}")
        return json.loads(result.stdout.splitlines()[-1])

    def empty_cache(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="backdrive-bench-")


def shortest(call: Callable[[], Any], seconds: float, most: int = 200) -> list[float]:
    """Seconds of a call, the shortest of each of two rounds, in processor time.

    Of a single thread that is the time on the clock, less what other processes take away. seconds: to spend in all, but
    at least one call a round. most: calls a round. Calls shorter than a millisecond are timed in groups.
    """
    group = max(1, int(1e-3 / max(_time(call, 1, time.process_time), 1e-7)))
    return [_turn(call, group, seconds / HALVES, most, time.process_time) for _ in range(HALVES)]


def _turn(
    call: Callable[[], Any],
    group: int,
    seconds: float,
    most: float = float("inf"),
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds of a call, the shortest in a turn of `seconds` on the clock and at most `most` groups of calls."""
    end = time.perf_counter() + seconds
    best, count = _time(call, group, clock), 1
    while time.perf_counter() < end and count < most:
        best, count = min(best, _time(call, group, clock)), count + 1
    return best


def _time(call: Callable[[], Any], group: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of a call, the mean of a group of calls."""
    start = clock()
    for _ in range(group):
        call()
    return (clock() - start) / group


def growth(call: Callable[[], Any]) -> float | None:
    """MB by which a call raises the peak of resident memory; None where the system does not report it (not Linux).

    The system keeps the peak since the process began, and importing and compiling set that higher than any rollout: it
    is reset (5 in /proc/self/clear_refs) to the memory that is resident now. Memory that malloc holds free but resident
    would hide new allocations: it is given back first.
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
    """The peak of resident memory since it was reset, bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not report VmHWM")
