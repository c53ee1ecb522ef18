"""How arguments, rows and workspaces reach the code of a kernel (the binary interface), as LLVM IR text.

The caller calls ``entry(arguments, scratch, first, last)``: the arguments as a block of words of eight bytes, the
address of the scratch memory, and the range of environments. The entry point loads the words and calls ``body`` for
each pack with the words as parameters; the body starts by computing where each lane's rows are. Before the scratch
memory there is a header with the address of the call's pulse (`interrupts`), and with a word by which the body tells
that the environments of its pack are to be computed one by one (`take_apart`): the entry point then calls it for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.subroutine import Subroutine
from ..base import Argument, Integer, Ints, Number, Order, Packs, Picked, Rows, Table
from .target import Target
from .types import LaneTypes

HEADER = 64
"""Bytes of the header before the scratch memory."""

APART = 8
"""Where in the header the word is by which a body tells that it gave its pack up."""

_DEFAULT_MODE = 0x1F80  # of MXCSR
_FLUSH_DENORMALS = 0x8040  # bits FTZ (flush to zero) and DAZ (denormals are zero) of x86's MXCSR register


def subroutine_parameters(sub: Subroutine, types: LaneTypes) -> list[str]:
    """The parameters of a subroutine's function: arrays by address, values in registers, and the scratch memory, for
    its header."""
    given = [
        f"ptr noalias %a{k}" if kind in types.memory else f"{types.of[kind]} %a{k}" for k, kind in enumerate(sub.kinds)
    ]
    return [*given, "ptr %scratch"]


def body_parameters(arguments: Sequence[Argument], types: LaneTypes) -> list[str]:
    """The parameters of the body: the pack's first environment, the end of the range, scratch memory, the words."""
    result = ["i64 %first", "i64 %last", "ptr noalias %scratch"]
    for a in arguments:
        result += _parameters(a, types)
    return result


def _parameters(argument: Argument, types: LaneTypes) -> list[str]:
    """One parameter for each word of an argument."""
    name = argument.name
    match argument:
        case Rows():
            return [f"ptr noalias %{name}", f"i64 %{name}.stride", f"i64 %{name}.step"]
        case Picked():
            return [f"ptr noalias readonly %{name}", f"i64 %{name}.stride", f"ptr noalias readonly %{name}.index"]
        case Packs():
            return [f"ptr noalias %{name}"]
        case Order():
            return [f"ptr noalias readonly %{name}"]
        case Table() | Ints():
            return [
                f"ptr noalias readonly %{name}" if not getattr(argument, "writable", False) else f"ptr noalias %{name}"
            ]
        case Integer():
            return [f"i64 %{name}"]
        case Number():
            return [f"{types.of['f']} %{name}"]


