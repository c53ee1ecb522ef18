"""Kernels: Python functions that become machine code, run over a batch of environments.

    def body(x, y, n): ...                       # plain scalar code on the arrays and integers below
    kernel = Kernel("scale", [Rows("x"), Rows("y", writable=True), Integer("n")], body)
    executable = kernel.build(bits=64)           # traced and compiled once, cached on disk

The environments of a batch are split into packs of as many as a register has lanes; the body computes one pack. If
the batch is no multiple of the lanes, the last lanes repeat the last environment: they read and write just its row.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.graph import Graph, TraceError, traced
from ...ir.memory import Array, Storage
from . import cache
from .emit import FunctionEmitter, Types
from .target import Target, host


@dataclass(frozen=True)
class Rows:
    """A tensor of the caller with a row per environment (and per time)."""

    name: str
    writable: bool = False


@dataclass(frozen=True)
class Picked:
    """Rows of a table that all environments share, read only: each has the row that its own index names."""

    name: str


@dataclass(frozen=True)
class Packs:
    """Registers of the caller: [pack or other number, element, lane], aligned to a register.

    Element k of pack p of records of n is ``a.at(p * n)[k]``, for any uniform integer p: see `pack_number`. Or rows of
    whole registers, of which every lane picks one: see `picked`.
    """

    name: str
    writable: bool = False


@dataclass(frozen=True)
class Table:
    """Floats shared by all environments (read only)."""

    name: str


@dataclass(frozen=True)
class Ints:
    """int64s shared by all environments."""

    name: str
    writable: bool = False


@dataclass(frozen=True)
class Integer:
    name: str


@dataclass(frozen=True)
class Number:
    """A float64 shared by all environments."""

    name: str


Argument = Rows | Picked | Packs | Table | Ints | Integer | Number


class Subroutine:
    """A function compiled once per kernel and called, where a plain Python function would be inlined.

    `kinds` of its arguments: "lanes", "table", "ints" for arrays, "f" and "i" for values. Results go to arrays.
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
                raise TraceError(f"{self.name}() wants an argument of kind {kind}, got {got}")
        graph.add("call", (graph.module.subroutine(self), self.kinds, *flat), None, pure=False)
        graph.stored.clear()


def _is_value(a: Any, kind: str) -> bool:
    if traced(a):
        return a.type == kind
    return isinstance(a, int) if kind == "i" else kind == "f" and isinstance(a, int | float)


def subroutine(*kinds: str) -> Callable[[Callable[..., None]], Subroutine]:
    return lambda function: Subroutine(function, kinds)


class Module:
    """The functions of one kernel, as LLVM IR text."""

    def __init__(self, bits: int, lanes: int, unroll: bool) -> None:
        self.bits, self.unroll = bits, unroll
        self.types = Types(bits, lanes)
        self.functions: list[str] = []
        self.declarations: set[str] = set()
        self.numbers: dict[str, int] = {}
        self.operations = 0
        self._subroutines: dict[Subroutine, str] = {}

    def subroutine(self, sub: Subroutine) -> str:
        """The name of a subroutine's code, emitted on first use."""
        if sub not in self._subroutines:
            name = self._subroutines[sub] = f"{sub.name}.{len(self._subroutines)}"
            graph = Graph(self)
            with graph:
                arguments: list[Any] = []
                for k, kind in enumerate(sub.kinds):
                    if kind in self.types.memory:
                        arguments.append(Array(Storage(f"a{k}", kind, kind == "lanes")))
                    else:
                        arguments.append(graph.add("parameter", (f"a{k}",), kind))
                sub.function(*arguments)
            if graph.allocations:
                raise TraceError(f"subroutine {sub.name} allocates a workspace: pass it in")
            words = [
                f"ptr noalias %a{k}" if kind in self.types.memory else f"{self.types.of[kind]} %a{k}"
                for k, kind in enumerate(sub.kinds)
            ]
            self.define(name, words, [], graph)
        return self._subroutines[sub]

    def define(self, name: str, parameters: list[str], prologue: list[str], graph: Graph) -> None:
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
        vector = self.types.of["f"]
        numbers = ", ".join(f"{vector} {word}" for word in self.numbers)
        table = f"@numbers = internal constant [{len(self.numbers)} x {vector}] [{numbers}]"
        return "\n".join([table, *self.functions, *sorted(self.declarations)])


