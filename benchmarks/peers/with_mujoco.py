"""MuJoCo, with its own soft contact: rollouts in C, gradients by finite differences of every step, chained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mujoco
import mujoco.rollout
import numpy as np

Array = np.ndarray


def chain(
    model: mujoco.MjModel, data: mujoco.MjData, q: Array, v: Array, controls: Array, end: Array, centered: bool
) -> tuple[Array, Array]:
    """For the start [2 nv] (tangent) and controls [T, nu], from end [2 nv], the gradient at the end (tangent).

    A sweep backwards that multiplies the Jacobians of every step by ``mjd_transitionFD``. q, v: before each step.
    """
    a, b = np.zeros((2 * model.nv, 2 * model.nv)), np.zeros((2 * model.nv, model.nu))
    controls_bar = np.zeros_like(controls)
    for t in reversed(range(len(controls))):
        data.qpos, data.qvel, data.ctrl = q[t], v[t], controls[t]
        mujoco.mjd_transitionFD(model, data, 1e-6, centered, a, b, None, None)
        controls_bar[t] = end @ b
        end = end @ a
    return end, controls_bar


def to_tangent(q: Array, q_bar: Array, nv: int) -> Array:
    """A gradient with respect to q as one for displacements along v (floating base, or hinges)."""
    if len(q) == nv:
        return q_bar
    w, xyz = q[3], q[4:7]
    turn = (w * q_bar[4:7] - q_bar[3] * xyz - np.cross(xyz, q_bar[4:7])) / 2
    return np.concatenate([q_bar[:3], turn, q_bar[7:]])


SETTINGS = "Newton, pyramidal cone, without islands; mjd_transitionFD of every step (not centred), called from Python"


def version() -> str:
    return f"mujoco {mujoco.__version__}"


def prepare(request: dict[str, Any], steps: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """As `with_torch.prepare`; the gradient for the start is along v."""
    model = mujoco.MjModel.from_xml_string(request["mjcf"])
    off = mujoco.mjtDisableBit  # islands cost more than they bring if all feet stand on one floor
    model.opt.disableflags |= off.mjDSBL_ISLAND | off.mjDSBL_MIDPHASE | off.mjDSBL_SENSOR
    model.opt.timestep = request["dt"]
    data = mujoco.MjData(model)
    q0, v0, controls = (np.array(request[name]) for name in ("q", "v", "controls"))
    controls = controls[:steps]
    start, nq = np.concatenate([[0.0], q0, v0])[None], model.nq
    states = np.zeros((1, steps, start.shape[1]))

    def forward() -> tuple[Array, Array]:
        mujoco.rollout.rollout([model], [data], start, controls[None], nstep=steps, state=states, skip_checks=True)
        return states[0, -1, 1 : 1 + nq], states[0, -1, 1 + nq :]

    def gradient() -> tuple[Any, ...]:
        q, v = forward()
        before = np.concatenate([start, states[0, :-1]])
        end = np.concatenate([to_tangent(q, 2 * q, model.nv), 2 * v])
        bar, controls_bar = chain(model, data, before[:, 1 : 1 + nq], before[:, 1 + nq :], controls, end, False)
        return bar[: model.nv], bar[model.nv :], controls_bar

    return forward, gradient
