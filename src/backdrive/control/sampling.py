"""Planning without derivatives: many random controls at once, of which the cheap ones count (MPPI, cross-entropy)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..model import checks
from .problem import PlanningProblem, Solution, whole_number
from .result import Outcome


@dataclass(frozen=True)
class MPPI:
    """Model-predictive path integral control (Williams et al. 2017): a mean of samples, weighted by exp(-cost).

    samples: per environment and iteration. noise: their standard deviation, in units of the controls; a number or
    [nu]. temperature: costs count in units of so many of their standard deviations.
    """

    max_iterations: int = 100
    samples: int = 256
    noise: float | Tensor = 1.0
    temperature: float = 0.2

    def __post_init__(self) -> None:
        whole_number("max_iterations", self.max_iterations)
        whole_number("samples", self.samples, least=2)
        _require_noise(self.noise)
        checks.number(self.temperature, "temperature", low=0.0, strict=True)

    def solve(self, problem: PlanningProblem, controls: Tensor) -> Solution:
        mean, best = controls, _Best(problem, controls)
        deviation = torch.as_tensor(self.noise, dtype=controls.dtype)
        for _ in range(self.max_iterations):
            tried, cost = best.sample(mean, deviation, self.samples)
            cost = torch.where(torch.isfinite(cost), cost, torch.nan)
            spread = torch.nan_to_num((cost - cost.nanmean(0)).square().nanmean(0).sqrt(), nan=0.0).clamp_min(1e-300)
            lowest = torch.nan_to_num(cost, nan=torch.inf).amin(0)
            weight = torch.nan_to_num(torch.exp(-(cost - lowest) / (self.temperature * spread)), nan=0.0)
            weight = weight / weight.sum(0).clamp_min(1e-300)
            update = torch.einsum("sb,stbu->tbu", weight, tried)
            mean = torch.where(torch.isfinite(lowest).view(1, -1, 1), update, mean)
            problem.record(best.cost)
        return best.solution(self.max_iterations)


@dataclass(frozen=True)
class CEM:
    """The cross-entropy method: a normal distribution of the controls of every step, fitted to its cheapest samples.

    samples: per environment and iteration, of which the part `elite` counts. noise: the standard deviation at first, in
    units of the controls; a number or [nu]. smoothing: how much of the last mean and deviation stays. tolerance:
    converged when no deviation is larger than this part of the first.
    """

    max_iterations: int = 100
    samples: int = 256
    elite: float = 0.1
    noise: float | Tensor = 1.0
    smoothing: float = 0.1
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        whole_number("max_iterations", self.max_iterations)
        whole_number("samples", self.samples, least=2)
        _require_noise(self.noise)
        if not 0 < checks.number(self.elite, "elite") <= 1:
            raise ValueError(f"elite must be a part above 0 and up to 1, got {self.elite!r}")
        if not 0 <= checks.number(self.smoothing, "smoothing") < 1:
            raise ValueError(f"smoothing must be a part from 0 on and below 1, got {self.smoothing!r}")

    def solve(self, problem: PlanningProblem, controls: Tensor) -> Solution:
        mean, best = controls, _Best(problem, controls)
        first = torch.as_tensor(self.noise, dtype=controls.dtype).expand(controls.shape[-1])
        deviation, count = first.expand_as(controls), max(2, round(self.elite * self.samples))
        for _ in range(self.max_iterations):
            tried, cost = best.sample(mean, deviation, self.samples)
            chosen = cost.argsort(0)[:count]  # [E, B]
            elite = tried.gather(0, chosen[:, None, :, None].expand(-1, *tried.shape[1:]))
            mean = self.smoothing * mean + (1 - self.smoothing) * elite.mean(0)
            deviation = self.smoothing * deviation + (1 - self.smoothing) * elite.std(0, correction=0)
            problem.record(best.cost)
            if best.end((deviation <= self.tolerance * first).all(-1).all(0)):
                break
        return best.solution(self.max_iterations)


class _Best:
    """Samples, and the cheapest of all that were tried, of every environment."""

    def __init__(self, problem: PlanningProblem, controls: Tensor) -> None:
        self.problem, self.controls = problem, controls.clone()
        self.cost = self._costs(controls.unsqueeze(0)).squeeze(0)
        self.iterations = torch.zeros(len(self.cost), dtype=torch.int64)
        self.ended = torch.zeros(len(self.cost), dtype=torch.bool)
        problem.record(self.cost)

    def sample(self, mean: Tensor, deviation: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Controls [S, T, B, nu] about the mean, which is the first of them, and their costs [S, B]."""
        noise = torch.randn(count, *mean.shape, dtype=mean.dtype, generator=self.problem.generator)
        noise[0] = 0.0
        tried = self.problem.clamp(mean + deviation * noise)
        cost = self._costs(tried)
        lowest, which = cost.min(0)
        better = (lowest < self.cost) & ~self.ended
        picked = tried.gather(0, which.view(1, 1, -1, 1).expand(1, *mean.shape)).squeeze(0)
        self.controls = torch.where(better.view(1, -1, 1), picked, self.controls)
        self.cost = torch.where(better, lowest, self.cost)
        self.iterations[~self.ended] += 1
        return tried, cost

    def _costs(self, tried: Tensor) -> Tensor:
        count, (steps, batch, nu) = len(tried), tried.shape[1:]
        flat = tried.transpose(0, 1).reshape(steps, count * batch, nu)
        states = self.problem.dynamics.rollout(self.problem.x.repeat(count, 1), flat)
        return self.problem.bill.total(states, flat).view(count, batch)

    def end(self, which: Tensor) -> bool:
        """These have converged; whether all have."""
        self.ended |= which
        return bool(self.ended.all())

    def solution(self, most: int) -> Solution:
        states = self.problem.dynamics.rollout(self.problem.x, self.controls)
        codes = []
        for finite, ended in zip(torch.isfinite(self.cost).tolist(), self.ended.tolist(), strict=True):
            codes.append(Outcome.CONVERGED if ended else Outcome.MAX_ITERATIONS)
            if not finite:
                codes[-1] = Outcome.DIVERGED
        return Solution(self.controls, states, self.cost, self.iterations, codes)


def _require_noise(noise: float | Tensor) -> None:
    x = torch.as_tensor(noise)
    if x.ndim > 1 or not bool((torch.isfinite(x) & (x > 0)).all()):
        raise ValueError(f"noise must be a deviation above 0, a number or [nu], got {noise!r}")
