"""Which shapes may touch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..schema.layout import Kind, ShapeKind
from .shapes import PlacedShape

Array = np.ndarray


class Connection(NamedTuple):
    """Two links (-1: the world) that equations keep together; ``rigid``: in all directions."""

    a: int
    b: int
    rigid: bool


class Neighbours:
    """Which links are one rigid body, and which of those bodies a joint connects.

    parent, kind: the tree; named: whether a link is a body, not a massless step between two joints of one;
    connections: joints outside of the tree.
    """

    def __init__(self, parent: Array, kind: Array, named: Array, connections: Iterable[Connection]) -> None:
        connections = list(connections)
        self._leader = list(range(len(parent) + 1))  # of link i at i + 1; the world is 0
        for link in np.flatnonzero(kind == Kind.FIXED).tolist():
            self._merge(link, int(parent[link]))
        for connection in connections:
            if connection.rigid:
                self._merge(connection.a, connection.b)
        self.group = np.array([self._find(i) for i in range(len(self._leader))])
        """Number of the rigid body of each link i, at i + 1; the world's is 0."""
        self.joined: set[tuple[int, int]] = {self._groups(c.a, c.b) for c in connections}
        """Pairs of rigid bodies with a joint between them, the smaller number first."""
        for link in np.flatnonzero(named).tolist():
            above = int(parent[link])
            while above >= 0 and not named[above]:
                above = int(parent[above])
            self.joined.add(self._groups(link, above))

    def _find(self, i: int) -> int:
        while self._leader[i] != i:
            i = self._leader[i] = self._leader[self._leader[i]]
        return i

    def _merge(self, a: int, b: int) -> None:
        first, second = sorted((self._find(a + 1), self._find(b + 1)))
        self._leader[second] = first

    def _groups(self, a: int, b: int) -> tuple[int, int]:
        first, second = sorted((self.group[a + 1].item(), self.group[b + 1].item()))
        return first, second


def contact_pairs(
    shapes: Sequence[PlacedShape],
    kind: Array,
    link: Array,
    neighbours: Neighbours,
    *,
    excluded: Iterable[tuple[int, int]] = (),
    separate: Iterable[tuple[int, int]] = (),
    added: Iterable[tuple[int, int]] = (),
    parents_touch: bool = False,
) -> Array:
    """Pairs of shapes that may touch, int64 [npair, 2]: smaller kind first, sorted by kinds, then as found.

    kind, link: of each shape. excluded: pairs of links; separate: pairs of shapes that do not touch; added: pairs of
    shapes that touch whatever else forbids it.
    Never pairs: shapes that do not move relative to each other, half-spaces, and (unless ``parents_touch``) bodies
    with a joint between them; the world is no such parent.
    """
    contype = np.array([placed.contype for placed in shapes], dtype=np.int64)
    conaffinity = np.array([placed.conaffinity for placed in shapes], dtype=np.int64)
    group = neighbours.group[link + 1]
    first, second = np.triu_indices(len(shapes), 1)
    moves = group[first] != group[second]
    moves &= (kind[first] != ShapeKind.PLANE) | (kind[second] != ShapeKind.PLANE)
    touch = moves & ((contype[first] & conaffinity[second]) | (conaffinity[first] & contype[second]) != 0)
    if not parents_touch:
        bodies = {(a, b) for a, b in neighbours.joined if a != 0}
        touch &= ~_among(group[first], group[second], bodies)
    touch &= ~_among(link[first] + 1, link[second] + 1, {(a + 1, b + 1) for a, b in excluded})
    touch &= ~_among(first, second, set(separate))
    touch |= moves & _among(first, second, set(added))
    chosen = np.stack([first, second], 1)[touch]
    swap = kind[chosen[:, 0]] > kind[chosen[:, 1]]
    chosen[swap] = chosen[swap][:, ::-1]
    order = np.lexsort((kind[chosen[:, 1]], kind[chosen[:, 0]]))
    return chosen[order].astype(np.int64)


def _among(first: Array, second: Array, pairs: set[tuple[int, int]]) -> Array:
    """Whether each pair of non-negative integers is one of these, in either order."""
    if not pairs:
        return np.zeros(len(first), dtype=bool)
    low, high = np.sort(np.array(sorted(pairs), dtype=np.int64), axis=1).T
    base = 1 + max(int(high.max()), int(first.max(initial=0)), int(second.max(initial=0)))
    return np.isin(np.minimum(first, second) * base + np.maximum(first, second), low * base + high)
