"""A learned robot and its controller in MuJoCo itself, and with one measure at a time set back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..gait.world import SECONDS, GaitWorld, fallen, mjcf
from .hardware import MEASURES, measures
from .learning import Robot
from .motion import move, own_world, results


@torch.no_grad()
def in_mujoco(robot: Robot, seconds: float = SECONDS) -> dict[str, Any]:
    """The motion of the robot's MJCF file by ``mj_step``: its speed (m/s), whether it falls, and for how long the trunk
    stays within 1 mm of the motion here (s)."""
    import mujoco

    values = measures(robot.hardware)
    world = own_world(values, seconds)
    targets = robot.network.targets(world.times())
    here = move(world, targets[:, None], values[None])
    model = mujoco.MjModel.from_xml_string(mjcf(world.design))
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = (x[0, 0].numpy() for x in (here.q, here.v))
    states = [data.qpos.copy()]
    for control in (float(world.design.gear) * targets).numpy():
        data.ctrl[:] = control
        mujoco.mj_step(model, data)
        states.append(data.qpos.copy())
    there = torch.as_tensor(np.array(states))
    apart = (there - here.q[:, 0])[:, :3].norm(dim=-1) > 1e-3
    same = int(apart.nonzero()[0]) - 1 if bool(apart.any()) else len(apart) - 1
    mine = results(world, here, values[None])[0]
    return {
        "speed_m_s": float(there[-1, 0] - there[0, 0]) / seconds,
        "falls": bool(fallen(world, there)[-1]),
        "speed_here_m_s": mine.speed, "falls_here": mine.fell, "seconds_within_1_mm": same * world.simulator.dt,
    }  # fmt: skip


@torch.no_grad()
def set_back(world: GaitWorld, robot: Robot) -> dict[str, dict[str, Any]]:
    """The same controller with the nominal measure in place of the learned one, for each measure, and for all.

    world: of the nominal robot.
    """
    learned, targets = measures(robot.hardware), robot.network.targets(world.times())
    first = measures(torch.zeros_like(robot.hardware))
    rows = [torch.where(torch.arange(len(first)) == k, first, learned) for k in range(len(first))]
    values = torch.stack([*rows, first])
    path = move(world, targets[:, None].expand(-1, len(values), -1), values)
    found = results(world, path, values)
    names = [*MEASURES, "all"]
    return {n: {"speed_m_s": x.speed, "falls": x.fell} for n, x in zip(names, found, strict=True)}
