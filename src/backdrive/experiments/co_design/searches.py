"""CMA-ES on all that the gradient learns: the weights of the same networks, and the coordinates of the measures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from copy import deepcopy

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ..gait.world import GaitWorld
from .learning import Curve, Learned, Robot, all_motions

POPULATION = 20  # cma's default for 502 unknowns is 22; 20 divides 500 evaluations.
SIGMA = 0.1  # Initial standard deviation.


def search(
    world: GaitWorld, robots: Sequence[Robot], seeds: Sequence[int], evaluations: int, advance: Callable[[int], None]
) -> Learned:
    """Search from each robot on its own, for the longest way before a fall. All candidates are simulated at once."""
    import cma  # An optional dependency.

    strategies = []
    for robot, seed in zip(robots, seeds, strict=True):
        normal = np.random.default_rng(seed).standard_normal
        options = {
            "verbose": -9, "seed": math.nan, "randn": lambda *shape, normal=normal: normal(shape),
            "popsize": POPULATION, "maxiter": math.inf,
        }  # fmt: skip
        first = parameters_to_vector(robot.learned()).detach().numpy()
        strategies.append(cma.CMAEvolutionStrategy(first, SIGMA, options))
    curves = [Curve() for _ in robots]
    began = time.process_time()
    for done in range(0, evaluations, POPULATION):
        advance(done)
        asked = [strategy.ask() for strategy in strategies]
        candidates = [[_with(robot, x) for x in xs] for robot, xs in zip(robots, asked, strict=True)]
        everyone = [robot for group in candidates for robot in group]
        with torch.no_grad():
            motions = all_motions(world, everyone, differentiable=False)
        results = zip(motions.speeds(world.seconds).tolist(), motions.fallen()[-1].tolist(), strict=True)
        for k, (speed, fell) in enumerate(results):
            curves[k // POPULATION].add(speed, fell, everyone[k])
        values = (-motions.distances()).nan_to_num(nan=0.0).view(len(robots), -1).tolist()
        for strategy, xs, found in zip(strategies, asked, values, strict=True):
            strategy.tell(xs, found)
    advance(evaluations)
    return Learned(curves, time.process_time() - began)


def _with(robot: Robot, x: np.ndarray) -> Robot:
    """A copy of a robot in which these numbers are what is learned."""
    other = deepcopy(robot)
    with torch.no_grad():
        vector_to_parameters(torch.as_tensor(x), other.learned())
    return other
