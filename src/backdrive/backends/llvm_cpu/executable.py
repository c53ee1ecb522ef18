"""Machine code of a kernel, loaded into the process."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from ..base import Argument, Integer
from .abi import evaluate_size
from .cache import CompiledKernel
from .target import Target


class CpuExecutable:
    """A loaded kernel: `launch.run` calls it. See `base.Executable`."""

    def __init__(self, arguments: Sequence[Argument], lanes: int, target: Target, entry: CompiledKernel) -> None:
        import llvmlite.binding as llvm

        self.arguments, self.lanes = tuple(arguments), lanes
        self.operations = entry.operations
        self._scratch = entry.scratch
        self._sizes: dict[tuple[int, ...], int] = {}
        self.layout = [(a.name, type(a)) for a in self.arguments]
        self.integers = [a.name for a in self.arguments if isinstance(a, Integer)]
        self.block = struct.Struct(f"{sum(a.words for a in self.arguments)}q").pack
        # llvmlite's own memory manager keeps all sections side by side. LLVM's own puts each where it finds room, and
        # ends the process if code and constants come to lie more than 2 GB apart.
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target.machine(), use_lmm=True)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(entry.code))
        self._engine.finalize_object()
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self.call = signature(self._engine.get_function_address("entry"))

    def scratch_bytes(self, integers: tuple[int, ...]) -> int:
        """Size of the scratch memory that a call needs for these values of the integer arguments."""
        size = self._sizes.get(integers)
        if size is None:
            names = dict(zip(self.integers, integers, strict=True))
            elements = sum(evaluate_size(expression, names) for expression in self._scratch)
            size = self._sizes[integers] = elements * self.lanes * 8
        return size
