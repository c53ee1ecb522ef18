"""Validation of user input. Errors say what was wrong and what was expected, with the nearest valid name."""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

Array = np.ndarray

LARGEST = 1e100
"""The largest magnitude of a number that a user may give, so that squares and products of numbers do not overflow."""

LEAST_LENGTH = 1e-12
"""A direction shorter than this has none."""

RELATIVE_TOLERANCE = 1e-9
"""Tolerance of the triangle inequality of principal moments, relative to their sum. A thin plate satisfies it with
equality, so rounding alone can violate it."""


def unknown(what: str, name: object, valid: Iterable[str]) -> str:
    """An error message for an unknown name that suggests the nearest valid one."""
    names = list(valid)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    if close:
        return f"unknown {what} {name!r}; did you mean {close[0]!r}?"
    if not names:
        return f"unknown {what} {name!r}; there are none here"
    listed = ", ".join(repr(n) for n in names[:20]) + (", ..." if len(names) > 20 else "")
    return f"unknown {what} {name!r}; expected one of {listed}"


def as_float(value: Any, what: str) -> float:
    """A float of anything that is one number."""
    if isinstance(value, bool | str | bytes) or value is None or _is_bool(value):
        raise TypeError(f"{what} must be a number, got {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{what} must be a number, got {value!r}") from error
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # an integer that no float can hold


def number(value: Any, what: str, *, low: float = -math.inf, high: float = math.inf, strict: bool = False) -> float:
    """A finite float, at least ``low`` (above it when ``strict``) and at most ``high``."""
    result = as_float(value, what)
    if not math.isfinite(result):
        raise ValueError(f"{what} must be finite, got {result}")
    if result < low or (strict and result == low):
        raise ValueError(f"{what} must be {'>' if strict else '>='} {low:g}, got {result:g}")
    if result > high:
        raise ValueError(f"{what} must be <= {high:g}, got {result:g}")
    return result


def in_range(value: Any, what: str, rule: str, fits: Callable[[float], bool]) -> float:
    """A float that fits; otherwise, or if it is no number at all, a ValueError that says the rule. A tensor is none:
    it may expect a gradient."""
    try:
        result = math.nan if hasattr(value, "requires_grad") else as_float(value, what)
    except TypeError:
        result = math.nan
    if not fits(result):  # as no NaN does
        raise ValueError(f"{what} must be {rule}, got {value!r}")
    return result


def is_zero(value: Any) -> bool:
    """Whether a value is the number zero, and no sequence."""
    return np.ndim(value) == 0 and not isinstance(value, bool | str | bytes | None) and as_float(value, "") == 0.0


def integer(value: Any, what: str, least: int = 1) -> int:
    """An int of anything that is a whole number (``operator.index``), but no bool; at least ``least``."""
    if isinstance(value, int):  # also while torch.compile traces, where sizes are symbols
        result = least - 1 if isinstance(value, bool) else value
    elif _is_bool(value):
        result = least - 1
    else:
        try:
            result = operator.index(value)
        except TypeError:
            result = least - 1
    if result < least:
        raise ValueError(f"{what} must be an integer >= {least}, got {value!r}")
    return result


@contextmanager
def told_if_too_large(shape: tuple[int, ...], bytes_each: int) -> Iterator[None]:
    """Allocate a tensor over environments in this context: where there is no memory for it, the error says how much it
    would take, for which batch."""
    try:
        yield
    except RuntimeError as error:  # torch's, which says nothing of batches
        size = math.prod(shape) * bytes_each / 1e9
        raise MemoryError(
            f"there is no memory for a tensor of shape {list(shape)}, which takes {size:.4g} GB: take a smaller batch "
            "of environments, or fewer steps"
        ) from error


def vector(value: Any, size: int, what: str) -> Array:
    """A finite float64 vector of a given length."""
    result = array(value, what)
    if result.shape != (size,):
        raise ValueError(f"{what} must have {size} elements, got {_shape(result)}")
    return result


