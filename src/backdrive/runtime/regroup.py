"""Which environments share a pack, in Runge-Kutta rollouts of MuJoCo's physics and their adjoints.

The lanes of a pack compute each other's contacts and limits: a row that acts in one of them is computed in all. So
environments whose active sets were similar at the end of the last call are packed together; and a rollout with given
controls is done in parts of a few steps, before each of which they are packed anew. Results do not depend on it: those
of a lane are the same in any company.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..backends import Executable, Order
from ..backends.llvm_cpu.launch import Regrouping
from ..schema.signatures import ROLLOUT, RolloutSettings, Signature
from .request import Request

STEPS = 2  # of a part; active sets change from step to step, but smaller parts gain little more than they cost
LEAST = 64  # environments of a thread; it takes about 20 µs to sort them and call the kernel again


def regrouping(
    request: Request, signature: Signature, batch: int, executable: Executable, values: Mapping[str, Any]
) -> Regrouping | None:
    """How a kernel is called with environments in an order; None for one that takes none. values: those of the call, as
    `backends.run` takes them."""
    program, settings = request.program, request.settings
    if settings is None or ("order", Order) not in executable.layout:
        return None
    numbers = np.float64 if program.bits == 64 else np.float32
    order, likeness, between = np.arange(batch), program.likeness.copy(), []
    if len(likeness) != batch:
        likeness = np.zeros(batch, numbers)
    if signature.status:  # it tells of the environments
        program.likeness = likeness
    parts: list[dict[str, Any]] = [{}]
    if signature is ROLLOUT:
        between = [np.empty((2 * batch + 1, size), numbers) for size in program.state_sizes]
        parts = list(_parts(settings, between, values))
    shared = {"order": order.ctypes.data, "likeness": (likeness.ctypes.data, 1, 0)}
    return Regrouping([part | shared for part in parts], between, order, likeness)


def parts_of(settings: RolloutSettings) -> Iterator[tuple[int, int]]:
    """The first steps and the ends of the parts, each of which is of whole segments, or within one."""
    start, every = 0, settings.every
    while start < settings.steps:
        end = min(start + STEPS, settings.steps)
        boundary = (start // every + 1) * every
        if end > boundary:
            end = boundary if start % every else end // every * every
        yield start, end
        start = end


def _parts(
    settings: RolloutSettings, between: Sequence[np.ndarray], values: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The values of each part, which starts where the one before it ended.

    between: for every field of the state, [2 B + 1, n]: the ends of parts that are not on the path, by turns, and a row
    that nobody reads.
    """
    every, itemsize = settings.every, between[0].itemsize
    timed = [(a.name, a.axes[0]) for a in ROLLOUT.arguments.values() if a.name in values and a.axes[0] in ("T", "S")]
    paths = [a for a in ROLLOUT.writes if a.start]
    ends: dict[str, Any] = {}
    for k, (start, end) in enumerate(parts_of(settings)):
        part = {"steps": end - start, "every": min(every, end - start), **ends}
        for name, axis in timed:
            address, stride, time = values[name]
            part[name] = address + (start if axis == "T" else start // every) * time * itemsize, stride, time
        for path, buffer in zip(paths, between, strict=True):
            if end == settings.steps:
                break  # that is where the caller wants it
            if end % every:
                part[path.name] = buffer[k % 2 * (len(buffer) // 2) :].ctypes.data, buffer.shape[-1], 0
            part[path.end] = buffer[-1].ctypes.data, 0, 0
            address, stride, time = part[path.name]
            ends[path.start] = address + ((end - start - 1) // every) * time * itemsize, stride, 0
        yield part