@dataclass
class Kernel:
    name: str
    arguments: Sequence[Argument]
    body: Callable[..., None]
    unroll: bool = False
    key: str = ""  # what the body depends on besides the package's source, e.g. the model's fingerprint
    _built: dict[tuple, Executable] = field(default_factory=dict, repr=False)

    def build(self, bits: int = 64, lanes: int | None = None, target: Target | None = None) -> Executable:
        """Machine code for floats of `bits`; from memory, from the disk cache, or traced and compiled now."""
        target = target or host()
        lanes = lanes or target.lanes(bits)
        if (bits, lanes, target) not in self._built:
            names = [f"{type(a).__name__} {a.name} {getattr(a, 'writable', '')}" for a in self.arguments]
            key = cache.key(self.name, self.key, bits, lanes, self.unroll, target, *names)
            entry = cache.load(key)
            if entry is None:
                entry, code = self.compile(bits, lanes, target)
                cache.store_link(key, code)
            self._built[bits, lanes, target] = Executable(self.arguments, lanes, target, entry)
        return self._built[bits, lanes, target]

    def trace(self, bits: int, lanes: int) -> tuple[Module, list]:
        """The LLVM IR of the body, and the sizes of its workspaces as expressions of the integer arguments."""
        module = Module(bits, lanes, self.unroll)
        graph = Graph(module)
        with graph:
            self.body(**{a.name: _symbol(graph, a) for a in self.arguments})
        parameters = ["i64 %first", "i64 %last", "ptr noalias %scratch"]
        for a in self.arguments:
            parameters += _parameters(a, module.types)
        prologue = [*_lane_rows(self.arguments, module.types), *_workspaces(graph.allocations, module.types)]
        module.define("body", parameters, prologue, graph)
        return module, [count for _, count in graph.allocations]

    def compile(self, bits: int, lanes: int, target: Target) -> tuple[cache.Entry, str]:
        """The machine code, from the disk cache if the same LLVM IR was compiled before; and its key there."""
        with _tracing, _without_garbage_collection():
            module, scratch = self.trace(bits, lanes)
        text = "\n".join([module.text(), _entry(self.arguments, module.types, target)])
        key = cache.key_of_code(text, target, scratch, module.operations)
        entry = cache.load(key)
        if entry is None:
            entry = cache.Entry(_machine_code(text, target), scratch, module.operations)
            cache.store(key, entry)
        return entry, key


def _machine_code(text: str, target: Target) -> bytes:
    """The object file of LLVM IR."""
    import llvmlite.binding as llvm

    machine = target.machine()
    parsed = llvm.parse_assembly(text)
    parsed.verify()
    # The graph is folded and shared already: memory to registers and dead branches are all that is left to do.
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.run(parsed, builder)
    return machine.emit_object(parsed)


