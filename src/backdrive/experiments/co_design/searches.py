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
from .hardware import measures
from .learning import Evaluations, Learned, Robot
from .motion import Result, move, results

POPULATION = 20  # cma's default for 501 unknowns is 22.
SIGMA = 0.1  # Initial standard deviation.


def search(
    world: GaitWorld, robots: Sequence[Robot], seeds: Sequence[int], evaluations: int, advance: Callable[[int], None]
) -> Learned:
    """Search from each robot on its own, for the longest way before a fall. Candidates are simulated at once."""
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
    curves = [Evaluations(evaluations, world.seconds) for _ in robots]
    began = time.process_time()
    while any(not curve.full for curve in curves):
        advance(min(len(curve.speeds) for curve in curves))
        for robot, strategy, curve in zip(robots, strategies, curves, strict=True):
            asked = strategy.ask()
            candidates = [_with(robot, x) for x in asked]
            found = evaluate(world, candidates)
            for one, candidate in zip(found, candidates, strict=True):
                curve.add(one, candidate)
            strategy.tell(asked, [-one.distance for one in found])
    advance(evaluations)
    return Learned(curves, time.process_time() - began)


@torch.no_grad()
def evaluate(world: GaitWorld, robots: Sequence[Robot]) -> Sequence[Result]:
    """The results of robots, simulated at once."""
    values = measures(torch.stack([robot.hardware for robot in robots]))
    targets = torch.stack([robot.network.targets(world.times()) for robot in robots], 1)
    return results(world, move(world, targets, values), values)


def _with(robot: Robot, x: np.ndarray) -> Robot:
    """A copy of a robot in which these numbers are what is learned."""
    other = deepcopy(robot)
    with torch.no_grad():
        vector_to_parameters(torch.as_tensor(x), other.learned())
    return other
