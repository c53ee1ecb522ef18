"""From impulses that are nearly right to a solution of a `Network`: `physics.pivoting` for one big world.

To b is added t d, which makes the impulses right at t = 1; while t falls to 0 they move along straight lines, that turn
where a row changes its mode. A turn costs a factorisation.
"""

from __future__ import annotations

import numpy as np

from ..physics.solvers.active_set import CLAMPED as AT
from ..physics.solvers.active_set import NO_PIVOT as FAR
from .modes import Modes, Solution
from .network import SparseDelassus

Array = np.ndarray
TURNS = 400  # at most
MARGIN = 1e-6  # how safely rows at a bound are there at the start, relative to the largest speed


def solve_by_pivoting(network: SparseDelassus, near: Array) -> Solution | None:
    """None if it leads nowhere."""
    modes, d = begin(network, near)
    t, last, side, none = 1.0, None, 0, np.zeros_like(near)
    counts = np.repeat(network.mu > 0.0, network.rows, axis=1)
    counts[:, 0] = True
    for _ in range(TURNS):
        try:
            known = Modes(network, modes)
        except RuntimeError:
            return None
        p, r = known.solve(network.b, near), known.solve(-d, none)  # λ = p - t r
        slope = d - network.mobility(r) - network.softness * r
        slack, grows = slacks(network, modes, (p, network.speeds(p)), (-r, slope))
        grows = np.where(counts[:, :, None], grows, 0.0)
        falls = 1.0  # -dt: what turned last goes away from where it turned
        if last is not None:
            which = int(modes[last] == 0 and side > 0)
            falls = 1.0 if grows[last][which] < 0.0 else -1.0
        closing = falls * grows > 0.0
        if last is not None:
            closing[last] &= (modes[last] == 0) & (np.array([-1, 1]) != side)
        far = np.where(closing, np.maximum(slack + grows * t, 0.0) / np.where(closing, falls * grows, 1.0), np.inf)
        next_one = np.unravel_index(np.argmin(far), far.shape)
        if not np.isfinite(p).all() or not np.isfinite(r).all():
            return None
        if falls > 0.0 and t <= far[next_one]:
            return known.solution(p)
        if far[next_one] > FAR:
            return None
        t -= falls * far[next_one]
        last = (int(next_one[0]), int(next_one[1]))
        side = int(modes[last])
        modes = modes.copy()
        if side == 0:
            modes[last] = (-1, 1)[int(next_one[2])]
        else:
            idle = last[1] > 0 and modes[last[0], 0] < 0
            modes[last] = -side if idle else 0
    return None


def begin(network: SparseDelassus, near: Array) -> tuple[Array, Array]:
    """Modes of the impulses, and d that makes them right at t = 1."""
    normal = np.maximum(near[:, :1], 0.0)
    most = network.mu * normal
    x = np.concatenate([normal, np.clip(near[:, 1:], -most, most)], axis=1)
    speeds = network.speeds(x)
    sliding = np.where(speeds[:, 1:] < 0.0, 1, -1)
    at_bound = np.where(x[:, 1:] <= (AT - 1.0) * most, -1, np.where(x[:, 1:] >= (1.0 - AT) * most, 1, 0))
    modes = np.concatenate([np.where(normal <= 0.0, -1, 0), np.where(normal <= 0.0, sliding, at_bound)], axis=1)
    margin = MARGIN * network.fastest * (0.5 + np.arange(modes.size).reshape(modes.shape) * 633 % 1024 / 1024.0)
    d = np.where(modes == 0, -speeds, -modes * np.maximum(margin + modes * speeds, 0.0))
    d[:, 1:] = np.where(network.mu > 0.0, d[:, 1:], 0.0)
    return modes, d


def slacks(network: SparseDelassus, modes: Array, *lines: tuple[Array, Array]) -> list[Array]:
    """How far rows are from changing their mode [contact, row, 2], of impulses and speeds, and of their slopes in t.

    A free row: from its lower and upper bound. A row at a bound: its speed away from it; the second is never met.
    """
    found = []
    for k, (impulses, speeds) in enumerate(lines):
        most, friction, rest = network.mu * impulses[:, :1], impulses[:, 1:], 1.0 - k  # what is never met
        below = np.concatenate([impulses[:, :1], most + friction], axis=1)
        above = np.concatenate([np.full_like(most, rest), most - friction], axis=1)
        free = modes == 0
        found.append(np.stack([np.where(free, below, -modes * speeds), np.where(free, above, rest)], axis=2))
    return found
