"""Tracking: velocities of ball and paddle from the positions in successive frames."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from .perception import LEFT, RIGHT, Seen
from .world import WIDTH

Array = np.ndarray
Pair = tuple[float, float]


@dataclass(frozen=True)
class Situation:
    """Positions and velocities in a frame, px and px per frame."""

    ball: Pair | None
    velocity: Pair
    """Velocity of the ball; zero in the first frame that shows it."""
    paddle: Pair
    """Position of the paddle's centre, and its velocity."""
    width: float
    """Width of the paddle."""
    bricks: Array
    """Which bricks are left, bool [6, 18]."""

    @property
    def descending(self) -> bool:
        return self.ball is not None and self.velocity[1] < 0.0


class Tracker:
    """Tracks the objects frame by frame. frames: number of frames for the ball's velocity, at most; 2 in the paper.

    Positions are whole pixels: a velocity from two frames is wrong by up to 1 px per frame, from n frames by 1/(n - 1).
    Only frames since the ball's last bounce are used.
    """

    def __init__(self, frames: int = 2) -> None:
        self._flight: deque[Pair] = deque(maxlen=frames)
        self._left: float | None = None
        self._width = WIDTH

    def follow(self, seen: Seen) -> Situation:
        self._follow_ball(seen.ball)
        return Situation(seen.ball, self._velocity(), self._follow_paddle(seen), self._width, seen.bricks)

    def _follow_ball(self, ball: Pair | None) -> None:
        flight = self._flight
        if ball is None:
            flight.clear()
            return
        if len(flight) > 1:
            step = [b - a for a, b in zip(flight[-1], ball, strict=True)]
            so_far = [b - a for a, b in zip(flight[0], flight[-1], strict=True)]
            if any(a * b < 0.0 for a, b in zip(step, so_far, strict=True)):  # The ball has bounced.
                last = flight[-1]
                flight.clear()
                flight.append(last)
        flight.append(ball)

    def _velocity(self) -> Pair:
        flight = self._flight
        if len(flight) < 2:
            return 0.0, 0.0
        n = len(flight) - 1
        return (flight[-1][0] - flight[0][0]) / n, (flight[-1][1] - flight[0][1]) / n

    def _follow_paddle(self, seen: Seen) -> Pair:
        """The paddle's position and velocity. At the right wall it is partly hidden; a missed ball may look like it."""
        if seen.paddle is None:
            return (self._left or LEFT) + 0.5 * self._width, 0.0
        left, right = seen.paddle
        if right < RIGHT and seen.ball is not None:
            self._width = right - left
        velocity = 0.0 if self._left is None else left - self._left
        self._left = left
        return left + 0.5 * self._width, velocity