def lane_rows(arguments: Sequence[Argument], types: LaneTypes) -> list[str]:
    """Instructions that compute each lane's environment, and the addresses of its rows."""
    lines = ["%last.valid = sub i64 %last, 1", f"%pack = sdiv i64 %first, {types.lanes}"]
    order = next((f"%{a.name}" for a in arguments if isinstance(a, Order)), None)
    if order is not None:
        lines.append(f"%in.order = icmp ne ptr {order}, null")
    for lane in range(types.lanes):
        lines += [
            f"%lane.{lane} = add i64 %first, {lane}",
            f"%beyond.{lane} = icmp sgt i64 %lane.{lane}, %last.valid",
            f"%{'environment' if order is None else 'place'}.{lane} = "
            f"select i1 %beyond.{lane}, i64 %last.valid, i64 %lane.{lane}",
        ]
        if order is not None:  # without an order, some readable memory is read for nothing
            lines += [
                f"%order.{lane} = getelementptr i64, ptr {order}, i64 %place.{lane}",
                f"%readable.{lane} = select i1 %in.order, ptr %order.{lane}, ptr %scratch",
                f"%number.{lane} = load i64, ptr %readable.{lane}, align 8",
                f"%environment.{lane} = select i1 %in.order, i64 %number.{lane}, i64 %place.{lane}",
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


def entry(arguments: Sequence[Argument], types: LaneTypes, target: Target) -> str:
    """The entry point: load the words of the arguments, and call the body for each pack of [first, last)."""
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
  %header = getelementptr i8, ptr %scratch, i64 -{HEADER}
  %pulse = load ptr, ptr %header, align 8
  %apart = getelementptr i8, ptr %header, i64 {APART}
  br label %head
head:
  %pack = phi i64 [%first, %start], [%next, %work], [%next, %ask]
  %single = phi i1 [false, %start], [%singles, %work], [%singles, %ask]
  %until = phi i64 [%last, %start], [%end, %work], [%end, %ask]
  %more = icmp slt i64 %pack, %last
  br i1 %more, label %work, label %done
work:
  %after = add nsw i64 %pack, {types.lanes}
  %alone = add nsw i64 %pack, 1
  %stop = select i1 %single, i64 %alone, i64 %last
  store i64 0, ptr %apart, align 8
  call void @body({", ".join(["i64 %pack", "i64 %stop", "ptr %scratch", *words])})
  %given.up = load i64, ptr %apart, align 8
  store i64 0, ptr %apart, align 8
  %was.given.up = icmp ne i64 %given.up, 0
  %not.single = xor i1 %single, true
  %begins = and i1 %was.given.up, %not.single
  %onward = select i1 %single, i64 %alone, i64 %after
  %next = select i1 %begins, i64 %pack, i64 %onward
  %end = select i1 %begins, i64 %after, i64 %until
  %within = icmp slt i64 %next, %end
  %goes.on = and i1 %single, %within
  %singles = or i1 %begins, %goes.on
  %flag = load volatile i64, ptr %pulse, align 8
  %quiet = icmp eq i64 %flag, 0
  br i1 %quiet, label %head, label %ask
ask:
  %ends = call i1 @interrupted(ptr %scratch)
  br i1 %ends, label %done, label %head
done:
  {restore}
}}
{_interrupted(target)}
{declarations}"""


def _interrupted(target: Target) -> str:
    """The function that tells the body whether the call must end; it asks only where the flag of the pulse is set.

    Python runs with the mode for floating-point numbers that it is used to.
    """
    before, after = "", ""
    if target.flushes_denormals:
        before = f"""store i32 {_DEFAULT_MODE}, ptr %usual, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %mode)
  call void @llvm.x86.sse.ldmxcsr(ptr %usual)"""
        after = "call void @llvm.x86.sse.ldmxcsr(ptr %mode)"
    return f"""define internal i1 @interrupted(ptr %scratch) noinline nounwind {{
start:
  %mode = alloca [2 x i32], align 4
  %usual = getelementptr i32, ptr %mode, i64 1
  %header = getelementptr i8, ptr %scratch, i64 -{HEADER}
  %apart = getelementptr i8, ptr %header, i64 {APART}
  %given.up = load i64, ptr %apart, align 8
  %stays = icmp eq i64 %given.up, 0
  br i1 %stays, label %look, label %yes
look:
  %pulse = load ptr, ptr %header, align 8
  %flag = load volatile i64, ptr %pulse, align 8
  %quiet = icmp eq i64 %flag, 0
  br i1 %quiet, label %no, label %set
no:
  ret i1 false
set:
  %slot = getelementptr i64, ptr %pulse, i64 1
  %function = load ptr, ptr %slot, align 8
  %nobody = icmp eq ptr %function, null
  br i1 %nobody, label %yes, label %ask
yes:
  ret i1 true
ask:
  {before}
  %answer = call i64 %function()
  {after}
  %ends = icmp ne i64 %answer, 0
  ret i1 %ends
}}"""


def _load_number(slot: str, value: str, types: LaneTypes) -> list[str]:
    """Instructions that load a float64, convert it to the kernel's precision, and broadcast it to all lanes."""
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
    """Instructions that flush denormals to zero while the kernel runs, that restore the caller's mode, declarations."""
    if not target.flushes_denormals:
        return [], [], ""
    before = [
        "%mode = alloca [2 x i32], align 4",
        "%fast = getelementptr i32, ptr %mode, i64 1",
        "call void @llvm.x86.sse.stmxcsr(ptr %mode)",
        "%mode.old = load i32, ptr %mode, align 4",
        f"%mode.new = or i32 %mode.old, {_FLUSH_DENORMALS}",
        "store i32 %mode.new, ptr %fast, align 4",
        "call void @llvm.x86.sse.ldmxcsr(ptr %fast)",
    ]
    after = ["call void @llvm.x86.sse.ldmxcsr(ptr %mode)"]
    return before, after, "declare void @llvm.x86.sse.stmxcsr(ptr)\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)"


def workspaces(allocations: list[tuple[str, Any]], types: LaneTypes) -> list[str]:
    """Instructions that compute where each workspace starts in the scratch memory: one follows the other."""
    lines: list[str] = []
    offset = "0"
    for name, size in allocations:
        lines.append(f"%{name} = getelementptr inbounds {types.of['f']}, ptr %scratch, i64 {offset}")
        count = _emit_size(size, lines)
        lines.append(f"%{name}.end = add nsw i64 {offset}, {count}")
        offset = f"%{name}.end"
    return lines


def _emit_size(expression: Any, lines: list[str]) -> str:
    """The name of the value of a size expression; the instructions that compute it are appended to `lines`."""
    if isinstance(expression, int):
        return str(expression)
    if isinstance(expression, str):
        return f"%{expression}"
    a, b = (_emit_size(x, lines) for x in expression[1:])
    name = f"%size{len(lines)}"
    lines.append(f"{name} = {expression[0][1:]} i64 {a}, {b}")  # add, sub or mul
    return name


def evaluate_size(expression: Any, integers: dict[str, int]) -> int:
    """The value of a size expression for values of the integer arguments."""
    if isinstance(expression, int):
        return expression
    if isinstance(expression, str):
        return integers[expression]
    op, a, b = expression[0], evaluate_size(expression[1], integers), evaluate_size(expression[2], integers)
    return a + b if op == "iadd" else a - b if op == "isub" else a * b
