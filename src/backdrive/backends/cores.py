"""How many cores there are to use."""

from __future__ import annotations

import os


def available_cores() -> int:
    """The number of cores that this process may run on: all of the machine's, unless its affinity is limited, as by
    ``taskset`` or by a scheduler of jobs."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1