_tracing = threading.Lock()  # two threads that trace at once only wait for each other; while one traces, LLVM may work


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A trace is a hundred thousand small objects that all stay: looking for garbage among them takes half its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Executable:
    """A loaded kernel: call it through `launch.run`."""

    def __init__(self, arguments: Sequence[Argument], lanes: int, target: Target, entry: cache.Entry) -> None:
        import llvmlite.binding as llvm

        self.arguments, self.lanes = tuple(arguments), lanes
        self.operations = entry.operations
        self._scratch = entry.scratch
        self._sizes: dict[tuple[int, ...], int] = {}
        self.layout = [(a.name, type(a)) for a in self.arguments]
        self.integers = [a.name for a in self.arguments if isinstance(a, Integer)]
        words = sum(3 if isinstance(a, Rows | Picked) else 1 for a in self.arguments)
        self.block = struct.Struct(f"{words}q").pack  # of words, as `call` wants them
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target.machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(entry.code))
        self._engine.finalize_object()
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.call = signature(self._engine.get_function_address("entry"))

    def scratch_bytes(self, integers: tuple[int, ...]) -> int:
        """Scratch memory that the body needs for these values of its integer arguments."""
        size = self._sizes.get(integers)
        if size is None:
            names = dict(zip(self.integers, integers, strict=True))
            elements = sum(_evaluate(expression, names) for expression in self._scratch)
            size = self._sizes[integers] = elements * self.lanes * 8
        return size


# ---------------------------------------------------------------------------------------------- arguments


def _symbol(graph: Graph, argument: Argument) -> Any:
    name = argument.name
    match argument:
        case Rows():
            return Array(Storage(name, "rows", argument.writable), graph.add("parameter", (f"{name}.step",), "i"))
        case Picked():
            return Array(Storage(name, "rows", False))
        case Packs():
            return Array(Storage(name, "lanes", argument.writable))
        case Table():
            return Array(Storage(name, "table", False))
        case Ints():
            return Array(Storage(name, "ints", argument.writable))
        case Integer():
            return graph.add("parameter", (name,), "i")
        case Number():
            return graph.add("parameter", (name,), "f")


def _parameters(argument: Argument, types: Types) -> list[str]:
    name = argument.name
    match argument:
        case Rows():
            return [f"ptr noalias %{name}", f"i64 %{name}.stride", f"i64 %{name}.step"]
        case Picked():
            return [f"ptr noalias readonly %{name}", f"i64 %{name}.stride", f"ptr noalias readonly %{name}.index"]
        case Packs():
            return [f"ptr noalias %{name}"]
        case Table() | Ints():
            return [
                f"ptr noalias readonly %{name}" if not getattr(argument, "writable", False) else f"ptr noalias %{name}"
            ]
        case Integer():
            return [f"i64 %{name}"]
        case Number():
            return [f"{types.of['f']} %{name}"]


def _lane_rows(arguments: Sequence[Argument], types: Types) -> list[str]:
    """Each lane's environment, and where its rows start."""
    lines = ["%last.valid = sub i64 %last, 1", f"%pack = sdiv i64 %first, {types.lanes}"]
    for lane in range(types.lanes):
        lines += [
            f"%lane.{lane} = add i64 %first, {lane}",
            f"%beyond.{lane} = icmp sgt i64 %lane.{lane}, %last.valid",
            f"%environment.{lane} = select i1 %beyond.{lane}, i64 %last.valid, i64 %lane.{lane}",
        ]
        for a in arguments:
            if isinstance(a, Rows | Picked):
                row = f"%environment.{lane}"
                if isinstance(a, Picked):
                    lines += [
                        f"%{a.name}.place.{lane} = getelementptr i64, ptr %{a.name}.index, i64 {row}",
                        f"%{a.name}.number.{lane} = load i64, ptr %{a.name}.place.{lane}, align 8",
                    ]
                    row = f"%{a.name}.number.{lane}"
                lines += [
                    f"%{a.name}.row.{lane} = mul i64 {row}, %{a.name}.stride",
                    f"%{a.name}.{lane} = getelementptr {types.element}, ptr %{a.name}, i64 %{a.name}.row.{lane}",
                ]
    return lines


