"""Many calls with random wrong arguments: ``python -m benchmarks.fuzz [--calls N] [--seeds S ...]``.

Each call must be an exception or the right result, within 10 s; see `tests/support/fuzz_operators.py`, which makes the
calls, in processes of their own in which memory that was freed has odd contents. The exit code is 1 if a call was not.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from backdrive.backends import available_cores

SCRIPT = Path(__file__).parents[1] / "tests" / "support" / "fuzz_operators.py"
PART = 10_000  # calls of one process


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--calls", type=int, default=1_000_000, help="of all seeds together")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 31337])
    parser.add_argument("-j", "--jobs", type=int, default=available_cores(), help="processes at a time")
    arguments = parser.parse_args()
    parts, began, made, refused, failed = [], time.perf_counter(), 0, 0, 0
    for k, first in enumerate(range(0, arguments.calls, PART)):
        seed, count = arguments.seeds[k % len(arguments.seeds)], min(PART, arguments.calls - first)
        parts.append((seed, count, PART * (k // len(arguments.seeds))))
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for (seed, count, first), done in zip(parts, pool.map(lambda part: run(*part), parts), strict=True):
            made, seconds = made + count, time.perf_counter() - began
            if done.returncode == 0:
                refused += int(done.stdout.split(",")[1].split()[0])
            else:
                failed += 1
                print(f"seed {seed}, {count} calls from {first} on:\n{done.stderr[-3000:]}")
            print(f"{made:,} calls in {seconds:,.0f} s, {refused:,} refused; {failed} failures", flush=True)
    return 1 if failed else 0


def run(seed: int, count: int, first: int) -> subprocess.CompletedProcess[str]:
    """Calls `first` and following of a seed."""
    environment = os.environ | {"MALLOC_PERTURB_": "165", "PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, str(SCRIPT), str(seed), str(count), str(first)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


if __name__ == "__main__":
    sys.exit(main())
