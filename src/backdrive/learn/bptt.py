"""Backpropagation through time: the return of whole episodes, differentiated through the physics.

In each iteration all environments start anew and run for an episode; the policy goes up the gradient of the mean
return. There is no critic. It suits episodes that are short or smooth: along contacts gradients grow, and `clip` and
`truncate` bound them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..model import checks
from .agent import TAKEN_BACK, Agent
from .gradients import ClipCount, descend
from .networks import ACTIVATIONS, Actor

LEAST_RATE = 0.02
"""The share of the learning rate that is left at the end of a training."""


@dataclass(frozen=True, kw_only=True)
class BPTTSettings:
    """truncate: no gradient goes back over more than this many steps at a time; None: over the whole episode. clip:
    largest norm of the gradient of an environment's (q, v) between two steps, in units of reward; None: no limit.
    discount: γ per step.

    noise: logarithm of the standard deviation of actions in training, before squashing; None: the mean action.
    learning_rate: at the start. largest_step: largest norm of the gradient of all weights. actor: numbers of neurons of
    the hidden layers.
    """

    truncate: int | None = None
    clip: float | None = None
    discount: float = 1.0
    noise: float | None = None
    learning_rate: float = 2e-3
    largest_step: float = 1.0
    actor: tuple[int, ...] = (64, 64)
    activation: str = "elu"

    def __post_init__(self) -> None:
        if self.truncate is not None:
            checks.integer(self.truncate, "truncate")
        for name in ("clip", "learning_rate", "largest_step"):
            if getattr(self, name) is not None:
                checks.number(getattr(self, name), name, low=0.0, strict=True)
        checks.number(self.discount, "discount", low=0.0, high=1.0)
        object.__setattr__(self, "actor", tuple(checks.integer(x, "actor") for x in self.actor))
        if self.activation not in ACTIVATIONS:
            raise ValueError(checks.unknown("activation", self.activation, ACTIVATIONS))


class BPTT(Agent):
    """Backpropagation through time on a task, in `num_envs` environments at a time.

    Arguments: as for every `Agent`; an episode has `max_episode_steps` steps. settings: see `BPTTSettings`.
    """

    method = "BPTT"
    settings_type = BPTTSettings
    parts = ("normaliser", "actor", "actor_step")
    given: BPTTSettings

    def make(self) -> None:
        given, world = self.given, self.world
        if world.limit is None:
            raise ValueError(f"task {world.name!r} has no time limit: give BPTT max_episode_steps")
        self.length = world.limit
        sizes = (len(self.normaliser.mean), *given.actor, len(world.low))
        self.actor = Actor(
            sizes, world.low, world.high, activation=given.activation, log_std=given.noise or 0.0,
            generator=self.generator,
        )  # fmt: skip
        self.actor.log_std.requires_grad_(False)
        self.actor_step = torch.optim.Adam(self.actor.mean.parameters(), given.learning_rate, fused=True)

    # ------------------------------------------------------------------------------------------ the algorithm

    def iterate(self, spent: float) -> dict[str, float]:
        given, world = self.given, self.world
        for group in self.actor_step.param_groups:
            group["lr"] = given.learning_rate * max(1.0 - spent, LEAST_RATE)
        count = ClipCount()
        returns, seen = self.episode(count)
        self._check(returns)
        self.actor_step.zero_grad()
        returns.sum().neg().backward()
        slope = descend(self.actor.mean, self.actor_step, given.largest_step, count, samples=world.count)
        self.normaliser.update(seen)
        self.normaliser.refresh()
        self.steps += seen.shape[0] * world.count
        return {"gradient": slope, "clipped": count.share, "not_finite": count.not_finite}

    def episode(self, count: ClipCount) -> tuple[Tensor, Tensor]:
        """Start all environments anew, and run them until their episodes end: their discounted returns [N], with the
        graph of the actor, and the observations [T, N, n]. What follows a termination counts no more."""
        world, given = self.world, self.given
        observation = world.start()
        world.bound(given.clip, count)
        dtype = self.normaliser.mean.dtype
        total, plain = torch.zeros(2, world.count, dtype=dtype).unbind(0)
        weight, seen = torch.ones(world.count, dtype=dtype), []
        for k in range(self.length):
            seen.append(observation.detach())
            noise = None
            if given.noise is not None:
                noise = torch.randn(world.count, len(world.low), generator=self.generator)
            step = world.step(self.actor(self.normaliser(observation), noise))
            reward = step.reward.to(dtype)
            total = total + torch.where(weight > 0.0, weight * reward, 0.0)
            plain = plain + torch.where(weight > 0.0, reward.detach(), 0.0)
            weight = torch.where(step.done, 0.0, given.discount * weight)
            if not bool((weight > 0.0).any()):
                break
            if given.truncate is not None and (k + 1) % given.truncate == 0:
                world.detach()
            observation = world.observation
        world.bound(None, count)
        self.returns.extend(plain.tolist())
        return total, torch.stack(seen)

    def _check(self, returns: Tensor) -> None:
        bad = ~torch.isfinite(returns.detach())
        if bool(bad.any()):
            i = int(bad.nonzero()[0])
            raise ValueError(
                f"the return of task {self.name!r} is {returns[i].item()} in {int(bad.sum())} of {len(returns)} "
                f"environments, first in environment {i}; {TAKEN_BACK}"
            )
