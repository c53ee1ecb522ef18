"""Joints as users describe them: how a child body moves relative to its parent.

The equations of a joint are in `physics.tree.joints`, its coordinates in `schema.layout.Kind`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ..schema.layout import Kind
from . import checks
from .ranges import RANGES

JOINT_PARAMETERS = {
    "damping": "damping", "stiffness": "stiffness", "armature": "armature", "friction": "joint_friction",
}  # fmt: skip
"""The parameter (of `Model.parameters`) that each option of a joint becomes."""


@dataclass(frozen=True, kw_only=True)
class Joint:
    """The options of all joints: a linear spring and damper, the inertia of the drive, limits and friction.

    damping: N m s/rad (rotation), N s/m (translation). stiffness: N m/rad, N/m, towards ``rest``: the joint
    coordinates (rad, m, w-first quaternions) at which the spring is relaxed, 0 meaning the unmoved joint.
    armature: kg m^2 or kg. All three hold for each of the joint's degrees of freedom.

    Hinges and sliders only: limits (low, high) of the coordinate, rad or m, where None or an infinity is no limit;
    friction: the torque (N m) or force (N) that it takes to move the joint.
    """

    kind: ClassVar[Kind]
    dims: ClassVar[tuple[int, ...]] = (2, 3)
    """Dimensions of the scenes in which the joint exists."""
    closes_loops: ClassVar[bool] = False
    """Whether the joint can be a constraint that closes a loop; its equations are in `constraints.joint_equations`."""

    damping: float = 0.0
    stiffness: float = 0.0
    rest: Any = 0.0
    armature: float = 0.0
    limits: Any = None
    friction: float = 0.0

    def __post_init__(self) -> None:
        what, coordinates = type(self).__name__, self.kind.coordinates
        for name, parameter in JOINT_PARAMETERS.items():
            object.__setattr__(self, name, RANGES[parameter].number(getattr(self, name), f"{what} {name}"))
        limits = checks.interval(self.limits, f"{what} limits")
        object.__setattr__(self, "limits", None if limits == (-math.inf, math.inf) else limits)
        for name in ("limits", "friction"):
            if getattr(self, name) and not coordinates.limitable:
                raise ValueError(f"{what} has no {name}: only a Hinge or a Slider does")
        if checks.is_zero(self.rest):
            return
        if self.kind.nq == 1:
            object.__setattr__(self, "rest", RANGES["reference"].number(self.rest, f"{what} rest"))
            return
        rest = checks.vector(self.rest, self.kind.nq, f"{what} rest")
        if coordinates.quaternion is not None:
            orientation = slice(coordinates.quaternion, None)
            rest[orientation] = checks.unit_quaternion(rest[orientation], f"{what} rest orientation")
        object.__setattr__(self, "rest", tuple(rest.tolist()))

    def world_axis(self, dim: int, what: str) -> np.ndarray:
        """The axis of the joint in the world as a unit vector [3]; zero for joints without one. what: for errors."""
        return np.zeros(3)


@dataclass(frozen=True)
class Hinge(Joint):
    """Turns about an axis through the anchor; axis: world direction in 3D, None (z) in 2D."""

    kind = Kind.HINGE
    closes_loops = True
    axis: Any = None

    def world_axis(self, dim: int, what: str) -> np.ndarray:
        if dim == 2:
            if self.axis is not None:
                raise ValueError(f"{what}: in 2D a hinge has no axis to choose, got {self.axis!r}")
            return np.array([0.0, 0.0, 1.0])
        if self.axis is None:
            raise ValueError(f"{what}: in 3D a hinge needs an axis: Hinge(axis=(0, 0, 1))")
        return checks.unit_vector(self.axis, 3, f"{what}: axis")


@dataclass(frozen=True)
class Slider(Joint):
    """Moves along an axis: a world direction at the pose the bodies were given."""

    kind = Kind.SLIDER
    closes_loops = True
    axis: Any = field()

    def world_axis(self, dim: int, what: str) -> np.ndarray:
        axis = np.zeros(3)
        axis[:dim] = checks.unit_vector(self.axis, dim, f"{what}: axis")
        return axis


@dataclass(frozen=True)
class Ball(Joint):
    """Turns freely about the anchor; 3D only. q: quaternion; v: angular velocity in the child's frame."""

    kind = Kind.BALL
    dims = (3,)
    closes_loops = True


@dataclass(frozen=True)
class Planar(Joint):
    """Moves in the plane: q = (x, y, angle) of the child relative to its parent."""

    kind = Kind.PLANAR


@dataclass(frozen=True)
class Free(Joint):
    """No connection; 3D only. q: world position, quaternion; v: world linear, body angular velocity."""

    kind = Kind.FREE
    dims = (3,)


@dataclass(frozen=True)
class Fixed(Joint):
    """Rigidly attached."""

    kind = Kind.FIXED
    closes_loops = True


JOINTS: tuple[type[Joint], ...] = (Hinge, Slider, Ball, Planar, Free, Fixed)
"""The joints of scenes and scene files."""
