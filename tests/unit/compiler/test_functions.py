"""Accuracy of sin, cos, tanh, atan2, and what the functions do with NaN, infinity and zero."""

import math
from fractions import Fraction

import numpy as np
import pytest
from kernel_helpers import DTYPES, compute, from_function, llvm_ir

from backdrive import backends
from backdrive import ir as bd

inf, nan = math.inf, math.nan


@pytest.fixture(scope="module")
def sincos():
    return from_function(lambda x: bd.sincos(x[0]))


@pytest.fixture(scope="module")
def tanh():
    return from_function(lambda x: [bd.tanh(x[0])])


@pytest.fixture(scope="module")
def atan2():
    return from_function(lambda x: [bd.atan2(x[0], x[1])])


def _ulps(got, exact):
    """Distance from long doubles in units of the last place."""
    unit = np.spacing(np.maximum(np.abs(exact).astype(got.dtype), np.finfo(got.dtype).tiny))
    return float(np.max(np.abs(got.astype(np.longdouble) - exact) / unit))


extended = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="needs long double to compare with")


@extended
@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("reach", [1e-8, 0.78, 3.2, 100.0, 1e4, 1e6])
def test_sine_and_cosine(sincos, bits, reach):
    if bits == 32 and reach > 1e5:
        pytest.skip("beyond the reduction of float32")
    x = np.random.default_rng(1).uniform(-reach, reach, (4000, 1)).astype(DTYPES[bits])
    y = compute(sincos, x, 2, bits)
    exact = x.astype(np.longdouble)
    assert _ulps(y[:, :1], np.sin(exact)) < (1.0 if reach < 0.785 else 2.5)
    assert _ulps(y[:, 1:], np.cos(exact)) < (1.0 if reach < 0.785 else 2.5)
    assert np.abs(y).max() <= 1.0


@extended
@pytest.mark.parametrize("bits", [64, 32])
def test_sine_and_cosine_next_to_multiples_of_half_pi(sincos, bits):
    """Where a bad reduction loses all digits."""
    x = (np.arange(-2000, 2001) * (np.pi / 2)).astype(DTYPES[bits])
    x = np.concatenate([x, np.nextafter(x, DTYPES[bits](inf))])[:, None]
    y, exact = compute(sincos, x, 2, bits), x.astype(np.longdouble)
    limit = {64: 2.0**-53, 32: 2.0**-24}[bits]
    assert np.abs(y[:, :1] - np.sin(exact)).max() <= limit
    assert np.abs(y[:, 1:] - np.cos(exact)).max() <= limit
    if bits == 64:
        assert _ulps(y[:, :1], np.sin(exact)) < 2.5
        assert _ulps(y[:, 1:], np.cos(exact)) < 2.5


@pytest.mark.parametrize("bits", [64, 32])
def test_sine_and_cosine_of_special_values(sincos, bits):
    y = compute(sincos, [[0.0], [-0.0], [1e-30], [inf], [-inf], [nan]], 2, bits)
    assert y[:3].tolist() == [[0.0, 1.0], [0.0, 1.0], [DTYPES[bits](1e-30), 1.0]]
    assert np.isnan(y[3:]).all()


@extended
@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("spread", [0.0, 3.0, 30.0])
def test_atan2(atan2, bits, spread):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(4000, 2)) * np.exp(rng.uniform(-spread, spread, (4000, 2)))
    x = x.astype(DTYPES[bits])
    y, exact = compute(atan2, x, 1, bits), x.astype(np.longdouble)
    assert _ulps(y, np.arctan2(exact[:, :1], exact[:, 1:])) < 3.0


@pytest.mark.parametrize("bits", [64, 32])
def test_atan2_of_special_values(atan2, bits):
    values = [0.0, -0.0, 1.0, -1.0, 2e-38, -3e30, inf, -inf, nan]
    x = [[a, b] for a in values for b in values]
    for (a, b), got in zip(x, compute(atan2, x, 1, bits)[:, 0].tolist()):
        if math.isnan(a) or math.isnan(b) or (math.isinf(a) and math.isinf(b)):
            assert math.isnan(got), (a, b)
        else:  # as on floats: no negative zeros, 0 at the origin
            assert got == pytest.approx(bd.atan2(a, b), rel=1e-6 if bits == 32 else 1e-15), (a, b)
    assert bd.atan2(0.0, -0.0) == 0.0
    assert bd.atan2(-0.0, -1.0) == math.pi


@pytest.mark.parametrize("bits", [64, 32])
def test_nan_and_infinity(bits):
    def functions(x):
        a, b = x[0], x[1]
        return [
            bd.minimum(a, b), bd.maximum(a, b), bd.clip(a, -1.0, 1.0), bd.select(a < b, 1.0, 2.0),
            bd.select(a <= b, 1.0, 2.0), bd.select(a == b, 1.0, 2.0), bd.select(a != b, 1.0, 2.0),
            bd.absolute(a), bd.select(bd.is_finite(a), 1.0, 0.0),
        ]  # fmt: skip

    values = [0.0, -0.0, 0.5, -2.0, 3.0, inf, -inf, nan]
    x = [(a, b) for a in values for b in values]
    y = compute(from_function(functions), x, 9, bits)
    for row, got in zip(x, y.tolist()):
        expected = functions([*row])
        assert np.array_equal(got, expected, equal_nan=True), row


