"""Networks of several seeds side by side: each layer is one batched matrix product."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Stacked(nn.Module):
    """`count` networks of the same sizes, with ReLU between their layers: [count, B, sizes[0]] to [count, B, sizes[-1]].

    Weights are uniform in ± 1/√n for n inputs of a layer, those of the last layer times `last`. generators: one for each
    network, or for each group of as many; a network's weights do not depend on its company.
    """

    def __init__(
        self, sizes: Sequence[int], generators: Sequence[torch.Generator], *, copies: int = 1, last: float = 1.0
    ) -> None:
        super().__init__()
        self.count = copies * len(generators)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for k, (n, m) in enumerate(zip(sizes, sizes[1:])):
            reach = (last if k == len(sizes) - 2 else 1.0) / math.sqrt(n)
            drawn = [torch.rand(n, m, generator=g) * 2.0 - 1.0 for _ in range(copies) for g in generators]
            self.weights.append(nn.Parameter(reach * torch.stack(drawn)))
            self.biases.append(nn.Parameter(torch.zeros(self.count, 1, m)))

    def forward(self, x: Tensor) -> Tensor:
        last = len(self.weights) - 1
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            x = torch.baddbmm(bias, x, weight)
            if k < last:
                x = x.relu()
        return x

    def one(self, index: int) -> nn.Sequential:
        """One of the networks, as modules of torch alone."""
        parts: list[nn.Module] = []
        for weight, bias in zip(self.weights, self.biases):
            linear = nn.Linear(weight.shape[1], weight.shape[2])
            with torch.no_grad():
                linear.weight.copy_(weight[index].T)
                linear.bias.copy_(bias[index, 0])
            parts += [linear, nn.ReLU()]
        return nn.Sequential(*parts[:-1])
