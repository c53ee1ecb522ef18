"""The narrow phase of a pile: the contact points of a pair of shapes; lanes are pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..ir import Floats, Scalar, maximum, select
from ..physics.geometry.collision import MARGIN
from ..physics.geometry.pairs import PAIRS
from ..physics.geometry.pairs.boxes import BOX_BOX
from ..physics.geometry.reach import in_reach
from ..physics.geometry.solids import Hull, ShapePair, Solid
from ..physics.math import spatial as sp
from ..physics.math.arrays import split
from ..physics.math.spatial import Vec
from ..physics.tree.poses import Pose
from ..schema.layout import ShapeKind
from .records import SOLID
from .shapes import to_solid


@dataclass(frozen=True)
class PairForm:
    """Settings on which the equations of a pair of shapes depend.

    kinds: of the two shapes. motion: numbers of a body's place and twists. boxes: whether both hulls are boxes in 3D.
    """

    dim: int
    kinds: tuple[ShapeKind, ShapeKind]
    motion: int
    boxes: bool = False

    @property
    def pair(self) -> ShapePair:
        return BOX_BOX if self.boxes else PAIRS[self.dim][self.kinds]

    def feature_count(self, a: Hull, b: Hull) -> int:
        """How many numbers `search` returns for these hulls, by calling it on floats."""
        if self.pair.search is None:
            return 0
        above, here = (Solid((0.0, z, 0.0), sp.IDENTITY, (1.0, 1.0, 1.0)) for z in (9.0, 0.0))
        return len(self.pair.search(above, here, a, b))


@dataclass(frozen=True)
class PlacedPair:
    """The two shapes of a pair: records of `SOLID`, hulls, the motions of their bodies, and their radii (m)."""

    solids: tuple[Vec, Vec]
    hulls: Sequence[Hull]
    motions: Sequence[Pose]
    sizes: Sequence[Scalar]

    def velocity(self, end: int, point: Vec) -> Vec:
        """The velocity of a point of one of the two bodies, in the free motion."""
        return self.motions[end].velocity(point)


def to_hull(floats: np.ndarray, tables: tuple[int, ...]) -> Hull:
    """A hull, from the offsets and counts of its vertices, faces and edges."""
    table = Floats(floats)
    vertex, nvertex, face, nface, edge, nedge = tables
    return Hull(nvertex, table.at(vertex), nface, table.at(face), nedge, table.at(edge))


def smaller(a: Scalar, b: Scalar) -> Scalar:
    """The smaller radius of two shapes."""
    return select(a < b, a, b)


def contact_points(pair: ShapePair, features: Vec) -> Callable[..., list[Scalar]]:
    """Gap, position and normal of every slot, as a function of the two solids; features: constants."""

    def numbers(*x: Scalar) -> list[Scalar]:
        a, b = split(x, SOLID.size, SOLID.size)
        return [y for point in pair.contacts(to_solid(a), to_solid(b), features) for y in point.numbers]

    return numbers


def narrow_phase(form: PairForm, placed: PlacedPair, left: Scalar) -> tuple[list[Scalar], Vec]:
    """The contact point of every slot, each with a flag that is 1 if it counts within the time `left`; the features."""
    a, b = (to_solid(solid) for solid in placed.solids)
    features = tuple(form.pair.search(a, b, *placed.hulls)) if form.pair.search else ()
    margin = MARGIN * smaller(*placed.sizes)
    numbers: list[Scalar] = []
    for point in form.pair.contacts(a, b, features):
        apart = sp.sub(placed.velocity(1, point.position), placed.velocity(0, point.position))
        counts = in_reach(point.gap, margin, maximum(sp.dot(point.normal, apart), 0.0), left)
        numbers += [*point.numbers, select(counts, 1.0, 0.0)]
    return numbers, features
