"""Model-predictive control: plan over a short horizon from the current state, act, and plan again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..model import checks
from .costs import Cost
from .dynamics import as_dynamics
from .ilqr import ILQR
from .planning import optimize
from .problem import Method
from .result import Outcome, Plan


class MPC:
    """``mpc.act(state)`` returns the first control of the best plan over the next `horizon` steps.

    dynamics, cost, limits, method, generator: as in `optimize`; the default method is `ILQR(max_iterations=10)`. The
    step number t that the cost sees counts from the first call of `act`. Every plan starts from the previous one,
    shifted by one step; the first plan from `controls` [horizon, nu] or [horizon, B, nu], by default zero. nu: number
    of controls, needed if neither the dynamics nor `controls` determines it.

    plan: the latest plan. time: number of steps taken.
    """

    def __init__(
        self, dynamics: Any, cost: Cost | Callable[..., Tensor], horizon: int, *, limits: Any = None,
        method: Method | None = None, controls: Tensor | None = None, nu: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:  # fmt: skip
        self.dynamics, self.cost, self.limits = as_dynamics(dynamics), cost, limits
        self.horizon = checks.integer(horizon, "horizon")
        self.method: Method = ILQR(max_iterations=10) if method is None else method
        self.generator = generator
        if controls is not None and (not isinstance(controls, Tensor) or len(controls) != self.horizon):
            raise ValueError(f"controls must be [{horizon}, nu] or [{horizon}, B, nu]: one row for every step")
        known = [n for n in (nu, self.dynamics.nu, None if controls is None else controls.shape[-1]) if n is not None]
        if not known:
            raise ValueError("the dynamics does not tell how many controls it has: give MPC(nu=...) or controls")
        self.nu = known[0]
        self.first = controls
        self.reset()

    def reset(self) -> None:
        """Forget the last plan, and count steps from zero again."""
        self.plan: Plan | None = None
        self.time = 0

    def act(self, state: Any) -> Tensor:
        """The control [B, nu], or [nu] without a batch, for this state; the next call is for the next step's state."""
        start = self._start(state)
        self.plan = optimize(
            self.dynamics, self.cost, state, start, limits=self.limits, method=self.method, start=self.time,
            generator=self.generator,
        )  # fmt: skip
        self.time += 1
        return self.plan.controls[0].clone()

    def _start(self, state: Any) -> Tensor:
        """The last plan shifted by a step, its last control repeated; the initial guess where that plan diverged."""
        x = self.dynamics.pack(state)
        shape = (self.horizon, *x.shape[:-1], self.nu)
        if self.first is None:
            first = x.new_zeros(())
        else:
            first = self.first.unsqueeze(1) if self.first.ndim == 2 and x.ndim == 2 else self.first
        if self.plan is None:
            return first.expand(shape)
        last = self.plan.controls
        if last.shape[1:-1] != x.shape[:-1]:
            raise ValueError(
                f"the state has the batch {list(x.shape[:-1])}, the last plan {list(last.shape[1:-1])}: reset() first"
            )
        moved = torch.cat([last[1:], last[-1:]])
        lost = torch.tensor([code is Outcome.DIVERGED for code in self.plan.outcomes])
        return torch.where((lost if x.ndim == 2 else lost[0]).unsqueeze(-1), first.expand_as(moved), moved)
