"""Short-horizon actor-critic (Xu et al. 2022): the return of a short window, differentiated through the physics.

In each iteration all environments move for `horizon` steps. The actor maximises the discounted rewards of that window
plus the critic's value of where it ends; the gradient goes through the simulator, and stops at the start of the window.
The critic then learns the TD(λ) returns of what was seen.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..model import checks
from .agent import TAKEN_BACK, Agent, Diverged, largest
from .gradients import ClipCount, descend
from .networks import ACTIVATIONS, Actor, Critics, Normaliser
from .windows import OneCall, ShortWindow, stepped

LEAST_RATE = 0.02
"""The share of a learning rate that is left at the end of a training."""
HORIZON_RATE = 0.05
"""Relative change of the horizon per iteration and unit of the share of clipped gradients."""
LARGEST_DISCOUNT = 0.9999
"""The largest discount of those that change in a training."""
SHORTEST = 2.0
"""The shortest horizon that adapts: in shorter windows there are no gradients between steps."""
OWN = ("largest_reward", "temperature", "horizon")
"""Numbers of an agent that its file keeps besides its parts."""
LARGEST_WEIGHT = 50.0
"""Inputs and outputs of an actor are about 1, and so are its weights, unless it diverged."""
LARGEST_VALUE = 10.0
"""A critic diverged if it values something at more than this many times what the largest reward for ever would be
worth (and 100 more), or has a weight larger than that worth: its neurons are normalised, about 1."""


@dataclass(frozen=True, kw_only=True)
class SHACSettings:
    """horizon: steps of a window, at the start. most_clipped: the share of clipped gradients that the horizon follows,
    since contacts make long windows less useful. It grows while fewer are clipped, up to `longest`, and falls while
    more are; None: it stays.

    clip: largest norm of the gradient of an environment's (q, v) between two steps, in units of reward; None: no limit.
    discount: γ per step. last_discount: γ at the end of a training; on the way there, the number 1 / (1 - γ) of steps
    that a policy looks ahead grows evenly (None: it stays). trace: λ of TD(λ).

    entropy: weight of the policy's entropy per action in the reward, at the start; the reward is what is above
    `least_entropy` (log 2 is the entropy of uniform actions). adapt: rate per iteration and unit of entropy by which
    the weight grows while the entropy is below the least, and falls while it is above; 0: it stays.

    critics: their number; the value is their mean.
    critic_passes, critic_batches: passes over the window's samples in every iteration, and minibatches of each. keep:
    share of the target critic's weights that an iteration keeps. terminal_value: whether the actor's objective has the
    critic's value also where an episode terminates, so that a fall is judged by what the critic thinks of it.
    learning_rate, critic_rate: of actor and critic, at the start. largest_step: largest norm of the gradient of all
    weights of a network. actor, critic: numbers of neurons of the hidden layers. log_std: logarithm of the standard
    deviation of the actions at the start, before squashing. last_noise: the share of that noise that is left at the end
    of a training, since what is learned with noise may not be what the mean action does. layer_norm: whether the
    actor's layers are normalised. normalise: whether observations are, by their running mean and variance. staggered:
    whether the first episodes end at different times, so that not all environments start anew at once.
    one_call: whether a window is one call of a kernel where that is possible (see `windows.OneCall`).
    """

    horizon: int = 16
    most_clipped: float | None = None
    longest: int = 64
    clip: float | None = 30.0
    discount: float = 0.99
    last_discount: float | None = None
    trace: float = 0.95
    entropy: float = 0.0
    least_entropy: float = 0.0
    adapt: float = 0.0
    critics: int = 1
    critic_passes: int = 4
    critic_batches: int = 4
    keep: float = 0.2
    terminal_value: bool = True
    learning_rate: float = 2e-3
    critic_rate: float = 2e-3
    largest_step: float = 1.0
    actor: tuple[int, ...] = (128, 64, 32)
    critic: tuple[int, ...] = (64, 64)
    activation: str = "elu"
    log_std: float = -1.0
    last_noise: float = 1.0
    layer_norm: bool = True
    normalise: bool = True
    staggered: bool = True
    one_call: bool = True

    def __post_init__(self) -> None:
        for name in ("horizon", "longest", "critics", "critic_passes", "critic_batches"):
            checks.integer(getattr(self, name), name)
        for name in ("learning_rate", "critic_rate", "largest_step"):
            checks.number(getattr(self, name), name, low=0.0, strict=True)
        for name in ("discount", "trace", "keep", "last_noise"):
            checks.number(getattr(self, name), name, low=0.0, high=1.0)
        for name in ("entropy", "adapt"):
            checks.number(getattr(self, name), name, low=0.0)
        checks.number(self.least_entropy, "least_entropy")
        if self.entropy > 0.0 and self.last_noise < 1.0:
            raise ValueError("last_noise < 1 takes the noise away that entropy > 0 rewards: give one of the two")
        checks.number(self.log_std, "log_std")
        if self.last_discount is not None:
            for name in ("discount", "last_discount"):
                checks.number(getattr(self, name), name, low=0.0, high=LARGEST_DISCOUNT)
        if self.clip is not None:
            checks.number(self.clip, "clip", low=0.0, strict=True)
        if self.most_clipped is not None:
            checks.number(self.most_clipped, "most_clipped", low=0.0, high=1.0)
            if self.clip is None:
                raise ValueError("most_clipped needs a limit that gradients are clipped to: set clip")
            if self.longest < self.horizon:
                raise ValueError(f"longest must be at least the horizon, {self.horizon}, got {self.longest}")
        for name in ("actor", "critic"):
            object.__setattr__(self, name, tuple(checks.integer(x, name) for x in getattr(self, name)))
        if self.activation not in ACTIVATIONS:
            raise ValueError(checks.unknown("activation", self.activation, ACTIVATIONS))


class SHAC(Agent):
    """Short-horizon actor-critic on a task, in `num_envs` environments at a time.

    Arguments: as for every `Agent`. settings: see `SHACSettings`.
    """

    method = "SHAC"
    settings_type = SHACSettings
    parts = ("normaliser", "actor", "critics", "target", "actor_step", "critic_step")
    given: SHACSettings

    def make(self) -> None:
        given, world = self.given, self.world
        n, na = len(self.normaliser.mean), len(world.low)
        if not given.normalise:
            self.normaliser = Normaliser(n)  # of mean 0 and variance 1, which stays
        if not given.staggered:
            world.start()
        of_network: dict[str, Any] = {"activation": given.activation, "generator": self.generator}
        self.actor = Actor(
            (n, *given.actor, na), world.low, world.high, log_std=given.log_std, layer_norm=given.layer_norm,
            **of_network,
        )  # fmt: skip
        self.critics = Critics((n, *given.critic), given.critics, **of_network)
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        self.actor_step = torch.optim.Adam(self.actor.parameters(), given.learning_rate, betas=(0.7, 0.95), fused=True)
        self.critic_step = torch.optim.Adam(self.critics.parameters(), given.critic_rate, betas=(0.7, 0.95), fused=True)
        self.largest_reward, self.temperature, self.horizon = 0.0, given.entropy, float(given.horizon)
        seen = OneCall.possible(world, self.actor) if given.one_call else None
        self.one_call = None if seen is None else OneCall(world, self.actor, self.normaliser, seen)
        self._warned = False
        self.discount = given.discount

    # ------------------------------------------------------------------------------------------ the algorithm

    def iterate(self, spent: float) -> dict[str, float]:
        given = self.given
        for optimiser, rate in ((self.actor_step, given.learning_rate), (self.critic_step, given.critic_rate)):
            for group in optimiser.param_groups:
                group["lr"] = rate * max(1.0 - spent, LEAST_RATE)
        if given.last_discount is not None:
            first, last = (1.0 / (1.0 - x) for x in (given.discount, given.last_discount))
            self.discount = 1.0 - 1.0 / (first + spent * (last - first))
        noise = (1.0 + spent * (given.last_noise - 1.0)) * self.noise()
        window = self.window(noise)
        self._check(window)
        entropy = self.actor.entropy(window.actions, noise)
        rewards = window.rewards + self.temperature * (entropy - given.least_entropy)
        slope, clips = self._improve_actor(window, rewards)
        self.actor.limit_std()
        loss = self._improve_critics(window, rewards.detach())
        mean_entropy = float(entropy.detach()[window.counts].mean())
        if given.adapt:
            self.temperature *= math.exp(given.adapt * (given.least_entropy - mean_entropy))
        if given.most_clipped is not None:
            factor = math.exp(HORIZON_RATE * (given.most_clipped - clips.share))
            self.horizon = min(max(self.horizon * factor, SHORTEST), given.longest)
        if given.normalise:
            self.normaliser.update(window.observations[window.counts])
            self.normaliser.refresh()
        self.steps += int(window.counts.sum())
        self._check_networks(window)
        return {
            "reward": float(window.rewards.detach()[window.counts].mean()), "critic_loss": loss, "gradient": slope,
            "clipped": clips.share, "not_finite": clips.not_finite, "entropy": mean_entropy,
            "std": float(self.actor.log_std.detach().exp().mean()), "horizon": len(noise),
        }  # fmt: skip

    def noise(self) -> Tensor:
        """The random numbers of the actions of a window, [H, N, na]."""
        world = self.world
        return torch.randn(round(self.horizon), world.count, len(world.low), generator=self.generator)

    def window(self, noise: Tensor) -> ShortWindow:
        """Move all environments for a window. Actions and rewards have the graph of the actor."""
        if self.one_call is not None:
            window = self.one_call.window(noise, self.given.clip)
        else:
            window = stepped(self.world, self.actor, self.normaliser, noise, self.given.clip)
        self.returns.extend(self.world.finished())
        return window

    def objective(self, window: ShortWindow, rewards: Tensor) -> Tensor:
        """The sum over all environments of a window's discounted rewards and the value of where it ends."""
        ends = window.ends()
        weights = window.weights(self.discount)
        value = self.target(self.normaliser(window.last))
        if not self.given.terminal_value:
            value = torch.where(window.terminated[ends], 0.0, value)
        return (weights * rewards).sum() + (self.discount * weights[ends] * value).sum()

    def _improve_actor(self, window: ShortWindow, rewards: Tensor) -> tuple[float, ClipCount]:
        """One step of the actor along its gradient, whose norm is returned, and what was clipped."""
        self.actor_step.zero_grad()
        self.objective(window, rewards).neg().backward()  # a sum: `clip` is about the return of one environment
        clips, samples = window.clips(), int(window.counts.sum())
        return descend(self.actor, self.actor_step, self.given.largest_step, clips, samples), clips

    def _improve_critics(self, window: ShortWindow, rewards: Tensor) -> float:
        """Fit the critics to the TD(λ) returns of the window; the mean squared error at the end."""
        given = self.given
        with torch.no_grad():
            values = torch.where(window.terminated, 0.0, self.target(self.normaliser(window.finals)))
        returns = window.returns(rewards, values, self.discount, given.trace)[window.counts]
        x, error = self.normaliser(window.observations[window.counts]), torch.zeros(())
        for _ in range(given.critic_passes):
            order = torch.randperm(len(x), generator=self.generator)
            for rows in order.chunk(given.critic_batches):
                self.critic_step.zero_grad()
                error = (self.critics.all(x[rows]) - returns[rows]).square().mean(-1).sum()
                error.backward()
                descend(self.critics, self.critic_step, given.largest_step, ClipCount())
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.critics.parameters()), 1.0 - given.keep)
        return float(error.detach()) / given.critics

    def _check(self, window: ShortWindow) -> None:
        """Raise if a reward is not finite, and warn once if no episode lasts."""
        bad = ~torch.isfinite(window.rewards.detach()) & window.counts
        if bool(bad.any()):
            h, i = bad.nonzero()[0].tolist()
            raise ValueError(
                f"the reward of task {self.name!r} is {window.rewards[h, i].item()} in {int(bad.sum())} of "
                f"{bad.numel():,} steps, first in environment {i}; {TAKEN_BACK}"
            )
        if not self._warned and bool(window.terminated[window.counts].all()):
            self._warned = True
            warnings.warn(
                f"every episode of task {self.name!r} terminates at its first step: look at its `start` and `ends`",
                stacklevel=5,
            )

    def _check_networks(self, window: ShortWindow) -> None:
        """Raise if the networks cannot be those of an agent that learns."""
        self.largest_reward = max(self.largest_reward, float(window.rewards.detach().abs().max()))
        lasting = 1.0 / max(1.0 - self.discount, 1e-4)
        with torch.no_grad():
            value = float(self.critics(self.normaliser(window.observations)).abs().max())
        found = []
        if (weight := largest(self.actor)) > LARGEST_WEIGHT:
            found.append(f"the largest weight of the actor is {weight:.3g}: perhaps its learning_rate is too large")
        most = self.largest_reward * lasting + 100.0
        if value > LARGEST_VALUE * most or largest(self.critics) > most:
            found.append(
                f"the critics value a state at {value:.3g} with weights up to {largest(self.critics):.3g}, where no "
                f"reward was larger than {self.largest_reward:.3g}: perhaps critic_rate is too large"
            )
        if found:
            raise Diverged(f"after {self.steps:,} steps {'; '.join(found)}; {TAKEN_BACK}")

    # ------------------------------------------------------------------------------------------ what an agent is

    def networks(self) -> dict[str, nn.Module]:
        return {"the actor": self.actor, "the critics": self.critics}

    def state_dict(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in OWN}
        return {**super().state_dict(), **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        for name in OWN:
            setattr(self, name, state.get(name, getattr(self, name)))
        if self.given.most_clipped is None:
            self.horizon = float(self.given.horizon)
