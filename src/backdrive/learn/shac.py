"""Short-horizon actor-critic (Xu et al. 2022): the return of a short window, differentiated through the physics.

In each iteration all environments move for `horizon` steps. The actor maximises the discounted rewards of that window
plus the critic's value of where it ends; the gradient goes through the simulator, and stops at the start of the window.
The critic then learns the TD(λ) returns of what was seen.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..model import checks
from .agent import TAKEN_BACK, Agent, Diverged, largest
from .gradients import ClipCount, clipped, descend
from .networks import ACTIVATIONS, Actor, Critics

LEAST_RATE = 0.02
"""The share of a learning rate that is left at the end of a training."""
LARGEST_WEIGHT = 50.0
"""Inputs and outputs of an actor are about 1, and so are its weights, unless it diverged."""
LARGEST_VALUE = 10.0
"""A critic that values something at more than this many times what the largest reward for ever would be worth, and
100 more, diverged."""


@dataclass(frozen=True, kw_only=True)
class SHACSettings:
    """horizon: steps of a window. clip: largest norm of the gradient of an environment's (q, v) between two steps, in
    units of reward; None: no limit. discount: γ per step. trace: λ of TD(λ).

    entropy: weight of the policy's entropy in the reward. critics: their number; the value is their mean.
    critic_passes, critic_batches: passes over the window's samples in every iteration, and minibatches of each. keep:
    share of the target critic's weights that an iteration keeps. terminal_value: whether the actor's objective has the
    critic's value also where an episode terminates, so that a fall is judged by what the critic thinks of it.
    learning_rate, critic_rate: of actor and critic, at the start. largest_step: largest norm of the gradient of all
    weights of a network. actor, critic: numbers of neurons of the hidden layers. log_std: logarithm of the standard
    deviation of the actions at the start, before squashing.
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
        checks.number(self.entropy, "entropy", low=0.0)
        checks.number(self.log_std, "log_std")
        if self.clip is not None:
            checks.number(self.clip, "clip", low=0.0, strict=True)
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
        of_network: dict[str, Any] = {"activation": given.activation, "generator": self.generator}
        self.actor = Actor((n, *given.actor, na), world.low, world.high, log_std=given.log_std, **of_network)
        self.critics = Critics((n, *given.critic), given.critics, **of_network)
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        self.actor_step = torch.optim.Adam(self.actor.parameters(), given.learning_rate, betas=(0.7, 0.95), fused=True)
        self.critic_step = torch.optim.Adam(self.critics.parameters(), given.critic_rate, betas=(0.7, 0.95), fused=True)
        self.largest_reward = 0.0
        self._warned = False

    # ------------------------------------------------------------------------------------------ the algorithm

    def iterate(self, spent: float) -> dict[str, float]:
        given = self.given
        for optimiser, rate in ((self.actor_step, given.learning_rate), (self.critic_step, given.critic_rate)):
            for group in optimiser.param_groups:
                group["lr"] = rate * max(1.0 - spent, LEAST_RATE)
        window = self.window()
        self._check(window)
        slope = self._improve_actor(window)
        loss = self._improve_critics(window)
        self.normaliser.update(window.observations)
        self.normaliser.refresh()
        self.steps += window.rewards.numel()
        self._check_networks(window)
        return {
            "reward": float(window.rewards.detach().mean()), "critic_loss": loss, "gradient": slope,
            "clipped": window.count.share, "not_finite": window.count.not_finite,
            "std": float(self.actor.log_std.detach().exp().mean()),
        }  # fmt: skip

    def window(self) -> ShortWindow:
        """Move all environments for a window. Rewards and final observations have the graph of the actor."""
        world, given, count = self.world, self.given, ClipCount()
        observation = world.detach()
        rows: list[tuple[Tensor, ...]] = []
        for h in range(given.horizon):
            x = self.normaliser(observation)
            noise = torch.randn(world.count, len(world.low), generator=self.generator)
            if given.entropy:
                action, entropy = self.actor.with_entropy(x, noise)
            else:
                action, entropy = self.actor(x, noise), torch.zeros(())
            step, finished = world.step(action)
            self.returns.extend(finished)
            if given.clip is not None and h < given.horizon - 1:
                world.state = clipped(world.state, given.clip, count)
            reward = step.reward.to(x.dtype) + given.entropy * entropy
            rows.append((observation.detach(), x.detach(), reward, step.final, step.terminated, step.done))
            observation = world.observation
        return ShortWindow(count, *(torch.stack(column) for column in zip(*rows)))

    def objective(self, window: ShortWindow) -> Tensor:
        """The sum over all environments of a window's discounted rewards and the value of where it ends."""
        ends = window.ends()
        weights = window.weights(self.given.discount)
        value = self.target(self.normaliser(window.finals[ends]))
        if not self.given.terminal_value:
            value = torch.where(window.terminated[ends], 0.0, value)
        return (weights * window.rewards).sum() + (self.given.discount * weights[ends] * value).sum()

    def _improve_actor(self, window: ShortWindow) -> float:
        """One step of the actor along its gradient, whose norm is returned."""
        self.actor_step.zero_grad()
        self.objective(window).neg().backward()  # a sum: `clip` is about the return of one environment
        samples = window.rewards.numel()
        return descend(self.actor, self.actor_step, self.given.largest_step, window.count, samples)

    def _improve_critics(self, window: ShortWindow) -> float:
        """Fit the critics to the TD(λ) returns of the window; the mean squared error at the end."""
        given = self.given
        with torch.no_grad():
            values = torch.where(window.terminated, 0.0, self.target(self.normaliser(window.finals)))
        returns = window.returns(values, given.discount, given.trace).flatten()
        x, error = window.normalised.flatten(0, 1), torch.zeros(())
        for _ in range(given.critic_passes):
            order = torch.randperm(len(x), generator=self.generator)
            for rows in order.chunk(given.critic_batches):
                self.critic_step.zero_grad()
                error = (self.critics.all(x[rows]) - returns[rows]).square().mean(-1).sum()
                error.backward()
                descend(self.critics, self.critic_step, given.largest_step, window.count)
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.critics.parameters()), 1.0 - given.keep)
        return float(error.detach()) / given.critics

    def _check(self, window: ShortWindow) -> None:
        """Raise if a reward is not finite, and warn once if no episode lasts."""
        bad = ~torch.isfinite(window.rewards.detach())
        if bool(bad.any()):
            h, i = bad.nonzero()[0].tolist()
            raise ValueError(
                f"the reward of task {self.name!r} is {window.rewards[h, i].item()} in {int(bad.sum())} of "
                f"{bad.numel():,} steps, first in environment {i}; {TAKEN_BACK}"
            )
        if not self._warned and bool(window.terminated.all()):
            self._warned = True
            warnings.warn(
                f"every episode of task {self.name!r} terminates at its first step: look at its `start` and `ends`",
                stacklevel=5,
            )

    def _check_networks(self, window: ShortWindow) -> None:
        """Raise if the networks cannot be those of an agent that learns."""
        self.largest_reward = max(self.largest_reward, float(window.rewards.detach().abs().max()))
        lasting = 1.0 / max(1.0 - self.given.discount, 1e-4)
        with torch.no_grad():
            value = float(self.critics(window.normalised[-1]).abs().max())
        found = []
        if (weight := largest(self.actor)) > LARGEST_WEIGHT:
            found.append(f"the largest weight of the actor is {weight:.3g}: perhaps its learning_rate is too large")
        if value > LARGEST_VALUE * self.largest_reward * lasting + 100.0:
            found.append(
                f"the critics value a state at {value:.3g}, where no reward was larger than {self.largest_reward:.3g}: "
                "perhaps critic_rate is too large"
            )
        if found:
            raise Diverged(f"after {self.steps:,} steps {'; '.join(found)}; {TAKEN_BACK}")

    # ------------------------------------------------------------------------------------------ what an agent is

    def networks(self) -> dict[str, nn.Module]:
        return {"the actor": self.actor, "the critics": self.critics}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "largest_reward": self.largest_reward}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.largest_reward = state["largest_reward"]


