"""A box-constrained quadratic program in every lane: the controls of one step, within their limits.

Projected Newton (Bertsekas 1982; Tassa et al. 2014): a Newton step in the free coordinates (not clamped at a bound),
projected onto the bounds, halved until the objective decreases enough (Armijo). Matrices are n x n, row by row.
"""

from __future__ import annotations

from ..ir import (
    Index,
    Scalar,
    ScalarArray,
    absolute,
    carry,
    clip,
    loop,
    maximum,
    memory,
    select,
    sqrt,
    while_any,
)

MAX_ITERATIONS = 30  # Newton steps, at most.
HALVINGS = 15  # Step sizes that a line search tries, at most.
ARMIJO = 0.1  # A step must achieve this fraction of the decrease predicted to first order.
STILL = 1e-10  # The iteration ends when a step moves x by less than this, relative to its largest coordinate.


def inner(n: Index, a: ScalarArray, step_a: Index, b: ScalarArray, step_b: Index, start: Scalar = 0.0) -> Scalar:
    """start + Σ a[k step_a] b[k step_b]"""
    total = carry(1)
    total[0] = start
    for k in loop(n):
        total[0] = total[0] + a[k * step_a] * b[k * step_b]
    return total[0]


def factor(n: Index, A: ScalarArray, positive: ScalarArray) -> None:
    """Cholesky: overwrite the lower half of A with L, A = L Lᵀ, its diagonal inverted. positive[0] <- 0 on failure."""
    for j in loop(n):
        row = A.at(j * n)
        pivot = carry(1)
        pivot[0] = row[j]
        for k in loop(j):
            pivot[0] = pivot[0] - row[k] * row[k]
        good = pivot[0] > 0.0  # False for NaN.
        positive[0] = select(good, positive[0], 0.0)
        inverse = 1.0 / sqrt(select(good, pivot[0], 1.0))
        row[j] = inverse
        for i in loop(n, start=j + 1):
            below = A.at(i * n)
            rest = carry(1)
            rest[0] = below[j]
            for k in loop(j):
                rest[0] = rest[0] - below[k] * row[k]
            below[j] = rest[0] * inverse


def substitute(n: Index, L: ScalarArray, x: ScalarArray, step: Index) -> None:
    """x <- (L Lᵀ)⁻¹ x, for the vector with elements x[k step]."""
    for i in loop(n):
        total = carry(1)
        total[0] = x[i * step]
        for k in loop(i):
            total[0] = total[0] - L.at(i * n)[k] * x[k * step]
        x[i * step] = total[0] * L.at(i * n)[i]
    for i in loop(n, reverse=True):
        total = carry(1)
        total[0] = x[i * step]
        for k in loop(n, start=i + 1):
            total[0] = total[0] - L.at(k * n)[i] * x[k * step]
        x[i * step] = total[0] * L.at(i * n)[i]


def factor_free(n: Index, H: ScalarArray, held: ScalarArray, L: ScalarArray) -> None:
    """Factor H restricted to the free coordinates, with a unit diagonal in the clamped ones (held = 1)."""
    for i in loop(n):
        for j in loop(n):
            L.at(i * n)[j] = select(held[i] + held[j] > 0.0, 0.0, H.at(i * n)[j])
        L.at(i * n)[i] = select(held[i] > 0.0, 1.0, L.at(i * n)[i])
    positive = memory(1)
    factor(n, L, positive)


def solve_box(
    n: Index, H: ScalarArray, g: ScalarArray, low: ScalarArray, high: ScalarArray, x: ScalarArray, held: ScalarArray,
    L: ScalarArray,
) -> None:  # fmt: skip
    """x <- argmin ½ xᵀ H x + gᵀ x with low ≤ x ≤ high, for H positive definite; starts from x, clipped.

    Written: held, 1 where x is clamped at a bound, else 0; L, see `factor_free`.
    """
    gradient, step, trial = memory(n), memory(n), memory(n)
    going, size, found, moved = memory(1), memory(1), memory(1), memory(2)
    going[0] = 1.0

    def differentiate() -> None:
        for k in loop(n):
            gradient[k] = inner(n, H.at(k * n), 1, x, 1, g[k])
            against = ((x[k] <= low[k]) & (gradient[k] > 0.0)) | ((x[k] >= high[k]) & (gradient[k] < 0.0))
            held[k] = select(against, 1.0, 0.0)
        factor_free(n, H, held, L)

    for k in loop(n):
        x[k] = clip(x[k], low[k], high[k])
    for _ in while_any(lambda: going[0] > 0.0, MAX_ITERATIONS):
        differentiate()
        for k in loop(n):
            step[k] = select(held[k] > 0.0, 0.0, -gradient[k])
        substitute(n, L, step, 1)
        size[0], found[0] = 1.0, 0.0
        for _ in while_any(lambda: found[0] < 1.0, HALVINGS):
            gain = carry(2)  # The decrease of the objective: actual, and to first order.
            gain[0], gain[1] = 0.0, 0.0
            for k in loop(n):
                trial[k] = clip(x[k] + size[0] * step[k], low[k], high[k])
            for k in loop(n):
                change = trial[k] - x[k]
                curved = carry(1)
                curved[0] = gradient[k]
                for j in loop(n):
                    curved[0] = curved[0] + 0.5 * H.at(k * n)[j] * (trial[j] - x[j])
                gain[0] = gain[0] - change * curved[0]
                gain[1] = gain[1] - change * gradient[k]
            found[0] = select(gain[0] >= ARMIJO * gain[1], 1.0, found[0])
            size[0] = select(found[0] > 0.0, size[0], 0.5 * size[0])
        moved[0], moved[1] = 0.0, 0.0
        for k in loop(n):
            to = clip(x[k] + size[0] * step[k], low[k], high[k])
            to = select((found[0] > 0.0) & (going[0] > 0.0), to, x[k])
            moved[0] = maximum(moved[0], absolute(to - x[k]))
            moved[1] = maximum(moved[1], absolute(to))
            x[k] = to
        going[0] = select(moved[0] > STILL * moved[1], going[0], 0.0)
    differentiate()
