"""Run scenes in processes of their own, several at a time."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .registry import Arrays, Skipped


@dataclass(frozen=True)
class Outcome:
    """What came of a scene: its arrays, or why there are none. seconds: of processor time that it took."""

    name: str
    arrays: Arrays | None
    seconds: float
    skipped: str = ""
    error: str = ""


def run_scenes(names: Sequence[str], jobs: int) -> Iterator[Outcome]:
    """Run the scenes in `jobs` processes, and yield each outcome as soon as it is known."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context, initializer=_prepare) as pool:
        for future in concurrent.futures.as_completed([pool.submit(_run, name) for name in names]):
            yield future.result()


def _prepare() -> None:
    """Torch sums on one thread: in which order it adds up must not depend on the machine's load."""
    import torch

    torch.set_num_threads(1)


def _run(name: str) -> Outcome:
    from .scenes import SCENES

    began = time.process_time()
    try:
        arrays = SCENES[name].function()
    except Skipped as reason:
        return Outcome(name, None, time.process_time() - began, skipped=str(reason))
    except Exception:
        return Outcome(name, None, time.process_time() - began, error=traceback.format_exc())
    return Outcome(name, arrays, time.process_time() - began)
