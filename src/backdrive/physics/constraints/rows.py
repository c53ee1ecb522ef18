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


def contact_rows(point: ContactPoint, surface: Scalar, dim: int, directions: int) -> list[Row]:
    """The normal, and the directions of friction, evenly spread in the tangent plane; surface: that of the pair."""
    n = point.normal
    position = sp.add(point.position, sp.scale(surface * point.gap, n))
    if dim == 2:
        tangents: list[Vec] = [(-n[1], n[0], 0.0)]
    else:
        # An orthonormal frame that is smooth but at n = -z (Duff et al., Building an Orthonormal Basis, Revisited).
        sign = select(n[2] < 0.0, -1.0, 1.0)
        a = -1.0 / (sign + n[2])
        b = n[0] * n[1] * a
        x = (1.0 + sign * n[0] * n[0] * a, sign * b, -sign * n[0])
        y = (b, sign + n[1] * n[1] * a, -n[1])
        angles = [math.pi * k / directions for k in range(directions)]
        turns = [(round(math.cos(t), 15), round(math.sin(t), 15)) for t in angles]
        tangents = [sp.add(sp.scale(c, x), sp.scale(s, y)) for c, s in turns]
    return [Row(position, ZERO3, d) for d in (n, *tangents)]


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
