"""Position servos of a model as servos of speeds.

A servo's force is kp (u - length) - kv velocity, within its limits. If it is told the angle u = length + (kv/kp) w in
every step, the force is kv (w - velocity), so that it keeps the speed w. A stiff servo that is told a distant angle has
its largest force until shortly before it arrives, and the angle has no gradient all that time; a speed soon has one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..schema import layout
from .actuators import DAMPING, STIFFNESS, PositionServo, VelocityServo
from .model import Model


def told_speeds(model: Model, speeds: np.ndarray) -> Model:
    """The model whose damped position servos are told speeds in place of angles, with the same forces.

    speeds: the largest ones of all coordinates [nq], rad/s or m/s.
    """
    constants, kinds = model.constants.copy(), list(model.motor_kinds)
    records = _records(model, constants)
    for i in np.flatnonzero(leads(model)):
        kv, most = -records[i, DAMPING], abs(records[i, layout.GEAR]) * speeds[model.motor_q[i]]
        records[i, layout.GAIN], records[i, STIFFNESS] = kv, 0.0
        records[i, [layout.CTRL_LOW, layout.CTRL_HIGH]] = -most, most
        kinds[i] = VelocityServo.kind
    return replace(model, constants=constants, motor_kinds=tuple(kinds))


def leads(model: Model) -> np.ndarray:
    """kv/kp of the damped position servos, s, and 0 for other actuators, [nu]."""
    records = _records(model, model.constants)
    damped = (np.array(model.motor_kinds) == PositionServo.kind) & (records[:, DAMPING] < 0.0)
    return np.where(damped, -records[:, DAMPING] / np.where(damped, records[:, layout.GAIN], 1.0), 0.0)


def gears(model: Model) -> np.ndarray:
    """The gears of all actuators, [nu]."""
    return _records(model, model.constants)[:, layout.GEAR]


def _records(model: Model, constants: np.ndarray) -> np.ndarray:
    """A view of the actuators' records, [nu, MOTOR]."""
    start, end = layout.motor_start(model.nlink, model.nq), layout.gravity_start(model.nlink, model.nq, model.nu)
    return constants[start:end].reshape(model.nu, layout.MOTOR)
