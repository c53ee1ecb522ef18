"""Memory for large results."""

from __future__ import annotations

import ctypes
import mmap
import sys

import torch
from torch import Tensor

from ..model import checks

_LARGE = 32 << 20  # bytes; for smaller tensors, the C library's allocator reuses memory that is mapped already


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Like torch.empty. Large tensors get huge pages where Linux has them.

    A long rollout writes its states once, at the speed of memory: at 4 KB a page, mapping the pages would take longer
    than computing the states.
    """
    with checks.told_if_too_large(shape, dtype.itemsize):
        tensor = torch.empty(shape, dtype=dtype)
    size = tensor.numel() * tensor.element_size()
    if size >= _LARGE and _madvise is not None:
        start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        _madvise(start, (tensor.data_ptr() + size - start) // mmap.PAGESIZE * mmap.PAGESIZE, mmap.MADV_HUGEPAGE)
    return tensor


def _find_madvise() -> ctypes._NamedFuncPointer | None:
    if not (sys.platform == "linux" and hasattr(mmap, "MADV_HUGEPAGE")):
        return None
    function = ctypes.CDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]  # it is advice: its result does not matter
    return function


_madvise = _find_madvise()
