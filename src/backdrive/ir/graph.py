"""Traced scalars: the graph that equations build when they are called with symbols instead of floats.

A `Value` is one scalar of the computation; in a running kernel it is one SIMD register whose lanes are environments.
Arithmetic on values appends nodes to the current `Graph`. Python numbers are constants. A node whose result is known
(x + 0, 1 * x, x - x, ...) is never created, and a node that computes the same as an earlier one is shared with it
(hash-consing).

Types of values: ``f`` a float of every lane, ``b`` a condition of every lane (mask), ``i`` an integer that all lanes
share (uniform), ``c`` a condition that all lanes share.

Control flow is structured: a graph is a tree of regions (the bodies of loops and branches), and a value can be used
only in its own region and in those nested in it. State that outlives a region lives in memory (`memory.py`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from .subroutine import Subroutine

Operand: TypeAlias = "Value | float"
"""A traced value or a Python number (of any type: an int, a float, a bool)."""


class TraceError(Exception):
    """A kernel's Python source does something that cannot be traced."""


class TraceTarget(Protocol):
    """The properties of the code being generated that traced functions may depend on. A backend provides them."""

    @property
    def bits(self) -> int:
        """Bits of a float: 32 or 64."""

    @property
    def lanes(self) -> int:
        """Environments per SIMD register."""

    @property
    def unroll(self) -> bool:
        """Whether the kernel is specialised to one model: sizes are Python ints, and workspaces are registers."""

    def subroutine(self, sub: Subroutine, /) -> str:
        """The name under which the code of a subroutine can be called; the code is generated on first use."""


class Node(NamedTuple):
    """One operation of a graph: its name, its arguments (values, numbers, storages, regions) and its result's type."""

    op: str
    args: tuple[Any, ...]
    type: str | None


class Region:
    """A straight piece of code: the indices of its nodes, in order. `open` while code is traced into it."""

    def __init__(self, loop: bool = False) -> None:
        self.nodes: list[int] = []
        self.open = True
        self.loop = loop


class _Tracing(threading.local):
    graph: Graph | None = None


_tracing = _Tracing()


class _PerThread(type):
    """Makes ``Graph.current`` a property of the class: every thread traces into its own graph."""

    @property
    def current(cls) -> Graph | None:
        return _tracing.graph

    @current.setter
    def current(cls, graph: Graph | None) -> None:
        _tracing.graph = graph


class Graph(metaclass=_PerThread):
    """The trace of one function.

    ``Graph.current`` is the graph being traced in this thread; it is None while functions run on plain floats.

    Scratch graphs exist only to be differentiated (`reverse.py`): they have no target and no memory, and keep
    transcendental functions as single nodes whose derivatives are known.
    """

    def __init__(self, target: TraceTarget | None = None, scratch: bool = False) -> None:
        self._target = target
        self.scratch = scratch
        self.nodes: list[Node] = []
        self.body = Region()
        self.regions = [self.body]
        self.loops: list[bool] = []
        """For each loop around the current position, outermost first, whether it is rolled."""
        self.shared: dict[tuple[Any, ...], Value] = {}
        """The node that computes each pure operation, by the operation's name and arguments."""
        self.stored: dict[tuple[str, int | None, int], Operand] = {}
        """The known contents of memory: (name of the array, index of the symbolic offset, static offset) -> value."""
        self.allocations: list[tuple[str, Any]] = []
        """Workspaces in scratch memory: name of the array, and number of elements as a `memory.size_expression`."""
        self.carried: list[tuple[str, int]] = []
        """Small arrays that are kept in registers: name and number of elements."""
        self._outer: Graph | None = None

    @property
    def target(self) -> TraceTarget:
        """The target that this graph is traced for."""
        if self._target is None:
            raise TraceError("this trace has no target: it is not the trace of a kernel")
        return self._target

    def __enter__(self) -> Graph:
        self._outer, Graph.current = Graph.current, self
        return self

    def __exit__(self, error: object, *_: object) -> None:
        Graph.current = self._outer
        if error is None and len(self.regions) > 1:
            raise TraceError("a traced loop or branch is left by break or return: use leave()")

    def add(self, op: str, args: tuple[Any, ...], type: str | None, pure: bool = True) -> Value:
        """Append a node, or return the existing one that computes the same.

        pure: the result depends on nothing but the arguments, so the node may be shared.
        """
        key = None
        if pure:
            key = (op, *[(a.graph, a.index) if isinstance(a, Value) else a for a in args])
            known = self.shared.get(key)
            if known is not None and known.region.open:
                return known
        for a in args:
            if not isinstance(a, Value):
                continue
            if a.graph is not self and not self.scratch:
                raise TraceError(f"a value of another trace is used in '{op}': pass it as an argument")
            if a.graph is self and not a.region.open:
                raise TraceError(
                    f"a value computed inside a loop or branch is used in '{op}' after it: "
                    "a name rebound in a traced loop is not carried, keep the state in memory"
                )
        value = Value(self, len(self.nodes), type, self.regions[-1])
        self.nodes.append(Node(op, args, type))
        self.regions[-1].nodes.append(value.index)
        if key is not None:
            self.shared[key] = value
        return value

    def open_region(self, op: str, args: tuple[Any, ...], type: str | None) -> Value:
        """Start the body of a loop or branch. The contents of memory are unknown from here on."""
        if self.scratch:
            raise TraceError("a loop or branch on a traced value inside a differentiated function")
        self.stored.clear()
        region = Region(op == "for")
        head = self.add(op, (*args, region), type, pure=False)
        self.regions.append(region)
        if region.loop:
            self.loops.append(True)
        return Value(self, head.index, type, region)

    def close_region(self) -> None:
        """End the body of the innermost loop or branch."""
        region = self.regions.pop()
        region.open = False
        if region.loop:
            self.loops.pop()
        self.stored.clear()


