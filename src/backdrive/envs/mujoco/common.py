"""What the twins share: the model, random starts by Gymnasium's order of random numbers, ranges of health."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ...model import Model, State
from ..locomotion import gymnasium_model
from ..task import Random, Snapshot, Task

Range = tuple[float, float]
Look = State | Snapshot
"""What observations, rewards and terminations are functions of."""


def twin(name: str, file: str, frame_skip: int, make: Callable[[Model], Mapping[str, Any]]) -> Task:
    """A task with MuJoCo's physics, of one of Gymnasium's files; make: its functions, and other arguments of `Task`."""
    model = gymnasium_model(file)
    assert model.timestep is not None
    low, high = model.control_limits.T
    return Task(
        name=name, model=model, dt=model.timestep, frame_skip=frame_skip, action_low=low, action_high=high,
        settings={"physics": "mujoco"}, **make(model),
    )  # fmt: skip


def noisy(model: Model, spread: float, *, normal: bool = False) -> Callable[[Random, int], State]:
    """A start: q uniform in ± `spread` about that of the file; so is v, or normal with that standard deviation.

    One environment has the random numbers of Gymnasium's environment with the same seed.
    """

    def start(random: Random, count: int) -> State:
        q = model.q0 + random.uniform(-spread, spread, (count, model.nq))
        shape = (count, model.nv)
        noise = spread * random.standard_normal(shape) if normal else random.uniform(-spread, spread, shape)
        return State(torch.from_numpy(q), torch.from_numpy(model.v0 + noise))

    return start


def cost(weight: float, x: Tensor) -> Tensor:
    """-weight |x|², [B]."""
    return -weight * x.square().sum(-1)


def within(x: Tensor, limits: Range) -> Tensor:
    """Whether a number is strictly between its limits, bool [...]."""
    return (x > limits[0]) & (x < limits[1])
