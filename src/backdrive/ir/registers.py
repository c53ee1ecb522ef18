"""Workspaces of specialised (unrolled) kernels: names for values, no memory."""

from __future__ import annotations

from typing import Any, NamedTuple

from .arrays import Indexed
from .graph import Graph, Operand, Region, TraceError, traced


class _Register(NamedTuple):
    value: Operand
    region: Region
    """Where the value was written."""
    reader: Region | None
    """The outermost rolled loop inside that region in which the value has been read since."""


class Registers(Indexed):
    """An array whose elements are the values that were written last; each is None until then.

    A register cannot carry a value around a rolled loop, nor out of a loop or branch: `memory` and `carry` can. Such
    uses raise.
    """

    def __init__(self, graph: Graph, elements: list[_Register | None], offset: int = 0) -> None:
        self.graph, self.elements, self.offset = graph, elements, offset

    def at(self, k: Any) -> Registers:
        return Registers(self.graph, self.elements, self._position(k))

    def _position(self, k: Any) -> int:
        if traced(k):
            raise TraceError("an unrolled workspace is indexed by a traced integer")
        return self.offset + k

    def __getitem__(self, k: Any) -> Any:
        k, regions = self._position(k), self.graph.regions
        if (element := self.elements[k]) is None:
            raise TraceError(f"workspace element {k} is read before it is written")
        value, region, reader = element
        if region is not regions[-1]:
            if not region.open:
                raise TraceError(f"workspace element {k} is written in a loop or branch, read after it: use memory()")
            if reader is None or not reader.open:
                reader = next((r for r in regions[regions.index(region) + 1 :] if r.loop), None)
                self.elements[k] = _Register(value, region, reader)
        return value

    def __setitem__(self, k: Any, x: Any) -> None:
        k = self._position(k)
        if (old := self.elements[k]) is not None and old.reader is not None and old.reader.open:
            raise TraceError(f"workspace element {k} is carried around a rolled loop: use memory()")
        self.elements[k] = _Register(x, self.graph.regions[-1], None)
