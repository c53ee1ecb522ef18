"""The network that moves the arm, and what it observes."""

from __future__ import annotations

import torch
from torch import Tensor

from ...policy import MLP, Sensor
from .world import ReachWorld

HIDDEN = (99, 152)
"""Neurons of the hidden layers: with 11 observations and 4 controls the network has 17,000 parameters."""
SENSORS: dict[str, tuple[Sensor, ...]] = {"feedback": ("q", "v"), "target": (), "time": ()}
"""What a network observes of the arm, besides the target; "time" observes the time of the motion, too."""
RATE, PLACE = 3.0, 0.5  # The units in which networks see the joints' rates and the target, rad/s and m.
CALM = 0.1
"""Scale of the last layer's first weights: the first motions are slow, and their gradients small."""


def controller(world: ReachWorld, observes: str, generator: torch.Generator) -> MLP:
    """A network with random weights; its outputs span the limits of the controls."""
    sensors = SENSORS[observes]
    joints = [1.0] * world.model.nq + [RATE] * world.model.nv if sensors else []
    scale = torch.tensor([*joints, *([1.0] if observes == "time" else []), *([PLACE] * 3)])
    low, high = torch.tensor(world.model.control_limits).T
    policy = MLP(
        (len(scale), *HIDDEN, world.model.nu), activation="elu", output="tanh", sensors=sensors, low=low, high=high,
        normalize=True, hold=world.hold, dtype=world.simulator.dtype, generator=generator,
    )  # fmt: skip
    policy.observation_std.copy_(scale)
    with torch.no_grad():
        for parameter in policy.linear[-1].parameters():
            parameter.mul_(CALM)
    return policy


def inputs(world: ReachWorld, observes: str, targets: Tensor) -> Tensor:
    """What a network observes besides its sensors, [decisions, B, 3 or 4]: the time, from -1 to 1, and the target."""
    points = targets.expand(world.decisions, -1, -1)
    if observes != "time":
        return points
    clock = torch.linspace(-1.0, 1.0, world.decisions, dtype=targets.dtype)
    return torch.cat([clock[:, None, None].expand(-1, len(targets), 1), points], -1)


def parameters_of(policy: MLP) -> int:
    return sum(parameter.numel() for parameter in policy.parameters())
