"""Parts that the kernels of projected Gauss-Seidel share: the bodies of a pack, groups, the schedules of momentum.

The lanes are pairs of bodies of one colour (`packs`): a pack loads the whitened velocities y of its bodies, solves its
contacts one after the other, and stores y. For the rows of a contact

    s = j · y + b + softness λ          λ ← clip(λ - s / d)          y ← y + j Δλ

where a row only waits for the rows before it in the same contact (`coupling`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir import Index, Scalar, carry, lane_count, loop, picked
from ...physics.math import spatial as sp
from ...physics.math.spatial import Vec
from ..arguments import IntsIn, PacksIn, PacksOut, TableIn

# Momentum restarts after this many sweeps: with longer periods the sweeps may cycle, and gradients grow.
RESTART = 8

# Sweeps for which a group keeps one of the two schedules of momentum: two restarts of Nesterov's, or constant momentum.
PERIOD = 2 * RESTART

# The constant momentum of a group near convergence. With 0.8, gradients grow to 1e9 over hundreds of sweeps.
CONVERGING_MOMENTUM = 0.7

# A group is near convergence if no row changes its speed by more than this multiple of the tolerance in a sweep.
NEAR_CONVERGENCE = 30.0


def momentum_schedules() -> list[float]:
    """β of the sweeps of a period: Nesterov's, which grows from zero; then that of a group near convergence."""
    factors, t = [], 1.0
    for _ in range(RESTART):
        t_next = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * t * t))
        factors.append((t - 1.0) / t_next)
        t = t_next
    return [*factors, *factors, 0.0, *[CONVERGING_MOMENTUM] * (PERIOD - 1)]


MOMENTUM = momentum_schedules()


def stride(nv: int, lanes: int) -> int:
    """Numbers of a body's row in tables of y: nv, rounded up to whole registers."""
    return -(-nv // lanes) * lanes


# ------------------------------------------------------------------------------------------ arguments


@dataclass(frozen=True)
class SweepArguments:
    """Arguments of all sweeps.

    blocks: `ContactBlock` of every register. impulses: of every sweep that is kept, [sweep, register, row]. y: whitened
    velocities, [sweep, body, stride]. starts: the contacts of pack p stand in registers starts[p] to starts[p + 1].
    ends [pack, 2, lane]: the rows of y of a pair's bodies.
    """

    blocks: PacksIn
    impulses: PacksOut
    y: PacksOut
    starts: IntsIn
    ends: IntsIn

    def registers_of(self, pack: Index, reverse: bool = False) -> Iterator[Any]:
        """The registers of a pack's contacts."""
        return loop(self.starts[pack + 1], start=self.starts[pack], reverse=reverse)


@dataclass(frozen=True)
class GroupedArguments(SweepArguments):
    """Arguments of sweeps over the contacts of every group; group_packs, group_rows: see `packs.ArrangeArguments`.
    momentum: `MOMENTUM`."""

    group_packs: IntsIn
    group_rows: IntsIn
    momentum: TableIn


@dataclass(frozen=True)
class DeepArguments(SweepArguments):
    """Arguments of sweeps over packs with penetrating contacts: `deep` lists them, those of group g from deep_packs[g]
    to deep_packs[g + 1]."""

    deep: IntsIn
    deep_packs: IntsIn

    def packs_of(self, group: Index, reverse: bool = False) -> Iterator[Any]:
        for k in loop(self.deep_packs[group + 1], start=self.deep_packs[group], reverse=reverse):
            yield self.deep[k]


# ------------------------------------------------------------------------------------------ bodies and groups


class PackBodies:
    """Vectors (y, or y and its cotangent) of the two bodies of every lane of a pack, [2 nv] each, in registers.

    table: rows of `stride` numbers for each of the vectors.
    """

    def __init__(self, table: Any, nv: int, ends: Any, pack: Index, vectors: int = 1) -> None:
        lanes = lane_count()
        self.nv, self.size, width = nv, 2 * nv, stride(nv, lanes)
        index = ends.at(pack * (2 * lanes))
        rows = [picked(table, vectors * width, index.at(k * lanes)) for k in range(2)]
        self.rows = [[row.at(m * width) for row in rows] for m in range(vectors)]
        self.vectors = carry(vectors * self.size)
        for m, ends_of in enumerate(self.rows):
            for k, row in enumerate(ends_of):
                self.vectors.at(m * self.size + k * nv).put(0, row.get(0, nv))

    def get(self, m: int = 0) -> Vec:
        return self.vectors.get(m, self.size)

    def add(self, changes: Vec, pushes: list[Vec], m: int = 0) -> None:
        """y += Σ j Δλ"""
        total: Vec = self.get(m)
        for x, push in zip(changes, pushes, strict=True):
            total = tuple(t + x * j for t, j in zip(total, push, strict=True))
        self.vectors.put(m, total)

    def store(self) -> None:
        """Write the vectors back to the table."""
        for m, ends_of in enumerate(self.rows):
            for k, row in enumerate(ends_of):
                row.put(0, self.vectors.at(m * self.size + k * self.nv).get(0, self.nv))


class IslandGroup:
    """A group of islands: its packs, the registers of their contacts, and its bodies' rows and their registers."""

    def __init__(self, g: Index, a: GroupedArguments, nv: int) -> None:
        self.row_registers = stride(nv, lane_count()) // lane_count()
        self.first, self.last = a.group_packs[g], a.group_packs[g + 1]
        self.contacts = a.starts[self.first], a.starts[self.last]
        self.rows = a.group_rows[g], a.group_rows[g + 1]
        self.registers = self.rows[0] * self.row_registers, self.rows[1] * self.row_registers

    def packs(self, reverse: bool = False) -> Iterator[Any]:
        return loop(self.last, start=self.first, reverse=reverse)


class SweepHistory:
    """Arrays of the last `ring` sweeps, each of `size` registers; those of sweep s are `of(s)`."""

    def __init__(self, array: Any, size: Index, ring: Index) -> None:
        self.array, self.size, self.ring = array, size, ring

    def of(self, s: Any) -> Any:
        return self.array.at((s + self.ring) % self.ring * self.size)


def schedule(schedules: Any, momentum: Any, g: Index, s: Any, most: Any) -> tuple[Any, Any]:
    """The position in `schedules` of a group's choice of momentum in the period of sweep s; and β of that sweep."""
    at = g * (most // PERIOD + 1) + s // PERIOD
    return at, momentum[schedules[at] * PERIOD + s % PERIOD]


def extrapolate(beta: Scalar, now: Vec, before: Vec) -> Vec:
    """x + β (x - x before): where a sweep with momentum starts."""
    return tuple(x + beta * (x - z) for x, z in zip(now, before, strict=True))


# ------------------------------------------------------------------------------------------ products


def along(push: Vec, y: Vec, plus: Scalar = 0.0, more: Scalar = 0.0) -> Scalar:
    """j · y + plus + more, in two short chains of additions."""
    half = len(push) // 2
    return sp.dot(push[:half], y[:half], plus) + sp.dot(push[half:], y[half:], more)


def add_products(totals: Any, factors: Vec, vectors: Sequence[Vec]) -> None:
    """totals += Σ x a, element by element: a sum in the order in which multiply-adds are made."""
    for k in range(len(vectors[0])):
        total = totals[k]
        for x, a in zip(factors, vectors, strict=True):
            total = total + x * a[k]
        totals[k] = total
