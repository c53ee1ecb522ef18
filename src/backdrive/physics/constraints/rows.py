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

# A slip alone sets the directions of friction if it is faster than this part of the speed c that friction can change in
# a step (`contact_slip`); to slower ones, another velocity is added that fades away as the slip grows.
SMALL_SLIP = 0.5

LEAST_SPEED = 1e-5  # m/s; c is at least this

LEAST_DIRECTION = 1e-24  # (m/s)²; the square of a velocity that has no direction

STICKING = 1e-8  # where friction yields across the slip by less than this, it does not: the contact sticks

UNEVEN = (0.83, -1.27, 1.09)  # in no special direction; for contacts that do not slip

FREE, BEFORE = 0, 1  # which twist of a pose in a substep: that of v*, and that of v, the velocity before the substep


class Row(NamedTuple):
    """A wrench on link a (and its opposite on link b): a couple, and a force at a point; world axes."""

    point: Vec
    couple: Vec
    force: Vec


class Slip(NamedTuple):
    """How a contact in 3D slips (`contact_slip`): the tangential velocity of its first link against the second in the
    free motion v* (m/s); the velocity that is added to it if it is slow (m/s, `slip_direction`); and how much friction
    across the slip yields, as a part of the inverse mass."""

    velocity: Vec
    still: Scalar
    yielding: Scalar

    @classmethod
    def of(cls, numbers: Vec) -> Slip:
        return cls(tuple(numbers[:3]), *numbers[3:])


SLIP = 5  # numbers of a `Slip`
NO_SLIP = Slip(ZERO3, 0.0, 0.0)


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


def contact_slip(point: ContactPoint, surface: Scalar, friction: Scalar, a: Pose, b: Pose) -> Vec:
    """The numbers of a contact's `Slip`; the poses of its two links have the twists of v* and of v, the velocity before
    the step (in an impact, both are that before the impact). friction: the coefficient μ.

    Let c be about the speed (m/s) that friction can change in the step: μ times the speed at which v* closes the gap,
    and by which it differs from v at the point of contact. Coulomb friction of a contact that slips faster than that
    opposes its slip alone. So, across the slip, friction yields the more the faster the slip s of v is: by (s / c)⁴,
    relative to the inverse mass. A contact that slips more slowly sticks, or begins or ceases to slide.
    """
    n, position = point.normal, contact_position(point, surface)
    ends = [[end.velocity(position, k) for k in (FREE, BEFORE)] for end in (a, b)]
    free, before = (sp.sub(x, y) for x, y in zip(*ends, strict=True))
    closing = sp.dot(n, free)
    square = closing * closing
    for end in ends:
        change = sp.sub(*end)
        square = sp.dot(change, change, square)
    square = LEAST_SPEED * LEAST_SPEED + friction * friction * square  # c²
    inverse = 1.0 / square
    slip, slip_before = tangential(n, free), tangential(n, before)
    fading = maximum(1.0 - sp.dot(slip, slip) * (inverse * SMALL_SLIP**-2), 0.0)
    for _ in range(2):
        fading = fading * fading
    ratio = sp.dot(slip_before, slip_before) * inverse
    return (*slip, SMALL_SLIP * sqrt(square) * fading, maximum(ratio * ratio - STICKING, 0.0))


class ContactRows(NamedTuple):
    """The rows of a contact, the normal first; and how much each yields, as a part of the inverse mass."""

    rows: list[Row]
    yielding: list[Scalar]


def contact_rows(point: ContactPoint, surface: Scalar, slip: Slip, dim: int, directions: int) -> ContactRows:
    """The normal, and the directions of friction, evenly spread in the tangent plane.

    surface: that of the pair. slip: not read in 2D, where the tangent plane is a line.
    """
    normal = contact_normal(point, surface)
    n = normal.force
    if dim == 2:
        return ContactRows([normal, normal._replace(force=(-n[1], n[0], 0.0))], [0.0, 0.0])
    along = slip_direction(n, slip)
    across = sp.cross(n, along)
    angles = [math.pi * k / directions for k in range(directions)]
    turns = [(round(math.cos(t), 15), round(math.sin(t), 15)) for t in angles]
    tangents = [sp.add(sp.scale(c, across), sp.scale(s, along)) for c, s in turns]
    return ContactRows(
        [normal, *(normal._replace(force=d) for d in tangents)], [0.0, slip.yielding, *[0.0] * (directions - 1)]
    )


def slip_direction(n: Vec, slip: Slip) -> Vec:
    """The unit vector along the slip, from which the directions of friction are counted.

    The first of them is across the slip, where a side of the pyramid touches the cone. So a contact that slides is held
    back by μ λn, whatever the axes of the world and however many directions there are.

    Where a contact sticks, its directions do not matter; but they must be smooth, and the same from step to step, so
    that rounding and unrest do not decide what friction holds. So another velocity is added to slow slips, which is a
    smooth function of n alone, and lies along an axis if n does. It is zero at one normal and its opposite, in general
    position, as no field of tangents is without zeros on a sphere; where the sum is zero, another direction is taken.
    """
    x, y, z = UNEVEN
    direction = tangential(n, sp.add(slip.velocity, sp.scale(slip.still, (x * n[2], y * n[0], z * n[1]))))
    vanishes = sp.dot(direction, direction) < LEAST_DIRECTION
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
