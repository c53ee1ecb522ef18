"""Loops over arrays, and tuples of scalars in parts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ...ir import (
    Index,
    IndexArray,
    Mask,
    Masked,
    Scalar,
    ScalarArray,
    is_constant,
    is_finite,
    loop,
    memory,
    select,
    workspace,
)
from .spatial import Vec


def zero(n: Index, array: ScalarArray | IndexArray) -> None:
    """array[:n] = 0"""
    for k in loop(n):
        array[k] = 0.0


def copy(n: Index, source: ScalarArray, target: ScalarArray, where: Mask = True) -> None:
    """target[:n] = source[:n], in the lanes of the mask `where`."""
    for k in loop(n):
        target[k] = source[k] if where is True else select(where, source[k], target[k])


def add_to(n: Index, source: ScalarArray, target: ScalarArray) -> None:
    """target[:n] += source[:n]"""
    for k in loop(n):
        target[k] = target[k] + source[k]


def axpy(n: Index, h: Scalar, x: ScalarArray, y: ScalarArray, target: ScalarArray) -> None:
    """target[:n] = y[:n] + h x[:n]"""
    for k in loop(n):
        target[k] = y[k] + h * x[k]


def local(n: Index, rows: ScalarArray) -> ScalarArray:
    """A copy of a row of the caller's tensors in the workspace: such rows are read fastest as whole blocks."""
    array = workspace(n)
    copy(n, rows, array)
    return array


def gradient_memory(constants_bar: ScalarArray, size: Index) -> ScalarArray:
    """Memory in which the cotangent of the constants is summed up, for the elements that `constants_bar` has."""
    total = memory(size)
    return Masked(total, constants_bar.wanted) if isinstance(constants_bar, Masked) else total


def all_elements(array: ScalarArray | None) -> ScalarArray | None:
    """The whole array behind one of which only some elements are wanted: rolled loops write to all of its elements."""
    return array.array if isinstance(array, Masked) else array


def accumulate(array: ScalarArray, values: Sequence[Scalar]) -> None:
    """array[k] += values[k], except where a value is known to be zero while tracing."""
    for k, x in enumerate(values):
        if not is_constant(x, 0.0):
            array[k] = array[k] + x


def split(x: Sequence[Scalar], *sizes: int) -> list[Vec]:
    """Consecutive parts of x, of the given sizes."""
    ends = list(itertools.accumulate(sizes, initial=0))
    return [tuple(x[a:b]) for a, b in itertools.pairwise(ends)]


def all_finite(*arrays: tuple[ScalarArray, Index]) -> Mask:
    """Whether all elements of arrays of these sizes are finite: then, short of an overflow, their sum is."""
    total = workspace(1)
    total[0] = 0.0
    for array, n in arrays:
        for k in loop(n):
            total[0] = total[0] + array[k]
    return is_finite(total[0])
