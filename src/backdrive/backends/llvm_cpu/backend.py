"""The backend that generates code for SIMD units of a processor."""

from __future__ import annotations

from dataclasses import dataclass

from ..base import Kernel
from . import cache
from .compile import compile_kernel
from .executable import CpuExecutable
from .target import Target, host


@dataclass(frozen=True)
class LlvmCpu:
    """Builds kernels through LLVM. target: None is the host's processor."""

    target: Target | None = None

    def build(self, kernel: Kernel, bits: int, lanes: int | None) -> CpuExecutable:
        """A kernel's machine code from the disk cache, or traced and compiled now. See `base.Backend`."""
        target = self.target or host()
        lanes = lanes or target.lanes(bits)
        names = [f"{type(a).__name__} {a.name} {getattr(a, 'writable', '')}" for a in kernel.arguments]
        key = cache.key(kernel.name, kernel.key, bits, lanes, kernel.unroll, target, *names)
        entry = cache.load(key)
        if entry is None:
            entry, code = compile_kernel(kernel, bits, lanes, target)
            cache.store_link(key, code)
        return CpuExecutable(kernel.arguments, lanes, target, entry)
