"""CMA-ES on the weights of the same network, with the same loss."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ...policy import MLP
from .learning import BATCH, Test, losses

POPULATION = 32  # cma's default for 17,000 unknowns is 33.
SIGMA = 0.03  # Initial standard deviation; the weights themselves are uniform in about ±0.1.


def search(
    test: Test, policy: MLP, updates: int, generator: torch.Generator, tests: int, advance: Callable[[int], None],
    point: Tensor | None = None,
) -> None:  # fmt: skip
    """Search by the separable CMA-ES, whose covariance matrix is diagonal: a full one would have 17,000² numbers.

    An update has 256 evaluations. For the domain: 32 candidates, each with motions to the same 8 random targets. For a
    point [3]: 8 generations of 32 candidates, each with one motion. The network becomes the mean of the distribution.
    """
    import cma  # An optional dependency.

    seed = int(torch.randint(1 << 31, (), generator=generator))
    normal = np.random.default_rng(seed).standard_normal
    options = {
        "verbose": -9, "seed": math.nan, "randn": lambda *shape: normal(shape), "popsize": POPULATION,
        "CMA_diagonal": True, "maxiter": math.inf,
    }  # fmt: skip
    each = BATCH // POPULATION
    strategy = cma.CMAEvolutionStrategy(_vector(policy), SIGMA, options)
    when = {round(updates * k / tests) for k in range(tests + 1)}
    for update in range(updates + 1):
        advance(update)
        if update in when:
            _take(policy, strategy.mean)
            test.add(policy, BATCH * update)
        if update == updates:
            break
        with test.watch, torch.no_grad():
            for _ in range(1 if point is None else each):
                targets = test.world.targets(each, generator) if point is None else point[None]
                population, values = strategy.ask(), []
                for candidate in population:
                    _take(policy, candidate)
                    values.append(float(losses(test.world, policy, test.observes, targets).mean()))
                strategy.tell(population, values)
    _take(policy, strategy.mean)


def _vector(policy: MLP) -> np.ndarray:
    return parameters_to_vector(policy.parameters()).detach().double().numpy()


def _take(policy: MLP, weights: np.ndarray) -> None:
    with torch.no_grad():
        vector_to_parameters(torch.as_tensor(weights, dtype=policy.dtype), policy.parameters())
