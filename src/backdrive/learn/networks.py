"""The networks of an agent: a squashed Gaussian policy, critics, and the normalisation of what both see."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"elu": nn.ELU, "silu": nn.SiLU, "tanh": nn.Tanh, "relu": nn.ReLU}
SMALLEST_VARIANCE = 1e-5
"""Added to the variance of observations, so that those that never change do not become large."""
OUTLIER = 10.0
"""Normalised observations are clipped to ± this many standard deviations."""
SATURATED = 1e-6
"""Added to 1 - tanh², the derivative of the squashing, whose logarithm is in the entropy."""
LOG_STD = (-5.0, 1.0)
"""Range of the logarithm of a policy's standard deviation, before squashing."""


class Normaliser(nn.Module):
    """Running mean and variance of observations [n]; called, it makes them of mean 0 and variance 1, in float32.

    `update` only counts: what a call uses changes with `refresh`, so that actor and critic see the same.
    """

    total_mean: Tensor
    total_var: Tensor
    count: Tensor
    mean: Tensor
    var: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        for name, value in (("total_mean", 0.0), ("total_var", 1.0)):
            self.register_buffer(name, torch.full((size,), value, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(1e-4, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))

    @torch.no_grad()
    def update(self, observations: Tensor) -> None:
        """Count more observations [..., n], by the formula of Chan et al. for merging two sets."""
        x = observations.double().flatten(0, -2)
        count, mean, var = len(x), x.mean(0), x.var(0, unbiased=False)
        total, shift = self.count + count, mean - self.total_mean
        spread = self.total_var * self.count + var * count + shift.square() * (self.count * count / total)
        self.total_var.copy_(spread / total)
        self.total_mean.add_(shift * (count / total))
        self.count.copy_(total)

    @property
    def std(self) -> Tensor:
        """What a call divides by, [n]."""
        return (self.var + SMALLEST_VARIANCE).sqrt()

    @torch.no_grad()
    def refresh(self) -> None:
        """Use what was counted."""
        self.mean.copy_(self.total_mean)
        self.var.copy_(self.total_var)

    def forward(self, observations: Tensor) -> Tensor:
        x = observations.to(self.mean.dtype)
        return ((x - self.mean) / self.std).clamp(-OUTLIER, OUTLIER)


def layers(
    sizes: Sequence[int], activation: str, gain: float, generator: torch.Generator, normal: Callable[[int], nn.Module]
) -> nn.Sequential:
    """Fully connected layers; weights are orthogonal, those of the last layer times `gain`. normal: makes what `n`
    neurons go through before their activation."""
    parts: list[nn.Module] = []
    for k, (n, m) in enumerate(itertools.pairwise(sizes)):
        last = k == len(sizes) - 2
        linear = nn.utils.skip_init(nn.Linear, n, m)  # Its own random weights would use torch's global generator.
        nn.init.orthogonal_(linear.weight, gain if last else math.sqrt(2.0), generator=generator)
        nn.init.zeros_(linear.bias)
        parts += [linear] if last else [linear, normal(m), ACTIVATIONS[activation]()]
    return nn.Sequential(*parts)


def plain_norm(count: int) -> nn.LayerNorm:
    """Neurons to mean 0 and variance 1, and nothing else: as kernels do it."""
    return nn.LayerNorm(count, elementwise_affine=False)


class Actor(nn.Module):
    """A Gaussian policy, squashed into the actions' range: a = middle + reach · tanh(μ(o) + σ ε) with ε ~ N(0, 1).

    sizes: numbers of observations, of neurons of the hidden layers, and of actions. σ does not depend on observations.
    """

    middle: Tensor
    reach: Tensor

    def __init__(
        self, sizes: Sequence[int], low: Tensor, high: Tensor, *, activation: str, log_std: float,
        generator: torch.Generator, layer_norm: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.sizes, self.activation, self.layer_norm = tuple(sizes), activation, layer_norm
        self.mean = layers(sizes, activation, 0.1, generator, plain_norm if layer_norm else nn.Identity)
        self.log_std = nn.Parameter(torch.full((sizes[-1],), float(log_std)))
        self.register_buffer("middle", ((low + high) / 2.0).float())
        self.register_buffer("reach", ((high - low) / 2.0).float())

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        """Actions [..., na] for normalised observations x [..., n]; noise [..., na] (None: the mean action)."""
        mean = self.mean(x)
        y = mean if noise is None else mean + self.log_std.exp() * noise
        return self.middle + self.reach * y.tanh()

    def entropy(self, actions: Tensor, noise: Tensor) -> Tensor:
        """-log of the probability density of actions on the range (-1, 1), per action: a sample of the entropy, [...].

        It is 0 for a density that is 1, and log 2 at most: that of the uniform distribution.
        """
        gaussian = 0.5 * noise.square() + self.log_std + 0.5 * math.log(2.0 * math.pi)
        squashed = (actions - self.middle) / self.reach
        return (gaussian + (1.0 - squashed.square() + SATURATED).log()).mean(-1)

    @torch.no_grad()
    def limit_std(self) -> None:
        """Keep the standard deviation in its range."""
        self.log_std.clamp_(*LOG_STD)


class Critics(nn.Module):
    """Several networks that estimate the value of an observation; the value is their mean."""

    def __init__(self, sizes: Sequence[int], count: int, *, activation: str, generator: torch.Generator) -> None:
        super().__init__()
        self.each = nn.ModuleList(layers((*sizes, 1), activation, 1.0, generator, nn.LayerNorm) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        """Values [...] of normalised observations x [..., n]."""
        return self.all(x).mean(0)

    def all(self, x: Tensor) -> Tensor:
        """The estimates of all networks, [count, ...]."""
        return torch.stack([critic(x)[..., 0] for critic in self.each])


def exported(normaliser: Normaliser, actor: Actor) -> nn.Sequential:
    """The mean action as modules of torch alone: observations [..., n] to actions [..., na], float32.

    It can be saved, loaded and run where backdrive is not installed.
    """
    size, actions = len(normaliser.mean), len(actor.middle)
    inputs, outputs = nn.Linear(size, size), nn.Linear(actions, actions)
    with torch.no_grad():
        scale = 1.0 / normaliser.std
        inputs.weight.copy_(torch.diag(scale))
        inputs.bias.copy_(-normaliser.mean * scale)
        outputs.weight.copy_(torch.diag(actor.reach))
        outputs.bias.copy_(actor.middle)
    limit, trunk = nn.Hardtanh(-OUTLIER, OUTLIER), copy.deepcopy(actor.mean)
    return nn.Sequential(inputs, limit, *trunk, nn.Tanh(), outputs).requires_grad_(False).eval()
