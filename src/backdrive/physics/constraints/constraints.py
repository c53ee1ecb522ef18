"""A model's constraints as a kernel sees them: tables of shape pairs, joint limits, joint friction and equalities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...ir import Index, IndexArray, Mask, Scalar, ScalarArray, traced
from ...model.shapes import BOUND
from ...schema import layout
from ..math.spatial import Vec
from . import tables


@dataclass(frozen=True)
class ChainSegment:
    """A part of the kinematic chain of a link: where its single coordinates of v are listed, how many they are, and the
    first coordinate of the floating root that follows (-1 if there is none)."""

    start: Index
    count: Index
    floating: Index


class Support(NamedTuple):
    """Two links a and b (records in arrays over links), and the joints that move when they push each other (`tables`).

    at: where the support stands in the table. root: the link's root. way: where the chain of the link is listed. own:
    the number of its coordinates that the other chain does not share; floating: its own floating root, or -1. common:
    the number of coordinates that both share after their own; the last field is their common floating root, or -1.
    """

    at: Index
    a: Index
    root_a: Index
    way_a: Index
    own_a: Index
    floating_a: Index
    b: Index
    root_b: Index
    way_b: Index
    own_b: Index
    floating_b: Index
    common: Index
    floating: Index

    def grounded(self) -> Support:
        """The same support, if b is known to be the world."""
        return self._replace(b=0, root_b=0, way_b=0, own_b=0, floating_b=-1, common=0, floating=-1)

    def branches(self) -> Mask:
        """Whether each link has joints that move it and not the other one: neither is on the chain of the other."""
        own_a, own_b = self.own_a + (self.floating_a + 1), self.own_b + (self.floating_b + 1)
        return (own_a > 0) & (own_b > 0)

    def segments(self) -> tuple[ChainSegment, ChainSegment, ChainSegment]:
        """The chain segments of a alone, of b alone, and the common one."""
        return (
            ChainSegment(self.way_a, self.own_a, self.floating_a),
            ChainSegment(self.way_b, self.own_b, self.floating_b),
            ChainSegment(self.way_a + self.own_a, self.common, self.floating),
        )


@dataclass(frozen=True)
class ConstraintForm:
    """The properties of a model's constraints that a kernel is compiled for.

    dim: 2 or 3. directions: of friction at a contact (1 in 2D, at least 2 in 3D). combine: how the friction and
    restitution of two shapes give those of their contact. bounces: whether restitution counts. kinds: the kinds of
    shape pairs that occur (places in PAIRS); no others are compiled.
    """

    dim: int
    directions: int
    combine: str
    bounces: bool
    kinds: tuple[int, ...]


@dataclass(frozen=True)
class Constraints:
    """The tables of a model's constraints.

    nshape: shapes. npair, nslot, nsingle: the pairs, contact slots and single rows (not of contacts) that there can be.
    grounded: whether b is known to be the world in all pairs. constants: those of the model, readable in rolled loops.
    known: the same tables with numbers that are known while tracing, None in kernels that are not specialised.
    """

    form: ConstraintForm
    nshape: Index
    npair: Index
    nslot: Index
    nsingle: Index
    grounded: bool
    ints: IndexArray
    floats: ScalarArray
    constants: ScalarArray
    known: Constraints | None = None

    @property
    def dim(self) -> int:
        return self.form.dim

    @property
    def directions(self) -> int:
        return self.form.directions

    @property
    def combine(self) -> str:
        return self.form.combine

    @property
    def bounces(self) -> bool:
        return self.form.bounces

    @property
    def reads_before(self) -> bool:
        """Whether contacts depend on the velocity before the step: restitution, and directions of friction in 3D."""
        return self.bounces or self.dim == 3

    @property
    def kinds(self) -> tuple[int, ...]:
        return self.form.kinds

    @property
    def block(self) -> int:
        """Rows of a contact."""
        return 1 + self.directions

    @property
    def nimpulse(self) -> Index:
        """Slots for impulses: those of all single rows, then those of all contacts."""
        return self.nsingle + self.nslot * self.block

    def head(self, name: str) -> Index:
        """A number of the table's head: a count, or where a part of the table starts."""
        return self.ints[tables.HEAD.index(name)]

    def group(self, number: int) -> tuple[Index, ...]:
        """The first pair, the end and the first slot of a kind of pairs."""
        return self.ints.at(len(tables.HEAD)).get(number, tables.GROUP)

    def shape(self, i: Index) -> tuple[Index, ...]:
        """The link of a shape (its record), and where the tables of its hull are."""
        own = self._at(i)
        return own.ints.at(own.head("shape")).get(i, tables.SHAPE)

    def shape_record(self, i: Index) -> Vec:
        """The SHAPE constants of a shape; in 2D, numbers that are the same in every planar world are known."""
        own = self._at(i)
        record = own.constants.at(own.head("shape_constants")).get(i, layout.SHAPE)
        if self.dim == 3:
            return record
        turn = record[layout.TURN : layout.TURN + 9]
        place, rest = record[layout.PLACE : layout.PLACE + 2], record[layout.SIZE :]
        return (*place, 0.0, turn[0], turn[1], 0.0, turn[3], turn[4], 0.0, 0.0, 0.0, 1.0, *rest)

    def bound(self, i: Index) -> Vec:
        """The factors of a shape's bounding volume (`model.shapes.BoundFactors`)."""
        own = self._at(i)
        return own.floats.at(own.head("bound")).get(i, BOUND)

    def _at(self, i: Index) -> Constraints:
        """The tables to read shape i from: those that are known while tracing, if i is."""
        return self if self.known is None or traced(i) else self.known

    def support(self, at: Index) -> Support:
        return Support(at, *self.ints.at(at).get(0, tables.SUPPORT))

    def pair_shapes(self, i: Index) -> tuple[Index, ...]:
        return self.ints.at(self.head("pair") + i * tables.PAIR).get(0, 2)

    def pair(self, i: Index) -> tuple[Index, Index, Support]:
        """The two shapes of a pair, and the support of their links."""
        a, b = self.pair_shapes(i)
        support = self.support(self.head("pair") + i * tables.PAIR + 2)
        return a, b, support.grounded() if self.grounded else support

    def explicit_pair(self, i: Index) -> Index:
        """The number of an explicit pair, from 1 on; 0 for others."""
        return self.ints[self.head("pair") + i * tables.PAIR + (tables.PAIR - 1)]

    def pair_size(self, i: Index) -> Scalar:
        """The radius of the smaller shape of a pair, m."""
        return self.floats.at(self.head("contact")).get(i, tables.CONTACT)[0]

    def pair_surface(self, i: Index) -> Scalar:
        """The surface on which the forces of a pair act: 1/2 for that of a, -1/2 for that of b, 0 for midway."""
        return self.floats.at(self.head("contact")).get(i, tables.CONTACT)[1]

    def joint(self, name: str, i: Index) -> tuple[Index, Index, Index, Support]:
        """The link (record), coordinate in q, kind and support of the joint of a "limit" or "friction"."""
        start = self.head(name) + i * tables.JOINT
        link, at, kind = self.ints.at(start).get(0, 3)
        return link, at, kind, self.support(start + 3)

    def joint_link(self, link: Index) -> Vec:
        """The LINK constants of a link, given by its record in arrays over links."""
        return self.constants.get(link - 1, layout.LINK)

    def equality(self, i: Index) -> tuple[Index, Support]:
        """The kind of an equality (`EqualityKind`), and its support."""
        start = self.head("equality") + i * tables.EQUALITY
        return self.ints[start], self.support(start + 1)

    def equality_record(self, i: Index) -> Vec:
        return self.constants.at(self.head("equality_constants")).get(i, layout.EQUALITY)

    def limit_record(self, i: Index) -> Vec:
        return self.constants.at(self.head("limit_constants")).get(i, layout.LIMIT)

    def joint_friction(self, i: Index) -> Scalar:
        """The torque or force of a joint's dry friction, N m or N."""
        return self.constants.at(self.head("friction_constants"))[i]

    def inverse_mass(self, support: Support, angular: Index = 0) -> Scalar:
        """The scale of the change of speed that a unit impulse between two links causes, 1/kg; 1/(kg m²) if `angular`
        is 1."""
        a, b = (self.floats.at(link * tables.INVERSE_MASS + angular)[0] for link in (support.a, support.b))
        return a + b
