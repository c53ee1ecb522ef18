"""The parts of a scene as the user described them, before they become links and tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..schema.layout import Kind
from .actuators import Motor
from .constraints import Constraint
from .joints import Joint
from .ranges import RANGES
from .rotations import from_orientation
from .shapes import PlacedShape

Array = np.ndarray


class ShapeMaterial(NamedTuple):
    """The contact properties of a shape."""

    friction: float
    """Coulomb coefficient, 0 to infinity."""
    restitution: float
    """0 to 1."""
    softness: float
    """Speed of approach (m/s) that remains per N s of impulse."""

    @classmethod
    def checked(cls, friction: Any, restitution: Any, softness: Any, what: str) -> ShapeMaterial:
        """A material from numbers that the user gave; what: the body or shape, for error messages."""
        given = {"friction": friction, "restitution": restitution, "softness": softness}
        return cls(**{name: RANGES[name].number(value, f"{what}: {name}") for name, value in given.items()})


@dataclass
class BodySpec:
    """A body as the user described it. Vectors are 3D; orientation is an angle [1] or a quaternion [4].

    moving: whether the user gave a velocity. com, inertia: None if they follow from the shapes.
    """

    name: str
    mass: float | None
    density: float | None
    position: Array
    orientation: Array
    material: ShapeMaterial
    shapes: list[PlacedShape] = field(default_factory=list)
    velocity: Array = field(default_factory=lambda: np.zeros(3))
    angular_velocity: Array = field(default_factory=lambda: np.zeros(3))
    moving: bool = False
    com: Array | None = None
    inertia: Array | None = None

    @property
    def rotation(self) -> Array:
        return from_orientation(self.orientation)


@dataclass(frozen=True)
class JointSpec:
    """A joint between two bodies. anchor: world point [3]; position and velocity: as the user gave them, or None."""

    name: str
    joint: Joint
    parent: str | None
    child: str
    anchor: Array
    position: Any
    velocity: Any

    def floats(self, dim: int) -> bool:
        """Whether the joint's coordinates are the pose of the body in the world."""
        kind = self.joint.kind
        return kind == Kind.FREE or (kind == Kind.PLANAR and dim == 2 and self.parent is None)


@dataclass(frozen=True)
class ConstraintSpec:
    """A constraint between body a and body b (None: the world); anchors are world points [3]."""

    name: str
    constraint: Constraint
    a: str
    b: str | None
    anchor_a: Array
    anchor_b: Array


@dataclass(frozen=True)
class MotorSpec:
    """An actuator on degree of freedom ``dof`` of a joint."""

    name: str
    motor: Motor
    joint: str
    dof: int
