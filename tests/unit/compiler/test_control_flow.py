"""Loops, branches, subroutines and arrays: compiled, unrolled and on plain floats."""

import multiprocessing
import sys

import numpy as np
import pytest
from kernel_helpers import DTYPES, LANES, launch, llvm_ir, make

from backdrive import ir as bd
from backdrive.backends import Integer, Ints, Number, Rows, Table
from backdrive.ir import Floats, Known, Masked

X, Y, N, M = Rows("x"), Rows("y", writable=True), Integer("n"), Integer("m")
WIDTH = 8


def outputs(body, *arguments, bits=64, lanes=4, batch=5, unroll=False, **values):
    y = np.full((batch, WIDTH), -1.0, DTYPES[bits])
    launch(make(body, *arguments, Y, unroll=unroll), batch, bits, lanes, y=y, **values)
    return y


def on_floats(body, row, **values):
    """The same body on plain floats, for one environment."""
    y = [-1.0] * WIDTH
    body(x=Floats(row.tolist()), y=Floats(y), **values)
    return y


def triangle(x, y, n, m):
    """Nested loops with bounds of their own, forwards and backwards."""
    total = bd.memory(2)
    total.put(0, (0.0, 1.0))
    for i in bd.loop(n):
        for j in bd.loop(i + 1, start=m):
            total[0] = total[0] + bd.to_float(i * 10 + j)
        for j in bd.loop(n, start=i, reverse=True):
            total[1] = total[1] * 0.5 + bd.to_float(j) * x[0]
    y.put(0, (total[0], total[1]))


def order(x, y, n, m):
    at = bd.memory(1)
    at[0] = 1.0
    for i in bd.loop(n, start=m, reverse=True):
        y[i] = at[0]
        at[0] = at[0] + 1.0


