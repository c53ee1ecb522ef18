"""Loops over arrays, and tuples of scalars in parts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ...ir import Masked, Scalar, is_constant, loop, memory, select, workspace
from .spatial import Vec


def zero(n: Any, array: Any, where: Any = True) -> None:
    """In some lanes (mask)."""
    for k in loop(n):
        array[k] = 0.0 if where is True else select(where, 0.0, array[k])


def copy(n: Any, source: Any, target: Any, where: Any = True) -> None:
    """In some lanes (mask)."""
    for k in loop(n):
        target[k] = source[k] if where is True else select(where, source[k], target[k])


def add_to(n: Any, source: Any, target: Any) -> None:
    for k in loop(n):
        target[k] = target[k] + source[k]


def axpy(n: Any, h: Scalar, x: Any, y: Any, target: Any) -> None:
    """target = y + h x"""
    for k in loop(n):
        target[k] = y[k] + h * x[k]


def local(n: Any, rows: Any) -> Any:
    """A copy in the workspace: rows are read best as whole blocks."""
    array = workspace(n)
    copy(n, rows, array)
    return array


def gradient_memory(constants_bar: Any, size: Any) -> Any:
    """Where the gradient with respect to constants is summed up, for those that are wanted."""
    total = memory(size)
    return Masked(total, constants_bar.wanted) if isinstance(constants_bar, Masked) else total


def all_elements(array: Any) -> Any:
    """The whole array, which rolled loops can write, of one of which only some elements are wanted; or None."""
    return array.array if isinstance(array, Masked) else array


def accumulate(array: Any, values: Sequence[Scalar]) -> None:
    """array[k] += values[k], where that is not zero for certain."""
    for k, x in enumerate(values):
        if not is_constant(x, 0.0):
            array[k] = array[k] + x


def split(x: Sequence[Scalar], *sizes: int) -> list[Vec]:
    """x in parts of these sizes."""
    ends = list(itertools.accumulate(sizes, initial=0))
    return [tuple(x[a:b]) for a, b in itertools.pairwise(ends)]
