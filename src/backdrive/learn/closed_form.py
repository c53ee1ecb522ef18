"""Networks of several seeds with their derivatives in closed form.

The networks are so small that autograd's bookkeeping of every matrix product would take longer than the products. Here
cotangents go through a whole network (`Pass`) and a whole random policy (`Squashed`) without autograd; and where other
operations follow, either is one node of autograd's graph (`perceptrons`, `squashed_gaussian`).
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
    return _forward(parts, weights)[1]


def squashed_gaussian(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions a = tanh(μ + σ ε) [S, B, na], and the logarithms of their densities [S, B].

    outputs: μ and log σ, [S, B, 2 na]; the latter is clamped. noise: ε [S, B, na], of a normal distribution.
    """
    if torch.is_grad_enabled() and outputs.requires_grad:
        return _SquashedGaussian.apply(outputs, noise)
    squashed = Squashed(outputs, noise)
    return squashed.action, squashed.density


class Pass:
    """Inputs on their way through networks, and cotangents on their way back, without autograd.

    parts, weights: as for `perceptrons`. outputs: [N, B, m].
    """

    def __init__(self, parts: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
        self.weights = weights
        self.inputs, self.outputs = _forward(parts, weights)

    def learn(self, outputs_bar: Tensor) -> None:
        """Write the gradient of the weights into their `grad`, for the cotangent of the outputs."""
        slopes = [x.grad for x in self.weights]
        _backward(self.inputs, self.weights, outputs_bar, slopes, None)

    def back(self, outputs_bar: Tensor, columns: slice) -> Tensor:
        """The cotangent of some columns of the inputs, [N, B, ...]."""
        x_bar = _backward(self.inputs, self.weights, outputs_bar, None, columns)
        assert x_bar is not None
        return x_bar


def _forward(parts: Sequence[Tensor], weights: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """The inputs of all layers, and the output of the last."""
    inputs = []
    copies = len(weights[0]) // len(parts[0])
    x = parts[0] if len(parts) == 1 else torch.cat(list(parts), -1)
    if copies > 1:
        x = torch.cat([x] * copies)
    for k in range(0, len(weights), 2):
        inputs.append(x if k == 0 else x.relu_())
        weight, bias = weights[k], weights[k + 1]
        if weight.shape[-1] > 1:
            x = torch.baddbmm(bias, inputs[-1], weight)
        else:  # To sum by hand is faster than a product with matrices of one column.
            x = (inputs[-1] * weight.mT).sum(-1, keepdim=True).add_(bias)
    return inputs, x


def _backward(
    inputs: Sequence[Tensor], weights: Sequence[Tensor], y_bar: Tensor, slopes: Sequence[Any] | None,
    columns: slice | None,
) -> Tensor | None:  # fmt: skip
    """A layer y = h W + b hands the cotangents W̄ = hᵀ ȳ, b̄ = Σ ȳ and h̄ = ȳ Wᵀ on, the last where h > 0.

    slopes: where the weights' cotangents go. columns: of the inputs whose cotangent is returned. None: not wanted.
    """
    for k in reversed(range(len(inputs))):
        h, weight, thin = inputs[k], weights[2 * k], y_bar.shape[-1] == 1
        if slopes is not None:
            if thin:  # A row times a matrix is faster than a matrix times a column.
                torch.bmm(y_bar.mT, h, out=slopes[2 * k].mT)
            else:
                torch.bmm(h.mT, y_bar, out=slopes[2 * k])
            torch.sum(y_bar, 1, keepdim=True, out=slopes[2 * k + 1])
        if k > 0:
            y_bar = y_bar * weight.mT if thin else torch.bmm(y_bar, weight.mT)
            torch.ops.aten.threshold_backward.grad_input(y_bar, h, 0, grad_input=y_bar)
    return None if columns is None else torch.bmm(y_bar, weights[0][:, columns].mT)


class _Perceptrons(torch.autograd.Function):
    """A `Pass` as a node of autograd's graph."""

    @staticmethod
    def forward(ctx: Any, weights: Sequence[Tensor], count: int, *tensors: Tensor) -> Tensor:
        """tensors: `count` parts of the inputs, then the weights if they are to have a gradient."""
        inputs, y = _forward(tensors[:count], weights)
        ctx.sizes = [len(tensors[0]), *(x.shape[-1] for x in tensors[:count])]
        ctx.save_for_backward(*inputs, *weights)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, y_bar: Tensor) -> tuple[Tensor | None, ...]:
        seeds, *widths = ctx.sizes
        to_parts, to_weights = ctx.needs_input_grad[2 : 2 + len(widths)], ctx.needs_input_grad[2 + len(widths) :]
        depth = len(ctx.saved_tensors) // 3
        inputs, weights = ctx.saved_tensors[:depth], ctx.saved_tensors[depth:]
        slopes = [torch.empty_like(x) for x in weights] if to_weights else None
        x_bar = _backward(inputs, weights, y_bar, slopes, slice(None) if any(to_parts) else None)
        parts_bar: list[Tensor | None] = [None] * len(widths)
        if x_bar is not None:
            x_bar = x_bar if len(x_bar) == seeds else x_bar.unflatten(0, (-1, seeds)).sum(0)
            parts_bar = [x if wanted else None for wanted, x in zip(to_parts, x_bar.split(widths, -1), strict=True)]
        return (None, None, *parts_bar, *(slopes or ()))


class Squashed:
    """A squashed Gaussian policy's action and log π, as `squashed_gaussian` describes them, and cotangents back.

    With y = μ + σ ε and a = tanh y: log π = - ε² / 2 - log σ - log(1 - a²) - log √2π, summed over the actions.
    """

    def __init__(self, outputs: Tensor, noise: Tensor) -> None:
        mean, self.given = outputs.chunk(2, -1)
        log_std = self.given.clamp(*LOG_STD)
        self.spread = log_std.exp().mul_(noise)
        y = mean + self.spread
        squash = torch.nn.functional.softplus(-2.0 * y, threshold=EXACT).add_(y)  # - log(1 - a²) = 2 (squash - log 2)
        constant = mean.shape[-1] * (2.0 * math.log(2.0) + 0.5 * math.log(2.0 * math.pi))
        parts = squash.mul_(2.0).sub_(log_std).addcmul_(noise, noise, value=-0.5)
        self.action = y.tanh_()
        self.density = parts.sum(-1).sub_(constant)

    def back(self, action_bar: Tensor, density_bar: Tensor) -> Tensor:
        """The cotangent of the outputs, [S, B, 2 na], for those of the action [S, B, na] and of log π [S, B]."""
        density_bar = density_bar.unsqueeze(-1)
        # da/dy = 1 - a² and d(log π)/dy = 2 a
        y_bar = torch.addcmul(action_bar, self.action, 2.0 * density_bar - action_bar * self.action)
        log_std_bar = (y_bar * self.spread).sub_(density_bar)
        log_std_bar *= (self.given >= LOG_STD[0]) & (self.given <= LOG_STD[1])
        return torch.cat([y_bar, log_std_bar], -1)


class _SquashedGaussian(torch.autograd.Function):
    """`Squashed` as a node of autograd's graph."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        ctx.squashed = Squashed(outputs, noise)
        return ctx.squashed.action.clone(), ctx.squashed.density

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, action_bar: Tensor, density_bar: Tensor) -> tuple[Tensor, None]:
        return ctx.squashed.back(action_bar, density_bar), None
