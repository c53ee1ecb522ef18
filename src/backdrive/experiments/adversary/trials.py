"""Gaits of 8 s under disturbances that no policy has learned from: which share is survived."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ...model import State
from ...policy import MLP
from ...trajectory import Trajectory
from .disturbances import Disturbance
from .world import HOLD, SPEED, DisturbedWorld

TRIALS, TEST_SEED, CHUNK = 512, 20_161_109, 64
IMPULSES = (0.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0)  # Of each test push, N s.
PUSHES = 3  # In each trial.
FIRST, LAST = 1.0, 7.0  # Pushes begin between these times, s.
DURATIONS = (0.04, 0.6)  # s; those of learning last 0.48 s at most.
FRICTION, MASSES = (0.25, 1.1), (0.6, 1.5)  # Beyond those of learning: see `DisturbanceBounds`.
ON = 1.0 / 3.0  # Least mean speed of a robot that moves forward, as a share of what it is asked for.


@dataclass(frozen=True)
class TrialScore:
    """Of the trials with one size of pushes: the share that is survived, the shares that fall and that only do not move
    forward, and the mean speed of survivors, m/s."""

    impulse: float
    survived: float
    fell: float
    slow: float
    speed: float


def trials(world: DisturbedWorld, impulse: float, count: int = TRIALS) -> Disturbance:
    """The test's disturbances, of whole gaits: the same for all policies, and but for their size for all impulses.

    Each has three pushes of this impulse (N s); direction, start, duration, friction and masses are uniform.
    """
    generator = torch.Generator().manual_seed(TEST_SEED)
    dtype, decide = world.simulator.dtype, world.decide

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64)

    times = decide * torch.arange(world.decisions, dtype=torch.float64)[:, None, None]
    third = (LAST - FIRST) / PUSHES
    duration = uniform(*DURATIONS, count, PUSHES)
    first = FIRST + third * (torch.arange(PUSHES) + uniform(0.0, 1.0, count, PUSHES))
    angle = uniform(-math.pi, math.pi, count, PUSHES)
    share = ((first + duration - times).clamp(max=decide) - (first - times).clamp(min=0.0)).clamp(min=0.0) / decide
    direction = torch.stack([angle.cos(), angle.sin()], -1)
    forces = impulse * ((share / duration)[..., None] * direction).sum(2)
    friction, masses = uniform(*FRICTION, count), uniform(*MASSES, count, world.model.nbody)
    return Disturbance(forces.to(dtype), friction.to(dtype), masses.to(dtype))


def part(disturbance: Disturbance, rows: slice) -> Disturbance:
    """The disturbances of some robots."""
    return Disturbance(disturbance.forces[:, rows], disturbance.friction[rows], disturbance.masses[rows])


@torch.no_grad()
def outcomes(world: DisturbedWorld, policy: MLP, disturbance: Disturbance) -> tuple[Tensor, Tensor]:
    """Of each gait of 8 s from standstill: whether it falls, bool [B], and its mean speed along x, [B], m/s."""
    falls, speeds = [], []
    for k in range(0, len(disturbance.friction), CHUNK):
        some = part(disturbance, slice(k, k + CHUNK))
        count = len(some.friction)
        path = world.go(policy, world.start(count), torch.zeros(count, dtype=world.simulator.dtype), some)
        falls.append(falling(world, path).any(0))
        speeds.append(path.last.q[:, 0] / world.seconds)
    return torch.cat(falls), torch.cat(speeds)


def falling(world: DisturbedWorld, path: Trajectory) -> Tensor:
    """Whether the robot is on the ground after each decision, bool [D, B]; a motion that is not finite is a fall."""
    q, v = path.q[HOLD::HOLD], path.v[HOLD::HOLD]
    down = world.fallen(State(q.flatten(0, 1), v.flatten(0, 1))).unflatten(0, q.shape[:2])
    return down | ~torch.isfinite(q).all(-1)


def survival(fell: Tensor, speed: Tensor) -> Tensor:
    """Which gaits are survived, bool [B]: those without a fall, at a third or more of the speed that was asked for."""
    return ~fell & (speed >= ON * SPEED)


def score(world: DisturbedWorld, policy: MLP, impulse: float, count: int = TRIALS) -> TrialScore:
    fell, speed = outcomes(world, policy, trials(world, impulse, count))
    survived = survival(fell, speed)
    slow = ~fell & ~survived
    mean = float(speed[survived].mean()) if bool(survived.any()) else 0.0
    shares = [float(x.double().mean()) for x in (survived, fell, slow)]
    return TrialScore(impulse, shares[0], shares[1], shares[2], mean)


def nominal(world: DisturbedWorld, policy: MLP) -> dict[str, Any]:
    """The gait without disturbances: whether it falls, and its mean speed, m/s."""
    fell, speed = outcomes(world, policy, world.calm(world.decisions, 1))
    return {"fell": bool(fell), "speed": float(speed)}


def curve(world: DisturbedWorld, policy: MLP, count: int = TRIALS) -> list[dict[str, float]]:
    """The scores for all sizes of pushes."""
    return [asdict(score(world, policy, impulse, count)) for impulse in IMPULSES]
