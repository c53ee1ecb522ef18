"""Backends turn traced kernels into machine code. There is one: `llvm_cpu`, with SIMD lanes on the host's processor."""

from .llvm_cpu.kernel import Executable, Integer, Ints, Kernel, Number, Packs, Picked, Rows, Table, subroutine
from .llvm_cpu.launch import run

__all__ = ["Executable", "Integer", "Ints", "Kernel", "Number", "Packs", "Picked", "Rows", "Table", "run", "subroutine"]
