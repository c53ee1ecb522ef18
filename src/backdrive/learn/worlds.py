"""The environments that agents learn in: a batch of one task, whose steps carry gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..envs import TASKS, TWINS, Task, VectorEnv
from ..model import State


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
    """`count` environments of a task that reset themselves, with episodes that start at different times.

    returns: the sums of rewards of the running episodes, [N].
    """

    def __init__(
        self, task: Task | str, count: int, *, seed: int, limit: int | None, dtype: torch.dtype, threads: int | None,
        options: Mapping[str, Any],
    ) -> None:  # fmt: skip
        if limit is None and isinstance(task, str):
            known = {**TASKS, **TWINS}
            limit = known[task].max_episode_steps if task in known else None
        self.env = VectorEnv(
            task, num_envs=count, max_episode_steps=limit, autoreset_mode="SameStep", dtype=dtype, threads=threads,
            **options,
        )  # fmt: skip
        self.observation, _ = self.env.reset_torch(seed=seed)
        self.count, self.limit = count, limit
        self.returns = torch.zeros(count, dtype=torch.float64)
        self.whole = torch.ones(count, dtype=torch.bool)  # Whether the running episode began at its first step.
        self.low, self.high = (torch.as_tensor(x) for x in (self.env.task.action_low, self.env.task.action_high))

    def stagger(self, random: np.random.Generator) -> None:
        """Let the time limits of the running episodes end at different times, so that not all reset at once."""
        if self.limit is not None:
            self.env._steps = torch.from_numpy(random.integers(0, self.limit, self.count))
            self.whole = self.env._steps == 0

    def detach(self) -> Tensor:
        """Cut the graph, and return the current observations [N, n]."""
        self.env.detach()
        self.observation = self.observation.detach()
        return self.observation

    def step(self, action: Tensor) -> tuple[Step, list[float]]:
        """Step all environments; the returns of the episodes that ended and had begun at their first step."""
        observation, reward, terminated, truncated, info = self.env.step_torch(action)
        step = Step(observation, info.get("final_obs", observation), reward, terminated, truncated)
        self.observation = observation
        self.returns += reward.detach()
        done = step.done
        finished = self.returns[done & self.whole].tolist()
        self.returns[done] = 0.0
        self.whole |= done
        return step, finished

    @property
    def state(self) -> Any:
        """The current states, as the task's functions see them; may be set."""
        return self.env.batch.where()

    @state.setter
    def state(self, state: Any) -> None:
        self.env.batch.state = state

    def state_dict(self) -> dict[str, Any]:
        """All that decides what follows; the graph is not kept."""
        state = self.state
        return {
            "state": [x.detach().clone() for x in state], "observation": self.observation.detach().clone(),
            "steps": self.env._steps.clone(), "ended": self.env._ended.clone(), "returns": self.returns.clone(),
            "whole": self.whole.clone(), "random": _plain(self.env.np_random.bit_generator.state),
        }  # fmt: skip

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        kind = type(self.state)
        self.state = kind(*(x.clone() for x in saved["state"]))
        self.observation = saved["observation"].clone()
        self.env._steps, self.env._ended = saved["steps"].clone(), saved["ended"].clone()
        self.returns, self.whole = saved["returns"].clone(), saved["whole"].clone()
        self.env.np_random.bit_generator.state = dict(saved["random"])


def _plain(state: Any) -> Any:
    """The state of a random generator in Python's own types."""
    if isinstance(state, Mapping):
        return {str(name): _plain(x) for name, x in state.items()}
    return state.tolist() if isinstance(state, np.ndarray) else state


__all__ = ["State", "Step", "World"]
