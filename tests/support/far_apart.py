"""Run as a script: load a kernel where there is no room for its code near its constants. A crash ends the process.

All gaps between what is mapped are filled, but for small ones, and 4 GB below all of it are taken: the code must go
below these, while constants would fit into one of the small gaps.
"""

from __future__ import annotations

import ctypes

import numpy as np

from backdrive.backends import Kernel, Rows, run
from backdrive.ir import ScalarArray

FAR, LEAST = 1 << 32, 1 << 14
TERMS = 4000
_libc = ctypes.CDLL(None)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)


def reserve(size: int) -> int:
    """The address of private pages that nobody may touch, wherever the system puts them."""
    return _libc.mmap(None, size, 0, 0x4022, -1, 0)


def body(x: ScalarArray, y: ScalarArray) -> None:
    """A polynomial: code of more than LEAST bytes, and few constants."""
    total = x[0]
    for k in range(TERMS):
        total = total * x[0] + float(k % 7) + 0.5
    y[0] = total


def main() -> None:
    reserve(3 * LEAST // 4)
    executable = Kernel("far", [Rows("x"), Rows("y", writable=True)], body, key="apart")
    built = executable.build(64, 4)  # LLVM is loaded now, and has its memory
    end = reserve(FAR)
    size = 1 << 30
    while size >= LEAST:
        while reserve(size) > end:
            pass
        size //= 16
    again = Kernel("far", [Rows("x"), Rows("y", writable=True)], body, key="apart").build(64, 4)
    results = []
    for kernel in (built, again):
        x, y = np.full((4, 1), 0.3), np.zeros((4, 1))
        run(kernel, 4, 1, {"x": (x.ctypes.data, 1, 0), "y": (y.ctypes.data, 1, 0)})
        results.append(y[0, 0])
    assert results[0] == results[1]
    print("loaded")


if __name__ == "__main__":
    main()
