"""The functions of one kernel, as LLVM IR text."""

from __future__ import annotations

from typing import Any

from ...ir.graph import Graph
from ...ir.subroutine import Subroutine
from ..base import Kernel
from . import abi
from .emit import FunctionEmitter
from .types import LaneTypes


class Module:
    """LLVM IR of a kernel's body and of the subroutines that it calls.

    It is the target that the body is traced for (`ir.TraceTarget`).
    """

    def __init__(self, bits: int, lanes: int, unroll: bool) -> None:
        self.bits, self.lanes, self.unroll = bits, lanes, unroll
        self.types = LaneTypes(bits, lanes)
        self.functions: list[str] = []
        self.declarations: set[str] = set()
        self.numbers: dict[str, int] = {}
        """The constants of all functions: text of the constant -> its position in the table `@numbers`."""
        self.operations = 0
        """Number of SIMD instructions, approximately."""
        self.scratch: list[Any] = []
        """Sizes of the body's workspaces, as expressions of the integer arguments (`ir.memory.size_expression`)."""
        self._subroutines: dict[Subroutine, str] = {}

    def subroutine(self, sub: Subroutine) -> str:
        """The name of a subroutine's function, which is emitted on first use."""
        if sub not in self._subroutines:
            name = self._subroutines[sub] = f"{sub.name}.{len(self._subroutines)}"
            graph = Graph(self)
            sub.trace(graph)
            self.define(name, abi.subroutine_parameters(sub, self.types), [], graph)
        return self._subroutines[sub]

    def define(self, name: str, parameters: list[str], prologue: list[str], graph: Graph) -> None:
        """Emit a function; prologue: instructions before those of the graph."""
        emitter = FunctionEmitter(graph, self.types, self.numbers)
        body = emitter.body()
        self.declarations |= emitter.declarations
        self.operations += emitter.operations
        carried = [
            f"%{name} = alloca [{count} x {self.types.of['f']}], align {self.types.alignment['lanes']}"
            for name, count in graph.carried
        ]
        text = "\n  ".join([*prologue, *carried, *body])
        self.functions.append(
            f"define internal void @{name}({', '.join(parameters)}) noinline nounwind alignstack(64) {{\n"
            f"start:\n  {text}\n  ret void\n}}"
        )

    def text(self) -> str:
        """The LLVM IR, without the entry point (`abi.entry`)."""
        vector = self.types.of["f"]
        numbers = ", ".join(f"{vector} {word}" for word in self.numbers)
        table = f"@numbers = internal constant [{len(self.numbers)} x {vector}] [{numbers}]"
        return "\n".join([table, *self.functions, *sorted(self.declarations)])


def trace(kernel: Kernel, bits: int, lanes: int) -> Module:
    """Trace a kernel's body, and emit it as LLVM IR."""
    module = Module(bits, lanes, kernel.unroll)
    graph = kernel.trace(Graph(module))
    parameters = abi.body_parameters(kernel.arguments, module.types)
    prologue = [*abi.lane_rows(kernel.arguments, module.types), *abi.workspaces(graph.allocations, module.types)]
    module.define("body", parameters, prologue, graph)
    module.scratch = [count for _, count in graph.allocations]
    return module
