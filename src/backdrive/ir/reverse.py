"""Reverse-mode derivatives of straight-line functions.

The function is traced into a scratch graph and differentiated there. The derivative is then replayed in the caller's
context: in a kernel, where it shares nodes with the surrounding code and folds with its constants, or on plain floats.
Loops are not differentiated: the caller reverses the loop and differentiates its body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import graph as g
from . import scalar
from .graph import Graph, TraceError, Value
from .types import Scalar

if TYPE_CHECKING:
    from typing_extensions import TypeIs


def vjp(
    function: Callable[..., Sequence[Scalar]], inputs: Sequence[Scalar], seeds: Sequence[Scalar]
) -> tuple[list[Scalar], list[Scalar]]:
    """The vector-Jacobian product of a function.

    Returns outputs = function(*inputs), and the cotangents of the inputs: the gradient of Σₖ seeds[k] outputs[k].
    Values that `function` captures from its surroundings are treated as constants.
    """
    tape = Graph(scratch=True)
    with tape:
        leaves = [tape.add("leaf", (k,), "f") for k in range(len(inputs))]
        outputs = list(function(*leaves))
        if len(outputs) != len(seeds):
            raise TraceError(f"vjp: {len(outputs)} outputs but {len(seeds)} seeds")
        bars: dict[int, Scalar] = {}
        for y, seed in zip(outputs, seeds, strict=True):
            _accumulate(tape, bars, y, seed)
        for index in range(len(tape.nodes) - 1, -1, -1):
            if index in bars:
                _propagate(tape, index, bars)
        gradient = [bars.get(x.index, 0.0) for x in leaves]
    values = replay(tape, inputs, [*outputs, *gradient])
    return values[: len(outputs)], values[len(outputs) :]


def _on_tape(x: object, tape: Graph) -> TypeIs[Value]:
    return isinstance(x, Value) and x.graph is tape


def _accumulate(tape: Graph, bars: dict[int, Scalar], x: Scalar, bar: Scalar) -> None:
    """Add to the cotangent of a node; the cotangents of constants are not needed."""
    if _on_tape(x, tape):
        bars[x.index] = bars[x.index] + bar if x.index in bars else bar


def _propagate(tape: Graph, index: int, bars: dict[int, Scalar]) -> None:
    """Propagate the cotangent of node `index` to its arguments."""
    op, args, _ = tape.nodes[index]
    y, bar = Value(tape, index, "f", tape.body), bars[index]

    def give(*contributions: tuple[Scalar, Scalar]) -> None:
        for x, contribution in contributions:
            _accumulate(tape, bars, x, contribution)

    if op == "leaf":
        return
    a, b = (*args, None)[:2]
    if op == "add":
        give((a, bar), (b, bar))
    elif op == "sub":
        give((a, bar), (b, -bar))
    elif op == "mul":
        give((a, bar * b), (b, bar * a))
    elif op == "div":
        scaled = bar / b
        give((a, scaled), (b, -(scaled * y)))
    elif op == "neg":
        give((a, -bar))
    elif op == "sqrt":
        give((a, 0.5 * bar / y))
    elif op == "sin":
        give((a, bar * scalar.cos(a)))
    elif op == "cos":
        give((a, -(bar * scalar.sin(a))))
    elif op == "tanh":
        give((a, bar * (1.0 - y * y)))
    elif op == "atan2":
        scaled = bar / (a * a + b * b)
        give((a, scaled * b), (b, -(scaled * a)))
    elif op == "abs":
        give((a, scalar.select(a < 0.0, -bar, bar)))
    elif op in ("min", "max"):
        first = a < b if op == "min" else b < a
        give((a, scalar.select(first, bar, 0.0)), (b, scalar.select(first, 0.0, bar)))
    elif op == "select":
        give((b, scalar.select(a, bar, 0.0)), (args[2], scalar.select(a, 0.0, bar)))
    elif op not in ("floor", "round", "to_float"):  # piecewise constant: the derivative is zero
        raise TraceError(f"vjp through '{op}': it has no derivative rule")


_REPLAY: dict[str, Callable[..., Any]] = {
    "add": g.add,
    "sub": g.sub,
    "mul": g.mul,
    "div": g.div,
    "neg": g.neg,
    "sqrt": scalar.sqrt,
    "sin": scalar.sin,
    "cos": scalar.cos,
    "tanh": scalar.tanh,
    "atan2": scalar.atan2,
    "abs": scalar.absolute,
    "floor": scalar.floor,
    "round": scalar.nearest,
    "min": scalar.minimum,
    "max": scalar.maximum,
    "select": scalar.select,
    "flt": lambda a, b: a < b,
    "fle": lambda a, b: a <= b,
    "feq": lambda a, b: a == b,
    "and": lambda a, b: g.logic("and", a, b),
    "or": lambda a, b: g.logic("or", a, b),
    "not": g.invert,
    "finite": scalar.is_finite,
    # Operations on integers that the function captures:
    "any": scalar.any_lane,
    "to_float": scalar.to_float,
    "iadd": g.add,
    "isub": g.sub,
    "imul": g.mul,
    "idiv": lambda a, b: a // b,
    "irem": lambda a, b: a % b,
    "imin": scalar.minimum,
    "ilt": lambda a, b: a < b,
    "ile": lambda a, b: a <= b,
    "ieq": lambda a, b: a == b,
}


def replay(tape: Graph, inputs: Sequence[Scalar], wanted: Sequence[Scalar]) -> list[Scalar]:
    """Evaluate nodes of a scratch graph in the current graph, or on floats, in the order in which they were traced."""

    live: set[int] = set()
    pending = [x.index for x in wanted if _on_tape(x, tape)]
    while pending:
        index = pending.pop()
        if index not in live:
            live.add(index)
            pending += [a.index for a in tape.nodes[index].args if _on_tape(a, tape)]
    done: dict[int, Scalar] = {}
    for index in sorted(live):
        op, args, _ = tape.nodes[index]
        values = [done[a.index] if _on_tape(a, tape) else a for a in args]
        done[index] = inputs[args[0]] if op == "leaf" else _REPLAY[op](*values)
    return [done[x.index] if _on_tape(x, tape) else x for x in wanted]
