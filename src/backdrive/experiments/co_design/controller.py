"""The periodic network of the experiment `gait`, made symmetric."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..gait.controller import PeriodicNetwork
from ..gait.world import JOINTS, LEGS

FIRST_FREQUENCY = 4.0  # Before learning, Hz.


class SymmetricNetwork(PeriodicNetwork):
    """The right legs do what the left ones do, half a period later, so that the robot has no preferred side."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__(generator)
        nn.init.constant_(self.log_frequency, math.log(FIRST_FREQUENCY))

    def targets(self, times: Tensor) -> Tensor:
        """Target angles of the joints, [T, nu], at times [T], rad."""
        now, later = super().targets(times), super().targets(times + 0.5 / self.frequency)
        now, later = (x.unflatten(-1, (len(LEGS), len(JOINTS))) for x in (now, later))
        mirror = torch.tensor([-1.0, 1.0, 1.0], dtype=times.dtype)  # Abduction is about x.
        left = {leg: k for k, leg in enumerate(LEGS) if leg.endswith("L")}
        legs = [now[:, left[leg]] if leg in left else mirror * later[:, left[f"{leg[0]}L"]] for leg in LEGS]
        return torch.cat(legs, -1)
