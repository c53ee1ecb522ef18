"""A robot's own position servos, to which a network tells speeds (`model.speed_servos`)."""

from __future__ import annotations

import torch
from torch import Tensor

from ...model.speed_servos import gears, leads
from ...simulator import Simulator


class OwnServos:
    """A robot of a file with its actuators as they are: its position servos are told angles, within their limits."""

    def __init__(self, simulator: Simulator) -> None:
        model, dtype = simulator.model, simulator.dtype
        self.simulator, self.at = simulator, torch.tensor(model.motor_q)
        self.lead, self.gear = (torch.tensor(x, dtype=dtype) for x in (leads(model), gears(model)))

    def controls(self, told: Tensor, q: Tensor) -> Tensor:
        """The controls [B, nu] for what a network tells [B, nu], speeds or other controls, at coordinates q [B, nq].

        The actuators clip them to their own limits."""
        return torch.where(self.lead > 0.0, self.gear * q[:, self.at] + self.lead * told, told)
