"""Soft Q-learning (Haarnoja et al. 2017): the value of a state is a soft maximum of the critics over all actions,

    V(s) = α log ∫ exp(min Q(s, a) / α) da,

estimated with uniformly random actions; and the policy is a network a = f(s, ξ) whose actions, for random ξ, learn to
have the density ∝ exp(Q(s, a) / α), by Stein variational gradient descent.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...learn import SAC, SACSettings
from ...learn.adam import Adam, as_one
from ...learn.sac import Transitions
from ...learn.seeds import Generators, Layers, Temperatures, TwinCritics
from ...model import checks

EDGE = 1e-6
"""Actions count as at least this far from ± 1, where the logarithm of their density ends."""


@dataclass(frozen=True, kw_only=True)
class SQLSettings(SACSettings):
    """particles: actions per state, of which the soft maximum and Stein's gradient are made. temperature: α, which
    stays as it is. Other settings: as in `SACSettings`."""

    particles: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer(self.particles, "particles", 4)
        if self.enhance is not None:
            raise ValueError(f"soft Q-learning has no enhancement, got enhance={self.enhance!r}")


class Moved:
    """Actions [S, B, na] of sampling networks, without autograd."""

    def __init__(self, layers: Layers, x: Tensor, noise: Tensor) -> None:
        self._passed = layers.run(x, noise)
        self.action = self._passed.outputs.tanh()

    def learn(self, action_bar: Tensor) -> None:
        """Write the gradient of the weights into their `grad`, for the cotangent of the actions."""
        self._passed.learn(action_bar * (1.0 - self.action.square()))


class Samplers(nn.Module):
    """Networks a = tanh f(s, ξ), whose actions for random ξ have a density that is learned.

    sizes: numbers of observations, of neurons of the hidden layers, and of actions, as many as elements of ξ.
    """

    def __init__(self, sizes: tuple[int, ...], generators: Generators) -> None:
        super().__init__()
        self.actions = sizes[-1]
        self.layers = Layers((sizes[0] + sizes[-1], *sizes[1:]), generators)

    def forward(self, x: Tensor, noise: Tensor, frozen: bool = False) -> tuple[Tensor, None]:
        """Actions [S, B, na] for observations [S, B, n] and noise [S, B, na]; their density is not known."""
        return self.layers(x, noise, frozen=frozen).tanh(), None

    def sample(self, x: Tensor, noise: Tensor) -> Moved:
        """The same without autograd, to go back in closed form."""
        return Moved(self.layers, x, noise)

    def mean(self, x: Tensor) -> Tensor:
        """The actions for ξ = 0, [S, B, na]: what counts as the policy without noise."""
        return self(x, x.new_zeros(*x.shape[:-1], self.actions))[0]

    def one(self, which: int) -> list[nn.Module]:
        """The policy without noise of one seed, before squashing, as modules of torch."""
        first, *others = self.layers.one(which)
        assert isinstance(first, nn.Linear)
        seen = nn.utils.skip_init(nn.Linear, first.in_features - self.actions, first.out_features)
        with torch.no_grad():
            seen.weight.copy_(first.weight[:, : seen.in_features])
            seen.bias.copy_(first.bias)
        return [seen, *others]


class SQL(SAC):
    """Soft Q-learning on a task. Arguments: as for `SAC`; settings: see `SQLSettings`."""

    method = "SQL"
    settings_type = SQLSettings
    given: SQLSettings

    @property
    def noises(self) -> int:
        return 2 * self.given.particles

    def make_networks(self, n: int, na: int) -> None:
        given = self.given
        self.actors: Any = Samplers((n, *given.actor, na), self.generators)
        self.critics = TwinCritics((n + na, *given.critic), self.generators)
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        self.slow = as_one(self.target.weights)
        self.temperatures = Temperatures(len(self.seeds), given.temperature)
        self.actor_step = Adam(self.actors.parameters(), given.learning_rate)
        self.critic_step = Adam(self.critics.parameters(), given.learning_rate)

    @torch.no_grad()
    def update(self, seen: Transitions, states: Tensor | None, noise: Tensor) -> Tensor:
        """One update of critics, sampling networks and slow critics. Returns as `SAC.update`, without an entropy."""
        count = self.given.particles
        uniform = torch.erf(noise[:count] / math.sqrt(2.0))
        goal = seen.reward + self.given.discount * seen.alive * self.soft_value(self.target, seen.following, uniform)
        error = self.critics.learn(seen.observation, seen.action, goal)
        self.critic_step.update()
        x = repeated(seen.observation, count)
        random, still = noise[count:].transpose(0, 1).flatten(1, 2), count // 2 * seen.observation.shape[1]
        fixed, _ = self.actors(x[:, :still], random[:, :still])
        moved = self.actors.sample(x[:, still:], random[:, still:])
        direction = self.stein(x, torch.cat([fixed, moved.action], 1), count)[:, still:]
        moved.learn(direction / -x.shape[1])
        self.actor_step.update()
        self.follow()
        zero = torch.zeros(())
        return torch.stack([error.square().mean(), goal.mean(), zero, goal.abs().max()])

    def soft_value(self, critics: TwinCritics, x: Tensor, actions: Tensor) -> Tensor:
        """V of observations x [S, B, n], from uniformly random actions [K, S, B, na] in (-1, 1): [S, B]."""
        count, _, size, na = actions.shape
        alpha = self.temperatures()
        values = critics.least(repeated(x, count), actions.transpose(0, 1).flatten(1, 2)).view(-1, count, size)
        volume = na * math.log(2.0) - math.log(count)
        return alpha * (torch.logsumexp(values / alpha[..., None], 1) + volume)

    def stein(self, x: Tensor, action: Tensor, count: int) -> Tensor:
        """Stein's direction for each of K actions per state, [S, K B, na]: that in which actions in (-1, 1) come nearer
        to the density ∝ exp(Q / α), and away from each other.

        Half of the actions carry the gradient of the density, the others are moved by it.
        """
        seeds, rows, na = action.shape
        size, half = rows // count, count // 2
        given = action[:, : half * size]
        _, slope = self.critics.least_and_slope(x[:, : half * size], given)
        # log (1 - a²) keeps actions away from ± 1, as the authors do
        slope = slope / self.temperatures()[..., None] - 2.0 * given / (1.0 + EDGE - given.square())
        particles, slopes = (y.view(seeds, -1, size, na).transpose(1, 2) for y in (action, slope))
        fixed, moved = particles[:, :, :half], particles[:, :, half:]
        apart = fixed[:, :, :, None] - moved[:, :, None]  # [S, B, fixed, moved, na]
        square = apart.square().sum(-1)
        width = (square.flatten(2).median(-1).values / math.log(half + 1.0)).clamp(min=1e-6)[..., None, None]
        kernel = (-square / width).exp()
        push = -2.0 * apart / width[..., None] * kernel[..., None]  # the kernel's derivative by the fixed actions
        towards = (kernel[..., None] * slopes[:, :, :, None] + push).mean(2)
        full = torch.cat([torch.zeros_like(fixed), towards], 2)
        return full.transpose(1, 2).reshape(seeds, rows, na)


def repeated(x: Tensor, count: int) -> Tensor:
    """The rows of x [S, B, n], all of them `count` times: [S, count B, n]."""
    return x[:, None].expand(-1, count, -1, -1).flatten(1, 2)
