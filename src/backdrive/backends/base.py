"""Kernels and backends: the part that does not depend on the processor that the code is generated for.

    def body(x, y, n): ...                       # traced code on the arrays and integers below
    kernel = Kernel("scale", [Rows("x"), Rows("y", writable=True), Integer("n")], body)
    executable = kernel.build(bits=64)           # by the default backend: traced and compiled, or from its cache
    run(executable, batch, threads, values)      # over all environments of a batch

The environments of a batch are split into packs of as many as a SIMD register has lanes; the body computes one pack. If
the batch is no multiple of the lanes, the last lanes repeat the last environment: they read and write its row.

A backend turns the trace of a kernel into an executable. The calling convention is the same for all backends: arguments
are flattened to words of eight bytes, as many for each argument as its class says (`words`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias

from ..ir.arrays import Array, Storage
from ..ir.graph import Graph, Value

# ---------------------------------------------------------------------------------------------- arguments


@dataclass(frozen=True)
class Rows:
    """A tensor of the caller with a row per environment, and optionally an axis of time.

    Words: address, stride between environments, stride between times (in elements).
    """

    words: ClassVar[int] = 3

    name: str
    writable: bool = False

    def symbol(self, graph: Graph) -> Array:
        return Array(Storage(self.name, "rows", self.writable), graph.add("parameter", (f"{self.name}.step",), "i"))


@dataclass(frozen=True)
class Picked:
    """Rows of a read-only table that all environments share; each environment sees the row that its index selects.

    Words: address of the table, stride between its rows (in elements), address of the indices (int64).
    """

    words: ClassVar[int] = 3

    name: str

    def symbol(self, graph: Graph) -> Array:
        return Array(Storage(self.name, "rows", False))


@dataclass(frozen=True)
class Packs:
    """Registers in the caller's memory: [number, element, lane], aligned to a register. One word: the address.

    With records of n elements, element k of record p is ``a.at(p * n)[k]``, for any uniform integer p, such as
    `pack_number`. The table may also hold rows of whole registers, of which every lane picks one: see `picked`.
    """

    words: ClassVar[int] = 1

    name: str
    writable: bool = False

    def symbol(self, graph: Graph) -> Array:
        return Array(Storage(self.name, "lanes", self.writable))


@dataclass(frozen=True)
class Table:
    """Read-only floats that all environments share. One word: the address."""

    words: ClassVar[int] = 1

    name: str

    def symbol(self, graph: Graph) -> Array:
        return Array(Storage(self.name, "table", False))


@dataclass(frozen=True)
class Ints:
    """int64s that all environments share. One word: the address."""

    words: ClassVar[int] = 1

    name: str
    writable: bool = False

    def symbol(self, graph: Graph) -> Array:
        return Array(Storage(self.name, "ints", self.writable))


@dataclass(frozen=True)
class Integer:
    """An int64 that all environments share. One word: its value."""

    words: ClassVar[int] = 1

    name: str

    def symbol(self, graph: Graph) -> Value:
        return graph.add("parameter", (self.name,), "i")


@dataclass(frozen=True)
class Number:
    """A float64 that all environments share. One word: its bits."""

    words: ClassVar[int] = 1

    name: str

    def symbol(self, graph: Graph) -> Value:
        return graph.add("parameter", (self.name,), "f")


@dataclass(frozen=True)
class Order:
    """The numbers of the environments (int64) in the order in which they are packed; traced code does not see it. One
    word: the address, or 0 for the order in which they lie in memory."""

    words: ClassVar[int] = 1

    name: str

    def symbol(self, graph: Graph) -> None:
        return None


Argument: TypeAlias = Rows | Picked | Packs | Table | Ints | Integer | Number | Order


# ---------------------------------------------------------------------------------------------- kernels


class Executable(Protocol):
    """A kernel that is ready to be called."""

    arguments: tuple[Argument, ...]
    lanes: int
    operations: int
    """Number of SIMD instructions in the code, approximately."""
    layout: list[tuple[str, type[Argument]]]
    """Name and kind of each argument, in the order of their words."""
    integers: list[str]
    """Names of the integer arguments."""

    @property
    def block(self) -> Callable[..., bytes]:
        """Packs the words of all arguments for `call`."""

    @property
    def call(self) -> Callable[[bytes, int, int, int], None]:
        """Run for environments [first, last): call(block of arguments, address of scratch memory, first, last)."""

    def scratch_bytes(self, integers: tuple[int, ...]) -> int:
        """Size of the scratch memory that a call needs for these values of the integer arguments."""


class Backend(Protocol):
    """A target that kernels can be built for. Backends are hashable: a kernel keeps one executable for each."""

    def build(self, kernel: Kernel, bits: int, lanes: int | None) -> Executable:
        """The executable for floats of `bits` bits; lanes: environments per register, None for the processor's own."""


@dataclass
class Kernel:
    """A traced function and its arguments, run over a batch of environments.

    unroll: specialised to one model; its workspaces are registers. key: identifies everything that the body depends on
    besides the package's source, for example the model's fingerprint.
    """

    name: str
    arguments: Sequence[Argument]
    body: Callable[..., None]
    unroll: bool = False
    key: str = ""
    _built: dict[tuple[Backend, int, int | None], Executable] = field(default_factory=dict, repr=False)

    def build(self, bits: int = 64, lanes: int | None = None, backend: Backend | None = None) -> Executable:
        """The executable for floats of `bits` bits, by the default backend unless another is given. Built once."""
        backend = backend or default_backend()
        if (backend, bits, lanes) not in self._built:
            self._built[backend, bits, lanes] = backend.build(self, bits, lanes)
        return self._built[backend, bits, lanes]

    def trace(self, graph: Graph) -> Graph:
        """Trace the body into an empty graph, with symbols for the arguments."""
        with graph:
            symbols: dict[str, Any] = {a.name: a.symbol(graph) for a in self.arguments}
            self.body(**symbols)
        return graph


_backends: dict[str, Backend] = {}


def register(name: str, backend: Backend) -> None:
    """Make a backend available. The one registered first is the default."""
    _backends[name] = backend


def default_backend() -> Backend:
    """The backend that kernels are built by unless another is given."""
    return next(iter(_backends.values()))
