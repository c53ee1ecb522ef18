"""Twins of Humanoid and HumanoidStandup."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...model import Model, State
from ...simulator import Simulator
from ...trajectory import Trajectory
from ..task import Snapshot, Task
from .common import Range, cost, noisy, twin, within
from .data import Inertias, LastEvaluation, motor_forces, velocities_at


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What is observed besides q and v, as in Gymnasium, and common options. contact_cost_range: of the cost."""

    ctrl_cost_weight: float = 0.1
    contact_cost_weight: float = 5e-7
    contact_cost_range: Range = (-math.inf, 10.0)
    reset_noise_scale: float = 1e-2
    exclude_current_positions_from_observation: bool = True
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True
    include_cfrc_ext_in_observation: bool = True
    frame_skip: int = 5

    @property
    def feels(self) -> bool:
        """Whether contact forces are needed."""
        return self.include_cfrc_ext_in_observation or self.contact_cost_weight != 0.0

    def observe(self, now: Snapshot, sizes: Mapping[str, int]) -> Tensor:
        """q (without x and y), v, and the chosen parts of the data, whose sizes are given in their order."""
        parts = dict(zip(sizes, now.data.split(list(sizes.values()), -1), strict=True))
        hidden = 2 * self.exclude_current_positions_from_observation
        chosen = [
            part for name, part in parts.items() if getattr(self, f"include_{name}_in_observation", False)
        ]  # fmt: skip
        return torch.cat([now.q[:, hidden:], now.v, *chosen], -1)

    def contact_cost(self, now: Snapshot, sizes: Mapping[str, int]) -> Tensor:
        """Of the wrenches on all bodies, clipped; [B]."""
        wrenches = now.data[:, -sizes["cfrc_ext"] :]
        return -(-cost(self.contact_cost_weight, wrenches)).clamp(*self.contact_cost_range)


def data_sizes(model: Model) -> dict[str, int]:
    """The data of `HumanoidSensors`: names and sizes in their order."""
    bodies = len(model.bodies)
    return {
        "centre": 1, "cinert": 10 * bodies, "cvel": 6 * bodies, "qfrc_actuator": model.nv - 6, "cfrc_ext": 6 * bodies,
    }  # fmt: skip


class HumanoidSensors:
    """Of the last evaluation: x of the centre of mass; inertias and velocities of the bodies with respect to it;
    forces of the motors; wrenches of contacts."""

    def __init__(self, simulator: Simulator, given: Observed) -> None:
        self._given, self._at = given, LastEvaluation(simulator)
        self._inertias, self._model = Inertias(simulator.model), simulator.model

    def at_start(self, state: State) -> Tensor:
        return self._seen(state, torch.zeros_like(state.q[:, :1]).expand(-1, self._model.nu), feels=False)

    def after(self, path: Trajectory) -> Tensor:
        return self._seen(self._at.state(path), path.controls[-1], self._given.feels)

    def _seen(self, state: State, control: Tensor, feels: bool) -> Tensor:
        bodies = self._at.bodies(state)
        centre = self._inertias.centre(bodies)
        parts = [
            centre[:, :1],
            self._inertias.about(bodies, centre).flatten(1),
            velocities_at(bodies, centre).flatten(1),
            motor_forces(self._model, control)[:, 6:],
        ]
        if feels:
            parts.append(self._at.contact_wrenches(state, control, centre).flatten(1))
            return torch.cat(parts, -1)
        return torch.nn.functional.pad(torch.cat(parts, -1), (0, 6 * len(self._model.bodies)))


@dataclass(frozen=True, kw_only=True)
class Humanoid(Observed):
    """Options of Humanoid-v5, as Gymnasium has them."""

    forward_reward_weight: float = 1.25
    healthy_reward: float = 5.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: Range = (1.0, 2.0)

    def healthy(self, now: Snapshot) -> Tensor:
        return within(now.q[:, 2], self.healthy_z_range)


def humanoid(**options: Any) -> Task:
    """Humanoid-v5. Options: those of `Humanoid`."""
    given = Humanoid(**options)

    def functions(model: Model) -> Mapping[str, Any]:
        assert model.timestep is not None
        seconds, sizes = model.timestep * given.frame_skip, data_sizes(model)

        def reward(before: Snapshot, action: Tensor, after: Snapshot) -> dict[str, Tensor]:
            return {
                "survive": given.healthy_reward * given.healthy(after).to(action.dtype),
                "forward": given.forward_reward_weight * ((after.data[:, 0] - before.data[:, 0]) / seconds),
                "ctrl": cost(given.ctrl_cost_weight, action),
                "contact": given.contact_cost(after, sizes),
            }

        return {
            "start": noisy(model, given.reset_noise_scale), "reward": reward,
            "observe": lambda now: given.observe(now, sizes), "camera": (0.0, -4.0, 1.0),
            "ends": lambda now: ~given.healthy(now) & given.terminate_when_unhealthy,
            "sensors": lambda simulator: HumanoidSensors(simulator, given),
        }  # fmt: skip

    return twin("Humanoid", "humanoid.xml", given.frame_skip, functions)


def humanoid_standup(
    *, uph_cost_weight: float = 1.0, impact_cost_weight: float = 5e-7, impact_cost_range: Range = (-math.inf, 10.0),
    **options: Any,
) -> Task:  # fmt: skip
    """HumanoidStandup-v5. Other options: those of `Observed`. uph_cost_weight has no effect, as in Gymnasium."""
    given = Observed(contact_cost_weight=impact_cost_weight, contact_cost_range=impact_cost_range, **options)

    def functions(model: Model) -> Mapping[str, Any]:
        sizes, dt = data_sizes(model), model.timestep
        assert dt is not None

        def reward(before: Snapshot, action: Tensor, after: Snapshot) -> dict[str, Tensor]:
            return {
                "linup": after.q[:, 2] / dt,
                "quadctrl": cost(given.ctrl_cost_weight, action),
                "impact": given.contact_cost(after, sizes),
                "survive": torch.ones_like(action[:, 0]),
            }

        return {
            "start": noisy(model, given.reset_noise_scale), "reward": reward, "camera": (0.0, -4.0, 1.0),
            "observe": lambda now: given.observe(now, sizes),
            "sensors": lambda simulator: HumanoidSensors(simulator, given),
        }  # fmt: skip

    return twin("HumanoidStandup", "humanoidstandup.xml", given.frame_skip, functions)
