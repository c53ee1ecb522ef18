"""The network that moves the arm, and what it observes."""

from __future__ import annotations

import torch
from torch import Tensor

from ...policy import MLP, Sensor
from .world import ReachWorld

HIDDEN = (76, 192)
"""Neurons of the hidden layers: with 18 observations and 4 controls the network has 17,000 parameters."""
RATE, PLACE = 3.0, 0.5  # The units in which networks see the joints' rates and all places, rad/s and m.
TARGET = [PLACE, PLACE, PLACE, PLACE, 1.0, 1.0, PLACE]  # The units of the numbers that `encoded` gives.
CALM = 0.1
"""Scale of the last layer's first weights: the first motions are slow, and their gradients small."""


def controller(world: ReachWorld, observes: str, generator: torch.Generator) -> MLP:
    """A network with random weights; its outputs span the limits of the controls.

    observes: besides the target, "feedback": the joints' angles and rates, and the tip's position; "time": the time of
    the motion; "target": nothing.
    """
    sensors: tuple[Sensor, ...] = ("q", "v", ("position", world.tip)) if observes == "feedback" else ()
    joints = [1.0] * world.model.nq + [RATE] * world.model.nv + [PLACE] * 3 if sensors else []
    scale = torch.tensor([*joints, *([1.0] if observes == "time" else []), *TARGET])
    low, high = torch.tensor(world.model.control_limits).T
    policy = MLP(
        (len(scale), *HIDDEN, world.model.nu), activation="elu", output="tanh", sensors=sensors, low=low, high=high,
        normalize=True, hold=world.hold, dtype=world.simulator.dtype, generator=generator,
    )  # fmt: skip
    policy.observation_std.copy_(scale)
    with torch.no_grad():
        if sensors:  # At first, the network sees the tip's position only as its difference from the target's.
            first = policy.linear[0].weight
            first[:, -len(TARGET) - 3 : -len(TARGET)] = -first[:, -len(TARGET) : 3 - len(TARGET)]
        for parameter in policy.linear[-1].parameters():
            parameter.mul_(CALM)
    return policy


def inputs(world: ReachWorld, observes: str, targets: Tensor) -> Tensor:
    """What a network observes besides its sensors, [decisions, B, 7 or 8]: the time, from -1 to 1, and the target."""
    points = encoded(targets).expand(world.decisions, -1, -1)
    if observes != "time":
        return points
    clock = torch.linspace(-1.0, 1.0, world.decisions, dtype=targets.dtype)
    return torch.cat([clock[:, None, None].expand(-1, len(targets), 1), points], -1)


def encoded(targets: Tensor) -> Tensor:
    """Targets [..., 3] as networks observe them, [..., 7].

    These are x, y, z, the distance from the vertical axis, cosine and sine of the azimuth, and the distance from the
    origin. The azimuth is as clear near the vertical axis as far from it.
    """
    flat = targets[..., :2]
    radius = flat.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    return torch.cat([targets, radius, flat / radius, targets.norm(dim=-1, keepdim=True)], -1)


def parameters_of(policy: MLP) -> int:
    return sum(parameter.numel() for parameter in policy.parameters())