@pytest.mark.parametrize("bits", [64, 32])
def test_square_roots_and_quotients_are_correctly_rounded(bits):
    x = np.random.default_rng(4).uniform(0.1, 10, (500, 2)).astype(DTYPES[bits])
    y = compute(from_function(lambda x: [bd.sqrt(x[0]), x[0] / x[1]]), x, 2, bits)
    assert (y == np.stack([np.sqrt(x[:, 0]), x[:, 0] / x[:, 1]], 1)).all()
    y = compute(from_function(lambda x: [bd.sqrt(x[0]), x[0] / x[1], 1.0 / x[1]]), [[-1.0, 0.0]], 3, bits)
    assert np.isnan(y[0, 0]) and y[0, 1] == -inf and y[0, 2] == inf


@pytest.mark.parametrize("bits", [64, 32])
def test_rounding(bits):
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49, 2.0, -7.3, 1e6 + 0.5, -0.0, inf, nan])[:, None]
    y = compute(from_function(lambda x: [bd.floor(x[0]), bd.nearest(x[0])]), x, 2, bits)
    x = x.astype(DTYPES[bits])
    assert np.array_equal(y, np.concatenate([np.floor(x), np.rint(x)], 1), equal_nan=True)
    for a in x[:-3, 0].tolist():
        assert bd.floor(a) == math.floor(a) and bd.nearest(a) == np.rint(a)


# ------------------------------------------------------------------------------------- fused multiply-adds


def _round(exact, dtype):
    """A fraction, correctly rounded to nearest."""
    guess = dtype(float(exact))
    near = [guess, np.nextafter(guess, dtype(inf)), np.nextafter(guess, dtype(-inf))]
    return min(near, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(f"i{v.itemsize}")) & 1))


@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_fused_multiply_adds_are_exact(bits, lanes):
    dtype = DTYPES[bits]
    rng = np.random.default_rng(5)
    x = rng.normal(size=(100, 4)).astype(dtype)
    x[:50, 2] = -(x[:50, 0] * x[:50, 1])  # what is left is the product's rounding error
    kernel = from_function(
        lambda x: [
            x[0] * x[1] + x[2],
            x[2] + x[0] * x[1],
            x[0] * x[1] - x[2],
            x[2] - x[0] * x[1],
            -(x[0] * x[1]) + x[2],
        ]
    )
    got = compute(kernel, x, 5, bits, lanes)
    for row, y in zip(x, got):
        a, b, c, _ = (Fraction(float(v)) for v in row)
        plus, minus = _round(a * b + c, dtype), _round(a * b - c, dtype)
        assert y.tolist() == [plus, plus, minus, -minus, -minus]
    assert (got[:50, 0] != 0).any()  # an unfused one would give 0


def test_which_products_are_fused():
    def count(function):
        text = llvm_ir(from_function(function), 64, 4)
        return (
            text.count("= call <4 x double> @llvm.fma"),
            text.count("fmul"),
            text.count("fadd") + text.count("fsub"),
        )

    assert count(lambda x: [x[0] * x[1] + x[2]]) == (1, 0, 0)
    assert count(lambda x: [x[0] * x[1] + x[2] * x[3]]) == (1, 1, 0)  # the first one is
    p = lambda x: x[0] * x[1]  # noqa: E731
    assert count(lambda x: [p(x) + x[2], p(x) - x[3]]) == (2, 0, 0)  # computed twice, but never by itself
    assert count(lambda x: [p(x) + x[2], p(x)]) == (0, 1, 1)  # its rounded value is needed
    assert count(lambda x: [p(x) + x[2], bd.sqrt(p(x))]) == (0, 1, 1)
    assert count(lambda x: [p(x) + p(x)]) == (0, 1, 1)
    assert count(lambda x: [p(x) - p(x)]) == (0, 0, 0)


def test_a_sum_of_two_products_fuses_the_first():
    x = np.random.default_rng(6).normal(size=(100, 4))
    y = compute(from_function(lambda x: [x[0] * x[1] + x[2] * x[3]]), x, 1)
    for (a, b, c, d), got in zip(x.tolist(), y[:, 0]):
        assert got == _round(Fraction(a) * Fraction(b) + Fraction(c * d), np.float64)


def test_products_are_not_fused_across_regions():
    """Else a product outside a loop would be computed in every iteration."""
    from kernel_helpers import llvm_ir, make

    def body(x, y, n):
        p = x[0] * x[1]
        for i in bd.loop(n):
            y[i] = p + x[2]

    rows = [backends.Rows("x"), backends.Rows("y", writable=True), backends.Integer("n")]
    text = llvm_ir(make(body, *rows), 64, 4)
    assert text.count("fmul") == 1 and "llvm.fma" not in text


@extended
@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("reach", [1e-8, 0.35, 1.0, 30.0])
def test_hyperbolic_tangent(tanh, bits, reach):
    x = np.random.default_rng(2).uniform(-reach, reach, (4000, 1)).astype(DTYPES[bits])
    y = compute(tanh, x, 1, bits)
    assert _ulps(y, np.tanh(x.astype(np.longdouble))) < 3.0
    assert np.abs(y).max() <= 1.0


def test_hyperbolic_tangent_of_special_numbers(tanh):
    y = compute(tanh, [[0.0], [inf], [-inf], [nan], [1e300], [5e-324]], 1)[:, 0]
    assert y[:3].tolist() == [0.0, 1.0, -1.0]
    assert math.isnan(y[3]) and y[4] == 1.0 and abs(y[5]) <= 5e-324


def test_derivative_of_the_hyperbolic_tangent():
    kernel = from_function(lambda x: bd.vjp(lambda a: [bd.tanh(a)], [x[0]], [2.0])[1])
    x = np.linspace(-3.0, 3.0, 41)[:, None]
    assert np.allclose(compute(kernel, x, 1), 2.0 / np.cosh(x) ** 2, rtol=1e-14, atol=0.0)
    assert bd.vjp(lambda a: [bd.tanh(a)], [0.3], [2.0])[1][0] == pytest.approx(2.0 / math.cosh(0.3) ** 2)
