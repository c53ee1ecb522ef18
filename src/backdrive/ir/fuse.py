"""Dead-code elimination, and the choice of fused multiply-adds.

Both are decided here, on the graph, and not left to a backend's optimiser: so a kernel's results have the same bits for
every lane width and every optimisation level.
"""

from __future__ import annotations

from typing import Any

from .arrays import Storage
from .graph import Graph, Region, Value

EFFECTS = {"store", "call", "for", "if", "leave", "take_apart", "prefetch", "pick"}
"""Operations that are kept although no other node uses their result."""


def live_nodes(graph: Graph) -> bytearray:
    """For each node, 1 if an effect depends on it, else 0. Stores to scratch memory count if anything reads it."""
    scratch = {name for name, _ in graph.allocations}
    read, before = scratch, None
    live = bytearray()
    while read != before:
        live, before = _live_nodes(graph, scratch - read), read
        nodes = (node for node, alive in zip(graph.nodes, live, strict=True) if alive and node.op != "store")
        read = {a.name for node in nodes for a in node.args if isinstance(a, Storage)} & scratch
    return live


def _live_nodes(graph: Graph, unread: set[str]) -> bytearray:
    """The same, if the arrays `unread` are not read. Operands precede their users."""
    live = bytearray(len(graph.nodes))
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        if node.op in EFFECTS and not (node.op == "store" and node.args[0].name in unread):
            live[index] = 1
        if live[index]:
            for a in operands(node.args):
                live[a.index] = 1
    return live


def operands(args: tuple[Any, ...]) -> list[Value]:
    """The values among a node's arguments."""
    return [a for a in args if isinstance(a, Value)]


def fuse(graph: Graph, live: bytearray) -> dict[int, int]:
    """Choose fused multiply-adds: {index of an add or sub: which of its arguments is the product}.

    A product is fused if all of its users are additions or subtractions in its own region that are not fused with
    another product; it is then not computed by itself, and `live` becomes 0.
    """
    region_of: dict[int, Region] = {}
    users: dict[int, list[int]] = {}

    def scan(region: Region) -> None:
        for index in region.nodes:
            region_of[index] = region
            if not live[index]:
                continue
            for a in graph.nodes[index].args:
                if isinstance(a, Value):
                    users.setdefault(a.index, []).append(index)
                elif isinstance(a, Region):
                    scan(a)

    scan(graph.body)
    fused: dict[int, int] = {}
    for index, node in enumerate(graph.nodes):
        if node.op != "mul" or not live[index]:
            continue
        uses = users[index]
        if all(
            graph.nodes[u].op in ("add", "sub") and u not in fused and region_of[u] is region_of[index] for u in uses
        ) and len(set(uses)) == len(uses):
            for u in uses:
                args = graph.nodes[u].args
                fused[u] = 0 if isinstance(args[0], Value) and args[0].index == index else 1
            live[index] = 0
    return fused
