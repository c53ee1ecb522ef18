"""Small kernels for tests: from a function on scalars, or from a body; run on numpy arrays."""

import itertools
import os

import numpy as np

from backdrive.backends import Integer, Ints, Kernel, Number, Rows, Table, run
from backdrive.backends.llvm_cpu.module import trace

DTYPES = {64: np.float64, 32: np.float32}
LANES = (1, 2, 4, 8, 16)
_numbers = itertools.count()


def make(body, *arguments, unroll=False):
    """A kernel under a key of its own (also in a forked child)."""
    return Kernel("test", arguments, body, unroll=unroll, key=f"{os.getpid()} {next(_numbers)}")


def llvm_ir(kernel, bits=64, lanes=4):
    """The LLVM IR of a kernel."""
    return trace(kernel, bits, lanes).text()


def from_function(function, unroll=False):
    """y = function(x), of rows of numbers."""

    def body(x, y):
        for k, value in enumerate(function(x)):
            y[k] = value

    return make(body, Rows("x"), Rows("y", writable=True), unroll=unroll)


def launch(kernel, batch, bits=64, lanes=None, threads=1, **values):
    """Arrays of rows are [B, n] or [T, B, n], with any strides."""
    executable = kernel.build(bits, lanes)
    words = {}
    for argument in kernel.arguments:
        x = values[argument.name]
        match argument:
            case Rows():
                assert x.dtype == DTYPES[bits] and (x.shape[-1] == 1 or x.strides[-1] == x.itemsize)
                step = x.strides[0] // x.itemsize if x.ndim == 3 else 0
                words[argument.name] = (x.ctypes.data, x.strides[-2] // x.itemsize, step)
            case Table():
                assert x.dtype == DTYPES[bits]
                words[argument.name] = x.ctypes.data
            case Ints():
                assert x.dtype == np.int64
                words[argument.name] = x.ctypes.data
            case Integer() | Number():
                words[argument.name] = x
    run(executable, batch, threads, words)


def compute(kernel, x, count, bits=64, lanes=None, threads=1):
    """The `count` outputs of a kernel of `from_function`, for every row of x."""
    x = np.ascontiguousarray(x, DTYPES[bits])
    y = np.full((len(x), count), 99.0, DTYPES[bits])
    launch(kernel, len(x), bits, lanes, threads, x=x, y=y)
    return y


def same_bits(a, b):
    """Equal to the bit; one NaN is as good as another."""
    integers = {8: np.int64, 4: np.int32}[a.itemsize]
    nan = np.isnan(a) & np.isnan(b)
    same = nan | (a.view(integers) == b.view(integers))
    for k in np.argwhere(~same)[:5]:
        print("differs at", k, a[tuple(k)], b[tuple(k)])
    return bool(np.all(same))
