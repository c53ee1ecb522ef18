"""Central differences: derivatives from the values of a function on both sides of a point.

Every check of a gradient is built on these few functions: `gradcheck`, that of ``identify.fit``, and those of the tests
and benchmarks. A difference over one step h has an error of second order in h; extrapolated from the differences over
h, 2h (and 3h) it has one of fourth (sixth) order, so that larger steps, with less rounding in them, are as exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T", float, Tensor, np.ndarray)

_EXTRAPOLATIONS: dict[int, tuple[tuple[float, ...], float]] = {
    2: ((1.0,), 1.0),
    4: ((4.0, -1.0), 3.0),
    6: ((15.0, -6.0, 1.0), 10.0),
}
"""By order: the weights of the differences over one, two and three steps, and what their sum is divided by."""


def offsets(order: int = 2) -> tuple[float, ...]:
    """Where a function is evaluated, in steps from the point: 1, -1, 2, -2, 3, -3, as many as the order."""
    return tuple(sign * k for k in range(1, order // 2 + 1) for sign in (1.0, -1.0))


def slopes(values: Sequence[T], step: float | Tensor) -> list[T]:
    """The differences over one, two, ... steps, from the values at `offsets`."""
    pairs = zip(values[::2], values[1::2], strict=True)
    found: list[Any] = [(plus - minus) / (2 * k * step) for k, (plus, minus) in enumerate(pairs, 1)]
    return found


def extrapolate(slopes: Sequence[T]) -> T:
    """The derivative, from the differences over one, two, ... steps."""
    weights, divisor = _EXTRAPOLATIONS[2 * len(slopes)]
    total = weights[0] * slopes[0]
    for weight, slope in zip(weights[1:], slopes[1:], strict=True):
        total = total + weight * slope
    return total / divisor


def central(function: Callable[[float], T], step: float, order: int = 2) -> T:
    """The derivative at 0 of a function of one number."""
    return extrapolate(slopes([function(k * step) for k in offsets(order)], step))


def along(function: Callable[[Tensor], T], x: Tensor, direction: Tensor, step: float, order: int = 2) -> T:
    """The derivative of a function at x in a direction."""
    with torch.no_grad():
        return central(lambda e: function(x + e * direction), step, order)


def relative_error(found: float, reference: float, least: float = 0.0) -> float:
    """|found - reference|, relative to the reference, or to `least` if that is more."""
    error = abs(found - reference)
    return error / max(abs(reference), least) if error else 0.0


def least_error(
    exact: float, difference: Callable[[float], float], steps: Iterable[float], least: float = 0.0, enough: float = 0.0
) -> float:
    """The smallest relative error of a derivative, against differences of several steps.

    Large steps are off by curvature, small ones by rounding: the derivative is right if it agrees with one of them. No
    other step is tried after an error below `enough`. difference: see `central`, with the step left open.
    """
    best = float("inf")
    for step in steps:
        best = min(best, relative_error(exact, difference(step), least))
        if best < enough:
            break
    return best


class Slope(NamedTuple):
    """A derivative; whether modes switched within its step, by mode; and the step, of each value."""

    value: Tensor
    switched: Tensor
    step: Tensor


def smooth_slope(
    function: Callable[[float], tuple[Tensor, Tensor]], modes: Tensor, steps: Sequence[float], order: int = 4
) -> Slope:
    """The derivative at 0 of a function whose pieces are smooth: within each, its modes are the same.

    function: returns values, and the modes (which contacts, limits and motors act) that they belong to; modes: those at
    0. Contacts at rest are close to a switch: where one happens, the next of the steps is tried. Values may be one for
    each of the modes, or one for all of them.
    """
    value, used = torch.zeros(()), torch.ones((), dtype=torch.float64)
    switched = torch.ones_like(modes, dtype=torch.bool)
    for step in steps:
        found = [function(k * step) for k in offsets(order)]
        crossed = torch.stack([other != modes for _, other in found]).any(0)
        estimate = extrapolate(slopes([x for x, _ in found], step))
        # One value for all modes is better as long as any of them switches.
        worse = switched if estimate.shape == switched.shape else switched.any()
        value, used = torch.where(worse, estimate, value), torch.where(worse, step, used)
        switched = switched & crossed
        if not bool(switched.any()):
            break
    return Slope(value, switched, used)
