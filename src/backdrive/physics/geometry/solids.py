"""What collision works with: solids placed in the world, and the places where two of them touch.

A pair of shape kinds (`layout.ShapeKind`, the smaller code first) is a `Pair`: it finds up to `slots` contacts. Where
shapes have corners, `search` first finds which features meet (vertices, edges, faces), looping over the hulls; what it
returns are local coordinates of features, constants as long as the same features meet. `contacts` is straight-line
code on the placed solids, and is what gets differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...ir import Scalar
from ..math.spatial import Vec

FAR = 1e9  # m: the gap of a slot that has no contact


class Solid(NamedTuple):
    """A shape in the world.

    center: origin of its frame (of a plane: its unit normal); axes: its axes to the world's, 3 x 3 row major; size:
    sphere (radius, ., .), capsule and cylinder (radius, length along z, .), hull: factors of its vertices' coordinates,
    plane (offset, ., .): the solid is normal · x <= offset.
    """

    center: Vec
    axes: Vec
    size: Vec


class Touch(NamedTuple):
    """A contact: gap (m, negative: penetration), point (midway between the surfaces), and the normal (unit vector, from
    the second solid to the first: the direction in which the first is pushed)."""

    gap: Scalar
    point: Vec
    normal: Vec


class Hull(NamedTuple):
    """Tables of a hull in its own frame, before it is scaled by the solid's size.

    vertices: count and records of 3 floats (2D: counter-clockwise, z = 0). faces (3D): records of FACE floats: outward
    unit normal (3), a point on it (3). edges (3D): records of EDGE floats: both ends (3, 3), outward normals of the
    two faces at it (3, 3). Records are read by ``vertices.get(k, 3)``, where k may be a traced integer; counts are
    ints or traced integers, for `loop`.
    """

    vertex_count: Any
    vertices: Any
    face_count: Any
    faces: Any
    edge_count: Any
    edges: Any


FACE = 6
EDGE = 12


class Pair(NamedTuple):
    """How two kinds of shapes touch; see the top of this file."""

    slots: int
    contacts: Callable[[Solid, Solid, Vec], list[Touch]]
    search: Callable[[Solid, Solid, Hull, Hull], Vec] | None = None
