"""Subroutines: traced functions that a kernel calls, where a plain Python function would be inlined at every use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .arrays import Array, Storage
from .graph import Graph, TraceError, traced

ARRAY_KINDS = ("lanes", "table", "ints")
VALUE_KINDS = ("f", "i")


class Subroutine:
    """A function that is compiled once per kernel and called.

    kinds: of its arguments, "lanes", "table" or "ints" for arrays, "f" or "i" for values. It returns nothing: results
    go to arrays of kind lanes.
    """

    def __init__(self, function: Callable[..., None], kinds: Sequence[str]) -> None:
        self.function, self.kinds, self.name = function, tuple(kinds), function.__name__

    def __call__(self, *args: Any) -> None:
        graph = Graph.current
        if graph is None or graph.scratch:
            self.function(*args)
            return
        if len(args) != len(self.kinds):
            raise TraceError(f"{self.name}() takes {len(self.kinds)} arguments, got {len(args)}")
        flat: list[Any] = []
        for kind, a in zip(self.kinds, args, strict=True):
            if isinstance(a, Array) and a.storage.kind == kind:
                flat += [a.storage, a.symbol, a.offset]
            elif _is_value(a, kind):
                flat.append(a)
            else:
                got = f"an array of kind {a.storage.kind}" if isinstance(a, Array) else repr(a)
                raise TraceError(f"{self.name}() expects an argument of kind {kind}, got {got}")
        graph.add("call", (graph.target.subroutine(self), self.kinds, *flat), None, pure=False)
        graph.stored.clear()

    def trace(self, graph: Graph) -> None:
        """Trace the function into an empty graph, with arguments that are named a0, a1, ..."""
        with graph:
            arguments: list[Any] = []
            for k, kind in enumerate(self.kinds):
                if kind in ARRAY_KINDS:
                    arguments.append(Array(Storage(f"a{k}", kind, kind == "lanes")))
                else:
                    arguments.append(graph.add("parameter", (f"a{k}",), kind))
            self.function(*arguments)
        if graph.allocations:
            raise TraceError(f"subroutine {self.name} allocates a workspace: pass it in")
        if any(node.op == "take_apart" for node in graph.nodes):
            raise TraceError(f"subroutine {self.name} takes a pack apart: only the kernel itself can")


def _is_value(a: Any, kind: str) -> bool:
    if traced(a):
        return a.type == kind
    return isinstance(a, int) if kind == "i" else kind == "f" and isinstance(a, int | float)


def subroutine(*kinds: str) -> Callable[[Callable[..., None]], Subroutine]:
    """A decorator that makes a function a `Subroutine`; kinds: one for each argument."""
    return lambda function: Subroutine(function, kinds)
