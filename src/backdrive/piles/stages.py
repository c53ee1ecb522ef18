"""Kernels on numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends import Kernel, Number, Picked, Rows
from ..backends.llvm_cpu.launch import float_bits, scratch_memory


def _address(x: np.ndarray) -> int:
    if x.flags.carray and x.size:
        return ctypes.addressof(ctypes.c_char.from_buffer(x.data))  # a third of the time of the other
    return x.__array_interface__["data"][0]


class Stage:
    """A kernel, compiled when it is first called; one thread."""

    def __init__(self, make: Callable[..., Kernel], *form: Any, bits: int, lanes: int) -> None:
        self._make, self._form, self._bits, self._lanes = make, form, bits, lanes
        self.dtype = np.dtype(np.float64 if bits == 64 else np.float32)
        self._executable: Any = None
        self._known: dict[Any, tuple[np.ndarray, int]] = {}  # arrays of the last call, and where they are

    def __call__(self, batch: int, **values: Any) -> None:
        """Run over so many environments (bodies, pairs, ...).

        values: of Rows an array [batch, n], of Picked (table [m, n], index [batch]), else arrays and numbers. Rows are
        contiguous; arrays that the kernel writes as registers are aligned.
        """
        self.prepare(batch, **values)()

    def prepare(self, batch: int, **values: Any) -> Callable[[], None]:
        """A call that can be made again and again, as long as the arrays are the same."""
        if self._executable is None:
            self._executable = self._make(*self._form).build(self._bits, self._lanes)
        executable, words, place = self._executable, [], self._place
        for name, kind in executable.layout:
            x = values[name]
            if kind is Rows:
                words += [place(name, x), x.strides[0] // x.itemsize, 0]
            elif kind is Picked:
                table, index = x
                words += [place(name, table), table.strides[0] // table.itemsize, place((name,), index)]
            elif kind is Number:
                words.append(float_bits(x))
            else:
                words.append(place(name, x) if isinstance(x, np.ndarray) else int(x))
        scratch = executable.scratch_bytes(tuple([int(values[name]) for name in executable.integers]))
        block = executable.block(*words)
        return lambda: executable.call(block, scratch_memory(scratch), 0, batch)

    def _place(self, name: Any, x: np.ndarray) -> int:
        known = self._known.get(name)
        if known is None or known[0] is not x:
            known = self._known[name] = x, _address(x)
        return known[1]
