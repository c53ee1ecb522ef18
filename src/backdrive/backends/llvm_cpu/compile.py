"""From a kernel to machine code: trace it, and compile its LLVM IR unless the same IR was compiled before."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

from ..base import Kernel
from . import abi, cache
from .ahead import interruptibly
from .module import trace
from .target import Target

_tracing = threading.Lock()
"""Tracing is Python, so two threads that trace at once gain nothing. While one traces, another may compile."""


def compile_kernel(kernel: Kernel, bits: int, lanes: int, target: Target) -> tuple[cache.CompiledKernel, str]:
    """The machine code of a kernel and its key in the disk cache, which is used if it has code of the same LLVM IR."""
    with _tracing, _without_garbage_collection():
        module = trace(kernel, bits, lanes)
    text = "\n".join([module.text(), abi.entry(kernel.arguments, module.types, target)])
    key = cache.key_of_code(text, target, module.scratch, module.operations)

    def build() -> cache.CompiledKernel:
        entry = cache.CompiledKernel(_machine_code(text, target), module.scratch, module.operations)
        cache.store(key, entry)
        return entry

    return cache.load(key) or interruptibly(build), key


def _machine_code(text: str, target: Target) -> bytes:
    """The object file of LLVM IR."""
    import llvmlite.binding as llvm

    machine = target.machine()
    parsed = llvm.parse_assembly(text)
    parsed.verify()
    # Constants are folded and common subexpressions shared in the graph already. What is left for LLVM's passes is to
    # promote memory to registers and to remove dead branches.
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.run(parsed, builder)
    return machine.emit_object(parsed)


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A trace makes about a hundred thousand small objects that all stay alive: collection would double its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
