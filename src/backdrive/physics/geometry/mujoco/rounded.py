"""Spheres and capsules with each other."""

from __future__ import annotations

from ....ir import Scalar, clip, select
from ...math.spatial import Vec, dot, sub
from ..pairs.common import along
from ..solids import Solid
from .contacts import GeomContact, GeomPair, axis, between_balls, choose_contact, concentric_normal, keep

PARALLEL = 1e-8
"""sin² of the angle between the axes of two capsules below which they have two contacts."""


def sphere_sphere(a: Solid, b: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    only = between_balls(a.center, a.size[0], b.center, b.size[0], concentric_normal(a, b))
    return [keep(only.dist <= margin, only)]


def sphere_capsule(sphere: Solid, capsule: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    direction, half = axis(capsule), 0.5 * capsule.size[1]
    s = clip(dot(sub(sphere.center, capsule.center), direction), -half, half)
    nearest = along(capsule.center, direction, s)
    only = between_balls(sphere.center, sphere.size[0], nearest, capsule.size[0], concentric_normal(sphere, capsule))
    return [keep(only.dist <= margin, only)]


def capsule_capsule(a: Solid, b: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    """One contact, at the closest points of the segments. If the axes are parallel, two, at the ends of the part in
    which the segments overlap along a's axis: each at the end of one segment and the closest point of the other. They
    coincide if the segments do not overlap."""
    u, w, r = axis(a), axis(b), sub(a.center, b.center)
    half_a, half_b = 0.5 * a.size[1], 0.5 * b.size[1]
    cosine, ru, rw = dot(u, w), dot(r, u), dot(r, w)
    lateral = along(u, w, -cosine)
    sine2 = dot(lateral, lateral)
    parallel = sine2 < PARALLEL
    otherwise = concentric_normal(a, b)

    def on_b(s: Scalar) -> Scalar:
        """The point of b's segment closest to point s of a's line; both as distances (m) from the centers."""
        return clip(rw + cosine * s, -half_b, half_b)

    def at(s: Scalar, t: Scalar) -> GeomContact:
        """The contact of the balls at point s of a's segment and point t of b's."""
        return between_balls(along(a.center, u, s), a.size[0], along(b.center, w, t), b.size[0], otherwise)

    # The closest points of the lines, clamped to a's segment, then b's, then a's again, are those of the segments.
    lines = clip(-dot(r, lateral) / select(parallel, 1.0, sine2), -half_a, half_a)
    s = clip(cosine * on_b(lines) - ru, -half_a, half_a)
    closest = at(s, on_b(s))

    upper_b = select(cosine < 0.0, -half_b, half_b)
    ends = []
    for side in (-1.0, 1.0):
        end_a, end_b = side * half_a, side * upper_b
        beside = cosine * end_b - ru  # the end of b's segment, projected onto a's line
        b_ends_first = side * beside < half_a
        ends.append(at(clip(beside, -half_a, half_a), select(b_ends_first, end_b, on_b(end_a))))
    first = choose_contact(parallel, ends[0], closest)
    return [keep(first.dist <= margin, first), keep(parallel & (ends[1].dist <= margin), ends[1])]


SPHERE_SPHERE = GeomPair(1, sphere_sphere)
SPHERE_CAPSULE = GeomPair(1, sphere_capsule)
CAPSULE_CAPSULE = GeomPair(2, capsule_capsule)
