"""Learning by the gradient: controllers, and with them the hardware of their robots."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...adjoints import Truncated
from ...learn.gradients import ClipCount, descend
from ..gait.world import GaitWorld
from .controller import SymmetricNetwork
from .hardware import MEASURES
from .motion import Motions, losses, move_all

RATE, HARDWARE_RATE, BETAS = 1e-2, 2e-2, (0.9, 0.99)  # Adam's; rates of weights and of coordinates of measures.
CUT, CLIP = 400, 3.0  # Steps after which gradients are cut; largest norm of a state's.
STEEPEST = 1.0  # Largest norm of a gradient of all that is learned.
AHEAD, FASTER = 0.5, 1.1  # The velocity that is aimed at is the best so far, times this, and this more, m/s.
PATIENCE, SLOWER = 15, 0.8  # After so many evaluations that are not better, learning returns to the best, slower.


class Robot(nn.Module):
    """A network, and the coordinates of its robot's measures, [9]: all that may be learned."""

    def __init__(self, generator: torch.Generator, hardware: bool) -> None:
        super().__init__()
        self.network = SymmetricNetwork(generator)
        self.hardware = nn.Parameter(torch.zeros(len(MEASURES), dtype=torch.float64), requires_grad=hardware)

    def learned(self) -> list[nn.Parameter]:
        return [x for x in self.parameters() if x.requires_grad]


@dataclass
class Curve:
    """What one seed evaluated, in order, and the best of it."""

    speeds: list[float] = field(default_factory=list)
    """Mean velocity over the whole motion, m/s."""
    fell: list[bool] = field(default_factory=list)
    best: float = 0.0
    """The largest speed of a motion without a fall, m/s."""
    best_at: int = 0
    """Its evaluation."""
    best_state: dict[str, Tensor] = field(default_factory=dict)
    """The robot's `state_dict` then."""

    def add(self, speed: float, fell: bool, robot: Robot) -> None:
        self.speeds.append(round(speed, 4))
        self.fell.append(fell)
        if not self.best_state or (not fell and speed > self.best):
            self.best, self.best_at = (0.0 if fell else speed), len(self.speeds)
            self.best_state = {name: x.detach().clone() for name, x in robot.state_dict().items()}


@dataclass
class Learned:
    """What a method found: the curves of all seeds, seconds of the processor, and updates that were left out."""

    curves: list[Curve]
    cpu_seconds: float
    left_out: int = 0


def all_motions(world: GaitWorld, robots: Sequence[Robot], differentiable: bool = True) -> Motions:
    hardware = torch.stack([robot.hardware for robot in robots])
    adjoint, clip = (Truncated(CUT), CLIP) if differentiable else (None, None)
    return move_all(world, [robot.network for robot in robots], hardware, adjoint, clip)


class Learner:
    """Learns one robot by Adam. It aims at a velocity somewhat above that of its best motion, and returns to it, with
    a lower rate, when it has not found a better one for some time."""

    def __init__(self, robot: Robot) -> None:
        self.robot, self.curve, self.counts = robot, Curve(), ClipCount()
        groups: list[dict[str, Any]] = [{"params": list(robot.network.parameters())}]
        if robot.hardware.requires_grad:
            groups.append({"params": [robot.hardware], "lr": HARDWARE_RATE})
        self.adam = torch.optim.Adam(groups, RATE, BETAS)
        self._best_adam = deepcopy(self.adam.state_dict())
        self._stalled = 0

    @property
    def target(self) -> float:
        """Velocity that is aimed at, m/s."""
        return FASTER * self.curve.best + AHEAD

    def note(self, speed: float, fell: bool) -> None:
        """An evaluation of the robot as it is."""
        self.curve.add(speed, fell, self.robot)
        self._stalled += 1
        if self.curve.best_at == len(self.curve.speeds):
            self._stalled, self._best_adam = 0, deepcopy(self.adam.state_dict())

    def update(self) -> None:
        descend(self.robot, self.adam, STEEPEST, self.counts)
        if self._stalled >= PATIENCE:
            rates = [SLOWER * group["lr"] for group in self.adam.param_groups]
            self.robot.load_state_dict(self.curve.best_state)
            self.adam.load_state_dict(self._best_adam)
            for group, rate in zip(self.adam.param_groups, rates, strict=True):
                group["lr"] = rate
            self._stalled = 0


def learn(world: GaitWorld, robots: Sequence[Robot], evaluations: int, advance: Callable[[int], None]) -> Learned:
    """Update robots by the gradient. An evaluation is one motion and its gradient. The robots do not know of each
    other; they are simulated at once."""
    learners = [Learner(robot) for robot in robots]
    began = time.process_time()
    for k in range(evaluations):
        advance(k)
        motions = all_motions(world, robots)
        targets = torch.tensor([learner.target for learner in learners], dtype=world.simulator.dtype)
        for learner in learners:
            learner.adam.zero_grad()
        losses(motions, targets, world.simulator.dt).sum().backward()
        results = zip(motions.speeds(world.seconds).tolist(), motions.fallen()[-1].tolist(), strict=True)
        for learner, (speed, fell) in zip(learners, results, strict=True):
            learner.note(speed, fell)
            learner.update()
    advance(evaluations)
    left_out = sum(learner.counts.not_finite for learner in learners)
    return Learned([learner.curve for learner in learners], time.process_time() - began, left_out)
