"""How the paddle responds: its learned parameters, and how actions become the control of its motor.

A frame repeats the previous action with the probability `stick`, so the effective action is e on average, and it acts
on the paddle `delay` frames later:

    e[t] = (1 - stick) a[t] + stick e[t - 1]        u[t] = (1 - delay) e[t] + delay e[t - 1]

The scene does the rest: a body of mass 1 on a slider, v⁺ = v + gear u - damping v⁺, x⁺ = x + v⁺.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MEMORY = 32  # Frames after which the effect of sticking is negligible.


@dataclass(frozen=True)
class Paddle:
    """The learned parameters, scalar tensors.

    gear: px/frame², acceleration by an action. damping: 1/frame. stick: probability that an action is repeated.
    delay: frames, 0 to 1.
    """

    gear: Tensor
    damping: Tensor
    stick: Tensor
    delay: Tensor

    @classmethod
    def guess(cls) -> Paddle:
        """The initial guess."""
        return cls(*torch.tensor([1.0, 0.5, 0.1, 0.5], dtype=torch.float64))

    @property
    def speed(self) -> Tensor:
        """Terminal speed of the paddle while an action is held, px/frame."""
        return self.gear / self.damping

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Parameters of the scene. The first joint, the ball's, has no damping."""
        return {
            "gear": self.gear.reshape(1),
            "damping": torch.stack([torch.zeros_like(self.damping), self.damping]),
        }

    def controls(self, directions: Tensor) -> Tensor:
        """Controls u [T] for the actions of a game from its beginning, [T]: -1 left, 1 right, else 0."""
        ages = torch.arange(MEMORY)
        past = torch.cat([directions.new_zeros(MEMORY), directions]).unfold(0, MEMORY, 1)  # [T + 1, MEMORY]
        e = past.flip(-1) @ ((1.0 - self.stick) * self.stick**ages)
        return (1.0 - self.delay) * e[1:] + self.delay * e[:-1]

    def numbers(self) -> dict[str, float]:
        return {name: float(getattr(self, name)) for name in ("gear", "damping", "speed", "stick", "delay")}


@dataclass
class Hand:
    """The same recursion frame by frame, with the pending effect of earlier actions as its state."""

    paddle: Paddle
    _e: float = 0.0

    def __post_init__(self) -> None:
        self._stick, self._delay = float(self.paddle.stick), float(self.paddle.delay)

    def controls(self, directions: list[float]) -> list[float]:
        """Controls u of the next frames for these actions."""
        e, out = self._e, []
        for a in directions:
            before, e = e, (1.0 - self._stick) * a + self._stick * e
            out.append((1.0 - self._delay) * e + self._delay * before)
        return out

    def did(self, direction: float) -> None:
        """Advance by one frame in which this action was taken."""
        self._e = (1.0 - self._stick) * direction + self._stick * self._e

    def nearest(self, control: float) -> float:
        """The direction, -1, 0 or 1, whose expected effect is nearest to this control."""
        wanted = (control - self._stick * self._e) / (1.0 - self._stick)
        return float(min(max(round(wanted), -1), 1))