def array(value: Any, what: str) -> Array:
    """A finite float64 array of any shape."""
    try:
        raw = np.asarray(value)
        if raw.dtype.kind not in "iuf":
            raise TypeError(f"dtype {raw.dtype}")
        result = raw.astype(np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{what} must be made of numbers, got {value!r}") from error
    if not (np.abs(result) <= LARGEST).all():
        bound = f" (at most {LARGEST:g} in magnitude)" if np.isfinite(result).all() else ""
        raise ValueError(f"{what} must be finite{bound}, got {value!r}")
    return result


def interval(value: Any, what: str) -> tuple[float, float]:
    """(low, high) with low < high. An end that is infinite or None is unlimited; None instead of a pair, too."""
    if value is None:
        return -math.inf, math.inf
    try:
        low, high = (end if x is None else float(x) for x, end in zip(value, (-math.inf, math.inf), strict=True))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} must be a pair (low, high), got {value!r}") from error
    if not low < high:
        raise ValueError(f"{what} must be (low, high) with low < high, got {value!r}")
    return low, high


def unit_vector(value: Any, size: int, what: str) -> Array:
    """A direction, normalised. Zero length raises."""
    result = vector(value, size, what)
    length = np.linalg.norm(result)
    if length <= LEAST_LENGTH:
        raise ValueError(f"{what} must not have zero length, got {value!r}")
    return _normalised(result, float(length))


def unit_quaternion(value: Any, what: str) -> Array:
    """A quaternion (w first) whose length is 1 to within 1e-6, normalised."""
    result = vector(value, 4, what)
    length = np.linalg.norm(result)
    if abs(length - 1.0) > 1e-6:
        raise ValueError(f"{what} must be a unit quaternion (w, x, y, z), got {value!r} of length {length:g}")
    return _normalised(result, float(length))


_keeps_units: ContextVar[bool] = ContextVar("keeps_units", default=False)


@contextmanager
def unit_vectors_kept() -> Iterator[None]:
    """In this context, vectors that have unit length up to rounding are not normalised again.

    Dividing by a length next to 1 would change the last bits of numbers that were read from a file.
    """
    token = _keeps_units.set(True)
    try:
        yield
    finally:
        _keeps_units.reset(token)


def _normalised(vector: Array, length: float) -> Array:
    return vector if _keeps_units.get() and abs(length - 1.0) < 1e-15 else vector / length


def identifier(value: Any, what: str, taken: Iterable[str]) -> str:
    """A non-empty name that is not taken yet."""
    if not isinstance(value, str):
        raise TypeError(f"the name of a {what} must be a string, got {value!r}")
    if not value:
        raise ValueError(f"the name of a {what} must not be empty")
    if value in taken:
        raise ValueError(f"there is already a {what} named {value!r}")
    return value


def physical_inertia(inertia: Array, what: str) -> None:
    """Raise unless an inertia [3, 3] (kg m^2) is symmetric, positive definite, and possible for a rigid body."""
    scale = max(float(np.abs(inertia).max()), 1e-300)
    if np.abs(inertia - inertia.T).max() > RELATIVE_TOLERANCE * scale:
        raise ValueError(f"{what} must be a symmetric matrix, got {inertia.tolist()}")
    moments = np.linalg.eigvalsh(inertia)
    if moments[0] <= 0.0:
        raise ValueError(f"{what} must be positive definite; its principal moments are {moments.tolist()}")
    if moments[2] - moments[0] - moments[1] > RELATIVE_TOLERANCE * moments.sum():
        raise ValueError(
            f"{what} violates the triangle inequality: its principal moments are {moments.tolist()}, "
            "and the largest may not exceed the sum of the other two"
        )


def _is_bool(value: Any) -> bool:
    """Whether a value is a bool of numpy or torch."""
    return str(getattr(value, "dtype", "")).endswith("bool")


def _shape(value: Array) -> str:
    return f"{value.size}" if value.ndim == 1 else f"an array of shape {value.shape}"
