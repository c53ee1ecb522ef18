"""The graph: folding, sharing, dead code, and the errors of code that cannot be traced."""

import sys
import threading

import numpy as np
import pytest
from kernel_helpers import compute, from_function, launch, llvm_ir, make

from backdrive import ir as bd
from backdrive.backends import Integer, Ints, Number, Rows, Table
from backdrive.ir import Known, TraceError
from backdrive.ir.arrays import Storage
from backdrive.ir.fuse import live_nodes
from backdrive.ir.graph import Graph


@pytest.fixture
def graph():
    class Target:
        bits, lanes, unroll = 64, 4, False

    with Graph(Target()) as graph:
        yield graph


def number(graph, name="x"):
    return graph.add("parameter", (name,), "f")


def integer(graph, name="n"):
    return graph.add("parameter", (name,), "i")


def trace(body, *arguments, unroll=False):
    return llvm_ir(make(body, *arguments, unroll=unroll), 64, 4)


X, Y, N = Rows("x"), Rows("y", writable=True), Integer("n")


# ------------------------------------------------------------------------------------------------- folding


def test_neutral_elements(graph):
    x = number(graph)
    for folded in (
        x + 0.0,
        0 + x,
        x - 0.0,
        1.0 * x,
        x * 1,
        x / 1.0,
        -1.0 * (x * -1.0),
        0.0 - (-x),
        -1.0 * -x,
    ):
        assert folded is x
    for zero in (x * 0.0, 0 * x, 0.0 / x, x - x):
        assert not bd.traced(zero) and zero == 0.0
    assert x * (1.0 / x) == 1.0 and (1.0 / x) * x == 1.0
    assert [node.op for node in graph.nodes] == ["parameter", "neg", "div"]


def test_signs_move_outwards(graph):
    x, y = number(graph, "x"), number(graph, "y")
    assert x + -y is x - y
    assert -y + x is x - y
    assert x - -y is x + y
    assert -x * y is -(x * y)
    assert x * -y is -(x * y)
    assert -x * -y is x * y
    assert -1.0 * x is -x


def test_comparisons_and_logic(graph):
    x, y = number(graph, "x"), number(graph, "y")
    assert (x == x) is True and (x <= x) is True and (x < x) is False and (x != x) is False
    inf = float("inf")
    assert (x < -inf) is False and (x > inf) is False  # no limit: nothing is made
    mask = x < y
    assert (y > x) is mask and ~~mask is mask
    assert (mask & True) is mask and (True & mask) is mask and (mask & False) is False
    assert (mask | False) is mask and (mask | True) is True
    assert (mask & (x < 0.0)) is ((x < 0.0) & mask)
    assert bd.select(mask, x, x) is x and bd.select(True, x, y) is x and bd.select(False, x, y) is y
    assert bd.clip(x, -inf, inf) is x
    assert bd.minimum(x, x) is x and bd.maximum(x, x) is x


def test_integers_keep_static_offsets_static(graph):
    i = integer(graph)
    assert (i + 1) + 2 is i + 3
    assert (i + 3) - 3 is i
    assert 1 + i is i + 1
    assert i - i == 0 and i * 1 is i and i * 0 == 0
    assert (2 * i) is (i * 2)


def test_sharing(graph):
    x, y = number(graph, "x"), number(graph, "y")
    before = len(graph.nodes)
    assert x * y + 1.0 is 1.0 + y * x
    assert bd.sqrt(x) is bd.sqrt(x)
    assert bd.sin(x) is bd.sincos(x)[0]
    assert x - y is not y - x and x / y is not y / x
    assert bd.minimum(x, y) is not bd.minimum(y, x)  # which one is NaN matters
    assert len({node[:2] for node in map(_printable, graph.nodes)}) == len(graph.nodes) > before


def _printable(node):
    return node.op, tuple(("#", a.index) if bd.traced(a) else a for a in node.args)


