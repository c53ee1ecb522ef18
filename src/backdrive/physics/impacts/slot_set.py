"""Sets of contact points that one substep leaves for the next."""

from __future__ import annotations

from ...ir import Index, Mask, ScalarArray, memory, select
from ..math.arrays import zero


class SlotSet:
    """A set of slots, in every lane. A slot is in the set if it carries the current stamp: so it is cleared at once.

    There is a slot for every contact point that can ever occur, and few of them are used at a time. After the
    initialisation, nothing here loops over all slots. (The adjoint of steps with impacts does, when it copies them.)
    """

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