class Value:
    """One traced scalar. It takes part in arithmetic like a number, but Python cannot branch on it."""

    __slots__ = ("graph", "index", "region", "type")

    def __init__(self, graph: Graph, index: int, type: str | None, region: Region) -> None:
        self.graph, self.index, self.type, self.region = graph, index, type, region

    @property
    def node(self) -> Node:
        return self.graph.nodes[self.index]

    # Results are `Any`: a value stands for a number, a mask or an index, and folding may return a Python number.
    # fmt: off
    def __add__(self, other: Any) -> Any: return add(self, other)
    def __radd__(self, other: Any) -> Any: return add(other, self)
    def __sub__(self, other: Any) -> Any: return sub(self, other)
    def __rsub__(self, other: Any) -> Any: return sub(other, self)
    def __mul__(self, other: Any) -> Any: return mul(self, other)
    def __rmul__(self, other: Any) -> Any: return mul(other, self)
    def __truediv__(self, other: Any) -> Any: return div(self, other)
    def __rtruediv__(self, other: Any) -> Any: return div(other, self)
    def __floordiv__(self, other: Any) -> Any: return integer_op("idiv", self, other)
    def __mod__(self, other: Any) -> Any: return integer_op("irem", self, other)
    def __neg__(self) -> Any: return neg(self)
    def __lt__(self, other: Any) -> Any: return compare("lt", self, other)
    def __le__(self, other: Any) -> Any: return compare("le", self, other)
    def __gt__(self, other: Any) -> Any: return compare("lt", other, self)
    def __ge__(self, other: Any) -> Any: return compare("le", other, self)
    def __eq__(self, other: Any) -> Any: return compare("eq", self, other)
    def __ne__(self, other: Any) -> Any: return invert(compare("eq", self, other))
    def __and__(self, other: Any) -> Any: return logic("and", self, other)
    def __or__(self, other: Any) -> Any: return logic("or", self, other)
    __rand__, __ror__ = __and__, __or__
    def __invert__(self) -> Any: return invert(self)
    __hash__ = object.__hash__
    # fmt: on

    def __bool__(self) -> bool:
        raise TraceError("Python branches on a traced value: use select(), when() or leave()")

    def __repr__(self) -> str:
        return f"<{self.node.op} #{self.index}>"


def traced(x: object) -> TypeIs[Value]:
    """Whether x is a traced value, and not a Python number."""
    return isinstance(x, Value)


def current() -> Graph:
    """The graph being traced; raises where there is none."""
    graph = _tracing.graph
    if graph is None:
        raise TraceError("a traced value is used outside of a trace")
    return graph


def same(a: object, b: object) -> bool:
    """Whether a and b are known to be equal: the same node, or equal numbers."""
    if traced(a) and traced(b):
        return a.graph is b.graph and a.index == b.index
    return not traced(a) and not traced(b) and a == b


def is_constant(x: object, number: float) -> bool:
    """Whether x is a Python number (not traced) equal to `number`."""
    return not isinstance(x, Value) and x == number


def argument_of(x: object, op: str) -> tuple[Any, ...] | None:
    """The arguments of x if it is a node `op` of the current graph, else None."""
    if isinstance(x, Value):
        node = x.graph.nodes[x.index]
        if node.op == op and x.graph is _tracing.graph:
            return node.args
    return None


def _is_integer(a: object, b: object) -> bool:
    """Whether one of the operands is a traced integer."""
    return (isinstance(a, Value) and a.type == "i") or (isinstance(b, Value) and b.type == "i")


def _check_integers(op: str, *args: object) -> None:
    if not all(a.type == "i" if traced(a) else hasattr(a, "__index__") for a in args):
        raise TraceError(f"'{op}' of an integer and something else: use to_float()")


