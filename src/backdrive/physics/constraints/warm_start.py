"""What is kept from stretch to stretch: the impulses that a solver starts from, and sets of rows and contacts.

There are places for all that could ever touch, and few do: nothing here goes over all of them, but once. (The
adjoint of steps with impacts copies them.)
"""

from __future__ import annotations

from typing import Any

from ...ir import Scalar, absolute, loop, maximum, memory, select
from ..math.arrays import zero


class Marks:
    """A set of places in every lane: those with the current stamp. So it is emptied at once."""

    def __init__(self, size: Any) -> None:
        self._stamp, self._now, self._size = memory(size), memory(1), size
        zero(size, self._stamp)
        self._now[0] = 1.0

    def arrays(self) -> list[tuple[Any, Any]]:
        """All that there is, with sizes."""
        return [(self._stamp, self._size), (self._now, 1)]

    def clear(self, where: Any = True) -> None:
        self._now[0] = self._now[0] + select(where, 1.0, 0.0)

    def add(self, place: Any, where: Any = True) -> None:
        self._stamp[place] = select(where, self._now[0], self._stamp[place])

    def has(self, place: Any) -> Any:
        """A mask."""
        return self._stamp[place] == self._now[0]


class WarmStart:
    """Those that the rows of the last stretch had, at their places (`System.place`). largest: of them."""

    def __init__(self, size: Any) -> None:
        self._values, self._there, self.largest, self._size = memory(size), Marks(size), memory(1), size
        self.largest[0] = 0.0

    def arrays(self) -> list[tuple[Any, Any]]:
        """All that there is, with sizes."""
        return [(self._values, self._size), (self.largest, 1), *self._there.arrays()]

    def forget(self, where: Any = True) -> None:
        self._there.clear(where)
        self.largest[0] = select(where, 0.0, self.largest[0])

    def at(self, place: Any) -> Scalar:
        return select(self._there.has(place), self._values[place], 0.0)

    def keep(self, count: Any, places: Any, values: Any, where: Any = True) -> None:
        """So many impulses, and where they belong."""
        for r in loop(count):
            place, x = places[r], values[r]
            self._values[place] = select(where, x, self._values[place])
            self._there.add(place, where)
            self.largest[0] = maximum(self.largest[0], select(where, absolute(x), 0.0))
