"""Direct shooting: gradient descent on all controls at once, with gradients through the whole motion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..model import checks
from .problem import PlanningProblem, Solution
from .result import Outcome

HALVINGS = 25  # Step sizes that a line search tries, at most.
ARMIJO = 1e-4  # A step must achieve this fraction of the decrease predicted to first order.


@dataclass(frozen=True)
class Shooting:
    """Direct shooting. optimizer: "lbfgs" (default; projected onto the limits, each environment separately) or "adam".

    max_iterations: number of gradients, at most. tolerance: converged when an iteration lowers the cost by less than
    this fraction ("lbfgs"), or when none of the last 20 iterations lowered it by more ("adam"). rate: learning rate of
    "adam", in units of the controls; for "lbfgs", how far the first step moves the control with the largest gradient.
    memory: number of steps that "lbfgs" remembers.
    """

    optimizer: str = "lbfgs"
    max_iterations: int = 200
    tolerance: float = 1e-8
    rate: float = 0.1
    memory: int = 10

    def __post_init__(self) -> None:
        if self.optimizer not in ("lbfgs", "adam"):
            raise ValueError(f"optimizer must be 'lbfgs' or 'adam', got {self.optimizer!r}")
        object.__setattr__(self, "max_iterations", checks.integer(self.max_iterations, "max_iterations"))
        object.__setattr__(self, "memory", checks.integer(self.memory, "memory"))
        checks.number(self.tolerance, "tolerance", low=0.0)
        checks.number(self.rate, "rate", low=0.0, strict=True)

    def solve(self, problem: PlanningProblem, controls: Tensor) -> Solution:
        descent = _Descent(problem, controls)
        problem.record(descent.cost)
        move = _adam(descent, self) if self.optimizer == "adam" else _lbfgs(descent, self)
        for _ in range(self.max_iterations):
            if all(descent.codes):
                break
            move()
            problem.record(descent.cost)
        states = problem.dynamics.rollout(problem.x, descent.best)
        outcomes = [code or Outcome.MAX_ITERATIONS for code in descent.codes]
        return Solution(descent.best, states, descent.cost, descent.iterations, outcomes)


class _Descent:
    """The cheapest controls so far of all B environments, and the outcomes of those that are finished."""

    def __init__(self, problem: PlanningProblem, controls: Tensor) -> None:
        self.problem, self.best = problem, controls.clone()
        self.cost, self.gradient = self.differentiate(controls)
        self.iterations = torch.zeros(len(self.cost), dtype=torch.int64)
        self.codes: list[Outcome | None] = [None if c else Outcome.DIVERGED for c in torch.isfinite(self.cost).tolist()]

    @property
    def going(self) -> Tensor:
        return torch.tensor([code is None for code in self.codes])

    def end(self, which: Tensor, code: Outcome) -> None:
        for b in torch.nonzero(which).flatten().tolist():
            self.codes[b] = self.codes[b] or code

    def costs(self, controls: Tensor) -> Tensor:
        return self.problem.cost.total(self.problem.dynamics.rollout(self.problem.x, controls), controls)

    def differentiate(self, controls: Tensor) -> tuple[Tensor, Tensor]:
        """Costs [B], and their gradients [T, B, nu], zero where cost or gradient is not finite."""
        with torch.enable_grad():
            u = controls.detach().requires_grad_()
            cost = self.costs(u)
            (gradient,) = torch.autograd.grad(cost.sum(), u)
        fine = torch.isfinite(gradient).all(-1).all(0) & torch.isfinite(cost)
        return cost.detach(), torch.where(fine.view(1, -1, 1), gradient, 0.0)

    def keep(self, controls: Tensor, cost: Tensor) -> Tensor:
        """Take over controls that are cheaper; returns where, bool [B]."""
        better = (cost < self.cost) & self.going
        self.best = torch.where(better.view(1, -1, 1), controls, self.best)
        self.cost = torch.where(better, cost, self.cost)
        return better


def _adam(descent: _Descent, method: Shooting) -> Callable[[], None]:
    now = descent.best.clone()
    optimizer = torch.optim.Adam([now], lr=method.rate)
    state = {"gradient": descent.gradient, "waited": torch.zeros_like(descent.cost)}

    def move() -> None:
        now.grad = state["gradient"]
        optimizer.step()
        now.copy_(descent.problem.clamp(now))
        descent.iterations[descent.going] += 1
        before = descent.cost
        cost, state["gradient"] = descent.differentiate(now)
        descent.keep(now, cost)
        useful = before - descent.cost > method.tolerance * before.abs()
        state["waited"] = torch.where(useful, 0.0, state["waited"] + 1)
        descent.end(state["waited"] >= 20, Outcome.CONVERGED)

    return move


def _lbfgs(descent: _Descent, method: Shooting) -> Callable[[], None]:
    problem = descent.problem
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []  # s, y and 1 / sᵀy, or 0 to ignore.
    state = {"gradient": descent.gradient}

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum((0, 2)).view(1, -1, 1)

    def largest(a: Tensor) -> Tensor:
        return a.abs().amax((0, 2)).clamp_min(1e-300).view(1, -1, 1)

    def direction(gradient: Tensor) -> Tensor:
        """-H g by the two-loop recursion over the remembered pairs; without any, its largest element is `rate`."""
        d, kept = -gradient, []
        for s, y, inverse in reversed(pairs):
            a = inverse * dot(s, d)
            d = d - a * y
            kept.append(a)
        scale = method.rate / largest(gradient)
        if pairs:
            s, y, inverse = pairs[-1]
            scale = torch.where(inverse > 0, 1.0 / (inverse * dot(y, y)).clamp_min(1e-300), scale)
        d = scale * d
        for (s, y, inverse), a in zip(pairs, reversed(kept), strict=True):
            d = d + s * (a - inverse * dot(y, d))
        return d

    def move() -> None:
        u, gradient = descent.best, state["gradient"]
        held = ((u <= problem.low) & (gradient > 0)) | ((u >= problem.high) & (gradient < 0))
        free = torch.where(held, 0.0, gradient)
        step = torch.where(held, 0.0, direction(free))
        downhill = dot(step, free) < 0
        step = torch.where(downhill, step, -method.rate / largest(free) * free)
        descent.iterations[descent.going] += 1
        before, found, size = descent.cost.clone(), ~descent.going, torch.ones_like(descent.cost)
        for _ in range(HALVINGS):
            trial = problem.clamp(u + size.view(1, -1, 1) * step)
            cost = descent.costs(trial)
            good = ~found & (cost <= before + ARMIJO * (free * (trial - u)).sum((0, 2)))
            descent.keep(torch.where(good.view(1, -1, 1), trial, u), torch.where(good, cost, torch.inf))
            found = found | good
            if bool(found.all()):
                break
            size = torch.where(found, size, 0.5 * size)
        flat = (free.abs().amax((0, 2)) == 0) & descent.going
        small = before - descent.cost <= method.tolerance * before.abs()
        descent.end(flat | (found & small), Outcome.CONVERGED)
        remembers = sum(((inverse > 0).flatten() for _, _, inverse in pairs), torch.zeros_like(found))
        descent.end(~found & ~remembers, Outcome.LINE_SEARCH_FAILED)
        for _, _, inverse in pairs:  # Where no step helped, the remembered pairs misled.
            inverse.masked_fill_(~found.view(1, -1, 1), 0.0)
        _, after = descent.differentiate(descent.best)
        s, y = descent.best - u, torch.where(held, 0.0, after - gradient)
        product = dot(s, y)
        useful = product > 1e-12 * dot(y, y).sqrt() * dot(s, s).sqrt()
        pairs.append((s, y, torch.where(useful, 1.0 / torch.where(useful, product, 1.0), 0.0)))
        del pairs[: -method.memory]
        state["gradient"] = after

    return move
