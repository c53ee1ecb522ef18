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
DOUBLINGS = 12  # How far above its rate "adam" looks for a step downhill, in powers of two.
PATIENCE = 20  # Iterations of "adam" without progress, after which it asks whether there is any to make.
ADAM = (0.9, 0.999)  # Its decay rates of the mean gradient and of the mean square.
ROUNDING = 1e-14  # Changes of the cost below this fraction are rounding errors.
ARMIJO = 1e-4  # A step must achieve this fraction of the decrease predicted to first order.


@dataclass(frozen=True)
class Shooting:
    """Direct shooting. optimizer: "lbfgs" (default; projected onto the limits, each environment separately) or "adam".

    max_iterations: most iterations. tolerance: converged when an iteration lowers the cost by less than this fraction
    ("lbfgs"); or when none of the last 20 iterations lowered it by more, and no step downhill from the best controls
    does, either ("adam"; otherwise it goes on from there, at the rate of such a step). rate: learning rate of "adam",
    in units of the controls; for "lbfgs", how far the first step moves the control with the largest gradient. memory:
    number of steps that "lbfgs" remembers.
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
        move = _Adam(descent, self).move if self.optimizer == "adam" else _lbfgs(descent, self)
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
        self.codes: list[Outcome | None] = [None] * len(self.cost)
        self.end(~torch.isfinite(self.cost) | self.lost, Outcome.DIVERGED)

    @property
    def going(self) -> Tensor:
        return torch.tensor([code is None for code in self.codes])

    def end(self, which: Tensor, code: Outcome) -> None:
        for b in torch.nonzero(which).flatten().tolist():
            self.codes[b] = self.codes[b] or code

    def costs(self, controls: Tensor) -> Tensor:
        return self.problem.cost.total(self.problem.dynamics.rollout(self.problem.x, controls), controls)

    def differentiate(self, controls: Tensor) -> tuple[Tensor, Tensor]:
        """Costs [B], and their gradients [T, B, nu], zero where cost or gradient is not finite: these are `lost`."""
        with torch.enable_grad():
            u = controls.detach().requires_grad_()
            cost = self.costs(u)
            (gradient,) = torch.autograd.grad(cost.sum(), u)
        fine = torch.isfinite(gradient).all(-1).all(0) & torch.isfinite(cost)
        self.lost = ~fine
        return cost.detach(), torch.where(fine.view(1, -1, 1), gradient, 0.0)

    def keep(self, controls: Tensor, cost: Tensor) -> Tensor:
        """Take over controls that are cheaper; returns where, bool [B]."""
        better = (cost < self.cost) & self.going
        self.best = torch.where(better.view(1, -1, 1), controls, self.best)
        self.cost = torch.where(better, cost, self.cost)
        return better

    def held(self, gradient: Tensor) -> Tensor:
        """Which of the best controls are at a limit that this gradient pushes them against, bool [T, B, nu]."""
        low, high = self.problem.low, self.problem.high
        return ((self.best <= low) & (gradient > 0)) | ((self.best >= high) & (gradient < 0))

    def free(self, gradient: Tensor) -> Tensor:
        """The gradient without the parts that limits hold."""
        return torch.where(self.held(gradient), 0.0, gradient)

    def search(
        self, u: Tensor, free: Tensor, step: Tensor, done: Tensor, sizes: int = HALVINGS
    ) -> tuple[Tensor, Tensor]:
        """Line search from u along a step, halved until it lowers the cost enough; returns where it did, bool [B], and
        the fraction of the step.

        free: the gradient at u, without the parts that limits hold. done: environments to be left alone.
        """
        before, found, size = self.cost.clone(), done, torch.ones_like(self.cost)
        for _ in range(sizes):
            trial = self.problem.clamp(u + size.view(1, -1, 1) * step)
            cost = self.costs(trial)
            good = ~found & (cost <= before + ARMIJO * (free * (trial - u)).sum((0, 2)))
            self.keep(torch.where(good.view(1, -1, 1), trial, u), torch.where(good, cost, torch.inf))
            found = found | good
            if bool(found.all()):
                break
            size = torch.where(found, size, 0.5 * size)
        return found, size


class _Adam:
    """Adam, separately for each environment. Where it makes no progress, it starts again from the best controls, at the
    rate of a step downhill that lowers the cost, unless there is none."""

    def __init__(self, descent: _Descent, method: Shooting) -> None:
        self.descent, self.method = descent, method
        self.now, self.gradient = descent.best.clone(), descent.gradient
        self.rate = torch.full_like(descent.cost, method.rate)
        self.waited = torch.zeros_like(descent.cost)
        self.updates = torch.zeros_like(descent.cost)
        self.mean, self.square = torch.zeros_like(self.now), torch.zeros_like(self.now)

    def move(self) -> None:
        descent, tolerance = self.descent, self.method.tolerance
        descent.iterations[descent.going] += 1
        self.updates += 1
        first, second = ADAM
        self.mean = first * self.mean + (1 - first) * self.gradient
        self.square = second * self.square + (1 - second) * self.gradient.square()
        mean = self.mean / (1 - first**self.updates).view(1, -1, 1)
        square = self.square / (1 - second**self.updates).view(1, -1, 1)
        step = self.rate.view(1, -1, 1) * mean / (square.sqrt() + 1e-8 * _largest(self.gradient))
        self.now = descent.problem.clamp(self.now - step)
        before = descent.cost
        cost, self.gradient = descent.differentiate(self.now)
        descent.keep(self.now, cost)
        useful = before - descent.cost > tolerance * before.abs()
        self.waited = torch.where(useful, 0.0, self.waited + 1)
        stuck = (self.waited >= PATIENCE) & descent.going
        if bool(stuck.any()):
            self._start_again(stuck)

    def _start_again(self, stuck: Tensor) -> None:
        """End these environments if they have converged, or no step lowers their cost; start the others again."""
        descent, before = self.descent, self.descent.cost
        u = descent.best
        _, gradient = descent.differentiate(u)
        descent.end(stuck & descent.lost, Outcome.DIVERGED)
        free = descent.free(gradient)
        reach = self.rate * 2.0**DOUBLINGS
        found, size = descent.search(
            u, free, -free * reach.view(1, -1, 1) / _largest(free), ~stuck, HALVINGS + DOUBLINGS
        )
        small = before - descent.cost <= self.method.tolerance * before.abs()
        downhill = free.abs().sum((0, 2)) * self.rate * 0.5**HALVINGS > ROUNDING * before.abs()
        descent.end(stuck & small & (found | ~downhill), Outcome.CONVERGED)
        descent.end(stuck & ~found & downhill, Outcome.LINE_SEARCH_FAILED)
        again = (stuck & descent.going).view(1, -1, 1)
        _, gradient = descent.differentiate(descent.best)
        self.now = torch.where(again, descent.best, self.now)
        self.gradient = torch.where(again, gradient, self.gradient)
        self.mean, self.square = (torch.where(again, 0.0, x) for x in (self.mean, self.square))
        stuck = again.flatten()
        self.rate = torch.where(stuck, size * reach, self.rate)
        self.waited, self.updates = (torch.where(stuck, 0.0, x) for x in (self.waited, self.updates))


def _largest(a: Tensor) -> Tensor:
    """The largest magnitude in each environment, [1, B, 1]."""
    return a.abs().amax((0, 2)).clamp_min(1e-300).view(1, -1, 1)


def _lbfgs(descent: _Descent, method: Shooting) -> Callable[[], None]:
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []  # s, y and 1 / sᵀy, or 0 to ignore.
    state = {"gradient": descent.gradient}

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum((0, 2)).view(1, -1, 1)

    def direction(gradient: Tensor) -> Tensor:
        """-H g by the two-loop recursion over the remembered pairs; without any, its largest element is `rate`."""
        d, kept = -gradient, []
        for s, y, inverse in reversed(pairs):
            a = inverse * dot(s, d)
            d = d - a * y
            kept.append(a)
        scale = method.rate / _largest(gradient)
        if pairs:
            s, y, inverse = pairs[-1]
            scale = torch.where(inverse > 0, 1.0 / (inverse * dot(y, y)).clamp_min(1e-300), scale)
        d = scale * d
        for (s, y, inverse), a in zip(pairs, reversed(kept), strict=True):
            d = d + s * (a - inverse * dot(y, d))
        return d

    def move() -> None:
        u, gradient = descent.best, state["gradient"]
        held = descent.held(gradient)
        free = torch.where(held, 0.0, gradient)
        step = torch.where(held, 0.0, direction(free))
        downhill = dot(step, free) < 0
        step = torch.where(downhill, step, -method.rate / _largest(free) * free)
        descent.iterations[descent.going] += 1
        before = descent.cost.clone()
        found, _ = descent.search(u, free, step, ~descent.going)
        flat = (free.abs().amax((0, 2)) == 0) & descent.going
        small = before - descent.cost <= method.tolerance * before.abs()
        descent.end(flat | (found & small), Outcome.CONVERGED)
        remembers = sum(((inverse > 0).flatten() for _, _, inverse in pairs), torch.zeros_like(found))
        descent.end(~found & ~remembers, Outcome.LINE_SEARCH_FAILED)
        for _, _, inverse in pairs:  # Where no step helped, the remembered pairs misled.
            inverse.masked_fill_(~found.view(1, -1, 1), 0.0)
        _, after = descent.differentiate(descent.best)
        descent.end(descent.lost, Outcome.DIVERGED)
        s, y = descent.best - u, torch.where(held, 0.0, after - gradient)
        product = dot(s, y)
        useful = product > 1e-12 * dot(y, y).sqrt() * dot(s, s).sqrt()
        pairs.append((s, y, torch.where(useful, 1.0 / torch.where(useful, product, 1.0), 0.0)))
        del pairs[: -method.memory]
        state["gradient"] = after

    return move
