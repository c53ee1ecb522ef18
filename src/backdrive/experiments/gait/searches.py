"""The trot whose six numbers CMA-ES tunes beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from .controller import Trot
from .world import GaitWorld, fallen, speed

POPULATION, BUDGET = 16, 960  # Motions of a generation, and of a search.
RANGES = {  # Of a trot's numbers, in the order of `Trot`.
    "hand": ((1.0, 3.0), (0.0, 0.5), (-0.3, 0.3), (0.0, 0.6), (-0.4, 0.4), (-math.pi, math.pi)),
    "wide": ((1.0, 8.0), (0.0, 0.8), (-0.5, 0.5), (0.0, 0.9), (-0.8, 0.6), (-math.pi, math.pi)),
}
"""hand: what a cautious engineer would try. wide: frequency and deviations that a network may have, too."""
FIRST = (2.0, 0.3, 0.0, 0.3, 0.0, 0.0)
SIGMA = 0.15  # Initial standard deviation, as a share of the ranges.
FALL = 0.5  # A fall costs so much, m/s.


@torch.no_grad()
def speeds(world: GaitWorld, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of trots [B, 6]: the speed up to a fall, over 8 s [B], m/s, and whether they fall [B]."""
    path = world.move(trot_of(numbers).targets(world.times()))
    down = fallen(world, path.q)
    last = (~down).sum(0).sub(1).clamp(min=0)
    reached = path.q[..., 0].gather(0, last[None])[0] / world.seconds
    reached = torch.where(down[-1], reached, speed(path, world.seconds))
    return reached.numpy(), down[-1].numpy()


def trot_of(numbers: np.ndarray) -> Trot:
    """Of its numbers, [..., 6]."""
    return Trot(*torch.as_tensor(numbers, dtype=torch.float64).unbind(-1))


def tune(
    world: GaitWorld, ranges: str, seed: int, budget: int, advance: Callable[[int], None]
) -> tuple[np.ndarray, list[float]]:
    """The best trot's numbers [6], and the best score (m/s, less for a fall) up to each motion."""
    import cma  # An optional dependency.

    low, high = np.array(RANGES[ranges]).T
    options = {"bounds": [0, 1], "seed": seed + 1, "verbose": -9, "popsize": POPULATION}
    strategy = cma.CMAEvolutionStrategy((np.array(FIRST) - low) / (high - low), SIGMA, options)
    curve: list[float] = []
    for done in range(0, budget, POPULATION):
        advance(done)
        shares = strategy.ask()
        reached, fell = speeds(world, low + (high - low) * np.array(shares))
        scores = reached - FALL * fell
        strategy.tell(shares, (-scores).tolist())
        curve += np.maximum.accumulate([max(curve[-1:], default=-math.inf), *scores])[1:].tolist()
    return low + (high - low) * strategy.best.x, curve
