"""Backpropagation through time: the return of whole episodes, differentiated through the physics.

In each iteration all environments start anew and run for an episode; the policy goes up the gradient of the mean
return. There is no critic. It suits episodes that are short or smooth: along contacts gradients grow, and `clip` and
`truncate` bound them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from ..envs import Task
from ..model import checks
from .agent import TAKEN_BACK, Agent, copied
from .gradients import ClipCount, clipped, descend
from .networks import ACTIVATIONS, Actor, Normaliser, exported
from .worlds import World

LEAST_RATE = 0.02
"""The share of the learning rate that is left at the end of a training."""


@dataclass(frozen=True, kw_only=True)
class BPTTSettings:
    """length: steps of an episode; None: the task's time limit. truncate: no gradient goes back over more than this
    many steps at a time; None: over the whole episode. clip: largest norm of the gradient of an environment's (q, v)
    between two steps, in units of reward; None: no limit. discount: γ per step.

    noise: logarithm of the standard deviation of actions in training, before squashing; None: the mean action.
    learning_rate: at the start. largest_step: largest norm of the gradient of all weights. actor: numbers of neurons of
    the hidden layers.
    """

    length: int | None = None
    truncate: int | None = None
    clip: float | None = None
    discount: float = 1.0
    noise: float | None = None
    learning_rate: float = 2e-3
    largest_step: float = 1.0
    actor: tuple[int, ...] = (64, 64)
    activation: str = "elu"

    def __post_init__(self) -> None:
        for name in ("length", "truncate"):
            if getattr(self, name) is not None:
                checks.integer(getattr(self, name), name)
        for name in ("clip", "learning_rate", "largest_step"):
            if getattr(self, name) is not None:
                checks.number(getattr(self, name), name, low=0.0, strict=True)
        checks.number(self.discount, "discount", low=0.0, high=1.0)
        object.__setattr__(self, "actor", tuple(checks.integer(x, "actor") for x in self.actor))
        if self.activation not in ACTIVATIONS:
            raise ValueError(checks.unknown("activation", self.activation, ACTIVATIONS))


class BPTT(Agent):
    """Backpropagation through time on a task, in `num_envs` environments at a time.

    task, seed, threads, dtype, options: as in `SHAC`. settings: see `BPTTSettings`.
    """

    method = "BPTT"

    def __init__(
        self, task: Task | str, *, num_envs: int = 64, seed: int = 0, threads: int | None = None,
        dtype: torch.dtype | str = "float64", options: Mapping[str, Any] | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        known = [x.name for x in fields(BPTTSettings)]
        for name in settings:
            if name not in known:
                raise TypeError(checks.unknown("argument of BPTT", name, known))
        self.given = given = BPTTSettings(**settings)
        self._made = {
            "num_envs": num_envs, "seed": seed, "threads": threads, "dtype": str(dtype).removeprefix("torch."),
            "options": dict(options or {}),
        }  # fmt: skip
        of_env = {"threads": threads, "dtype": dtype, **(options or {})}
        self.world = world = World(task, num_envs, seed=seed, limit=given.length, settings=of_env)
        if world.limit is None:
            raise ValueError(f"task {world.name!r} has no time limit: give BPTT the length of an episode")
        self.length = world.limit
        self.generator = torch.Generator().manual_seed(seed)
        n, na = world.observation.shape[-1], len(world.low)
        self.normaliser = Normaliser(n)
        self.normaliser.update(world.observation.detach())
        self.normaliser.refresh()
        self.actor = Actor(
            (n, *given.actor, na), world.low, world.high, activation=given.activation, log_std=given.noise or 0.0,
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
        dtype = self.normaliser.mean.dtype
        total, plain = torch.zeros(2, world.count, dtype=dtype).unbind(0)
        weight, seen = torch.ones(world.count, dtype=dtype), []
        for k in range(self.length):
            seen.append(observation.detach())
            noise = None
            if given.noise is not None:
                noise = torch.randn(world.count, len(world.low), generator=self.generator)
            step, _ = world.step(self.actor(self.normaliser(observation), noise))
            reward = step.reward.to(dtype)
            total = total + torch.where(weight > 0.0, weight * reward, 0.0)
            plain = plain + torch.where(weight > 0.0, reward.detach(), 0.0)
            weight = torch.where(step.done, 0.0, given.discount * weight)
            if not bool((weight > 0.0).any()):
                break
            if given.truncate is not None and (k + 1) % given.truncate == 0:
                world.detach()
            elif given.clip is not None:
                world.state = clipped(world.state, given.clip, count)
            observation = world.observation
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

    # ------------------------------------------------------------------------------------------ what an agent is

    @property
    def name(self) -> str:
        return self.world.name

    def networks(self) -> dict[str, nn.Module]:
        return {"the actor": self.actor}

    def policy(self) -> nn.Sequential:
        return exported(self.normaliser, self.actor)

    def settings(self) -> dict[str, Any]:
        return {**asdict(self.given), **self._made}

    def _parts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("normaliser", "actor", "actor_step")}

    def state_dict(self) -> dict[str, Any]:
        parts = {name: copied(part.state_dict()) for name, part in self._parts().items()}
        return {**parts, "world": self.world.state_dict(), "generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(copied(state[name]))
        self.world.load_state_dict(state["world"])
        self.generator.set_state(state["generator"])
