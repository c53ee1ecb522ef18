"""Contacts where MuJoCo has them: the same number, distances, positions, normals and tangent frames.

    contacts            vocabulary: kinds of geoms, contacts with frames, pairs of geoms
    planes              a plane with every other geom
    rounded             spheres and capsules with each other
    spheres             a sphere with a box or a cylinder
    capsule_box         a capsule with a box
    boxes               two boxes
    capsule_cylinder    a capsule with a cylinder
    cylinder_box        a cylinder with a box
    flat_faces          caps that lie flat on each other, or on a face of a box
    flat_lines          sides and edges that lie on a cap or a face
    ellipsoids          an ellipsoid with a sphere, a capsule or another ellipsoid
    ellipsoid_corners   an ellipsoid with a box or a cylinder
    cylinders           two cylinders
    borrowed            meshes, which touch where the rigid engine has it, and not where MuJoCo has it

MuJoCo iterates, to a tolerance, for convex solids without a closed form: `capsule_cylinder`, `cylinder_box`,
`ellipsoids`, `ellipsoid_corners` and `cylinders` find what its iterations converge to.

`GEOM_PAIRS` is the registry. A pair is a `GeomPair`: `features(first, second, margin)` finds what is constant, and
`contacts(first, second, margin, features)` returns a `GeomContact` for each of its `slots`: straight-line code, which
`vjp` differentiates. Where a pair is `continuous`, features must be found again at every pose.

Geoms are `Solid`s with the sizes that shapes have here: a capsule or cylinder has (radius, length), a box its three
sides, an ellipsoid its three semi-axes, and the center of a plane is its normal and the first size its offset.
They are in MuJoCo's order, by the codes of `GeomKind`, which has planes first. Of two geoms of one kind, the first
is the one that MuJoCo has first, by geom id or in the order of a `<pair>`.

margin (m): contacts exist where dist <= margin. In MuJoCo 4 that is the sum of margin and gap of the two geoms; only
contacts with dist < margin (without the gap) have forces. An empty slot has the distance FAR and no derivatives.

The contact frame has MuJoCo's normal, from the first geom to the second. The direction (tangent) of a contact matters
for pyramidal friction cones, and where friction differs by direction.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

from ....schema.layout import GeomKind
from . import (
    boxes,
    capsule_box,
    capsule_cylinder,
    cylinder_box,
    cylinders,
    ellipsoid_corners,
    ellipsoids,
    planes,
    rounded,
    spheres,
)
from .borrowed import borrowed
from .contacts import GEOM_CONTACT, GeomContact, GeomPair

PLANE, SPHERE, CAPSULE = GeomKind.PLANE, GeomKind.SPHERE, GeomKind.CAPSULE
ELLIPSOID, CYLINDER, BOX = GeomKind.ELLIPSOID, GeomKind.CYLINDER, GeomKind.BOX

GeomKinds = tuple[GeomKind, GeomKind]

GEOM_PAIRS: dict[GeomKinds, GeomPair] = {
    (PLANE, SPHERE): planes.PLANE_SPHERE,
    (PLANE, CAPSULE): planes.PLANE_CAPSULE,
    (PLANE, ELLIPSOID): planes.PLANE_ELLIPSOID,
    (PLANE, CYLINDER): planes.PLANE_CYLINDER,
    (PLANE, BOX): planes.PLANE_BOX,
    (SPHERE, SPHERE): rounded.SPHERE_SPHERE,
    (SPHERE, CAPSULE): rounded.SPHERE_CAPSULE,
    (SPHERE, ELLIPSOID): ellipsoids.SPHERE_ELLIPSOID,
    (SPHERE, CYLINDER): spheres.SPHERE_CYLINDER,
    (SPHERE, BOX): spheres.SPHERE_BOX,
    (CAPSULE, CAPSULE): rounded.CAPSULE_CAPSULE,
    (CAPSULE, ELLIPSOID): ellipsoids.CAPSULE_ELLIPSOID,
    (CAPSULE, CYLINDER): capsule_cylinder.CAPSULE_CYLINDER,
    (CAPSULE, BOX): capsule_box.CAPSULE_BOX,
    (ELLIPSOID, ELLIPSOID): ellipsoids.ELLIPSOID_ELLIPSOID,
    (ELLIPSOID, CYLINDER): ellipsoid_corners.ELLIPSOID_CYLINDER,
    (ELLIPSOID, BOX): ellipsoid_corners.ELLIPSOID_BOX,
    (CYLINDER, CYLINDER): cylinders.CYLINDER_CYLINDER,
    (CYLINDER, BOX): cylinder_box.CYLINDER_BOX,
    (BOX, BOX): boxes.BOX_BOX,
}
"""The pairs of geoms that touch where MuJoCo has it."""

ALL_PAIRS: list[tuple[GeomKinds, GeomPair]] = [
    (kinds, GEOM_PAIRS.get(kinds) or borrowed(*kinds))
    for kinds in combinations_with_replacement(GeomKind, 2)
    if kinds != (PLANE, PLANE)
]
"""These and the borrowed ones, in the order in which tables and kernels number them."""

__all__ = ["ALL_PAIRS", "GEOM_CONTACT", "GEOM_PAIRS", "GeomContact", "GeomKind", "GeomKinds", "GeomPair"]
