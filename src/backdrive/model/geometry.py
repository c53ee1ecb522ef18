"""What collision knows of the shapes of a model: records of numbers, and tables of hulls that shapes share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..schema import layout
from ..schema.layout import ShapeKind
from .hull import HullTables, convex_tables, hull_tables
from .shapes import Box, Capsule, Circle, Convex, Cylinder, HalfSpace, PlacedShape, Polygon, Shape, Sphere

Array = np.ndarray

CYLINDER_SIDES = 24
"""Against boxes and meshes, a cylinder is a prism of so many sides."""

_SQUARE = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)])

_KINDS: dict[type[Shape], ShapeKind] = {
    Circle: ShapeKind.SPHERE,
    Sphere: ShapeKind.SPHERE,
    Capsule: ShapeKind.CAPSULE,
    Cylinder: ShapeKind.CYLINDER,
    HalfSpace: ShapeKind.PLANE,
}

_SIZES = {
    ShapeKind.SPHERE: ("radius",),
    ShapeKind.CAPSULE: ("radius", "length"),
    ShapeKind.CYLINDER: ("radius", "length"),
    ShapeKind.PLANE: ("offset",),
}


class Geometry(NamedTuple):
    """The shapes of a model: the tables of a Model by their names there, and the records of its constants."""

    kind: Array
    records: Array
    hull_geometry: Array
    shape_hull: Array


def size_names(dim: int, kind: int) -> tuple[str, ...]:
    """Names of the numbers in a shape's SIZE; of a hull it is a factor of each axis."""
    return _SIZES.get(ShapeKind(kind), tuple("xyz"[:dim]))


def geometry(shapes: Sequence[PlacedShape]) -> Geometry:
    """Tables of shapes that are placed in their link's frame (planes: in the world's)."""
    pool: list[Array] = []
    stored = 0
    where: dict[bytes, tuple[int, ...]] = {}  # of hulls, by their numbers
    rows = np.zeros((len(shapes), 6), dtype=np.int64)
    for row, placed in zip(rows, shapes, strict=True):
        tables = _hull(placed.shape)
        if tables is None:
            continue
        key = b"|".join(table.tobytes() for table in tables)
        if key not in where:
            entry: list[int] = []
            for table in tables:
                entry += [stored, len(table)]
                pool.append(table.ravel())
                stored += table.size
            where[key] = tuple(entry)
        row[:] = where[key]
    return Geometry(
        np.array([_kind(placed.shape) for placed in shapes], dtype=np.int64),
        np.array([_record(placed) for placed in shapes]).reshape(len(shapes), layout.SHAPE),
        np.concatenate([np.zeros(0), *pool]),
        rows,
    )


def in_world(placed: PlacedShape, position: Array, rotation: Array) -> PlacedShape:
    """A half-space on a frame that does not move, as one of the world."""
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


def _kind(shape: Shape) -> ShapeKind:
    return _KINDS.get(type(shape), ShapeKind.HULL)


def _record(placed: PlacedShape) -> Array:
    """The SHAPE record, in the order of layout.py."""
    shape = placed.shape
    place, turn = np.array(placed.position), np.array(placed.rotation)
    size = np.zeros(3)
    if isinstance(shape, Box):
        size = np.ones(3)
        size[: shape.dim] = shape.sizes
    elif _kind(shape) == ShapeKind.HULL:
        size = np.ones(3)
    else:
        names = size_names(shape.dim, _kind(shape))
        size[: len(names)] = [getattr(shape, name) for name in names]
    if isinstance(shape, HalfSpace):
        place = np.pad(np.array(shape.normal), (0, 3 - shape.dim))
    return np.concatenate([place, turn.ravel(), size, [placed.friction, placed.restitution, placed.softness]])


def _hull(shape: Shape) -> HullTables | None:
    if isinstance(shape, Polygon):
        return _flat(np.array(shape.vertices))
    if isinstance(shape, Box):
        return _flat(_SQUARE) if shape.dim == 2 else _cube()
    if isinstance(shape, Cylinder):
        return _round_prism()
    if isinstance(shape, Convex):
        return convex_tables(np.array(shape.vertices))
    return None


def _flat(vertices: Array) -> HullTables:
    """A polygon [n, 2]: collision in the plane needs its vertices only."""
    return HullTables(np.pad(vertices, ((0, 0), (0, 1))), np.zeros((0, 6)), np.zeros((0, 12)))


@lru_cache
def _cube() -> HullTables:
    """The cube of side 1."""
    return _prism(_SQUARE)


@lru_cache
def _round_prism() -> HullTables:
    """The prism that stands for a cylinder of radius and length 1."""
    angles = 2.0 * np.pi * np.arange(CYLINDER_SIDES) / CYLINDER_SIDES
    return _prism(np.stack([np.cos(angles), np.sin(angles)], 1))


def _prism(ring: Array) -> HullTables:
    """A polygon [n, 2] from z = -1/2 to 1/2."""
    sides = len(ring)
    vertices = np.concatenate([np.pad(ring, ((0, 0), (0, 1)), constant_values=z) for z in (-0.5, 0.5)])
    here = np.arange(sides)
    after = (here + 1) % sides
    walls = [np.stack([here, after, after + sides], 1), np.stack([here, after + sides, here + sides], 1)]
    fan = np.stack([np.zeros(sides - 2, dtype=np.int64), here[1:-1], here[2:]], 1)
    return hull_tables(vertices, np.concatenate([*walls, fan, fan + sides]))
