"""A planning problem as every method sees it, and the solution that a method returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from .costs import TrajectoryCost
from .dynamics import Dynamics
from .result import Outcome


@dataclass
class PlanningProblem:
    """Minimise the cost of T steps of B environments from x [B, n], with controls between low and high [nu].

    Absent limits are infinite. tick: called with the costs [B] after every iteration.
    """

    dynamics: Dynamics
    cost: TrajectoryCost
    x: Tensor
    low: Tensor
    high: Tensor
    generator: torch.Generator | None = None
    tick: Callable[[Tensor], None] | None = None
    history: list[Tensor] = field(default_factory=list)

    @property
    def limited(self) -> bool:
        return bool((torch.isfinite(self.low) | torch.isfinite(self.high)).any())

    def clamp(self, controls: Tensor) -> Tensor:
        return torch.clamp(controls, self.low, self.high)

    def record(self, cost: Tensor) -> None:
        """Note the costs [B]; called at the start and after every iteration."""
        self.history.append(cost.detach().clone())
        if self.tick is not None:
            self.tick(cost)


@dataclass
class Solution:
    """controls [T, B, nu], states [T + 1, B, n], cost [B], iterations [B], outcomes [B], gains [T, B, nu, d]."""

    controls: Tensor
    states: Tensor
    cost: Tensor
    iterations: Tensor
    outcomes: list[Outcome]
    gains: Tensor | None = None


class Method(Protocol):
    @property
    def max_iterations(self) -> int: ...

    def solve(self, problem: PlanningProblem, controls: Tensor) -> Solution:
        """Improve these controls [T, B, nu], which are within the limits."""
