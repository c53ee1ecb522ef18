"""Motions of robots with different measures, simulated at once, and of one robot in a world of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...model import State
from ...trajectory import Trajectory
from ..gait.world import SECONDS, GaitWorld, fallen, parameters, speed
from .hardware import design, nominal


def nominal_world(physics: str = "mujoco", seconds: float = SECONDS) -> GaitWorld:
    """The world of the nominal robot, in which robots of all measures move."""
    return GaitWorld(nominal(), physics=physics, seconds=seconds)


def own_world(values: Tensor, seconds: float = SECONDS) -> GaitWorld:
    """The world of the file of a robot with measures [9]."""
    return GaitWorld(design(values), seconds=seconds)


def move(world: GaitWorld, targets: Tensor, values: Tensor, clip: float | None = None) -> Trajectory:
    """The motions of robots with measures [B, 9] for target angles of their joints [T, B, nu], rad; differentiable.
    clip: as `Simulator.rollout` has it.

    Of MuJoCo's physics, one thing stays that of the world's robot: the scale of the softness of contacts and limits
    (``invweight0``), which MuJoCo computes when it compiles a file. In its `own_world`, a robot has its own.
    """
    designs = [design(row) for row in values]
    each = [parameters(world, d) for d in designs]
    starts = [world.start(design=d) for d in designs]
    start = State(torch.stack([x.q for x in starts]), torch.stack([x.v for x in starts]))
    found = {name: torch.stack([x[name] for x in each]) for name in each[0]}
    return world.move(targets, start, parameters=found, clip=clip)


class Result(NamedTuple):
    """Of a motion: its mean velocity along x, m/s; whether the robot fell; how far it came before it fell, m."""

    speed: float
    fell: bool
    distance: float


@torch.no_grad()
def results(world: GaitWorld, path: Trajectory, values: Tensor) -> Sequence[Result]:
    """Of the motions of robots with measures [B, 9]."""
    down = fallen(world, path.q, design(values.T))
    last = (~down).sum(0).clamp(min=1) - 1
    distance = path.q[last, torch.arange(len(last)), 0].nan_to_num()
    of_all = (speed(path, world.seconds).nan_to_num(), down[-1] | ~path.last.q.isfinite().all(-1), distance)
    return [Result(*row) for row in zip(*(x.tolist() for x in of_all), strict=True)]
