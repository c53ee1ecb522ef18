"""Whether torch runs a call as it stands, records it, or maps over it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def traced() -> bool:
    """Whether operators are recorded (torch.compile, torch.export, make_fx) or only their shapes asked for."""
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0


def transformed() -> bool:
    """Whether a call is inside of torch.func or forward mode."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def plain_call() -> bool:
    """Whether kernels may be called on tensors as they are: neither traced nor transformed."""
    return not traced() and not torch._C._are_functorch_transforms_active() and forward_ad._current_level < 0


def plain_backward() -> bool:
    """Whether a backward pass is only computed: neither differentiated again nor inside of torch.func."""
    return not torch.is_grad_enabled() and not torch._C._are_functorch_transforms_active()


def values_visible(tensors: Iterable[Tensor]) -> bool:
    """Whether Python may look at the numbers: not in traced code, nor in tensors that vmap maps over."""
    return not traced() and not any(mapped(x) for x in tensors)


def mapped(x: Any) -> bool:
    """Whether vmap maps over x."""
    functorch = torch._C._functorch
    while isinstance(x, Tensor) and functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_batchedtensor(x):
            return True
        x = functorch.get_unwrapped(x)
    return False
