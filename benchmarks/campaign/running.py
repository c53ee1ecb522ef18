"""Tasks in processes of their own, several at a time, with a limit of time for each."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, NamedTuple

from .work import Task

LONGEST = 900.0  # s, of a task
POLL = 0.1  # s


class _Running(NamedTuple):
    task: Task
    process: subprocess.Popen
    output: IO[str]
    errors: IO[str]
    began: float


def run_tasks(tasks: Sequence[Task], jobs: int, folder: Path, end: float) -> Iterator[dict[str, Any]]:
    """Yield the result of each task as soon as it is known; begin none after `end` (monotonic clock, s).

    A task that crashed or took too long has an "error" in place of counts.
    """
    left, running = list(reversed(tasks)), list[_Running]()
    try:
        while left or running:
            while left and len(running) < jobs and time.monotonic() < end:
                running.append(_begin(left.pop(), folder))
            if not running:
                return
            time.sleep(POLL)
            for each in list(running):
                late = time.monotonic() - each.began > LONGEST
                if each.process.poll() is None and not late:
                    continue
                running.remove(each)
                yield _result(each, late)
    finally:
        for each in running:
            each.process.kill()


def _begin(task: Task, folder: Path) -> _Running:
    output, errors = (tempfile.TemporaryFile("w+") for _ in range(2))  # noqa: SIM115 (closed with the process)
    command = [sys.executable, "-m", "benchmarks.campaign.work", json.dumps(asdict(task) | {"folder": str(folder)})]
    process = subprocess.Popen(command, stdout=output, stderr=errors)
    return _Running(task, process, output, errors, time.monotonic())


def _result(each: _Running, late: bool) -> dict[str, Any]:
    if late:
        each.process.kill()
        each.process.wait()
    each.output.seek(0)
    each.errors.seek(0)
    written, told = each.output.read().strip(), each.errors.read().strip()
    if each.process.returncode == 0 and written:
        return json.loads(written.splitlines()[-1])
    why = f"took more than {LONGEST:g} s" if late else f"exit code {each.process.returncode}: {told[-1500:]}"
    return asdict(each.task) | {"error": why, "seconds": time.monotonic() - each.began}
