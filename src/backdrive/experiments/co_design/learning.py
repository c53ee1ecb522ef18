"""Learning by the gradient: controllers, and with them the hardware of their robots."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...learn.gradients import ClipCount, descend
from ..gait.learning import (
    ASTRAY,
    CLIP,
    FASTER,
    HASTE,
    LEAST_RATE,
    PATIENCE,
    RATE,
    SLOWER,
    STARTS,
    STEEPEST,
    TRIAL,
    loss_of,
)
from ..gait.world import GaitWorld
from .controller import SymmetricNetwork
from .hardware import MEASURES, design, measures
from .motion import Result, move, own_world, results

FREQUENCY = 8.0  # Of the networks' sine, Hz.
HARDWARE_RATE, BETAS = 1.0, (0.9, 0.99)  # Adam's; the rate of the coordinates of measures.
HARDWARE_ASTRAY = 0.5  # A return moves the coordinates of measures by this standard deviation.


class Robot(nn.Module):
    """A network, and the coordinates of its robot's measures, [9]: all that may be learned."""

    def __init__(self, generator: torch.Generator, hardware: bool) -> None:
        super().__init__()
        self.network = SymmetricNetwork(generator, frequency=FREQUENCY)
        self.hardware = nn.Parameter(torch.zeros(len(MEASURES), dtype=torch.float64), requires_grad=hardware)

    def learned(self) -> list[nn.Parameter]:
        return [x for x in self.parameters() if x.requires_grad]


@dataclass
class Evaluations:
    """What one seed evaluated, in order, and the best of it."""

    limit: int
    """Evaluations at most."""
    seconds: float
    """Of a motion."""
    speeds: list[float] = field(default_factory=list)
    """Mean velocity over the whole motion, m/s."""
    fell: list[bool] = field(default_factory=list)
    best: float = 0.0
    """The largest speed of a motion without a fall, m/s."""
    best_at: int = 0
    """Its evaluation."""
    bests: list[float] = field(default_factory=list)
    """`best` after each evaluation, m/s."""
    best_state: dict[str, Tensor] = field(default_factory=dict)
    """The robot's `state_dict` then."""

    @property
    def full(self) -> bool:
        return len(self.speeds) >= self.limit

    def add(self, found: Result, robot: Robot) -> bool:
        """Note an evaluation, and return whether it is the best so far.

        A robot with new measures that seems to be the best moves again in the world of its own file, and only that
        motion counts. It is another evaluation.
        """
        if not self.best_state:
            self._keep(robot)
        if self.full:
            return False
        better = self._note(found)
        if better and bool(robot.hardware.any()):
            if self.full:
                return False
            better = self._note(alone(robot, self.seconds))
        if better:
            self.best = self.bests[-1] = self.speeds[-1]
            self.best_at = len(self.speeds)
            self._keep(robot)
        return better

    def append(self, other: Evaluations) -> None:
        """Add the evaluations of another search with the same limit, which came after these."""
        if other.best > self.best:
            self.best, self.best_at, self.best_state = other.best, len(self.speeds) + other.best_at, other.best_state
        before = max(self.bests, default=0.0)
        self.bests += [max(before, x) for x in other.bests]
        self.speeds += other.speeds
        self.fell += other.fell

    def _note(self, found: Result) -> bool:
        self.speeds.append(round(found.speed, 6))
        self.fell.append(found.fell)
        self.bests.append(self.best)
        return not found.fell and found.speed > self.best

    def _keep(self, robot: Robot) -> None:
        self.best_state = {name: x.detach().clone() for name, x in robot.state_dict().items()}


@torch.no_grad()
def alone(robot: Robot, seconds: float) -> Result:
    """The result of a robot in the world of its own file."""
    values = measures(robot.hardware)
    world = own_world(values, seconds)
    path = move(world, robot.network.targets(world.times())[:, None], values[None])
    return results(world, path, values[None])[0]


@dataclass
class Learned:
    """What a method found: the curves of all seeds, seconds of the processor, and updates that were left out."""

    curves: list[Evaluations]
    cpu_seconds: float
    left_out: int = 0


