"""Shapes: mass properties, the numbers that a model's tables hold of them, and bounding volumes for collision.

Each shape is one class. Collision knows a shape by its `kind` (`layout.ShapeKind`): circles and spheres are balls;
boxes, polygons and convex meshes are hulls. How the kinds touch each other is in `physics.geometry.pairs`.

Planar shapes live in the plane z = 0; their volume is an area and only the zz entry of their inertia counts.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..ir import Scalar, absolute, sqrt
from ..schema.layout import GeomKind, ShapeKind
from . import checks
from .hull import (
    HULL_VERTICES,
    SQUARE,
    HullTables,
    ball,
    convex_tables,
    cube,
    cylinder_prism,
    hull_faces,
    hull_tables,
    mass_properties,
    planar_tables,
)
from .ranges import FINITE, POSITIVE, Range

Array = np.ndarray


class BoundFactors(NamedTuple):
    """A bounding box in a shape's frame, as a linear function of the sizes s [3] in its record: the box is centered at
    center * s (elementwise), and its half extents are half @ s + rim s[0]."""

    center: Sequence[Scalar]  # [3]
    half: Sequence[Scalar]  # [3, 3], row major
    rim: Scalar

    @classmethod
    def of(cls, numbers: Sequence[Scalar]) -> BoundFactors:
        """A view of BOUND numbers."""
        return cls(numbers[:3], numbers[3:12], numbers[12])


BOUND = 13
"""Numbers of `BoundFactors` in a table: center (3), half (3 x 3), rim."""


class Shape(ABC):
    """A solid of uniform density in its own frame.

    kind: its representation in collision; geom: in MuJoCo's collision. size_names: names of the leading numbers of
    `size`, which users can vary as parameters; size_range: what values they may have. bounded: False for half-spaces,
    which are part of the world and have no bounding volume.

    The static methods hold for every shape of a kind (`SHAPE_KINDS`). They work on the numbers of a model's tables,
    which may differ from those of the shape that the model was built with: users can vary sizes.
    """

    dim: int
    kind: ClassVar[ShapeKind]
    geom: ClassVar[GeomKind]
    size_names: ClassVar[tuple[str, ...]]
    size_range: ClassVar[Range] = POSITIVE
    bounded: ClassVar[bool] = True

    @property
    @abstractmethod
    def volume(self) -> float:
        """m^3, or the area in m^2 in 2D."""

    @property
    def center(self) -> Array:
        """Center of mass in the shape's frame, m, [3]."""
        return np.zeros(3)

    @abstractmethod
    def inertia(self, mass: float) -> Array:
        """About the center of mass, along the shape's axes, kg m^2, [3, 3], for a mass in kg."""

    @property
    def size(self) -> Array:
        """SIZE of the shape's record, [3]; unused entries are zero."""
        numbers = np.zeros(3)
        numbers[: len(self.size_names)] = [getattr(self, name) for name in self.size_names]
        return numbers

    def record_position(self, position: Array) -> Array:
        """PLACE of the record of a shape at this position (m) in its link's frame, [3]."""
        return position

    def hull(self) -> HullTables | None:
        """Vertices, faces and edges for collision, before they are scaled by `size`; None for shapes without any."""
        return None

    def full_hull(self) -> HullTables | None:
        """The same with all vertices; None if that is no other."""
        return None

    @staticmethod
    def bound_factors(vertices: Array) -> Array:
        """BOUND numbers, see `BoundFactors`; vertices [n, 3]: of the shape's hull, before scaling."""
        return np.zeros(BOUND)

    @staticmethod
    @abstractmethod
    def bounding_radius(size: Array, vertices: Array) -> float:
        """Radius (m) of a ball about the shape's origin that contains the shape."""

    @staticmethod
    def lever(size: Sequence[Scalar], bound: BoundFactors) -> Scalar | None:
        """An upper bound (m) on the distance from the shape's origin of surface points that move when the shape rotates
        about it; None for a shape that such rotations do not change. Traced."""
        return None