def branches(x, y, n, m):
    for _ in bd.when(n > m):
        y[0] = x[0]
        for _ in bd.when(n > m + 2):
            y[1] = 2.0
    for _ in bd.when((n == m) | (n + 1 == m)):
        y[2] = 3.0
    for _ in bd.when((n != 2) & (n <= 4)):
        y[3] = bd.to_float(n % 3)
    y[4] = bd.to_float(n // 2)
    y[5] = bd.select(n > m, x[0], 5.0)
    y[6] = bd.to_float(bd.minimum(n, m))


def leaving(x, y, n, m):
    y[0] = 0.0
    for i in bd.loop(n):
        if bd.leave(i == m):
            break
        y[0] = y[0] + 1.0
        for _ in bd.loop(n):
            y[1] = bd.to_float(i)
            for _ in bd.when(i > 0):
                if bd.leave(i > 1):
                    break
                y[2] = bd.to_float(i)


def switching(x, y, n, m):
    def store(k):
        return lambda array, value: array.__setitem__(k, value)

    bd.switch(n, [store(0), store(1), store(2)], y, x[0])


@pytest.mark.parametrize("body", [triangle, order, branches, switching])
@pytest.mark.parametrize("bits", [64, 32])
def test_run_time_bounds_as_on_floats_and_unrolled(body, bits):
    x = np.linspace(0.5, 2.5, 5).astype(DTYPES[bits])[:, None]
    kernels = {lanes: make(body, X, N, M, Y) for lanes in (1, 8)}
    for n in (0, 1, 2, 5):
        for m in (0, 2, 3):
            if body is switching and n > 2:
                continue
            expected = [on_floats(body, row, n=n, m=m) for row in x]
            static = make(lambda x, y, n=n, m=m: body(x, y, n, m), X, Y, unroll=True)
            for lanes in (1, 8):
                y = np.full((5, WIDTH), -1.0, DTYPES[bits])
                launch(kernels[lanes], 5, bits, lanes, x=x, y=y, n=n, m=m)
                np.testing.assert_allclose(y, expected, rtol=1e-6 if bits == 32 else 1e-14, err_msg=f"{n} {m}")
            unrolled = np.full_like(y, -1.0)
            launch(static, 5, bits, 8, x=x, y=unrolled)
            np.testing.assert_allclose(unrolled, expected, rtol=1e-6 if bits == 32 else 1e-14)


def test_negative_trip_counts_are_none():
    assert (outputs(order, X, N, M, x=np.ones((5, 1)), n=-3, m=0) == -1.0).all()


@pytest.mark.parametrize(("n", "m"), [(0, 0), (4, 2), (4, 9), (3, 0), (1, 1)])
def test_leave(n, m):
    y = outputs(leaving, X, N, M, x=np.ones((5, 1)), n=n, m=m)
    expected = [-1.0] * WIDTH
    expected[0] = float(min(n, m))
    for i in range(min(n, m)):
        expected[1] = float(i)
        if i == 1:
            expected[2] = 1.0
    assert (y == expected).all()


def newton(x, y, limit):
    """Square roots, until every lane has converged."""
    w = bd.memory(2)
    w[0], w[1] = 1.0, 0.0
    for _ in bd.while_any(lambda: bd.absolute(w[0] * w[0] - x[0]) > 1e-9, limit):
        active = bd.absolute(w[0] * w[0] - x[0]) > 1e-9
        w[1] = w[1] + bd.select(active, 1.0, 0.0)
        w[0] = bd.select(active, 0.5 * (w[0] + x[0] / w[0]), w[0])
    y[0], y[1] = w[0], w[1]


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("unroll", [True, False])
def test_while_any(static, unroll):
    """The limit may be a number: the loop is rolled all the same, and leaves itself, not a loop around it."""
    x = np.array([1.0, 2.0, 100.0, 1e4, 4.0])[:, None]
    for limit in (0, 3, 50):
        if static:
            y = outputs(lambda x, y, k=limit: newton(x, y, k), X, x=x, unroll=unroll)
        else:
            y = outputs(lambda x, y, n: newton(x, y, n), X, N, x=x, n=limit, unroll=unroll)
        expected = [on_floats(newton, row, limit=limit) for row in x]
        assert (y[:, :2] == np.array(expected)[:, :2]).all()
    assert len(set(y[:, 1])) > 2  # the lanes needed different numbers of iterations


def test_while_any_inside_a_loop_leaves_only_itself():
    def body(x, y, n):
        w = bd.memory(1)
        for i in bd.loop(n):
            w[0] = x[0]
            for _ in bd.while_any(lambda: w[0] < 3.0, 10):
                w[0] = w[0] + 1.0
            y[i] = w[0]

    assert (outputs(body, X, N, x=np.ones((5, 1)), n=4) == [3.0] * 4 + [-1.0] * 4).all()


def test_while_any_of_what_is_known():
    def body(x, y):
        for _ in bd.while_any(lambda: False, 5):
            y[0] = 1.0
        for _ in bd.while_any(lambda: True, 3):
            y[1] = y[1] + 1.0
        y[2] = 7.0

    y = outputs(body, X, x=np.ones((5, 1)))
    assert (y[:, :3] == [-1.0, 2.0, 7.0]).all()


def test_any_lane_sees_just_its_pack():
    def body(x, y):
        y[0] = 0.0
        for _ in bd.when(bd.any_lane(x[0] > 5.0)):
            y[0] = 1.0
        for _ in bd.when(bd.any_lane(bd.any_lane(x[0] > 5.0))):
            y[1] = 1.0

    x = np.zeros((9, 1))
    x[5] = 9.0
    y = outputs(body, X, x=x, batch=9, lanes=4)
    assert y[:, 0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0]
    assert y[:, 1].tolist() == [-1, -1, -1, -1, 1, 1, 1, 1, -1]


# ---------------------------------------------------------------------------------------------- subroutines


@bd.subroutine("lanes", "table", "ints", "f", "i")
def gather(out, table, index, scale, count):
    for k in bd.loop(count):
        out[k] = table[index[k]] * scale + bd.to_float(k)


@bd.subroutine("lanes", "lanes", "i")
def twice(a, b, count):
    double(a, b, count)
    double(b, a, count)


@bd.subroutine("lanes", "lanes", "i")
def double(a, b, count):
    for k in bd.loop(count):
        b[k] = 2.0 * a[k]


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("bits", [64, 32])
def test_subroutines(lanes, bits):
    def body(x, y, table, index, n, scale):
        w = bd.memory(2 * n + 3)
        w[0] = 100.0
        gather(w.at(1), table.at(1), index, x[0] * scale, n)
        gather(w.at(n + 1), table, index.at(1), 2.0, n)
        twice(w.at(1), w.at(n + 1), 2)
        y[0] = w[0]
        for k in bd.loop(2 * n):
            y[1 + k] = w[1 + k]

    table, index = np.array([10.0, 20.0, 30.0, 40.0, 50.0], DTYPES[bits]), np.array([3, 0, 2, 1])
    x = np.array([1.0, 2.0, 3.0, 4.0, 5.0], DTYPES[bits])[:, None]
    values = {"x": x, "table": table, "index": index, "n": 3, "scale": 0.5}
    arguments = X, Table("table"), Ints("index"), N, Number("scale")
    kernel = make(body, *arguments, Y)
    y = np.full((5, WIDTH), -1.0, DTYPES[bits])
    launch(kernel, 5, bits, lanes, y=y, **values)
    expected = []
    for (a,) in x.tolist():
        first = [v * a * 0.5 + k for k, v in enumerate([50.0, 20.0, 40.0])]
        second = [v * 2.0 + k for k, v in enumerate([10.0, 30.0, 20.0])]
        second[:2] = [2 * first[0], 2 * first[1]]
        first[:2] = [2 * second[0], 2 * second[1]]
        expected.append([100.0, *first, *second, -1.0])
    assert (y == expected).all()
    text = llvm_ir(kernel, bits, lanes)
    assert text.count("define internal void @gather") == 1 and text.count("call void @gather") == 2


# ---------------------------------------------------------------------------------------------- arrays


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_dynamic_indices_and_workspaces_that_do_not_overlap(lanes):
    def body(x, y, index, n):
        a, b, c = bd.workspace(n), bd.workspace(3), bd.memory(2 * n)
        for k in bd.loop(n):
            a[index[k]] = bd.to_float(k)
            c[k + n] = 7.0
            c[k] = 8.0
        for k in bd.loop(3):
            b[k] = 9.0
        a.accumulate(n - 1, (x[0],))
        for k in bd.loop(n):
            y[k] = a[k]
        y[4] = b[2]
        y[5] = c[n]
        y[6] = c.at(n - 1)[0]

    index = np.array([2, 0, 3, 1])
    y = outputs(body, X, Ints("index"), N, x=np.full((5, 1), 0.5), index=index, n=4, lanes=lanes)
    assert (y == [1.0, 3.0, 0.0, 2.5, 9.0, 7.0, 8.0, -1.0]).all()


def test_known_tables():
    numbers = np.array([1.0, 0.0, 3.0, 4.0])
    varying = np.array([False, True, False, True])

    def body(x, y, table):
        known = Known(numbers)
        y.put(0, [known[k] * x[0] for k in range(4)])
        mixed = Known(numbers, varying, table).at(1)
        y.put(1, [mixed[k] * x[0] for k in range(-1, 3)])
        assert [bd.traced(mixed[k]) for k in range(-1, 3)] == varying.tolist()

    table = np.array([91.0, 92.0, 93.0, 94.0])
    y = outputs(body, X, Table("table"), x=np.full((5, 1), 2.0), table=table)
    assert (y == [2.0, 0.0, 6.0, 8.0, 2.0, 184.0, 6.0, 188.0]).all()
    kernel = make(lambda x, y: y.put(0, Known(numbers).get(0, 4)), X, Y)
    assert "load" not in llvm_ir(kernel, 64, 1)


def test_masked_arrays():
    def body(x, y):
        masked = Masked(y, np.array([True, False, True, False])).at(1)
        masked[-1] = x[0]
        masked[0] = x[0]
        masked[1] = masked[0] + masked[1] + 2.0

    assert (outputs(body, X, x=np.full((5, 1), 3.0))[:, :4] == [3.0, -1.0, 1.0, -1.0]).all()


@pytest.mark.parametrize("bits", [64, 32])
def test_rows_of_times_and_rows_that_all_share(bits):
    """[T, B, n] with gaps between rows; an input of stride 0."""

    def body(x, shared, y, n):
        for t in bd.loop(n, reverse=True):
            now = y.row(t)
            for k in range(2):
                now[k] = x.row(t)[k] * shared[k] + bd.to_float(t)
            y.row(n)[0] = now[0]

    kernel = make(body, X, Rows("shared"), Y, N)
    rng = np.random.default_rng(0)
    for batch in (1, 5, 8):
        x = rng.integers(0, 9, (3, batch, 5)).astype(DTYPES[bits])[:, :, 1:3]
        shared = np.broadcast_to(np.array([2.0, 3.0], DTYPES[bits]), (batch, 2))
        y = np.full((4, batch + 2, 3), -1.0, DTYPES[bits])
        launch(kernel, batch, bits, 4, threads=2, x=x, shared=shared, y=y, n=3)
        expected = np.full_like(y, -1.0)
        expected[:3, :batch, :2] = x * [2.0, 3.0] + np.arange(3)[:, None, None]
        expected[3, :batch, 0] = expected[0, :batch, 0]
        assert (y == expected).all()


@pytest.mark.parametrize("bits", [64, 32])
@pytest.mark.parametrize("lanes", LANES)
def test_nothing_beyond_the_batch_is_written(bits, lanes):
    def body(x, y):
        y[0] = y[0] + x[0]
        y[1] = y[1] + y[0]

    kernel = make(body, X, Y)
    for batch in (1, 2, 3, 7, 9, 17):
        x = np.arange(1.0, batch + 1, dtype=DTYPES[bits])[:, None]
        y = np.full((batch + 40, 2), 5.0, DTYPES[bits])
        launch(kernel, batch, bits, lanes, threads=1 + batch % 2, x=x, y=y[20:])
        expected = np.full_like(y, 5.0)
        expected[20 : 20 + batch] += np.concatenate([x, x + 5.0], 1)
        assert (y == expected).all()


def _between_guard_pages(batch, lanes):
    """Rows that end where memory ends (to read beyond is fatal), and rows that begin where it does."""
    import ctypes
    import mmap

    page = mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    arrays = []
    for width, at_end in ((3, True), (2, True), (3, False), (2, False)):
        area = mmap.mmap(-1, 3 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(area))
        for guard in (start, start + 2 * page):
            assert libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), 0) == 0
        size = batch * width * 8
        offset = 2 * page - size if at_end else page
        arrays.append(np.frombuffer(area, np.float64, batch * width, offset).reshape(batch, width))
    kernel = make(lambda x, y: y.put(0, (x[0] + x[2], x[1])), X, Y)
    for x, y in (arrays[:2], arrays[2:]):
        x[:] = np.arange(batch * 3).reshape(batch, 3)
        launch(kernel, batch, 64, lanes, x=x, y=y)
        assert (y == np.stack([x[:, 0] + x[:, 2], x[:, 1]], 1)).all()


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect")
def test_nothing_beyond_the_rows_is_touched():
    for batch, lanes in ((1, 4), (3, 4), (5, 8), (17, 16), (9, 2), (1, 16)):
        child = multiprocessing.get_context("fork").Process(target=_between_guard_pages, args=(batch, lanes))
        child.start()
        child.join(30)
        assert child.exitcode == 0


@pytest.mark.parametrize("batch", [1, 2, 3, 8, 9, 21])
@pytest.mark.parametrize("lanes", LANES)
def test_packs_that_are_taken_apart(batch, lanes):
    """Lanes make as many passes as the one that wants most; if these are too many, each makes its own."""

    def body(x, y, n):
        passes = bd.memory(1)
        passes[0] = 0.0
        for k in bd.interruptible(bd.loop(n)):
            for _ in bd.when(bd.any_lane(bd.to_float(k) < x[0])):
                passes[0] = passes[0] + 1.0
            bd.take_apart(passes[0] > 5.0)
        y[0] = passes[0]

    x = np.array([[4.0], [1.0], [5.0], [3.0], [2.0], [7.0], [6.0]] * 3)[:batch]
    packs = [x[k : k + lanes] for k in range(0, batch, lanes)]
    right = [pack if pack.max() > 5.0 else np.full_like(pack, pack.max()) for pack in packs]
    y = outputs(body, X, N, lanes=lanes, batch=batch, x=x, n=9)
    np.testing.assert_array_equal(y[:, :1], np.concatenate(right))