@dataclass(frozen=True)
class ShortWindow:
    """What happened in H steps of N environments. observations, as they were seen and normalised, and after each step
    (`finals`), before a reset [H, N, n]; rewards [H, N]; whether an episode terminated, or ended for any reason, bool
    [H, N]. rewards and finals may have a graph. count: clipped gradients, known after the backward pass."""

    count: ClipCount
    observations: Tensor
    normalised: Tensor
    rewards: Tensor
    finals: Tensor
    terminated: Tensor
    done: Tensor

    def ends(self) -> Tensor:
        """Where an episode or the window ends, bool [H, N]."""
        ends = self.done.clone()
        ends[-1] = True
        return ends

    def weights(self, discount: float) -> Tensor:
        """γ^k for the k-th step since the window or an episode began, [H, N]."""
        weights = torch.ones_like(self.rewards, requires_grad=False)
        for h in range(1, len(weights)):
            weights[h] = torch.where(self.done[h - 1], 1.0, discount * weights[h - 1])
        return weights

    def returns(self, values: Tensor, discount: float, trace: float) -> Tensor:
        """TD(λ) returns [H, N], from the values of the states after each step, 0 for terminal ones:

        G_h = r_h + γ ((1 - λ) V_h + λ G_{h+1}), and r_h + γ V_h where an episode or the window ends.
        """
        rewards, ends = self.rewards.detach(), self.ends()
        returns, ahead = torch.empty_like(rewards), values[-1]
        for h in reversed(range(len(rewards))):
            following = torch.where(ends[h], values[h], (1.0 - trace) * values[h] + trace * ahead)
            ahead = returns[h] = rewards[h] + discount * following
        return returns
