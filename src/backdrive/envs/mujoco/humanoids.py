"""Twins of Humanoid and HumanoidStandup."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from xml.etree import ElementTree

import torch
from torch import Tensor

from ...model import Model, State
from ...simulator import Simulator
from ...trajectory import Trajectory
from ..locomotion import model_path
from ..task import Snapshot, Task
from .common import Range, accepts, cost, noisy, places, twin, velocities, within
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
    xml_file: str = "humanoid.xml"

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


class JointTendon(NamedTuple):
    """A fixed tendon: where its joints are in q and in v, and their coefficients."""

    q: list[int]
    v: list[int]
    coefficients: list[float]


def fixed_tendons(model: Model, file: str) -> list[JointTendon]:
    """Those of a MJCF file, also if they exert no force."""
    links = {name: int(model.joint_link[i]) for i, name in enumerate(model.joints)}
    tendons = []
    for fixed in ElementTree.parse(model_path(file)).iterfind("./tendon/fixed"):
        joints = [(links[x.get("joint", "")], float(x.get("coef", "1"))) for x in fixed.iterfind("joint")]
        q, v = ([int(at[link]) for link, _ in joints] for at in (model.qadr, model.vadr))
        tendons.append(JointTendon(q, v, [c for _, c in joints]))
    return tendons


def tendon_info(now: Snapshot, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """For info: lengths and velocities of the tendons, [B, n] each."""
    length, velocity = now.data[:, sizes["centre"] :][:, : sizes["tendons"]].chunk(2, -1)
    return {"tendon_length": length, "tendon_velocity": velocity}


def data_sizes(model: Model, file: str) -> dict[str, int]:
    """The data of `HumanoidSensors`: names and sizes in their order."""
    bodies = len(model.bodies)
    return {
        "centre": 2, "tendons": 2 * len(fixed_tendons(model, file)), "cinert": 10 * bodies, "cvel": 6 * bodies,
        "qfrc_actuator": model.nv - 6, "cfrc_ext": 6 * bodies,
    }  # fmt: skip


class HumanoidSensors:
    """Of the last evaluation: x and y of the centre of mass; lengths and velocities of the tendons; inertias and
    velocities of the bodies with respect to that centre; forces of the motors; wrenches of contacts."""

    def __init__(self, simulator: Simulator, given: Observed) -> None:
        self._given, self._at = given, LastEvaluation(simulator)
        self.of_state = not (given.feels or given.include_qfrc_actuator_in_observation)
        self._inertias, self._model = Inertias(simulator.model), simulator.model
        self._tendons = fixed_tendons(simulator.model, given.xml_file)

    def at_start(self, state: State) -> Tensor:
        return self._seen(state, torch.zeros_like(state.q[:, :1]).expand(-1, self._model.nu), feels=False)

    def after(self, path: Trajectory) -> Tensor:
        return self._seen(self._at.state(path), path.controls[-1], self._given.feels)

    def _seen(self, state: State, control: Tensor, feels: bool) -> Tensor:
        bodies = self._at.bodies(state)
        centre = self._inertias.centre(bodies)
        parts = [
            centre[:, :2],
            *(along(state.q, tendon.q, tendon.coefficients) for tendon in self._tendons),
            *(along(state.v, tendon.v, tendon.coefficients) for tendon in self._tendons),
            self._inertias.about(bodies, centre).flatten(1),
            velocities_at(bodies, centre).flatten(1),
            motor_forces(self._model, control)[:, 6:],
        ]
        if feels:
            parts.append(self._at.contact_wrenches(state, control, centre).flatten(1))
            return torch.cat(parts, -1)
        return torch.nn.functional.pad(torch.cat(parts, -1), (0, 6 * len(self._model.bodies)))


def along(x: Tensor, places: Sequence[int], coefficients: Sequence[float]) -> Tensor:
    """A linear combination of coordinates, [B, 1]."""
    return sum((c * x[:, k : k + 1] for k, c in zip(places, coefficients, strict=True)), torch.zeros_like(x[:, :1]))


@dataclass(frozen=True, kw_only=True)
class Humanoid(Observed):
    """Options of Humanoid-v5, as Gymnasium has them."""

    forward_reward_weight: float = 1.25
    healthy_reward: float = 5.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: Range = (1.0, 2.0)

    def healthy(self, now: Snapshot) -> Tensor:
        return within(now.q[:, 2], self.healthy_z_range)


@accepts(Humanoid)
def humanoid(**options: Any) -> Task:
    """Humanoid-v5. Options: those of `Humanoid`."""
    given = Humanoid(**options)

    def functions(model: Model) -> Mapping[str, Any]:
        assert model.timestep is not None
        seconds, sizes = model.timestep * given.frame_skip, data_sizes(model, given.xml_file)

        def reward(before: Snapshot, action: Tensor, after: Snapshot) -> dict[str, Tensor]:
            return {
                "survive": given.healthy_reward * given.healthy(after).to(action.dtype),
                "forward": given.forward_reward_weight * ((after.data[:, 0] - before.data[:, 0]) / seconds),
                "ctrl": cost(given.ctrl_cost_weight, action),
                "contact": given.contact_cost(after, sizes),
            }

        def start_info(now: Snapshot) -> dict[str, Tensor]:
            return {**places(now), **tendon_info(now, sizes)}

        def info(before: Snapshot, action: Tensor, after: Snapshot) -> dict[str, Tensor]:
            return {**start_info(after), **velocities(before.data[:, :2], after.data[:, :2], seconds)}

        return {
            "start": noisy(model, given.reset_noise_scale), "reward": reward, "info": info, "start_info": start_info,
            "observe": lambda now: given.observe(now, sizes), "camera": (0.0, -4.0, 1.0),
            "ends": lambda now: ~given.healthy(now) & given.terminate_when_unhealthy,
            "sensors": lambda simulator: HumanoidSensors(simulator, given),
        }  # fmt: skip

    return twin("Humanoid", given.xml_file, given.frame_skip, functions)


@accepts(
    Observed,
    without=["contact_cost_weight", "contact_cost_range"],
    more=["uph_cost_weight", "impact_cost_weight", "impact_cost_range"],
)
def humanoid_standup(
    *, uph_cost_weight: float = 1.0, impact_cost_weight: float = 5e-7, impact_cost_range: Range = (-math.inf, 10.0),
    **options: Any,
) -> Task:  # fmt: skip
    """HumanoidStandup-v5. Other options: those of `Observed`. uph_cost_weight has no effect, as in Gymnasium."""
    given = Observed(
        contact_cost_weight=impact_cost_weight, contact_cost_range=impact_cost_range,
        **{"xml_file": "humanoidstandup.xml", **options},
    )  # fmt: skip

    def functions(model: Model) -> Mapping[str, Any]:
        sizes, dt, height = data_sizes(model, given.xml_file), model.timestep, float(model.q0[2])
        assert dt is not None

        def reward(before: Snapshot, action: Tensor, after: Snapshot) -> dict[str, Tensor]:
            return {
                "linup": after.q[:, 2] / dt,
                "quadctrl": cost(given.ctrl_cost_weight, action),
                "impact": given.contact_cost(after, sizes),
                "survive": torch.ones_like(action[:, 0]),
            }

        def start_info(now: Snapshot) -> dict[str, Tensor]:
            place = {"x_position": now.q[:, 0], "y_position": now.q[:, 1]}
            return {**place, "z_distance_from_origin": now.q[:, 2] - height, **tendon_info(now, sizes)}

        return {
            "start": noisy(model, given.reset_noise_scale), "reward": reward, "camera": (0.0, -4.0, 1.0),
            "info": lambda before, action, after: start_info(after), "start_info": start_info,
            "info_names": {"survive": None},
            "observe": lambda now: given.observe(now, sizes),
            "sensors": lambda simulator: HumanoidSensors(simulator, given),
        }  # fmt: skip

    return twin("HumanoidStandup", given.xml_file, given.frame_skip, functions)
