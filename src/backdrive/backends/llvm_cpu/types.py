"""The LLVM types of lane values, and the text of constants."""

from __future__ import annotations

import struct

import numpy as np


class LaneTypes:
    """LLVM types for floats of `bits` bits in registers of `lanes` lanes.

    of: the type of a value, by its type in the graph (f, b, i, c). memory: the type of an element of an array, by its
    kind (lanes, rows, table, ints); alignment: the alignment of that element, in bytes.
    """

    def __init__(self, bits: int, lanes: int) -> None:
        self.bits, self.lanes = bits, lanes
        self.element = {32: "float", 64: "double"}[bits]
        vector = f"<{lanes} x {{}}>" if lanes > 1 else "{}"
        self.of = {"f": vector.format(self.element), "b": vector.format("i1"), "i": "i64", "c": "i1"}
        self.suffix = (f"v{lanes}" if lanes > 1 else "") + f"f{bits}"
        self.alignment = {"lanes": min(64, lanes * bits // 8), "rows": bits // 8, "table": bits // 8, "ints": 8}
        self.memory = {"lanes": self.of["f"], "ints": "i64"} | dict.fromkeys(("rows", "table"), self.element)

    def constant(self, x: float, type: str) -> str:
        """The text of a Python number as a constant of a type."""
        if type == "i":
            return str(int(x))
        if type in "bc":
            word = "true" if x else "false"
            return word if type == "c" or self.lanes == 1 else f"splat (i1 {word})"
        number = float(np.float32(x)) if self.bits == 32 else float(x)
        word = "0x" + struct.pack(">d", number).hex().upper()
        return word if self.lanes == 1 else f"splat ({self.element} {word})"
