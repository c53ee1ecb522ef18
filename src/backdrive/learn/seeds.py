"""Networks of several seeds, trained at once: their weights are batches of matrices, and no seed sees another's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from .closed_form import Pass, Squashed, perceptrons, squashed_gaussian

Generators = Sequence[torch.Generator]
"""The random numbers of the seeds, one generator each."""


def drawn(draw: Callable[..., Tensor], generators: Generators, *shape: int) -> Tensor:
    """Random numbers [S, *shape] by torch.randn or torch.rand, those of each seed from its own generator."""
    return torch.stack([draw(*shape, generator=generator) for generator in generators])


class Layers(nn.Module):
    """Fully connected networks of the same sizes with ReLU between layers: inputs [S, B, n] to outputs [S, B, m].

    The weights of each network come from a generator, and have the distribution of `nn.Linear`.
    """

    def __init__(self, sizes: Sequence[int], generators: Generators) -> None:
        super().__init__()
        for k, (n, m) in enumerate(itertools.pairwise(sizes)):
            for name, shape in (("weight", (n, m)), ("bias", (1, m))):
                values = (2.0 * drawn(torch.rand, generators, *shape) - 1.0) / math.sqrt(n)
                self.register_parameter(f"{name}{k}", nn.Parameter(values))
        self.weights: list[Tensor] = list(self.parameters())  # A list at hand: to collect it takes longer than a layer.

    def forward(self, *inputs: Tensor, frozen: bool = False) -> Tensor:
        """inputs: side by side. frozen: no gradient goes to the weights, but one may go to the inputs."""
        return perceptrons(inputs, self.weights, frozen)

    def run(self, *inputs: Tensor) -> Pass:
        """The same without autograd, to go back in closed form."""
        return Pass(inputs, self.weights)

    def one(self, which: int, outputs: slice = slice(None)) -> list[nn.Module]:
        """One of the networks as modules of torch, with some of its outputs."""
        parts: list[nn.Module] = []
        matrices = [w.detach()[which] for w in self.weights]
        last = len(matrices) - 2
        for k in range(0, len(matrices), 2):
            weight, bias = (x[:, outputs] if k == last else x for x in matrices[k : k + 2])
            linear = nn.utils.skip_init(nn.Linear, *weight.shape)
            with torch.no_grad():
                linear.weight.copy_(weight.T)
                linear.bias.copy_(bias[0])
            parts += [linear] if k == last else [linear, nn.ReLU()]
        return parts


class Sample:
    """Random actions [S, B, na] of policies, and the logarithms of their densities [S, B], without autograd."""

    def __init__(self, layers: Layers, x: Tensor, noise: Tensor) -> None:
        self._passed = layers.run(x)
        self._squashed = Squashed(self._passed.outputs, noise)
        self.action, self.density = self._squashed.action, self._squashed.density

    def learn(self, action_bar: Tensor, density_bar: Tensor) -> None:
        """Write the gradient of the weights into their `grad`, for cotangents of the actions and densities."""
        self._passed.learn(self._squashed.back(action_bar, density_bar))

    def back(self, action_bar: Tensor, density_bar: Tensor) -> Tensor:
        """The cotangent of the observations [S, B, n], for those of the actions and densities."""
        return self._passed.back(self._squashed.back(action_bar, density_bar), slice(None))


class Actors(nn.Module):
    """Squashed Gaussian policies: actions tanh(μ(o) + σ(o) ε) in (-1, 1), with ε ~ N(0, 1).

    sizes: numbers of observations, of neurons of the hidden layers, and of actions.
    """

    def __init__(self, sizes: Sequence[int], generators: Generators) -> None:
        super().__init__()
        self.layers = Layers((*sizes[:-1], 2 * sizes[-1]), generators)
        self.actions = sizes[-1]

    def forward(self, x: Tensor, noise: Tensor, frozen: bool = False) -> tuple[Tensor, Tensor]:
        """Actions [S, B, na] and the logarithms of their densities [S, B], for observations [S, B, n] and noise
        [S, B, na]."""
        return squashed_gaussian(self.layers(x, frozen=frozen), noise)

    def sample(self, x: Tensor, noise: Tensor) -> Sample:
        """The same without autograd, to go back in closed form."""
        return Sample(self.layers, x, noise)

    def mean(self, x: Tensor) -> Tensor:
        """The mean actions [S, B, na], squashed."""
        return self.layers(x)[..., : self.actions].tanh()

    def one(self, which: int) -> list[nn.Module]:
        """The mean actions of one seed, before squashing, as modules of torch."""
        return self.layers.one(which, slice(self.actions))


class TwinCritics(nn.Module):
    """Two estimates of the value of an action in (-1, 1) after an observation.

    sizes: the number of observations and actions together, and numbers of neurons of the hidden layers.
    """

    def __init__(self, sizes: Sequence[int], generators: Generators) -> None:
        super().__init__()
        self.layers = Layers((*sizes, 1), [*generators, *generators])

    @property
    def weights(self) -> list[Tensor]:
        return self.layers.weights

    def forward(self, x: Tensor, action: Tensor, frozen: bool = False) -> Tensor:
        """Both estimates [2, S, B] for observations x [S, B, n] and actions [S, B, na]."""
        return self.layers(x, action, frozen=frozen).view(2, *x.shape[:-1])

    def least(self, x: Tensor, action: Tensor, frozen: bool = False) -> Tensor:
        """The smaller one of the two estimates [S, B]."""
        first, second = self(x, action, frozen)
        return torch.minimum(first, second)

    def learn(self, x: Tensor, action: Tensor, goal: Tensor) -> Tensor:
        """Write the gradient of the sum of all networks' mean squared errors, with goals [S, B], into the weights'
        `grad`. Returns the errors [2, S, B]."""
        passed = self.layers.run(x, action)
        error = passed.outputs.view(2, *goal.shape) - goal
        passed.learn((error * (2.0 / goal.shape[-1])).view_as(passed.outputs))
        return error

    def least_and_slope(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The smaller one of the two estimates [S, B], and its derivative with respect to the action [S, B, na]."""
        return self._least_and_slope(x, action, slice(x.shape[-1], None))

    def least_and_slopes(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same, with the derivative with respect to the observation [S, B, n] before that to the action."""
        least, slope = self._least_and_slope(x, action, slice(None))
        to_x, to_action = slope.split([x.shape[-1], action.shape[-1]], -1)
        return least, to_x, to_action

    def _least_and_slope(self, x: Tensor, action: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
        passed = self.layers.run(x, action)
        first, second = passed.outputs.view(2, *x.shape[:-1])
        chosen = (first <= second).to(first.dtype)
        slopes = passed.back(torch.stack([chosen, 1.0 - chosen]).view_as(passed.outputs), columns)
        return torch.minimum(first, second), slopes.view(2, *x.shape[:-1], -1).sum(0)


class Temperatures(nn.Module):
    """The temperatures α of all seeds, learned by their logarithms [S, 1]; called, α [S, 1] without a graph."""

    def __init__(self, seeds: int, first: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.full((seeds, 1), first).log())

    def forward(self) -> Tensor:
        return self.log.detach().exp()

    def learn(self, surplus: Tensor) -> None:
        """Write the gradient into that of the logarithms: temperatures rise where this surplus [S, 1] of log π over its
        target is positive."""
        assert self.log.grad is not None
        torch.neg(surplus, out=self.log.grad)
