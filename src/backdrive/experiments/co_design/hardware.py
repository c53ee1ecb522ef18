"""The hardware that is learned: nine measures of the quadruped, each within bounds, and what follows from them.

Materials stay. Thigh and shank have the same mass per length, the foot the same density, and the trunk's shell the same
density around a payload (battery, computer) that stays. Moments of inertia follow from masses and sizes. Motors stay,
too: limits of torque, inertia of rotors, and the line of torque over speed are at the motor. A gear multiplies the
torque of a joint and its limit, divides its speed, and multiplies the inertia and the loss of torque per speed that the
joint feels by its square.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..gait.world import Design, Number

PAYLOAD = 4.0  # Part of the trunk's mass that does not depend on its size, kg.
FRICTION = 0.1  # Damping of a joint's bearings, N m s/rad.
TORQUE_LOSS = 0.7  # Torque that a motor loses per speed, N m s/rad: 20 N m at rest, none at 29 rad/s.
SPREAD = 0.5  # Lengths, radius and gear stay within this part of the nominal measure.


class Measure(NamedTuple):
    """A measure that is learned, between bounds."""

    nominal: float
    low: float
    high: float
    unit: str

    @property
    def share(self) -> float:
        """Where the nominal measure is between the bounds, 0 to 1."""
        return (self.nominal - self.low) / (self.high - self.low)


def _around(name: str, unit: str) -> Measure:
    nominal = float(getattr(_FIRST, name))
    return Measure(nominal, (1.0 - SPREAD) * nominal, (1.0 + SPREAD) * nominal, unit)


_FIRST = Design()
MEASURES = {
    "trunk_length": _around("trunk_length", "m"),
    "trunk_width": _around("trunk_width", "m"),
    "abduction_length": _around("abduction_length", "m"),
    "thigh_length": _around("thigh_length", "m"),
    "shank_length": _around("shank_length", "m"),
    "foot_radius": _around("foot_radius", "m"),
    "gear": _around("gear", "1"),
    "hip_spring": Measure(2.0, 0.0, 20.0, "N m/rad"),
    "knee_spring": Measure(2.0, 0.0, 20.0, "N m/rad"),
}


def measures(x: Tensor) -> Tensor:
    """The measures for unbounded coordinates, [..., 9] each; those at x = 0 are nominal.

    They are a logistic function of x, which nears the bounds without reaching them.
    """
    low, high, share = (
        x.new_tensor([getattr(m, name) for m in MEASURES.values()]) for name in ("low", "high", "share")
    )
    return low + (high - low) * torch.sigmoid(share.logit() + x)


def design(values: Tensor) -> Design:
    """The robot with these measures, [9]; differentiable."""
    return _consistent(**dict(zip(MEASURES, values.unbind(), strict=True)))


def nominal() -> Design:
    """The robot before learning."""
    return _consistent(**{name: measure.nominal for name, measure in MEASURES.items()})


def _consistent(**learned: Number) -> Design:
    """The robot with these measures, and with the masses and damping that follow."""
    d, first = replace(_FIRST, **learned), _FIRST  # type: ignore[arg-type]
    size = d.trunk_length * d.trunk_width / (first.trunk_length * first.trunk_width)  # The height stays.
    return replace(
        d,
        trunk_mass=PAYLOAD + (first.trunk_mass - PAYLOAD) * size,
        thigh_mass=first.thigh_mass * (d.thigh_length / first.thigh_length),
        shank_mass=first.shank_mass * (d.shank_length / first.shank_length),
        foot_mass=first.foot_mass * (d.foot_radius / first.foot_radius) ** 3,
        damping=FRICTION + TORQUE_LOSS * d.gear**2,
    )


def total_mass(d: Design) -> float:
    """Of the robot, kg."""
    return float(d.trunk_mass + 4.0 * (d.abduction_mass + d.thigh_mass + d.shank_mass + d.foot_mass))
