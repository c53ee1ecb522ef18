"""Arrays that traced code reads and writes: ``a[k]``, ``a[k] = x``, views ``a.at(k)`` and records ``a.get(i, width)``.

Kinds of memory of a kernel (`Storage.kind`):

    lanes   one SIMD register per element, private to a pack of environments (workspaces, the caller's packs)
    rows    the caller's tensors: each environment has a row, and element k of all lanes' rows is one value
    table   floats that all environments share, broadcast to the lanes when they are loaded
    ints    integers that all environments share (the topology of a model)

An index is a Python int (static) or a traced integer (symbolic). Two arrays never overlap; within one array, a store
through one symbolic offset may alias every other element.

`Known`, `Masked` and `Floats` are no memory of a kernel: constants, partially absent arrays, and lists of floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .graph import TraceError, Value, add, argument_of, current, traced
from .types import Index, Scalar, ScalarArray


@dataclass(frozen=True)
class Storage:
    """The name of an array in the generated code, and how it is addressed there."""

    name: str
    kind: str
    """lanes, rows, table or ints."""
    writable: bool
    padded: bool = False
    """Each row has a length that is a multiple of the lanes, so that it may be read and overwritten in whole blocks."""


class Indexed:
    """Records of consecutive elements, on top of the elements and views that a subclass provides."""

    def get(self, i: Index, width: int) -> tuple[Any, ...]:
        """Record i of an array of records of `width` elements."""
        view = self.at(i * width)
        return tuple(view[k] for k in range(width))

    def put(self, i: Index, values: Sequence[Scalar]) -> None:
        """Write record i of an array of records of `len(values)` elements."""
        view = self.at(i * len(values))
        for k, x in enumerate(values):
            view[k] = x

    def accumulate(self, i: Index, values: Sequence[Scalar]) -> None:
        """Add to record i of an array of records of `len(values)` elements."""
        view = self.at(i * len(values))
        for k, x in enumerate(values):
            view[k] = view[k] + x

    def prefetch(self, count: Index) -> None:
        """Bring the first `count` elements near the processor. Only the caller's rows are ever far away."""

    def at(self, k: Any) -> Indexed:
        """The view that starts at element k."""
        raise NotImplementedError

    def __getitem__(self, k: Any) -> Any:
        raise NotImplementedError

    def __setitem__(self, k: Any, x: Any) -> None:
        raise NotImplementedError


class Array(Indexed):
    """Memory of a kernel: a storage, and an offset that has a symbolic and a static part.

    step: of rows with an axis of time, the distance between consecutive times, in elements.
    """

    def __init__(
        self, storage: Storage, step: Value | None = None, symbol: Value | None = None, offset: int = 0
    ) -> None:
        self.storage, self.step, self.symbol, self.offset = storage, step, symbol, offset

    def at(self, k: Any) -> Array:
        if not traced(k):
            return Array(self.storage, self.step, self.symbol, self.offset + k)
        static = 0
        if (x := argument_of(k, "iadd")) is not None and not traced(x[1]):
            k, static = x
        symbol = k if self.symbol is None else add(self.symbol, k)
        assert isinstance(symbol, Value)
        return Array(self.storage, self.step, symbol, self.offset + static)

    def row(self, t: Index) -> Array:
        """The rows at time t; only of arrays of kind rows."""
        return self.at(self.step * t)

    def prefetch(self, count: Index) -> None:
        if self.storage.kind == "rows" and not traced(count):
            current().add("prefetch", (self.storage, self.symbol, self.offset, count), None, pure=False)

    def _key(self) -> tuple[str, int | None, int]:
        return (self.storage.name, None if self.symbol is None else self.symbol.index, self.offset)

    def __getitem__(self, k: Any) -> Any:
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

    def __setitem__(self, k: Any, x: Any) -> None:
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


class Known(Indexed):
    """A table whose numbers are constants of the kernel; elements marked in `varying` are read from `array` instead."""

    def __init__(
        self, numbers: np.ndarray, varying: np.ndarray | None = None, array: ScalarArray | None = None, offset: int = 0
    ) -> None:
        self.numbers, self.varying, self.array, self.offset = numbers, varying, array, offset

    def at(self, k: Any) -> Known:
        return Known(self.numbers, self.varying, self.array, self.offset + k)

    def __getitem__(self, k: Any) -> Any:
        k += self.offset
        if self.varying is not None and self.varying[k]:
            assert self.array is not None
            return self.array[k]
        return self.numbers[k].item()


class Masked(Indexed):
    """An array of which only the `wanted` elements exist: the others read as zero, and stores to them are dropped."""

    def __init__(self, array: ScalarArray, wanted: np.ndarray, offset: int = 0) -> None:
        self.array, self.wanted, self.offset = array, wanted, offset

    def at(self, k: Any) -> Masked:
        return Masked(self.array, self.wanted, self.offset + k)

    def __getitem__(self, k: Any) -> Any:
        k += self.offset
        return self.array[k] if self.wanted[k] else 0.0

    def __setitem__(self, k: Any, x: Any) -> None:
        k += self.offset
        if self.wanted[k]:
            self.array[k] = x


class Floats(Indexed):
    """A flat list or numpy array, for running physics on plain floats."""

    def __init__(self, values: Any, offset: int = 0) -> None:
        self.values, self.offset = values, offset

    def at(self, k: Any) -> Floats:
        return Floats(self.values, self.offset + k)

    def __getitem__(self, k: Any) -> Any:
        x = self.values[self.offset + k]
        return x.item() if isinstance(x, np.generic) else x

    def __setitem__(self, k: Any, x: Any) -> None:
        self.values[self.offset + k] = x
