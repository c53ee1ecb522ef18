"""How times are taken.

All cases of a table take turns in one process, round after round; a case's time is the shortest of its calls.
What else runs on the machine slows some calls down, and the shortest the least. A turn has several calls, for
the first finds the caches full of other cases' data. Slow engines get less work per call, not longer calls: a
long call would hardly ever run undisturbed. Every second round is kept apart: by how much the two halves differ is the
noise of a measurement.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Case = tuple[Callable[[], Any], int]  # a call, and how many units of work (env-steps) it does
LEAST_ROUNDS = 5
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
            groups[name] = max(1, int(GROUP / _shortest(call, 1, 0)))
        best = {name: [float("inf")] * 2 for name in cases}
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
                    half[rounds % 2] = min(half[rounds % 2], _shortest(call, groups[name], TURN) / work)
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


def _shortest(call: Callable[[], Any], group: int, turn: float) -> float:
    """Seconds per call, the shortest in a turn of that many seconds; `group` calls are timed together."""
    best, end = float("inf"), time.perf_counter() + turn
    while True:
        start = time.perf_counter()
        for _ in range(group):
            call()
        now = time.perf_counter()
        best = min(best, (now - start) / group)
        if now >= end:
            return best
