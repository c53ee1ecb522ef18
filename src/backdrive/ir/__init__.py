"""The traced language that all physics is written in.

Physics is plain Python functions on scalars. Called with floats they simply run. Called with traced values they record
a graph, from which a backend generates a kernel. The words of this language:

lane            One environment of a batch. A SIMD register holds one number for each of its lanes, and all lanes of a
                register execute the same instructions. A number that is the same in all lanes is called uniform.
pack            The environments that share a register; a kernel's body computes one pack.
trace           The graph of operations that a function records when it is called with traced values (`Graph`,
                `Value`). Constants are folded, common subexpressions are shared, unused results are dropped.
region          A straight piece of code: the body of the kernel, of a loop, or of a branch. Regions nest. A value can
                be used only in its own region and in those nested in it.
rolled loop     `loop(n)` with a traced n: one region that runs n times. A Python variable rebound in it does not carry
                its value to the next pass; memory does.
unrolled loop   `loop(n)` with an int n: the body is traced n times, with the indices as constants. A specialised kernel
                unrolls its loops over links, contacts and rows, because it knows the sizes of its model.
workspace       An array for intermediate results: scratch memory in a rolled kernel, plain names for values
                (registers) in a specialised one. `memory` is scratch memory in both.
carry           A few numbers, in registers, that a rolled loop carries from one pass to the next.
record          Consecutive elements of an array that describe one thing, such as a link: `array.get(i, width)`.
                Homogeneous records (`records`) are written by the passes of one rolled loop, which all run the same
                code: a number that is a constant in one is that constant in all, and takes no memory.
subroutine      A function that is compiled once per kernel and called, instead of being inlined at every use.

Modules: `types` has the protocols that physics is annotated with; `graph` and `scalar` are arithmetic; `arrays`,
`registers`, `records` and `memory` are arrays; `control` is loops and branches; `subroutine` is calls; `reverse`
generates vector-Jacobian products; `fuse` chooses fused multiply-adds.
"""

from .arrays import Floats, Known, Masked
from .control import interruptible, leave, loop, rolled, switch, take_apart, when, while_any
from .graph import Graph, TraceError, TraceTarget, Value, is_constant, traced
from .memory import carry, counters, lane_count, memory, pack_number, picked, records, workspace
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
from .subroutine import Subroutine, subroutine
from .types import Index, IndexArray, Mask, Scalar, ScalarArray, TimedArray

__all__ = [
    "Floats", "Graph", "Index", "IndexArray", "Known", "Mask", "Masked", "Scalar", "ScalarArray", "Subroutine",
    "TimedArray", "TraceError", "TraceTarget", "Value", "absolute", "any_lane", "atan2", "carry", "clip", "cos",
    "counters", "floor", "interruptible", "is_constant", "is_finite", "lane_count", "leave", "loop", "maximum",
    "memory", "minimum", "nearest", "pack_number", "picked", "records", "replay", "rolled", "select", "sin",
    "sincos", "sqrt", "subroutine", "switch", "take_apart", "tanh", "to_float", "traced", "vjp", "when",
    "while_any", "workspace",
]  # fmt: skip
