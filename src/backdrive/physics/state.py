"""The state and the inputs of a step, as arrays of a kernel."""

from __future__ import annotations

from typing import NamedTuple

from ..ir import Index, ScalarArray, TimedArray, memory, workspace
from .math.arrays import add_to, copy, zero
from .tree.tree import Tree


class StateArrays(NamedTuple):
    """An array for every field of the state (`schema.state`): q [nq] and v [nv]."""

    q: ScalarArray
    v: ScalarArray

    @classmethod
    def sizes(cls, tree: Tree) -> tuple[Index, Index]:
        return tree.nq, tree.nv

    @classmethod
    def in_memory(cls, tree: Tree, count: Index = 1) -> StateArrays:
        """Uninitialised memory for `count` states, one after the other."""
        return cls(*(memory(n if isinstance(count, int) and count == 1 else count * n) for n in cls.sizes(tree)))

    @classmethod
    def local_copy(cls, tree: Tree, source: StateArrays) -> StateArrays:
        """A copy in a workspace: rows of the caller are read best as whole blocks."""
        state = cls(*(workspace(n) for n in cls.sizes(tree)))
        state.copy_from(tree, source)
        return state

    def number(self, tree: Tree, i: Index) -> StateArrays:
        """State i of several that follow each other."""
        return StateArrays(*(array.at(i * n) for array, n in zip(self, self.sizes(tree), strict=True)))

    def copy_from(self, tree: Tree, source: StateArrays) -> None:
        for n, x, y in zip(self.sizes(tree), source, self, strict=True):
            copy(n, x, y)

    def add_to(self, tree: Tree, target: StateArrays) -> None:
        for n, x, y in zip(self.sizes(tree), self, target, strict=True):
            add_to(n, x, y)

    def clear(self, tree: Tree) -> None:
        """Set every element to zero."""
        for n, x in zip(self.sizes(tree), self, strict=True):
            zero(n, x)

    def prefetch(self, tree: Tree) -> None:
        for n, x in zip(self.sizes(tree), self, strict=True):
            x.prefetch(n)


class StatePath(NamedTuple):
    """Rows of the caller's tensors: a state at every time."""

    q: TimedArray
    v: TimedArray

    def row(self, t: Index) -> StateArrays:
        return StateArrays(*(array.row(t) for array in self))


class StepInputs(NamedTuple):
    """What acts on the links in a step besides gravity: controls [nu], and wrenches [nlink, 6] (force in N, torque in
    N m, at the centers of mass, in world axes) or None."""

    controls: ScalarArray
    wrenches: ScalarArray | None
