"""The broad phase: which pairs of shapes are near each other. Exact, and in an order that depends on the pairs alone.

Pairs whose boxes, wider by a margin, overlap are found now and then, and kept for as long as no shape leaves its wider
box; of these, every step takes the ones that are near. So what it takes does not depend on when the others were found.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from ..model.layout import ShapeKind
from .memory import Memory
from .stages import Stage
from .tables import Tables

Array = np.ndarray
SKIN = 0.2  # of a shape's size: how much wider a box is,
AHEAD = 8  # and by how many steps of its present motion
LEVEL = 3.0  # ratio of the sizes of boxes, at most, that one grid is for


class Group(NamedTuple):
    """Pairs `first` to `end` are of two classes of shapes."""

    first: int
    end: int
    a: int
    b: int


class Pairs(NamedTuple):
    """Pairs a, b of shapes, sorted by their classes. slots: places for contacts of each; key: tells pairs apart, and
    grows."""

    a: Array
    b: Array
    key: Array
    slots: Array
    groups: list[Group]


class Neighbours:
    """The pairs that are near, and those that may soon be."""

    def __init__(self, tables: Tables, near: Stage, near_plane: Stage) -> None:
        self.tables, self._near, self._near_plane = tables, near, near_plane
        self._boxes: Array | None = None  # center, half sides; wider

    def find(self, memory: Memory, solids: Array, boxes: Array) -> Pairs:
        """All pairs that are near; solids, boxes: numbers of SOLID and BOX."""
        kept = self._boxes
        if kept is None or not (np.abs(boxes[:, :3] - kept[:, :3]) + boxes[:, 3:6] <= kept[:, 3:]).all():
            self._search(solids, boxes)
        a, b, split = self._a, self._b, self._first_plane
        flags = memory.array("near", len(a) + 64)
        if split:
            values = {"solid_a": (solids, a), "solid_b": (solids, b), "box_a": (boxes, a), "box_b": (boxes, b)}
            self._near(split, **values, flags=flags)
        near = flags[:split] > 0.5
        if split < len(a):
            a_, b_ = a[split:], b[split:]
            values = {"solid_a": (solids, a_), "solid_b": (solids, b_), "box_a": (boxes, a_)}
            self._near_plane(len(a_), **values, flags=flags)
            near = np.concatenate([near, flags[: len(a_)] > 0.5])
        chosen = near.nonzero()[0]
        edges = np.searchsorted(chosen, self._edges).tolist()
        groups = [
            Group(first, end, *classes)
            for (first, end), classes in zip(itertools.pairwise(edges), self._classes, strict=True)
            if first < end
        ]
        return Pairs(a[chosen], b[chosen], self._key[chosen], self._slots[chosen], groups)

    def _search(self, solids: Array, boxes: Array) -> None:
        tables = self.tables
        wide = boxes[:, :6].copy()
        wide[:, 3:] += (SKIN * tables.size[: tables.nsolid] + AHEAD * boxes[:, 10])[:, None]
        self._boxes = wide
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
    cells, start, count = np.unique(number[order], return_index=True, return_counts=True)
    mine = number[np.searchsorted(others, chosen)]
    firsts, seconds = [], []
    for step in itertools.product((-1, 0, 1), repeat=3):
        wanted = mine + int(np.dot(step, across))
        at = np.minimum(np.searchsorted(cells, wanted), len(cells) - 1)
        counts = np.where(cells[at] == wanted, count[at], 0)
        pair = np.repeat(np.arange(len(chosen)), counts)
        within = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
        firsts.append(chosen[pair])
        seconds.append(others[order[start[at[pair]] + within]])
    return np.concatenate(firsts), np.concatenate(seconds)
