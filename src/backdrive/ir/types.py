"""The types that traced code is annotated with.

They are protocols: plain Python numbers satisfy them, and so do traced values, because the same function runs on both.

    Scalar        a floating-point number of every lane: a float, or a traced value
    Mask          a condition of every lane: a bool, or a traced value
    Index         an integer that all lanes share: an int, or a traced value
    ScalarArray   an array of scalars: a workspace, the caller's rows, a table of constants
    TimedArray    the caller's rows with an axis of time
    IndexArray    an array of indices: counters, tables of integers

Operands and results of operators are `Any`: a protocol that floats satisfy cannot accept other operands than floats,
and a sum that starts at the float 0.0 must be able to become a traced value. Functions and arrays are typed, so mypy
reports an array in the place of a scalar, or a mask in the place of a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Mask(Protocol):
    """A condition of every lane, for `select`; or one that all lanes share, for `when` and `leave`."""

    def __and__(self, other: Any, /) -> Any: ...
    def __or__(self, other: Any, /) -> Any: ...
    def __invert__(self) -> Any: ...


class Scalar(Protocol):
    """A floating-point number of every lane."""

    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    def __rtruediv__(self, other: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...
    def __lt__(self, other: Any, /) -> Any: ...
    def __le__(self, other: Any, /) -> Any: ...
    def __gt__(self, other: Any, /) -> Any: ...
    def __ge__(self, other: Any, /) -> Any: ...


class Index(Protocol):
    """An integer that all lanes share: a size, a position in an array, the variable of a loop."""

    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __floordiv__(self, other: Any, /) -> Any: ...
    def __mod__(self, other: Any, /) -> Any: ...
    def __lt__(self, other: Any, /) -> Any: ...
    def __le__(self, other: Any, /) -> Any: ...
    def __gt__(self, other: Any, /) -> Any: ...
    def __ge__(self, other: Any, /) -> Any: ...


class ScalarArray(Protocol):
    """An array of scalars, which may also be read and written as consecutive records of a fixed number of scalars."""

    def __getitem__(self, k: Index, /) -> Scalar:
        """Element k."""

    def __setitem__(self, k: Index, x: Scalar, /) -> None:
        """Write element k."""

    def at(self, k: Index, /) -> ScalarArray:
        """The view that starts at element k."""

    def get(self, i: Index, width: int, /) -> tuple[Scalar, ...]:
        """Record i of an array of records of `width` scalars."""

    def put(self, i: Index, values: Sequence[Scalar], /) -> None:
        """Write record i of an array of records of `len(values)` scalars."""

    def accumulate(self, i: Index, values: Sequence[Scalar], /) -> None:
        """Add to record i of an array of records of `len(values)` scalars."""

    def prefetch(self, count: Index, /) -> None:
        """Announce that the first `count` elements will be read soon."""


class TimedArray(ScalarArray, Protocol):
    """The rows of one of the caller's tensors with an axis of time."""

    def row(self, t: Index, /) -> ScalarArray:
        """The rows at time t."""


class IndexArray(Protocol):
    """An array of indices."""

    def __getitem__(self, k: Index, /) -> Any:
        """Element k: an `Index`, typed `Any` because kernels also use it to select Python objects of a model."""

    def __setitem__(self, k: Index, x: Index, /) -> None:
        """Write element k."""

    def at(self, k: Index, /) -> IndexArray:
        """The view that starts at element k."""

    def get(self, i: Index, width: int, /) -> tuple[Any, ...]:
        """Record i of an array of records of `width` indices."""
