"""What the adversary does to a policy that does not learn any more: how much worse it gets, and what it chooses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...model import State
from .disturbances import Disturbance, DisturbanceBounds
from .learning import ASCENT, DECISIONS, GaitNetworks, Robots, losses, short_window
from .world import FREQUENCY, HOLD, DisturbedWorld

ATTACKED, STEPS = 256, 10  # Windows, and the adversary's steps in each.


@torch.no_grad()
def walking(world: DisturbedWorld, networks: GaitNetworks, count: int, generator: torch.Generator) -> Robots:
    """Robots in the midst of an undisturbed gait, at random times after its first second."""
    path = world.go(networks.policy, world.start(1), torch.zeros(1, dtype=world.simulator.dtype), world.calm(400, 1))
    when = torch.randint(50, world.decisions, (count,), generator=generator)
    state = State(path.q[when * HOLD, 0], path.v[when * HOLD, 0])
    return Robots(state, (world.decide * when).to(world.simulator.dtype), torch.ones(count, dtype=torch.bool))


def attack(
    world: DisturbedWorld, networks: GaitNetworks, robots: Robots, disturbance: Disturbance, bounds: DisturbanceBounds,
    steps: int,
) -> tuple[Disturbance, Tensor, Tensor]:  # fmt: skip
    """The disturbance after some of the adversary's steps, the robots' losses before each step and after the last,
    [steps + 1, B], and which robots fall in the last window."""
    found = []
    for step in range(steps + 1):
        leaves = disturbance.leaves()
        window, _ = short_window(world, networks.policy, robots, leaves)
        loss = losses(window, networks)
        found.append(loss.detach())
        if step < steps:
            slope = Disturbance(*torch.autograd.grad(loss.sum(), leaves))
            disturbance = bounds.ascend(disturbance, slope, world.decide, ASCENT)
    return disturbance, torch.stack(found), window.terminated.any(0)


def attacked(
    world: DisturbedWorld, networks: GaitNetworks, bounds: DisturbanceBounds, generator: torch.Generator
) -> dict[str, Any]:
    """What the adversary makes of random disturbances: mean losses by step, shares that fall within the window, and
    its choices in each window."""
    robots = walking(world, networks, ATTACKED, generator)
    chance = bounds.random(
        DECISIONS, ATTACKED, world.model.nbody, world.decide, generator, world.simulator.dtype
    )  # fmt: skip
    worst, loss, fell = attack(world, networks, robots, chance, bounds, STEPS)
    _, _, fell_by_chance = attack(world, networks, robots, chance, bounds, 0)
    push = worst.forces.sum(0)
    size = worst.forces.norm(dim=-1)
    middles = world.decide * (0.5 + torch.arange(DECISIONS))[:, None]
    middle = (size * middles).sum(0) / size.sum(0).clamp(min=1e-9)
    phase = (FREQUENCY * (robots.clock + middle)) % 1.0
    return {
        "loss": loss.mean(1).tolist(),
        "fell": float(fell.double().mean()), "fell_by_chance": float(fell_by_chance.double().mean()),
        "direction_deg": torch.rad2deg(torch.atan2(push[:, 1], push[:, 0])).round().tolist(),
        "impulse": (world.decide * size.sum(0)).tolist(), "middle_s": middle.tolist(),
        "duration_s": (world.decide * (size > 1.0).sum(0)).tolist(), "phase": phase.tolist(),
        "friction": worst.friction.tolist(), "masses": worst.masses.mean(0).tolist(),
    }  # fmt: skip