class RobotLearner:
    """Learns one robot by Adam, as `gait` does: it aims somewhat above the speed of the best motion, and returns to
    that, with a lower rate, when it has not found a better one for some time."""

    def __init__(self, robot: Robot, curve: Evaluations, seed: int) -> None:
        self.robot, self.curve, self.counts = robot, curve, ClipCount()
        self.generator = torch.Generator().manual_seed(seed)
        groups: list[dict[str, Any]] = [{"params": list(robot.network.parameters())}]
        if robot.hardware.requires_grad:
            groups.append({"params": [robot.hardware], "lr": HARDWARE_RATE})
        self.adam = torch.optim.Adam(groups, RATE, BETAS)
        self._first = [group["lr"] for group in self.adam.param_groups]
        self._best_adam = deepcopy(self.adam.state_dict())
        self._waited, self._share = 0, 1.0

    @property
    def aim(self) -> float:
        """m/s."""
        return FASTER * self.curve.best + HASTE

    def note(self, found: Result) -> None:
        """An evaluation of the robot as it is."""
        if self.curve.add(found, self.robot):
            self._waited, self._best_adam = 0, deepcopy(self.adam.state_dict())
        else:
            self._waited += 1

    def update(self) -> None:
        """A step along the gradient, or the return to the best."""
        if self._waited < PATIENCE or self.curve.best_at == 0:
            descend(self.robot, self.adam, STEEPEST, self.counts)
            return
        self.robot.load_state_dict(self.curve.best_state)
        self.adam.load_state_dict(deepcopy(self._best_adam))
        self._waited, self._share = 0, max(LEAST_RATE, SLOWER * self._share)
        for group, first in zip(self.adam.param_groups, self._first, strict=True):
            group["lr"] = self._share * first
        with torch.no_grad():  # Or else the same updates would follow again.
            for x in self.robot.learned():
                size = HARDWARE_ASTRAY if x is self.robot.hardware else ASTRAY
                x.add_(torch.randn(x.shape, generator=self.generator, dtype=x.dtype), alpha=size)


def learn_from_the_fastest(
    world: GaitWorld, seeds: Sequence[int], hardware: bool, evaluations: int, advance: Callable[[int], None]
) -> tuple[list[Robot], Learned]:
    """For each seed, let several networks learn for a while on the nominal robot, and go on with the fastest of them,
    and with its measures if `hardware`. The evaluations of all networks count."""
    each = max(1, round(TRIAL * evaluations))
    trials = [first_robot(seed, hardware=False, start=k) for seed in seeds for k in range(STARTS)]
    found = learn(world, trials, range(len(trials)), each, lambda done: advance(STARTS * done))
    robots, pasts = [], []
    for first in range(0, len(trials), STARTS):
        curves = found.curves[first : first + STARTS]
        best = max(range(STARTS), key=lambda k: curves[k].best)
        robot = trials[first + best]
        robot.load_state_dict(curves[best].best_state)
        robot.hardware.requires_grad_(hardware)
        past = Evaluations(evaluations, world.seconds)
        for curve in curves:
            past.append(curve)
        robots.append(robot)
        pasts.append(past)
    later = learn(world, robots, seeds, evaluations - STARTS * each, lambda done: advance(STARTS * each + done))
    for past, curve in zip(pasts, later.curves, strict=True):
        past.append(curve)
    return robots, Learned(pasts, found.cpu_seconds + later.cpu_seconds, found.left_out + later.left_out)


def first_robot(seed: int, hardware: bool, start: int = 0) -> Robot:
    """The robot of a seed before learning: its measures are nominal. start: of several networks of the seed."""
    return Robot(torch.Generator().manual_seed(STARTS * seed + start), hardware)


def learn(
    world: GaitWorld, robots: Sequence[Robot], seeds: Sequence[int], evaluations: int, advance: Callable[[int], None]
) -> Learned:
    """Update robots by the gradient. An evaluation is one motion, and its gradient if it is an update's. The robots do
    not know of each other; they are simulated at once."""
    learners = [
        RobotLearner(robot, Evaluations(evaluations, world.seconds), seed)
        for robot, seed in zip(robots, seeds, strict=True)
    ]
    began = time.process_time()
    while any(not learner.curve.full for learner in learners):
        advance(min(len(learner.curve.speeds) for learner in learners))
        values = measures(torch.stack([robot.hardware for robot in robots]))
        targets = torch.stack([robot.network.targets(world.times()) for robot in robots], 1)
        path = move(world, targets, values, CLIP)
        aims = torch.tensor([learner.aim for learner in learners], dtype=values.dtype)
        for learner in learners:
            learner.adam.zero_grad()
        loss_of(world, path, aims, design(values.detach().T)).sum().backward()
        for learner, found in zip(learners, results(world, path, values), strict=True):
            learner.note(found)
            learner.update()
    advance(evaluations)
    left_out = sum(learner.counts.not_finite for learner in learners)
    return Learned([learner.curve for learner in learners], time.process_time() - began, left_out)
