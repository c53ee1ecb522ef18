"""The registry of shape pairs: for 2D and 3D, how every two kinds of shapes touch.

To add a pair, write its `ShapePair` in one of the modules here or in a new one, and list it below. Kinds are ordered by
their codes; the narrow phase of (a, b) always gets a shape of kind a first.
"""

from __future__ import annotations

from ....schema.layout import ShapeKind
from ..solids import ShapePair
from . import hull_rounded, hulls, planar, rounded

Kinds = tuple[ShapeKind, ShapeKind]

SPHERE, CAPSULE, CYLINDER = ShapeKind.SPHERE, ShapeKind.CAPSULE, ShapeKind.CYLINDER
HULL, PLANE = ShapeKind.HULL, ShapeKind.PLANE

PAIRS: dict[int, dict[Kinds, ShapePair]] = {
    2: {
        (SPHERE, SPHERE): rounded.SPHERE_SPHERE,
        (SPHERE, HULL): planar.CIRCLE_POLYGON,
        (SPHERE, PLANE): rounded.SPHERE_PLANE,
        (HULL, HULL): planar.POLYGON_POLYGON,
        (HULL, PLANE): planar.POLYGON_PLANE,
    },
    3: {
        (SPHERE, SPHERE): rounded.SPHERE_SPHERE,
        (SPHERE, CAPSULE): rounded.SPHERE_CAPSULE,
        (SPHERE, CYLINDER): rounded.SPHERE_CYLINDER,
        (SPHERE, HULL): hull_rounded.SPHERE_HULL,
        (SPHERE, PLANE): rounded.SPHERE_PLANE,
        (CAPSULE, CAPSULE): rounded.CAPSULE_CAPSULE,
        (CAPSULE, CYLINDER): rounded.CAPSULE_CYLINDER,
        (CAPSULE, HULL): hull_rounded.CAPSULE_HULL,
        (CAPSULE, PLANE): rounded.CAPSULE_PLANE,
        (CYLINDER, CYLINDER): hulls.CYLINDER_CYLINDER,
        (CYLINDER, HULL): hulls.CYLINDER_HULL,
        (CYLINDER, PLANE): rounded.CYLINDER_PLANE,
        (HULL, HULL): hulls.HULL_HULL,
        (HULL, PLANE): hulls.HULL_PLANE,
    },
}
"""The pairs of each dimension. Tables and kernels number them in the order of their sorted keys."""
