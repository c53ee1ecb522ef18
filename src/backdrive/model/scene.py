"""Describe a world: bodies with shapes, joints and constraints between them, actuators on the joints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..schema.layout import FLOATING, Kind
from . import checks
from .actuators import Motor
from .build import build_model, constraint_equations
from .constraints import Constraint
from .joints import Joint
from .model import Model
from .ranges import POSITIVE, RANGES
from .rotations import from_orientation
from .shapes import PlacedShape, Shape
from .specs import BodySpec, ConstraintSpec, JointSpec, MotorSpec, ShapeMaterial
from .tree import body_inertia, check_coordinates, check_joint, check_loop, closes_loop

Array = np.ndarray

PLANAR_DOFS = {"x": 0, "y": 1, "angle": 2}
"""Names of the degrees of freedom of a planar joint."""


@dataclass
class Scene:
    """A world under construction. ``build`` makes an immutable Model of it.

    dim: 2 or 3. gravity: m/s^2, [dim]; by default 9.81 downwards along the last axis.
    combine: "mean", "max" or "min", how friction and restitution of a pair follow from those of its shapes.
    coordinates: "reduced": bodies and joints form a tree, and only a joint that closes a loop is a constraint;
    "maximal": every body moves freely (q consists of world poses), and every joint is a constraint.

    Positions, angles, anchors and axes are given in world coordinates, with all joint coordinates at zero.
    A body without a joint moves freely: its joint is planar (2D) or free (3D), and has the body's name.
    Other methods refer to bodies and joints by the names that the ``add_`` methods return.
    """

    dim: int
    gravity: Any = None
    combine: str = "mean"
    coordinates: str = "reduced"
    _bodies: dict[str, BodySpec] = field(default_factory=dict, init=False, repr=False)
    _joints: dict[str, JointSpec] = field(default_factory=dict, init=False, repr=False)
    _hangs: dict[str, JointSpec] = field(default_factory=dict, init=False, repr=False)  # by child body
    _loops: dict[str, JointSpec] = field(default_factory=dict, init=False, repr=False)  # joints that are constraints
    _constraints: dict[str, ConstraintSpec] = field(default_factory=dict, init=False, repr=False)
    _motors: dict[str, MotorSpec] = field(default_factory=dict, init=False, repr=False)
    _statics: dict[str, PlacedShape] = field(default_factory=dict, init=False, repr=False)
    _excluded: list[tuple[str, str]] = field(default_factory=list, init=False, repr=False)
    _separate: list[tuple[str, str]] = field(default_factory=list, init=False, repr=False)  # body, static shape

    def __post_init__(self) -> None:
        if self.dim not in (2, 3) or isinstance(self.dim, bool):
            raise ValueError(f"dim must be 2 or 3, got {self.dim!r}")
        for name, choices in (("combine", ("mean", "max", "min")), ("coordinates", ("reduced", "maximal"))):
            if getattr(self, name) not in choices:
                raise ValueError(checks.unknown(f"value of {name}", getattr(self, name), choices))
        default = (0.0,) * (self.dim - 1) + (-9.81,)
        gravity = default if self.gravity is None else self.gravity
        self.gravity = tuple(checks.vector(gravity, self.dim, "gravity").tolist())

    def add_static(
        self,
        shape: Shape,
        *,
        position: Any = None,
        angle: float | None = None,
        quaternion: Any = None,
        friction: float = 0.5,
        restitution: float = 0.0,
        softness: float = 0.0,
        name: str | None = None,
    ) -> str:
        """A shape that never moves, such as the ground."""
        name = f"static{len(self._statics)}" if name is None else name
        name = checks.identifier(name, "static shape", self._statics)
        what = f"static shape {name!r}"
        place, orientation = self._pose(position, angle, quaternion, what)
        material = ShapeMaterial.checked(friction, restitution, softness, what)
        shape = self._shape(shape, what, static=True)
        self._statics[name] = _placed(shape, place, orientation, material, name)
        return name

    def add_body(
        self,
        name: str,
        shape: Shape | Sequence[Shape] = (),
        *,
        mass: float | None = None,
        density: float | None = None,
        position: Any = None,
        angle: float | None = None,
        quaternion: Any = None,
        velocity: Any = None,
        angular_velocity: Any = None,
        friction: float = 0.5,
        restitution: float = 0.0,
        softness: float = 0.0,
        com: Any = None,
        inertia: Any = None,
    ) -> str:
        """A rigid body.

        mass: kg, or density: kg/m^3 (2D: kg/m^2) of its shapes. position: m, of the body frame; angle: rad
        (2D) or quaternion (3D, w first). velocity: m/s, of the body frame's origin; angular_velocity: rad/s,
        a number in 2D, a world vector in 3D; both only for bodies that move freely. com [dim] and inertia
        (2D: a number; 3D: the 3 principal moments, 6 numbers xx yy zz xy xz yz, or [3, 3]; kg m^2, about the
        com, along the body axes) come from the shapes unless given. The material is that of its shapes: a friction
        coefficient (0 to infinity), a restitution (0 to 1), and a softness (the speed of approach in m/s that remains
        per N s of impulse).
        """
        name = checks.identifier(name, "body", self._bodies)
        what = f"body {name!r}"
        if (mass is None) == (density is None):
            raise ValueError(f"{what}: give either mass or density, got mass={mass!r}, density={density!r}")
        if mass is not None:
            mass = RANGES["mass"].number(mass, f"{what}: mass")
        if density is not None:
            density = POSITIVE.number(density, f"{what}: density")
        place, orientation = self._pose(position, angle, quaternion, what)
        material = ShapeMaterial.checked(friction, restitution, softness, what)
        body = BodySpec(name, mass, density, place, orientation, material)
        shapes = [shape] if isinstance(shape, Shape) else shape
        if not isinstance(shapes, Sequence) or isinstance(shapes, str):
            raise TypeError(f"{what}: expected a shape or a list of shapes, got {shape!r}")
        unmoved = self._pose(None, None, None, what)
        body.shapes = [_placed(self._shape(s, what), *unmoved, material) for s in shapes]
        body.moving = velocity is not None or angular_velocity is not None
        if velocity is not None:
            body.velocity[: self.dim] = checks.vector(velocity, self.dim, f"{what}: velocity")
        if angular_velocity is not None:
            if self.dim == 2:
                body.angular_velocity[2] = checks.number(angular_velocity, f"{what}: angular_velocity")
            else:
                body.angular_velocity[:] = checks.vector(angular_velocity, 3, f"{what}: angular_velocity")
        if com is not None:
            body.com = np.zeros(3)
            body.com[: self.dim] = checks.vector(com, self.dim, f"{what}: com")
        if inertia is not None:
            body.inertia = body_inertia(self.dim, inertia, f"{what}: inertia")
        self._bodies[name] = body
        return name

    def add_shape(
        self,
        body: str,
        shape: Shape,
        *,
        position: Any = None,
        angle: float | None = None,
        quaternion: Any = None,
        friction: float | None = None,
        restitution: float | None = None,
        softness: float | None = None,
    ) -> None:
        """Add another shape to a body, posed in the body's frame. Its material is the body's unless given."""
        spec = self._bodies[self._body(body, "body")]
        what = f"body {spec.name!r}"
        place, orientation = self._pose(position, angle, quaternion, what)
        own = spec.material
        material = ShapeMaterial.checked(
            own.friction if friction is None else friction,
            own.restitution if restitution is None else restitution,
            own.softness if softness is None else softness,
            what,
        )
        spec.shapes.append(_placed(self._shape(shape, what), place, orientation, material))

    def add_joint(
        self,
        name: str,
        joint: Joint,
        *,
        parent: str | None = None,
        child: str,
        anchor: Any = None,
        position: Any = None,
        velocity: Any = None,
    ) -> str:
        """Connect ``child`` to ``parent`` (None: the world).

        anchor: world point of the joint, by default the child's position. position, velocity: initial
        joint coordinates (rad, m; a quaternion for a ball) and their rates, by default at rest at zero; a
        body that moves freely starts where it was put instead.

        A joint closes a loop if its child already has a joint to a parent, or is an ancestor of the parent. It then
        becomes a constraint, which keeps the relative pose that the bodies have when all joint coordinates are zero,
        and has no coordinates, spring, limits or motor of its own. Bodies with a joint between them do not collide.
        """
        name = checks.identifier(name, "joint", [*self._joints, *self._loops])
        what = f"joint {name!r}"
        if not isinstance(joint, Joint):
            raise TypeError(f"{what}: expected a joint such as Hinge(), got {joint!r}")
        child = self._body(child, f"{what}: child body")
        parent = None if parent is None else self._body(parent, f"{what}: parent body")
        body = self._bodies[child]
        spec = JointSpec(name, joint, parent, child, self._anchor(anchor, body, what), position, velocity)
        check_joint(self.dim, spec)
        why = "it closes a loop"
        closes = closes_loop(spec, self._hangs)
        if self.coordinates == "maximal" and not (spec.floats(self.dim) and not closes):
            closes, why = True, "with maximal coordinates it is a constraint"
        if closes:
            check_loop(spec, why)
            checks.identifier(name, "constraint", self._constraints)
            self._loops[name] = spec
            return name
        check_coordinates(self.dim, spec, body)
        self._joints[name] = self._hangs[child] = spec
        return name

    def add_constraint(
        self,
        name: str,
        constraint: Constraint,
        *,
        a: str,
        b: str | None = None,
        anchor_a: Any = None,
        anchor_b: Any = None,
    ) -> str:
        """Keep body ``a`` at a Distance from, welded to, or with a Lock on, body ``b`` (None: the world).

        anchor_a, anchor_b: world points on a and on b, by default the bodies' positions; a Distance takes both, a
        Lock that of a. Constraints keep the configuration in which all joint coordinates are zero.
        """
        name = checks.identifier(name, "constraint", [*self._constraints, *self._loops])
        what = f"constraint {name!r}"
        if not isinstance(constraint, Constraint):
            raise TypeError(f"{what}: expected a constraint such as Distance(), got {constraint!r}")
        first = self._bodies[self._body(a, f"{what}: body a")]
        second = None if b is None else self._bodies[self._body(b, f"{what}: body b")]
        if first is second:
            raise ValueError(f"{what}: a and b are the same body {a!r}")
        for given, which, count in ((anchor_a, "anchor_a", 1), (anchor_b, "anchor_b", 2)):
            if given is not None and constraint.anchors < count:
                raise ValueError(f"{what}: a {type(constraint).__name__} has no {which}")
        if constraint.anchors == 2 and second is None and anchor_b is None:
            raise ValueError(f"{what}: give anchor_b, the point of the world")
        points = self._anchor(anchor_a, first, what), self._anchor(anchor_b, second, what)
        spec = ConstraintSpec(name, constraint, a, b, *points)
        constraint_equations(spec, self.dim, self._bodies, dict.fromkeys(self._bodies, -1))  # raises if impossible
        self._constraints[name] = spec
        return name

    def add_motor(
        self,
        name: str,
        motor: Motor | None = None,
        *,
        joint: str,
        dof: str | None = None,
        gear: float | None = None,
        limits: Any = None,
        force_limits: Any = None,
    ) -> str:
        """A motor on a hinge, a slider, or one ``dof`` ("x", "y", "angle") of a planar joint.

        motor: PositionServo(...), VelocityServo(...) or Motor(...); without one, ``gear``, ``limits`` (of the
        control) and ``force_limits`` describe a torque motor.
        """
        name = checks.identifier(name, "motor", self._motors)
        what = f"motor {name!r}"
        if motor is None:
            motor = Motor(gear=1.0 if gear is None else gear, limits=limits, force_limits=force_limits)
        elif not isinstance(motor, Motor):
            raise TypeError(f"{what}: expected a Motor, PositionServo or VelocityServo, got {motor!r}")
        elif (gear, limits, force_limits) != (None, None, None):
            raise ValueError(f"{what}: give gear, limits, force_limits to {type(motor).__name__}(...)")
        kind = self._joint_kind(joint, what)
        if kind == Kind.PLANAR:
            if dof not in PLANAR_DOFS:
                raise ValueError(f"{what}: on a planar joint dof must be 'x', 'y' or 'angle', got {dof!r}")
            self._motors[name] = MotorSpec(name, motor, joint, PLANAR_DOFS[dof])
            return name
        if kind.nv != 1:
            raise ValueError(f"{what}: joint {joint!r} is {kind.name.lower()}; expected a hinge or slider")
        if dof is not None:
            raise ValueError(f"{what}: joint {joint!r} has one dof: leave out dof={dof!r}")
        self._motors[name] = MotorSpec(name, motor, joint, 0)
        return name

    def exclude(self, a: str, b: str) -> None:
        """No contact between two bodies, or between a body and a static shape."""
        if a == b:
            raise ValueError(f"exclude needs two different bodies, got {a!r} twice")
        for name, other in ((a, b), (b, a)):
            if isinstance(name, str) and name in self._statics and name not in self._bodies:
                self._separate.append((self._body(other, "body"), name))
                return
        self._excluded.append((self._body(a, "body"), self._body(b, "body")))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the scene to a JSON file (docs/scene_format.md) without rounding."""
        from .files.write import save_scene

        save_scene(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Scene:
        """The scene that ``save`` wrote; its model has the same bits. Errors name the place in the file."""
        from .files.read import load_scene

        return load_scene(path)

    def build(self) -> Model:
        """The immutable model of everything that was added so far."""
        return build_model(self)

    def _anchor(self, anchor: Any, body: BodySpec | None, what: str) -> Array:
        """A world point [3], by default the position of a body (None: the origin of the world)."""
        point = np.zeros(3) if body is None else body.position.copy()
        if anchor is not None:
            point[: self.dim] = checks.vector(anchor, self.dim, f"{what}: anchor")
        return point

    def _body(self, name: Any, what: str) -> str:
        if not isinstance(name, str):
            raise TypeError(f"{what} must be given by its name, got {name!r}")
        if name not in self._bodies:
            raise ValueError(checks.unknown(what, name, self._bodies))
        return name

    def _joint_kind(self, name: Any, what: str) -> Kind:
        """The kind of a joint, which may be the implicit joint of a body that moves freely."""
        if not isinstance(name, str):
            raise TypeError(f"{what}: a joint must be given by its name, got {name!r}")
        if name in self._joints:
            return self._joints[name].joint.kind
        if name in self._loops:
            raise ValueError(f"{what}: joint {name!r} is a constraint, which no motor can drive")
        free = [body for body in self._bodies if body not in self._hangs]
        if name in free:
            return FLOATING[self.dim]
        raise ValueError(f"{what}: " + checks.unknown("joint", name, [*self._joints, *free]))

    def _shape(self, shape: Any, what: str, static: bool = False) -> Shape:
        if not isinstance(shape, Shape):
            raise TypeError(f"{what}: expected a shape such as Box(...), got {shape!r}")
        if shape.dim != self.dim:
            raise ValueError(f"{what}: {type(shape).__name__} is {shape.dim}D, the scene is {self.dim}D")
        if not shape.bounded and not static:
            raise ValueError(f"{what}: a {type(shape).__name__} is infinite; add it with add_static")
        return shape

    def _pose(self, position: Any, angle: Any, quaternion: Any, what: str) -> tuple[Array, Array]:
        """Position [3], and the angle [1] (2D) or the quaternion [4] (3D)."""
        place = np.zeros(3)
        if position is not None:
            place[: self.dim] = checks.vector(position, self.dim, f"{what}: position")
        if self.dim == 2:
            if quaternion is not None:
                raise ValueError(f"{what}: in 2D give an angle, not a quaternion")
            return place, np.array([0.0 if angle is None else checks.number(angle, f"{what}: angle")])
        if angle is not None:
            raise ValueError(f"{what}: in 3D give a quaternion (w, x, y, z), not an angle")
        if quaternion is None:
            return place, np.array([1.0, 0.0, 0.0, 0.0])
        return place, checks.unit_quaternion(quaternion, f"{what}: quaternion")


def _placed(
    shape: Shape, position: Array, orientation: Array, material: ShapeMaterial, name: str | None = None
) -> PlacedShape:
    rotation = tuple(map(tuple, from_orientation(orientation).tolist()))
    return PlacedShape(
        shape, tuple(position.tolist()), rotation, *material, name, orientation=tuple(orientation.tolist())
    )
