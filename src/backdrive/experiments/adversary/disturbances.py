"""What an adversary, or chance, does to a robot: pushes on its trunk, the friction of the floor, and masses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...model import Model, checks

HALVINGS = 40  # Of the interval of the projection's threshold.


class Disturbance(NamedTuple):
    """What happens to B robots during D decisions of their policy. Each is bounded by `DisturbanceBounds`."""

    forces: Tensor
    """Horizontal forces at the trunk's center of mass, along x and y of the world, [D, B, 2], N."""
    friction: Tensor
    """Of the floor, [B]."""
    masses: Tensor
    """Factors of the masses and inertias of the bodies, [B, nbody]; the first body is the trunk."""

    def wrenches(self, hold: int) -> Tensor:
        """The wrenches of a rollout, [D * hold, B, nbody, 6]."""
        nbody = self.masses.shape[-1]
        forces = pad(self.forces, (0, 4)).unsqueeze(2)  # Of the trunk.
        return pad(forces, (0, 0, 0, nbody - 1)).repeat_interleave(hold, 0)

    def parameters(self, model: Model) -> dict[str, Tensor]:
        """The parameters of a rollout. The friction of a contact is the larger one of its two shapes, so that the
        robot's own is zero here."""
        rows = list(model.parameters()["friction"].rows)
        floor = self.friction.new_tensor([float(row == "floor") for row in rows])
        mass, inertia = (model.parameter(name).to(self.masses) for name in ("mass", "inertia"))
        return {
            "friction": self.friction[:, None] * floor,
            "mass": mass * self.masses, "inertia": inertia * self.masses[..., None],
        }  # fmt: skip

    def leaves(self) -> Disturbance:
        """The same numbers, whose gradients are to be found."""
        return Disturbance(*(x.detach().clone().requires_grad_() for x in self))


@dataclass(frozen=True)
class DisturbanceBounds:
    """What a disturbance may be.

    force: largest magnitude of a push, N. impulse: largest integral of a push's magnitude over the D decisions, N s.
    friction: least and largest, of the floor. masses: least and largest factor of a body's mass.
    """

    force: float = 200.0
    impulse: float = 15.0
    friction: tuple[float, float] = (0.3, 1.0)
    masses: tuple[float, float] = (0.7, 1.4)

    def __post_init__(self) -> None:
        for name in ("force", "impulse"):
            checks.number(getattr(self, name), name, low=0.0, strict=True)
        for name in ("friction", "masses"):
            low, high = getattr(self, name)
            checks.number(low, name, low=0.0, strict=name == "masses")
            checks.number(high, name, low=low)

    def random(
        self, decisions: int, batch: int, nbody: int, seconds: float, generator: torch.Generator,
        dtype: torch.dtype = torch.float64, extreme: bool = False,
    ) -> Disturbance:  # fmt: skip
        """Independent and uniform: friction, masses, and of a constant push its direction, impulse, start, and
        duration. extreme: impulses are the largest, and frictions and masses each at one of their two bounds. seconds:
        of a decision."""

        def uniform(low: float, high: float, *shape: int) -> Tensor:
            return low + (high - low) * torch.rand(*shape, generator=generator, dtype=dtype)

        times = seconds * torch.arange(decisions, dtype=dtype)[:, None]
        impulse = uniform(self.impulse if extreme else 0.0, self.impulse, batch)
        shortest = (impulse / self.force).clamp(min=seconds)
        duration = shortest + (decisions * seconds - shortest) * uniform(0.0, 1.0, batch)
        first = (decisions * seconds - duration) * uniform(0.0, 1.0, batch)
        share = ((first + duration - times).clamp(max=seconds) - (first - times).clamp(min=0.0)).clamp(min=0.0)
        angle = uniform(-math.pi, math.pi, batch)
        direction = torch.stack([angle.cos(), angle.sin()], -1)
        forces = (share / seconds * impulse / duration)[..., None] * direction
        friction, masses = uniform(*self.friction, batch), uniform(*self.masses, batch, nbody)
        if extreme:
            friction, masses = (
                low + (high - low) * (x > 0.5 * (low + high)).to(dtype)
                for x, (low, high) in ((friction, self.friction), (masses, self.masses))
            )
        found = Disturbance(forces, friction, masses)
        return self.project(found, seconds)

    @torch.no_grad()
    def project(self, disturbance: Disturbance, seconds: float) -> Disturbance:
        """The nearest disturbance within the bounds.

        Forces are shortened by a threshold and then to the largest force: the nearest profile whose impulse is within
        its bound keeps the strongest parts of a push, and drops the weak ones. seconds: of a decision.
        """
        forces, friction, masses = disturbance
        size = forces.norm(dim=-1)
        most = self.impulse / seconds

        def shortened(threshold: Tensor) -> Tensor:
            return (size - threshold).clamp(0.0, self.force)

        low, high = torch.zeros_like(size[0]), size.amax(0)
        high = torch.where(shortened(low).sum(0) <= most, low, high)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            fits = shortened(middle).sum(0) <= most
            low, high = torch.where(fits, low, middle), torch.where(fits, middle, high)
        factor = shortened(high) / size.clamp(min=torch.finfo(size.dtype).tiny)
        return Disturbance(factor[..., None] * forces, friction.clamp(*self.friction), masses.clamp(*self.masses))

    def ascend(self, at: Disturbance, slope: Disturbance, seconds: float, step: float) -> Disturbance:
        """A projected step up the gradient `slope` of each robot's loss.

        Forces move along their gradient, whose largest of the D vectors becomes `step` times the largest force.
        Friction and masses move by `step` times half their range, by the sign of the gradient. A gradient that is not
        finite moves nothing.
        """
        forces, friction, masses = (torch.nan_to_num(x, 0.0, 0.0, 0.0) for x in slope)
        steepest = forces.norm(dim=-1).amax(0).clamp(min=torch.finfo(forces.dtype).tiny)
        reach = [0.5 * step * (high - low) for low, high in (self.friction, self.masses)]
        moved = Disturbance(
            at.forces + step * self.force * forces / steepest[:, None], at.friction + reach[0] * friction.sign(),
            at.masses + reach[1] * masses.sign(),
        )  # fmt: skip
        return self.project(moved, seconds)


def calm(decisions: int, batch: int, model: Model, friction: float, dtype: torch.dtype) -> Disturbance:
    """No push, and the robot and the floor as they are."""
    return Disturbance(
        torch.zeros(decisions, batch, 2, dtype=dtype), torch.full((batch,), friction, dtype=dtype),
        torch.ones(batch, model.nbody, dtype=dtype),
    )  # fmt: skip


def chosen(where: Tensor, first: Disturbance, second: Disturbance) -> Disturbance:
    """The first disturbance of the robots where it is true [B], the second one's of the others."""
    return Disturbance(
        torch.where(where[:, None], first.forces, second.forces), torch.where(where, first.friction, second.friction),
        torch.where(where[:, None], first.masses, second.masses),
    )  # fmt: skip
