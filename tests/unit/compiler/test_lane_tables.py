"""Arguments for lanes that are items of one world: rows picked by an index, registers of the caller, rows by lane."""

import numpy as np
import pytest
from kernel_helpers import DTYPES, make

from backdrive.backends import Ints, Order, Packs, Picked, Rows, run
from backdrive.ir import lane_count, loop, pack_number, picked, to_float
from backdrive.piles.memory import Memory

CASES = [(64, 1), (64, 2), (64, 4), (64, 8), (32, 4), (32, 16)]


@pytest.mark.parametrize(("bits", "lanes"), CASES)
@pytest.mark.parametrize("width", [1, 3, 8, 19])
def test_picked_rows_are_those_of_the_index(bits, lanes, width):
    def body(table, out):
        for k in range(width):
            out[k] = 2.0 * table[k]

    random, dtype = np.random.default_rng(0), DTYPES[bits]
    table, index = random.normal(size=(7, width + 2)).astype(dtype), random.integers(0, 7, size=21)
    out = np.zeros((21, width), dtype)
    executable = make(body, Picked("table"), Rows("out", writable=True)).build(bits, lanes)
    values = {"table": (table.ctypes.data, width + 2, index.ctypes.data), "out": (out.ctypes.data, width, 0)}
    run(executable, 21, 2, values)
    assert np.array_equal(out, 2 * table[index, :width])


@pytest.mark.parametrize(("bits", "lanes"), CASES)
@pytest.mark.parametrize("ordered", [True, False])
def test_environments_are_packed_in_the_order_given(bits, lanes, ordered):
    """They keep their rows, and the number of their pack is that of their place."""

    def body(x, y, order):
        y[0], y[1] = 2.0 * x[0], to_float(pack_number())

    random, dtype = np.random.default_rng(3), DTYPES[bits]
    x, y, order = random.normal(size=(21, 1)).astype(dtype), np.zeros((21, 2), dtype), random.permutation(21)
    executable = make(body, Rows("x"), Rows("y", writable=True), Order("order")).build(bits, lanes)
    values = {"x": (x.ctypes.data, 1, 0), "y": (y.ctypes.data, 2, 0), "order": order.ctypes.data if ordered else 0}
    run(executable, 21, 2, values)
    assert np.array_equal(y[:, 0], 2 * x[:, 0])
    assert np.array_equal(y[order, 1] if ordered else y[:, 1], np.arange(21) // lanes)


@pytest.mark.parametrize(("bits", "lanes"), CASES)
def test_packs_are_registers_of_the_caller(bits, lanes):
    """Rows go to registers [pack, element, lane], whole ones."""

    def body(x, packs):
        packs.put(pack_number(), [x[0], x[0] + x[1], x[2]])

    dtype = DTYPES[bits]
    x = np.random.default_rng(1).normal(size=(3 * lanes, 3)).astype(dtype)
    packs = Memory(dtype).zeros("packs", 3, 3, lanes)
    executable = make(body, Rows("x"), Packs("packs", writable=True)).build(bits, lanes)
    run(executable, 3 * lanes, 1, {"x": (x.ctypes.data, 3, 0), "packs": packs.ctypes.data})
    expected = np.stack([x[:, 0], x[:, 0] + x[:, 1], x[:, 2]], 1).reshape(3, lanes, 3).transpose(0, 2, 1)
    assert np.array_equal(packs, expected)


@pytest.mark.parametrize(("bits", "lanes"), CASES)
@pytest.mark.parametrize("width", [3, 6])
def test_lanes_read_and_write_rows_of_their_own(bits, lanes, width):
    """Each group of lanes doubles other rows, and adds up what it finds; the rest of a padded row is overwritten."""
    stride = -(-width // lanes) * lanes
    groups = 3

    def body(table, index, sums):
        for g in loop(index[0]):
            row = picked(table, stride, index.at(1 + g * lane_count()))
            numbers = row.get(0, width)
            row.put(0, [2.0 * x for x in numbers])
            sums[g] = sum(numbers[1:], numbers[0])

    dtype, memory, random = DTYPES[bits], Memory(DTYPES[bits]), np.random.default_rng(2)
    table, sums = memory.zeros("table", groups * lanes + 5, stride), memory.zeros("sums", groups, lanes)
    table[:, :width] = random.integers(-9, 9, size=(len(table), width))
    before, chosen = table.copy(), random.permutation(len(table))[: groups * lanes]
    index = np.concatenate([[groups], chosen]).astype(np.int64)
    kernel = make(body, Packs("table", writable=True), Ints("index"), Packs("sums", writable=True))
    values = {"table": table.ctypes.data, "index": index.ctypes.data, "sums": sums.ctypes.data}
    run(kernel.build(bits, lanes), 1, 1, values)
    expected = before.copy()
    expected[chosen] *= 2
    assert np.array_equal(table[:, :width], expected[:, :width])
    assert np.array_equal(sums.ravel(), before[chosen, :width].sum(1).astype(dtype))


def test_integers_can_be_written():
    def body(counts, out):
        for k in loop(counts[0]):
            out[k] = counts[k] * 3 + k

    counts, out = np.array([4, 5, 6, 7]), np.zeros(4, np.int64)
    executable = make(body, Ints("counts"), Ints("out", writable=True)).build()
    run(executable, 1, 1, {"counts": counts.ctypes.data, "out": out.ctypes.data})
    assert out.tolist() == [12, 16, 20, 24]
