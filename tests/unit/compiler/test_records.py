"""Homogeneous records: a constant of one record is known for all, and wrong use raises while tracing."""

import numpy as np
import pytest
from kernel_helpers import LANES, launch, llvm_ir, make

from backdrive import ir as bd
from backdrive.backends import Integer, Rows
from backdrive.ir import TraceError

X, Y, N = Rows("x"), Rows("y", writable=True), Integer("n")
WIDTH = 8


def sums(x, y, n, array):
    """Records (x, 2, 2 x) in a row, then of a record with a world's (-1, -1, 5) before it."""
    array.put(0, (-1.0, -1.0, 5.0))
    for i in bd.loop(n):
        array.put(i + 1, (x[i], 2.0, 2.0 * x[i]))
    for i in bd.loop(n, reverse=True):
        array.accumulate(i + 1, (1.0, 0.5, 0.0))
    first = array.get(0, 3)
    for i in bd.loop(n):
        a, b, c = array.get(i + 1, 3)
        y[i] = a * b + c + first[0] * first[2]


@pytest.mark.parametrize("lanes", LANES)
def test_records_are_what_arrays_are(lanes):
    def body(x, y, n):
        sums(x, y, n, bd.records((n + 1) * 3))

    x, y = np.random.default_rng(0).normal(size=(5, WIDTH)), np.zeros((5, WIDTH))
    launch(make(body, X, N, Y), 5, 64, lanes, x=x, y=y, n=WIDTH)
    np.testing.assert_allclose(y, (x + 1.0) * 2.5 + 2.0 * x - 5.0, rtol=1e-15)
    floats = [0.0] * WIDTH
    sums(bd.Floats(x[0].tolist()), bd.Floats(floats), WIDTH, bd.records(3 * (WIDTH + 1)))
    np.testing.assert_allclose(floats, y[0], rtol=1e-15)


def test_constants_are_not_stored():
    """The second number of every record, and the world's."""

    def stores(array):
        def body(x, y, n):
            sums(x, y, n, array((n + 1) * 3))

        return llvm_ir(make(body, X, N, Y), 64, 4).count("store <4 x double>")

    assert stores(bd.records) == stores(bd.memory) - 3 - 2


def test_records_that_are_written_in_turn():
    """Two in a row, of different patterns."""

    def body(x, y, n):
        array = bd.records(2 * n * 2, period=2)
        for i in bd.loop(n):
            array.put(2 * i, (1.0, x[2 * i]))
            array.put(2 * i + 1, (x[2 * i + 1], 3.0))
        for i in bd.loop(n):
            (a, b), (c, d) = array.get(2 * i, 2), array.get(2 * i + 1, 2)
            y[2 * i], y[2 * i + 1] = a + b, c * d

    x, y = np.random.default_rng(1).normal(size=(3, WIDTH)), np.zeros((3, WIDTH))
    launch(make(body, X, N, Y), 3, x=x, y=y, n=WIDTH // 2)
    np.testing.assert_allclose(y[:, ::2], x[:, ::2] + 1.0)
    np.testing.assert_allclose(y[:, 1::2], x[:, 1::2] * 3.0)


def test_records_may_not_be_written_in_a_branch():
    def body(x, y, n):
        array = bd.records(n * 2)
        for i in bd.loop(n):
            for _ in bd.when(i > 1):
                array.put(i, (0.0, x[i]))

    with pytest.raises(TraceError, match="in a branch"):
        llvm_ir(make(body, X, N, Y), 64, 4)


@pytest.mark.parametrize("number", [False, True])
def test_a_constant_of_the_first_pass_only(number):
    """It is read at the start of an outer loop, and is another thing at its end."""

    def body(x, y, n):
        array = bd.records(n)
        for i in bd.loop(n):
            array.put(i, (0.0,))
        for _ in bd.loop(n):
            for i in bd.loop(n):
                y[i] = array.get(i, 1)[0]
            for i in bd.loop(n):
                array.put(i, (1.0 if number else x[i],))

    with pytest.raises(TraceError, match="in the first pass"):
        llvm_ir(make(body, X, N, Y), 64, 4)


WRONG = {
    "a sum over passes": (lambda a, x, n: [a.accumulate(0, (x[i],)) for i in bd.loop(n)], "in the first pass"),
    "an int in a branch": (lambda a, x, n: [a.put(0, (2.0,)) for _ in bd.when(n > 99)], "read after it"),
    "a branch": (lambda a, x, n: [a.put(i + 1, (2.0,)) for _ in bd.when(n > 99) for i in bd.loop(n)], "read after it"),
    "not a constant in a branch": (
        lambda a, x, n: [a.put(i + 1, (x[i],)) for _ in bd.when(n > 99) for i in bd.loop(n)], "read after it"
    ),
    "any index": (lambda a, x, n: [a.put(i % 2, (x[i],)) for i in bd.loop(n)], "variable of the innermost"),
    "an outer loop's index": (
        lambda a, x, n: [a.put(i, (x[j],)) for i in bd.loop(n) for j in bd.loop(n)], "variable of the innermost"
    ),
    "no loop": (lambda a, x, n: a.put(n, (1.0,)), "variable of the innermost"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_wrong_use_is_found_out(what):
    use, message = WRONG[what]

    def body(x, y, n):
        array = bd.records(n + 1)
        array.put(0, (0.0,))
        for i in bd.loop(n):
            array.put(i + 1, (1.0,))
        use(array, x, n)
        first = array.get(0, 1)[0]
        for i in bd.loop(n):
            y[i] = array.get(i + 1, 1)[0] + first

    with pytest.raises(TraceError, match=message):
        llvm_ir(make(body, X, N, Y), 64, 4)
