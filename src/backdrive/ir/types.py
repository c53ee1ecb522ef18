"""The types that traced code is annotated with.

They are protocols: plain Python numbers satisfy them, and so do traced values, because the same function runs on both.

    Scalar        a floating-point number of every lane: a float, or a traced value
    Mask          a condition of every lane: a bool, or a traced value
    Index         an integer that all lanes share: an int, or a traced value
    ScalarArray   an array of scalars: a workspace, the caller's rows, a table of constants
    TimedArray    the caller's rows with an axis of time
    IndexArray    an array of indices: counters, tables of integers

Operands are `Any`, because a protocol that floats satisfy cannot ask for operands other than floats. Results are
typed, so mypy reports a mask in the place of a number, or a number in the place of an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Mask(Protocol):
    """A condition of every lane, for `select`; or one that all lanes share, for `when` and `leave`."""

    def __and__(self, other: Any, /) -> Mask: ...
    def __or__(self, other: Any, /) -> Mask: ...
    def __invert__(self) -> Mask: ...


class Scalar(Protocol):
    """A floating-point number of every lane."""

    def __add__(self, other: Any, /) -> Scalar: ...
    def __radd__(self, other: Any, /) -> Scalar: ...
    def __sub__(self, other: Any, /) -> Scalar: ...
    def __rsub__(self, other: Any, /) -> Scalar: ...
    def __mul__(self, other: Any, /) -> Scalar: ...
    def __rmul__(self, other: Any, /) -> Scalar: ...
    def __truediv__(self, other: Any, /) -> Scalar: ...
    def __rtruediv__(self, other: Any, /) -> Scalar: ...
    def __neg__(self) -> Scalar: ...
    def __lt__(self, other: Any, /) -> Mask: ...
    def __le__(self, other: Any, /) -> Mask: ...
    def __gt__(self, other: Any, /) -> Mask: ...
    def __ge__(self, other: Any, /) -> Mask: ...


class Index(Protocol):
    """An integer that all lanes share: a size, a position in an array, the variable of a loop."""

    def __add__(self, other: Any, /) -> Index: ...
    def __radd__(self, other: Any, /) -> Index: ...
    def __sub__(self, other: Any, /) -> Index: ...
    def __rsub__(self, other: Any, /) -> Index: ...
    def __mul__(self, other: Any, /) -> Index: ...
    def __rmul__(self, other: Any, /) -> Index: ...
    def __floordiv__(self, other: Any, /) -> Index: ...
    def __mod__(self, other: Any, /) -> Index: ...
    def __lt__(self, other: Any, /) -> Mask: ...
    def __le__(self, other: Any, /) -> Mask: ...
    def __gt__(self, other: Any, /) -> Mask: ...
    def __ge__(self, other: Any, /) -> Mask: ...


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
