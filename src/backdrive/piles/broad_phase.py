"""The broad phase: which pairs of shapes are near each other. Exact, and in an order that depends on the pairs alone.

Pairs whose widened boxes overlap are searched for now and then, and kept for as long as no shape leaves its widened
box; every step takes those of them that are near now. So the pairs of a step do not depend on when the search was made.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..schema.layout import ShapeKind
from .memory import Memory
from .records import BOX, SOLID, WIDE_BOX
from .stages import Stage
from .tables import PileTables

if TYPE_CHECKING:
    from .arrangement import Arrangement

Array = np.ndarray
SKIN = 0.2  # boxes are widened by this part of their shape's size (radius),
LOOK_AHEAD = 8  # and by this many steps of its present motion
LEVEL_RATIO = 3.0  # boxes whose sizes differ by at most this factor share a grid


class ClassPairs(NamedTuple):
    """Pairs `first` to `end` of a list, whose shapes are of two classes, a and b (`PileTables`).

    slots: for contact points of each pair. shapes, bodies: of the first and second shapes of the pairs.
    """

    first: int
    end: int
    a: int
    b: int
    slots: int
    shapes: tuple[Array, Array]
    bodies: tuple[Array, Array]


class NarrowPhaseCalls(NamedTuple):
    """The prepared kernel calls of the narrow phase of a list of pairs; reads: the arrays that they were prepared for;
    features: of every `ClassPairs`."""

    reads: tuple[Array, ...]
    calls: list[Callable[[], None]]
    features: list[Array]


class CandidatePairs:
    """Pairs of shapes a, b that are near each other, sorted by their classes.

    key: identifies a pair, and grows. slots: for contact points of each pair; first_slot: of each pair. pair_of_slot.
    """

    def __init__(self, body: Array, a: Array, b: Array, key: Array, slots: Array, classes: list[Any]) -> None:
        """classes: first and last pair, and classes of the shapes, of every `ClassPairs`."""
        self.a, self.b, self.key, self.slots = a, b, key, slots
        self.body_a, self.body_b = body[a], body[b]
        self.first_slot = np.cumsum(slots) - slots
        self.pair_of_slot = np.repeat(np.arange(len(slots)), slots)
        self.by_class = [self._of_class(*each) for each in classes]
        self.narrow_phase: NarrowPhaseCalls | None = None  # of the last step with these pairs
        self.arranged: Arrangement | None = None  # likewise

    def _of_class(self, first: int, end: int, a: int, b: int) -> ClassPairs:
        shapes, bodies = ((x[first:end], y[first:end]) for x, y in ((self.a, self.b), (self.body_a, self.body_b)))
        return ClassPairs(first, end, a, b, int(self.slots[first]), shapes, bodies)


class BroadPhase:
    """The pairs of a world that are near each other, and those that may be soon."""

    def __init__(self, tables: PileTables, near: Stage, near_plane: Stage) -> None:
        self.tables, self._near, self._near_plane = tables, near, near_plane
        self.boxes = np.full((tables.nsolid, WIDE_BOX.size), np.nan, near.dtype)  # widened
        self._a = self._b = self._key = self._slots = self._edges = np.zeros(0, np.int64)
        self._first_plane = 0  # the first pair with a plane
        self._classes: list[tuple[int, int]] = []
        self._flags = np.zeros(0, bool)  # which pairs are near now
        self._pairs: CandidatePairs | None = None

    def find(self, memory: Memory, solids: Array, boxes: Array) -> CandidatePairs:
        """All pairs that are near; solids, boxes: records of `SOLID` and `BOX` of all shapes (boxes: not of planes)."""
        if not boxes[:, BOX["inside"]].all():
            self._search(solids, boxes)
        split, count = self._first_plane, len(self._a)
        flags, rest = memory.array("near", split + 64), memory.array("near planes", count - split + 64)
        if split:
            a, b = self._a[:split], self._b[:split]
            self._near(split, solid_a=(solids, a), solid_b=(solids, b), box_a=(boxes, a), box_b=(boxes, b), flags=flags)
        if split < count:
            a, b = self._a[split:], self._b[split:]
            self._near_plane(count - split, solid_a=(solids, a), solid_b=(solids, b), box_a=(boxes, a), flags=rest)
        near = np.concatenate([flags[:split], rest[: count - split]]) > 0.5
        if self._pairs is None or not np.array_equal(near, self._flags):
            self._flags, self._pairs = near, self._chosen(near.nonzero()[0])
        return self._pairs

    def _chosen(self, chosen: Array) -> CandidatePairs:
        edges = np.searchsorted(chosen, self._edges).tolist()
        classes = [
            (first, end, *classes)
            for (first, end), classes in zip(itertools.pairwise(edges), self._classes, strict=True)
            if first < end
        ]
        a, b, key, slots = (x[chosen] for x in (self._a, self._b, self._key, self._slots))
        return CandidatePairs(self.tables.body, a, b, key, slots, classes)

    def forget(self) -> None:
        """Discard the pairs found so far, since a plane has moved."""
        self.boxes = np.full_like(self.boxes, np.nan)

    def _search(self, solids: Array, boxes: Array) -> None:
        tables = self.tables
        wide = np.concatenate([boxes[:, BOX["center"]], boxes[:, BOX["extent"]]], axis=1)
        travel = boxes[:, BOX.first("travel")]
        wide[:, WIDE_BOX["extent"]] += (SKIN * tables.size[: tables.nsolid] + LOOK_AHEAD * travel)[:, None]
        self.boxes, self._pairs = wide, None
        a, b = overlapping(wide)
        allowed = tables.touching[a, b]
        planes = [near_planes(wide, solids[tables.nsolid + k]) for k in range(tables.nshape - tables.nsolid)]
        planes = [near[tables.touching[near, tables.nsolid + k]] for k, near in enumerate(planes)]
        a = np.concatenate([a[allowed], *planes])
        b = np.concatenate([b[allowed], *(np.full(len(near), tables.nsolid + k) for k, near in enumerate(planes))])
        swap = tables.rank[a] > tables.rank[b]
        a, b = np.where(swap, b, a), np.where(swap, a, b)
        of_class = tables.shape_class[a] * tables.nclass + tables.shape_class[b]
        of_class += tables.nclass**2 * (tables.kind[b] == ShapeKind.PLANE)  # pairs with planes come last
        key = (of_class * tables.nshape + a) * tables.nshape + b
        key.sort()
        self._key = key
        rest, self._b = np.divmod(key, tables.nshape)
        of_class, self._a = np.divmod(rest, tables.nshape)
        self._slots = tables.slots[of_class % tables.nclass**2]
        self._first_plane = int(np.searchsorted(of_class, tables.nclass**2))
        self._edges = np.flatnonzero(np.diff(of_class, prepend=-1, append=-1))
        self._classes = [divmod(int(c) % tables.nclass**2, tables.nclass) for c in of_class[self._edges[:-1]]]


def near_planes(boxes: Array, plane: Array) -> Array:
    """The boxes (`WIDE_BOX`) that reach a plane, given by its record of `SOLID`."""
    normal, offset = plane[SOLID["center"]], plane[SOLID.first("size")]
    center, extent = boxes[:, WIDE_BOX["center"]], boxes[:, WIDE_BOX["extent"]]
    return np.flatnonzero(center @ normal - extent @ np.abs(normal) < offset)


def overlapping(boxes: Array) -> tuple[Array, Array]:
    """All pairs of boxes (`WIDE_BOX`, [n, 6]) that overlap, each once.

    Boxes of about one size (a level) are put into a grid whose cells are at least as large, together with all smaller
    boxes: those that overlap have their low corners in the same or in adjacent cells.
    """
    center, extent = boxes[:, WIDE_BOX["center"]], boxes[:, WIDE_BOX["extent"]]
    low, high = center - extent, center + extent
    side = 2.0 * extent.max(axis=1, initial=0.0)
    least = max(float(side.min(initial=1.0)), 1e-9)
    level = np.ceil(np.log(np.maximum(side / least, 1.0)) / np.log(LEVEL_RATIO))
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for h in np.unique(level[np.isfinite(level)]).tolist():
        i, j = _adjacent(np.flatnonzero(level == h), np.flatnonzero(level <= h), low, 1.001 * least * LEVEL_RATIO**h)
        near = ((low[i] <= high[j]) & (low[j] <= high[i])).all(axis=1) & ((level[j] < h) | (i < j))
        found.append((i[near], j[near]))
    first, second = (np.concatenate(x) for x in zip(*found, strict=True))
    return first, second


def _adjacent(chosen: Array, others: Array, low: Array, cell: float) -> tuple[Array, Array]:
    """Pairs of one of the chosen boxes and one of the others whose low corners are in the same or in adjacent cells of
    a grid; cell: the side of a cell, m."""
    place = np.floor(low[others] / cell)
    place -= place.min(axis=0) - 1.0
    size = place.max(axis=0) + 2.0
    if not size.prod() < 2.0**62:  # too far apart for numbers of cells: all pairs
        return np.repeat(chosen, len(others)), np.tile(others, len(chosen))
    across = np.array([int(size[1]) * int(size[2]), int(size[2]), 1])
    number = place.astype(np.int64) @ across
    order = np.argsort(number, kind="stable")
    number, mine = number[order], number[np.searchsorted(others, chosen)]
    rows = [x * int(across[0]) + y * int(across[1]) for x in (-1, 0, 1) for y in (-1, 0, 1)]
    wanted = (mine[:, None] + np.array(rows)).ravel()  # three cells along the last axis follow each other
    start, end = np.searchsorted(number, wanted - 1), np.searchsorted(number, wanted + 1, side="right")
    counts = end - start
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(np.repeat(chosen, len(rows)), counts), others[order[np.repeat(start, counts) + within]]
