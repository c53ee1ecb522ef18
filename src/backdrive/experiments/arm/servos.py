"""Servos of joint angles, to which a network tells speeds.

A servo's force is kp (u - length) - kv velocity, within its limits. If it is told the angle u = length + (kv/kp) w in
every step, the force is kv (w - velocity), so that it keeps the speed w. A stiff servo that is told a distant angle has
its largest force until shortly before it arrives, and the angle has no gradient all that time; a speed soon has one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...model import Model
from ...model.actuators import STIFFNESS, PositionServo, VelocityServo
from ...schema import layout
from ...simulator import Simulator

KV = layout.BIAS + 2  # Place of -kv in the record of an actuator.


def told_speeds(model: Model, speeds: np.ndarray) -> Model:
    """The model whose damped position servos are told speeds in place of angles, with the same forces.

    speeds: the largest ones of all coordinates [nq], rad/s or m/s.
    """
    constants, kinds = model.constants.copy(), list(model.motor_kinds)
    records = _records(model, constants)
    for i in np.flatnonzero(leads(model)):
        kv, most = -records[i, KV], abs(records[i, layout.GEAR]) * speeds[model.motor_q[i]]
        records[i, layout.GAIN], records[i, STIFFNESS] = kv, 0.0
        records[i, [layout.CTRL_LOW, layout.CTRL_HIGH]] = -most, most
        kinds[i] = VelocityServo.kind
    return replace(model, constants=constants, motor_kinds=tuple(kinds))


def leads(model: Model) -> np.ndarray:
    """kv/kp of the damped position servos, s, and 0 for other actuators, [nu]."""
    records = _records(model, model.constants)
    damped = (np.array(model.motor_kinds) == PositionServo.kind) & (records[:, KV] < 0.0)
    return np.where(damped, -records[:, KV] / np.where(damped, records[:, layout.GAIN], 1.0), 0.0)


def _records(model: Model, constants: np.ndarray) -> np.ndarray:
    """A view of the actuators' records, [nu, MOTOR]."""
    start, end = layout.motor_start(model.nlink, model.nq), layout.gravity_start(model.nlink, model.nq, model.nu)
    return constants[start:end].reshape(model.nu, layout.MOTOR)


class OwnServos:
    """A robot of a file with its actuators as they are: its position servos are told angles, within their limits."""

    def __init__(self, simulator: Simulator) -> None:
        model, dtype = simulator.model, simulator.dtype
        self.simulator, self.at = simulator, torch.tensor(model.motor_q)
        self.lead = torch.tensor(leads(model), dtype=dtype)
        self.gear = torch.tensor(_records(model, model.constants)[:, layout.GEAR], dtype=dtype)

    def controls(self, told: Tensor, q: Tensor) -> Tensor:
        """The controls [B, nu] for what a network tells [B, nu], speeds or other controls, at coordinates q [B, nq].

        The actuators clip them to their own limits."""
        return torch.where(self.lead > 0.0, self.gear * q[:, self.at] + self.lead * told, told)
