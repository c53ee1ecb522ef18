"""The environments that agents learn in: a batch of one task, whose steps carry gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..envs import TASKS, TWINS, Task, VectorEnv


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
    settings: arguments of `VectorEnv`. returns: the sums of rewards of the running episodes so far, [N].
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

    @property
    def state(self) -> Any:
        """The current states, as the task's functions see them; may be set."""
        return self.env.batch.where()

    @state.setter
    def state(self, state: Any) -> None:
        self.env.batch.state = state
        self.observation = self.task.observe(state)

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

    def step(self, action: Tensor) -> tuple[Step, list[float]]:
        """Step all environments; the returns of the episodes that ended and had begun at their first step."""
        observation, reward, terminated, truncated, info = self.env.step_torch(action.to(self.env.batch.dtype))
        step = Step(observation, info.get("final_obs", observation), reward, terminated, truncated)
        self.observation = observation
        self.returns += reward.detach()
        finished: list[float] = []
        if "final_obs" in info:
            done = step.done
            finished = self.returns[done & self.whole].tolist()
            self.returns[done] = 0.0
            self.whole = self.whole | done
        return step, finished

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