def _entry(arguments: Sequence[Argument], types: Types, target: Target) -> str:
    """``entry(arguments, scratch, first, last)``: unpack the arguments, loop over the packs of [first, last)."""
    lines: list[str] = []
    words: list[str] = []
    for a in arguments:
        for parameter in _parameters(a, types):
            slot, value = f"%slot{len(words)}", f"%word{len(words)}"
            type = parameter.split(" noalias")[0] if parameter.startswith("ptr") else parameter.rsplit(" %", 1)[0]
            lines.append(f"{slot} = getelementptr i64, ptr %arguments, i64 {len(words)}")
            if isinstance(a, Number):
                lines += _load_number(slot, value, types)
            else:
                lines.append(f"{value} = load {type}, ptr {slot}, align 8")
            words.append(f"{type} {value}")
    before, after, declarations = _denormals(target)
    text = "\n  ".join(lines + before)
    restore = "\n  ".join([*after, "ret void"])
    return f"""define void @entry(ptr %arguments, ptr %scratch, i64 %first, i64 %last) nounwind {{
start:
  {text}
  br label %head
head:
  %pack = phi i64 [%first, %start], [%next, %work]
  %more = icmp slt i64 %pack, %last
  br i1 %more, label %work, label %done
work:
  call void @body({", ".join(["i64 %pack", "i64 %last", "ptr %scratch", *words])})
  %next = add nsw i64 %pack, {types.lanes}
  br label %head
done:
  {restore}
}}
{declarations}"""


def _load_number(slot: str, value: str, types: Types) -> list[str]:
    lines = [f"{value}.64 = load double, ptr {slot}, align 8"]
    narrow = f"{value}.64"
    if types.bits == 32:
        narrow = f"{value}.32"
        lines.append(f"{narrow} = fptrunc double {value}.64 to float")
    if types.lanes == 1:
        return [*lines, f"{value} = fadd {types.element} {narrow}, {types.constant(-0.0, 'f')}"]
    vector = types.of["f"]
    return [
        *lines,
        f"{value}.0 = insertelement {vector} poison, {types.element} {narrow}, i32 0",
        f"{value} = shufflevector {vector} {value}.0, {vector} poison, <{types.lanes} x i32> zeroinitializer",
    ]


def _denormals(target: Target) -> tuple[list[str], list[str], str]:
    """Flush denormals to zero while the kernel runs (x86: FTZ and DAZ of MXCSR), then restore the caller's mode."""
    if not target.flushes_denormals:
        return [], [], ""
    before = [
        "%mode = alloca [2 x i32], align 4",
        "%fast = getelementptr i32, ptr %mode, i64 1",
        "call void @llvm.x86.sse.stmxcsr(ptr %mode)",
        "%mode.old = load i32, ptr %mode, align 4",
        f"%mode.new = or i32 %mode.old, {0x8040}",
        "store i32 %mode.new, ptr %fast, align 4",
        "call void @llvm.x86.sse.ldmxcsr(ptr %fast)",
    ]
    after = ["call void @llvm.x86.sse.ldmxcsr(ptr %mode)"]
    return before, after, "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)"


# ---------------------------------------------------------------------------------------------- workspaces


def _workspaces(allocations: list[tuple[str, Any]], types: Types) -> list[str]:
    """Where each workspace starts in the scratch memory: one after the other."""
    lines: list[str] = []
    offset = "0"
    for name, size in allocations:
        lines.append(f"%{name} = getelementptr inbounds {types.of['f']}, ptr %scratch, i64 {offset}")
        count = _emit_size(size, lines)
        lines.append(f"%{name}.end = add nsw i64 {offset}, {count}")
        offset = f"%{name}.end"
    return lines


def _emit_size(expression: Any, lines: list[str]) -> str:
    if isinstance(expression, int):
        return str(expression)
    if isinstance(expression, str):
        return f"%{expression}"
    a, b = (_emit_size(x, lines) for x in expression[1:])
    name = f"%size{len(lines)}"
    lines.append(f"{name} = {expression[0][1:]} i64 {a}, {b}")  # add, sub or mul
    return name


def _evaluate(expression: Any, integers: dict[str, int]) -> int:
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return integers[expression]
    op, a, b = expression[0], _evaluate(expression[1], integers), _evaluate(expression[2], integers)
    return a + b if op == "iadd" else a - b if op == "isub" else a * b
