"""The same trials in MuJoCo itself."""

from __future__ import annotations

import mujoco
import numpy as np
import torch

from ...model import State
from ...policy import MLP
from ..gait.world import mjcf
from .disturbances import Disturbance
from .world import HOLD, DisturbedWorld


@torch.no_grad()
def outcomes(world: DisturbedWorld, policy: MLP, disturbance: Disturbance) -> tuple[torch.Tensor, torch.Tensor]:
    """As `trials.outcomes`: whether each gait falls, and its mean speed, m/s.

    The softness of MuJoCo's contacts depends on the masses with which a model is compiled. Here these are the disturbed
    ones; rollouts of backdrive keep the softness of the robot as it is.
    """
    falls, speeds = [], []
    for k in range(len(disturbance.friction)):
        model = mujoco.MjModel.from_xml_string(mjcf(world.design))
        model.body_mass[1:] *= disturbance.masses[k].double().numpy()
        model.body_inertia[1:] *= disturbance.masses[k].double().numpy()[:, None]
        model.geom_friction[:, 0] = 0.0
        model.geom_friction[model.geom("floor").id, 0] = float(disturbance.friction[k])
        data = mujoco.MjData(model)
        mujoco.mj_setConst(model, data)
        data.qpos[:] = world.start().q.double().numpy()
        fell = _go(world, policy, model, data, disturbance.forces[:, k].double().numpy())
        falls.append(fell)
        speeds.append(data.qpos[0] / world.seconds)
    return torch.tensor(falls), torch.tensor(speeds)


def _go(
    world: DisturbedWorld, policy: MLP, model: mujoco.MjModel, data: mujoco.MjData, forces: np.ndarray
) -> bool:  # fmt: skip
    """Move for 8 s; whether the robot falls on the way."""
    phases = world.phases(torch.zeros(1), len(forces))[:, 0]
    trunk = model.body("trunk").id
    for force, phase in zip(forces, phases, strict=True):
        q, v = (torch.from_numpy(x).to(world.simulator.dtype)[None] for x in (data.qpos, data.qvel))
        data.ctrl[:] = policy(world.observe(q, v, phase[None].to(q)))[0].double().numpy()
        data.xfrc_applied[trunk, :2] = force
        for _ in range(HOLD):
            mujoco.mj_step(model, data)
        q, v = (torch.from_numpy(x).to(world.simulator.dtype)[None] for x in (data.qpos, data.qvel))
        if bool(world.fallen(State(q, v))):
            return True
    return False
