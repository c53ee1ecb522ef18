"""Checks of single values in a file.

A check takes a value as JSON has it and its place in the file, such as ``bodies[3].mass``. It returns the value as
`Scene` takes it, or raises an error that names the place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ...schema.layout import Kind
from ..ranges import FINITE, PLANAR_INERTIA, POSITIVE, Range

Check: TypeAlias = Callable[[Any, str], Any]


def number(value: Any, place: str) -> float:
    """A finite number."""
    return FINITE.number(value, place)


def within(range: Range) -> Check:
    """A check of numbers in a range; infinity, where it is allowed, is written "infinity"."""

    def check(value: Any, place: str) -> float:
        if range.infinite and value == "infinity":
            return math.inf
        if not math.isfinite(result := range.number(value, place)):
            raise ValueError(f'{place} must be finite, or "infinity", got {value!r}')
        return result

    return check


def vector(value: Any, place: str, sizes: Iterable[int]) -> list[float]:
    """A list of numbers that has one of the given lengths."""
    array(value, place)
    if len(value) not in sizes:
        raise ValueError(f"{place} must have {' or '.join(map(str, sizes))} elements, got {len(value)}")
    return [number(x, f"{place}[{i}]") for i, x in enumerate(value)]


def vectors(value: Any, place: str, size: int) -> list[list[float]]:
    """A list of lists of `size` numbers."""
    array(value, place)
    return [vector(row, f"{place}[{i}]", [size]) for i, row in enumerate(value)]


def coordinates(value: Any, place: str) -> float | list[float]:
    """A number, or the list of numbers of a joint with several coordinates."""
    sizes = sorted({n for kind in Kind for n in (kind.nq, kind.nv) if n > 1})
    return vector(value, place, sizes) if isinstance(value, list) else number(value, place)


def interval(value: Any, place: str) -> tuple[float | None, float | None]:
    """[low, high], where null means no limit."""
    array(value, place)
    if len(value) != 2:
        raise ValueError(f"{place} must be [low, high], got {len(value)} elements")
    low, high = (None if x is None else number(x, f"{place}[{i}]") for i, x in enumerate(value))
    return low, high


def string(value: Any, place: str) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError(f"{place} must be a text, got {shown(value)}")
    return value


def inertia(value: Any, place: str, dim: int) -> Any:
    """An inertia (kg m^2): a positive number in 2D, a matrix [3, 3] in 3D."""
    return PLANAR_INERTIA.number(value, place) if dim == 2 else vectors(value, place, 3)


def array(value: Any, place: str) -> list[Any]:
    """A list of anything."""
    if not isinstance(value, list):
        raise TypeError(f"{place} must be a list, got {shown(value)}")
    return value


def shown(value: Any) -> str:
    """A value as error messages quote it: at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


positive: Check = within(POSITIVE)
