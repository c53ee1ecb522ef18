"""How long an agent trains: by steps, by seconds, or until a target is reached."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..model import checks

ENOUGH = 16
"""Number of finished episodes from which on their mean return can reach a target."""


@dataclass
class Budget:
    """What a training may spend, in total. At least one of the three is given.

    steps: of all environments together. seconds: of training. target: the mean return of the last finished episodes at
    which training ends.
    """

    steps: int | None = None
    seconds: float | None = None
    target: float | None = None

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None and self.target is None:
            raise TypeError("train needs steps, seconds or a target: for how long is it to run?")
        if self.steps is not None:
            self.steps = checks.integer(self.steps, "steps")
        if self.seconds is not None:
            self.seconds = checks.number(self.seconds, "seconds", low=0.0, strict=True)
        if self.target is not None:
            self.target = checks.number(self.target, "target")

    def spent(self, steps: int, seconds: float) -> float:
        """The share that is spent, 0 to 1, of what runs out first. A target alone is never spent."""
        shares = [0.0]
        if self.steps is not None:
            shares.append(steps / self.steps)
        if self.seconds is not None:
            shares.append(seconds / self.seconds)
        return min(1.0, max(shares))

    def left(self, steps: int, seconds: float) -> float | None:
        """The time that is left at the speed so far, s; None if that cannot be told."""
        spent = self.spent(steps, seconds)
        return None if spent == 0.0 else seconds * (1.0 / spent - 1.0)

    def reached(self, returns: Collection[float]) -> bool:
        """Whether these returns of the last episodes reach the target."""
        return self.target is not None and len(returns) >= ENOUGH and sum(returns) / len(returns) >= self.target
