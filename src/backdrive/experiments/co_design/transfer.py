"""A learned robot and its controller in MuJoCo itself, and with one measure at a time set back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..gait.world import DT, GaitWorld, mjcf
from .hardware import MEASURES, design, measures
from .learning import Robot
from .motion import GROUND, HEADROOM, move, standing


@torch.no_grad()
def in_mujoco(world: GaitWorld, robot: Robot) -> dict[str, Any]:
    """The motion of the robot's MJCF file by ``mj_step``: its speed (m/s), whether it falls, and for how long it stays
    within 1 mm of the motion here (s)."""
    import mujoco

    values = measures(robot.hardware)
    d, targets = design(values), robot.network.targets(world.times())
    here = move(world, targets[:, None], values[None])
    model = mujoco.MjModel.from_xml_string(mjcf(d))
    data = mujoco.MjData(model)
    start = standing(world, d)
    data.qpos[:], data.qvel[:] = start.q.numpy(), start.v.numpy()
    states, fallen = [data.qpos.copy()], False
    trunk = model.geom("trunk").id
    for control in (float(d.gear) * targets).numpy():
        data.ctrl[:] = control
        mujoco.mj_step(model, data)
        states.append(data.qpos.copy())
        w, x, y, z = data.qpos[3:7]
        axes = np.array([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)])
        lowest = data.qpos[2] - np.abs(axes) @ model.geom_size[trunk]
        fallen = fallen or bool(lowest < GROUND or axes[2] < HEADROOM)
    there = torch.as_tensor(np.array(states))
    apart = (there - here.path.q[:, 0])[:, :3].norm(dim=-1)
    same = int((apart > 1e-3).nonzero()[0]) if bool((apart > 1e-3).any()) else len(apart) - 1
    return {
        "speed_m_s": float(there[-1, 0] - there[0, 0]) / world.seconds, "falls": fallen,
        "speed_here_m_s": float(here.speeds(world.seconds)), "falls_here": bool(here.fallen()[-1]),
        "seconds_within_1_mm": same * DT,
    }  # fmt: skip


@torch.no_grad()
def set_back(world: GaitWorld, robot: Robot) -> dict[str, dict[str, Any]]:
    """The same controller with the nominal measure in place of the learned one, for each measure, and for all."""
    learned, targets = measures(robot.hardware), robot.network.targets(world.times())
    first = torch.stack([learned.new_tensor(m.nominal) for m in MEASURES.values()])
    rows = [torch.where(torch.arange(len(first)) == k, first, learned) for k in range(len(first))]
    return _compared(world, targets, [*MEASURES, "all"], [*rows, first])


def _compared(world: GaitWorld, targets: Tensor, names: list[str], rows: list[Tensor]) -> dict[str, dict[str, Any]]:
    motions = move(world, targets[:, None].expand(-1, len(rows), -1), torch.stack(rows))
    results = zip(names, motions.speeds(world.seconds).tolist(), motions.fallen()[-1].tolist(), strict=True)
    return {name: {"speed_m_s": speed, "falls": fell} for name, speed, fell in results}
