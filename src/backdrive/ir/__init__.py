"""The traced language that all physics is written in.

`graph` and `scalar` are what equations are written in, `memory` and `control` the arrays and loops around them,
`reverse` generates their vector-Jacobian products, and `fuse` chooses fused multiply-adds. Called on floats, the same
functions simply run.
"""

from .control import leave, loop, switch, when, while_any
from .graph import Graph, TraceError, Value, is_constant, traced
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
from .types import Index, IndexArray, Mask, Scalar, ScalarArray, TimedArray

__all__ = [
    "Floats", "Graph", "Index", "IndexArray", "Known", "Mask", "Masked", "Scalar", "ScalarArray", "TimedArray",
    "TraceError", "Value", "absolute", "any_lane", "atan2", "carry", "clip", "cos", "counters", "floor", "is_constant",
    "is_finite", "lane_count", "leave", "loop", "maximum", "memory", "minimum", "nearest", "pack_number", "picked",
    "records", "replay", "select", "sin", "sincos", "sqrt", "switch", "tanh", "to_float", "traced", "vjp", "when",
    "while_any", "workspace",
]  # fmt: skip
