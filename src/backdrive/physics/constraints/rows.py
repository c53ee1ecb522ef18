"""What constrains a motion, as rows: each a push that two links give each other, and the rate at which they part.

A row is a wrench: a couple, and a force at a point, in world axes. It acts on link a, and its opposite on link b. J v
is the power of the wrench on their motion: the same six numbers say how a force acts and what a speed is.

    contact          normal and tangents at the point of contact         λ >= 0,  |λt| <= μ λn
    limit            the axis of the joint, away from its nearer limit    λ >= 0
    joint friction   the axis of the joint                               |λ| <= h τ
    equality         along, about or between (`EqualityKind`)             λ of any sign
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ...ir import Scalar, maximum, minimum, select, sqrt, traced
from ...schema import layout
from ...schema.layout import EqualityKind, Kind
from ..geometry.bounds import BOUND
from ..geometry.solids import Touch
from ..math import spatial as sp
from ..math.spatial import ZERO3, Vec
from ..tree.tree import LinkConstants
from . import tables

MOST_FRICTION = 1e6  # what an infinite coefficient of friction means


class Row(NamedTuple):
    """A wrench on link a (and its opposite on link b): a couple, and a force at a point; world axes."""

    point: Vec
    couple: Vec
    force: Vec


class ChainSegment(NamedTuple):
    """A part of a way: where its single coordinates are listed and how many they are; the loose root that follows."""

    start: Any
    count: Any
    floating: Any


class Support(NamedTuple):
    """Two links (records), and the joints that move when they push each other; see `tables`. at: where that is kept."""

    at: Any
    a: Any
    root_a: Any
    way_a: Any
    own_a: Any
    floating_a: Any
    b: Any
    root_b: Any
    way_b: Any
    own_b: Any
    floating_b: Any
    common: Any
    floating: Any

    def grounded(self) -> Support:
        """If b is the world."""
        return self._replace(b=0, root_b=0, way_b=0, own_b=0, floating_b=-1, common=0, floating=-1)

    def segments(self) -> tuple[ChainSegment, ChainSegment, ChainSegment]:
        """Those of a and b alone, and the one that is common."""
        return (
            ChainSegment(self.way_a, self.own_a, self.floating_a),
            ChainSegment(self.way_b, self.own_b, self.floating_b),
            ChainSegment(self.way_a + self.own_a, self.common, self.floating),
        )


class Material(NamedTuple):
    friction: Scalar
    restitution: Scalar
    softness: Scalar


class Constraints:
    """The tables of a model's constraints, and how they are to be understood.

    dim: 2 or 3. directions: of friction, at a contact (1 in 2D, at least 2 in 3D). combine: how the friction and
    restitution of two shapes give those of their contact. bounces: whether restitution is looked at. kinds: the kinds
    of pairs that can occur. nshape: shapes. npair, nslot, nsingle: pairs, contacts and other rows that there can be.
    grounded: it is known that b is the world in all pairs. constants: the model's, which rolled loops can read.
    """

    def __init__(
        self, dim: int, directions: int, combine: str, bounces: bool, kinds: tuple[int, ...], nshape: Any, npair: Any,
        nslot: Any, nsingle: Any, grounded: bool, ints: Any, floats: Any, constants: Any,
    ) -> None:  # fmt: skip
        self.dim, self.directions, self.combine, self.bounces, self.kinds = dim, directions, combine, bounces, kinds
        self.nshape, self.npair, self.nslot, self.nsingle, self.grounded = nshape, npair, nslot, nsingle, grounded
        self.ints, self.floats, self.constants = ints, floats, constants

    @property
    def block(self) -> int:
        """Rows of a contact."""
        return 1 + self.directions

    @property
    def nimpulse(self) -> Any:
        """Places for impulses: of all single rows, then of all contacts."""
        return self.nsingle + self.nslot * self.block

    def head(self, name: str) -> Any:
        return self.ints[tables.HEAD.index(name)]

    def group(self, number: int) -> Any:
        """First pair, end and first slot of a kind of pairs."""
        return self.ints.at(len(tables.HEAD)).get(number, tables.GROUP)

    def shape(self, i: Any) -> Any:
        """Link record, and where the hull's tables are."""
        return self.ints.at(self.head("shape")).get(i, tables.SHAPE)

    def shape_record(self, i: Any) -> Vec:
        record = self.constants.at(self.head("shape_constants")).get(i, layout.SHAPE)
        if self.dim == 3:
            return record
        turn = record[layout.TURN : layout.TURN + 9]
        place, rest = record[layout.PLACE : layout.PLACE + 2], record[layout.SIZE :]
        return (*place, 0.0, turn[0], turn[1], 0.0, turn[3], turn[4], 0.0, 0.0, 0.0, 1.0, *rest)  # in the plane

    def bound(self, i: Any) -> Vec:
        """Of a shape: see `bounds.bound_factors`."""
        return self.floats.at(self.head("bound")).get(i, BOUND)

    def support(self, at: Any) -> Support:
        return Support(at, *self.ints.at(at).get(0, tables.SUPPORT))

    def pair_shapes(self, i: Any) -> Any:
        return self.ints.at(self.head("pair") + i * tables.PAIR).get(0, 2)

    def pair(self, i: Any) -> tuple[Any, Any, Support]:
        a, b = self.pair_shapes(i)
        support = self.support(self.head("pair") + i * tables.PAIR + 2)
        return a, b, support.grounded() if self.grounded else support

    def pair_size(self, i: Any) -> Scalar:
        """The radius of the smaller shape of a pair, m."""
        return self.floats.at(self.head("contact")).get(i, tables.CONTACT)[0]

    def pair_surface(self, i: Any) -> Scalar:
        """Which surface the forces of a pair act on: 1/2 a's, -1/2 b's, 0 midway."""
        return self.floats.at(self.head("contact")).get(i, tables.CONTACT)[1]

    def joint(self, name: str, i: Any) -> tuple[Any, Any, Any, Support]:
        """Link record, coordinate in q and kind of the joint of a "limit" or "friction", and its support."""
        start = self.head(name) + i * tables.JOINT
        link, at, kind = self.ints.at(start).get(0, 3)
        return link, at, kind, self.support(start + 3)

    def joint_link(self, link: Any) -> Vec:
        """The LINK constants of a link given by its record."""
        return self.constants.get(link - 1, layout.LINK)

    def equality(self, i: Any) -> tuple[Any, Support]:
        start = self.head("equality") + i * tables.EQUALITY
        return self.ints[start], self.support(start + 1)

    def equality_record(self, i: Any) -> Vec:
        return self.constants.at(self.head("equality_constants")).get(i, layout.EQUALITY)

    def limit_record(self, i: Any) -> Vec:
        return self.constants.at(self.head("limit_constants")).get(i, layout.LIMIT)

    def joint_friction(self, i: Any) -> Scalar:
        return self.constants.at(self.head("friction_constants"))[i]

    def inverse_mass(self, support: Support, angular: Any = 0) -> Scalar:
        """The scale of what a unit of impulse between two links does, 1/kg, or 1/(kg m²) if angular is 1."""
        a, b = (self.floats.at(link * tables.INVERSE_MASS + angular)[0] for link in (support.a, support.b))
        return a + b


