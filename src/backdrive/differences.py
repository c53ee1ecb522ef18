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
    """A derivative of each value at 0.

    error: how far differences over one and over two steps are apart, or what rounding leaves: the derivative is not
    known better. jump: of the derivative at 0, about zero where it exists. switched: by mode, whether it switches
    within the step. step: of each value.
    """

    value: Tensor
    error: Tensor
    jump: Tensor
    switched: Tensor
    step: Tensor


class Reached(NamedTuple):
    """What a function returns: values, the modes (which contacts, limits and motors act) that they belong to, and the
    sums of the magnitudes of the terms that each value is made of, whose rounding errors it has."""

    values: Tensor
    modes: Tensor
    terms: Tensor


ROUNDING = 1e-15  # of a value, relative to the sum of its terms


def smooth_slope(
    function: Callable[[float], Reached], steps: Sequence[float], enough: Tensor | float = torch.inf
) -> Slope:
    """The derivative at 0 of a function whose pieces are smooth: within each, its modes are the same.

    Large steps suffer from curvature and from switches (contacts at rest are close to one), small ones from rounding
    and from what a solver leaves. Steps are tried in this order until the error of every value is at most `enough` and
    no mode switches; of each value, the best is taken. Values may be one for each of the modes, or one for all of them.
    """
    here = function(0.0)
    shape, worst = here.values.shape, torch.full_like(here.values, torch.inf)
    best = Slope(torch.zeros_like(worst), worst, worst, torch.ones_like(here.modes, dtype=torch.bool), worst)
    dirty = torch.ones(shape, dtype=torch.bool)  # of each value: a mode switches within its step
    for step in steps:
        reached = [function(k * step) for k in offsets(4)]
        switched = torch.stack([other.modes != here.modes for other in reached]).any(0)
        narrow, wide = slopes([x.values for x in reached], step)
        up, down, far_up, far_down = (x.values - here.values for x in reached)
        jump = (2.0 * (up + down) - 0.5 * (far_up + far_down)) / step  # the curvature cancels
        error = (wide - narrow).abs().maximum(ROUNDING * here.terms / step)
        crosses = switched if switched.shape == shape else switched.any()
        better = (dirty & ~crosses) | ((dirty == crosses) & (error < best.error))
        found = Slope(extrapolate([narrow, wide]), error, jump, switched, torch.full_like(error, step))
        by_mode = better if switched.shape == shape else better.any()
        best = Slope(*(
            torch.where(by_mode if name == "switched" else better, new, old)
            for name, new, old in zip(Slope._fields, found, best, strict=True)
        ))  # fmt: skip
        dirty = torch.where(better, crosses, dirty)
        if not bool(dirty.any()) and bool((best.error <= enough).all()):
            break
    return best
