"""Kernels on numpy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..compiler import Kernel, Number, Picked, Rows
from ..compiler.launch import float_bits, scratch_memory


def _address(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


class Stage:
    """A kernel, compiled when it is first called; one thread."""

    def __init__(self, make: Callable[..., Kernel], *form: Any, bits: int, lanes: int) -> None:
        self._make, self._form, self._bits, self._lanes = make, form, bits, lanes
        self._executable: Any = None

    def __call__(self, batch: int, **values: Any) -> None:
        """Run over so many environments (bodies, pairs, ...).

        values: of Rows an array [batch, n], of Picked (table [m, n], index [batch]), else arrays and numbers. Rows are
        contiguous; arrays that the kernel writes as registers are aligned.
        """
        if self._executable is None:
            self._executable = self._make(*self._form).build(self._bits, self._lanes)
        executable, words = self._executable, []
        for name, kind in executable.layout:
            x = values[name]
            if kind is Rows:
                words += [_address(x), x.strides[0] // x.itemsize, 0]
            elif kind is Picked:
                table, index = x
                words += [_address(table), table.strides[0] // table.itemsize, _address(index)]
            elif kind is Number:
                words.append(float_bits(x))
            else:
                words.append(_address(x) if isinstance(x, np.ndarray) else int(x))
        scratch = executable.scratch_bytes(tuple([int(values[name]) for name in executable.integers]))
        executable.call(executable.block(*words), scratch_memory(scratch), 0, batch)
