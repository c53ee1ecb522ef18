"""The environments that agents learn in: a batch of one task, whose steps carry gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..envs import TASKS, TWINS, Task, VectorEnv
from ..model import State
from .gradients import ClipCount, clipped


class Step(NamedTuple):
    """A step of all environments: observation [N, n] after resets, and before them (`final`); reward [N]; whether an
    episode terminated, or was truncated by its time limit, bool [N]."""

    observation: Tensor
    final: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor

    @property
    def done(self) -> Tensor:
        return self.terminated | self.truncated


class World:
    """`count` environments of a task that reset themselves. Their first episodes end at different times, unless they
    are started together.

    task: a task or its name. limit: steps after which an episode is truncated; None: as registered with the name.
    settings: arguments of `VectorEnv`. returns: the sums of rewards of the running episodes so far, [N]. finished: the
    returns of episodes that ended, and had begun at their first step, since someone emptied this list.
    """

    def __init__(
        self, task: Task | str, count: int, *, seed: int, limit: int | None = None, settings: Mapping[str, Any]
    ) -> None:
        if limit is None and isinstance(task, str):
            known = {**TASKS, **TWINS}
            limit = known[task].max_episode_steps if task in known else None
        self.env = VectorEnv(task, num_envs=count, max_episode_steps=limit, autoreset_mode="SameStep", **settings)
        self.task, self.count, self.limit = self.env.task, count, limit
        self.name = task if isinstance(task, str) else task.name
        self.observation, _ = self.env.reset_torch(seed=seed)
        self.returns = torch.zeros(count, dtype=torch.float64)
        self.finished: list[float] = []
        self.whole = torch.ones(count, dtype=torch.bool)  # Whether the running episode began at its first step.
        self.low, self.high = (torch.from_numpy(x) for x in (self.task.action_low, self.task.action_high))
        if not (bool(torch.isfinite(self.low).all()) and bool(torch.isfinite(self.high).all())):
            raise ValueError(f"task {self.name!r} has actions without limits: set action_low and action_high")
        if limit is not None:
            self._stagger(np.random.default_rng(seed), limit)

    def _stagger(self, random: np.random.Generator, limit: int) -> None:
        """Let the time limits of the first episodes end at different times, so that not all reset at once."""
        begun = torch.from_numpy(random.integers(0, limit, self.count))
        self.env.load_state_dict({**self.env.state_dict(), "steps": begun})
        self.whole = begun == 0

    def bound(self, limit: float | None, count: ClipCount) -> None:
        """From now on, let the gradient of each environment's (q, v) after a step be at most this long, None: any. It
        is the gradient of all that follows, the reward of the step included."""
        self.env.batch.between = (lambda x: x) if limit is None else lambda x: clipped(x, limit, count)

    def start(self, seeds: Sequence[int] | None = None) -> Tensor:
        """Start all environments anew, together, and return their observations [N, n]. seeds: of their random numbers,
        which otherwise go on."""
        self.observation, _ = self.env.reset_torch(seed=seeds)
        self.returns, self.whole = torch.zeros_like(self.returns), torch.ones_like(self.whole)
        return self.observation

    def detach(self) -> Tensor:
        """Cut the graph, and return the current observations [N, n]."""
        self.env.detach()
        self.observation = self.observation.detach()
        return self.observation

    def step(self, action: Tensor) -> Step:
        """Step all environments."""
        observation, reward, terminated, truncated, info = self.env.step_torch(action.to(self.env.batch.dtype))
        step = Step(observation, info.get("final_obs", observation), reward, terminated, truncated)
        self.observation = observation
        self._count(reward.detach(), step.done)
        return step

    def out_of_time(self, count: int) -> Tensor:
        """Whether the time limit of the running episodes is over after each of the next steps, bool [count, N]."""
        if self.limit is None:
            return torch.zeros(count, self.count, dtype=torch.bool)
        return torch.arange(1, count + 1).unsqueeze(1) + self.env.steps >= self.limit

    def go_on(self, state: State, rewards: Tensor, done: Tensor) -> None:
        """Go on from the end of a motion [H, N] that was computed elsewhere. done: where an episode ended, once in each
        environment at most, which is then reset."""
        self.env.take(state, self.env.steps + len(rewards))
        over = done.any(0)
        self._count(rewards.sum(0), over)
        if bool(over.any()):
            self.env.reset_torch(options={"reset_mask": over.numpy()})
        self.observation = self.env.batch.observation()

    def _count(self, reward: Tensor, done: Tensor) -> None:
        """Add rewards to the returns, and keep in `finished` those of whole episodes that are done, [N] each."""
        self.returns += reward
        if bool(done.any()):
            self.finished.extend(self.returns[done & self.whole].tolist())
            self.returns[done] = 0.0
            self.whole = self.whole | done

    def state_dict(self) -> dict[str, Any]:
        """All that decides what follows; the graph is not kept."""
        return {
            "env": self.env.state_dict(), "observation": self.observation.detach(),
            "returns": self.returns.clone(), "whole": self.whole.clone(),
        }  # fmt: skip

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        if len(saved["returns"]) != self.count:
            raise ValueError(f"it was saved with {len(saved['returns'])} environments, and here are {self.count}")
        self.env.load_state_dict(saved["env"])
        self.observation = saved["observation"]
        self.returns, self.whole = saved["returns"].clone(), saved["whole"].clone()
