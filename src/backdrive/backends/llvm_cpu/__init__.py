"""Kernels for processors with SIMD registers: LLVM IR through llvmlite, with one environment per lane.

In the order in which a kernel passes through: `backend` builds it, `module` and `emit` write its LLVM IR with the
`types` and the `abi` of the `target`, `compile` makes machine code, `cache` keeps that on disk, `executable` loads it,
`launch` runs it over a batch, `interrupts` ends it on Ctrl-C, and `ahead` builds kernels in the background.
"""
