"""Twins of InvertedPendulum and InvertedDoublePendulum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...model import Model, State
from ...simulator import Simulator
from ...trajectory import Trajectory
from ..task import Snapshot, Task
from .common import Look, noisy, twin
from .data import LastEvaluation

TIP = 0.6  # m; the distance of the tip from the joint of the second pole


def inverted_pendulum(
    *, reset_noise_scale: float = 0.01, frame_skip: int = 2, xml_file: str = "inverted_pendulum.xml"
) -> Task:
    """InvertedPendulum-v5. The reward, 1 while the pole is within 0.2 rad, has no gradient."""

    def functions(model: Model) -> Mapping[str, Any]:
        def ends(state: Look) -> Tensor:
            return state.q[:, 1].abs() > 0.2

        return {
            "start": noisy(model, reset_noise_scale), "ends": ends, "camera": (0.0, -2.5, 0.5),
            "observe": lambda state: torch.cat([state.q, state.v], -1),
            "reward": lambda before, action, after: {"survive": (~ends(after)).to(action.dtype)},
        }  # fmt: skip

    return twin("InvertedPendulum", xml_file, frame_skip, functions)


class PoleSensors:
    """x and z of the tip, and the constraint force on the cart, of the last evaluation."""

    of_state = False

    def __init__(self, simulator: Simulator) -> None:
        self._at = LastEvaluation(simulator)

    def at_start(self, state: State) -> Tensor:
        return self._seen(state, torch.zeros_like(state.q[:, : self._at.model.nu]))

    def after(self, path: Trajectory) -> Tensor:
        return self._seen(self._at.state(path), path.controls[-1])

    def _seen(self, state: State, control: Tensor) -> Tensor:
        bodies = self._at.bodies(state)
        tip = bodies.position[:, -1] + TIP * bodies.rotation[:, -1, :, 2]
        return torch.cat([tip[:, ::2], self._at.constraint_force(state, control)[:, :1]], -1)


def inverted_double_pendulum(
    *, healthy_reward: float = 10.0, reset_noise_scale: float = 0.1, frame_skip: int = 5,
    xml_file: str = "inverted_double_pendulum.xml",
) -> Task:  # fmt: skip
    """InvertedDoublePendulum-v5: healthy while the tip is above 1 m."""

    def functions(model: Model) -> Mapping[str, Any]:
        def ends(now: Snapshot) -> Tensor:
            return now.data[:, 1] <= 1.0

        def observe(now: Snapshot) -> Tensor:
            angles, force = now.q[:, 1:], now.data[:, 2:].clamp(-10.0, 10.0)
            return torch.cat([now.q[:, :1], angles.sin(), angles.cos(), now.v.clamp(-10.0, 10.0), force], -1)

        def reward(before: Snapshot, action: Tensor, after: Snapshot) -> dict[str, Tensor]:
            x, z, _ = after.data.unbind(-1)
            return {
                "survive": healthy_reward * (~ends(after)).to(action.dtype),
                "distance": -0.01 * x.square() - (z - 2.0).square(),
                "velocity": -1e-3 * after.v[:, 1].square() - 5e-3 * after.v[:, 2].square(),
            }

        return {
            "start": noisy(model, reset_noise_scale, normal=True), "observe": observe, "reward": reward, "ends": ends,
            "sensors": PoleSensors, "camera": (0.0, -3.5, 0.8),
            "info_names": {"distance": "distance_penalty", "velocity": "velocity_penalty"},
        }  # fmt: skip

    return twin("InvertedDoublePendulum", xml_file, frame_skip, functions)