class _Ball(Shape):
    """Circles and spheres: size (radius, 0, 0)."""

    kind = ShapeKind.SPHERE
    geom = GeomKind.SPHERE
    size_names = ("radius",)

    @staticmethod
    def bound_factors(vertices: Array) -> Array:
        factors = np.zeros(BOUND)
        factors[12] = 1.0
        return factors

    @staticmethod
    def bounding_radius(size: Array, vertices: Array) -> float:
        return float(size[0])


class _Hull(Shape):
    """Boxes, polygons and convex meshes: vertices that `size` scales along each axis."""

    kind = ShapeKind.HULL
    geom = GeomKind.MESH
    size_names = ("x", "y", "z")

    @property
    def size(self) -> Array:
        return np.ones(3)

    @staticmethod
    def bound_factors(vertices: Array) -> Array:
        factors = np.zeros(BOUND)
        center, half = factors[:3], factors[3:12].reshape(3, 3)
        low, high = vertices.min(0), vertices.max(0)
        center[:], half[:] = (low + high) / 2, np.diag(high - low) / 2
        return factors

    @staticmethod
    def bounding_radius(size: Array, vertices: Array) -> float:
        return float(np.linalg.norm(vertices * size, axis=1).max())

    @staticmethod
    def lever(size: Sequence[Scalar], bound: BoundFactors) -> Scalar:
        x, y, z = ((absolute(bound.center[k]) + bound.half[4 * k]) * size[k] for k in range(3))  # the farthest corner
        return sqrt(x * x + y * y + z * z)


@dataclass(frozen=True)
class Circle(_Ball):
    """A disc in 2D; radius in m."""

    radius: float
    dim = 2

    def __post_init__(self) -> None:
        _check_sizes(self)

    @property
    def volume(self) -> float:
        return math.pi * self.radius**2

    def inertia(self, mass: float) -> Array:
        return np.diag([0.0, 0.0, 0.5 * mass * self.radius**2])


@dataclass(frozen=True, init=False)
class Box(_Hull):
    """A rectangle (two sizes) or a cuboid (three): full extents along its axes, m."""

    sizes: tuple[float, ...]
    geom = GeomKind.BOX

    def __init__(self, *sizes: float) -> None:
        if len(sizes) not in (2, 3):
            raise ValueError(f"Box takes 2 sizes in 2D or 3 in 3D (full extents), got {len(sizes)}")
        checked = tuple(self.size_range.number(s, f"Box size {i}") for i, s in enumerate(sizes))
        object.__setattr__(self, "sizes", checked)

    @property
    def dim(self) -> int:  # type: ignore[override]
        return len(self.sizes)

    @property
    def volume(self) -> float:
        return math.prod(self.sizes)

    def inertia(self, mass: float) -> Array:
        squares = np.array(self.sizes) ** 2
        if self.dim == 2:
            return np.diag([0.0, 0.0, mass * squares.sum() / 12.0])
        return np.diag(mass * (squares.sum() - squares) / 12.0)

    @property
    def size(self) -> Array:
        numbers = np.ones(3)
        numbers[: self.dim] = self.sizes
        return numbers

    def hull(self) -> HullTables:
        return planar_tables(SQUARE) if self.dim == 2 else cube()


