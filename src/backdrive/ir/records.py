"""Homogeneous records: constants that all records of a rolled loop share are known, and need no memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from .arrays import Array, Indexed
from .graph import Region, TraceError, argument_of, current, traced
from .types import Index, Scalar


@dataclass
class _Field:
    """The last write of one number of the records."""

    constant: float | None
    """The number, if it is a constant; None if it is in memory."""
    loops: list[Region]
    """The loops around the one over the records."""
    branches: list[Region]
    """The branches around the write."""
    was_constant: bool
    """Whether this or an earlier write was a constant: memory may then hold nothing, or an old value."""
    reader: Region | None
    """The outermost loop, other than `loops`, in which the number was read as a constant."""


class Records(Indexed):
    """Records in memory, each written by one pass of a rolled loop over them.

    All passes run the same code, so a number that is a constant in one record is the same constant in all of them: it
    is kept while tracing instead of being stored and loaded.

    period: the number of consecutive records that one pass writes; they may differ from each other. A record that is
    addressed by a Python int is separate from those that loops write. A loop must go over all the records.
    """

    def __init__(self, array: Array, period: int = 1) -> None:
        self.array, self.period = array, period
        self.fields: dict[tuple[Any, int], _Field] = {}

    def _group(self, i: Index, loops: list[Region]) -> tuple[str, int] | int:
        """The records that share their constants with record i: a residue modulo the period, or one record alone."""
        if not traced(i):
            return "own", cast(int, i)
        static: Any = 0
        variable: Any = i
        if (x := argument_of(i, "iadd")) is not None and not traced(x[1]):
            variable, static = x
        for op in ("imul", "isub"):  # 3 i; n - i
            if (x := argument_of(variable, op)) is not None:
                variable = x[1]
        if not loops or not traced(variable) or variable.node.op != "for" or variable.region is not loops[-1]:
            raise TraceError("homogeneous records must be indexed by the variable of the innermost loop")
        return static % self.period

    def get(self, i: Index, width: int) -> tuple[Any, ...]:
        loops = _open_regions(loop=True)
        group, view, outer = self._group(i, loops), self.array.at(i * width), loops[:-1] if traced(i) else loops
        result: list[Any] = []
        for k in range(width):
            field = self.fields.get((group, k))
            if field is not None and field.was_constant and not all(region.open for region in field.branches):
                raise TraceError(f"number {k} of homogeneous records is written in a branch and read after it")
            if field is None or field.constant is None:
                result.append(view[k])
                continue
            around = [region for region in outer if region not in field.loops]
            if field.reader is None or not field.reader.open:
                field.reader = around[0] if around else None
            result.append(field.constant)
        return tuple(result)

    def put(self, i: Index, values: Sequence[Scalar]) -> None:
        loops, branches = _open_regions(loop=True), _open_regions(loop=False)
        group, view, outer = self._group(i, loops), self.array.at(i * len(values)), loops[:-1] if traced(i) else loops
        if traced(i) and current().regions[-1] is not loops[-1]:
            raise TraceError("homogeneous records are written in a branch, which some of the passes may skip")
        for k, x in enumerate(values):
            old: _Field | None = self.fields.get((group, k))
            constant: Any = None if traced(x) else x
            if old is not None and old.reader is not None and old.reader.open and old.constant != constant:
                raise TraceError(f"number {k} of homogeneous records is a constant only in the first pass of a loop")
            if constant is None:
                view[k] = x
            was_constant = constant is not None or (old is not None and old.was_constant)
            reader = None if old is None else old.reader
            self.fields[group, k] = _Field(constant, outer, branches, was_constant, reader)

    def accumulate(self, i: Index, values: Sequence[Scalar]) -> None:
        self.put(i, [a + b for a, b in zip(self.get(i, len(values)), values, strict=True)])


def _open_regions(loop: bool) -> list[Region]:
    """The loops around the current position, or the branches around it, outermost first."""
    return [region for region in current().regions[1:] if region.loop == loop]
