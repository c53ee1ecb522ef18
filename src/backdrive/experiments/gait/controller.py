"""What turns a periodic sine signal into target angles of the joints: a trot of six numbers, and networks."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .world import LEGS, STANCE

HIDDEN = 32
REACH = (0.3, 0.8, 0.9)  # Largest deviation of a network's targets from the stance, for abduction, hip and knee, rad.
CALM = 0.5  # Scale of the last layer's first weights.
FREQUENCY = 8.0  # Of a network's sine, Hz.


class Trot(NamedTuple):
    """Diagonal legs move together, the two pairs in turn. Every number is a tensor [...], or a float.

    Hips swing as -sine, knees as a sine that leads by knee_phase; legs are as the stance plus the offsets.
    """

    frequency: Tensor
    """Hz."""
    hip_swing: Tensor
    """Amplitude, rad."""
    hip_offset: Tensor
    """rad."""
    knee_swing: Tensor
    """Amplitude, rad."""
    knee_offset: Tensor
    """rad."""
    knee_phase: Tensor
    """rad."""

    def targets(self, times: Tensor) -> Tensor:
        """Target angles of the joints, [T, ..., nu], at times [T], rad."""
        f, hip, hip_offset, knee, knee_offset, lead = (torch.as_tensor(x, dtype=times.dtype) for x in self)
        phase = 2.0 * math.pi * f * times.reshape(-1, *[1] * f.ndim)
        angles = []
        for front, left in LEGS.values():
            sign = float(front * left)
            angles += [
                torch.full_like(phase, STANCE[0]),
                STANCE[1] + hip_offset - sign * hip * phase.sin(),
                STANCE[2] + knee_offset - sign * knee * (phase + lead).sin(),
            ]
        return torch.stack(angles, -1)


class PeriodicNetwork(nn.Module):
    """A network of one hidden layer from sine and cosine of a phase to the joints' target angles.

    It does not observe the robot: all targets of a motion are known before it starts.
    """

    def __init__(
        self, generator: torch.Generator, dtype: torch.dtype = torch.float64, hidden: int = HIDDEN,
        frequency: float = FREQUENCY,
    ) -> None:  # fmt: skip
        super().__init__()
        self.frequency = frequency
        sizes = ((2, hidden), (hidden, len(LEGS) * len(STANCE)))
        self.first, self.last = (nn.utils.skip_init(nn.Linear, n, m, dtype=dtype) for n, m in sizes)
        self.register_buffer("stance", torch.tensor(STANCE * len(LEGS), dtype=dtype), persistent=False)
        self.register_buffer("reach", torch.tensor(REACH * len(LEGS), dtype=dtype), persistent=False)
        with torch.no_grad():
            for layer, scale in ((self.first, 2.0), (self.last, CALM)):
                for x in layer.parameters():
                    most = scale / math.sqrt(layer.in_features)
                    x.uniform_(-most, most, generator=generator)

    def targets(self, times: Tensor) -> Tensor:
        """Target angles of the joints, [T, nu], at times [T], rad."""
        phase = 2.0 * math.pi * self.frequency * times
        hidden = self.first(torch.stack([phase.sin(), phase.cos()], -1)).tanh()
        return self.stance + self.reach * self.last(hidden).tanh()


def parameters_of(network: nn.Module) -> int:
    return sum(x.numel() for x in network.parameters())
