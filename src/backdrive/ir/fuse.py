"""What of a trace is computed, and which multiplications and additions are fused.

Both are decided here, on the graph, and not left to LLVM: so a kernel's results have the same bits for every lane
width and every optimisation level.
"""

from __future__ import annotations

from .graph import Graph, Region, Value

EFFECTS = {"store", "call", "for", "if", "leave", "prefetch", "pick"}


def live_nodes(graph: Graph) -> bytearray:
    """1 for every node that an effect depends on. Operands precede their users."""
    live = bytearray(len(graph.nodes))
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        if node.op in EFFECTS:
            live[index] = 1
        if live[index]:
            for a in operands(node.args):
                live[a.index] = 1
    return live


def operands(args: tuple) -> list[Value]:
    return [a for a in args if isinstance(a, Value)]


def fuse(graph: Graph, live: bytearray) -> dict[int, int]:
    """Choose fused multiply-adds: {index of an add or sub: which of its arguments is the product}.

    A product is absorbed if every use of it can absorb it: it is then never computed by itself (live = 0).
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
