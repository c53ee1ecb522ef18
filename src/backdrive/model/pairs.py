"""Pairs of shapes that may touch: collision filtering when a model is built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..schema.layout import Kind
from .shapes import PlacedShape

Array = np.ndarray


class Connection(NamedTuple):
    """Two links (-1: the world) that constraints outside of the tree connect; ``rigid``: in all directions."""

    a: int
    b: int
    rigid: bool


class RigidGroups:
    """Links that form one rigid body, and the rigid bodies that a joint connects.

    parent [nlink], kind [nlink]: the tree. named [nlink]: False for the massless links between two joints of one body.
    connections: joints outside of the tree.
    """

    def __init__(self, parent: Array, kind: Array, named: Array, connections: Iterable[Connection]) -> None:
        connections = list(connections)
        self._leader = list(range(len(parent) + 1))  # union-find over links; link i is at i + 1, the world at 0
        for link in np.flatnonzero(kind == Kind.FIXED).tolist():
            self._merge(link, int(parent[link]))
        for connection in connections:
            if connection.rigid:
                self._merge(connection.a, connection.b)
        self.group = np.array([self._find(i) for i in range(len(self._leader))])
        """Number of the rigid body of each link i, at i + 1; that of the world is 0."""
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
    link: Array,
    bodies: RigidGroups,
    *,
    excluded: Iterable[tuple[int, int]] = (),
    separate: Iterable[tuple[int, int]] = (),
    added: Iterable[tuple[int, int]] = (),
    parents_touch: bool = False,
) -> Array:
    """Pairs of shapes that may touch, int64 [npair, 2]: the smaller kind first, sorted by kinds.

    link [nshape]: the link of each shape. excluded: pairs of links, separate: pairs of shapes that do not collide;
    added: pairs of shapes that collide whatever the other rules say.

    Two shapes are never a pair if they cannot move relative to each other or if both are half-spaces. Nor are, unless
    ``parents_touch``, shapes of two bodies with a joint between them; the world does not count as a body here.
    """
    kind = np.array([placed.shape.kind for placed in shapes], dtype=np.int64)
    bounded = np.array([placed.shape.bounded for placed in shapes], dtype=bool)
    contype = np.array([placed.contype for placed in shapes], dtype=np.int64)
    conaffinity = np.array([placed.conaffinity for placed in shapes], dtype=np.int64)
    group = bodies.group[link + 1]
    first, second = np.triu_indices(len(shapes), 1)
    moves = group[first] != group[second]
    moves &= bounded[first] | bounded[second]
    allowed = moves & ((contype[first] & conaffinity[second]) | (conaffinity[first] & contype[second]) != 0)
    if not parents_touch:
        joined = {(a, b) for a, b in bodies.joined if a != 0}
        allowed &= ~_among(group[first], group[second], joined)
    allowed &= ~_among(link[first] + 1, link[second] + 1, {(a + 1, b + 1) for a, b in excluded})
    allowed &= ~_among(first, second, set(separate))
    allowed |= moves & _among(first, second, set(added))
    chosen = np.stack([first, second], 1)[allowed]
    swap = kind[chosen[:, 0]] > kind[chosen[:, 1]]
    chosen[swap] = chosen[swap][:, ::-1]
    order = np.lexsort((kind[chosen[:, 1]], kind[chosen[:, 0]]))
    return chosen[order].astype(np.int64)


def _among(first: Array, second: Array, pairs: set[tuple[int, int]]) -> Array:
    """Whether each pair (first, second) of non-negative integers is in the set, in either order; bool [n]."""
    if not pairs:
        return np.zeros(len(first), dtype=bool)
    low, high = np.sort(np.array(sorted(pairs), dtype=np.int64), axis=1).T
    base = 1 + max(int(high.max()), int(first.max(initial=0)), int(second.max(initial=0)))
    return np.isin(np.minimum(first, second) * base + np.maximum(first, second), low * base + high)
