"""Short windows of many environments: a few steps of each, with the gradient of a policy.

`stepped` moves environments of any task, step by step. `OneCall` does it in one call of a kernel, and the gradient in
another, where the policy observes nothing but (clipped) elements of the state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..envs.task import unchanged
from ..model import State
from ..policy import ACTIVATIONS, MLP
from ..trajectory import Trajectory
from .gradients import ClipCount
from .networks import OUTLIER, Actor, Normaliser
from .worlds import World

UNLIMITED = 1e30
"""A limit of gradients that only those that are not finite exceed."""


@dataclass(frozen=True)
class ShortWindow:
    """What happened in H steps of N environments.

    counts: which steps count, bool [H, N]: not those of an environment that waits for the end of the window, because
        its episode has ended.
    observations: those before each step, and after it (`finals`, before a reset), [H, N, n], without graph.
    actions: [H, N, na]; rewards: [H, N], with the graph of the actor.
    terminated, done: whether an episode terminated, or ended for any reason, in this step, bool [H, N].
    last: the observations after the steps `ends()`, [k, n], with the graph.
    clips: what the backward pass clipped, known after it.
    """

    counts: Tensor
    observations: Tensor
    finals: Tensor
    actions: Tensor
    rewards: Tensor
    terminated: Tensor
    done: Tensor
    last: Tensor
    clips: Callable[[], ClipCount]

    def ends(self) -> Tensor:
        """The last steps that count of each episode, bool [H, N]."""
        ends = self.done.clone()
        ends[-1] = True
        return ends & self.counts

    def weights(self, discount: float) -> Tensor:
        """γ^k for the k-th step since the window or an episode began, 0 where it does not count, [H, N]."""
        weights = torch.ones_like(self.rewards, requires_grad=False)
        for h in range(1, len(weights)):
            weights[h] = torch.where(self.done[h - 1], 1.0, discount * weights[h - 1])
        return weights * self.counts

    def returns(self, rewards: Tensor, values: Tensor, discount: float, trace: float) -> Tensor:
        """TD(λ) returns [H, N] of rewards, from the values of the states after each step, 0 for terminal ones:

        G_h = r_h + γ ((1 - λ) V_h + λ G_{h+1}), and r_h + γ V_h where an episode or the window ends.
        """
        ends = self.ends()
        returns, ahead = torch.empty_like(rewards), values[-1]
        for h in reversed(range(len(rewards))):
            following = torch.where(ends[h], values[h], (1.0 - trace) * values[h] + trace * ahead)
            ahead = returns[h] = rewards[h] + discount * following
        return returns


def stepped(world: World, actor: Actor, normaliser: Normaliser, noise: Tensor, clip: float | None) -> ShortWindow:
    """Step by step, with resets on the way. noise: [H, N, na]. clip: see `World.bound`."""
    clips, rows = ClipCount(), []
    world.detach()
    world.bound(clip, clips)
    for h, pushed in enumerate(noise):
        if h == len(noise) - 1:
            world.bound(None, clips)  # The last state is not between steps.
        observation = world.observation
        action = actor(normaliser(observation), pushed)
        step = world.step(action)
        rows.append(
            (observation.detach(), step.final, action, step.reward.to(action.dtype), step.terminated, step.done)
        )
    observations, finals, actions, rewards, terminated, done = (torch.stack(column) for column in zip(*rows))
    ends = done.clone()
    ends[-1] = True
    counts = torch.ones_like(done)
    return ShortWindow(
        counts, observations, finals.detach(), actions, rewards, terminated, done, finals[ends], lambda: clips
    )


class Selected(NamedTuple):
    """Observations that are elements of (q, v), with these indices, clipped to limits [n]."""

    places: list[int]
    low: Tensor
    high: Tensor


class OneCall:
    """Windows of a task whose actions are controls and whose observations are elements of the state.

    An environment whose episode ends waits for the end of the window, which its kernel shares with others, and starts
    anew after it. `possible` tells whether a task and its actor are so.
    """

    def __init__(self, world: World, actor: Actor, normaliser: Normaliser, seen: Selected) -> None:
        self.world, self.normaliser = world, normaliser
        simulator, task = world.env.simulator, world.task
        self.look, self.rewards = task.looks(simulator), task.rewards(simulator)
        nq = task.model.nq
        self.policy = MLP(
            actor.sizes, activation=actor.activation, output="tanh", low=world.low, high=world.high, std=1.0,
            sensors=[f"q[{k}]" if k < nq else f"v[{k - nq}]" for k in seen.places], compiled=True, normalize=True,
            hold=task.frame_skip, observation_clip=OUTLIER, observation_limits=(seen.low, seen.high),
            layer_norm=actor.layer_norm, dtype=torch.float32,
        )  # fmt: skip
        self.policy.layers = nn.ModuleList(x for x in actor.mean if isinstance(x, nn.Linear))
        self.policy.log_std = actor.log_std

    @staticmethod
    def possible(world: World, actor: Actor) -> Selected | None:
        """What the policy observes, if windows can be one call; else None."""
        task, sensors = world.task, world.env.batch.sensors
        if task.control is not unchanged or actor.activation not in ACTIVATIONS:
            return None
        if sensors is not None and not sensors.of_state:
            return None
        look = task.looks(world.env.simulator)
        return selected(lambda state: task.observe(look(state)), task.model.nq, task.model.nv, world.env.batch.dtype)

    def window(self, noise: Tensor, clip: float | None) -> ShortWindow:
        """noise: [H, N, na]. clip: see `World.bound`."""
        world, policy, hold = self.world, self.policy, self.policy.hold
        policy.observation_mean = self.normaliser.mean
        policy.observation_std = self.normaliser.std
        start = world.env.state.detach()
        path, rewards, ended = self.rewards.rollout(
            world.env.simulator, start, policy=policy, noise=noise, clip=UNLIMITED if clip is None else clip
        )
        q, v = path.q[::hold], path.v[::hold]
        if not bool(torch.isfinite(path.last.v.sum())):
            q, v = _finite(q, v)
        before, after = (self.seen(q[part].detach(), v[part].detach()) for part in (slice(-1), slice(1, None)))
        done = ended | world.out_of_time(len(noise))
        counts = torch.cat([torch.ones_like(done[:1]), ~done[:-1]])
        done, terminated = done & counts, ended & counts
        rewards = self._with_lost(rewards, terminated, q.detach(), v.detach())
        window = ShortWindow(
            counts, before, after, path.controls[::hold].to(noise.dtype), rewards.to(noise.dtype), terminated, done,
            torch.empty(0), lambda: _clips(path, hold),
        )  # fmt: skip
        ends = window.ends()
        last = self.world.task.observe(self.look(State(q[1:][ends], v[1:][ends])))
        world.go_on(State(q[-1].detach(), v[-1].detach()), rewards.detach() * counts, done)
        return ShortWindow(**{**window.__dict__, "last": last})

    def seen(self, q: Tensor, v: Tensor) -> Tensor:
        """The observations [H, N, n] of states."""
        found = self.world.task.observe(self.look(State(q.flatten(0, 1), v.flatten(0, 1))))
        return found.unflatten(0, q.shape[:2])

    def _with_lost(self, rewards: Tensor, terminated: Tensor, q: Tensor, v: Tensor) -> Tensor:
        """Rewards that are not finite end an episode in `control.Rewards`, with a reward of 0: here they are NaN."""
        where = terminated.nonzero(as_tuple=True)
        if not len(where[0]):
            return rewards
        after = State(q[1:][where], v[1:][where])
        moved = torch.cat([after.q - q[:-1][where], after.v - v[:-1][where]], -1).abs().sum(-1) > 0.0
        lost = moved & ~self.world.task.ends(self.look(after))
        return rewards.index_put(where, torch.where(lost, torch.nan, rewards[where])) if bool(lost.any()) else rewards


def _finite(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """States [H + 1, N, ...] in which those that are not finite are the last finite ones before them."""
    finite = torch.isfinite(torch.cat([q, v], -1)).all(-1, keepdim=True)
    qs, vs = [q[0]], [v[0]]
    for h in range(1, len(q)):
        qs.append(torch.where(finite[h], q[h], qs[-1].detach()))
        vs.append(torch.where(finite[h], v[h], vs[-1].detach()))
    return torch.stack(qs), torch.stack(vs)


def _clips(path: Trajectory, hold: int) -> ClipCount:
    """What the backward pass clipped, at the states between decisions."""
    status = path.adjoint_status
    seen = (len(status.norm) // hold - 1) * status.norm.shape[1]
    return ClipCount(seen, int(status.clipped.sum()), int((~status.finite).sum()))


def selected(observe: Callable[[State], Tensor], nq: int, nv: int, dtype: torch.dtype) -> Selected | None:
    """Which elements of (q, v) a function observes, and the limits that it clips them to; None if it does else."""

    def see(x: Tensor) -> Tensor:
        return observe(State(*x.to(dtype).split([nq, nv], -1))).detach().double()

    small, far = torch.arange(1.0, nq + nv + 1.0, dtype=torch.float64) / (nq + nv), 1e6
    try:
        places = (see(small[None])[0] * (nq + nv)).round().long() - 1
        low, high = (see(torch.full((1, nq + nv), x, dtype=torch.float64))[0] for x in (-far, far))
    except Exception:  # A function that fails at such states is no plain choice of elements.
        return None
    if bool(((places < 0) | (places >= nq + nv)).any()):
        return None
    low, high = torch.where(low <= -far, -torch.inf, low), torch.where(high >= far, torch.inf, high)
    random = torch.Generator().manual_seed(0)
    x = torch.randn(64, nq + nv, generator=random, dtype=torch.float64) * torch.logspace(-1, 3, 64)[:, None]
    x = x.to(dtype).double()
    if not bool((low < high).all()) or not torch.equal(x[:, places].clamp(low, high), see(x)):
        return None
    return Selected(places.tolist(), low, high)