@dataclass(frozen=True)
class Polygon(_Hull):
    """A convex polygon in 2D: vertices [n, 2] in m, in order around it; stored counter-clockwise."""

    vertices: Any
    dim = 2

    def __post_init__(self) -> None:
        points = checks.array(self.vertices, "Polygon vertices")
        if points.ndim != 2 or points.shape[1] != 2 or len(points) < 3:
            raise ValueError(f"Polygon vertices must be [n, 2] with n >= 3, got shape {points.shape}")
        edges = np.roll(points, -1, axis=0) - points
        turns = _cross(edges, np.roll(edges, -1, axis=0))
        if turns.sum() < 0.0:
            points, turns = points[::-1], -turns
        scale = np.ptp(points, axis=0).max() ** 2
        headings = np.unwrap(np.arctan2(edges[:, 1], edges[:, 0]))
        winds_once = abs(abs(headings[-1] - headings[0]) - 2.0 * math.pi) < math.pi
        if (turns <= 1e-12 * scale).any() or not winds_once:
            raise ValueError(
                "Polygon vertices must be the corners of a convex polygon in order around it, "
                f"no three in a line; got {points.tolist()}"
            )
        object.__setattr__(self, "vertices", tuple((float(x), float(y)) for x, y in points))

    @cached_property
    def _triangles(self) -> tuple[Array, Array, Array]:
        """Corners p, r and twice the areas of the triangles (vertex 0, p, r), relative to vertex 0."""
        points = np.array(self.vertices) - self.vertices[0]
        p, r = points[1:-1], points[2:]
        return p, r, _cross(p, r)

    @property
    def volume(self) -> float:
        return float(self._triangles[2].sum() / 2.0)

    @property
    def center(self) -> Array:
        p, r, twice = self._triangles
        mean = (twice[:, None] * (p + r)).sum(0) / (3.0 * twice.sum())
        return np.append(mean + self.vertices[0], 0.0)

    def inertia(self, mass: float) -> Array:
        p, r, twice = self._triangles
        squares = (p * p + p * r + r * r).sum(1)
        about_corner = (twice @ squares) / (6.0 * twice.sum())
        lever = self.center[:2] - self.vertices[0]
        return np.diag([0.0, 0.0, mass * (about_corner - lever @ lever)])

    def hull(self) -> HullTables:
        return planar_tables(np.array(self.vertices))


@dataclass(frozen=True)
class HalfSpace(Shape):
    """The solid n . x <= offset (m), in 2D or 3D by the length of its normal; only for static geometry."""

    normal: Any
    offset: float = 0.0
    kind = ShapeKind.PLANE
    geom = GeomKind.PLANE
    size_names = ("offset",)
    size_range = FINITE
    bounded = False

    def __post_init__(self) -> None:
        size = np.size(np.asarray(self.normal, dtype=object))
        if size not in (2, 3):
            raise ValueError(f"HalfSpace normal must have 2 or 3 elements, got {self.normal!r}")
        normal = checks.unit_vector(self.normal, size, "HalfSpace normal")
        object.__setattr__(self, "normal", tuple(normal.tolist()))
        _check_sizes(self)

    @property
    def dim(self) -> int:  # type: ignore[override]
        return len(self.normal)

    @property
    def volume(self) -> float:
        return math.inf

    def inertia(self, mass: float) -> Array:
        raise ValueError("a HalfSpace is infinite and has no inertia: use it with add_static")

    def record_position(self, position: Array) -> Array:
        """The normal [3]: a half-space is given in the world's frame."""
        return np.pad(np.array(self.normal), (0, 3 - self.dim))

    @staticmethod
    def bounding_radius(size: Array, vertices: Array) -> float:
        return math.inf


@dataclass(frozen=True)
class Sphere(_Ball):
    """A ball; radius in m."""

    radius: float
    dim = 3

    def __post_init__(self) -> None:
        _check_sizes(self)

    @property
    def volume(self) -> float:
        return 4.0 / 3.0 * math.pi * self.radius**3

    def inertia(self, mass: float) -> Array:
        return np.eye(3) * (0.4 * mass * self.radius**2)


@dataclass(frozen=True)
class Cylinder(Shape):
    """A solid cylinder along its z axis; radius and length in m."""

    radius: float
    length: float
    dim = 3
    kind = ShapeKind.CYLINDER
    geom = GeomKind.CYLINDER
    size_names = ("radius", "length")

    def __post_init__(self) -> None:
        _check_sizes(self)

    @property
    def volume(self) -> float:
        return math.pi * self.radius**2 * self.length

    def inertia(self, mass: float) -> Array:
        across = mass * (3.0 * self.radius**2 + self.length**2) / 12.0
        return np.diag([across, across, 0.5 * mass * self.radius**2])

    def hull(self) -> HullTables:
        return cylinder_prism()

    @staticmethod
    def bound_factors(vertices: Array) -> Array:
        factors = np.zeros(BOUND)
        half = factors[3:12].reshape(3, 3)
        half[0, 0] = half[1, 0] = 1.0
        half[2, 1] = 0.5
        return factors

    @staticmethod
    def bounding_radius(size: Array, vertices: Array) -> float:
        return float(size[0] + 0.5 * size[1])

    @staticmethod
    def lever(size: Sequence[Scalar], bound: BoundFactors) -> Scalar:
        return sqrt(size[0] * size[0] + 0.25 * size[1] * size[1])


