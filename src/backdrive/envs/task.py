"""What an environment is made of: a model, and batched torch functions of its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..model import Model, State

Random = np.random.Generator


def unchanged(action: Tensor) -> Tensor:
    """Actions are the motors' controls."""
    return action


def never(state: State) -> Tensor:
    """No state ends an episode: bool [B]."""
    return torch.zeros(state.batch_shape, dtype=torch.bool)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A model and what is to be done with it. All functions are of batches: states q [B, nq], v [B, nv].

    model, dt: what moves, and the simulator's step in s. frame_skip: so many of them are a step of the environment,
        with one action.
    start: (random, count) -> State of `count` environments at the beginning of an episode, float64; random numbers
        come from the numpy generator it is given.
    observe: state -> observations [B, n].
    reward: (before, action, after) -> {name: [B]}, the terms whose sum is the reward of a step. The action is the one
        that was given, also where it is beyond its limits.
    ends: state -> bool [B], where an episode terminates. Gymnasium's time limit is not the task's.
    action_low, action_high: limits of an action, numbers or [action_size] (None: as many as there are motors); what is
        beyond them is clipped before it acts.
    control: actions [B, action_size] -> the model's controls [B, nu].
    settings: of the `Simulator`, such as its solver.
    limits: what a picture of a planar model shows, (left, right, bottom, top) in m. camera: of a model in space, where
        the camera is as seen from the first body, m.

    Whatever is to have a gradient must be written in torch operations that have one.
    """

    name: str
    model: Model
    dt: float
    frame_skip: int = 1
    start: Callable[[Random, int], State]
    observe: Callable[[State], Tensor]
    reward: Callable[[State, Tensor, State], Mapping[str, Tensor]]
    ends: Callable[[State], Tensor] = never
    action_low: Any = -1.0
    action_high: Any = 1.0
    action_size: int | None = None
    control: Callable[[Tensor], Tensor] = unchanged
    settings: Mapping[str, Any] = field(default_factory=dict)
    limits: tuple[float, float, float, float] | str = "auto"
    camera: tuple[float, float, float] = (0.0, -3.0, 1.0)

    def __post_init__(self) -> None:
        if not isinstance(self.model, Model):
            raise TypeError(f"task {self.name!r}: model must be a backdrive Model, got {type(self.model).__name__}")
        if isinstance(self.frame_skip, bool) or not isinstance(self.frame_skip, int) or self.frame_skip < 1:
            raise ValueError(f"task {self.name!r}: frame_skip must be an integer >= 1, got {self.frame_skip!r}")
        size = self.model.nu if self.action_size is None else self.action_size
        for name in ("action_low", "action_high"):
            limit = np.broadcast_to(np.asarray(getattr(self, name), np.float64), (size,)).copy()
            object.__setattr__(self, name, limit)
        if not (self.action_low <= self.action_high).all():
            limits = f"action_low {self.action_low} is above action_high {self.action_high}"
            raise ValueError(f"task {self.name!r}: {limits}")

    @property
    def seconds(self) -> float:
        """Of a step of the environment."""
        return self.dt * self.frame_skip

    @property
    def fps(self) -> int:
        """Pictures per second of a film in real time, one per step."""
        return max(1, round(1.0 / self.seconds))


def scattered(
    model: Model, random: Random, count: int, *, position: float, velocity: float, normal: bool = False
) -> State:
    """States about the one the model was built in: q by at most `position`, uniformly; v by `velocity`, uniformly or as
    the standard deviation of a normal distribution."""
    q = model.q0 + random.uniform(-position, position, (count, model.nq))
    noise = random.standard_normal if normal else lambda shape: random.uniform(-1.0, 1.0, shape)
    return State(torch.from_numpy(q), torch.from_numpy(model.v0 + velocity * noise((count, model.nv))))
