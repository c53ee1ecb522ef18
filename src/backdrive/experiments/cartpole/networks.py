"""The baseline: networks that learn the change of the observation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .game import Steps
from .model_batch import ModelBatch

NETWORK = "network"
HIDDEN, RATE, UPDATES, MINIBATCH = 100, 3e-3, 3000, 100


class Networks(ModelBatch):
    """K networks with two hidden layers that predict the change of the observation; inputs and outputs are normalised.

    layers: weights [K, inputs, outputs] and biases [K, 1, outputs]. scales: means and standard deviations of the
    inputs [K, 1, 5] (observation and force), and of the changes [K, 1, 4].
    """

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]], scales: Sequence[Tensor]) -> None:
        self.layers, self.scales, self.count = layers, scales, len(scales[0])

    @classmethod
    def train(cls, steps: Sequence[Steps], generator: torch.Generator) -> Networks:
        """Train one network for each of K records of n steps."""
        before, after = (torch.stack([getattr(s, name) for s in steps]) for name in ("before", "after"))
        inputs = torch.cat([before, torch.stack([s.force for s in steps]).unsqueeze(-1)], -1)
        changes = after - before
        sizes = (5, HIDDEN, HIDDEN, 4)
        pairs = itertools.pairwise(sizes)
        networks = cls([_layer(len(steps), *pair, generator) for pair in pairs], [*_scale(inputs), *_scale(changes)])
        mean_in, by_in, mean_out, by_out = networks.scales
        networks._fit((inputs - mean_in) / by_in, (changes - mean_out) / by_out, generator)
        return networks

    @classmethod
    def joined(cls, several: Sequence[Networks]) -> Networks:
        layers = [
            (torch.cat([W for W, _ in same]), torch.cat([b for _, b in same]))
            for same in zip(*(one.layers for one in several), strict=True)
        ]
        return cls(layers, [torch.cat(same) for same in zip(*(one.scales for one in several), strict=True)])

    def _fit(self, inputs: Tensor, changes: Tensor, generator: torch.Generator) -> None:
        leaves = [x.requires_grad_() for layer in self.layers for x in layer]
        optimizer = torch.optim.Adam(leaves, lr=RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, UPDATES)
        for _ in range(UPDATES):
            some = torch.randperm(inputs.shape[1], generator=generator)[:MINIBATCH]
            error = self._through(inputs[:, some]) - changes[:, some]
            optimizer.zero_grad()
            error.square().mean((1, 2)).sum().backward()
            optimizer.step()
            schedule.step()
        for x in leaves:
            x.requires_grad_(False)

    def _through(self, y: Tensor) -> Tensor:
        """The outputs [K, n, 4] for inputs [K, n, 5], both normalised."""
        (W, b), *others = self.layers
        y = torch.baddbmm(b, y, W)
        for W, b in others:
            y = torch.baddbmm(b, torch.tanh(y), W)
        return y

    def predict(self, model: Tensor, seen: Tensor, force: Tensor) -> Tensor:
        mean_in, by_in, mean_out, by_out = self.scales
        counts = torch.bincount(model, minlength=self.count)
        order = model.argsort(stable=True)
        place = torch.empty_like(model)  # Index among the rows of the same network.
        place[order] = torch.arange(len(model)) - (counts.cumsum(0) - counts)[model[order]]
        inputs = seen.new_zeros(len(counts), int(counts.max()), 5)
        inputs = inputs.index_put((model, place), torch.cat([seen, force], -1))
        changes = mean_out + by_out * self._through((inputs - mean_in) / by_in)
        return seen + changes[model, place]

    def linearize(self, x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Rows are independent: four copies of them, one per output, give all Jacobians in one backward pass."""
        rows = len(x)
        seen, force = (y.repeat(4, 1).requires_grad_() for y in (x[:, :4], u))
        with torch.enable_grad():
            after = self.predict(x[:, 4].long().repeat(4), seen, force)
            seeds = torch.eye(4, dtype=x.dtype).repeat_interleave(rows, 0)
            A, B = (y.unflatten(0, (4, rows)).movedim(0, 1) for y in torch.autograd.grad(after, (seen, force), seeds))
        return A, B


def _scale(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation [K, 1, m] of x [K, n, m]."""
    deviation = x.std(1, keepdim=True, correction=0)
    return x.mean(1, keepdim=True), torch.where(deviation > 0.0, deviation, 1.0)  # It is 0 for a single sample.


def _layer(count: int, inputs: int, outputs: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random weights and biases as in torch.nn.Linear: uniform in ± 1 / √inputs."""
    unit = torch.rand(count, inputs + 1, outputs, generator=generator, dtype=torch.float64)
    both = (2.0 * unit - 1.0) / math.sqrt(inputs)
    return both[:, :-1].clone(), both[:, -1:].clone()