def test_nothing_is_shared_out_of_a_closed_region():
    def body(x, y, n):
        a = x[0]
        for _ in bd.when(n > 0):
            y[0] = a * a
        y[1] = a * a  # made again: the branch may not have run
        for _ in bd.when(n > 1):
            y[2] = a * a  # shared with the one before

    kernel = make(body, X, Y, N)
    assert llvm_ir(kernel, 64, 1).count("fmul") == 2
    for n, expected in ((0, [7, 9, 7]), (1, [9, 9, 7]), (2, [9, 9, 9])):
        y = np.full((3, 3), 7.0)
        launch(kernel, 3, x=np.full((3, 1), 3.0), y=y, n=n)
        assert (y == expected).all()


def test_dead_code_is_not_emitted():
    def body(x, y):
        bd.sin(x[0]) * bd.sqrt(x[1])
        y[0] = x[2] + 1.0

    text = trace(body, X, Y)
    assert "sqrt" not in text and "fmul" not in text and text.count("fadd") == 1


def test_live_nodes_are_what_a_store_needs(graph):
    x, y = number(graph, "x"), number(graph, "y")
    used, unused = x + 1.0, y * 2.0
    graph.add("store", (Storage("a", "lanes", True), None, 0, used), None, pure=False)
    live = live_nodes(graph)
    assert live[x.index] and live[used.index] and not live[y.index] and not live[unused.index]


# ------------------------------------------------------------------------------------------------- memory


def test_memory_that_nothing_reads_is_not_written():
    def body(x, y, n):
        read, copied, unread = (bd.memory(8) for _ in range(3))
        for i in bd.loop(n):
            read[i] = x[0] + 1.0
            copied[i] = bd.sqrt(x[1])
        for i in bd.loop(n):
            unread[i] = copied[i] * 3.0  # the only one that reads `copied`, and nothing reads it
        y[0] = read[n - 1]

    text = trace(body, X, Y, N)
    assert "fadd" in text and "sqrt" not in text and "fmul" not in text


def test_known_memory_is_not_read_again():
    def body(x, y):
        y[0] = x[0]
        y[0] = y[0] + y[0]  # both known
        y[1] = y[1] + 1.0  # one read

    text = trace(body, Rows("x"), Y)
    assert text.count("load double") == 4 * 2


def test_stores_through_another_index_may_alias():
    def body(y, n, k):
        y[0] = 1.0
        y.at(n)[0] = 2.0
        y[1] = y[0]
        y.at(n)[2] = 5.0
        y.at(k)[2] = 6.0
        y[3] = y.at(n)[2]

    kernel = make(body, Y, N, Integer("k"))
    for n in (0, 1):
        for k in (0, 1):
            y = np.zeros((5, 4))
            launch(kernel, 5, y=y, n=n, k=k)
            z = [0.0] * 8
            z[0] = 1.0
            z[n] = 2.0
            z[1] = z[0]
            z[n + 2] = 5.0
            z[k + 2] = 6.0
            z[3] = z[n + 2]
            assert (y == z[:4]).all(), (n, k)


# ------------------------------------------------------------------------------------------------- errors


def _leak(x, y, n):
    for i in bd.loop(n):
        a = x[0] * bd.to_float(i)
    y[0] = a


def _leak_index(x, y, n):
    for i in bd.loop(n):
        y[i] = 2.0
    y[i] = 1.0


def _leak_condition(x, y, n):
    for _ in bd.when(n > 0):
        mask = x[0] < 1.0
    y[0] = bd.select(mask, 1.0, 0.0)


def _leave_unrolled(x, y, n):
    for _ in bd.loop(n):
        for _ in bd.loop(3):
            if bd.leave(n > 1):
                break


def _break(x, y, n):
    for i in bd.loop(n):
        y[i] = 1.0
        break


