"""Arrays that kernels read and write. Physics code only sees ``a[k]``, ``a[k] = x`` and views.

    lanes   workspace: one SIMD register an element, private to a pack of environments
    rows    the caller's tensors: each environment has its own row; element k of every lane's row is one value
    table   floats that all environments share, broadcast when loaded
    ints    integers that all environments share (topology)

An index is a Python int (static) or a traced integer. Two arrays never overlap; within one array, a store through
one symbolic offset may alias every other. `Registers`, `Records` and `Known` are arrays that exist only while tracing,
as a whole or in part: an unrolled kernel has no workspace at all, and reads the model as constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .graph import Graph, Region, TraceError, Value, add, argument_of, current, traced
from .types import IndexArray, Scalar, ScalarArray


@dataclass(frozen=True)
class Storage:
    """What the emitter must know of an array."""

    name: str
    kind: str  # lanes, rows, table or ints
    writable: bool
    padded: bool = False  # rows may be read, and their ends overwritten, up to a multiple of the lanes


class Indexed:
    """Views by records: element i of an array of records of `width` numbers."""

    def get(self, i: Any, width: int) -> tuple[Scalar, ...]:
        view = self.at(i * width)
        return tuple(view[k] for k in range(width))

    def put(self, i: Any, values: Sequence[Scalar]) -> None:
        view = self.at(i * len(values))
        for k, x in enumerate(values):
            view[k] = x

    def accumulate(self, i: Any, values: Sequence[Scalar]) -> None:
        view = self.at(i * len(values))
        for k, x in enumerate(values):
            view[k] = view[k] + x

    def prefetch(self, count: Any) -> None:
        """The first `count` elements will be used soon: rows are brought near; for other arrays nothing is to do."""

    def at(self, k: Any) -> Any:
        raise NotImplementedError

    def __getitem__(self, k: Any) -> Any:
        raise NotImplementedError

    def __setitem__(self, k: Any, x: Any) -> None:
        raise NotImplementedError


class Array(Indexed):
    """Memory of a kernel: a storage, and an offset with a symbolic and a static part."""

    def __init__(self, storage: Storage, step: Any = None, symbol: Value | None = None, offset: int = 0) -> None:
        self.storage, self.step, self.symbol, self.offset = storage, step, symbol, offset

    def at(self, k: Any) -> Array:
        """The view that starts at element k."""
        if not traced(k):
            return Array(self.storage, self.step, self.symbol, self.offset + k)
        static = 0
        if (x := argument_of(k, "iadd")) is not None and not traced(x[1]):
            k, static = x
        symbol = k if self.symbol is None else add(self.symbol, k)
        return Array(self.storage, self.step, symbol, self.offset + static)

    def row(self, t: Any) -> Array:
        """The rows of time t (of arrays of kind rows)."""
        return self.at(self.step * t)

    def prefetch(self, count: Any) -> None:
        if self.storage.kind == "rows" and not traced(count):
            current().add("prefetch", (self.storage, self.symbol, self.offset, count), None, pure=False)

    def _key(self) -> tuple:
        return (self.storage.name, None if self.symbol is None else self.symbol.index, self.offset)

    def __getitem__(self, k: Any) -> Value:
        graph, view = current(), self.at(k)
        if graph.scratch:
            raise TraceError("memory read inside a differentiated function: read before, and pass the value in")
        args = (self.storage, view.symbol, view.offset)
        type = "i" if self.storage.kind == "ints" else "f"
        if not self.storage.writable:
            return graph.add("load", args, type)
        key = view._key()
        if key not in graph.stored:
            graph.stored[key] = graph.add("load", args, type, pure=False)
        return graph.stored[key]

    def __setitem__(self, k: Any, x: Scalar) -> None:
        graph, view = current(), self.at(k)
        if graph.scratch:
            raise TraceError("memory written inside a differentiated function: return the value")
        kind = "i" if self.storage.kind == "ints" else "f"
        if traced(x) and x.type != kind:
            holds = "floats: use to_float() or select()" if kind == "f" else "integers"
            raise TraceError(f"array '{self.storage.name}' holds {holds}")
        if not self.storage.writable:
            raise TraceError(f"store to read-only array '{self.storage.name}'")
        key = view._key()
        for other in [o for o in graph.stored if o[0] == key[0] and o[1] != key[1]]:
            del graph.stored[other]  # may alias
        graph.stored[key] = x
        graph.add("store", (self.storage, view.symbol, view.offset, x), None, pure=False)


class Registers(Indexed):
    """A workspace of an unrolled kernel: names for values, no memory.

    A name cannot carry a value around a rolled loop, or out of a loop or branch: `memory` can. An element is None, or
    (value, region in which it was written, outermost rolled loop around a read of it since).
    """

    def __init__(self, graph: Graph, elements: list, offset: int = 0) -> None:
        self.graph, self.elements, self.offset = graph, elements, offset

    def at(self, k: int) -> Registers:
        return Registers(self.graph, self.elements, self._place(k))

    def _place(self, k: int) -> int:
        if traced(k):
            raise TraceError("an unrolled workspace is indexed by a traced integer")
        return self.offset + k

    def __getitem__(self, k: int) -> Scalar:
        k, regions = self._place(k), self.graph.regions
        if (element := self.elements[k]) is None:
            raise TraceError(f"workspace element {k} is read before it is written")
        x, region, reader = element
        if region is not regions[-1]:
            if not region.open:
                raise TraceError(f"workspace element {k} is written in a loop or branch, read after it: use memory()")
            if reader is None or not reader.open:
                reader = next((r for r in regions[regions.index(region) + 1 :] if r.loop), None)
                self.elements[k] = (x, region, reader)
        return x

    def __setitem__(self, k: int, x: Scalar) -> None:
        k = self._place(k)
        if (old := self.elements[k]) is not None and old[2] is not None and old[2].open:
            raise TraceError(f"workspace element {k} is carried around a rolled loop: use memory()")
        self.elements[k] = (x, self.graph.regions[-1], None)


class Records(Indexed):
    """Records that are alike: each is written by a pass of a loop of its own, all by the same code. So a number that is
    a constant in one is the same in all: it is known, and not stored.

    period: how many records in a row a pass writes, which may differ from each other. A record that is given by an int
    stands for itself, and is not among those that loops write. A loop over them goes over all.
    """

    def __init__(self, array: Array, period: int = 1) -> None:
        self.array, self.period = array, period
        self.numbers: dict[tuple, Written] = {}

    def _place(self, i: Any, loops: list[Region]) -> Any:
        """Which of the records of a pass it is; or the one that an int stands for."""
        if not traced(i):
            return "own", i
        static, variable = 0, i
        if (x := argument_of(i, "iadd")) is not None and not traced(x[1]):
            variable, static = x
        for op in ("imul", "isub"):  # 3 i; n - i
            if (x := argument_of(variable, op)) is not None:
                variable = x[1]
        if not loops or not traced(variable) or variable.node.op != "for" or variable.region is not loops[-1]:
            raise TraceError("records that are alike are for the innermost loop's own variable")
        return static % self.period

    def get(self, i: Any, width: int) -> tuple[Scalar, ...]:
        loops = _open(loop=True)
        place, view, outer = self._place(i, loops), self.array.at(i * width), loops[:-1] if traced(i) else loops
        result = []
        for k in range(width):
            written = self.numbers.get((place, k))
            if written is not None and written.mixed and not all(region.open for region in written.branches):
                raise TraceError(f"number {k} of records that are alike is written in a branch, and read after it")
            if written is None or written.number is None:
                result.append(view[k])
                continue
            around = [region for region in outer if region not in written.loops]
            if written.reader is None or not written.reader.open:
                written.reader = around[0] if around else None
            result.append(written.number)
        return tuple(result)

    def put(self, i: Any, values: Sequence[Scalar]) -> None:
        loops, branches = _open(loop=True), _open(loop=False)
        place, view, outer = self._place(i, loops), self.array.at(i * len(values)), loops[:-1] if traced(i) else loops
        if traced(i) and current().regions[-1] is not loops[-1]:
            raise TraceError("records that are alike are written in a branch, which may leave some of them out")
        for k, x in enumerate(values):
            old, number = self.numbers.get((place, k)), None if traced(x) else x
            if old is not None and old.reader is not None and old.reader.open and old.number != number:
                raise TraceError(f"number {k} of records that are alike is a constant in the first pass of a loop only")
            if number is None:
                view[k] = x
            mixed = number is not None or (old is not None and old.mixed)
            self.numbers[place, k] = Written(number, outer, branches, mixed, None if old is None else old.reader)

    def accumulate(self, i: Any, values: Sequence[Scalar]) -> None:
        self.put(i, [a + b for a, b in zip(self.get(i, len(values)), values, strict=True)])


@dataclass
class Written:
    """What was written last as a number of `Records`: a constant, or None; the loops around those that wrote it, and
    the branches; whether it is or was a constant; and the outermost of other loops in which it was read as one."""

    number: Any
    loops: list[Region]
    branches: list[Region]
    mixed: bool
    reader: Region | None


def _open(loop: bool) -> list[Region]:
    """The loops around the current place, or the branches."""
    return [region for region in current().regions[1:] if region.loop == loop]


class Known(Indexed):
    """A table whose numbers are constants of the kernel, except where `varying` says to read `array`."""

    def __init__(
        self, numbers: np.ndarray, varying: np.ndarray | None = None, array: Any = None, offset: int = 0
    ) -> None:
        self.numbers, self.varying, self.array, self.offset = numbers, varying, array, offset

    def at(self, k: int) -> Known:
        return Known(self.numbers, self.varying, self.array, self.offset + k)

    def __getitem__(self, k: int) -> Scalar:
        k += self.offset
        if self.varying is not None and self.varying[k]:
            return self.array[k]
        return self.numbers[k].item()


class Masked(Indexed):
    """An array of which only the `wanted` elements exist: others read as zero, and what is stored there is dropped."""

    def __init__(self, array: Any, wanted: np.ndarray, offset: int = 0) -> None:
        self.array, self.wanted, self.offset = array, wanted, offset

    def at(self, k: int) -> Masked:
        return Masked(self.array, self.wanted, self.offset + k)

    def __getitem__(self, k: int) -> Scalar:
        k += self.offset
        return self.array[k] if self.wanted[k] else 0.0

    def __setitem__(self, k: int, x: Scalar) -> None:
        k += self.offset
        if self.wanted[k]:
            self.array[k] = x


class Floats(Indexed):
    """Plain memory, for running physics on floats: a flat list or numpy array."""

    def __init__(self, values: Any, offset: int = 0) -> None:
        self.values, self.offset = values, offset

    def at(self, k: int) -> Floats:
        return Floats(self.values, self.offset + k)

    def __getitem__(self, k: int) -> Any:
        x = self.values[self.offset + k]
        return x.item() if isinstance(x, np.generic) else x

    def __setitem__(self, k: int, x: Any) -> None:
        self.values[self.offset + k] = x


def picked(table: Array, stride: int, index: Array) -> Array:
    """The rows of a table (of registers) that the lanes' indices name: lane l has row index[l].

    stride: numbers of a row, a multiple of the lanes. Rows of different picks must not be the same, unless they are
    equal and stay so.
    """
    graph = current()
    name = f"{table.storage.name}.pick{len(graph.nodes)}"
    args = (name, table.storage, table.symbol, table.offset, stride, index.storage, index.symbol, index.offset)
    graph.add("pick", args, None, pure=False)
    return Array(Storage(name, "rows", True, padded=True))


def pack_number() -> Value:
    """Which pack of environments this is, from 0 on."""
    return current().add("parameter", ("pack",), "i")


def lane_count() -> int:
    """Lanes of a register in the kernel being traced."""
    return current().module.types.lanes


def workspace(count: Any) -> ScalarArray:
    """An uninitialised array of `count` lane values: floats, registers (unrolled), or scratch memory."""
    graph = Graph.current
    if graph is None:
        return Floats([None] * count)
    if (graph.scratch or graph.module.unroll) and not traced(count):
        return Registers(graph, [None] * count)
    return memory(count)


def records(count: Any, period: int = 1) -> ScalarArray:
    """Like `memory`, for `Records`."""
    return memory(count) if Graph.current is None else Records(memory(count), period)


def memory(count: Any) -> ScalarArray:
    """Like `workspace`, but also in unrolled kernels real memory: it carries state around rolled loops."""
    graph = Graph.current
    if graph is None:
        return Floats([None] * count)
    if graph.scratch:
        raise TraceError("memory inside a differentiated function: use a workspace")
    storage = Storage(f"work{len(graph.allocations)}", "lanes", True)
    graph.allocations.append((storage.name, size_expression(count)))
    return Array(storage)


def carry(count: int) -> ScalarArray:
    """A few numbers that a rolled loop carries, in registers; static indices only."""
    graph = Graph.current
    if graph is None:
        return Floats([None] * count)
    storage = Storage(f"carry{len(graph.carried)}", "lanes", True)
    graph.carried.append((storage.name, count))
    return Array(storage)


def counters(count: Any) -> IndexArray:
    """Like `memory`, of uniform integers: the same in all lanes."""
    graph = Graph.current
    if graph is None:
        return Floats([None] * count)
    storage = Storage(f"work{len(graph.allocations)}", "ints", True)
    # An element of the scratch memory is a register of floats, which may be half an integer.
    graph.allocations.append((storage.name, size_expression(count * 2)))
    return Array(storage)


def size_expression(x: Any) -> Any:
    """A traced integer as nested lists over the names of integer arguments: sizes are known before a kernel starts."""
    if not traced(x):
        return int(x)
    op, args, _ = x.node
    if op == "parameter":
        return args[0]
    if op in ("iadd", "isub", "imul"):
        return [op, *map(size_expression, args)]
    raise TraceError(f"the size of a workspace depends on '{op}': only sums and products of integer arguments can")
