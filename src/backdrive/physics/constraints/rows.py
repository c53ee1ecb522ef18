"""The rows of constraints: each is a wrench between two links, and with it the relative speed that it acts on.

A row is a wrench: a couple, and a force at a point, in world axes. It acts on link a, and its opposite on link b. J v
is the power of the wrench on the motion of both: the same numbers say how an impulse acts and which speed is meant.

    contact          normal and tangents at the point of contact         λ >= 0,  |λt| <= μ λn
    limit            the axis of the joint, away from its nearer limit    λ >= 0
    joint friction   the axis of the joint                               |λ| <= h τ
    equality         along, about or between (`EqualityKind`)             λ of any sign
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...ir import Index, Scalar, maximum, minimum, select, sqrt, traced
from ...schema import layout
from ...schema.layout import EqualityKind, Kind
from ..geometry.solids import ContactPoint
from ..math import spatial as sp
from ..math.spatial import ZERO3, Vec
from ..tree.poses import Pose
from ..tree.tree import LinkConstants

MOST_FRICTION = 1e6  # larger coefficients of friction, up to infinity, count as this one

# m/s; the slip of a contact, if it is much faster than this, sets the directions of friction (`slip_direction`). Slips
# of contacts at rest are rounding errors, and must be much slower.
SMALL_SLIP = 1e-4

UNEVEN = (0.83, -1.27, 1.09)  # in no special direction; for contacts that do not slip


class Row(NamedTuple):
    """A wrench on link a (and its opposite on link b): a couple, and a force at a point; world axes."""

    point: Vec
    couple: Vec
    force: Vec


class Material(NamedTuple):
    """Of a contact: coefficient of friction, coefficient of restitution, and softness ((m/s) per N s)."""

    friction: Scalar
    restitution: Scalar
    softness: Scalar


def row_speed(row: Row, pose: Pose, k: int = 0) -> Scalar:
    """A link's part of J v, for velocity k of its pose: the power of the row's wrench on the link's twist."""
    return sp.dot(row.couple, pose.twist(k).angular, sp.dot(row.force, pose.velocity(row.point, k)))


def contact_position(point: ContactPoint, surface: Scalar) -> Vec:
    """Where the forces of a contact act; surface: that of its pair (`Constraints.pair_surface`)."""
    return sp.add(point.position, sp.scale(surface * point.gap, point.normal))


def contact_normal(point: ContactPoint, surface: Scalar) -> Row:
    """The row of a contact's normal."""
    return Row(contact_position(point, surface), ZERO3, point.normal)


def contact_slip(point: ContactPoint, surface: Scalar, a: Pose, b: Pose, k: int = 0) -> Vec:
    """The tangential velocity (m/s) of link a against link b at a contact, for velocity k of their poses."""
    position = contact_position(point, surface)
    return tangential(point.normal, sp.sub(a.velocity(position, k), b.velocity(position, k)))


def contact_rows(point: ContactPoint, surface: Scalar, slip: Vec, dim: int, directions: int) -> list[Row]:
    """The normal, and the directions of friction, evenly spread in the tangent plane.

    surface: that of the pair. slip: `contact_slip` of the free motion v* (in an impact: of the velocity before it); it
    is not read in 2D, where the tangent plane is a line.
    """
    normal = contact_normal(point, surface)
    n = normal.force
    if dim == 2:
        tangents: list[Vec] = [(-n[1], n[0], 0.0)]
    else:
        along = slip_direction(n, slip)
        across = sp.cross(n, along)
        angles = [math.pi * k / directions for k in range(directions)]
        turns = [(round(math.cos(t), 15), round(math.sin(t), 15)) for t in angles]
        tangents = [sp.add(sp.scale(c, across), sp.scale(s, along)) for c, s in turns]
    return [normal, *(normal._replace(force=d) for d in tangents)]


