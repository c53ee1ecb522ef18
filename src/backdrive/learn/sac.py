"""Soft actor-critic (Haarnoja et al. 2018), and the two ways of Qiao et al. 2021 in which a gradient of physics helps it.

``enhance="policy"``: the actor's objective is not Q(s, a), but r(s, a) + γ Q(s', π(s')) with s' = f(s, a) from the
simulator, so that its gradient with respect to the action is that of the physics. ``enhance="samples"``: each transition
(s, a, r, s') is joined by others near it, s' + ∂s'/∂s δs + ∂s'/∂a δa, that cost no simulation.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..envs import Task
from ..envs.batch import Batch
from ..model import checks
from .agent import Agent
from .nearby import Nearby
from .stacked import Stacked
from .worlds import World

ENHANCE = (None, "policy", "samples")
LOG_STD = (-3.5, 0.5)
"""Range of the logarithm of the standard deviation, before squashing."""


@dataclass(frozen=True, kw_only=True)
class SACSettings:
    """enhance: None, "policy" or "samples" (see the module). discount: γ per step. updates: per step of an environment.
    batch: transitions of an update. explore: steps with random actions at the start. memory: most transitions that are
    kept, of each seed. target_entropy: None: minus the number of actions. follow: share by which the target critics follow
    the critics in an update. near: number of samples that join each transition, and reach: the largest δ of an element
    of state and action, for enhance="samples". clocked: whether actor and critics see the time since the episode began;
    needed where episodes end by time and γ is 1.
    """

    enhance: str | None = None
    discount: float = 0.99
    updates: int = 1
    batch: int = 64
    explore: int = 500
    memory: int = 100_000
    learning_rate: float = 3e-4
    target_entropy: float | None = None
    entropy: float = 0.01
    follow: float = 0.005
    near: int = 9
    reach: float = 0.01
    hidden: tuple[int, ...] = (64, 64)
    clocked: bool = False

    def __post_init__(self) -> None:
        if self.enhance not in ENHANCE:
            raise ValueError(checks.unknown("enhance", self.enhance, [str(x) for x in ENHANCE]))
        for name in ("updates", "batch", "memory", "near"):
            checks.integer(getattr(self, name), name)
        for name in ("learning_rate", "entropy", "reach"):
            checks.number(getattr(self, name), name, low=0.0, strict=True)
        for name in ("discount", "follow"):
            checks.number(getattr(self, name), name, low=0.0, high=1.0)


class SAC(Agent):
    """Soft actor-critic on a task; several seeds are trained at once, each in an environment of its own.

    task, max_episode_steps, threads, dtype, options: as in `SHAC`. seeds: one or several; the networks of each are
    batched, and do not depend on which others there are. Other arguments: `SACSettings`. steps counts those of all seeds;
    simulated counts all transitions that were simulated, those inside updates too.
    """

    method = "SAC"

    def __init__(
        self, task: Task | str, *, seeds: int | Sequence[int] = 0, max_episode_steps: int | None = None,
        threads: int | None = None, dtype: torch.dtype = torch.float64, options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        known = {field.name for field in fields(SACSettings)}
        for name in settings:
            if name not in known:
                raise TypeError(checks.unknown("argument of SAC", name, known))
        self.given = given = SACSettings(**settings)
        self.seeds = (seeds,) if isinstance(seeds, int) else tuple(seeds)
        self.options = dict(options or {})
        count = len(self.seeds)
        self.world = World(
            task, count, seed=self.seeds[0], limit=max_episode_steps, dtype=dtype, threads=threads, options=self.options
        )
        self.generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        n = self.world.observation.shape[-1] + given.clocked
        self.na = na = len(self.world.low)
        self.middle, self.reach = (x.float() for x in (_half(self.world.high, self.world.low, s) for s in (1.0, -1.0)))
        self.actor = Stacked((n, *given.hidden, 2 * na), self.generators, last=0.1)
        self.critics = Stacked((n + na, *given.hidden, 1), self.generators, copies=2)
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_weight = nn.Parameter(torch.full((count, 1), math.log(given.entropy)))
        self.wanted = -float(na) if given.target_entropy is None else given.target_entropy
        optimisers = {"actor": self.actor.parameters(), "critics": self.critics.parameters(), "weight": [self.log_weight]}
        self.optimisers = {name: torch.optim.Adam(x, given.learning_rate) for name, x in optimisers.items()}
        self.memory = Memory(count, given.memory)
        tasked = self.world.env.task
        self.physics = Batch(tasked, count * given.batch, dtype, threads, None)
        self.nearby = Nearby(self.physics.simulator, tasked, given.reach)
        self.simulated, self.seconds = 0, 0.0

    # ------------------------------------------------------------------------------------------ the algorithm

    def iterate(self, spent: float) -> dict[str, float]:
        """A hundred steps of every environment, with their updates."""
        begin = time.perf_counter()
        losses = []
        for _ in range(100):
            self._act()
            if self.steps >= self.given.explore * len(self.seeds):
                losses += [self._update() for _ in range(self.given.updates)]
        self.seconds += time.perf_counter() - begin
        row = {"seconds": self.seconds, "simulated": self.simulated, "entropy_weight": float(self.log_weight.exp().mean())}
        if losses:
            row["critic_loss"] = float(np.mean(losses))
        if self.mean_return is not None:
            row["return"] = self.mean_return
        return row

    @torch.no_grad()
    def _act(self) -> None:
        """A step of every environment, which is remembered."""
        world = self.world
        before, clock = world.state, self._clock()
        seen = self._inputs(world.detach(), clock)
        if self.steps < self.given.explore * len(self.seeds):
            squashed = torch.stack([torch.rand(1, self.na, generator=g) * 2.0 - 1.0 for g in self.generators])
        else:
            squashed, _ = self._sample(self.actor, seen[:, None])
        step, finished = world.step((self.middle + self.reach * squashed[:, 0]).to(world.env.batch.dtype))
        self.returns.extend(finished)
        ends = step.terminated | (step.truncated & self.given.clocked)
        final = self._inputs(step.final, clock + 1)
        self.memory.add(seen, squashed[:, 0], step.reward.float(), final, ends, clock, *before)
        self.steps += len(self.seeds)
        self.simulated += len(self.seeds)

    def _update(self) -> float:
        """One update of critics, actor and the weight of entropy; the critics' loss."""
        given, rows = self.given, self.memory.draw(self.given.batch, self.generators)
        seen, action, reward, final, ends, clock, *state = rows
        if given.enhance == "samples":
            seen, action, reward, final, ends = self._joined(rows)
        with torch.no_grad():
            following, log_density = self._sample(self.actor, final)
            weight = self.log_weight.exp()
            value = self._least(self.target, final, following) - weight * log_density
            goal = reward + given.discount * torch.where(ends, 0.0, value)
        estimates = self.critics(torch.cat([seen, action], -1).repeat(2, 1, 1))[..., 0]
        loss = (estimates - goal.repeat(2, 1)).square().mean(1).sum()
        self._descend("critics", loss, self.critics.parameters())
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.critics.parameters()):
                old.lerp_(new, given.follow)
        chosen, log_density = self._sample(self.actor, rows[0])
        if given.enhance == "policy":
            value = self._simulated_value(chosen, clock, state)
        else:
            value = self._least(self.critics, rows[0], chosen)
        self._descend("actor", (weight * log_density - value).mean(1).sum(), self.actor.parameters())
        surplus = (log_density.detach().mean(1, keepdim=True) + self.wanted) * self.log_weight
        self._descend("weight", -surplus.sum(), [self.log_weight])
        return float(loss.detach()) / (2 * len(self.seeds))

    def _simulated_value(self, squashed: Tensor, clock: Tensor, state: Sequence[Tensor]) -> Tensor:
        """r(s, a) + γ Q(s', π(s')), [seeds, batch], with the gradient of the physics with respect to a."""
        physics = self.physics
        physics.state = type(self.world.state)(*(x.flatten(0, 1) for x in state))
        out = physics.step((self.middle + self.reach * squashed).flatten(0, 1).to(physics.dtype))
        self.simulated += physics.count
        shape = squashed.shape[:2]
        final = self._inputs(out.observation.unflatten(0, shape), clock + 1)
        following = self._mean(final).detach()
        ends = out.terminated.unflatten(0, shape)
        if self.given.clocked and self.world.limit is not None:
            ends = ends | (clock + 1 >= self.world.limit)
        value = torch.where(ends, 0.0, self._least(self.critics, final, following))
        return out.reward.unflatten(0, shape).float() + self.given.discount * value

    def _joined(self, rows: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Transitions with others near them, [seeds, batch (1 + near), ...]."""
        raise NotImplementedError

    def _sample(self, actor: Stacked, x: Tensor) -> tuple[Tensor, Tensor]:
        """Random actions in (-1, 1), and the logarithms of their densities, for inputs [seeds, B, n]."""
        mean, spread = actor(x).chunk(2, -1)
        low, high = LOG_STD
        log_std = low + (high - low) * (spread.tanh() + 1.0) / 2.0
        noise = torch.stack([torch.randn(mean.shape[1:], generator=g) for g in self.generators])
        y = mean + log_std.exp() * noise
        gaussian = -0.5 * noise.square() - log_std - 0.5 * math.log(2.0 * math.pi)
        squash = 2.0 * (math.log(2.0) - y - nn.functional.softplus(-2.0 * y))
        return y.tanh(), (gaussian - squash).sum(-1)

    def _mean(self, x: Tensor) -> Tensor:
        return self.actor(x).chunk(2, -1)[0].tanh()

    def _least(self, critics: Stacked, x: Tensor, action: Tensor) -> Tensor:
        """The smaller one of both critics' values, [seeds, B]."""
        return critics(torch.cat([x, action], -1).repeat(2, 1, 1))[..., 0].unflatten(0, (2, -1)).amin(0)
