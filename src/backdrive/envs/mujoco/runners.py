"""Twins of Hopper, Walker2d, HalfCheetah, Swimmer and Ant: rewards for speed along x."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from ...model import Model, State, checks
from ...simulator import Simulator
from ...trajectory import Trajectory
from ..task import Snapshot, Task
from .common import Look, Range, accepts, cost, noisy, places, twin, velocities, within
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
    xml_file: str = ""

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


@accepts(Running)
def hopper(**options: Any) -> Task:
    """Hopper-v5. Options: those of `Running`."""
    defaults: dict[str, Any] = {
        "xml_file": "hopper.xml", "healthy_state_range": (-100.0, 100.0),
        "healthy_z_range": (0.7, math.inf), "healthy_angle_range": (-0.2, 0.2),
    }  # fmt: skip
    return _upright("Hopper", Running(**{**defaults, **options}))


@accepts(Running, without=["healthy_state_range"])
def walker2d(**options: Any) -> Task:
    """Walker2d-v5. Options: those of `Running`, without the range of all of the state."""
    defaults: dict[str, Any] = {
        "xml_file": "walker2d_v5.xml",
        "healthy_z_range": (0.8, 2.0),
        "healthy_angle_range": (-1.0, 1.0),
    }
    return _upright("Walker2d", Running(**{**defaults, **options}))


def _upright(name: str, given: Running) -> Task:
    def functions(model: Model) -> Mapping[str, Any]:
        assert model.timestep is not None
        seconds, height = model.timestep * given.frame_skip, float(model.q0[1])

        def places(now: Look) -> dict[str, Tensor]:
            return {"x_position": now.q[:, 0], "z_distance_from_origin": now.q[:, 1] - height}

        def info(before: Look, action: Tensor, after: Look) -> dict[str, Tensor]:
            return {**places(after), "x_velocity": (after.q[:, 0] - before.q[:, 0]) / seconds}

        return {
            "start": noisy(model, given.reset_noise_scale), "observe": given.clipped, "ends": given.unhealthy,
            "reward": given.with_health(seconds), "info": info, "start_info": places, "camera": (0.0, -3.0, 0.5),
        }  # fmt: skip

    return twin(name, given.xml_file, given.frame_skip, functions)


HEALTH = [x.name for x in fields(Running) if "health" in x.name]


@accepts(Running, without=HEALTH)
def half_cheetah(**options: Any) -> Task:
    """HalfCheetah-v5. Options: those of `Running`, without those of health: it is always healthy."""
    given = Running(
        **{
            "xml_file": "half_cheetah.xml",
            "ctrl_cost_weight": 0.1,
            "reset_noise_scale": 0.1,
            "frame_skip": 5,
            **options,
        }
    )
    return _lasting("HalfCheetah", given, hidden=1, normal=True)


@accepts(Running, without=HEALTH)
def swimmer(**options: Any) -> Task:
    """Swimmer-v5. Options: those of `Running`, without those of health: it is always healthy."""
    given = Running(**{"xml_file": "swimmer.xml", "ctrl_cost_weight": 1e-4, "reset_noise_scale": 0.1, **options})
    return _lasting("Swimmer", given, hidden=2, normal=False)


def _lasting(name: str, given: Running, hidden: int, normal: bool) -> Task:
    """A runner whose episodes never terminate; hidden: its coordinates of place, 1 or 2, which are not observed."""

    def functions(model: Model) -> Mapping[str, Any]:
        assert model.timestep is not None
        seconds = model.timestep * given.frame_skip

        def start_info(now: Look) -> dict[str, Tensor]:
            return places(now) if hidden == 2 else {"x_position": now.q[:, 0]}

        def info(before: Look, action: Tensor, after: Look) -> dict[str, Tensor]:
            rates = velocities(before.q[:, :2], after.q[:, :2], seconds)
            return {**start_info(after), **dict(list(rates.items())[:hidden])}

        return {
            "start": noisy(model, given.reset_noise_scale, normal=normal), "camera": (0.0, -3.5, 0.6),
            "info": info, "start_info": start_info,
            "observe": lambda state: torch.cat([state.q[:, given.hidden(hidden) :], state.v], -1),
            "reward": lambda before, action, after: given.rewards(seconds, before, action, after),
        }  # fmt: skip

    return twin(name, given.xml_file, given.frame_skip, functions)


@dataclass(frozen=True, kw_only=True)
class Ant:
    """Options of Ant-v5, as Gymnasium has them. contact_force_range: N and N m. main_body: whose speed is rewarded, its
    name or number in the file (the world is 0)."""

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
    main_body: int | str = 1
    frame_skip: int = 5
    xml_file: str = "ant.xml"

    def healthy(self, state: Look) -> Tensor:
        z = state.q[:, 2]
        return (z >= self.healthy_z_range[0]) & (z <= self.healthy_z_range[1])

    @property
    def feels(self) -> bool:
        """Whether contact forces are needed."""
        return self.include_cfrc_ext_in_observation or self.contact_cost_weight != 0.0


class AntSensors:
    """Position of the main body along x and y [2], clipped contact wrenches [6 nbody], of the last evaluation."""

    def __init__(self, simulator: Simulator, given: Ant) -> None:
        self._given, self._at, self.of_state = given, LastEvaluation(simulator), not given.feels
        self._inertias, self._size = Inertias(simulator.model), 6 * len(simulator.model.bodies)
        bodies, main = simulator.model.bodies, given.main_body
        if isinstance(main, str) and main not in bodies:
            raise ValueError(checks.unknown("main_body", main, bodies))
        self._main = main if isinstance(main, str) else bodies[checks.integer(main, "main_body") - 1]
        self._is_root = self._main == bodies[0]

    def _place(self, state: State) -> Tensor:
        """x and y of the main body, [B, 2]."""
        return state.q[:, :2] if self._is_root else self._at.positions(state, self._main)[0][:, :2]

    def at_start(self, state: State) -> Tensor:
        place = self._place(state)
        return torch.nn.functional.pad(place, (0, self._size))  # Gymnasium's reset computes no contact forces

    def after(self, path: Trajectory) -> Tensor:
        state = self._at.state(path)
        place = self._place(state)
        if not self._given.feels:
            return torch.nn.functional.pad(place, (0, self._size))
        centre = self._inertias.centre(self._at.bodies(state))
        wrenches = self._at.contact_wrenches(state, path.controls[-1], centre)
        return torch.cat([place, wrenches.flatten(1).clamp(*self._given.contact_force_range)], -1)


@accepts(Ant)
def ant(**options: Any) -> Task:
    """Ant-v5. Options: those of `Ant`."""
    given = Ant(**options)

    def functions(model: Model) -> Mapping[str, Any]:
        assert model.timestep is not None
        seconds, hidden = model.timestep * given.frame_skip, 2 * given.exclude_current_positions_from_observation

        def observe(now: Snapshot) -> Tensor:
            wrenches = [now.data[:, 2:]] if given.include_cfrc_ext_in_observation else []
            return torch.cat([now.q[:, hidden:], now.v, *wrenches], -1)

        def reward(before: Snapshot, action: Tensor, after: Snapshot) -> dict[str, Tensor]:
            return {
                "forward": given.forward_reward_weight * ((after.data[:, 0] - before.data[:, 0]) / seconds),
                "ctrl": cost(given.ctrl_cost_weight, action),
                "contact": cost(given.contact_cost_weight, after.data[:, 2:]),
                "survive": given.healthy_reward * given.healthy(after).to(action.dtype),
            }

        def info(before: Snapshot, action: Tensor, after: Snapshot) -> dict[str, Tensor]:
            return {**places(after), **velocities(before.data[:, :2], after.data[:, :2], seconds)}

        return {
            "start": noisy(model, given.reset_noise_scale, normal=True), "observe": observe, "reward": reward,
            "ends": lambda now: ~given.healthy(now) & given.terminate_when_unhealthy, "camera": (0.0, -4.0, 2.0),
            "sensors": lambda simulator: AntSensors(simulator, given), "start_info": places, "info": info,
        }  # fmt: skip

    return twin("Ant", given.xml_file, given.frame_skip, functions)
