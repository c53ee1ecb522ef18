"""The chain, the ball, and observations of their motion."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...identify import Fit, Learn, Observations, fit
from ...model import Box, Circle, Hinge, Model, Scene
from ...simulator import Simulator
from ...trajectory import Trajectory

DT, SECONDS = 1 / 30, 10.0
STEPS = round(SECONDS / DT)
GRAVITY, PUSH, PUSHED = 1.0, 15.0, 0.1  # m/s², N, s
CHAIN, BALL = 7.0, 1.0  # kg
CENTIMETRE = 0.01  # Length of the paper's pixel, m; its loss is in pixels squared.
BOUNDS = (0.05, 200.0)  # Bounds of the learned masses, kg.


class ChainWorld:
    """A chain with a number of links, the ball, and observations of their motion."""

    def __init__(self, links: int) -> None:
        self.links = [f"link {i + 1}" for i in range(links)]
        self.model = build(self.links)
        self.simulator = Simulator(self.model, DT, impacts=True, specialize=False)
        self.wrenches = wrenches(self.model)

    def move(self, mass: Tensor) -> Trajectory:
        """The motion of S chains with masses [S, links] (kg), in one batch."""
        scale = torch.cat(
            [mass * len(self.links) / CHAIN, mass.new_ones(len(mass), 1)], -1
        )  # The ball's mass is known.
        parameters = {name: self.model.parameter(name) * scale for name in ("mass", "inertia")}
        pushed = self.wrenches.unsqueeze(1).expand(-1, len(mass), -1, -1)
        return self.simulator.rollout(self.model.initial_state(len(mass)), wrenches=pushed, parameters=parameters)

    def positions(self, mass: Tensor) -> Tensor:
        """Positions of all bodies, m: [STEPS + 1, S, bodies, 2]."""
        path = self.move(mass)
        return torch.stack([path.position(body) for body in self.model.bodies], 2)

    def truth(self) -> Tensor:
        return torch.full((1, len(self.links)), CHAIN / len(self.links), dtype=torch.float64)

    def observe(
        self, mass: Tensor, noise: float = CENTIMETRE, generator: torch.Generator | None = None
    ) -> Observations:
        """Observations of all bodies at all steps; with a generator, Gaussian noise is added. mass: [1, links]"""
        positions = self.positions(mass)[:, 0]
        if generator is not None:
            positions = positions + noise * torch.randn(positions.shape, generator=generator, dtype=torch.float64)
        moments = torch.arange(STEPS + 1, dtype=torch.float64) * DT
        return Observations(moments, dict(zip(self.model.bodies, positions.unbind(1), strict=True)), noise=noise)

    def total(self, start: float | Tensor, bounds: Any = BOUNDS) -> Learn:
        """Learn the total mass of the chain, shared equally by its links."""
        return Learn("mass", self.links, start=start, bounds=bounds, shared="total")

    def fit(self, observed: Observations, learn: Learn, **options: Any) -> Fit:
        return fit(self.simulator, observed, [learn], wrenches=self.wrenches, **options)

    def mean_square(self, mass: Tensor) -> Tensor:
        """The paper's loss, cm², for total masses [S] (kg): the mean square over all bodies and 10 s; [S]."""
        share = mass.unsqueeze(1).expand(-1, len(self.links)) / len(self.links)
        difference = self.positions(share) - self.positions(self.truth())
        return (difference / CENTIMETRE).square().mean((0, 2, 3))


def build(links: Sequence[str]) -> Model:
    scene = Scene(dim=2, gravity=(0.0, -GRAVITY))
    for i, link in enumerate(links):
        mass = CHAIN / len(links)
        scene.add_body(link, Box(0.2, 0.6), mass=mass, position=(0.0, -0.2 - 0.5 * i), restitution=0.5, friction=0.25)
        anchor = (0.0, 0.0 if i == 0 else 0.05 - 0.5 * i)
        scene.add_joint(f"hinge {i + 1}", Hinge(), parent=links[i - 1] if i else None, child=link, anchor=anchor)
    for a, b in itertools.combinations(links, 2):
        scene.exclude(a, b)
    low = -0.2 - 0.5 * (len(links) - 1)
    scene.add_body("ball", Circle(0.2), mass=BALL, position=(-2.5, low), restitution=1.0, friction=0.25)
    return scene.build()


def wrenches(model: Model) -> Tensor:
    """Wrenches on the ball, [STEPS, bodies, 3]: the push, and a force that balances its weight."""
    forces = torch.zeros(STEPS, model.nbody, 3, dtype=torch.float64)
    ball = forces[:, model.body_index("ball")]
    ball[: round(PUSHED / DT), 0] = PUSH
    ball[:, 1] = BALL * GRAVITY
    return forces
