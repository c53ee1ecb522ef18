"""The transposition of registers, between rows of environments in memory and lanes."""

from __future__ import annotations

from collections.abc import Callable

from .types import LaneTypes


def transpose(
    define: Callable[[str, str | None], str], types: LaneTypes, values: list[str], results: list[str] | None = None
) -> list[str]:
    """Transpose as many registers as lanes: exchange the off-diagonal quarters of blocks of all sizes.

    define: emits a definition, given its text and, unless None, its name; returns the name. values: the registers.
    results: names of the transposed ones.
    """
    lanes, vector = types.lanes, types.of["f"]
    size = lanes // 2
    while size:
        exchanged = list(values)
        for i in (i for i in range(lanes) if not i & size):
            low = [j if j % (2 * size) < size else lanes + j - size for j in range(lanes)]
            high = [j + size if j % (2 * size) < size else lanes + j for j in range(lanes)]
            for k, mask in ((i, low), (i + size, high)):
                words = ", ".join(f"i32 {j}" for j in mask)
                name = results[k] if size == 1 and results else None
                exchanged[k] = define(
                    f"shufflevector {vector} {values[i]}, {vector} {values[i + size]}, <{lanes} x i32> <{words}>", name
                )
        values, size = exchanged, size // 2
    return values
