"""Learning a gait with or without disturbances: short windows of many robots, with a critic, as SHAC has them.

Each evaluation is a window of all robots and its gradient. It updates the policy, and under the adversary it also tells
how to make the disturbances of the same window worse.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ...learn.gradients import ClipCount, descend
from ...learn.networks import OUTLIER, Critics, Normaliser
from ...learn.windows import ShortWindow
from ...model import State
from ...policy import MLP
from .disturbances import Disturbance, DisturbanceBounds, chosen
from .world import HOLD, SENSORS, DisturbedWorld

BATCH, DECISIONS = 128, 24  # Robots, and decisions of a window (0.48 s).
CLIP = 100.0  # Largest norm of the derivative of a robot's return with respect to its state, at each decision.
DISCOUNT, TRACE = 0.99, 0.95  # Per decision; λ of TD(λ).
RATE, LEAST_RATE, STEEPEST = 2e-3, 0.02, 1.0  # Of Adam at the start; its share at the end; largest gradient's norm.
PASSES, BATCHES, KEEP = 2, 4, 0.2  # Of the critic; share of the target critic's weights that is kept.
STD, LAST_STD = 0.35, 0.5  # Noise of actions before they are squashed; the share of it at the end.
HIDDEN, CRITIC = (128, 64), (64, 64)
CALM = 0.1  # Scale of the last layer's first weights.
DISTURBED, PUSHED = 0.75, 0.5  # Share of robots that are disturbed; share of windows in which these are pushed.
ASCENTS, ASCENT = 2, 0.5  # The adversary's steps in a window, and their size: see `DisturbanceBounds.ascend`.


class GaitNetworks:
    """A policy, its critic and the normalisation of what they observe; what is kept of a training."""

    def __init__(self, world: DisturbedWorld, generator: torch.Generator) -> None:
        n, dtype = world.observations, world.simulator.dtype
        self.policy = MLP(
            (n, *HIDDEN, world.model.nu), activation="elu", output="tanh", sensors=SENSORS, low=world.low,
            high=world.high, hold=HOLD, normalize=True, observation_clip=OUTLIER, layer_norm=True, dtype=dtype,
            std=STD, generator=generator,
        )  # fmt: skip
        with torch.no_grad():
            for x in self.policy.linear[-1].parameters():
                x.mul_(CALM)
        self.critic = Critics((n, *CRITIC), 1, activation="elu", generator=generator)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.normaliser = Normaliser(n)

    def refresh(self) -> None:
        """Use what the normaliser has counted."""
        self.normaliser.refresh()
        self.policy.observation_mean.copy_(self.normaliser.mean)
        self.policy.observation_std.copy_(self.normaliser.std)

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        return {name: part.state_dict() for name, part in vars(self).items()}

    def load_state_dict(self, saved: dict[str, dict[str, Tensor]]) -> None:
        for name, part in vars(self).items():
            part.load_state_dict(saved[name])


class Robots(NamedTuple):
    """Where the robots of a training are. clock: time since the start of their episodes [B], s. disturbed: bool [B]."""

    state: State
    clock: Tensor
    disturbed: Tensor


@dataclass
class LearningCurve:
    """Means over the last evaluations: of the reward of a decision, the speed (m/s), and the share of windows in which
    a robot falls."""

    evaluations: list[int]
    reward: list[float]
    speed: list[float]
    falls: list[float]


class Learner:
    """Trains networks in a world, against disturbances.

    against: "nothing"; "random": random ones; "extreme": random ones at the bounds; "adversary": random ones, and those
    of the adversary's steps from there, in windows from the same states; "replayed": random ones, in as many windows
    from the same states.
    """

    def __init__(
        self, world: DisturbedWorld, networks: GaitNetworks, against: str, bounds: DisturbanceBounds, evaluations: int,
        generator: torch.Generator,
    ) -> None:  # fmt: skip
        self.world, self.networks, self.against, self.bounds = world, networks, against, bounds
        self.evaluations, self.generator, self.clips = evaluations, generator, ClipCount()
        self.actor_step = torch.optim.Adam(networks.policy.parameters(), RATE, betas=(0.7, 0.95), fused=True)
        self.critic_step = torch.optim.Adam(networks.critic.parameters(), RATE, betas=(0.7, 0.95), fused=True)
        share = 0.0 if against == "nothing" else DISTURBED
        clock = world.seconds * torch.rand(BATCH, generator=generator)  # Episodes end at different times.
        self.robots = Robots(world.start(BATCH), clock.to(world.simulator.dtype), torch.arange(BATCH) < share * BATCH)
        self.lasting = self._drawn()

    def learn(self, advance: Callable[[int], None], rows: int = 50) -> LearningCurve:
        """Use all evaluations; the curve has so many rows."""
        curve, recent = LearningCurve([], [], [], []), []
        replays = ASCENTS + 1 if self.against in ("adversary", "replayed") else 1
        done, slope = 0, self.lasting
        while done < self.evaluations:
            advance(done)
            disturbance = self._drawn()
            lasting = chosen(self.robots.clock == 0.0, disturbance, self.lasting)
            disturbance = lasting._replace(forces=disturbance.forces)
            noise_share = 1.0 + done / self.evaluations * (LAST_STD - 1.0)
            for replay in range(min(replays, self.evaluations - done)):
                if replay:
                    disturbance = self.worse(disturbance, slope) if self.against == "adversary" else self._drawn()
                self._set_rates(done / self.evaluations)
                window, slope, last = self.evaluate(disturbance, noise_share)
                counts = window.counts
                speed = window.observations[..., 16][counts].mean()
                recent.append((window.rewards.detach()[counts].mean(), speed, window.terminated.any(0).float().mean()))
                done += 1
                if done * rows // self.evaluations > (done - 1) * rows // self.evaluations:
                    curve.evaluations.append(done)
                    means = torch.tensor(recent).mean(0).tolist()
                    for column, mean in zip((curve.reward, curve.speed, curve.falls), means, strict=True):
                        column.append(mean)
                    recent = []
            self.lasting = disturbance
            self._go_on(last, window.done)
        advance(self.evaluations)
        return curve

    # ------------------------------------------------------------------------------------------ disturbances

    def _drawn(self) -> Disturbance:
        """Random disturbances of the disturbed robots; pushes in some windows only."""
        world = self.world
        drawn = self.bounds.random(
            DECISIONS, BATCH, world.model.nbody, world.decide, self.generator, world.simulator.dtype,
            extreme=self.against == "extreme",
        )  # fmt: skip
        self.pushed = self.robots.disturbed & (torch.rand(BATCH, generator=self.generator) < PUSHED)
        drawn = drawn._replace(forces=torch.where(self.pushed[:, None], drawn.forces, 0.0))
        return chosen(self.robots.disturbed, drawn, world.calm(DECISIONS, BATCH))

    def worse(self, disturbance: Disturbance, slope: Disturbance) -> Disturbance:
        """The adversary's step, for the robots that are disturbed and pushed in this window."""
        moved = self.bounds.ascend(disturbance, slope, self.world.decide, ASCENT)
        moved = moved._replace(forces=torch.where(self.pushed[:, None], moved.forces, disturbance.forces))
        return chosen(self.robots.disturbed, moved, disturbance)

    # ------------------------------------------------------------------------------------------ one evaluation

    def evaluate(self, disturbance: Disturbance, noise_share: float) -> tuple[ShortWindow, Disturbance, State]:
        """Update policy and critic by one window of all robots.

        Returns the window, the gradient of each robot's loss with respect to its disturbance, and its last state.
        """
        world, networks = self.world, self.networks
        noise = noise_share * torch.randn(
            DECISIONS, BATCH, world.model.nu, generator=self.generator, dtype=world.simulator.dtype
        )  # fmt: skip
        leaves = disturbance.leaves() if self.against == "adversary" else disturbance
        window, last = short_window(world, networks.policy, self.robots, leaves, noise)
        self.actor_step.zero_grad()
        losses(window, networks).sum().backward()
        slope = Disturbance(*(x if x.grad is None else x.grad for x in leaves))
        descend(networks.policy, self.actor_step, STEEPEST, self.clips, int(window.counts.sum()))
        self._fit_critic(window)
        networks.normaliser.update(window.observations[window.counts])
        networks.refresh()
        return window, slope, last

    def _fit_critic(self, window: ShortWindow) -> None:
        """Fit the critic to the TD(λ) returns of a window."""
        networks, counts = self.networks, window.counts
        with torch.no_grad():
            values = torch.where(window.terminated, 0.0, networks.target(networks.normaliser(window.finals)))
            returns = window.returns(window.rewards.detach(), values, DISCOUNT, TRACE)[counts]
            x = networks.normaliser(window.observations[counts])
        for _ in range(PASSES):
            order = torch.randperm(len(x), generator=self.generator)
            for rows in order.chunk(BATCHES):
                self.critic_step.zero_grad()
                (networks.critic(x[rows]) - returns[rows]).square().mean().backward()
                descend(networks.critic, self.critic_step, STEEPEST, self.clips)
        with torch.no_grad():
            torch._foreach_lerp_(list(networks.target.parameters()), list(networks.critic.parameters()), 1.0 - KEEP)

    def _set_rates(self, spent: float) -> None:
        for optimiser in (self.actor_step, self.critic_step):
            for group in optimiser.param_groups:
                group["lr"] = RATE * max(1.0 - spent, LEAST_RATE)

    def _go_on(self, last: State, done: Tensor) -> None:
        """Go on from the end of a window; robots whose episode ended in it stand at the start again."""
        robots, over, start = self.robots, done.any(0), self.world.start(BATCH)
        state = State(*(torch.where(over[:, None], new, old) for new, old in zip(start, last, strict=True)))
        clock = torch.where(over, 0.0, robots.clock + DECISIONS * self.world.decide)
        self.robots = robots._replace(state=state, clock=clock)


