"""How the paddle answers: what is learned of it, and how actions become the control of its motor.

A frame repeats the last action with the probability `stick`, so that on average the game does e, and the paddle feels
it `delay` frames later:

    e[t] = (1 - stick) a[t] + stick e[t - 1]        u[t] = (1 - delay) e[t] + delay e[t - 1]

The rest is the scene's: a body of mass 1 on a slider, v⁺ = v + gear u - damping v⁺, x⁺ = x + v⁺.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MEMORY = 32  # frames, after which an action no longer sticks


@dataclass(frozen=True)
class Paddle:
    """What is learned, each a tensor without dimensions.

    gear: px/frame², the push of an action. damping: 1/frame. stick: of an action, 0 to 1. delay: frames, 0 to 1.
    """

    gear: Tensor
    damping: Tensor
    stick: Tensor
    delay: Tensor

    @classmethod
    def guess(cls) -> Paddle:
        """Before anything is learned."""
        return cls(*torch.tensor([1.0, 0.5, 0.1, 0.5], dtype=torch.float64))

    @property
    def speed(self) -> Tensor:
        """px/frame, of the paddle when an action is held."""
        return self.gear / self.damping

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Those of the scene: the ball's joint, the first, has no damping."""
        return {
            "gear": self.gear.reshape(1),
            "damping": torch.stack([torch.zeros_like(self.damping), self.damping]),
        }

    def controls(self, directions: Tensor) -> Tensor:
        """u [T] of a record of actions from the beginning of a game: -1 left, 1 right, else 0; [T]"""
        ages = torch.arange(MEMORY)
        past = torch.cat([directions.new_zeros(MEMORY), directions]).unfold(0, MEMORY, 1)  # [T + 1, MEMORY]
        e = past.flip(-1) @ ((1.0 - self.stick) * self.stick**ages)
        return (1.0 - self.delay) * e[1:] + self.delay * e[:-1]

    def numbers(self) -> dict[str, float]:
        return {name: float(getattr(self, name)) for name in ("gear", "damping", "speed", "stick", "delay")}


@dataclass
class Hand:
    """The same frame by frame: it knows what the paddle is still to feel of earlier actions."""

    paddle: Paddle
    _e: float = 0.0

    def __post_init__(self) -> None:
        self._stick, self._delay = float(self.paddle.stick), float(self.paddle.delay)

    def controls(self, directions: list[float]) -> list[float]:
        """u of the next frames, if these are their actions."""
        e, out = self._e, []
        for a in directions:
            before, e = e, (1.0 - self._stick) * a + self._stick * e
            out.append((1.0 - self._delay) * e + self._delay * before)
        return out

    def did(self, direction: float) -> None:
        """This action was taken."""
        self._e = (1.0 - self._stick) * direction + self._stick * self._e

    def nearest(self, control: float) -> float:
        """The direction, -1, 0 or 1, whose mean effect is the nearest to this control."""
        wanted = (control - self._stick * self._e) / (1.0 - self._stick)
        return float(min(max(round(wanted), -1), 1))
