"""The two optimisers: a gradient method, and CMA-ES."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from .world import REST, Landing, ThrowWorld

TOLERANCES = (0.30, 0.10, 0.03, 0.01)  # Distances from the target that count as hits, m.
LONGEST = 3.0  # Longest step of the gradient method, m/s.
ITERATIONS = 87  # Of the gradient method, at most; the paper needs 88.
EVALUATIONS = 5000  # Of CMA-ES, at most: twice as many as the paper needs.


@dataclass
class Search:
    """The throws that an optimiser tried from one start, in order. seconds: wall time since its start."""

    throws: list[Tensor] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    distance: list[float] = field(default_factory=list)
    speed: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    found: bool = False
    """Whether a throw came to rest within the last tolerance."""
    began: float = field(default_factory=time.perf_counter)

    def add(self, throws: Tensor, landing: Landing) -> None:
        self.throws.extend(throws.detach())
        self.loss.extend(landing.loss.tolist())
        self.distance.extend(landing.distance.tolist())
        self.speed.extend(landing.speed.tolist())
        self.seconds.extend([time.perf_counter() - self.began] * len(throws))
        self.found |= bool(((landing.distance <= TOLERANCES[-1]) & (landing.speed <= REST)).any())

    def first(self, tolerance: float) -> int | None:
        """Index of the first evaluation whose ball lies at rest within the tolerance, or None."""
        tried = enumerate(zip(self.distance, self.speed, strict=True))
        return next((i for i, (distance, speed) in tried if distance <= tolerance and speed <= REST), None)


def by_gradient(world: ThrowWorld, start: Tensor) -> Search:
    """Newton's method for √loss = 0: z - 2 loss g/|g|² is the shortest step to a zero of its linearisation.

    Every iteration takes one rollout and one gradient. There is no line search; steps are clipped to `LONGEST`.
    start: [6]
    """
    search, throw = Search(), start.unsqueeze(0)
    for _ in range(ITERATIONS):
        throw = throw.detach().requires_grad_()
        landing = world.landing(world.throw(throw))
        (gradient,) = torch.autograd.grad(landing.loss.sum(), throw)
        search.add(throw, landing)
        if search.found:
            break
        step = 2.0 * landing.loss.detach() * gradient / gradient.square().sum()
        throw = throw - step * (LONGEST / step.norm()).clamp_max(1.0)
    return search


def by_cma(world: ThrowWorld, start: Tensor, sigma: float, seed: int) -> Search:
    """CMA-ES with its library's default settings; each population is one batch. start: [6]"""
    import cma  # An optional dependency.

    normal = np.random.default_rng(seed).standard_normal
    options = {
        "verbose": -9,
        "seed": math.nan,
        "randn": lambda *shape: normal(shape),
    }  # Does not touch numpy's global seed.
    search = Search()
    strategy = cma.CMAEvolutionStrategy(start.numpy(), sigma, options)
    with torch.no_grad():
        while len(search.loss) < EVALUATIONS and not search.found and not strategy.stop():
            population = strategy.ask()
            throws = torch.from_numpy(np.stack(population))
            landing = world.landing(world.throw(throws))
            search.add(throws, landing)
            strategy.tell(population, landing.loss.tolist())
    return search
