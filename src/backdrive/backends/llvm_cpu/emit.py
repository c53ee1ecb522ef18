"""LLVM IR text of a traced function."""

from __future__ import annotations

from typing import Any

from ...ir.arrays import Storage
from ...ir.fuse import fuse, live_nodes
from ...ir.graph import Graph, Node, Region, Value, traced
from .abi import APART, HEADER
from .transpose import transpose
from .types import LaneTypes

_BINARY = {
    "add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv",
    "iadd": "add nsw", "isub": "sub nsw", "imul": "mul nsw", "idiv": "sdiv", "irem": "srem", "and": "and", "or": "or",
}  # fmt: skip
_COMPARE = {
    "flt": "fcmp olt", "fle": "fcmp ole", "feq": "fcmp oeq",
    "ilt": "icmp slt", "ile": "icmp sle", "ieq": "icmp eq",
}  # fmt: skip
_INTRINSIC = {"sqrt": "sqrt", "abs": "fabs", "floor": "floor", "round": "rint"}


class FunctionEmitter:
    """Emits the body of one function from its graph.

    Names in the text: ``%t7`` is node 7, ``%q`` the argument or array q, ``%q.2`` the row of lane 2 in q, ``%x9`` a
    temporary. numbers: the table of constants of the module, to which this function adds its own.
    """

    def __init__(self, graph: Graph, types: LaneTypes, numbers: dict[str, int]) -> None:
        self.graph, self.types, self.numbers = graph, types, numbers
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.live = live_nodes(graph)
        self.fused = fuse(graph, self.live)
        self.operations = sum(self.live)
        self._temporaries = 0
        self._block = "start"
        self._loop_exits: list[str] = []

    def body(self) -> list[str]:
        self._region(self.graph.body)
        return self.lines

    # ------------------------------------------------------------------------------------------ helpers

    def _line(self, text: str) -> None:
        self.lines.append(text)

    def _label(self, name: str) -> None:
        self._line(f"{name}:")
        self._block = name

    def _fresh(self) -> str:
        self._temporaries += 1
        return f"%x{self._temporaries}"

    def _define(self, text: str, name: str | None = None) -> str:
        name = name or self._fresh()
        self._line(f"{name} = {text}")
        return name

    def _operand(self, x: Any, type: str) -> str:
        if traced(x):
            return f"%t{x.index}"
        word = self.types.constant(x, type)
        if type != "f" or self.types.lanes == 1 or x == 0:
            return word
        # A constant is loaded as a whole register where it is used, so that arithmetic takes it as a memory operand.
        # For a constant in the instruction, LLVM would emit a separate broadcast.
        vector, index = self.types.of["f"], self.numbers.setdefault(word, len(self.numbers))
        address = f"getelementptr ({vector}, ptr @numbers, i64 {index})"
        return self._define(f"load {vector}, ptr {address}, align {self.types.alignment['lanes']}")

    def _floats(self, args: Any) -> list[str]:
        return [self._operand(a, "f") for a in args]

    def _intrinsic(self, name: str, operands: list[str], result: str | None = None) -> str:
        vector = self.types.of["f"]
        function = f"@llvm.{name}.{self.types.suffix}"
        self.declarations.add(f"declare {vector} {function}({', '.join([vector] * len(operands))})")
        arguments = ", ".join(f"{vector} {x}" for x in operands)
        return self._define(f"call {vector} {function}({arguments})", result)

    def _broadcast(self, scalar: str, result: str) -> None:
        types = self.types
        vector = types.of["f"]
        if types.lanes == 1:
            self._define(f"fadd {types.element} {scalar}, {types.constant(-0.0, 'f')}", result)
            return
        first = self._define(f"insertelement {vector} poison, {types.element} {scalar}, i32 0")
        self._define(f"shufflevector {vector} {first}, {vector} poison, <{types.lanes} x i32> zeroinitializer", result)

    def _address(self, base: str, storage: Storage, symbol: Value | None, offset: int) -> str:
        element = self.types.memory[storage.kind]
        if symbol is not None:
            base = self._define(f"getelementptr inbounds {element}, ptr {base}, i64 %t{symbol.index}")
        if offset:
            base = self._define(f"getelementptr inbounds {element}, ptr {base}, i64 {offset}")
        return base

    # ------------------------------------------------------------------------------------------ nodes

    def _region(self, region: Region) -> None:
        nodes = [index for index in region.nodes if self.live[index]]
        position = 0
        while position < len(nodes):
            block = self._row_block(nodes, position)
            if block:
                self._emit_row_block(nodes[position : position + block])
                position += block
            else:
                self._node(nodes[position], self.graph.nodes[nodes[position]])
                position += 1

    def _row_block(self, nodes: list[int], position: int) -> int:
        """The number of nodes, starting at a position, that load or store a block of consecutive elements of rows.

        As many elements as lanes form a square block, which is moved by whole registers and transposed. Padded rows
        allow that for fewer elements, too. 0 if there is no such block.
        """
        lanes = self.types.lanes
        first = self.graph.nodes[nodes[position]]
        if lanes == 1 or first.op not in ("load", "store") or first.args[0].kind != "rows":
            return 0
        block = [self.graph.nodes[index] for index in nodes[position : position + lanes]]
        storage, symbol, offset = first.args[:3]
        count = 0
        for k, node in enumerate(block):
            same_rows = node.op == first.op and node.args[0] == storage and node.args[2] == offset + k
            if not (same_rows and node.args[1] is symbol):
                break
            count += 1
        return count if count == lanes or (storage.padded and offset % lanes == 0) else 0

    def _emit_row_block(self, nodes: list[int]) -> None:
        types, first = self.types, self.graph.nodes[nodes[0]]
        storage, symbol, offset = first.args[:3]
        vector, align = types.of["f"], types.alignment["rows"]
        rows = [self._address(f"%{storage.name}.{lane}", storage, symbol, offset) for lane in range(types.lanes)]
        if first.op == "load":
            values = [self._define(f"load {vector}, ptr {row}, align {align}") for row in rows]
            names = [f"%t{index}" for index in nodes]
            transpose(self._define, types, values, names + [self._fresh() for _ in range(types.lanes - len(nodes))])
        else:
            values = [self._operand(self.graph.nodes[index].args[3], "f") for index in nodes]
            values += [types.constant(0.0, "f")] * (types.lanes - len(nodes))
            for row, value in zip(rows, transpose(self._define, types, values), strict=True):
                self._line(f"store {vector} {value}, ptr {row}, align {align}")

    def _node(self, index: int, node: Node) -> None:
        op, args, type = node
        result, types = f"%t{index}", self.types
        if index in self.fused:
            self._fused_multiply_add(op, args, self.fused[index], result)
        elif op in _BINARY:
            a, b = (self._operand(x, type or "f") for x in args)
            self._define(f"{_BINARY[op]} {types.of[type or 'f']} {a}, {b}", result)
        elif op in _COMPARE:
            a, b = (self._operand(x, op[0]) for x in args)
            self._define(f"{_COMPARE[op]} {types.of[op[0]]} {a}, {b}", result)
        elif op in _INTRINSIC:
            self._intrinsic(_INTRINSIC[op], self._floats(args), result)
        else:
            getattr(self, "_emit_" + op)(result, args, type)

    def _fused_multiply_add(self, op: str, args: tuple, product: int, result: str) -> None:
        """a b + c = fma(a, b, c), a b - c = fma(a, b, -c) or c - a b = fma(-a, b, c); args[product] is a b."""
        vector = self.types.of["f"]
        a, b = self._floats(args[product].node.args)
        c = self._operand(args[1 - product], "f")
        if op == "sub" and product == 0:
            c = self._define(f"fneg {vector} {c}")
        elif op == "sub":
            a = self._define(f"fneg {vector} {a}")
        self._intrinsic("fma", [a, b, c], result)

    def _emit_parameter(self, result: str, args: tuple, type: str) -> None:
        self._define(f"freeze {self.types.of[type]} %{args[0]}", result)

    def _emit_neg(self, result: str, args: tuple, type: str) -> None:
        self._define(f"fneg {self.types.of['f']} {self._operand(args[0], 'f')}", result)

    def _emit_min(self, result: str, args: tuple, type: str, relation: str = "olt") -> None:
        vector, (a, b) = self.types.of["f"], self._floats(args)
        mask = self._define(f"fcmp {relation} {vector} {a}, {b}")
        self._define(f"select {self.types.of['b']} {mask}, {vector} {a}, {vector} {b}", result)

    def _emit_imin(self, result: str, args: tuple, type: str) -> None:
        a, b = (self._operand(x, "i") for x in args)
        smaller = self._define(f"icmp slt i64 {a}, {b}")
        self._define(f"select i1 {smaller}, i64 {a}, i64 {b}", result)

    def _emit_max(self, result: str, args: tuple, type: str) -> None:
        self._emit_min(result, args, type, "ogt")

    def _emit_select(self, result: str, args: tuple, type: str) -> None:
        vector, condition = self.types.of["f"], args[0]
        a, b = self._floats(args[1:])
        self._define(
            f"select {self.types.of[condition.type]} {self._operand(condition, condition.type)}, "
            f"{vector} {a}, {vector} {b}",
            result,
        )

    def _emit_not(self, result: str, args: tuple, type: str) -> None:
        self._define(
            f"xor {self.types.of[type]} {self._operand(args[0], type)}, {self.types.constant(True, type)}", result
        )

    def _emit_any(self, result: str, args: tuple, type: str) -> None:
        mask, lanes = self._operand(args[0], "b"), self.types.lanes
        if lanes == 1:
            self._define(f"or i1 {mask}, false", result)
        else:
            word = self._define(f"bitcast {self.types.of['b']} {mask} to i{lanes}")
            self._define(f"icmp ne i{lanes} {word}, 0", result)

    def _emit_to_float(self, result: str, args: tuple, type: str) -> None:
        self._broadcast(self._define(f"sitofp i64 {self._operand(args[0], 'i')} to {self.types.element}"), result)

    def _emit_odd(self, result: str, args: tuple, type: str) -> None:
        """args[1] in the lanes where bit 0 of the mantissa of args[0] is set, args[2] in the others."""
        word = self._shifted_bit(args[0], 0)
        vector, integers = self.types.of["f"], self._integers()
        mask = self._define(f"icmp slt {integers} {word}, {self._integer(0)}")
        a, b = self._floats(args[1:])
        self._define(f"select {self.types.of['b']} {mask}, {vector} {a}, {vector} {b}", result)

    def _emit_flip(self, result: str, args: tuple, type: str) -> None:
        """-args[1] in the lanes where bit 1 of the mantissa of args[0], plus args[2], is set; args[1] in the others."""
        integers, vector, bits = self._integers(), self.types.of["f"], self.types.bits
        word = self._shifted_bit(args[0], 1, args[2])
        sign = self._define(f"and {integers} {word}, {self._integer(1 << (bits - 1))}")
        x = self._define(f"bitcast {vector} {self._operand(args[1], 'f')} to {integers}")
        self._define(f"bitcast {integers} {self._define(f'xor {integers} {x}, {sign}')} to {vector}", result)

    def _emit_power(self, result: str, args: tuple, type: str) -> None:
        """2ᵏ, where k is in the lowest bits of the mantissa of args[0]: they are shifted into the exponent."""
        integers, vector = self._integers(), self.types.of["f"]
        mantissa, one = {64: (52, 1023 << 52), 32: (23, 127 << 23)}[self.types.bits]
        word = self._define(f"bitcast {vector} {self._operand(args[0], 'f')} to {integers}")
        exponent = self._define(f"shl {integers} {word}, {self._integer(mantissa)}")
        power = self._define(f"add {integers} {exponent}, {self._integer(one)}")
        self._define(f"bitcast {integers} {power} to {vector}", result)

    def _shifted_bit(self, x: Any, bit: int, plus: int = 0) -> str:
        """The bits of x, plus an integer, shifted left until the given bit is the sign."""
        integers = self._integers()
        word = self._define(f"bitcast {self.types.of['f']} {self._operand(x, 'f')} to {integers}")
        if plus:
            word = self._define(f"add {integers} {word}, {self._integer(plus)}")
        return self._define(f"shl {integers} {word}, {self._integer(self.types.bits - 1 - bit)}")

    def _integers(self) -> str:
        return f"<{self.types.lanes} x i{self.types.bits}>" if self.types.lanes > 1 else f"i{self.types.bits}"

    def _integer(self, n: int) -> str:
        return f"splat (i{self.types.bits} {n})" if self.types.lanes > 1 else str(n)

    # ------------------------------------------------------------------------------------------ memory

    def _emit_load(self, result: str, args: tuple, type: str) -> None:
        storage, symbol, offset = args
        kind, types = storage.kind, self.types
        element, alignment = types.memory[kind], types.alignment[kind]
        if kind == "rows":
            self._load_rows(result, storage, symbol, offset)
            return
        address = self._address(f"%{storage.name}", storage, symbol, offset)
        if kind == "table":
            self._broadcast(self._define(f"load {element}, ptr {address}, align {alignment}"), result)
        else:
            self._define(f"load {element}, ptr {address}, align {alignment}", result)

    def _load_rows(self, result: str, storage: Storage, symbol: Value | None, offset: int) -> None:
        types, vector = self.types, "poison"
        for lane in range(types.lanes):
            address = self._address(f"%{storage.name}.{lane}", storage, symbol, offset)
            last = lane == types.lanes - 1
            load = f"load {types.element}, ptr {address}, align {types.alignment['rows']}"
            if types.lanes == 1:
                self._define(load, result)
                return
            vector = self._define(
                f"insertelement {types.of['f']} {vector}, {types.element} {self._define(load)}, i32 {lane}",
                result if last else None,
            )

    def _emit_store(self, result: str, args: tuple, type: str) -> None:
        storage, symbol, offset, x = args
        types, kind = self.types, storage.kind
        value = self._operand(x, "i" if kind == "ints" else "f")
        if kind == "rows":
            self._store_rows(value, storage, symbol, offset)
            return
        address = self._address(f"%{storage.name}", storage, symbol, offset)
        self._line(f"store {types.memory[kind]} {value}, ptr {address}, align {types.alignment[kind]}")

    def _emit_pick(self, result: str, args: tuple, type: None) -> None:
        name, table, *place, stride, index, symbol, offset = args
        base = self._address(f"%{table.name}", table, *place)
        for lane in range(self.types.lanes):
            address = self._address(f"%{index.name}", index, symbol, offset + lane)
            number = self._define(f"load i64, ptr {address}, align 8")
            start = self._define(f"mul nsw i64 {number}, {stride}")
            self._define(f"getelementptr {self.types.element}, ptr {base}, i64 {start}", f"%{name}.{lane}")

    def _emit_prefetch(self, result: str, args: tuple, type: None) -> None:
        storage, symbol, offset, count = args
        self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        line = 64 * 8 // self.types.bits
        for lane in range(self.types.lanes):
            for k in range(0, count, line):
                address = self._address(f"%{storage.name}.{lane}", storage, symbol, offset + k)
                self._line(f"call void @llvm.prefetch.p0(ptr {address}, i32 {int(storage.writable)}, i32 3, i32 1)")

    def _store_rows(self, value: str, storage: Storage, symbol: Value | None, offset: int) -> None:
        types = self.types
        for lane in range(types.lanes):
            address = self._address(f"%{storage.name}.{lane}", storage, symbol, offset)
            one_lane = types.lanes == 1
            x = value if one_lane else self._define(f"extractelement {types.of['f']} {value}, i32 {lane}")
            self._line(f"store {types.element} {x}, ptr {address}, align {types.alignment['rows']}")

    def _emit_call(self, result: str, args: tuple, type: None) -> None:
        function, kinds, *rest = args
        words, operands = [], iter(rest)
        for kind in kinds:
            if kind in self.types.memory:
                storage, symbol, offset = next(operands), next(operands), next(operands)
                words.append(f"ptr {self._address('%' + storage.name, storage, symbol, offset)}")
            else:
                words.append(f"{self.types.of[kind]} {self._operand(next(operands), kind)}")
        self._line(f"call void @{function}({', '.join([*words, 'ptr %scratch'])})")

    # ------------------------------------------------------------------------------------------ control

    def _emit_for(self, result: str, args: tuple, type: str) -> None:
        start, stop, region = args
        name, before = f"loop{result[2:]}", self._block
        self._line(f"br label %{name}.head")
        self._label(f"{name}.head")
        self._line(f"{result} = phi i64 [{self._operand(start, 'i')}, %{before}], [{result}.next, %{name}.latch]")
        self._line(f"{result}.more = icmp slt i64 {result}, {self._operand(stop, 'i')}")
        self._line(f"br i1 {result}.more, label %{name}.body, label %{name}.exit")
        self._label(f"{name}.body")
        self._loop_exits.append(f"{name}.exit")
        self._region(region)
        self._loop_exits.pop()
        self._line(f"br label %{name}.latch")
        self._label(f"{name}.latch")
        self._line(f"{result}.next = add nsw i64 {result}, 1")
        self._line(f"br label %{name}.head")
        self._label(f"{name}.exit")

    def _emit_if(self, result: str, args: tuple, type: None) -> None:
        condition, region = args
        name = f"if{result[2:]}"
        self._line(f"br i1 {self._operand(condition, 'c')}, label %{name}.then, label %{name}.end")
        self._label(f"{name}.then")
        self._region(region)
        self._line(f"br label %{name}.end")
        self._label(f"{name}.end")

    def _emit_interrupted(self, result: str, args: tuple, type: str) -> None:
        name, before = f"ask{result[2:]}", self._block
        header = self._define(f"getelementptr i8, ptr %scratch, i64 -{HEADER}")
        pulse = self._define(f"load volatile i64, ptr {self._define(f'load ptr, ptr {header}, align 8')}, align 8")
        flag = self._define(f"or i64 {pulse}, {self._define(f'load i64, ptr {self._apart()}, align 8')}")
        self._line(f"br i1 {self._define(f'icmp eq i64 {flag}, 0')}, label %{name}.end, label %{name}.then")
        self._label(f"{name}.then")
        answer = self._define("call i1 @interrupted(ptr %scratch)")
        self._line(f"br label %{name}.end")
        self._label(f"{name}.end")
        self._define(f"phi i1 [false, %{before}], [{answer}, %{name}.then]", result)

    def _emit_take_apart(self, result: str, args: tuple, type: None) -> None:
        if self.types.lanes == 1:
            return
        others = self._define(f"icmp sgt i64 {self._define('sub i64 %last, %first')}, 1")
        self._line(f"store i64 {self._define(f'zext i1 {others} to i64')}, ptr {self._apart()}, align 8")

    def _apart(self) -> str:
        """The address of the word that tells that the environments of the pack are to be computed one by one."""
        return self._define(f"getelementptr i8, ptr %scratch, i64 -{HEADER - APART}")

    def _emit_leave(self, result: str, args: tuple, type: None) -> None:
        stay = f"stay{result[2:]}"
        self._line(f"br i1 {self._operand(args[0], 'c')}, label %{self._loop_exits[-1]}, label %{stay}")
        self._label(stay)
