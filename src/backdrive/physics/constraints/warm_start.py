"""What one substep leaves for the next: the impulses that a solver starts from, and sets of contact points.

There is a slot for every row and contact point that can ever occur, and few of them are used at a time. After the
initialisation, nothing here loops over all slots. (The adjoint of steps with impacts does, when it copies them.)
"""

from __future__ import annotations

from ...ir import Index, IndexArray, Mask, Scalar, ScalarArray, absolute, loop, maximum, memory, select
from ..math.arrays import zero


class SlotSet:
    """A set of slots, in every lane. A slot is in the set if it carries the current stamp: so it is cleared at once."""

    def __init__(self, size: Index) -> None:
        self._stamp, self._now, self._size = memory(size), memory(1), size
        zero(size, self._stamp)
        self._now[0] = 1.0

    def arrays(self) -> list[tuple[ScalarArray, Index]]:
        """All arrays, with their sizes."""
        return [(self._stamp, self._size), (self._now, 1)]

    def clear(self, where: Mask = True) -> None:
        self._now[0] = self._now[0] + select(where, 1.0, 0.0)

    def add(self, slot: Index, where: Mask = True) -> None:
        self._stamp[slot] = select(where, self._now[0], self._stamp[slot])

    def has(self, slot: Index) -> Mask:
        return self._stamp[slot] == self._now[0]


class WarmStart:
    """The impulses that the rows of the last substep had, by their slots (`ContactProblem.slot`).

    largest [1]: the largest magnitude of these impulses.
    """

    def __init__(self, size: Index) -> None:
        self._impulses, self._known, self.largest, self._size = memory(size), SlotSet(size), memory(1), size
        self.largest[0] = 0.0

    def arrays(self) -> list[tuple[ScalarArray, Index]]:
        """All arrays, with their sizes."""
        return [(self._impulses, self._size), (self.largest, 1), *self._known.arrays()]

    def forget(self, where: Mask = True) -> None:
        self._known.clear(where)
        self.largest[0] = select(where, 0.0, self.largest[0])

    def at(self, slot: Index) -> Scalar:
        """The impulse of a slot; zero if the last substep had no such row."""
        return select(self._known.has(slot), self._impulses[slot], 0.0)

    def keep(self, count: Index, slots: IndexArray, impulses: ScalarArray, where: Mask = True) -> None:
        """Take over the impulses [count] of rows with these slots [count]."""
        for r in loop(count):
            slot, x = slots[r], impulses[r]
            self._impulses[slot] = select(where, x, self._impulses[slot])
            self._known.add(slot, where)
            self.largest[0] = maximum(self.largest[0], select(where, absolute(x), 0.0))
