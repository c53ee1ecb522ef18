"""Twins of Reacher and Pusher: rewards for being near a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...model import Model, State
from ...simulator import Simulator
from ...trajectory import Trajectory
from ..task import Random, Snapshot, Task
from .common import cost, twin
from .data import LastEvaluation


class Positions:
    """Sensors of the positions of some bodies, 3 numbers each, of the last evaluation."""

    of_state = True

    def __init__(self, simulator: Simulator, *bodies: str) -> None:
        self._at, self._bodies = LastEvaluation(simulator), bodies

    def at_start(self, state: State) -> Tensor:
        return torch.cat(self._at.positions(state, *self._bodies), -1)

    def after(self, path: Trajectory) -> Tensor:
        return self.at_start(self._at.state(path))


def drawn(random: Random, limits: list[tuple[float, float]], accept: Any) -> np.ndarray:
    """A random point, each coordinate uniform within its limits, drawn until it is accepted."""
    while True:
        point = np.array([random.uniform(low, high) for low, high in limits])
        if accept(float(np.linalg.norm(point))):
            return point


def reacher(
    *, reward_dist_weight: float = 1.0, reward_control_weight: float = 1.0, frame_skip: int = 2,
    xml_file: str = "reacher.xml",
) -> Task:  # fmt: skip
    """Reacher-v5: an arm of two links in the plane, whose fingertip is to reach a target."""

    def functions(model: Model) -> Mapping[str, Any]:
        def start(random: Random, count: int) -> State:
            q, v = (np.repeat(x[None], count, 0) for x in (model.q0, model.v0))
            for i in range(count):
                q[i] += random.uniform(-0.1, 0.1, model.nq)
                q[i, -2:] = drawn(random, [(-0.2, 0.2)] * 2, lambda distance: distance < 0.2)
                v[i] += random.uniform(-0.005, 0.005, model.nv)
            v[:, -2:] = 0.0
            return State(torch.from_numpy(q), torch.from_numpy(v))

        def offset(now: Snapshot) -> Tensor:
            return now.data[:, :3] - now.data[:, 3:]

        def observe(now: Snapshot) -> Tensor:
            angles = now.q[:, :2]
            return torch.cat([angles.cos(), angles.sin(), now.q[:, 2:], now.v[:, :2], offset(now)[:, :2]], -1)

        def reward(before: Snapshot, action: Tensor, after: Snapshot) -> dict[str, Tensor]:
            return {
                "dist": -reward_dist_weight * offset(after).norm(dim=-1),
                "ctrl": cost(reward_control_weight, action),
            }

        return {
            "start": start, "observe": observe, "reward": reward, "camera": (0.0, -0.1, 0.8),
            "sensors": lambda simulator: Positions(simulator, "fingertip", "target"),
        }  # fmt: skip

    return twin("Reacher", xml_file, frame_skip, functions)


def pusher(
    *, reward_near_weight: float = 0.5, reward_dist_weight: float = 1.0, reward_control_weight: float = 0.1,
    frame_skip: int = 5, xml_file: str = "pusher_v5.xml",
) -> Task:  # fmt: skip
    """Pusher-v5: an arm of seven joints that is to push a cylinder to a goal."""

    def functions(model: Model) -> Mapping[str, Any]:
        def start(random: Random, count: int) -> State:
            q, v = (np.repeat(x[None], count, 0) for x in (model.q0, model.v0))
            for i in range(count):
                q[i, -4:-2] = drawn(random, [(-0.3, 0.0), (-0.2, 0.2)], lambda distance: distance > 0.17)
                v[i] += random.uniform(-0.005, 0.005, model.nv)
            q[:, -2:] = 0.0
            v[:, -4:] = 0.0
            return State(torch.from_numpy(q), torch.from_numpy(v))

        def reward(before: Snapshot, action: Tensor, after: Snapshot) -> dict[str, Tensor]:
            tips, thing, goal = after.data.split(3, -1)
            return {
                "dist": -reward_dist_weight * (thing - goal).norm(dim=-1),
                "ctrl": cost(reward_control_weight, action),
                "near": -reward_near_weight * (thing - tips).norm(dim=-1),
            }

        return {
            "start": start, "reward": reward, "camera": (1.0, -2.0, 1.5),
            "observe": lambda now: torch.cat([now.q[:, :7], now.v[:, :7], now.data], -1),
            "sensors": lambda simulator: Positions(simulator, "tips_arm", "object", "goal"),
        }  # fmt: skip

    return twin("Pusher", xml_file, frame_skip, functions)
