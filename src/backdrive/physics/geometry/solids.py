"""The vocabulary of collision: solids placed in the world, hulls, contact points, and pairs of shapes.

A pair of shape kinds (`layout.ShapeKind`, the smaller code first) is a `ShapePair`. The narrow phase of a pair has two
stages. `search` finds the closest features (vertices, edges, faces) with loops over the hulls; it returns their local
coordinates, which are constant as long as the same features are closest (the place of a capsule beside a cylinder is
not: see `ShapePair.continuous`). `contacts` computes the contact points from the placed solids and these features: it
is straight-line code, and only this stage is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ...ir import Index, Scalar, ScalarArray
from ...schema import layout
from ..math.arrays import split
from ..math.spatial import Vec

FAR = 1e9
"""Gap (m) of a slot without a contact point."""


# ------------------------------------------------------------------------------------------ solids


class Solid(NamedTuple):
    """A shape placed in the world.

    center: origin of the shape's frame (m); of a half-space: its outward unit normal. axes: rotation from the shape's
    frame to the world, 3 x 3 row major. size (m): sphere (radius, -, -); capsule and cylinder (radius, length along z,
    -); hull: scale factors of its vertices' coordinates; half-space (offset, -, -), the solid normal · x <= offset.
    """

    center: Vec
    axes: Vec
    size: Vec


class Face(NamedTuple):
    """A face of a hull, in local coordinates: outward unit normal, and a point of the face."""

    normal: Vec
    point: Vec

    @classmethod
    def of(cls, numbers: Vec) -> Face:
        """A view of FACE numbers."""
        return cls(numbers[:3], numbers[3:])

    @property
    def numbers(self) -> tuple[Scalar, ...]:
        return (*self.normal, *self.point)


class HullEdge(NamedTuple):
    """An edge of a hull, in local coordinates: both ends, and the outward unit normals of the two faces at it."""

    start: Vec
    end: Vec
    first_normal: Vec
    second_normal: Vec

    @property
    def ends(self) -> tuple[Scalar, ...]:
        return (*self.start, *self.end)


FACE = 6  # numbers of a Face in a table
EDGE = 12  # numbers of a HullEdge in a table


class Hull(NamedTuple):
    """Tables of a hull in local coordinates: those of the shape's frame, before scaling by the solid's size.

    vertices: records of 3 numbers (in 2D counter-clockwise, with z = 0). faces and edges (3D only): records of a `Face`
    and of a `HullEdge`.
    """

    vertex_count: Index
    vertices: ScalarArray
    face_count: Index
    faces: ScalarArray
    edge_count: Index
    edges: ScalarArray

    def vertex(self, k: Index) -> Vec:
        return self.vertices.get(k, 3)

    def face(self, k: Index) -> Face:
        return Face.of(self.faces.get(k, FACE))

    def edge(self, k: Index) -> HullEdge:
        return HullEdge(*split(self.edges.get(k, EDGE), 3, 3, 3, 3))


class ShapeRecord(NamedTuple):
    """A view of a SHAPE record without its material: pose of the shape in its link's frame, and sizes (m). The position
    of a half-space is its normal in the world."""

    position: Vec
    rotation: Vec
    size: Vec

    @classmethod
    def of(cls, record: Vec) -> ShapeRecord:
        return cls(
            record[layout.PLACE : layout.PLACE + 3],
            record[layout.TURN : layout.TURN + 9],
            record[layout.SIZE : layout.SIZE + 3],
        )


# ------------------------------------------------------------------------------------------ contact points


class ContactPoint(NamedTuple):
    """A point at which two solids touch, or are about to.

    gap: signed distance of the surfaces (m), negative where they penetrate. position: in the world (m), midway between
    the witness points of the two surfaces. normal: unit vector from the second solid to the first; it is the gradient
    of the gap with respect to the first solid's position.
    """

    gap: Scalar
    position: Vec
    normal: Vec

    @classmethod
    def of(cls, numbers: Vec) -> ContactPoint:
        """A view of the first CONTACT_POINT numbers."""
        return cls(numbers[GAP], tuple(numbers[POSITION:NORMAL]), tuple(numbers[NORMAL:CONTACT_POINT]))

    @property
    def numbers(self) -> tuple[Scalar, ...]:
        return (self.gap, *self.position, *self.normal)


# The record of a contact point in a slot: the numbers of a ContactPoint, and whether the point is active.
GAP = 0
POSITION = 1  # 3
NORMAL = 4  # 3
CONTACT_POINT = 7  # numbers of a ContactPoint: the differentiable part of the record
ACTIVE = 7  # 1.0 where the point takes part in the contact problem, else 0.0
CONTACT_RECORD = 8


# ------------------------------------------------------------------------------------------ pairs


PointFunction = Callable[[Solid, Solid, Vec], list[ContactPoint]]
"""(first, second, features) -> `slots` contact points; those that do not exist have the gap FAR."""

FeatureSearch = Callable[[Solid, Solid, Hull, Hull], Vec]
"""(first, second, hull of the first, hull of the second) -> features: always the same number of scalars."""


@dataclass(frozen=True)
class ShapePair:
    """The narrow phase of two kinds of shapes; see the top of this file.

    slots: the most contact points that the pair can have. search: None if the closest points have a closed form.
    prefilter: whether a test of bounding volumes first saves time; False if `contacts` costs no more than that test.
    continuous: whether features are places that move along the shapes, and not parts of the shapes such as faces and
    edges; they are then found anew at every pose.
    """

    slots: int
    contacts: PointFunction
    search: FeatureSearch | None = None
    prefilter: bool = True
    continuous: bool = False
