"""Networks of several seeds with their derivatives in closed form.

The networks are so small that autograd's bookkeeping of every matrix product would take longer than the products. Here
a whole network, and a whole random policy, is one node of autograd's graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LOG_STD = (-20.0, 2.0)
"""Range of the logarithm of a policy's standard deviation, before squashing."""
EXACT = 40.0
"""From here on, log(1 + exp(x)) is x to rounding, also in float64; torch says so from 20 on."""


def perceptrons(parts: Sequence[Tensor], weights: Sequence[Tensor], frozen: bool) -> Tensor:
    """Fully connected networks with ReLU between layers: outputs [N, B, m] of N networks.

    parts: the inputs of S seeds, [S, B, n] each, side by side. If N is r S, networks k, S + k, ... see those of seed k.
    weights: a matrix [N, n, m] and a bias [N, 1, m] of each layer in turn. frozen: no gradient goes to them, but one
    may go to the inputs.
    """
    if torch.is_grad_enabled() and not (frozen and not any(x.requires_grad for x in parts)):
        return _Perceptrons.apply(weights, len(parts), *parts, *(() if frozen else weights))
    return _layers(parts, weights)[1]


def squashed_gaussian(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions a = tanh(μ + σ ε) [S, B, na], and the logarithms of their densities [S, B].

    outputs: μ and log σ, [S, B, 2 na]; the latter is clamped. noise: ε [S, B, na], of a normal distribution.
    """
    return _SquashedGaussian.apply(outputs, noise)


def _layers(parts: Sequence[Tensor], weights: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """The inputs of all layers, and the output of the last."""
    inputs = []
    x = parts[0] if len(parts) == 1 else torch.cat(list(parts), -1)
    if len(x) < len(weights[0]):
        x = torch.cat([x] * (len(weights[0]) // len(x)))
    for k in range(0, len(weights), 2):
        inputs.append(x if k == 0 else x.relu_())
        weight, bias = weights[k], weights[k + 1]
        if weight.shape[-1] > 1:
            x = torch.baddbmm(bias, inputs[-1], weight)
        else:  # To sum by hand is faster than a product with matrices of one column.
            x = (inputs[-1] * weight.mT).sum(-1, keepdim=True).add_(bias)
    return inputs, x


class _Perceptrons(torch.autograd.Function):
    """A layer y = h W + b hands the cotangents W̄ = hᵀ ȳ, b̄ = Σ ȳ and h̄ = ȳ Wᵀ on, the last where h > 0."""

    @staticmethod
    def forward(ctx: Any, weights: Sequence[Tensor], count: int, *tensors: Tensor) -> Tensor:
        """tensors: `count` parts of the inputs, then the weights if they are to have a gradient."""
        inputs, y = _layers(tensors[:count], weights)
        ctx.sizes = [len(tensors[0]), *(x.shape[-1] for x in tensors[:count])]
        ctx.save_for_backward(*inputs, *weights)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y_bar: Tensor) -> tuple[Tensor | None, ...]:
        seeds, *widths = ctx.sizes
        to_parts, to_weights = ctx.needs_input_grad[2 : 2 + len(widths)], ctx.needs_input_grad[2 + len(widths) :]
        saved = ctx.saved_tensors
        depth = len(saved) // 3
        weights_bar: list[Tensor] = []
        for k in reversed(range(depth)):
            h, weight, thin = saved[k], saved[depth + 2 * k], y_bar.shape[-1] == 1
            if to_weights:
                weight_bar = (h * y_bar).sum(1).unsqueeze(-1) if thin else torch.bmm(h.mT, y_bar)
                weights_bar = [weight_bar, y_bar.sum(1, keepdim=True), *weights_bar]
            if k > 0:
                y_bar = y_bar * weight.mT if thin else torch.bmm(y_bar, weight.mT)
                torch.ops.aten.threshold_backward.grad_input(y_bar, h, 0, grad_input=y_bar)
        parts_bar: list[Tensor | None] = []
        for wanted, columns in zip(to_parts, saved[depth].split(widths, 1), strict=True):
            each = torch.bmm(y_bar, columns.mT) if wanted else None
            parts_bar.append(each if each is None or len(each) == seeds else each.unflatten(0, (-1, seeds)).sum(0))
        return (None, None, *parts_bar, *weights_bar)


class _SquashedGaussian(torch.autograd.Function):
    """With y = μ + σ ε and a = tanh y: log π = - ε² / 2 - log σ - log(1 - a²) - log √2π, summed over the actions."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, given = outputs.chunk(2, -1)
        log_std = given.clamp(*LOG_STD)
        spread = log_std.exp().mul_(noise)
        y = mean + spread
        squash = torch.nn.functional.softplus(-2.0 * y, threshold=EXACT).add_(y)  # - log(1 - a²) = 2 (squash - log 2)
        constant = mean.shape[-1] * (2.0 * math.log(2.0) + 0.5 * math.log(2.0 * math.pi))
        parts = squash.mul_(2.0).sub_(log_std).addcmul_(noise, noise, value=-0.5)
        action = y.tanh_()
        ctx.save_for_backward(action, spread, given)
        return action, parts.sum(-1).sub_(constant)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, action_bar: Tensor, density_bar: Tensor) -> tuple[Tensor, None]:
        action, spread, given = ctx.saved_tensors
        density_bar = density_bar.unsqueeze(-1)
        # da/dy = 1 - a² and d(log π)/dy = 2 a
        y_bar = torch.addcmul(action_bar, action, 2.0 * density_bar - action_bar * action)
        log_std_bar = (y_bar * spread).sub_(density_bar)
        log_std_bar *= (given >= LOG_STD[0]) & (given <= LOG_STD[1])
        return torch.cat([y_bar, log_std_bar], -1), None
