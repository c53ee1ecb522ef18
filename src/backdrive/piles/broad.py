"""The broad phase: which pairs of shapes are near each other. Exact, and in an order that depends on the pairs alone.

Pairs whose boxes, wider by a margin, overlap are found now and then, and kept for as long as no shape leaves its wider
box; of these, every step takes the ones that are near. So what it takes does not depend on when the others were found.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from ..schema.layout import ShapeKind
from .contacts import BOX
from .memory import Memory
from .stages import Stage
from .tables import Tables

Array = np.ndarray
SKIN = 0.2  # of a shape's size: how much wider a box is,
AHEAD = 8  # and by how many steps of its present motion
LEVEL = 3.0  # ratio of the sizes of boxes, at most, that one grid is for


class Group(NamedTuple):
    """Pairs `first` to `end` are of two classes of shapes, a and b; shapes and bodies: of each pair, two arrays."""

    first: int
    end: int
    a: int
    b: int
    slots: int
    shapes: tuple[Array, Array]
    bodies: tuple[Array, Array]


class Pairs:
    """Pairs a, b of shapes, sorted by their classes.

    key: tells pairs apart, and grows. slots: places for contacts of each; first_slot: of each; pair_of_slot.
    """

    def __init__(self, body: Array, a: Array, b: Array, key: Array, slots: Array, groups: list[Any]) -> None:
        self.a, self.b, self.key, self.slots = a, b, key, slots
        self.body_a, self.body_b = body[a], body[b]
        self.first_slot = np.cumsum(slots) - slots
        self.pair_of_slot = np.repeat(np.arange(len(slots)), slots)
        self.groups = [self._group(*group) for group in groups]
        self.meetings: Any = None  # how contacts are found between them,
        self.arranged: Any = None  # and what was made of these last

    def _group(self, first: int, end: int, a: int, b: int) -> Group:
        shapes, bodies = ((x[first:end], y[first:end]) for x, y in ((self.a, self.b), (self.body_a, self.body_b)))
        return Group(first, end, a, b, int(self.slots[first]), shapes, bodies)


class Neighbours:
    """The pairs that are near, and those that may soon be."""

    def __init__(self, tables: Tables, near: Stage, near_plane: Stage) -> None:
        self.tables, self._near, self._near_plane = tables, near, near_plane
        self.boxes = np.full((tables.nsolid, 6), np.nan, near.dtype)  # center, half sides; wider
        self._a = self._b = self._key = self._slots = self._edges = np.zeros(0, np.int64)
        self._first_plane = 0
        self._classes: list[tuple[int, int]] = []
        self._flags = np.zeros(0, bool)  # which are near now
        self._pairs: Pairs | None = None

    def find(self, memory: Memory, solids: Array, boxes: Array) -> Pairs:
        """All pairs that are near; solids, boxes: numbers of SOLID and BOX."""
        if not boxes[:, BOX].all():
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

    def _chosen(self, chosen: Array) -> Pairs:
        edges = np.searchsorted(chosen, self._edges).tolist()
        groups = [
            (first, end, *classes)
            for (first, end), classes in zip(itertools.pairwise(edges), self._classes, strict=True)
            if first < end
        ]
        a, b, key, slots = (x[chosen] for x in (self._a, self._b, self._key, self._slots))
        return Pairs(self.tables.body, a, b, key, slots, groups)

    def forget(self) -> None:
        """What was found, since a plane is somewhere else now."""
        self.boxes = np.full_like(self.boxes, np.nan)

    def _search(self, solids: Array, boxes: Array) -> None:
        tables = self.tables
        wide = boxes[:, :6].copy()
        wide[:, 3:] += (SKIN * tables.size[: tables.nsolid] + AHEAD * boxes[:, 10])[:, None]
        self.boxes, self._pairs = wide, None
        a, b = overlapping(wide)
        allowed = tables.touching[a, b]
        planes = [near_planes(wide, solids[tables.nsolid + k]) for k in range(tables.nshape - tables.nsolid)]
        planes = [near[tables.touching[near, tables.nsolid + k]] for k, near in enumerate(planes)]
        a = np.concatenate([a[allowed], *planes])
        b = np.concatenate([b[allowed], *(np.full(len(near), tables.nsolid + k) for k, near in enumerate(planes))])
        swap = (tables.kind[a] > tables.kind[b]) | ((tables.kind[a] == tables.kind[b]) & (a > b))
        a, b = np.where(swap, b, a), np.where(swap, a, b)
        of_class = tables.shape_class[a] * tables.nclass + tables.shape_class[b]
        of_class += tables.nclass**2 * (tables.kind[b] == ShapeKind.PLANE)  # last
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
    """Boxes that reach a plane (numbers of its solid)."""
    normal, offset = plane[:3], plane[12]
    return np.flatnonzero(boxes[:, :3] @ normal - boxes[:, 3:] @ np.abs(normal) < offset)


def overlapping(boxes: Array) -> tuple[Array, Array]:
    """All pairs of boxes [n, 6] (center, half sides) that overlap, each once.

    Boxes of about one size (a level) are put into a grid of cells that are no smaller than they, together with all
    smaller ones: what they overlap is in the same or an adjacent cell, going by low corners.
    """
    low, high = boxes[:, :3] - boxes[:, 3:], boxes[:, :3] + boxes[:, 3:]
    side = 2.0 * boxes[:, 3:].max(axis=1, initial=0.0)
    least = max(float(side.min(initial=1.0)), 1e-9)
    level = np.ceil(np.log(np.maximum(side / least, 1.0)) / np.log(LEVEL))
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for h in np.unique(level[np.isfinite(level)]).tolist():
        i, j = _adjacent(np.flatnonzero(level == h), np.flatnonzero(level <= h), low, 1.001 * least * LEVEL**h)
        near = ((low[i] <= high[j]) & (low[j] <= high[i])).all(axis=1) & ((level[j] < h) | (i < j))
        found.append((i[near], j[near]))
    first, second = (np.concatenate(x) for x in zip(*found, strict=True))
    return first, second


def _adjacent(chosen: Array, others: Array, low: Array, cell: float) -> tuple[Array, Array]:
    """Pairs (one of the chosen, one of the others) whose low corners are in the same or in adjacent cells."""
    place = np.floor(low[others] / cell)
    place -= place.min(axis=0) - 1.0
    size = place.max(axis=0) + 2.0
    if not size.prod() < 2.0**62:  # far apart: all pairs
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