def short_window(
    world: DisturbedWorld, policy: MLP, robots: Robots, disturbance: Disturbance, noise: Tensor | None = None,
    clip: float | None = CLIP,
) -> tuple[ShortWindow, State]:  # fmt: skip
    """The robots' next D decisions, with their graph, and where they end. A robot that falls counts until then."""
    decisions = len(disturbance.forces)
    path = world.go(policy, robots.state, robots.clock, disturbance, clip, noise)
    if not bool(torch.isfinite(path.last.v.sum())):
        raise FloatingPointError("a motion of the quadruped is not finite")
    rewards, ended = world.rewards(path, HOLD)
    times = robots.clock + world.decide * torch.arange(1, decisions + 1, dtype=robots.clock.dtype)[:, None]
    done = (ended | (times >= world.seconds - 0.5 * world.decide)).cumsum(0) > 0
    counts = torch.cat([torch.ones_like(done[:1]), ~done[:-1]])
    done, terminated = done & counts, ended & counts
    q, v = path.q[::HOLD], path.v[::HOLD]
    seen = world.observe(q, v, world.phases(robots.clock, decisions + 1))
    before, after = seen[:-1].detach(), seen[1:]
    window = ShortWindow(
        counts, before, after.detach(), path.controls[::HOLD], rewards, terminated, done, torch.empty(0), ClipCount
    )  # fmt: skip
    return replace(window, last=after[window.ends()]), State(q[-1].detach(), v[-1].detach())


def losses(window: ShortWindow, networks: GaitNetworks) -> Tensor:
    """What adversaries go up and policies go down, of each robot [B]: the negative sum of a window's discounted rewards
    and of what the critic expects where it ends."""
    ends, weights = window.ends(), window.weights(DISCOUNT)
    values = networks.target(networks.normaliser(window.last))
    value = torch.zeros_like(weights).masked_scatter(ends, values)
    return -(weights * (window.rewards + DISCOUNT * value)).sum(0)
