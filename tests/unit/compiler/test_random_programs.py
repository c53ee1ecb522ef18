"""The same random programs on floats and compiled, for every lane width, batch and number of threads."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from kernel_helpers import DTYPES, LANES, compute, from_function, launch, same_bits
from programs import INPUTS, bound, evaluate, program_lists

BATCHES = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32)
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 3e-308, 2e-38, 1e30, -1e300, 0.5, 2.5, -3.5]


def _inputs(bits):
    """33 rows: small numbers, round ones, and everything strange but denormals (max may flush them)."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-2.5, 2.5, (33, INPUTS))
    x[16:24] = rng.integers(-3, 4, (8, INPUTS)) / 2
    x[24:] = rng.choice(SPECIAL, (9, INPUTS))
    with np.errstate(over="ignore"):
        x = x.astype(DTYPES[bits])
    x[np.abs(x) < np.finfo(x.dtype).tiny] = 0.0
    return x


PYTHON_RAISES = (ZeroDivisionError, ValueError, OverflowError)  # where IEEE has NaN or infinity


@pytest.mark.slow
@settings(
    max_examples=6,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(programs=program_lists(30))
def test_same_bits_whatever_the_split_and_close_to_floats(programs):
    kernel = from_function(lambda x: [_traced(p, [x[k] for k in range(INPUTS)]) for p in programs])
    for bits in (64, 32):
        x = _inputs(bits)
        expected = compute(kernel, x, len(programs), bits, lanes=1)
        for lanes in LANES:
            assert same_bits(compute(kernel, x, len(programs), bits, lanes), expected), f"{lanes} lanes"
            for batch in BATCHES:
                y = compute(kernel, x[:batch], len(programs), bits, lanes, threads=1 + batch % 3)
                assert same_bits(y, expected[:batch]), f"{lanes} lanes, batch {batch}"
        _compare_with_floats(programs, x[:24], expected[:24], 2.0 ** -(53 if bits == 64 else 24))


def _traced(program, x):
    try:
        return evaluate(program, x)
    except PYTHON_RAISES:  # on constants only
        return 0.0


def _compare_with_floats(programs, x, y, eps):
    checked = 0
    for p, program in enumerate(programs):
        for row, got in zip(x.tolist(), y[:, p].tolist()):
            try:
                value = evaluate(program, row)
                expected, error = bound(program, row, eps)
            except PYTHON_RAISES:
                continue
            if math.isfinite(error):
                assert value == expected
                assert abs(got - value) <= 2 * error + 1e-30, (program, row, got, value, error)
                checked += 1
    assert checked > 10


@pytest.mark.parametrize("unroll", [False, True])
def test_every_batch_up_to_33_and_many_threads(unroll):
    kernel = from_function(lambda x: [_chain(x[0], x[1])], unroll)
    x = np.random.default_rng(0).normal(size=(33, 2))
    expected = compute(kernel, x, 1, lanes=1)
    for lanes in (1, 4, 16):
        for batch in range(1, 34):
            for threads in (1, 2, 7):
                assert same_bits(compute(kernel, x[:batch], 1, 64, lanes, threads), expected[:batch])


def _chain(a, b):
    for _ in range(20):
        a, b = a * b + 0.3, b - a * 0.7
    return a / (1.0 + b * b)


def test_empty_batch_does_nothing():
    kernel = from_function(lambda x: [x[0] + 1.0])
    x, y = np.zeros((1, 1)), np.full((1, 1), 7.0)
    for threads in (1, 3):
        launch(kernel, 0, threads=threads, x=x, y=y)
    assert y == 7.0
