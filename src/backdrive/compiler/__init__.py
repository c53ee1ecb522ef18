"""Python equations to machine code: traced scalars, a small graph, LLVM, SIMD over environments.

`graph` and `scalar` are what equations are written in, `memory` and `control` the arrays and loops around them,
`reverse` their derivatives; `fuse`, `llvm`, `target`, `kernel` and `cache` make machine code, `launch` runs it.
"""

from .control import leave, loop, switch, when, while_any
from .graph import Graph, Scalar, TraceError, Value, is_constant, traced
from .kernel import Executable, Integer, Ints, Kernel, Number, Packs, Picked, Rows, Table, subroutine
from .launch import run
from .memory import Floats, Known, Masked, carry, counters, lane_count, memory, pack_number, picked, records, workspace
from .reverse import replay, vjp
from .scalar import (
    absolute,
    any_lane,
    atan2,
    clip,
    cos,
    floor,
    is_finite,
    maximum,
    minimum,
    nearest,
    select,
    sin,
    sincos,
    sqrt,
    tanh,
    to_float,
)

__all__ = [
    "Executable", "Floats", "Graph", "Integer", "Ints", "Kernel", "Known", "Masked", "Number", "Packs", "Picked",
    "Rows", "Scalar", "Table", "TraceError", "Value", "absolute", "any_lane", "atan2", "carry", "clip", "cos",
    "counters", "floor", "is_constant", "is_finite", "lane_count", "leave", "loop", "maximum", "memory", "minimum",
    "nearest", "pack_number", "picked", "records", "replay", "run", "select", "sin", "sincos", "sqrt", "subroutine",
    "switch", "tanh", "to_float", "traced", "vjp", "when", "while_any", "workspace",
]  # fmt: skip