@dataclass(frozen=True)
class Capsule(Shape):
    """A cylinder along z with half a ball on each end; length (m) is that of the cylinder alone."""

    radius: float
    length: float
    dim = 3
    kind = ShapeKind.CAPSULE
    geom = GeomKind.CAPSULE
    size_names = ("radius", "length")

    def __post_init__(self) -> None:
        _check_sizes(self)

    @property
    def volume(self) -> float:
        return Cylinder(self.radius, self.length).volume + Sphere(self.radius).volume

    def inertia(self, mass: float) -> Array:
        cylinder, ball = Cylinder(self.radius, self.length), Sphere(self.radius)
        tube = mass * cylinder.volume / self.volume
        caps = mass - tube
        # Two half balls, each with its center of mass 3/8 r above its flat side, at half the length.
        shift = caps * (self.length**2 / 4.0 + 3.0 / 8.0 * self.length * self.radius)
        return cylinder.inertia(tube) + ball.inertia(caps) + np.diag([shift, shift, 0.0])

    @staticmethod
    def bound_factors(vertices: Array) -> Array:
        factors = np.zeros(BOUND)
        factors[3:12].reshape(3, 3)[2, 1] = 0.5
        factors[12] = 1.0
        return factors

    @staticmethod
    def bounding_radius(size: Array, vertices: Array) -> float:
        return float(size[0] + 0.5 * size[1])

    @staticmethod
    def lever(size: Sequence[Scalar], bound: BoundFactors) -> Scalar:
        return 0.5 * size[1]


@dataclass(frozen=True)
class Convex(_Hull):
    """The convex hull of points [n, 3], m; stored as a tuple of points.

    Collision uses at most 64 of its vertices (see ``hull.HULL_VERTICES``); mass and inertia are those of the full hull.
    """

    vertices: Any
    dim = 3

    def __post_init__(self) -> None:
        points = checks.array(self.vertices, "Convex vertices")
        if points.ndim != 2 or points.shape[1] != 3 or len(points) < 4:
            raise ValueError(f"Convex vertices must be [n, 3] with n >= 4, got shape {points.shape}")
        extents = np.linalg.svd(points - points.mean(0), compute_uv=False)
        if extents[2] <= 1e-9 * extents[0]:
            raise ValueError("Convex vertices must not all lie in one plane: the hull has no volume")
        object.__setattr__(self, "vertices", tuple(tuple(p) for p in points.tolist()))

    @cached_property
    def _properties(self) -> tuple[float, Array, Array]:
        return mass_properties(np.array(self.vertices))

    @property
    def volume(self) -> float:
        return self._properties[0]

    @property
    def center(self) -> Array:
        return self._properties[1]

    def inertia(self, mass: float) -> Array:
        return self._properties[2] * mass

    def hull(self) -> HullTables:
        return convex_tables(np.array(self.vertices))

    def full_hull(self) -> HullTables | None:
        many = len(self.vertices) > HULL_VERTICES
        return hull_tables(*hull_faces(np.array(self.vertices))) if many else None


@dataclass(frozen=True)
class Ellipsoid(_Hull):
    """An ellipsoid with semi-axes a, b and c (m) along x, y and z. In rigid physics it collides as a polyhedron with
    vertices on its surface."""

    a: float
    b: float
    c: float
    dim = 3
    geom = GeomKind.ELLIPSOID

    def __post_init__(self) -> None:
        for name in "abc":
            value = self.size_range.number(getattr(self, name), f"Ellipsoid {name}")
            object.__setattr__(self, name, value)

    @property
    def volume(self) -> float:
        return 4.0 / 3.0 * math.pi * self.a * self.b * self.c

    def inertia(self, mass: float) -> Array:
        squares = self.size**2
        return np.diag(0.2 * mass * (squares.sum() - squares))

    @property
    def size(self) -> Array:
        return np.array([self.a, self.b, self.c])

    def hull(self) -> HullTables:
        return ball()


