"""How long an agent trains: by steps, by seconds, or until a target is reached."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..model import checks


@dataclass
class Budget:
    """What a call of `Agent.train` may spend. At least one of the three is given.

    steps: of all environments together, in this call. seconds: wall-clock time. target: the mean return of the last
    finished episodes at which training ends.
    """

    steps: int | None = None
    seconds: float | None = None
    target: float | None = None
    _begin: float = field(default_factory=time.perf_counter, repr=False)

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None and self.target is None:
            raise TypeError("train needs steps, seconds or a target: for how long is it to run?")
        if self.steps is not None:
            self.steps = checks.integer(self.steps, "steps")
        if self.seconds is not None:
            self.seconds = checks.number(self.seconds, "seconds", low=0.0, strict=True)
        if self.target is not None:
            self.target = checks.number(self.target, "target")

    @property
    def elapsed(self) -> float:
        """s since training began."""
        return time.perf_counter() - self._begin

    def spent(self, steps: int) -> float:
        """The share that is spent after some steps, 0 to 1: of what runs out first. A target alone is never spent."""
        shares = [0.0]
        if self.steps is not None:
            shares.append(steps / self.steps)
        if self.seconds is not None:
            shares.append(self.elapsed / self.seconds)
        return min(1.0, max(shares))

    def left(self, steps: int) -> float | None:
        """The time that is left at the present speed, s; None if that cannot be told."""
        spent = self.spent(steps)
        return None if spent == 0.0 else self.elapsed * (1.0 / spent - 1.0)

    def reached(self, mean_return: float | None) -> bool:
        """Whether the target is."""
        return self.target is not None and mean_return is not None and mean_return >= self.target