def _return_in_branch(x, y, n):
    for _ in bd.when(n > 1):
        return


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_leak, "after it"),
        (_leak_index, "after it"),
        (_leak_condition, "after it"),
        (_leave_unrolled, "unrolled"),
        (lambda x, y, n: bd.leave(n > 1), "there is none"),
        (_break, "left by break or return"),
        (_return_in_branch, "left by break or return"),
        (lambda x, y, n: 1.0 if x[0] > 0.0 else 2.0, "branches on a traced value"),
        (lambda x, y, n: [1.0 for k in range(3) if n == k], "branches on a traced value"),
        (lambda x, y, n: max(x[0], x[1]), "branches on a traced value"),
        (lambda x, y, n: x.__setitem__(0, 1.0), "read-only array 'x'"),
        (lambda x, y, n: y.__setitem__(0, n), "holds floats"),
        (lambda x, y, n: y.__setitem__(0, x[0] < 1.0), "holds floats"),
        (lambda x, y, n: n * 2.5, "use to_float"),
        (lambda x, y, n: 0.1 + n, "use to_float"),
        (lambda x, y, n: n - 0.5, "use to_float"),
        (lambda x, y, n: n < 2.5, "use to_float"),
        (lambda x, y, n: n * x[0], "use to_float"),
        (lambda x, y, n: n // 2.5, "use to_float"),
        (lambda x, y, n: x[0] // 2, "use to_float"),
        (lambda x, y, n: n / 2, "use // or to_float"),
        (lambda x, y, n: bd.minimum(n, 2.5), "use to_float"),
        (lambda x, y, n: bd.maximum(n, 2), "maximum"),
        (lambda x, y, n: (n > 1) & (x[0] > 1.0), "a lane mask and a uniform condition"),
        (lambda x, y, n: next(bd.when(x[0] > 1.0)), "lanes branch together"),
        (lambda x, y, n: bd.memory(n // 2), "size of a workspace depends on 'idiv'"),
    ],
)
def test_errors(body, message):
    with pytest.raises(TraceError, match=message):
        trace(body, X, Y, N)
    assert Graph.current is None


def test_errors_of_unrolled_workspaces():
    def read_first(x, y, n):
        y[0] = bd.workspace(2)[1]

    def out_of_branch(x, y, n):
        w = bd.workspace(1)
        w[0] = 1.0
        for _ in bd.when(n > 0):
            w[0] = 2.0  # a constant: no traced value shows that the branch may not have run
        y[0] = w[0]

    def around_loop(x, y, n):
        w = bd.workspace(1)
        w[0] = 0.0
        for i in bd.loop(n):
            w[0] = w[0] + 1.0
            y[i] = w[0]

    def around_outer_loop(x, y, n):
        w = bd.workspace(1)
        w[0] = 0.0
        for _ in bd.loop(n):
            for _ in bd.when(n > 2):
                y[0] = w[0]
            for _ in bd.loop(n):
                w[0] = x[0]

    def index(x, y, n):
        bd.workspace(2)[n] = 1.0

    for body, message in [
        (read_first, "read before it is written"),
        (out_of_branch, r"use memory\(\)"),
        (around_loop, "carried around a rolled loop"),
        (around_outer_loop, "carried around a rolled loop"),
        (index, "indexed by a traced integer"),
    ]:
        with pytest.raises(TraceError, match=message):
            trace(body, X, Y, N, unroll=True)
    for body in (out_of_branch, around_loop, around_outer_loop):
        trace(body, X, Y, N)  # fine in memory


def test_unrolled_workspace_inside_a_rolled_loop():
    def body(x, y, n):
        w = bd.workspace(2)
        w[0] = x[0]
        for i in bd.loop(n):
            w[1] = w[0] * bd.to_float(i)
            for _ in bd.when(i > 1):
                w[1] = w[1] + 10.0
                y[i] = w[1]
            w[1] = w[0] + 1.0
            y[0] = w[1]

    y = np.zeros((3, 4))
    launch(make(body, X, Y, N, unroll=True), 3, x=np.full((3, 1), 2.0), y=y, n=4)
    assert (y == [3.0, 0.0, 14.0, 16.0]).all()


def test_wrong_arguments_of_subroutines():
    @bd.subroutine("lanes", "table", "ints", "f", "i")
    def work(a, t, k, x, i):
        a[0] = t[0] + x

    def calls(*change):
        def body(x, y, t, k, n):
            good = [bd.memory(2), t, k, 1.0, n]
            for place, wrong in change:
                good[place] = wrong(x, y, t, k, n)
            work(*good)

        return trace(body, X, Y, Table("t"), Ints("k"), N)

    calls()
    calls((3, lambda *a: 2))
    for place, wrong in [
        (0, lambda x, y, t, k, n: y),
        (0, lambda x, y, t, k, n: t),
        (0, lambda x, y, t, k, n: 1.0),
        (0, lambda x, y, t, k, n: Known(np.zeros(3))),
        (1, lambda x, y, t, k, n: k),
        (2, lambda x, y, t, k, n: x),
        (3, lambda x, y, t, k, n: n),
        (3, lambda x, y, t, k, n: t),
        (4, lambda x, y, t, k, n: x[0]),
        (4, lambda x, y, t, k, n: 1.5),
    ]:
        with pytest.raises(TraceError, match="expects an argument of kind"):
            calls((place, wrong))
    with pytest.raises(TraceError, match="takes 5 arguments, got 2"):
        trace(lambda x: work(x, x), X)


def test_subroutines_have_no_workspaces_take_no_pack_apart_and_capture_no_values():
    @bd.subroutine("lanes")
    def allocates(a):
        a[0] = bd.memory(1)[0]

    with pytest.raises(TraceError, match="allocates"):
        trace(lambda y: allocates(bd.memory(1)), Y)

    @bd.subroutine("lanes")
    def gives_up(a):
        bd.take_apart(a[0] > 1.0)

    with pytest.raises(TraceError, match="gives_up takes a pack apart"):
        trace(lambda y: gives_up(bd.memory(1)), Y)

    def body(x, y):
        secret = x[0] * 2.0

        @bd.subroutine("lanes")
        def captures(a):
            a[0] = secret + 1.0

        captures(bd.memory(1))

    with pytest.raises(TraceError, match="another trace"):
        trace(body, X, Y)


def test_errors_inside_differentiated_functions():
    def differentiate(function):
        return trace(lambda x, y, n: bd.vjp(lambda a: function(a, x, y, n), [x[0]], [1.0]), X, Y, N)

    def store(a, x, y, n):
        y[0] = a
        return [a]

    def branch(a, x, y, n):
        for _ in bd.when(n > 1):
            a = a + 1.0
        return [a]

    def rolled(a, x, y, n):
        for _ in bd.loop(n):
            a = a * a
        return [a]

    for function, message in [
        (lambda a, x, y, n: [a * x[1]], "memory read"),
        (store, "memory written"),
        (branch, "a loop or branch"),
        (rolled, "a loop or branch"),
        (lambda a, x, y, n: [bd.memory(1)], "memory inside"),
        (lambda a, x, y, n: [a, a], "2 outputs but 1 seeds"),
    ]:
        with pytest.raises(TraceError, match=message):
            differentiate(function)
    assert Graph.current is None


def test_values_outside_of_a_trace():
    with Graph() as graph:
        x = number(graph)
    with pytest.raises(TraceError, match="outside of a trace"):
        x + 1.0


def test_threads_trace_at_once():
    """Each with its own graph, while others run the same functions on floats."""
    results, barrier = {}, threading.Barrier(4)

    def work(n):
        barrier.wait()
        for k in range(5):
            kernel = from_function(lambda x, k=k: [_power(x[0], n + k) + bd.vjp(_square, [x[1]], [1.0])[1][0]])
            results[n, k] = compute(kernel, [[1.5, 2.0]], 1)[0, 0]
            w = bd.workspace(1)
            w[0] = 3.0
            assert w[0] == 3.0 and bd.vjp(_square, [2.0], [1.0]) == ([4.0], [4.0])

    threads = [threading.Thread(target=work, args=(n,)) for n in (2, 3, 5, 7)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(results) == 20
    for (n, k), value in results.items():
        assert value == pytest.approx(1.5 ** (n + k) + 4.0, rel=1e-14)


def _power(x, n):
    w = bd.workspace(1)
    w[0] = 1.0
    for _ in bd.loop(n):
        w[0] = w[0] * x
    return w[0]


def _square(x):
    return [x * x]


def test_numbers_are_rounded_to_the_floats_of_the_kernel():
    kernel = make(lambda y, a: y.put(0, (a, a + 0.1, 0.1)), Y, Number("a"))
    y = np.zeros((3, 3), np.float32)
    launch(kernel, 3, bits=32, y=y, a=0.3)
    a, b = np.float32(0.3), np.float32(0.1)
    assert (y == [a, a + b, b]).all()
