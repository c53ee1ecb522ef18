"""Kernels for the host processor: LLVM IR through llvmlite, with one environment per SIMD lane."""
