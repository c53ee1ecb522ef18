"""The processor that LLVM compiles for, and the number of lanes of its registers."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import llvmlite.binding as llvm

# llvmlite is imported inside functions, because loading it takes longer than loading the rest of the package.


@dataclass(frozen=True)
class Target:
    """A processor, in LLVM's terms, and the width of its widest SIMD registers."""

    triple: str
    cpu: str
    features: str
    register_bits: int

    def lanes(self, bits: int) -> int:
        """Environments per register for floats of 32 or 64 bits."""
        return max(1, self.register_bits // bits)

    @property
    def flushes_denormals(self) -> bool:
        """Whether denormals, 17 to 60 times slower than other numbers, can be flushed to zero (x86: MXCSR)."""
        return self.triple.startswith(("x86_64", "i686"))

    def machine(self) -> llvm.TargetMachine:
        """LLVM's code generator for this processor."""
        import llvmlite.binding as llvm

        return llvm.Target.from_triple(self.triple).create_target_machine(
            cpu=self.cpu, features=self.features, opt=1, reloc="pic", codemodel="small", jit=True
        )


@functools.cache
def host() -> Target:
    """The processor that this process runs on."""
    import llvmlite.binding as llvm

    # Loop strength reduction would take three quarters of the compile time of rolled kernels and gain nothing, because
    # addresses are sums of few terms already. LLVM can only switch it off for the whole process.
    llvm.set_option("backdrive", "-disable-lsr")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    bits = 128
    if features.get("avx"):
        bits = 256
    if features.get("avx512f"):
        bits = 512
    return Target(llvm.get_process_triple(), llvm.get_host_cpu_name(), features.flatten(), bits)
