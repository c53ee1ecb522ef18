"""Soft actor-critic (Haarnoja et al. 2018), and the two ways of Qiao et al. 2021 to let it use the physics' gradient.

Environments move a step at a time; after each step, networks learn from transitions (s, a, r, s') that are drawn from
all that were seen. Two critics learn the soft Bellman backup

    Q(s, a) = r + γ (min Q̄(s', a') - α log π(a' | s'))    with a' ~ π(s') and slowly following critics Q̄,

the actor goes up the gradient of min Q(s, a) - α log π(a | s), and the temperature α keeps the policy's entropy at its
target. With policy enhancement, the actor's gradient is that of the backup itself, through one step of the simulator,
in place of the critics' derivative with respect to the action. With sample enhancement, each transition comes with
neighbours, whose s' and r follow from the Jacobian of the step.

All seeds of an agent train at once, each with its own networks, environments, replay and random numbers.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ..envs import Task
from ..envs.batch import Batch
from ..model import checks
from .adam import Adam, as_one
from .agent import TAKEN_BACK, Agent, Diverged
from .replay import Replay
from .seeds import Actors, Temperatures, TwinCritics, drawn

ENHANCE = (None, "policy", "samples")
LARGEST_VALUE = 10.0
"""Critics that value something at more than this many times what the largest reward for ever would be worth, and 100
more, diverged."""
NEXT_ENV = 1_000_003
"""Difference between the random seeds of two environments of one seed."""


@dataclass(frozen=True, kw_only=True)
class SACSettings:
    """enhance: None for soft actor-critic itself, "policy" for policy enhancement, "samples" for sample enhancement.
    extra, spread: with "samples", the number of neighbours of each transition, and the largest difference of their
    actions, in units of half of the action's range.

    discount: γ per step. updates: of all networks, per step of the environments. explore: steps of each environment
    with uniformly random actions, before the first update. batch: transitions in an update. replay: transitions of each
    seed that are kept. keep: share of the slow critics' weights that an update keeps. target_entropy: of the policy,
    for actions in (-1, 1); None: minus the number of actions. temperature: α at first. learning_rate: of all networks,
    and of log α. actor, critic: numbers of neurons of the hidden layers. window: steps of each environment in an
    iteration.
    """

    enhance: str | None = None
    extra: int = 9
    spread: float = 0.01
    discount: float = 0.99
    updates: int = 1
    explore: int = 100
    batch: int = 256
    replay: int = 1_000_000
    keep: float = 0.995
    target_entropy: float | None = None
    temperature: float = 1.0
    learning_rate: float = 3e-4
    actor: tuple[int, ...] = (256, 256)
    critic: tuple[int, ...] = (256, 256)
    window: int = 100

    def __post_init__(self) -> None:
        if self.enhance not in ENHANCE:
            raise ValueError(f"enhance must be None, 'policy' or 'samples', got {self.enhance!r}")
        for name in ("extra", "updates", "explore", "batch", "replay", "window"):
            checks.integer(getattr(self, name), name)
        for name in ("spread", "temperature", "learning_rate"):
            checks.number(getattr(self, name), name, low=0.0, strict=True)
        for name in ("discount", "keep"):
            checks.number(getattr(self, name), name, low=0.0, high=1.0)
        if self.target_entropy is not None:
            checks.number(self.target_entropy, "target_entropy")
        for name in ("actor", "critic"):
            object.__setattr__(self, name, tuple(checks.integer(x, name) for x in getattr(self, name)))


class Transitions(NamedTuple):
    """observation [S, B, n], action in (-1, 1) [S, B, na], reward [S, B], the observation that followed, and whether
    the episode went on from there (1.0) or terminated (0.0), [S, B]."""

    observation: Tensor
    action: Tensor
    reward: Tensor
    following: Tensor
    alive: Tensor


class SAC(Agent):
    """Soft actor-critic on a task, with or without the gradient of the physics.

    seed: a number, or several ones to train at once; what one learns does not depend on the others, but for rounding.
    num_envs: of each seed. Other arguments: as for every `Agent`. settings: see `SACSettings`. Learning rates do not
    fall. `steps` counts those of all environments of all seeds; `simulated` counts all simulated transitions, with
    those of policy enhancement in the updates.
    """

    method = "SAC"
    settings_type = SACSettings
    parts: ClassVar[tuple[str, ...]] = ("actors", "critics", "target", "temperatures", "actor_step", "critic_step")
    counts: ClassVar[tuple[str, ...]] = ("simulated", "moves", "not_finite", "largest_reward")
    given: SACSettings

    def __init__(
        self, task: Task | str, *, seed: int | Iterable[int] = 0, num_envs: int = 1, **others: Any
    ) -> None:  # fmt: skip
        several = list(seed) if isinstance(seed, Iterable) else [seed]
        self.seeds = [checks.integer(x, "seed", 0) for x in several]
        if not self.seeds:
            raise ValueError("seed must be a number or several ones, got none")
        self.shape = len(self.seeds), checks.integer(num_envs, "num_envs")
        super().__init__(task, seed=self.seeds[0], num_envs=len(self.seeds) * num_envs, **others)
        self._made |= {"seed": self.seeds, "num_envs": num_envs}

    def make(self) -> None:
        given, world, (seeds, envs) = self.given, self.world, self.shape
        world.start([seed + NEXT_ENV * k for seed in self.seeds for k in range(envs)])
        self.generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        n, na = world.observation.shape[-1], len(world.low)
        self.middle, self.reach = (world.low + world.high) / 2.0, (world.high - world.low) / 2.0
        self.target_entropy = -float(na) if given.target_entropy is None else given.target_entropy
        self.make_networks(n, na)
        each = 1 + (given.extra if given.enhance == "samples" else 0)
        kept, slack = given.replay * each, given.window * envs * each
        self.columns = [n, na, 1, n, 1]
        self.replay = Replay(seeds, sum(self.columns), kept, slack)
        self.states: Replay | None = None
        if given.enhance is not None:
            count = given.batch if given.enhance == "policy" else envs * (n + 1)
            self.batch = Batch(world.task, seeds * count, world.env.batch.dtype, world.env.simulator.threads, None)
        if given.enhance == "policy":
            self.fields = [x.shape[-1] for x in world.state]
            self.states = Replay(seeds, sum(self.fields), kept, slack, self.batch.dtype)
        self.simulated = self.moves = self.not_finite = 0
        self.largest_reward = 0.0
        self._warned = False

    @property
    def noises(self) -> int:
        """The number of random actions that an update takes for each transition."""
        return 3

    def make_networks(self, n: int, na: int) -> None:
        """Networks for n observations and na actions, and their optimisers."""
        given = self.given
        self.actors = Actors((n, *given.actor, na), self.generators)
        self.critics = TwinCritics((n + na, *given.critic), self.generators)
        self.target = copy.deepcopy(self.critics).requires_grad_(False)
        self.slow = as_one(self.target.weights)
        self.temperatures = Temperatures(len(self.seeds), given.temperature)
        learned = [*self.actors.parameters(), self.temperatures.log]
        self.actor_step = Adam(learned, given.learning_rate)
        self.critic_step = Adam(self.critics.parameters(), given.learning_rate)

    # ------------------------------------------------------------------------------------------ the algorithm

    def iterate(self, spent: float) -> dict[str, float]:
        given, totals = self.given, torch.zeros(4)
        terminated, bad = 0, self.not_finite
        for _ in range(given.window):
            terminated += self._move()
            if self.moves > given.explore:
                for transitions, states, noise in self._draws():
                    totals += self.update(transitions, states, noise)
        self._check(totals, terminated)
        mean = totals / max(1, given.updates * min(given.window, self.moves - given.explore))
        names = ("critic_loss", "value", "entropy")
        return {
            **dict(zip(names, mean.tolist(), strict=False)), "temperature": float(self.temperatures().mean()),
            "simulated": self.simulated, "not_finite": self.not_finite - bad,
        }  # fmt: skip

    def _move(self) -> int:
        """Move all environments by a step, and remember it. The number of episodes that terminated."""
        (seeds, envs), world, given = self.shape, self.world, self.given
        state, x = world.state, world.detach().float().view(seeds, envs, -1)
        with torch.no_grad():
            if self.moves < given.explore:
                action = 2.0 * drawn(torch.rand, self.generators, envs, len(self.middle)) - 1.0
            else:
                action, _ = self.actors(x, drawn(torch.randn, self.generators, envs, len(self.middle)))
        if not bool(torch.isfinite(action).all()):
            raise Diverged(
                f"actions are not finite after {self.steps:,} steps: perhaps learning_rate is too large; {TAKEN_BACK}"
            )
        with torch.no_grad():
            step = world.step(self.middle + self.reach * action.flatten(0, 1))
        self.returns.extend(world.finished())
        reward = step.reward.float().view(seeds, envs, 1)
        self._check_rewards(reward)
        going = (~step.terminated).float().view(seeds, envs, 1)
        seen = Transitions(x, action, reward, step.final.float().view(seeds, envs, -1), going)
        self.replay.add(torch.cat(seen, -1))
        if given.enhance == "samples":
            self.replay.add(torch.cat(self._neighbours(state, seen), -1))
        if self.states is not None:
            self.states.add(torch.cat(tuple(state), -1).view(seeds, envs, -1))
        self.moves += 1
        self.steps += world.count
        self.simulated += world.count
        return int(step.terminated.sum())

    def _neighbours(self, state: Any, seen: Transitions) -> Transitions:
        """Transitions with the actions a + Δa near those seen, [S, E extra, ...]:

        s' + (∂s'/∂a) Δa and r + (∂r/∂a) Δa, with the Jacobian of the environment's step from `state`.
        """
        (seeds, envs), extra, spread = self.shape, self.given.extra, self.given.spread
        action, results = seen.action, torch.cat([seen.following, seen.reward], -1)
        slopes = self._jacobian(state, action)
        bad = ~torch.isfinite(slopes)
        self.not_finite += int(bad.sum())
        jacobian = torch.where(bad, 0.0, slopes)
        change = spread * (2.0 * drawn(torch.rand, self.generators, extra, envs, action.shape[-1]) - 1.0)
        near = (action[:, None] + change).clamp(-1.0, 1.0)
        moved = results[:, None] + torch.einsum("senk,sxek->sxen", jacobian, near - action[:, None])
        following, reward = moved.split([moved.shape[-1] - 1, 1], -1)
        observation, alive = (x[:, None].expand(-1, extra, -1, -1) for x in (seen.observation, seen.alive))
        every = Transitions(observation, near, reward, following, alive)
        return Transitions(*(x.reshape(seeds, extra * envs, -1) for x in every))

    def _jacobian(self, state: Any, action: Tensor) -> Tensor:
        """Derivatives of the next observation and the reward with respect to actions in (-1, 1) [S, E, na]:
        [S, E, n + 1, na]. One gradient of as many copies of the step as there are results, each with its own result."""
        (seeds, envs), count = self.shape, self.columns[0] + 1
        self.batch.state = type(state)(*(x.repeat(count, 1) for x in state))
        copies = action.flatten(0, 1).repeat(count, 1).requires_grad_()
        step = self.batch.step((self.middle + self.reach * copies).to(self.batch.dtype))
        results = torch.cat([step.observation, step.reward[:, None]], -1).view(count, seeds * envs, count)
        (slopes,) = torch.autograd.grad(results.diagonal(dim1=0, dim2=2).sum(), copies)
        return slopes.view(count, seeds, envs, -1).permute(1, 2, 0, 3)

    def _draws(self) -> list[tuple[Transitions, Tensor | None, Tensor]]:
        """What the updates after a step learn from: transitions, states of the simulator [S, B, nq + nv] where these
        are needed, and noise for actions [noises, S, B, na]."""
        given, (seeds, _) = self.given, self.shape
        count, size = given.updates, given.batch
        places = self.replay.places(drawn(torch.rand, self.generators, count * size))
        noise = drawn(torch.randn, self.generators, count, self.noises, size, len(self.middle)).transpose(0, 2)
        rows = self.replay.at(places).view(seeds, count, size, -1)
        states = None if self.states is None else self.states.at(places).view(seeds, count, size, -1)
        draws = []
        for k in range(count):
            o, a, r, following, alive = rows[:, k].split(self.columns, -1)
            some = Transitions(o, a, r[..., 0], following, alive[..., 0])
            draws.append((some, None if states is None else states[:, k], noise[:, k]))
        return draws

    @torch.no_grad()
    def update(self, seen: Transitions, states: Tensor | None, noise: Tensor) -> Tensor:
        """One update of critics, actors, temperatures and slow critics. Returns the squared error of the critics, the
        value and the entropy, means over all seeds, and the largest value, [4]."""
        alpha, size = self.temperatures(), seen.reward.shape[-1]
        goal = self.backup(self.target, seen.reward, seen.following, seen.alive, noise[0])
        error = self.critics.learn(seen.observation, seen.action, goal)
        self.critic_step.update()
        sample = self.actors.sample(seen.observation, noise[1])
        if states is None:
            value, slope = self.critics.least_and_slope(seen.observation, sample.action)
        else:
            value, slope = self.simulated_value(states, sample.action, noise[2])
        sample.learn(slope / -size, (alpha / size).expand(-1, size))
        self.temperatures.learn(sample.density.mean(-1, keepdim=True) + self.target_entropy)
        self.actor_step.update()
        self.follow()
        return torch.stack([error.square().mean(), value.mean(), -sample.density.mean(), goal.abs().max()])

    def follow(self) -> None:
        """Let the slow critics follow the others."""
        self.slow.lerp_(self.critic_step.values, 1.0 - self.given.keep)

    def backup(self, critics: TwinCritics, reward: Tensor, following: Tensor, alive: Tensor, noise: Tensor) -> Tensor:
        """r + γ (min Q(s', a') - α log π(a' | s')), [S, B]; no gradient goes to any weight."""
        action, density = self.actors(following, noise, frozen=True)
        value = critics.least(following, action, frozen=True) - self.temperatures() * density
        return reward + self.given.discount * alive * value

    @torch.no_grad()
    def simulated_value(self, states: Tensor, action: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The backup of actions in (-1, 1) [S, B, na] from states of the simulator [S, B, nq + nv], [S, B]; and its
        derivative with respect to the action [S, B, na], with 0 in place of what is not finite."""
        batch, (seeds, size) = self.batch, action.shape[:2]
        kind, action = type(self.world.state), action.detach().requires_grad_()
        batch.state = kind(*states.flatten(0, 1).split(self.fields, -1))
        with torch.enable_grad():
            step = batch.step((self.middle + self.reach * action.flatten(0, 1)).to(batch.dtype))
        self.simulated += seeds * size
        reward, alive, following = (
            x.to(action.dtype).view(seeds, size, *x.shape[1:])
            for x in (step.reward, ~step.terminated, step.observation)
        )
        value, following_bar = self.backup_and_slope(reward, following, alive, noise)
        results = step.reward, step.observation
        bars = torch.ones_like(step.reward), following_bar.view_as(step.observation).to(batch.dtype)
        (slope,) = torch.autograd.grad(results, action, bars)
        finite = torch.isfinite(slope)
        if not bool(finite.all()):
            self.not_finite += int((~finite).sum())
            slope = torch.where(finite, slope, 0.0)
        return value, slope

    def backup_and_slope(
        self, reward: Tensor, following: Tensor, alive: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The `backup` of the critics, and its derivative with respect to the following observation, [S, B, n]."""
        sample, alpha = self.actors.sample(following, noise), self.temperatures()
        value, observation_bar, action_bar = self.critics.least_and_slopes(following, sample.action)
        slope = observation_bar + sample.back(action_bar, (-alpha).expand_as(value))
        factor = self.given.discount * alive
        return reward + factor * (value - alpha * sample.density), factor.unsqueeze(-1) * slope

    # ------------------------------------------------------------------------------------------ what can go wrong

    def _check_rewards(self, reward: Tensor) -> None:
        bad = ~torch.isfinite(reward)
        if bool(bad.any()):
            s, i, _ = bad.nonzero()[0].tolist()
            raise ValueError(
                f"the reward of task {self.name!r} is {reward[s, i].item()}, first in environment {i} of seed "
                f"{self.seeds[s]}; {TAKEN_BACK}"
            )
        self.largest_reward = max(self.largest_reward, float(reward.abs().max()))

    def _check(self, totals: Tensor, terminated: int) -> None:
        given = self.given
        lasting = 1.0 / max(1.0 - given.discount, 1e-4)
        value = float(totals[3]) / max(1, given.updates * given.window)
        if value > LARGEST_VALUE * self.largest_reward * lasting + 100.0:
            raise Diverged(
                f"after {self.steps:,} steps the critics value an action at {value:.3g}, where no reward was larger "
                f"than {self.largest_reward:.3g}: perhaps learning_rate is too large; {TAKEN_BACK}"
            )
        if not self._warned and terminated == given.window * self.world.count:
            self._warned = True
            warnings.warn(
                f"every episode of task {self.name!r} terminates at its first step: look at its `start` and `ends`",
                stacklevel=5,
            )

    # ------------------------------------------------------------------------------------------ what an agent is

    def networks(self) -> dict[str, nn.Module]:
        return {"the actor": self.actors, "the critics": self.critics}

    @torch.no_grad()
    def mean_action(self, observations: Tensor) -> Tensor:
        """The mean actions of the policies of all seeds, for observations [S, B, n]: [S, B, na], in their own units,
        float32."""
        return (self.middle + self.reach * self.actors.mean(observations.float())).float()

    def policy(self, which: int = 0) -> nn.Sequential:
        """The mean action of one of the seeds, as modules of torch alone."""
        na = len(self.middle)
        outputs = nn.utils.skip_init(nn.Linear, na, na)
        with torch.no_grad():
            outputs.weight.copy_(torch.diag(self.reach))
            outputs.bias.copy_(self.middle)
        parts = (*self.actors.one(which), nn.Tanh(), outputs)
        return nn.Sequential(*parts).requires_grad_(False).eval()

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            **{name: getattr(self, name) for name in self.counts},
            "generators": [generator.get_state() for generator in self.generators],
            "replay": self.replay.state_dict(),
            "states": None if self.states is None else self.states.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        for name in self.counts:
            setattr(self, name, state[name])
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.set_state(saved)
        self.replay.load_state_dict(state["replay"])
        if self.states is not None:
            self.states.load_state_dict(state["states"])
