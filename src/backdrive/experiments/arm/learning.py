"""Learning by the gradient: every update is one batch of motions to random targets."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...learn.gradients import ClipCount, descend
from ...policy import MLP
from .controller import inputs
from .world import ReachWorld

UPDATES, BATCH = 2563, 256  # The paper's: 2,563 updates, 656,128 evaluations.
WARM_UP, STEEPEST = 20, 1.0  # Updates until the learning rate is largest; largest norm of the gradient.
SETTLED = 0.3  # The tip is to be at the target for so long at the end of a motion, s.
SOFT, HURRY = 0.01, 0.3  # Distances that count as small, m; weight of the whole motion's squared distances, 1/m.
TESTS, TEST_SEED = 1000, 20_160_517  # Targets on which all networks are tested: the same for all seeds.


@dataclass
class ErrorCurve:
    """Errors on the way, m: of the tip at the end of motions to the test targets."""

    evaluations: list[int] = field(default_factory=list)
    """Motions that were simulated for learning."""
    seconds: list[float] = field(default_factory=list)
    """Of learning, without the tests, by the clock."""
    cpu_seconds: list[float] = field(default_factory=list)
    """The same, of processor time."""
    mean: list[float] = field(default_factory=list)
    median: list[float] = field(default_factory=list)


class Stopwatch:
    """Seconds by the clock and of the processor, while it runs."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0

    def __enter__(self) -> Stopwatch:
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began[0]
        self.cpu_seconds += time.process_time() - self._began[1]


class Test:
    """The test targets of a world, the curve of a network's errors on them, and the count of updates left out."""

    def __init__(self, world: ReachWorld, observes: str, targets: Tensor | None = None) -> None:
        self.world, self.observes, self.curve, self.watch = world, observes, ErrorCurve(), Stopwatch()
        self.clips = ClipCount()
        given = world.targets(TESTS, torch.Generator().manual_seed(TEST_SEED)) if targets is None else targets
        self.targets, self.inputs = given, inputs(world, observes, given)

    @torch.no_grad()
    def errors(self, policy: MLP, own: bool = False) -> Tensor:
        """Distances of the tip from the targets, [T+1, targets], m. own: with the robot's own actuators."""
        reach = self.world.reach_by_servos if own else self.world.reach
        return self.world.misses(reach(policy, self.inputs), self.targets).norm(dim=-1)

    def add(self, policy: MLP, evaluations: int) -> None:
        end, curve = self.errors(policy)[-1], self.curve
        curve.evaluations.append(evaluations)
        curve.seconds.append(round(self.watch.seconds, 3))
        curve.cpu_seconds.append(round(self.watch.cpu_seconds, 3))
        curve.mean.append(float(end.mean()))
        curve.median.append(float(end.median()))


def losses(world: ReachWorld, policy: MLP, observes: str, targets: Tensor, clip: float | None = None) -> Tensor:
    """The loss of each motion to its target, [B]: the distance while the tip is to be there, and a part of the squared
    distance all the way, so that it hurries. clip: as `Simulator.rollout` has it."""
    squares = world.misses(world.reach(policy, inputs(world, observes, targets), clip), targets).square().sum(-1)
    last = round(SETTLED / world.simulator.dt)
    return (squares[-last:] + SOFT**2).sqrt().mean(0) + HURRY * squares.mean(0)


def learn(
    test: Test, policy: MLP, updates: int, generator: torch.Generator, tests: int, advance: Callable[[int], None]
) -> None:
    """Update the network by Adam, whose learning rate falls to zero as a cosine. tests: how often it is tested.

    An update whose gradient is not finite is left out and counted.
    """
    world, (rate, clip) = test.world, test.world.limits
    clip = None if clip is None else clip / BATCH  # The loss is the mean of the batch's.
    adam = torch.optim.Adam(policy.parameters(), rate, fused=True)
    when = {round(updates * k / tests) for k in range(tests + 1)}
    for update in range(updates + 1):
        advance(update)
        if update in when:
            test.add(policy, BATCH * update)
        if update == updates:
            break
        with test.watch:
            for group in adam.param_groups:
                group["lr"] = (
                    rate * min(1.0, (update + 1) / WARM_UP) * (0.5 + 0.5 * math.cos(math.pi * update / updates))
                )
            adam.zero_grad()
            losses(world, policy, test.observes, world.targets(BATCH, generator), clip).mean().backward()
            descend(policy, adam, STEEPEST, test.clips)
