"""Twins of Hopper, Walker2d, HalfCheetah, Swimmer and Ant: rewards for speed along x."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...model import Model, State
from ...simulator import Simulator
from ...trajectory import Trajectory
from ..task import Snapshot, Task
from .common import Look, Range, cost, noisy, twin, within
from .data import Inertias, LastEvaluation


@dataclass(frozen=True, kw_only=True)
class Running:
    """Options of the planar runners, as Gymnasium has them. Ranges: m, rad, and both of these and their rates."""

    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-3
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_state_range: Range = (-math.inf, math.inf)
    healthy_z_range: Range = (-math.inf, math.inf)
    healthy_angle_range: Range = (-math.inf, math.inf)
    reset_noise_scale: float = 5e-3
    exclude_current_positions_from_observation: bool = True
    frame_skip: int = 4

    def healthy(self, state: Look) -> Tensor:
        fine = within(torch.cat([state.q[:, 2:], state.v], -1), self.healthy_state_range).all(-1)
        upright = within(state.q[:, 1], self.healthy_z_range) & within(state.q[:, 2], self.healthy_angle_range)
        return fine & upright

    def unhealthy(self, state: Look) -> Tensor:
        return ~self.healthy(state) & self.terminate_when_unhealthy

    def rewards(self, seconds: float, before: Look, action: Tensor, after: Look) -> dict[str, Tensor]:
        """Speed along x, and the cost of control."""
        return {
            "forward": self.forward_reward_weight * ((after.q[:, 0] - before.q[:, 0]) / seconds),
            "ctrl": cost(self.ctrl_cost_weight, action),
        }

    def with_health(self, seconds: float) -> Callable[[Look, Tensor, Look], dict[str, Tensor]]:
        def reward(before: Look, action: Tensor, after: Look) -> dict[str, Tensor]:
            survive = self.healthy_reward * self.healthy(after).to(action.dtype)
            return {**self.rewards(seconds, before, action, after), "survive": survive}

        return reward

    def clipped(self, state: Look) -> Tensor:
        """The observation: q without x, and v clipped to ± 10."""
        return torch.cat([state.q[:, self.hidden(1) :], state.v.clamp(-10.0, 10.0)], -1)

    def hidden(self, count: int) -> int:
        """The number of positions that are not observed."""
        return count if self.exclude_current_positions_from_observation else 0


def hopper(**options: Any) -> Task:
    """Hopper-v5. Options: those of `Running`."""
    defaults: dict[str, Any] = {
        "healthy_state_range": (-100.0, 100.0), "healthy_z_range": (0.7, math.inf), "healthy_angle_range": (-0.2, 0.2),
    }  # fmt: skip
    return _upright("Hopper", "hopper.xml", Running(**{**defaults, **options}))


def walker2d(**options: Any) -> Task:
    """Walker2d-v5. Options: those of `Running`."""
    defaults: dict[str, Any] = {"healthy_z_range": (0.8, 2.0), "healthy_angle_range": (-1.0, 1.0)}
    return _upright("Walker2d", "walker2d_v5.xml", Running(**{**defaults, **options}))


def _upright(name: str, file: str, given: Running) -> Task:
    def functions(model: Model) -> Mapping[str, Any]:
        assert model.timestep is not None
        return {
            "start": noisy(model, given.reset_noise_scale), "observe": given.clipped, "ends": given.unhealthy,
            "reward": given.with_health(model.timestep * given.frame_skip), "camera": (0.0, -3.0, 0.5),
        }  # fmt: skip

    return twin(name, file, given.frame_skip, functions)


def half_cheetah(**options: Any) -> Task:
    """HalfCheetah-v5. Options: those of `Running`; it is always healthy."""
    given = Running(**{"ctrl_cost_weight": 0.1, "reset_noise_scale": 0.1, "frame_skip": 5, **options})
    return _lasting("HalfCheetah", "half_cheetah.xml", given, hidden=1, normal=True)


def swimmer(**options: Any) -> Task:
    """Swimmer-v5. Options: those of `Running`; it is always healthy."""
    given = Running(**{"ctrl_cost_weight": 1e-4, "reset_noise_scale": 0.1, **options})
    return _lasting("Swimmer", "swimmer.xml", given, hidden=2, normal=False)


def _lasting(name: str, file: str, given: Running, hidden: int, normal: bool) -> Task:
    """A runner whose episodes never terminate."""

    def functions(model: Model) -> Mapping[str, Any]:
        assert model.timestep is not None
        seconds = model.timestep * given.frame_skip
        return {
            "start": noisy(model, given.reset_noise_scale, normal=normal), "camera": (0.0, -3.5, 0.6),
            "observe": lambda state: torch.cat([state.q[:, given.hidden(hidden) :], state.v], -1),
            "reward": lambda before, action, after: given.rewards(seconds, before, action, after),
        }  # fmt: skip

    return twin(name, file, given.frame_skip, functions)


@dataclass(frozen=True, kw_only=True)
class Ant:
    """Options of Ant-v5, as Gymnasium has them. contact_force_range: N and N m."""

    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: Range = (0.2, 1.0)
    contact_force_range: Range = (-1.0, 1.0)
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True
    include_cfrc_ext_in_observation: bool = True
    frame_skip: int = 5

    def healthy(self, state: Look) -> Tensor:
        z = state.q[:, 2]
        return (z >= self.healthy_z_range[0]) & (z <= self.healthy_z_range[1])

    @property
    def feels(self) -> bool:
        """Whether contact forces are needed."""
        return self.include_cfrc_ext_in_observation or self.contact_cost_weight != 0.0


class AntSensors:
    """Position of the torso along x [1], clipped contact wrenches [6 nbody], of the last evaluation."""

    def __init__(self, simulator: Simulator, given: Ant) -> None:
        self._given, self._at = given, LastEvaluation(simulator)
        self._inertias, self._size = Inertias(simulator.model), 6 * len(simulator.model.bodies)

    def at_start(self, state: State) -> Tensor:
        return torch.nn.functional.pad(state.q[:, :1], (0, self._size))  # Gymnasium's reset computes no contact forces

    def after(self, path: Trajectory) -> Tensor:
        state = self._at.state(path)
        x = state.q[:, :1]
        if not self._given.feels:
            return torch.nn.functional.pad(x, (0, self._size))
        centre = self._inertias.centre(self._at.bodies(state))
        wrenches = self._at.contact_wrenches(state, path.controls[-1], centre)
        return torch.cat([x, wrenches.flatten(1).clamp(*self._given.contact_force_range)], -1)


def ant(**options: Any) -> Task:
    """Ant-v5. Options: those of `Ant`."""
    given = Ant(**options)

    def functions(model: Model) -> Mapping[str, Any]:
        assert model.timestep is not None
        seconds, hidden = model.timestep * given.frame_skip, 2 * given.exclude_current_positions_from_observation

        def observe(now: Snapshot) -> Tensor:
            wrenches = [now.data[:, 1:]] if given.include_cfrc_ext_in_observation else []
            return torch.cat([now.q[:, hidden:], now.v, *wrenches], -1)

        def reward(before: Snapshot, action: Tensor, after: Snapshot) -> dict[str, Tensor]:
            return {
                "forward": given.forward_reward_weight * ((after.data[:, 0] - before.data[:, 0]) / seconds),
                "ctrl": cost(given.ctrl_cost_weight, action),
                "contact": cost(given.contact_cost_weight, after.data[:, 1:]),
                "survive": given.healthy_reward * given.healthy(after).to(action.dtype),
            }

        return {
            "start": noisy(model, given.reset_noise_scale, normal=True), "observe": observe, "reward": reward,
            "ends": lambda now: ~given.healthy(now) & given.terminate_when_unhealthy, "camera": (0.0, -4.0, 2.0),
            "sensors": lambda simulator: AntSensors(simulator, given),
        }  # fmt: skip

    return twin("Ant", "ant.xml", given.frame_skip, functions)
