"""The arguments of a kernel as a dataclass: each is declared once, by its name and a type that tells its kind.

@dataclass(frozen=True)
class ScaleArguments:
    x: PacksOut
    factor: NumberIn

Kernel("scale", kernel_arguments(ScaleArguments), lambda **a: scale(ScaleArguments(**a)))
"""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Annotated, Any, get_type_hints

from ..backends import Integer, Ints, Number, Packs, Table
from ..ir import Index, IndexArray, Scalar, ScalarArray

PacksIn = Annotated[ScalarArray, Packs]  # registers
PacksOut = Annotated[ScalarArray, partial(Packs, writable=True)]
IntsIn = Annotated[IndexArray, Ints]
IntsOut = Annotated[IndexArray, partial(Ints, writable=True)]
TableIn = Annotated[ScalarArray, Table]  # floats that all lanes share
IntegerIn = Annotated[Index, Integer]
NumberIn = Annotated[Scalar, Number]


def kernel_arguments(arguments: type) -> list[Any]:
    """The arguments that a dataclass declares, in the order of its fields, as a `Kernel` takes them."""
    types = get_type_hints(arguments, include_extras=True)
    return [types[field.name].__metadata__[0](field.name) for field in fields(arguments)]
