"""Geoms on a plane. The solid of a plane is a half-space: its center is the unit normal, its first size the offset."""

from __future__ import annotations

from ....ir import Scalar, select
from ...math.spatial import Vec, add, cross, dot, rotate, scale, sub, unrotate
from ..pairs.common import along, choose, times
from ..solids import Solid
from .contacts import GeomContact, GeomPair, axis, default_tangent, keep, normalised, projected

UPRIGHT = 1e-6
"""Sine of the angle between a capsule's or cylinder's axis and the normal below which the direction in which it leans
has no derivative: that would be the inverse of the sine."""

DIAGONALS = ((-1.0, -1.0, -1.0), (1.0, -1.0, -1.0), (-1.0, 1.0, -1.0), (1.0, 1.0, -1.0))
"""One end of each diagonal of a box, in units of its half sides."""


def _height(plane: Solid, point: Vec) -> Scalar:
    """Signed distance (m) of a point from the plane."""
    return dot(plane.center, point) - plane.size[0]


def _touching(plane: Solid, point: Vec, tangent: Vec) -> GeomContact:
    """The contact of a plane and a point of a surface."""
    dist = _height(plane, point)
    return GeomContact(dist, along(point, plane.center, -0.5 * dist), plane.center, tangent)


def _within(margin: Scalar, given: GeomContact) -> GeomContact:
    return keep(given.dist <= margin, given)


# ------------------------------------------------------------------------------------------ spheres, ellipsoids


def plane_sphere(plane: Solid, sphere: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    normal = plane.center
    lowest = along(sphere.center, normal, -sphere.size[0])
    return [_within(margin, _touching(plane, lowest, default_tangent(normal)))]


def plane_ellipsoid(plane: Solid, ellipsoid: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    """The lowest point of an ellipsoid with semi-axes S and rotation R is -R S u, with u the direction of S Rᵀ n."""
    normal, size = plane.center, ellipsoid.size
    direction = normalised(times(size, unrotate(ellipsoid.axes, normal)))
    lowest = sub(ellipsoid.center, rotate(ellipsoid.axes, times(size, direction)))
    return [_within(margin, _touching(plane, lowest, default_tangent(normal)))]


# ------------------------------------------------------------------------------------------ capsules


def capsule_tangent(plane: Solid, capsule: Solid, margin: Scalar) -> Vec:
    """The tangent of both contacts: the axis of the capsule projected onto the plane. MuJoCo takes the x axis of the
    world for that of an upright capsule, even if it is not orthogonal to the normal."""
    return projected(axis(capsule), plane.center)


def plane_capsule(plane: Solid, capsule: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    """Both ends. features: the tangent, which is a constant if the capsule is upright."""
    normal, direction = plane.center, axis(capsule)
    lean = along(direction, normal, -dot(direction, normal))
    tangent = choose(dot(lean, lean) < UPRIGHT * UPRIGHT, features, normalised(lean))
    points = []
    for half in (0.5 * capsule.size[1], -0.5 * capsule.size[1]):
        lowest = along(along(capsule.center, direction, half), normal, -capsule.size[0])
        points.append(_within(margin, _touching(plane, lowest, tangent)))
    return points


# ------------------------------------------------------------------------------------------ boxes


def plane_box(plane: Solid, box: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    """The lower corner of each diagonal."""
    normal, half, tangent = plane.center, scale(0.5, box.size), default_tangent(plane.center)
    points = []
    for signs in DIAGONALS:
        corner = rotate(box.axes, times(signs, half))
        above = dot(normal, corner) > 0.0
        lower = add(box.center, tuple(select(above, -x, x) for x in corner))
        points.append(_within(margin, _touching(plane, lower, tangent)))
    return points


# ------------------------------------------------------------------------------------------ cylinders


def _downhill(plane: Solid, cylinder: Solid) -> Vec:
    """The downhill vector in the plane of a cap; its length is the sine of the tilt."""
    direction = axis(cylinder)
    down = sub(scale(dot(direction, plane.center), direction), plane.center)
    return along(down, direction, -dot(down, direction))  # without the rounding errors, which may be all there is


def lowest_place(plane: Solid, cylinder: Solid, margin: Scalar) -> Vec:
    """The direction from the center of a cap to the lowest point of its rim, in the frame of the cylinder; its x axis
    if it is upright."""
    return unrotate(cylinder.axes, normalised(_downhill(plane, cylinder), tuple(cylinder.axes[0::3])))


def plane_cylinder(plane: Solid, cylinder: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    """The lowest points of the near and of the far cap, and two more on the rim of the near cap, 120° from the first.
    Without the first, there are no others. features: see `lowest_place`; the contacts of an upright cylinder are fixed
    to it."""
    radius, normal, direction = cylinder.size[0], plane.center, axis(cylinder)
    rise, down = dot(direction, normal), _downhill(plane, cylinder)
    upright = dot(down, down) < UPRIGHT * UPRIGHT
    downhill = choose(upright, rotate(cylinder.axes, features), normalised(down))
    to_near = scale(select(rise > 0.0, -0.5, 0.5) * cylinder.size[1], direction)
    lowest, aside = scale(radius, downhill), scale(0.75**0.5 * radius, cross(direction, downhill))
    near, far = add(cylinder.center, to_near), sub(cylinder.center, to_near)
    back = along(near, lowest, -0.5)
    tangent = default_tangent(normal)
    places = (add(near, lowest), add(far, lowest), add(back, aside), sub(back, aside))
    points = [_touching(plane, place, tangent) for place in places]
    touches = points[0].dist <= margin
    return [keep(touches & (point.dist <= margin), point) for point in points]


PLANE_SPHERE = GeomPair(1, plane_sphere, cheap=True)
PLANE_CAPSULE = GeomPair(2, plane_capsule, capsule_tangent, continuous=True, cheap=True)
PLANE_ELLIPSOID = GeomPair(1, plane_ellipsoid)
PLANE_CYLINDER = GeomPair(4, plane_cylinder, lowest_place, continuous=True)
PLANE_BOX = GeomPair(4, plane_box)
