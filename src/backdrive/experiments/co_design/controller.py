"""The periodic network of the experiment `gait`, made symmetric."""

from __future__ import annotations

import torch
from torch import Tensor

from ..gait.controller import PeriodicNetwork
from ..gait.world import JOINTS, LEGS


class SymmetricNetwork(PeriodicNetwork):
    """The right legs do what the left ones do, half a period later, so that the robot has no preferred side."""

    def targets(self, times: Tensor) -> Tensor:
        """Target angles of the joints, [T, nu], at times [T], rad."""
        both = super().targets(times), super().targets(times + 0.5 / self.frequency)
        now, later = (x.unflatten(-1, (len(LEGS), len(JOINTS))) for x in both)
        mirror = torch.tensor([-1.0, 1.0, 1.0], dtype=times.dtype)  # Abduction is about x.
        left = {leg: k for k, leg in enumerate(LEGS) if leg.endswith("L")}
        legs = [now[:, left[leg]] if leg in left else mirror * later[:, left[f"{leg[0]}L"]] for leg in LEGS]
        return torch.cat(legs, -1)
