"""The implicit gyroscopic torques of links on free and ball joints, for MuJoCo, whose own are explicit.

Written from the rule I (ω⁺ - ω) + h x × I x = 0, x = (ω + ω⁺)/2, with MuJoCo's numbers and a general root finder:
MuJoCo with these torques is the reference for steps that have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import mujoco
import numpy as np
from scipy.optimize import root

FREE, BALL = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_BALL)


@contextmanager
def implicit_spin() -> Iterator[None]:
    """MuJoCo's steps have implicit gyroscopic torques as long as this lasts."""
    mujoco.set_mjcb_passive(add_torques)
    try:
        yield
    finally:
        mujoco.set_mjcb_passive(None)


def add_torques(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Add what the torques differ from explicit ones to the passive forces."""
    for b in range(1, model.nbody):
        joint = model.body_jntadr[b] + model.body_jntnum[b] - 1
        if model.body_jntnum[b] == 0 or model.jnt_type[joint] not in (FREE, BALL):
            continue
        R, turning = data.xmat[b].reshape(3, 3), np.zeros((3, model.nv))
        mujoco.mj_jacBody(model, data, None, turning, b)
        w, I, h = R.T @ turning @ data.qvel, inertia(model, data, b, joint), model.opt.timestep

        def equation(x: np.ndarray, I: np.ndarray = I, w: np.ndarray = w, h: float = h) -> np.ndarray:
            return I @ (x - w) + 0.5 * h * np.cross(x, I @ x)

        x = root(equation, w, tol=1e-15).x
        x -= np.linalg.solve(I, equation(x))  # to the last digit
        torque = R @ (np.cross(w, I @ w) - np.cross(x, I @ x))
        mujoco.mj_applyFT(model, data, np.zeros(3), torque, data.xipos[b], b, data.qfrc_passive)


def inertia(model: mujoco.MjModel, data: mujoco.MjData, b: int, joint: int) -> np.ndarray:
    """[3, 3]: of body b and what is fixed to it, in its axes; about the joint, or about the center of mass."""
    parts = [k for k in range(model.nbody) if model.body_weldid[k] == b]
    mass = model.body_mass[parts]
    center = data.xanchor[joint]
    if model.jnt_type[joint] == FREE:
        center = mass @ data.xipos[parts] / mass.sum()
    total = np.zeros((3, 3))
    for k in parts:
        turn, arm = data.ximat[k].reshape(3, 3), data.xipos[k] - center
        total += turn @ np.diag(model.body_inertia[k]) @ turn.T
        total += model.body_mass[k] * (arm @ arm * np.eye(3) - np.outer(arm, arm))
    R = data.xmat[b].reshape(3, 3)
    return R.T @ total @ R + model.dof_armature[model.jnt_dofadr[joint]] * np.eye(3)
