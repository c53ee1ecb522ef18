"""Backends generate executable code from traced kernels.

`base` has what all of them share: arguments, kernels, the calling convention. There is one backend, `llvm_cpu`, for the
SIMD units of the host's processor. To add another: a package beside `llvm_cpu` with a class that has `Backend.build`,
registered below.
"""

from .base import (
    Argument,
    Backend,
    Executable,
    Integer,
    Ints,
    Kernel,
    Number,
    Order,
    Packs,
    Picked,
    Rows,
    Table,
    default_backend,
    register,
)
from .cores import available_cores
from .llvm_cpu.backend import LlvmCpu
from .llvm_cpu.launch import run

register("llvm_cpu", LlvmCpu())

__all__ = [
    "Argument", "Backend", "Executable", "Integer", "Ints", "Kernel", "LlvmCpu", "Number", "Order", "Packs",
    "Picked", "Rows", "Table", "available_cores", "default_backend", "register", "run",
]  # fmt: skip
