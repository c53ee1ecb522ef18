"""Joints: how a child body moves relative to its parent."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..schema.layout import NQ, Kind
from . import checks


@dataclass(frozen=True, kw_only=True)
class Joint:
    """What all joints share: a linear spring and damper, the inertia of the drive, limits and friction.

    damping: N m s/rad (rotation), N s/m (translation). stiffness: N m/rad, N/m, towards ``rest``: the joint
    coordinates (rad, m, w-first quaternions) at which the spring is relaxed, 0 meaning the unmoved joint.
    armature: kg m^2 or kg. All three hold for each of the joint's degrees of freedom.

    Hinges and sliders only: limits (low, high) of the coordinate, rad or m, where None or an infinity is no limit;
    friction: the torque (N m) or force (N) that it takes to move the joint.
    """

    kind: ClassVar[Kind]

    damping: float = 0.0
    stiffness: float = 0.0
    rest: Any = 0.0
    armature: float = 0.0
    limits: Any = None
    friction: float = 0.0

    def __post_init__(self) -> None:
        what = type(self).__name__
        for name in ("damping", "stiffness", "armature", "friction"):
            object.__setattr__(self, name, checks.number(getattr(self, name), f"{what} {name}", low=0.0))
        limits = checks.interval(self.limits, f"{what} limits")
        object.__setattr__(self, "limits", None if limits == (-math.inf, math.inf) else limits)
        for name in ("limits", "friction"):
            if getattr(self, name) and self.kind not in (Kind.HINGE, Kind.SLIDER):
                raise ValueError(f"{what} has no {name}: only a Hinge or a Slider does")
        if isinstance(self.rest, int | float) and self.rest == 0.0:
            return
        size = NQ[self.kind]
        if size == 1:
            object.__setattr__(self, "rest", checks.number(self.rest, f"{what} rest"))
            return
        rest = checks.vector(self.rest, size, f"{what} rest")
        if self.kind in (Kind.BALL, Kind.FREE):
            rest[-4:] = checks.unit_quaternion(rest[-4:], f"{what} rest orientation")
        object.__setattr__(self, "rest", tuple(rest.tolist()))


@dataclass(frozen=True)
class Hinge(Joint):
    """Turns about an axis through the anchor; axis: world direction in 3D, None (z) in 2D."""

    kind = Kind.HINGE
    axis: Any = None


@dataclass(frozen=True)
class Slider(Joint):
    """Moves along an axis: a world direction at the pose the bodies were given."""

    kind = Kind.SLIDER
    axis: Any = field()


@dataclass(frozen=True)
class Ball(Joint):
    """Turns freely about the anchor; 3D only. q: quaternion; v: angular velocity in the child's frame."""

    kind = Kind.BALL


@dataclass(frozen=True)
class Planar(Joint):
    """Moves in the plane: q = (x, y, angle) of the child relative to its parent."""

    kind = Kind.PLANAR


@dataclass(frozen=True)
class Free(Joint):
    """No connection; 3D only. q: world position, quaternion; v: world linear, body angular velocity."""

    kind = Kind.FREE


@dataclass(frozen=True)
class Fixed(Joint):
    """Rigidly attached."""

    kind = Kind.FIXED
