"""The rules of Lemke's pivoting on an active set, row by row: dense kernels apply them to traced scalars, piles to
numpy arrays.

A parametric term t d is added to the rows' speeds; at t = 1 the given impulses solve the problem, and t falls to 0. On
the way, impulses and speeds are linear in t until a row changes its code in the active set: a pivot.
"""

from __future__ import annotations

from typing import Any

from ...ir import maximum, select, to_float
from .active_set import FREE, LOWER, UPPER

Values = Any  # a Scalar, or a numpy array with an element for every row


def sliding_code(speed: Values) -> Values:
    """The code of a friction row whose contact does not press: the bound that opposes its sliding speed (m/s)."""
    return select(speed < 0.0, UPPER, LOWER)


def spread(number: Values) -> Values:
    """A number in [0, 1) that differs from row to row, so that no two rows pivot at the same t; number: of the row."""
    return to_float(number * 633 % 1024) / 1024.0


def parametric_term(code: Values, speed: Values, margin: Values) -> Values:
    """d of a row (m/s): it stops a FREE row, and presses a clamped one against its bound with at least `margin`."""
    at_bound = -code * maximum(margin + code * speed, 0.0)
    return select(code == FREE, -speed, at_bound)


def bound_slacks(impulse: Values, low: Values, high: Values, friction_bound: Values) -> tuple[Values, Values]:
    """The distances of an impulse from its lower bound low - μ λₙ and its upper bound high + μ λₙ (N s)."""
    return impulse - low + friction_bound, high + friction_bound - impulse


def pivot_distance(slack: Values, rate: Values, t: Values, direction: Values, closing: Values) -> Values:
    """The ratio test: how far t moves until the slack `slack + rate t` of a row is zero; closing: whether it shrinks.

    direction: 1 where t falls, -1 where it rises.
    """
    return maximum(slack + rate * t, 0.0) / select(closing, direction * rate, 1.0)
