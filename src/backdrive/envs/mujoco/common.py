"""What the twins share: the model, random starts by Gymnasium's order of random numbers, ranges of health."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from ...model import Model, State
from ..locomotion import gymnasium_model
from ..task import Random, Snapshot, Task

Maker = TypeVar("Maker", bound=Callable[..., Task])
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


def accepts(options: type, *, without: Sequence[str] = (), more: Sequence[str] = ()) -> Callable[[Maker], Maker]:
    """Name the options of a function that makes a task: the fields of a class, `without` some, and some `more`."""

    def named(maker: Maker) -> Maker:
        maker.options = (*(x.name for x in fields(options) if x.name not in without), *more)  # type: ignore[attr-defined]
        return maker

    return named


def places(now: Look) -> dict[str, Tensor]:
    """For info: x and y of the root, and the distance from the origin."""
    x, y = now.q[:, 0], now.q[:, 1]
    return {"x_position": x, "y_position": y, "distance_from_origin": now.q[:, :2].norm(dim=-1)}


def velocities(before: Tensor, after: Tensor, seconds: float) -> dict[str, Tensor]:
    """For info: mean velocities along x and y, between positions [B, 2]."""
    x, y = ((after - before) / seconds).unbind(-1)
    return {"x_velocity": x, "y_velocity": y}


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
