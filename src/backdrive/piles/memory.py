"""Arrays whose memory is used again in every step."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray
ALIGNMENT = 64  # bytes: the size of the widest register


class Memory:
    """Arrays by name: an array of the same name has the same memory, if that is large enough."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self._arrays: dict[str, Array] = {}
        self._views: dict[str, Array] = {}

    def array(self, name: str, *shape: int, dtype: Any = None) -> Array:
        """An array that starts at a multiple of ALIGNMENT. It is zero at first, and keeps its contents; the same array
        object is returned for the same shape."""
        view = self._views.get(name)
        if view is not None and view.shape == shape:
            return view
        size = 1
        for n in shape:
            size *= n
        memory = self._arrays.get(name)
        if memory is None or len(memory) < size:
            memory = self._arrays[name] = _aligned(size + size // 8, self.dtype if dtype is None else np.dtype(dtype))
        view = self._views[name] = memory[:size].reshape(shape)
        return view

    def zeros(self, name: str, *shape: int, dtype: Any = None) -> Array:
        array = self.array(name, *shape, dtype=dtype)
        array.fill(0)
        return array

    def size(self) -> int:
        """Bytes of all arrays."""
        return sum(memory.nbytes for memory in self._arrays.values())

    def integers(self, name: str, *shape: int) -> Array:
        return self.array(name, *shape, dtype=np.int64)


class Spare:
    """Memories that are not in use, of at most `most` bytes altogether."""

    def __init__(self, dtype: Any, most: float) -> None:
        self.dtype, self.most = dtype, most
        self._free: list[Memory] = []

    def take(self) -> Memory:
        try:
            return self._free.pop()
        except IndexError:
            return Memory(self.dtype)

    def give_back(self, memories: list[Memory]) -> None:
        """The memories that were taken first are taken first again: their arrays then have about the right size."""
        left = self.most - sum(memory.size() for memory in tuple(self._free))
        for memory in reversed(memories):
            left -= memory.size()
            if left >= 0.0:
                self._free.append(memory)


def _aligned(size: int, dtype: np.dtype) -> Array:
    memory = np.zeros(size * dtype.itemsize + ALIGNMENT, np.uint8)
    start = -memory.__array_interface__["data"][0] % ALIGNMENT
    return memory[start : start + size * dtype.itemsize].view(dtype)
