"""Short-horizon actor-critic (Xu et al. 2022): the return of a short window, differentiated through the physics.

In each iteration all environments move for `horizon` steps. The actor maximises the discounted rewards of that window plus
the critic's value of where it ends; the gradient goes through the simulator, and stops at the start of the window. The
critic then learns the TD(λ) returns of what was seen.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..envs import Task
from ..model import checks
from .agent import Agent
from .gradients import ClipCount, clipped
from .networks import ACTIVATIONS, Actor, Critics, Normaliser, exported
from .worlds import World


@dataclass(frozen=True, kw_only=True)
class SHACSettings:
    """horizon: steps of a window. clip: largest norm of the gradient of an environment's (q, v) between steps, in units
    of reward; None: no limit. discount: γ per step. trace: λ of TD(λ).

    entropy: weight of the policy's entropy in the reward. critics: their number; the value is their mean.
    critic_passes, critic_batches: passes over the window's samples in every iteration, and minibatches of each. keep:
    share of the target critic's weights that an iteration keeps. terminal_value: whether the actor's objective has the
    critic's value also where an episode terminates, so that a fall is judged by what the critic thinks of it.
    adaptive: the horizon grows and shrinks between `horizon` / 4 and 2 `horizon`, such that a share of 5 % of the
    gradients is clipped. learning_rate: of actor and critic, at the start. largest_step: largest norm of the gradient
    of all weights of a network.
    """

    horizon: int = 16
    clip: float | None = 30.0
    discount: float = 0.99
    trace: float = 0.95
    entropy: float = 0.0
    critics: int = 1
    critic_passes: int = 8
    critic_batches: int = 4
    keep: float = 0.2
    terminal_value: bool = True
    adaptive: bool = False
    learning_rate: float = 2e-3
    critic_rate: float = 2e-3
    largest_step: float = 1.0
    actor: tuple[int, ...] = (128, 64, 32)
    critic: tuple[int, ...] = (64, 64)
    activation: str = "elu"
    log_std: float = -1.0

    def __post_init__(self) -> None:
        for name in ("horizon", "critics", "critic_passes", "critic_batches"):
            checks.integer(getattr(self, name), name)
        for name in ("learning_rate", "critic_rate", "largest_step"):
            checks.number(getattr(self, name), name, low=0.0, strict=True)
        for name in ("discount", "trace", "keep"):
            checks.number(getattr(self, name), name, low=0.0, high=1.0)
        if self.clip is not None:
            checks.number(self.clip, "clip", low=0.0, strict=True)
        if self.activation not in ACTIVATIONS:
            raise ValueError(checks.unknown("activation", self.activation, ACTIVATIONS))


class SHAC(Agent):
    """Short-horizon actor-critic on a task, in `num_envs` environments at a time.

    task: a `backdrive.envs.Task` or its name. max_episode_steps: time limit; None: the one that is registered with the
    name. threads: None: all cores. dtype: that of the simulator; networks are float32. options: of the task, when it is
    given by name. Other arguments: `SHACSettings`.
    """

    method = "SHAC"

    def __init__(
        self, task: Task | str, *, num_envs: int = 64, seed: int = 0, max_episode_steps: int | None = None,
        threads: int | None = None, dtype: torch.dtype = torch.float64, options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        known = {field.name for field in fields(SHACSettings)}
        for name in settings:
            if name not in known:
                raise TypeError(checks.unknown("argument of SHAC", name, known))
        self.given = SHACSettings(**settings)
        given, self.seed = self.given, seed
        self.options = dict(options or {})
        self.world = World(
            task, num_envs, seed=seed, limit=max_episode_steps, dtype=dtype, threads=threads, options=self.options
        )
        self.world.stagger(np.random.default_rng(seed))
        self.generator = torch.Generator().manual_seed(seed)
        n, na = self.world.observation.shape[-1], len(self.world.low)
        self.normaliser = Normaliser(n)
        self.normaliser.update(self.world.observation.detach())
        self.normaliser.refresh()
        self.actor = Actor(
            (n, *given.actor, na), self.world.low, self.world.high, activation=given.activation, log_std=given.log_std,
            generator=self.generator,
        )  # fmt: skip
        self.critics = Critics(
            (n, *given.critic), given.critics, activation=given.activation, generator=self.generator
        )
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        self.actor_step = torch.optim.Adam(self.actor.parameters(), given.learning_rate, betas=(0.7, 0.95))
        self.critic_step = torch.optim.Adam(self.critics.parameters(), given.critic_rate, betas=(0.7, 0.95))
        self.horizon = given.horizon
        self.seconds = 0.0

    # ------------------------------------------------------------------------------------------ the algorithm

    def iterate(self, spent: float) -> dict[str, float]:
        begin = time.perf_counter()
        given = self.given
        for optimiser, rate in ((self.actor_step, given.learning_rate), (self.critic_step, given.critic_rate)):
            for group in optimiser.param_groups:
                group["lr"] = rate * max(1.0 - spent, 0.02)
        objective, window, counts = self.objective()
        self._improve_actor(objective)
        loss = self._improve_critics(window)
        if given.adaptive:
            self._adapt(counts)
        self.seconds += time.perf_counter() - begin
        row = {
            "seconds": self.seconds, "horizon": self.horizon, "critic_loss": loss, "clipped": counts.share,
            "not_finite": counts.not_finite, "std": float(self.actor.log_std.detach().exp().mean()),
        }  # fmt: skip
        if self.mean_return is not None:
            row["return"] = self.mean_return
        return row

    def objective(self) -> tuple[Tensor, Window, ClipCount]:
        """Move for a window. The sum over all environments of its discounted rewards and of the value of its end."""
        world, given, counts = self.world, self.given, ClipCount()
        observation, window = world.detach(), Window()
        ahead = torch.zeros(world.count)  # discounted rewards since the window or the episode began
        weight = torch.ones(world.count)
        total = torch.zeros(())
        for h in range(self.horizon):
            seen, x = observation, self.normaliser(observation)
            noise = torch.randn(world.count, len(world.low), generator=self.generator)
            action, entropy = self.actor.with_entropy(x, noise)
            step, finished = world.step(action.to(world.env.batch.dtype))
            self.returns.extend(finished)
            last = h == self.horizon - 1
            if given.clip is not None and not last:
                world.state = clipped(world.state, given.clip, counts)
                observation = self._observed(step)
            else:
                observation = step.observation
            reward = step.reward.to(x.dtype) + given.entropy * entropy
            ahead, weight = ahead + weight * reward, weight * given.discount
            value = self.target(self.normaliser(step.final.detach()))
            window.add(seen, x, reward, torch.where(step.terminated, 0.0, value), step.done | last)
            ends = step.done | last
            if bool(ends.any()):
                value = self.target(self.normaliser(step.final))
                if not given.terminal_value:
                    value = torch.where(step.terminated, 0.0, value)
                total = total + torch.where(ends, ahead + weight * value, 0.0).sum()
                ahead, weight = torch.where(ends, 0.0, ahead), torch.where(ends, 1.0, weight)
        return total, window, counts

    def _improve_actor(self, objective: Tensor) -> None:
        samples = self.world.count * self.horizon
        self.actor_step.zero_grad()
        (-objective).backward()
        self._descend(self.actor, self.actor_step, samples)
        self.steps += samples

    def _observed(self, step: Any) -> Tensor:
        """The observations, anew from the state whose gradient is clipped."""
        return self.world.env.task.observe(self.world.state)

    def _improve_critics(self, window: Window) -> float:
        """Fit the critics to the TD(λ) returns of the window; the mean squared error at the end."""
        given = self.given
        seen, x, returns = window.samples(given.discount, given.trace)
        error = torch.zeros(())
        for _ in range(given.critic_passes):
            order = torch.randperm(len(returns), generator=self.generator)
            for rows in order.chunk(given.critic_batches):
                self.critic_step.zero_grad()
                error = (self.critics.all(x[rows]) - returns[rows]).square().mean(-1).sum()
                error.backward()
                self._descend(self.critics, self.critic_step)
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.critics.parameters()):
                old.lerp_(new, 1.0 - given.keep)
        self.normaliser.update(seen)
        self.normaliser.refresh()
        return float(error.detach()) / given.critics

    def _descend(self, network: nn.Module, optimiser: torch.optim.Optimizer, samples: int = 1) -> None:
        """A step of an optimiser; gradients are divided by the number of samples, and limited."""
        for weights in network.parameters():
            if weights.grad is not None:
                torch.nan_to_num_(weights.grad.div_(samples), 0.0, 0.0, 0.0)
        nn.utils.clip_grad_norm_(network.parameters(), self.given.largest_step)
        optimiser.step()

    def _adapt(self, counts: ClipCount) -> None:
        given = self.given
        change = 1 if counts.share < 0.05 else -1
        self.horizon = min(max(self.horizon + change, max(given.horizon // 4, 2)), 2 * given.horizon)

    # ------------------------------------------------------------------------------------------ what an agent is

    @property
    def name(self) -> str:
        return self.world.env.task.name

    def networks(self) -> dict[str, nn.Module]:
        return {"the actor": self.actor, "the critics": self.critics}

    def policy(self) -> nn.Sequential:
        return exported(self.normaliser, self.actor)

    def settings(self) -> dict[str, Any]:
        return {**asdict(self.given), "num_envs": self.world.count, "seed": self.seed, "options": self.options}

    def state_dict(self) -> dict[str, Any]:
        modules = {"normaliser": self.normaliser, "actor": self.actor, "critics": self.critics, "target": self.target}
        steps = {"actor_step": self.actor_step, "critic_step": self.critic_step}
        return {
            **{name: copy.deepcopy(x.state_dict()) for name, x in {**modules, **steps}.items()},
            "world": self.world.state_dict(), "generator": self.generator.get_state(), "horizon": self.horizon,
            "steps": self.steps, "iterations": self.iterations, "returns": list(self.returns),
            "seconds": self.seconds,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("normaliser", "actor", "critics", "target", "actor_step", "critic_step"):
            getattr(self, name).load_state_dict(state[name])
        self.world.load_state_dict(state["world"])
        self.generator.set_state(state["generator"])
        self.horizon, self.steps, self.iterations = state["horizon"], state["steps"], state["iterations"]
        self.seconds = state["seconds"]
        self.returns.clear()
        self.returns.extend(state["returns"])


class Window:
    """What was seen in a window: observations, as they are and normalised [H, N, n], rewards, values of the next states,
    and whether an episode or the window ended, [H, N] each."""

    def __init__(self) -> None:
        self._rows: list[tuple[Tensor, ...]] = []

    def add(self, *row: Tensor) -> None:
        self._rows.append(tuple(x.detach() for x in row))

    def samples(self, discount: float, trace: float) -> tuple[Tensor, Tensor, Tensor]:
        """Observations, as they are and normalised [H N, n], and their TD(λ) returns [H N]:

        G_h = r_h + γ ((1 - λ) V(s_{h+1}) + λ G_{h+1}), and r_h + γ V(s_{h+1}) where an episode or the window ends.
        """
        seen, x, rewards, values, ends = (torch.stack(column) for column in zip(*self._rows))
        returns, ahead = torch.empty_like(rewards), values[-1]
        for h in reversed(range(len(rewards))):
            following = torch.where(ends[h], values[h], (1.0 - trace) * values[h] + trace * ahead)
            ahead = returns[h] = rewards[h] + discount * following
        return seen.flatten(0, 1), x.flatten(0, 1), returns.flatten()
