"""The host processor: what LLVM should compile for, and how many lanes a register has."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import llvmlite.binding as llvm

# llvmlite is imported where it is used: loading it takes longer than the rest of the package.


@dataclass(frozen=True)
class Target:
    triple: str
    cpu: str
    features: str
    register_bits: int

    def lanes(self, bits: int) -> int:
        """Environments per register for floats of 32 or 64 bits."""
        return max(1, self.register_bits // bits)

    @property
    def flushes_denormals(self) -> bool:
        """x86 has the MXCSR register: denormals (17 to 60 times slower than other numbers) can be flushed to zero."""
        return self.triple.startswith(("x86_64", "i686"))

    def machine(self) -> llvm.TargetMachine:
        import llvmlite.binding as llvm

        return llvm.Target.from_triple(self.triple).create_target_machine(
            cpu=self.cpu, features=self.features, opt=1, reloc="pic", codemodel="small", jit=True
        )


@functools.cache
def host() -> Target:
    import llvmlite.binding as llvm

    # Loop strength reduction takes three quarters of the time to compile rolled kernels, for no gain: addresses are
    # sums of few terms already. LLVM has no switch for it but this one, for the whole process.
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