# ------------------------------------------------------------------------------------------ geometry of rows


def row_speed(row: Row, place: Vec, twist: Vec) -> Scalar:
    """The power of a wrench on the motion (ω, u) of a link at this place: its part of J v."""
    w, arm = twist[:3], sp.sub(row.point, place[9:12])
    return sp.dot(row.couple, w, sp.dot(row.force, sp.cross(w, arm, twist[3:])))


def contact_rows(touch: Touch, surface: Scalar, dim: int, directions: int) -> list[Row]:
    """The normal, and directions of friction that are evenly spread in the tangent plane, at a pair's `surface`."""
    n = touch.normal
    point = sp.add(touch.point, sp.scale(surface * touch.gap, n))
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
    return [Row(point, ZERO3, d) for d in (n, *tangents)]


def friction_share(dim: int, directions: int) -> float:
    """The part of μ that each direction has, so that the pyramid touches the cone from outside.

    The forces of all directions add up to a polygon of 2 · directions sides, tan(π / 2m) times wider than a part.
    """
    return 1.0 if dim == 2 else round(math.tan(math.pi / (2 * directions)), 15)


def material(a: Vec, b: Vec, combine: str) -> Material:
    """Of the contact of two shapes, from their records."""

    def both(at: int) -> Scalar:
        x, y = a[at], b[at]
        if combine == "mean":
            return 0.5 * (x + y)
        return maximum(x, y) if combine == "max" else minimum(x, y)

    friction = minimum(both(layout.FRICTION), MOST_FRICTION)
    return Material(friction, both(layout.RESTITUTION), a[layout.SOFTNESS] + b[layout.SOFTNESS])


def joint_row(kind: Any, record: Vec, place: Vec) -> Row:
    """The axis of a hinge or slider, as a row whose speed is the joint's velocity; place: that of its link."""
    axis = sp.rotate(place[:9], LinkConstants.of(record).axis)
    hinge = 1.0 if not traced(kind) and kind == Kind.HINGE else select(kind == Kind.HINGE, 1.0, 0.0)
    return Row(place[9:12], sp.scale(hinge, axis), sp.scale(1.0 - hinge, axis))


def equality_row(kind: EqualityKind, record: Vec, a: Vec, b: Vec) -> tuple[Row, Scalar]:
    """The row of an equation between links at places a and b, and how far it is violated."""
    Wa, xa, Wb, xb = a[:9], a[9:12], b[:9], b[9:12]
    at_a = sp.rotate(Wa, record[layout.POINT_A : layout.POINT_A + 3], xa)
    at_b = sp.rotate(Wb, record[layout.POINT_B : layout.POINT_B + 3], xb)
    d = sp.rotate(Wa, record[layout.DIRECTION : layout.DIRECTION + 3])
    apart = sp.sub(at_a, at_b)
    if kind == EqualityKind.ALONG:  # d turns with a: both speeds are those at b's point
        return Row(at_b, ZERO3, d), sp.dot(d, apart)
    if kind == EqualityKind.ABOUT:
        # How a is turned against b: the axial vector of Wa R₀ Wbᵀ is the sine of the angle, for all that is small.
        E = sp.matmul(sp.matmul(Wa, record[layout.RELATIVE : layout.RELATIVE + 9]), sp.transpose(Wb))
        turned = (0.5 * (E[7] - E[5]), 0.5 * (E[2] - E[6]), 0.5 * (E[3] - E[1]))
        return Row(at_b, d, ZERO3), sp.dot(d, turned)
    square = sp.dot(apart, apart)
    length = sqrt(select(square < 1e-24, 1.0, square))
    u = sp.scale(1.0 / length, apart)
    return Row(at_b, ZERO3, u), select(square < 1e-24, 0.0, length) - record[layout.DISTANCE]
