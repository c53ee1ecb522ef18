"""Kernels as functions of numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backends import Kernel, Number, Picked, Rows
from ..backends.llvm_cpu.launch import call, float_bits


def _address(x: np.ndarray) -> int:
    if x.flags.carray and x.size:
        return ctypes.addressof(ctypes.c_char.from_buffer(x.data))  # takes a third of the time of the interface below
    return x.__array_interface__["data"][0]


@dataclass(frozen=True)
class StageTarget:
    """The target of a stage's kernel: floats of 64 or 32 bits, and the number of lanes of a register."""

    bits: int
    lanes: int

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float64 if self.bits == 64 else np.float32)

    def padded(self, n: int) -> int:
        """n numbers, rounded up to whole registers."""
        return -(-n // self.lanes) * self.lanes

    def stage(self, make: Callable[..., Kernel], *form: Any) -> Stage:
        """The kernel make(*form)."""
        return Stage(make, *form, bits=self.bits, lanes=self.lanes)


class Stage:
    """A kernel that is compiled when it is first called, and runs in the calling thread."""

    def __init__(self, make: Callable[..., Kernel], *form: Any, bits: int, lanes: int) -> None:
        self._make, self._form, self._bits, self._lanes = make, form, bits, lanes
        self.dtype = np.dtype(np.float64 if bits == 64 else np.float32)
        self._executable: Any = None
        self._known: dict[Any, tuple[np.ndarray, int]] = {}  # arrays of the last call, and their addresses

    def __call__(self, batch: int, **values: Any) -> None:
        """Run for `batch` items (bodies, pairs, ...).

        values: for Rows an array [batch, n], for Picked (table [m, n], index [batch]), else arrays and numbers. Rows
        are contiguous; arrays that the kernel writes as registers are aligned.
        """
        self.prepare(batch, **values)()

    def prepare(self, batch: int, **values: Any) -> Callable[[], None]:
        """The call as a function that can be called again, as long as the arrays stay where they are."""
        if self._executable is None:
            self._executable = self._make(*self._form).build(self._bits, self._lanes)
        executable, words, address = self._executable, [], self._address_of
        for name, kind in executable.layout:
            x = values[name]
            if kind is Rows:
                words += [address(name, x), x.strides[0] // x.itemsize, 0]
            elif kind is Picked:
                table, index = x
                words += [address(name, table), table.strides[0] // table.itemsize, address((name,), index)]
            elif kind is Number:
                words.append(float_bits(x))
            else:
                words.append(address(name, x) if isinstance(x, np.ndarray) else int(x))
        scratch = executable.scratch_bytes(tuple([int(values[name]) for name in executable.integers]))
        block = executable.block(*words)
        return lambda: call(executable, block, scratch, 0, batch)

    def _address_of(self, name: Any, x: np.ndarray) -> int:
        known = self._known.get(name)
        if known is None or known[0] is not x:
            known = self._known[name] = x, _address(x)
        return known[1]
