"""The ball, the ground, and the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...model import Free, HalfSpace, Model, Scene, Sphere, State
from ...simulator import Simulator
from ...trajectory import Trajectory

DT, SECONDS = 1 / 100, 10.0
STEPS = round(SECONDS / DT)
RADIUS, MASS, HEIGHT = 0.11, 0.43, 1.0  # m, kg, m
DAMPING = 0.011  # Viscous damping of the free joint, N s/m and N m s/rad.
MATERIAL: dict[str, Any] = {"friction": 0.5, "restitution": 0.5, "softness": 0.005}
TARGET = (10.0, 0.0, RADIUS)  # Target of the ball's centre, m.
REST = 1e-3  # The ball is at rest if no point of it is faster, m/s.


@dataclass(frozen=True)
class Landing:
    """The outcome of B throws after 10 s; all fields are [B]."""

    loss: Tensor
    """Distance² + (speed x 1 s)², m²."""
    distance: Tensor
    """Distance of the ball from its target, m."""
    speed: Tensor
    """Upper bound on the speed of any point of the ball: |v| + radius |ω|, m/s."""


class ThrowWorld:
    """The ball, the ground, and the target."""

    def __init__(self) -> None:
        self.model = build()
        self.simulator = Simulator(self.model, DT, impacts=True, pyramid=8)
        self.units = torch.tensor([1.0] * 3 + [1.0 / RADIUS] * 3, dtype=torch.float64)
        self.target = torch.tensor(TARGET, dtype=torch.float64)

    def throw(self, throws: Tensor, steps: int = STEPS) -> Trajectory:
        """The motions of throws [B, 6] (m/s), in one batch."""
        return self.simulator.rollout(State(self.model.initial_state(len(throws)).q, throws * self.units), steps=steps)

    def landing(self, path: Trajectory) -> Landing:
        miss = path.last.q[:, :3] - self.target
        speeds = path.last.v / self.units
        loss = miss.square().sum(-1) + speeds.square().sum(-1)
        return Landing(loss, miss.norm(dim=-1), speeds[:, :3].norm(dim=-1) + speeds[:, 3:].norm(dim=-1))


def build() -> Model:
    scene = Scene(dim=3, gravity=(0.0, 0.0, -9.81))
    scene.add_static(HalfSpace(normal=(0.0, 0.0, 1.0)), **MATERIAL)
    hollow = (2.0 / 3.0 * MASS * RADIUS**2,) * 3
    scene.add_body("ball", Sphere(RADIUS), mass=MASS, inertia=hollow, position=(0.0, 0.0, HEIGHT), **MATERIAL)
    scene.add_joint("air", Free(damping=DAMPING), child="ball")
    return scene.build()
