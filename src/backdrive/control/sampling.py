"""Planning without derivatives: batches of random controls, of which the cheap ones are averaged (MPPI, CEM)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..model import checks
from .problem import PlanningProblem, Solution
from .result import Outcome


@dataclass(frozen=True)
class MPPI:
    """Model-predictive path integral control (Williams et al. 2017): the mean of samples, weighted by
    exp(-cost / (temperature × standard deviation of the costs)).

    samples: per environment and iteration. noise: standard deviation of the samples, in units of the controls; a number
    or [nu].
    """

    max_iterations: int = 100
    samples: int = 256
    noise: float | Tensor = 1.0
    temperature: float = 0.2

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_iterations", checks.integer(self.max_iterations, "max_iterations"))
        object.__setattr__(self, "samples", checks.integer(self.samples, "samples", 2))
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

    samples: per environment and iteration; the cheapest fraction `elite` of them is kept. noise: initial standard
    deviation, in units of the controls; a number or [nu]. smoothing: weight of the previous mean and deviation.
    tolerance: converged when all deviations are below this fraction of the initial ones.
    """

    max_iterations: int = 100
    samples: int = 256
    elite: float = 0.1
    noise: float | Tensor = 1.0
    smoothing: float = 0.1
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_iterations", checks.integer(self.max_iterations, "max_iterations"))
        object.__setattr__(self, "samples", checks.integer(self.samples, "samples", 2))
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
    """Draws samples, and keeps the cheapest controls of every environment."""

    def __init__(self, problem: PlanningProblem, controls: Tensor) -> None:
        self.problem, self.controls = problem, controls.clone()
        self.cost = self._costs(controls.unsqueeze(0)).squeeze(0)
        self.iterations = torch.zeros(len(self.cost), dtype=torch.int64)
        self.ended = torch.zeros(len(self.cost), dtype=torch.bool)
        problem.record(self.cost)

    def sample(self, mean: Tensor, deviation: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Controls [S, T, B, nu] around the mean, which is sample 0, and their costs [S, B]."""
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
        return self.problem.cost.total(states, flat).view(count, batch)

    def end(self, which: Tensor) -> bool:
        """Mark environments (bool [B]) as converged; returns whether all are."""
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
