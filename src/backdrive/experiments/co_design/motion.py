"""Motions of robots with different measures, simulated at once, and what they are worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...adjoints import Truncated
from ...model import State
from ...trajectory import Trajectory
from ..gait.controller import PeriodicNetwork
from ..gait.world import HEADROOM, Design, GaitWorld, parameters, speed, upright
from .hardware import MEASURES, design, measures, nominal

_LENGTH, _WIDTH = (list(MEASURES).index(name) for name in ("trunk_length", "trunk_width"))
PRESSED = 1e-4  # Feet start so deep in the floor, m: at 0, rounding would decide whether they touch it.
GROUND = 0.01  # A robot whose trunk is lower than this has fallen, m.
CAREFUL = 0.1  # The loss counts until so long after a fall, s.
LOW, LOWNESS, TILT, TURN = 0.15, 10.0, 5.0, 1.0  # Height below which a trunk costs (m); weights, see `losses`.


class Motions(NamedTuple):
    """Motions of B robots. path: their states. values: their measures, [B, 9]."""

    path: Trajectory
    values: Tensor

    def speeds(self, seconds: float) -> Tensor:
        """Mean velocities along x, [B], m/s."""
        return speed(self.path, seconds).detach()

    def fallen(self) -> Tensor:
        """Whether the robots have fallen up to a time, [T+1, B]."""
        return fallen(self.path.q, self.values)

    def distances(self) -> Tensor:
        """How far the robots come along x before they fall, [B], m."""
        down = self.fallen()
        last = (~down).sum(0).clamp(min=1) - 1
        return self.path.q[last, torch.arange(len(last)), 0].detach()


def clearance(q: Tensor, values: Tensor) -> Tensor:
    """Heights of the trunks' lowest corners, [..., B], m, for q [..., B, nq] and measures [B, 9]; smooth."""
    w, x, y, z = q[..., 3:7].unbind(-1)
    axes = (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y))  # Their z components.
    sizes = (values[..., _LENGTH].detach(), values[..., _WIDTH].detach(), nominal().trunk_height)
    below = [size * (0.5 * (axis.square() + 1e-6).sqrt()) for axis, size in zip(axes, sizes, strict=True)]
    return q[..., 2] - below[0] - below[1] - below[2]


@torch.no_grad()
def fallen(q: Tensor, values: Tensor) -> Tensor:
    """Whether robots have fallen up to a time, [T+1, B], for q [T+1, B, nq] and measures [B, 9]."""
    now = (clearance(q, values) < GROUND) | (upright(q) < HEADROOM) | ~q.isfinite().all(-1)
    return now.cumsum(0) > 0


def start_world(physics: str = "mujoco", seconds: float = 8.0) -> GaitWorld:
    """The world of the nominal robot, in which robots of all measures move."""
    return GaitWorld(nominal(), physics=physics, seconds=seconds)


def standing(world: GaitWorld, design: Design) -> State:
    """A robot stands still, with its feet on the floor."""
    q, v = world.start(design=design)
    return State(torch.cat([q[:2], q[2:3] - PRESSED, q[3:]]), v)


def move(
    world: GaitWorld, targets: Tensor, values: Tensor, adjoint: Truncated | None = None, clip: float | None = None
) -> Motions:
    """The motions of robots with measures [B, 9] for target angles of their joints [T, B, nu], rad; differentiable."""
    designs = [design(row) for row in values]
    each = [parameters(world, d) for d in designs]
    starts = [standing(world, d) for d in designs]
    start = State(torch.stack([x.q for x in starts]), torch.stack([x.v for x in starts]))
    found = {name: torch.stack([x[name] for x in each]) for name in each[0]}
    return Motions(world.move(targets, start, parameters=found, adjoint=adjoint, clip=clip), values)


def move_all(
    world: GaitWorld, networks: Sequence[PeriodicNetwork], hardware: Tensor, adjoint: Truncated | None = None,
    clip: float | None = None,
) -> Motions:  # fmt: skip
    """The motions of networks on robots with coordinates of measures [B, 9]; differentiable."""
    targets = torch.stack([network.targets(world.times()) for network in networks], 1)
    return move(world, targets, measures(hardware), adjoint, clip)


def losses(motions: Motions, targets: Tensor, dt: float) -> Tensor:
    """What the robots are to make small, [B], m/s: the distance of their velocity from a target [B], m/s, the trunk's
    lack of height, its tilt, and how far it turned from its way; a mean over time until shortly after a fall."""
    path = motions.path
    off = ((path.v[..., 0] - targets).square() + 0.01).sqrt()
    low = (LOW - clearance(path.q, motions.values)).clamp(min=0.0)
    turned = 2.0 * (path.q[..., 5].square() + path.q[..., 6].square())
    each = off + LOWNESS * low + TILT * (1.0 - upright(path.q)) + TURN * turned
    lag = round(CAREFUL / dt)
    still = torch.cat([torch.ones_like(each[:lag]), (~motions.fallen()[:-lag]).to(each)])
    return (each * still).sum(0) / still.sum(0)
