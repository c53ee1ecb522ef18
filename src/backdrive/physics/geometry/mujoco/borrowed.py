"""Meshes touch where the rigid engine has it. MuJoCo iterates for them.

Its contact points are several where faces or edges lie on each other, and MuJoCo has one (or several, with the flag
multiccd); a cylinder is a prism, and an ellipsoid a polyhedron. Frames have MuJoCo's default tangent.
"""

from __future__ import annotations

from ....ir import Scalar
from ....schema.layout import GeomKind, ShapeKind
from ...math.spatial import Vec, neg
from ..pairs import PAIRS
from ..solids import Hull, Solid
from .contacts import GeomContact, GeomPair, contact, keep

SHAPES = {
    GeomKind.PLANE: ShapeKind.PLANE,
    GeomKind.SPHERE: ShapeKind.SPHERE,
    GeomKind.CAPSULE: ShapeKind.CAPSULE,
    GeomKind.CYLINDER: ShapeKind.CYLINDER,
    GeomKind.ELLIPSOID: ShapeKind.HULL,
    GeomKind.BOX: ShapeKind.HULL,
    GeomKind.MESH: ShapeKind.HULL,
}
"""The kinds of shapes that geoms are in the rigid engine."""


def borrowed(first_kind: GeomKind, second_kind: GeomKind) -> GeomPair:
    """The pair of the rigid engine. Its normals lead from the second solid to the first."""
    first_shape, second_shape = SHAPES[first_kind], SHAPES[second_kind]
    swapped = first_shape > second_shape
    pair = PAIRS[3][(second_shape, first_shape) if swapped else (first_shape, second_shape)]
    search = pair.search

    def hull_search(first: Solid, second: Solid, margin: Scalar, first_hull: Hull, second_hull: Hull) -> Vec:
        assert search is not None
        if swapped:
            return search(second, first, second_hull, first_hull)
        return search(first, second, first_hull, second_hull)

    def contacts(first: Solid, second: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
        points = pair.contacts(second, first, features) if swapped else pair.contacts(first, second, features)
        found = [contact(p.gap, p.position, p.normal if swapped else neg(p.normal)) for p in points]
        return [keep(point.dist <= margin, point) for point in found]

    return GeomPair(
        pair.slots, contacts, continuous=pair.continuous, hull_search=None if search is None else hull_search
    )