def _ordered(a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """The arguments of a commutative operation in a canonical order, so that a·b and b·a share one node."""
    if not isinstance(b, Value):
        return b, a
    return (b, a) if isinstance(a, Value) and a.index > b.index else (a, b)


# Arithmetic. On finite numbers every folding rule is exact (up to the sign of zero), except x * (1 / x) = 1.


def add(a: Operand, b: Operand) -> Operand:
    if not traced(a) and not traced(b):
        return a + b
    if is_constant(a, 0):
        return b
    if is_constant(b, 0):
        return a
    if _is_integer(a, b):
        return _add_integers(a, b)
    if (x := argument_of(b, "neg")) is not None:
        return sub(a, x[0])
    if (x := argument_of(a, "neg")) is not None:
        return sub(b, x[0])
    return current().add("add", _ordered(a, b), "f")


def _add_integers(a: Operand, b: Operand) -> Operand:
    _check_integers("+", a, b)
    if not traced(a):
        a, b = b, a
    if not traced(b) and (x := argument_of(a, "iadd")) is not None and not traced(x[1]):
        return add(x[0], x[1] + b)  # (x + 1) + 2 = x + 3: static offsets stay static
    return current().add("iadd", (a, b), "i")


def sub(a: Operand, b: Operand) -> Operand:
    if not traced(a) and not traced(b):
        return a - b
    if traced(a) and same(a, b):
        return 0 if a.type == "i" else 0.0
    if is_constant(b, 0):
        return a
    if _is_integer(a, b):
        _check_integers("-", a, b)
        return add(a, -b) if not traced(b) else current().add("isub", (a, b), "i")
    if is_constant(a, 0):
        return neg(b)
    if (x := argument_of(b, "neg")) is not None:
        return add(a, x[0])
    return current().add("sub", (a, b), "f")


def mul(a: Operand, b: Operand) -> Operand:
    if not isinstance(a, Value):
        if not isinstance(b, Value):
            return a * b
        a, b = b, a
    if not isinstance(b, Value):  # by a number
        if b == 0:
            return 0 if a.type == "i" else 0.0
        if b == 1:
            return a
        if b == -1:
            return neg(a)
    if _is_integer(a, b):
        return _multiply_integers(a, b)
    for x, y in ((a, b), (b, a)):
        if (z := argument_of(x, "neg")) is not None:
            return neg(mul(z[0], y))
        if (z := argument_of(x, "div")) is not None and is_constant(z[0], 1) and same(z[1], y):
            return 1.0
    return current().add("mul", _ordered(a, b), "f")


def _multiply_integers(a: Operand, b: Operand) -> Operand:
    _check_integers("*", a, b)
    if not traced(b):
        if (x := argument_of(a, "iadd")) is not None and not traced(x[1]):
            return add(mul(x[0], b), x[1] * b)  # (x + 1) * 2 = 2 x + 2: static offsets stay static
        if (x := argument_of(a, "imul")) is not None and not traced(x[0]):
            return mul(x[1], x[0] * b)
    return current().add("imul", _ordered(a, b), "i")


def div(a: Operand, b: Operand) -> Operand:
    if not traced(a) and not traced(b):
        return a / b
    if _is_integer(a, b):
        raise TraceError("'/' of an integer: use // or to_float()")
    if is_constant(a, 0):
        return 0.0
    if is_constant(b, 1):
        return a
    return current().add("div", (a, b), "f")


def neg(a: Operand) -> Operand:
    if not traced(a):
        return -a
    if a.type == "i":
        return current().add("isub", (0, a), "i")
    if (x := argument_of(a, "neg")) is not None:
        return x[0]
    return current().add("neg", (a,), "f")


def integer_op(op: str, a: Operand, b: Operand) -> Value:
    """Division (idiv) and remainder (irem) of non-negative integers, and their minimum (imin)."""
    _check_integers(op, a, b)
    return current().add(op, (a, b), "i")


def compare(relation: str, a: Operand, b: Operand) -> Value | bool:
    """a < b ("lt"), a <= b ("le") or a == b ("eq"): a mask of floats, a uniform condition of integers."""
    if not traced(a) and not traced(b):
        return {"lt": a < b, "le": a <= b, "eq": a == b}[relation]
    if same(a, b):
        return relation != "lt"
    if _is_integer(a, b):
        _check_integers(relation, a, b)
        return current().add("i" + relation, (a, b), "c")
    if relation == "lt" and (is_constant(b, float("-inf")) or is_constant(a, float("inf"))):
        return False  # no number lies beyond an infinite bound
    return current().add("f" + relation, (a, b), "b")


def logic(op: str, a: Value | bool, b: Value | bool) -> Value | bool:
    """The conjunction ("and") or disjunction ("or") of two conditions."""
    if not traced(a) and not traced(b):
        return (a and b) if op == "and" else (a or b)
    if not traced(a):
        a, b = b, a
    if not traced(b):  # x and True = x, x or True = True
        return a if bool(b) == (op == "and") else b
    assert traced(a)
    if a.type != b.type:
        raise TraceError(f"'{op}' of a lane mask and a uniform condition")
    return current().add(op, _ordered(a, b), a.type)


def invert(a: Value | bool) -> Value | bool:
    """The negation of a condition."""
    if not traced(a):
        return not a
    if (x := argument_of(a, "not")) is not None:
        return x[0]
    return current().add("not", (a,), a.type)