def slip_direction(n: Vec, slip: Vec) -> Vec:
    """The unit vector along the slip (m/s, tangential), from which the directions of friction are counted.

    One of them is across the slip. Then a contact that slides is held back by μ λn against its slip, whatever the axes
    of the world and however many directions there are: there, a side of the pyramid touches the cone.

    Where nothing slips, a contact sticks, and the directions do not matter; but they must be smooth. So a velocity of
    up to SMALL_SLIP is added, which fades away as (SMALL_SLIP / slip)⁴. Its direction is a smooth function of n alone,
    and lies along an axis if n does. It is zero at one normal and its opposite, in general position, as no field of
    tangents is without zeros on a sphere; where the sum is zero, another direction is taken.
    """
    fading = SMALL_SLIP * SMALL_SLIP / sp.dot(slip, slip, SMALL_SLIP * SMALL_SLIP)
    x, y, z = UNEVEN
    still = sp.scale(SMALL_SLIP * fading * fading, (x * n[2], y * n[0], z * n[1]))
    direction = tangential(n, sp.add(slip, still))
    vanishes = sp.dot(direction, direction) < (1e-6 * SMALL_SLIP) ** 2
    direction = [select(vanishes, other, d) for other, d in zip(tangential(n, UNEVEN), direction, strict=True)]
    return sp.scale(1.0 / sqrt(sp.dot(direction, direction)), direction)


def tangential(n: Vec, x: Vec) -> Vec:
    """The part of x that is perpendicular to the unit vector n."""
    return sp.sub(x, sp.scale(sp.dot(n, x), n))


def friction_share(dim: int, directions: int) -> float:
    """The part of μ that bounds each direction, so that the friction pyramid circumscribes the cone.

    The forces of m directions add up to a polygon of 2 m sides, tan(π / 2m) times wider than one part.
    """
    return 1.0 if dim == 2 else round(math.tan(math.pi / (2 * directions)), 15)


def material(a: Vec, b: Vec, combine: str) -> Material:
    """The material of a contact, from the SHAPE records of its two shapes."""

    def both(at: int) -> Scalar:
        x, y = a[at], b[at]
        if combine == "mean":
            return 0.5 * (x + y)
        return maximum(x, y) if combine == "max" else minimum(x, y)

    friction = minimum(both(layout.FRICTION), MOST_FRICTION)
    return Material(friction, both(layout.RESTITUTION), a[layout.SOFTNESS] + b[layout.SOFTNESS])


def joint_row(kind: Index, record: Vec, pose: Pose) -> Row:
    """The axis of a hinge or slider, as a row whose speed is the joint's velocity; pose: that of its link."""
    axis = sp.rotate(pose.rotation, LinkConstants.of(record).axis)
    hinge = 1.0 if not traced(kind) and kind == Kind.HINGE else select(kind == Kind.HINGE, 1.0, 0.0)
    return Row(pose.origin, sp.scale(hinge, axis), sp.scale(1.0 - hinge, axis))


def equality_row(kind: EqualityKind, record: Vec, a: Pose, b: Pose) -> tuple[Row, Scalar]:
    """The row of an equality between links with poses a and b, and its violation (m or rad)."""
    (Wa, xa, _), (Wb, xb, _) = a, b
    at_a = sp.rotate(Wa, record[layout.POINT_A : layout.POINT_A + 3], xa)
    at_b = sp.rotate(Wb, record[layout.POINT_B : layout.POINT_B + 3], xb)
    d = sp.rotate(Wa, record[layout.DIRECTION : layout.DIRECTION + 3])
    apart = sp.sub(at_a, at_b)
    if kind == EqualityKind.ALONG:  # d turns with a: both speeds are those at b's point
        return Row(at_b, ZERO3, d), sp.dot(d, apart)
    if kind == EqualityKind.ABOUT:
        # The axial vector of Wa R₀ Wbᵀ is the rotation of a relative to b, up to third order.
        E = sp.matmul(sp.matmul(Wa, record[layout.RELATIVE : layout.RELATIVE + 9]), sp.transpose(Wb))
        turned = (0.5 * (E[7] - E[5]), 0.5 * (E[2] - E[6]), 0.5 * (E[3] - E[1]))
        return Row(at_b, d, ZERO3), sp.dot(d, turned)
    square = sp.dot(apart, apart)
    length = sqrt(select(square < 1e-24, 1.0, square))
    u = sp.scale(1.0 / length, apart)
    return Row(at_b, ZERO3, u), select(square < 1e-24, 0.0, length) - record[layout.DISTANCE]
