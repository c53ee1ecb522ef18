"""Allocation of arrays inside a kernel. Called while physics runs on floats, every function returns a list of floats.

workspace   scratch memory in rolled kernels, registers in specialised ones
memory      scratch memory in both: it carries state around rolled loops
records     memory for homogeneous records
carry       a few numbers in registers that a rolled loop carries
counters    integers that all lanes share
"""

from __future__ import annotations

from typing import Any, cast

from .arrays import Array, Floats, Storage
from .graph import Graph, TraceError, Value, current, traced
from .records import Records
from .registers import Registers
from .types import Index, IndexArray, ScalarArray


def workspace(count: Index) -> ScalarArray:
    """An uninitialised array of `count` scalars: floats, registers (specialised kernels) or scratch memory."""
    graph = Graph.current
    if graph is None:
        return _floats(count)
    if (graph.scratch or graph.target.unroll) and not traced(count):
        return Registers(graph, [None] * cast(int, count))
    return memory(count)


def memory(count: Index) -> ScalarArray:
    """An uninitialised array of `count` scalars in scratch memory, which also carries state around rolled loops."""
    return _floats(count) if Graph.current is None else _scratch_memory(count)


def records(count: Index, period: int = 1) -> ScalarArray:
    """Like `memory`, for homogeneous records of which every pass of a loop writes `period`: see `Records`."""
    return _floats(count) if Graph.current is None else Records(_scratch_memory(count), period)


def carry(count: int) -> ScalarArray:
    """A few scalars in registers that a rolled loop carries. Their indices must be Python ints."""
    graph = Graph.current
    if graph is None:
        return _floats(count)
    storage = Storage(f"carry{len(graph.carried)}", "lanes", True)
    graph.carried.append((storage.name, count))
    return Array(storage)


def counters(count: Index) -> IndexArray:
    """Like `memory`, for integers that all lanes share."""
    graph = Graph.current
    if graph is None:
        return _floats(count)
    storage = Storage(f"work{len(graph.allocations)}", "ints", True)
    # Scratch memory is allocated in registers of floats, and one lane of float32 is half as wide as an integer.
    graph.allocations.append((storage.name, size_expression(count * 2)))
    return Array(storage)


def picked(table: Array, stride: int, index: Array) -> Array:
    """The rows of a table of registers that the lanes' indices select: lane l sees row index[l].

    stride: elements of a row, a multiple of the number of lanes. Two picks must not write different values to one row.
    """
    graph = current()
    name = f"{table.storage.name}.pick{len(graph.nodes)}"
    args = (name, table.storage, table.symbol, table.offset, stride, index.storage, index.symbol, index.offset)
    graph.add("pick", args, None, pure=False)
    return Array(Storage(name, "rows", True, padded=True))


def pack_number() -> Value:
    """The number of the pack of environments that the kernel's body computes, counted from 0."""
    return current().add("parameter", ("pack",), "i")


def lane_count() -> int:
    """Environments per SIMD register in the kernel being traced."""
    return current().target.lanes


def size_expression(x: Index) -> Any:
    """A traced integer as nested lists over the names of integer arguments: sizes are known before a kernel starts."""
    if not traced(x):
        return int(cast(int, x))
    op, args, _ = x.node
    if op == "parameter":
        return args[0]
    if op in ("iadd", "isub", "imul"):
        return [op, *map(size_expression, args)]
    raise TraceError(f"the size of a workspace depends on '{op}': only sums and products of integer arguments can")


def _floats(count: Index) -> Floats:
    return Floats([None] * cast(int, count))


def _scratch_memory(count: Index) -> Array:
    graph = current()
    if graph.scratch:
        raise TraceError("memory inside a differentiated function: use a workspace")
    storage = Storage(f"work{len(graph.allocations)}", "lanes", True)
    graph.allocations.append((storage.name, size_expression(count)))
    return Array(storage)
