"""Learning by the gradient of one motion of 8 s after another."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...adjoints import Truncated
from ...trajectory import Trajectory
from .controller import PeriodicNetwork
from .world import Design, GaitWorld, ahead, fallen, lowest_corner, speed, upright

EVALUATIONS = 500  # The paper's: motions of 8 s with their gradients.
STARTS, TRIAL = 6, 0.05  # So many random networks learn for this part of the evaluations; the fastest goes on.
RATE, LEAST_RATE, SLOWER = 5e-3, 0.15, 0.8  # Adam's; the least factor of it, and by how much a return reduces it.
PATIENCE = 12  # Evaluations without a faster motion after which learning returns to the fastest.
STEEPEST = 1.0  # Largest norm of the gradient.
CLIP = 1.0  # Largest norm of the loss's derivative with respect to the state between two steps.
FASTER, HASTE = 1.1, 1.0  # The aim is so many times the best speed, plus so much, m/s.
ASTRAY = 0.02  # A return moves the weights by this standard deviation, or else the same updates would follow again.
CLEARANCE, LOW, TILT, TURN = 0.2, 10.0, 3.0, 3.0  # Of the trunk's corners, m; weights of what keeps it level.
AFTER = 0.3  # A fallen robot's motion counts for so long, s.


@dataclass
class SpeedCurve:
    """Each evaluation's speed over 8 s, m/s, and whether the robot fell; seconds up to it."""

    speed: list[float] = field(default_factory=list)
    fell: list[bool] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def best(self) -> list[float]:
        """The largest speed without a fall up to each evaluation; 0 before the first."""
        best, found = 0.0, list[float]()
        for v, fell in zip(self.speed, self.fell, strict=True):
            best = best if fell else max(best, v)
            found.append(best)
        return found

    def append(self, other: SpeedCurve) -> None:
        """Add the evaluations of another search, which came after these."""
        past = self.cpu_seconds[-1] if self.cpu_seconds else 0.0
        self.speed += other.speed
        self.fell += other.fell
        self.cpu_seconds += [round(past + x, 3) for x in other.cpu_seconds]


def loss_of(world: GaitWorld, path: Trajectory, aim: float | Tensor, design: Design | None = None) -> Tensor:
    """The mean over the motion, up to shortly after a fall, of (v - aim)²/(2 aim) and of what keeps the trunk level;
    of a batch of robots, [B], for one aim or [B], m/s. design: as `lowest_corner` has it."""
    q, v = path.q, path.v[..., 0]
    late = round(AFTER / world.simulator.dt)
    up = ~fallen(world, q, design)
    counts = torch.cat([torch.ones_like(up[:late]), up[:-late]])[: len(up)].to(q.dtype)
    low = (CLEARANCE - lowest_corner(world, q, design)).clamp(min=0.0)
    each = (v - aim).square() / (2.0 * aim) + LOW * low + TILT * (1.0 - upright(q)) + TURN * (1.0 - ahead(q))
    return (each * counts).sum(0) / counts.sum(0)


def learn_from_the_fastest(
    world: GaitWorld, evaluations: int, generator: torch.Generator, advance: Callable[[int], None]
) -> tuple[PeriodicNetwork, SpeedCurve]:
    """Let several random networks learn for a while, and go on with the one whose motion is the fastest.

    The evaluations of all networks count.
    """
    curve, each, best = SpeedCurve(), max(1, round(TRIAL * evaluations)), -1.0
    for _ in range(STARTS):
        trial = PeriodicNetwork(generator)
        found = learn(world, trial, each, generator, lambda done: advance(len(curve.speed) + done))
        curve.append(found)
        if found.best()[-1] > best:
            best, network = found.best()[-1], trial
    curve.append(
        learn(world, network, evaluations - len(curve.speed), generator, lambda done: advance(STARTS * each + done))
    )
    return network, curve


def learn(
    world: GaitWorld, network: PeriodicNetwork, evaluations: int, generator: torch.Generator,
    advance: Callable[[int], None], clip: float | None = CLIP, window: float | None = None,
) -> SpeedCurve:  # fmt: skip
    """Update the network by Adam; it becomes the one with the fastest motion without a fall.

    An evaluation is one motion and its gradient. After `PATIENCE` evaluations that were not faster, learning returns to
    the fastest motion, and moves on from near there. clip: as `Simulator.rollout` has it. window: the time over which
    gradients go back at most, s; None: to the start.
    """
    adam = torch.optim.Adam(network.parameters(), RATE, betas=(0.9, 0.99))
    adjoint = None if window is None else Truncated(round(window / world.simulator.dt))
    curve, best, kept, waited, began = SpeedCurve(), 0.0, None, 0, time.process_time()
    times = world.times()
    for k in range(evaluations):
        advance(k)
        before = copy.deepcopy((network.state_dict(), adam.state_dict()))
        path = world.move(network.targets(times), adjoint=adjoint, clip=clip)
        adam.zero_grad()
        loss_of(world, path, FASTER * best + HASTE).backward()
        reached, fell = float(speed(path, world.seconds).detach()), bool(fallen(world, path.q)[-1])
        if not fell and reached > best:
            best, kept, waited = reached, before, 0
        else:
            waited += 1
        curve.speed.append(reached)
        curve.fell.append(fell)
        if waited >= PATIENCE and kept is not None:
            rate = max(LEAST_RATE * RATE, SLOWER * adam.param_groups[0]["lr"])
            network.load_state_dict(kept[0])
            adam.load_state_dict(copy.deepcopy(kept[1]))
            adam.param_groups[0]["lr"], waited = rate, 0
            with torch.no_grad():
                for weights in network.parameters():
                    weights.add_(torch.randn(weights.shape, generator=generator, dtype=weights.dtype), alpha=ASTRAY)
        elif bool(torch.isfinite(torch.nn.utils.clip_grad_norm_(network.parameters(), STEEPEST))):
            adam.step()
        curve.cpu_seconds.append(round(time.process_time() - began, 3))
    if kept is not None:
        network.load_state_dict(kept[0])
    return curve
