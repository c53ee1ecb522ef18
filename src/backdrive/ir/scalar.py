"""The scalar functions that physics is written in: they take plain floats as well as traced values.

`maximum`, `select` and `to_float` also take numpy arrays, element by element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast, overload

import numpy as np

from .graph import Graph, TraceError, current, integer_op, same, traced
from .types import Index, Mask, Scalar


def _unary(op: str, on_float: Callable[[Any], float]) -> Callable[[Scalar], Scalar]:
    def function(x: Scalar) -> Scalar:
        return current().add(op, (x,), "f") if traced(x) else on_float(x)

    function.__name__ = function.__qualname__ = op
    return function


sqrt = _unary("sqrt", math.sqrt)
absolute = _unary("abs", abs)
floor = _unary("floor", math.floor)
nearest = _unary("round", round)  # ties to even, as IEEE 754 rounds


@overload
def minimum(a: Index, b: Index) -> Index: ...
@overload
def minimum(a: Scalar, b: Scalar) -> Scalar: ...
def minimum(a: Any, b: Any) -> Any:
    """The smaller of a and b; b if one of them is NaN. Also of two integers that all lanes share."""
    if any(traced(x) and x.type == "i" for x in (a, b)):
        return integer_op("imin", a, b)
    if traced(a) or traced(b):
        return a if same(a, b) else current().add("min", (a, b), "f")
    return a if a < b else b


def maximum(a: Scalar, b: Scalar) -> Scalar:
    """The larger of a and b; b if one of them is NaN."""
    if any(traced(x) and x.type == "i" for x in (a, b)):
        raise TraceError("maximum() of integers is not implemented")
    if traced(a) or traced(b):
        return a if same(a, b) else current().add("max", (a, b), "f")
    return select(a > b, a, b)


def select(condition: Any, a: Any, b: Any) -> Any:
    """a in the lanes where `condition` holds, b in the others. Both are computed."""
    if not traced(condition):
        return np.where(condition, a, b) if isinstance(condition, np.ndarray) else a if condition else b
    return a if same(a, b) else current().add("select", (condition, a, b), "f")


def clip(x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """x clamped to [low, high]. The derivative with respect to x is 1 on the closed interval. NaN stays NaN."""
    return select(x < low, low, select(x > high, high, x))


def any_lane(mask: Mask) -> Mask:
    """Whether `mask` holds in at least one lane: a condition that all lanes share."""
    return current().add("any", (mask,), "c") if traced(mask) and mask.type == "b" else mask


def to_float(i: Any) -> Scalar:
    """An integer that all lanes share as a float of every lane."""
    if isinstance(i, np.ndarray):
        return i.astype(np.float64)
    return current().add("to_float", (i,), "f") if traced(i) else float(i)


def is_finite(x: Scalar) -> Mask:
    """Whether x is neither infinite nor NaN: x - x is 0 then, and NaN otherwise."""
    if not traced(x):
        return math.isfinite(cast(float, x))
    if current().scratch:  # x - x would be folded to 0 when the scratch graph is replayed
        return current().add("finite", (x,), "b")
    return current().add("feq", (current().add("sub", (x, x), "f"), 0.0), "b")


# Sine and cosine: argument reduced to [-π/4, π/4] by Cody and Waite's split of π/2 (exact products up to about
# |x| = 1e6), then minimax polynomials (the coefficients of FDLIBM's kernel functions). Branch-free: the lanes of a
# register may lie in different quadrants. Below 1 ulp of error in the reduced range.

_HALF_PI = {
    64: (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21),
    32: (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8),
}
# Adding 1.5 · 2ᵐ, with m bits in the mantissa, rounds to an integer k and leaves k in the lowest bits.
_MAGIC = {64: 1.5 * 2.0**52, 32: 1.5 * 2.0**23}
_SIN = (
    -1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
    2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10,
)  # fmt: skip
_COS = (
    4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
    -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11,
)  # fmt: skip


def horner(z: Scalar, coefficients: tuple[float, ...]) -> Scalar:
    """The polynomial with these coefficients, of z⁰ first, at z."""
    result: Scalar = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = c + z * result
    return result


def sincos(x: Scalar) -> tuple[Scalar, Scalar]:
    """(sin x, cos x)"""
    if not traced(x):
        return math.sin(cast(float, x)), math.cos(cast(float, x))
    graph = current()
    if graph.scratch:  # kept as single nodes, whose derivatives are known
        return graph.add("sin", (x,), "f"), graph.add("cos", (x,), "f")
    return _sincos_polynomials(x, graph)


def _sincos_polynomials(x: Scalar, graph: Graph) -> tuple[Scalar, Scalar]:
    bits = graph.target.bits
    high, middle, low = _HALF_PI[bits]
    magic = _MAGIC[bits]
    rounded = x * (2.0 / math.pi) + magic
    k = rounded - magic
    r = ((x - k * high) - k * middle) - k * low
    z = r * r
    s = r + (r * z) * horner(z, _SIN)
    c = 1.0 + z * (z * horner(z, _COS) - 0.5)
    # k mod 4 = 0, 1, 2, 3: sin is s, c, -s, -c and cos is c, -s, -c, s
    sine = graph.add("odd", (rounded, c, s), "f")
    cosine = graph.add("odd", (rounded, s, c), "f")
    return graph.add("flip", (rounded, sine, 0), "f"), graph.add("flip", (rounded, cosine, 1), "f")


def sin(x: Scalar) -> Scalar:
    """sin x"""
    return sincos(x)[0]


def cos(x: Scalar) -> Scalar:
    """cos x"""
    return sincos(x)[1]


# tanh x = E / (E + 2) with E = expm1(2 |x|), which keeps all digits for small x. The argument of expm1 is reduced to
# [-ln(2)/2, ln(2)/2] by Cody and Waite's split of ln 2, as above; there, expm1 is its Taylor series.

_LN2 = {64: (6.93147180369123816490e-01, 1.90821492927058770002e-10), 32: (0.693359375, -2.12194440e-4)}
_EXPM1 = {bits: tuple(1.0 / math.factorial(n) for n in range(1, terms + 1)) for bits, terms in ((64, 14), (32, 8))}
_SATURATED = 20.0  # for larger |x|, tanh x rounds to ±1


def tanh(x: Scalar) -> Scalar:
    """tanh x. NaN stays NaN."""
    if not traced(x):
        return math.tanh(cast(float, x))
    graph = current()
    if graph.scratch:
        return graph.add("tanh", (x,), "f")
    bits = graph.target.bits
    high, low = _LN2[bits]
    y = 2.0 * minimum(_SATURATED, absolute(x))
    magic = _MAGIC[bits]
    rounded = y * (1.0 / math.log(2.0)) + magic
    k = rounded - magic
    r = (y - k * high) - k * low
    power = graph.add("power", (rounded,), "f")  # 2ᵏ
    E = power * (r * horner(r, _EXPM1[bits])) + (power - 1.0)
    t = E / (E + 2.0)
    return select(x < 0.0, -t, t)


# atan: reduced to [0, tan(π/8)] by atan x = π/4 + atan((x - 1)/(x + 1)), then a rational approximation
# (the coefficients of Cephes' atan).

_ATAN_P = (
    -6.485021904942025371773e1, -1.228866684490136173410e2, -7.500855792314704667340e1,
    -1.615753718733365076637e1, -8.750608600031904122785e-1,
)  # fmt: skip
_ATAN_Q = (
    1.945506571482613964425e2, 4.853903996359136964868e2, 4.328810604912902668951e2,
    1.650270098316988542046e2, 2.485846490142306297962e1, 1.0,
)  # fmt: skip


def atan2(y: Scalar, x: Scalar) -> Scalar:
    """The angle of the point (x, y), in (-π, π]; 0 at the origin. NaN stays NaN."""
    if not traced(x) and not traced(y):
        return math.atan2(cast(float, y + 0.0), cast(float, x + 0.0))  # adding 0 removes negative zeros
    graph = current()
    if graph.scratch:
        return graph.add("atan2", (y, x), "f")
    ay, ax = absolute(y), absolute(x)
    small, large = minimum(ax, ay), maximum(ay, ax)  # in this order of arguments, one of the two is NaN if x or y is
    t = small / select(cast(Any, large) == 0.0, 1.0, large)
    reduce = t > math.tan(math.pi / 8)
    u = select(reduce, (t - 1.0) / (t + 1.0), t)
    z = u * u
    angle = u + u * (z * horner(z, _ATAN_P) / horner(z, _ATAN_Q))
    angle = select(reduce, math.pi / 4 + angle, angle)
    angle = select(ay > ax, math.pi / 2 - angle, angle)
    angle = select(x < 0.0, math.pi - angle, angle)
    return select(y < 0.0, -angle, angle)
