"""Results of the engine, bit by bit: recorded before a refactoring, compared after it.

    python -m benchmarks.bits record FILE.npz        # run every scene and keep all arrays
    python -m benchmarks.bits compare FILE.npz       # run them again: identical, or what differs and by how much
    python -m benchmarks.bits digest FILE.npz > FILE.json

Only the public interface of backdrive is used, so that the same files run on both sides of a change of its internals.
Bits are those of one machine: another processor, or other versions of LLVM or torch, may round differently.
"""
