"""The narrow phase of one pair of shapes: two solids at the poses of their links, their features, and their motion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ...ir import Index, Scalar, ScalarArray, counters, leave, loop, maximum, minimum, select
from ...model.shapes import SHAPE_KINDS, BoundFactors
from ...schema.layout import ShapeKind
from ..math import spatial as sp
from ..math.spatial import Vec
from ..tree.poses import Pose, pose_of
from .bounds import length
from .contact_points import ContactPoints
from .pairs import PAIRS, Kinds
from .solids import ContactPoint, Hull, ShapePair, ShapeRecord, Solid

if TYPE_CHECKING:
    from ..constraints.constraints import Constraints


def place_solid(kind: ShapeKind, record: Vec, pose: Vec) -> Solid:
    """A shape of a link in the world; record: its SHAPE record; pose: rotation and origin of the link (12 numbers),
    which a half-space does not need."""
    shape = ShapeRecord.of(record)
    if not SHAPE_KINDS[kind].bounded:
        return Solid(shape.position, sp.IDENTITY, shape.size)
    link = Pose.of(pose)
    return Solid(
        sp.rotate(link.rotation, shape.position, link.origin), sp.matmul(link.rotation, shape.rotation), shape.size
    )


class HasEnd(Protocol):
    """A group of pairs that follow each other: the number after that of the last."""

    @property
    def end(self) -> Index: ...


GroupT = TypeVar("GroupT", bound=HasEnd)


class PairGroup(NamedTuple):
    """The pairs of a model that are of the same two kinds. number: of the kinds in the registry; pairs first to end - 1
    of the model, whose slots follow each other from `slot` on."""

    number: int
    kinds: Kinds
    pair: ShapePair
    first: Index
    end: Index
    slot: Index

    @classmethod
    def of(cls, constraints: Constraints, number: int) -> PairGroup:
        kinds, pair = sorted_pairs(constraints.dim)[number]
        return cls(number, kinds, pair, *constraints.group(number))

    def first_slot(self, p: Index) -> Index:
        """The first slot of pair p."""
        return self.slot + (p - self.first) * self.pair.slots


def sorted_pairs(dim: int) -> list[tuple[Kinds, ShapePair]]:
    """The registry of a dimension, in the order in which tables and kernels number the kinds of pairs."""
    return sorted(PAIRS[dim].items(), key=lambda entry: entry[0])


def hull_of(constraints: Constraints, shape: Index, full: bool = False) -> Hull:
    """The hull of a shape; its tables are empty if the shape has none. full: with all its vertices."""
    floats = constraints.floats
    start = 7 if full else 1
    vertex, nvertex, face, nface, edge, nedge = constraints.shape(shape)[start : start + 6]
    return Hull(nvertex, floats.at(vertex), nface, floats.at(face), nedge, floats.at(edge))


class ShapeMotion(NamedTuple):
    """How a shape moves.

    velocity: of its origin (m/s). spin: |angular velocity| (rad/s). circling: the part of the origin's speed (m/s)
    whose direction turns at the rate of the spin. lever: see `Shape.lever`.
    """

    velocity: Vec
    spin: Scalar
    circling: Scalar
    lever: Scalar | None


class NarrowPhase:
    """A pair of shapes, placed in the world.

    p: number of the pair in the model. a, b: its shapes, and of both: records (SHAPE numbers), poses (numbers of their
    links), motions (the poses as named views) and solids. support: the links, and the joints that move them.
    """

    def __init__(self, constraints: Constraints, group: PairGroup, p: Index, poses: ScalarArray, width: int) -> None:
        self.constraints, self.group, self.p = constraints, group, p
        self.a, self.b, self.support = constraints.pair(p)
        self.records = tuple(constraints.shape_record(shape) for shape in (self.a, self.b))
        links = (self.support.a, self.support.b)
        self.motions = [Pose.of(pose_of(poses, link, width, constraints.dim)) for link in links]
        self.solids = (
            place_solid(group.kinds[0], self.records[0], self.motions[0].place),
            place_solid(group.kinds[1], self.records[1], self.motions[1].place),
        )

    def search(self) -> Vec:
        """The closest features at these poses; empty if the kinds have no search."""
        if self.group.pair.search is None:
            return ()
        a, b = self.solids
        hulls = (hull_of(self.constraints, shape) for shape in (self.a, self.b))
        return tuple(self.group.pair.search(a, b, *hulls))

    def points(self, features: Vec) -> list[ContactPoint]:
        """The contact points of these features."""
        return self.group.pair.contacts(*self.solids, features)

    def velocity(self, end: int, position: Vec) -> Vec:
        """Velocity of the point of link `end` (0 or 1) that is at a position (m) in the world, by the first twist."""
        motion = self.motions[end]
        return motion.velocity(position)

    def closing_speed(self, point: ContactPoint) -> Scalar:
        """The speed (m/s) at which the surfaces approach each other at a contact point; negative if they separate."""
        return sp.dot(point.normal, sp.sub(self.velocity(1, point.position), self.velocity(0, point.position)))

    def greatest_spin2(self, twists: int) -> Scalar:
        """The square of the greatest angular velocity (rad²/s²) of the two links, over their first `twists` twists."""
        greatest: Scalar = 0.0
        for motion in self.motions:
            for twist in motion.twists[:twists]:
                greatest = maximum(greatest, sp.dot(twist.angular, twist.angular))
        return greatest

    def shape_motion(self, end: int, twist: int = 0) -> ShapeMotion:
        """Motion of the first (0) or second (1) shape by one of the twists of its link."""
        shape, motion = SHAPE_KINDS[self.group.kinds[end]], self.motions[end]
        if not shape.bounded:
            return ShapeMotion(sp.ZERO3, 0.0, 0.0, None)
        angular, linear = motion.twists[twist]
        offset = sp.sub(self.solids[end].center, motion.origin)
        around = sp.cross(angular, offset)
        velocity = sp.add(around, linear)
        # A link with joints above it may circle about any of them; a free body rotates about its own origin.
        jointed = (self.support.own_a, self.support.own_b)[end] > 0
        circling = select(jointed, length(velocity), length(around))
        bound = BoundFactors.of(self.constraints.bound((self.a, self.b)[end]))
        lever = shape.lever(ShapeRecord.of(self.records[end]).size, bound)
        return ShapeMotion(velocity, length(angular), circling, lever)

    def greatest_closing_speed(self, point: ContactPoint, h: Scalar) -> Scalar:
        """An upper bound on the speed (m/s) at which the gap closes at any time within h (s).

        Velocities change from the second twist to the first, or do not change where a constraint holds a link. The
        distance between convex solids in pure translation is a convex function of time, so that it closes the fastest
        at the start; changes of velocity and rotations add to that speed.
        """
        total: Scalar = 0.0
        velocities = []
        for end in range(2):
            final, start = (self.shape_motion(end, twist) for twist in (0, 1))
            change, spin = length(sp.sub(final.velocity, start.velocity)), maximum(final.spin, start.spin)
            total = total + change + (start.circling + change) * minimum(h * spin, 2.0)
            if start.lever is not None:
                total = total + start.lever * spin
            velocities.append(start.velocity)
        return total + maximum(sp.dot(point.normal, sp.sub(velocities[1], velocities[0])), 0.0)


def near_pairs(
    constraints: Constraints, contacts: ContactPoints, poses: ScalarArray, width: int
) -> Iterator[tuple[NarrowPhase, Index]]:
    """All pairs that have contact points, placed at these poses (`width` numbers per link), with their first slots."""
    groups = (PairGroup.of(constraints, number) for number in constraints.kinds)
    for group, p in near_in_groups(contacts, groups):
        yield NarrowPhase(constraints, group, p, poses, width), group.first_slot(p)


def near_in_groups(contacts: ContactPoints, groups: Iterable[GroupT]) -> Iterator[tuple[GroupT, Index]]:
    """All pairs that have contact points, and the group of each."""
    done = counters(1)
    done[0] = 0
    for group in groups:
        for m in loop(contacts.near_count[0], start=done[0]):
            p = contacts.near_pairs[m]
            if leave(p >= group.end):  # the near pairs of these kinds are done
                break
            done[0] = m + 1
            yield group, p
