"""Randomised smoothing: the gradient of a mean over random perturbations, where that of one motion is useless.

A loss that jumps or whose gradient explodes (a ball that hits or misses, a chaotic motion) is replaced by its mean over
Gaussian perturbations of an input,

    F(x) = E f(x + σ ε),        ∇F = E ∇f(x + σ ε) = E (f(x + σ ε) - b) ε / σ,

which is smooth. The samples are a batch: one rollout computes all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .model import checks


def smoothed(
    function: Callable[[Tensor], Tensor], x: Tensor, sigma: float | Tensor, *, samples: int,
    generator: torch.Generator, order: int = 1,
) -> Tensor:  # fmt: skip
    """An estimate of F(x) = E f(x + σ ε), ε ~ N(0, 1), a scalar; its gradient with respect to x estimates ∇F.

    function: from inputs [samples, *x.shape] to their losses [samples], each a function of its own row only. For a
        rollout the samples are the batch: controls [T, nu] arrive as [samples, T, nu], and ``u.transpose(0, 1)`` is
        what `Simulator.rollout` takes.
    sigma: in the units of x; a number, or a tensor that broadcasts to the shape of x.
    samples: their number; the error of the estimate falls with its square root.
    order: 1, the mean of the samples' own gradients: accurate where f is continuous, but blind to its jumps, with the
        variance of the largest gradient among them. 0, from the values of f alone: right for every f, at the price of a
        variance that grows with the size of x. The baseline b of a sample is the mean of the others: there is no bias.

    With order=0, other tensors that the function depends on get the mean of the samples' gradients, as with order=1.
    """
    samples = _check(x, samples, generator, order)
    sigma = _deviation(sigma, x)
    noise = torch.randn((samples, *x.shape), generator=generator, dtype=x.dtype).to(x.device)
    values = function((x if order == 1 else x.detach()) + sigma * noise)
    if not isinstance(values, Tensor) or values.shape != (samples,):
        got = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"function must return one loss per sample, a tensor [{samples}], got {got}")
    if not bool(values.isfinite().all()):
        raise ValueError(f"{int((~values.isfinite()).sum())} of {samples} samples have a loss that is NaN or infinite")
    if order == 1:
        return values.mean()
    above = (values.detach() - values.detach().mean()) / (samples - 1)  # (f - b) / samples
    gradient = torch.tensordot(above, noise, 1) / sigma
    return values.mean() + ((x - x.detach()) * gradient).sum()


def _deviation(sigma: float | Tensor, x: Tensor) -> Tensor:
    value = torch.as_tensor(sigma, dtype=x.dtype, device=x.device).detach()
    try:
        torch.broadcast_to(value, x.shape)
    except RuntimeError:
        raise ValueError(f"sigma of shape {tuple(value.shape)} does not broadcast to x of {tuple(x.shape)}") from None
    if not bool((value.isfinite() & (value > 0)).all()):
        raise ValueError(f"sigma must be positive, got {sigma!r}")
    return value


def _check(x: Tensor, samples: int, generator: torch.Generator, order: int) -> int:
    """The number of samples."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(f"x must be a tensor of floating-point numbers, got {getattr(x, 'dtype', type(x).__name__)}")
    if isinstance(order, bool) or order not in (0, 1):
        raise ValueError(f"order must be 1 (mean of gradients) or 0 (from values alone), got {order!r}")
    count = checks.integer(samples, f"samples (with order={order})", 2 if order == 0 else 1)
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {type(generator).__name__}")
    return count
