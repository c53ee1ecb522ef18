"""Loops and branches: plain Python on Python numbers, regions of the graph on traced values.

for i in loop(n): ...                 unrolled if n is an int; one body with a run-time trip count if n is traced
for i in rolled(n): ...               one body, even if n is an int
for _ in when(condition): ...         a branch that all lanes take together
if leave(condition): break            leave the innermost loop, all lanes together
for i in interruptible(loop(n)): ...  a loop whose passes take long: it ends early if the user interrupts the call
for _ in while_any(mask, limit): ...  repeat while mask() holds in any lane, at most `limit` times
take_apart(mask)                      compute the lanes one by one, if the mask holds in all of them
switch(index, functions, *args)       call functions[index]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from .graph import Graph, TraceError, Value, current, invert, traced
from .scalar import any_lane
from .types import Index, Mask


def loop(stop: Index, start: Index = 0, reverse: bool = False) -> Iterator[Any]:
    """Loop over start, start + 1, ..., stop - 1, or over the same indices backwards."""
    if not traced(stop) and not traced(start):
        stop, start = cast(int, stop), cast(int, start)
        yield from _unrolled(range(stop - 1, start - 1, -1) if reverse else range(start, stop))
        return
    graph = current()
    i = graph.open_region("for", (start, stop), "i")
    yield (stop - 1 + start) - i if reverse else i
    graph.close_region()


def rolled(stop: Index, reverse: bool = False) -> Iterator[Any]:
    """Loop over 0, 1, ..., stop - 1, or backwards, with one body: for few passes of much code."""
    if (graph := Graph.current) is None:
        yield from loop(stop, reverse=reverse)
        return
    i = graph.open_region("for", (0, stop), "i")
    yield (stop - 1) - i if reverse else i
    graph.close_region()


def _unrolled(numbers: range) -> Iterator[int]:
    if (graph := Graph.current) is None:
        yield from numbers
        return
    graph.loops.append(False)
    try:
        yield from numbers
    finally:
        graph.loops.pop()


def _check_uniform(condition: Value) -> None:
    if condition.type != "c":
        raise TraceError("a branch on a lane's condition: lanes branch together, use any_lane() or select()")


def when(condition: Mask) -> Iterator[None]:
    """Run the body if `condition`, which all lanes share, holds."""
    if not traced(condition):
        if condition:
            yield
        return
    _check_uniform(condition)
    graph = current()
    graph.open_region("if", (condition,), None)
    yield
    graph.close_region()


def leave(condition: Mask) -> bool:
    """``if leave(condition): break`` ends the innermost loop when `condition`, which all lanes share, holds."""
    if not traced(condition):
        return bool(condition)
    _check_uniform(condition)
    if not any(current().loops[-1:]):
        raise TraceError("leave() on a traced condition, but the innermost loop is unrolled, or there is none")
    current().add("leave", (condition,), None, pure=False)
    return False


def interruptible(passes: Iterator[Any]) -> Iterator[Any]:
    """A loop that ends if the user interrupts the call, if it is rolled.

    Results of such a call are dropped: what follows the loop need not care.
    """
    for i in passes:
        yield i
        if Graph.current is not None and any(current().loops[-1:]):
            leave(current().add("interrupted", (), "c", pure=False))


def take_apart(mask: Mask) -> None:
    """Where `mask` holds in all lanes, drop the results of the pack, and compute its environments one by one, from the
    start: each then has all lanes for itself. Interruptible loops end at once, and what follows them need not care.
    Nothing happens where the pack has one environment only."""
    if (graph := Graph.current) is None:
        return
    stays = cast(Value, any_lane(invert(cast(Value, mask))))
    for _ in when(invert(stays)):
        graph.add("take_apart", (), None, pure=False)


def while_any(mask: Callable[[], Mask], limit: Index) -> Iterator[Any]:
    """Repeat while ``mask()`` holds in any lane, at most `limit` times.

    Lanes whose mask does not hold any more go on computing: keep their state with `select`.
    """
    if (graph := Graph.current) is None:
        for i in loop(limit):
            if not mask():
                return
            yield i
        return
    i = graph.open_region("for", (0, limit), "i")  # rolled, even if the limit is an int
    if not leave(invert(cast(Value, any_lane(mask())))):
        yield i
    graph.close_region()


def switch(index: Index, functions: Sequence[Callable[..., None]], *args: Any) -> None:
    """Call ``functions[index](*args)``. The functions leave their results in memory."""
    if not traced(index):
        functions[cast(int, index)](*args)
        return
    for k, function in enumerate(functions):
        for _ in when(index == k):
            function(*args)
