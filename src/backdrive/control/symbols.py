"""Costs as formulas: a torch function is called with symbols in place of tensors, which record its scalar operations.

`Symbols` stand for a small tensor: an array of traced scalars, on which the operators and functions of torch listed
here work as they do on tensors, derivatives included. Any other use raises, and torch evaluates the function instead.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..ir import Graph, Mask, Scalar, TraceError, Value, atan2, clip, cos, select, sin, sqrt, tanh

Array = np.ndarray

MOST_NODES = 4000  # Longer formulas would take longer to compile than they save.
LITERAL = (-1.0, 0.0, 1.0)  # These numbers simplify a formula and become part of it; others are inputs of its kernel.


class Formula:
    """The scalar result of `function`, called with vectors of the given sizes (0: a scalar), recorded on `tape`.

    constants: the numbers in the formula, in the order of their leaves, which come after the leaves of the vectors.
    key: equal for formulas that differ in their constants only.
    """

    def __init__(self, function: Callable[..., Any], sizes: Sequence[int], dtype: torch.dtype) -> None:
        self.tape, self.dtype, self.inputs = Graph(scratch=True), dtype, sum(max(n, 1) for n in sizes)
        self.constants: list[float] = []
        with self.tape, torch.enable_grad():
            vectors, at = [], 0
            for n in sizes:
                scalars = [self._leaf(at + k) for k in range(max(n, 1))]
                at += len(scalars)
                vectors.append(Symbols(self, _array(scalars if n else scalars[0])))
            value = self.array(function(*vectors))
        if value.shape:
            raise TraceError("a cost is one number")
        self.value: Scalar = value.item()
        self.key = (tuple(sizes), tuple(map(_record, self.tape.nodes)), _place(self.value))

    def _leaf(self, number: int) -> Value:
        return self.tape.add("leaf", (number,), "f")

    def constant(self, x: float) -> Scalar:
        if x in LITERAL:
            return x
        self.constants.append(x)
        return self._leaf(self.inputs + len(self.constants) - 1)

    def array(self, x: Any) -> Array:
        """The scalars [*shape] of symbols, numbers, tensors or numpy arrays."""
        if isinstance(x, Symbols):
            return x.array
        if isinstance(x, bool | int | float | np.number):
            return _array(self.constant(float(x)))
        if isinstance(x, Tensor | np.ndarray):
            x = x.detach().cpu() if isinstance(x, Tensor) else torch.from_numpy(x)
            if x.is_complex() or x.numel() > MOST_NODES:
                raise TraceError("too large a constant, or a complex one")
            scalars = [a if x.dtype == torch.bool else self.constant(float(a)) for a in x.flatten().tolist()]
            return _array(scalars).reshape(x.shape)
        raise TraceError(f"no formula of {type(x).__name__}")


def _array(x: Any) -> Array:
    return np.array(x, dtype=object)


def _place(x: Any) -> Any:
    return x.index if isinstance(x, Value) else repr(float(x))  # A string, so that the number 1 differs from node 1.


def _record(node: Any) -> tuple:
    if node.op == "leaf":
        return node.args
    return node.op, *map(_place, node.args)


class Symbols:
    """A tensor of traced scalars."""

    __slots__ = ("array", "formula")
    __array_ufunc__ = None  # Makes numpy defer to the operators below.

    def __init__(self, formula: Formula, array: Array) -> None:
        self.formula, self.array = formula, array

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        return _apply(function.__name__, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name not in FUNCTIONS:
            raise AttributeError(f"no formula with .{name}")
        return lambda *args, **kwargs: _apply(name, (self, *args), kwargs)

    # fmt: off
    shape = property(lambda self: torch.Size(self.array.shape))
    ndim = property(lambda self: self.array.ndim)
    dtype = property(lambda self: self.formula.dtype)
    device = property(lambda self: torch.device("cpu"))
    T = property(lambda self: Symbols(self.formula, self.array.T))
    mT = property(lambda self: _apply("transpose", (self, -1, -2), {}))
    def new_zeros(self, *size: Any) -> Tensor: return torch.zeros(*size, dtype=self.dtype)
    def new_tensor(self, x: Any) -> Tensor: return torch.tensor(x, dtype=self.dtype)
    def __len__(self) -> int: return len(self.array)
    def __iter__(self) -> Any: return iter([self[k] for k in range(len(self))])
    def __bool__(self) -> bool: raise TraceError("Python branches on a symbol")
    __hash__ = object.__hash__
    def __getitem__(self, at: Any) -> Any: return _apply("__getitem__", (self, at), {})
    def __neg__(self) -> Any: return _apply("neg", (self,), {})
    def __add__(self, x: Any) -> Any: return _apply("add", (self, x), {})
    def __sub__(self, x: Any) -> Any: return _apply("sub", (self, x), {})
    def __rsub__(self, x: Any) -> Any: return _apply("sub", (x, self), {})
    def __mul__(self, x: Any) -> Any: return _apply("mul", (self, x), {})
    def __truediv__(self, x: Any) -> Any: return _apply("div", (self, x), {})
    def __rtruediv__(self, x: Any) -> Any: return _apply("div", (x, self), {})
    def __matmul__(self, x: Any) -> Any: return _apply("matmul", (self, x), {})
    def __rmatmul__(self, x: Any) -> Any: return _apply("matmul", (x, self), {})
    def __pow__(self, x: Any) -> Any: return _apply("pow", (self, x), {})
    def __lt__(self, x: Any) -> Any: return _apply("lt", (self, x), {})
    def __le__(self, x: Any) -> Any: return _apply("le", (self, x), {})
    def __gt__(self, x: Any) -> Any: return _apply("gt", (self, x), {})
    def __ge__(self, x: Any) -> Any: return _apply("ge", (self, x), {})
    def __and__(self, x: Any) -> Any: return _apply("logical_and", (self, x), {})
    def __or__(self, x: Any) -> Any: return _apply("logical_or", (self, x), {})
    __rand__, __ror__ = __and__, __or__
    def __invert__(self) -> Any: return _apply("logical_not", (self,), {})
    def __eq__(self, x: Any) -> Any: raise TraceError("symbols are compared for equality")
    __radd__, __rmul__ = __add__, __mul__
    # fmt: on


def _apply(name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
    formula = next(x.formula for x in _flat(args) if isinstance(x, Symbols))
    function = FUNCTIONS.get(name)
    if function is None:
        raise TraceError(f"no formula with {name}")
    if not torch.is_grad_enabled():
        raise TraceError("no_grad(), or a function with a gradient of its own: its derivative is not the formula's")
    found = function(formula, *args, **kwargs)
    if len(formula.tape.nodes) > MOST_NODES:
        raise TraceError("the formula is too long")
    if isinstance(found, list):
        return tuple(Symbols(formula, part) for part in found)
    return Symbols(formula, _array(found) if not isinstance(found, np.ndarray) else found)


def _flat(args: Any) -> Any:
    for x in args:
        if isinstance(x, tuple | list):
            yield from _flat(x)
        else:
            yield x


def _elementwise(function: Callable[..., Scalar], count: int) -> Callable[..., Any]:
    over = np.frompyfunc(function, count, 1)

    def apply(formula: Formula, *args: Any) -> Any:
        if len(args) != count:
            raise TraceError("other arguments than expected")
        return over(*map(formula.array, args))

    return apply


def _shaped(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda formula, x, *args, **kwargs: function(formula.array(x), *args, **kwargs)


# At a kink, the derivative is torch's: 0 for |x| at 0, and one half for each argument of a maximum of equal numbers.


def _absolute(x: Scalar) -> Scalar:
    return select(x > 0.0, x, select(x < 0.0, -x, 0.0))


def _minimum(a: Scalar, b: Scalar) -> Scalar:
    return select(a < b, a, select(b < a, b, 0.5 * (a + b)))


def _maximum(a: Scalar, b: Scalar) -> Scalar:
    return select(a > b, a, select(b > a, b, 0.5 * (a + b)))


def _clamp(formula: Formula, x: Any, min: Any = None, max: Any = None) -> Any:
    low, high = (formula.array(edge if edge is not None else e) for edge, e in ((min, -np.inf), (max, np.inf)))
    return np.frompyfunc(clip, 3, 1)(formula.array(x), low, high)


def _power(formula: Formula, x: Any, exponent: Any) -> Any:
    if isinstance(x, Symbols) and exponent == 0.5:
        return np.frompyfunc(sqrt, 1, 1)(x.array)
    if not isinstance(x, Symbols) or not isinstance(exponent, int | float) or exponent not in range(1, 9):
        raise TraceError(f"no formula with the power {exponent!r}")
    product = x.array
    for _ in range(int(exponent) - 1):
        product = product * x.array
    return product


def _sum(x: Array, dim: Any = None, keepdim: bool = False) -> Any:
    axis = tuple(dim) if isinstance(dim, tuple | list) else dim
    return np.sum(x, axis=axis, keepdims=keepdim, initial=0.0)


def _mean(formula: Formula, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    x = formula.array(x)
    total = _array(_sum(x, dim, keepdim))
    return total * formula.array(total.size / x.size)


def _cumsum(x: Array, dim: int) -> Array:
    return np.cumsum(x, axis=dim)


def _where(condition: Mask, a: Scalar, b: Scalar) -> Scalar:
    return select(condition, a, b)


def _join(function: Callable[..., Array]) -> Callable[..., Any]:
    def apply(formula: Formula, tensors: Sequence[Any], dim: int = 0) -> Array:
        return function([formula.array(x) for x in tensors], axis=dim)

    return apply


def _get(x: Array, at: Any) -> Any:
    parts = at if isinstance(at, tuple) else (at,)
    if any(isinstance(part, Symbols) for part in _flat(parts)):
        raise TraceError("an index that is a symbol")
    return x[tuple(part.numpy() if isinstance(part, Tensor) else part for part in parts)]


def _sizes(*sizes: Any) -> tuple[int, ...]:
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes


def _flatten(x: Array, start_dim: int = 0, end_dim: int = -1) -> Array:
    first, last = start_dim % max(x.ndim, 1), end_dim % max(x.ndim, 1)
    return x.reshape(*x.shape[:first], -1, *x.shape[last + 1 :])


def _unbind(x: Array, dim: int = 0) -> list[Array]:
    return [_array(part) for part in np.moveaxis(x, dim, 0)]


def _split(x: Array, size: Any, dim: int = 0) -> list[Array]:
    if isinstance(size, int):
        size = [min(size, x.shape[dim] - k) for k in range(0, x.shape[dim], size)]
    if sum(size) != x.shape[dim]:
        raise TraceError("parts of other sizes")
    return np.split(x, np.cumsum(size)[:-1], axis=dim)


def _like(number: float) -> Callable[..., Any]:
    return lambda formula, x: _array(np.full(x.array.shape, number, dtype=object))


def _logical(function: Callable[..., Mask]) -> Callable[..., Any]:
    """Of masks, and of the numbers True and False."""
    over = np.frompyfunc(function, 2, 1)

    def apply(formula: Formula, *args: Any) -> Any:
        return over(*(_array(x) if isinstance(x, bool) else formula.array(x) for x in args))

    return apply


def _reduced(function: Callable[[Mask, Mask], Mask]) -> Callable[..., Any]:
    over = np.frompyfunc(function, 2, 1)

    def apply(x: Array, dim: int | None = None) -> Any:
        return over.reduce(x.reshape(-1) if dim is None else x, axis=0 if dim is None else dim)

    return _shaped(apply)


def _converted(formula: Formula, x: Any, *args: Any, **kwargs: Any) -> Array:
    """To a type of floating-point numbers: a mask is 1 or 0; the precision is that of the formula."""
    kinds = [kind for kind in (*args, *kwargs.values()) if isinstance(kind, torch.dtype)]
    if any(not kind.is_floating_point for kind in kinds) or not kinds:
        raise TraceError("no formula with other numbers")
    as_number = np.frompyfunc(lambda a: select(a, 1.0, 0.0) if _is_mask(a) else a, 1, 1)
    return _array(as_number(formula.array(x)))


def _is_mask(x: Any) -> bool:
    return x.type == "b" if isinstance(x, Value) else isinstance(x, bool)


def _pad(formula: Formula, x: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Array:
    array = formula.array(x)
    widths = [(0, 0)] * (array.ndim - len(pad) // 2) + list(zip(pad[::2], pad[1::2]))[::-1]
    if mode != "constant" or value not in (None, 0.0):
        raise TraceError("no formula with such padding")
    return np.pad(array, widths, constant_values=0.0)


def _norm(formula: Formula, x: Any, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Any:
    if p not in (2, 2.0, "fro", None):
        raise TraceError("no formula with such a norm")
    array = formula.array(x)
    return np.frompyfunc(sqrt, 1, 1)(_array(_sum(array * array, dim, keepdim)))


def _squeeze(x: Array, dim: int | None = None) -> Array:
    return x if dim is not None and x.shape[dim] != 1 else np.squeeze(x, axis=dim)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": _elementwise(operator.add, 2), "sub": _elementwise(operator.sub, 2), "mul": _elementwise(operator.mul, 2),
    "rsub": _elementwise(lambda a, b: b - a, 2), "div": _elementwise(operator.truediv, 2),
    "neg": _elementwise(operator.neg, 1), "square": _elementwise(lambda x: x * x, 1), "pow": _power,
    "sqrt": _elementwise(sqrt, 1), "reciprocal": _elementwise(lambda x: 1.0 / x, 1),
    "sin": _elementwise(sin, 1), "cos": _elementwise(cos, 1), "tan": _elementwise(lambda x: sin(x) / cos(x), 1),
    "tanh": _elementwise(tanh, 1), "sigmoid": _elementwise(lambda x: 0.5 + 0.5 * tanh(0.5 * x), 1),
    "atan2": _elementwise(atan2, 2), "abs": _elementwise(_absolute, 1),
    "relu": _elementwise(lambda x: select(x > 0.0, x, 0.0), 1),
    "minimum": _elementwise(_minimum, 2), "maximum": _elementwise(_maximum, 2), "clamp": _clamp,
    "clamp_min": lambda formula, x, min: _clamp(formula, x, min=min),
    "clamp_max": lambda formula, x, max: _clamp(formula, x, max=max),
    "where": _elementwise(_where, 3), "lt": _elementwise(operator.lt, 2), "le": _elementwise(operator.le, 2),
    "gt": _elementwise(operator.gt, 2), "ge": _elementwise(operator.ge, 2),
    "logical_and": _logical(operator.and_), "logical_or": _logical(operator.or_), "all": _reduced(operator.and_),
    "any": _reduced(operator.or_), "to": _converted, "pad": _pad, "norm": _norm,
    "logical_not": _elementwise(lambda x: ~x if isinstance(x, Value) else not x, 1),
    "sum": _shaped(_sum), "mean": _mean, "cumsum": _shaped(_cumsum),
    "matmul": lambda formula, a, b: np.matmul(formula.array(a), formula.array(b)),
    "dot": lambda formula, a, b: np.matmul(formula.array(a), formula.array(b)),
    "stack": _join(np.stack), "cat": _join(np.concatenate), "__getitem__": _shaped(_get),
    "unbind": _shaped(_unbind), "split": _shaped(_split),
    "reshape": _shaped(lambda x, *size: x.reshape(_sizes(*size))),
    "view": _shaped(lambda x, *size: x.reshape(_sizes(*size))), "flatten": _shaped(_flatten),
    "squeeze": _shaped(_squeeze), "unsqueeze": _shaped(lambda x, dim: np.expand_dims(x, dim)),
    "transpose": _shaped(lambda x, a, b: np.swapaxes(x, a, b)), "zeros_like": _like(0.0), "ones_like": _like(1.0),
    "clone": _shaped(lambda x: x), "contiguous": _shaped(lambda x: x),
}  # fmt: skip
for _alias, _name in (("multiply", "mul"), ("divide", "div"), ("true_divide", "div"), ("subtract", "sub"),
                      ("absolute", "abs"), ("clip", "clamp"), ("concat", "cat"), ("arctan2", "atan2"),
                      ("__and__", "logical_and"), ("__or__", "logical_or"), ("__rsub__", "rsub")):  # fmt: skip
    FUNCTIONS[_alias] = FUNCTIONS[_name]