SHAPE_KINDS: dict[ShapeKind, type[Shape]] = {
    shape.kind: shape for shape in (_Ball, Capsule, Cylinder, _Hull, HalfSpace)
}
"""The class whose static methods hold for all shapes of a kind."""


@dataclass(frozen=True)
class PlacedShape:
    """A shape at a pose in its body's (or the world's) frame, with its material.

    friction: coefficient; restitution: 0 to 1; softness: m/s per N s. Two shapes may touch if a bit of the ``contype``
    of one is set in the ``conaffinity`` of the other, as in MuJoCo. orientation: the angle (rad) or quaternion that the
    rotation was computed from; empty if it was given as a matrix.
    """

    shape: Shape
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rotation: tuple[tuple[float, float, float], ...] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    friction: float = 0.0
    restitution: float = 0.0
    softness: float = 0.0
    name: str | None = None
    contype: int = 1
    conaffinity: int = 1
    orientation: tuple[float, ...] = ()

    def record(self) -> Array:
        """The SHAPE record, in the order of layout.py."""
        position = self.shape.record_position(np.array(self.position))
        material = [self.friction, self.restitution, self.softness]
        return np.concatenate([position, np.array(self.rotation).ravel(), self.shape.size, material])


def half_space_in_world(placed: PlacedShape, position: Array, rotation: Array) -> PlacedShape:
    """A half-space on a link that never moves, as one of the world; position [3], rotation [3, 3]: the link's pose."""
    assert isinstance(placed.shape, HalfSpace)
    dim = placed.shape.dim
    normal = np.zeros(3)
    normal[:dim] = placed.shape.normal
    normal = rotation @ placed.rotation @ normal
    offset = placed.shape.offset + normal @ (position + rotation @ placed.position)
    return PlacedShape(
        HalfSpace(tuple(normal[:dim].tolist()), float(offset)),
        friction=placed.friction, restitution=placed.restitution, softness=placed.softness,
        name=placed.name, contype=placed.contype, conaffinity=placed.conaffinity,
    )  # fmt: skip


def composite(shapes: list[PlacedShape], mass: float | None, density: float) -> tuple[float, Array, Array]:
    """Mass (kg), center of mass [3] (m) and inertia about it [3, 3] (kg m^2) of a body of these shapes.

    All have the same density: ``density`` (kg/m^3, or kg/m^2 in 2D), unless the total ``mass`` (kg) is given.
    """
    volumes = np.array([placed.shape.volume for placed in shapes])
    masses = volumes * (density if mass is None else mass / volumes.sum())
    total = float(masses.sum())
    rotations = [np.array(placed.rotation) for placed in shapes]
    centers = [r @ p.shape.center + p.position for r, p in zip(rotations, shapes, strict=True)]
    com = sum((m * c for m, c in zip(masses, centers, strict=True)), np.zeros(3)) / total
    inertia = np.zeros((3, 3))
    for m, c, r, placed in zip(masses, centers, rotations, shapes, strict=True):
        lever = c - com
        inertia += r @ placed.shape.inertia(float(m)) @ r.T
        inertia += m * (lever @ lever * np.eye(3) - np.outer(lever, lever))
    return total, com, inertia


def _check_sizes(shape: Shape) -> None:
    """Check that the sizes, which are attributes of these shapes, are in their range, and store them as floats."""
    for name in shape.size_names:
        value = shape.size_range.number(getattr(shape, name), f"{type(shape).__name__} {name}")
        object.__setattr__(shape, name, value)


def _cross(a: Array, b: Array) -> Array:
    """The z components of the cross products of planar vectors [n, 2]."""
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]
