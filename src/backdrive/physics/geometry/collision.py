"""Who touches whom: every pair of shapes that may, at the current poses of their links."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple

from ...ir import Scalar, any_lane, counters, is_constant, leave, loop, maximum, memory, minimum, select, vjp, when
from ...schema import layout
from ...schema.layout import ShapeKind
from ..math import spatial as sp
from ..math.arrays import accumulate, split
from ..math.spatial import Vec
from ..math.twists import point_velocity
from ..tree.poses import pose_of
from .bounds import Bounds, arm, length
from .planar_pairs import PAIRS_2D
from .reach import in_reach
from .round_pairs import PAIRS_ROUND
from .solid_pairs import PAIRS_SOLID
from .solids import FAR, Hull, Pair, Solid, Touch

PAIRS: dict[int, dict[tuple[ShapeKind, ShapeKind], Pair]] = {2: PAIRS_2D, 3: {**PAIRS_ROUND, **PAIRS_SOLID}}

MARGIN = 0.1  # contacts count from a gap of so much of the smaller shape's size; wider for what approaches fast
SIMPLE = ((ShapeKind.SPHERE, ShapeKind.PLANE), (ShapeKind.CAPSULE, ShapeKind.PLANE))
SWING = 0.5  # rad: what turns by more in a step is not where its speed leads
TOUCH = 8  # gap, point, normal; 1 where the contact counts


def place_solid(kind: ShapeKind, record: Vec, place: Vec) -> Solid:
    """A shape of a link, in the world."""
    size, at = record[layout.SIZE : layout.SIZE + 3], record[layout.PLACE : layout.PLACE + 3]
    if kind == ShapeKind.PLANE:
        return Solid(at, sp.IDENTITY, size)
    W, x = place[:9], place[9:12]
    return Solid(sp.rotate(W, at, x), sp.matmul(W, record[layout.TURN : layout.TURN + 9]), size)


class Contacts:
    """Contacts that count in at least one lane: `count` of them, with their slots and pairs; touches [nslot, TOUCH].

    `meetings`: the pairs that have contacts, `meeting_count` of them, in the order of their kinds; `places`: all their
    slots, `place_count` of them. near [nslot]: 1 in the lanes in which they do, at their first slots (`firsts`).
    """

    def __init__(self, constraints: Any) -> None:
        self.touches, self.dim = memory(constraints.nslot * TOUCH), constraints.dim
        self.near = memory(constraints.nslot)
        self.count, self.slots, self.pairs = counters(1), counters(constraints.nslot), counters(constraints.nslot)
        self.meeting_count, self.meetings, self.firsts = counters(1), *(counters(constraints.npair) for _ in range(2))
        self.place_count, self.places = counters(1), counters(constraints.nslot)
        self.count[0], self.meeting_count[0], self.place_count[0] = 0, 0, 0
        self.features: dict[int, tuple[Any, int]] = {}  # of pairs, for kinds that search: array, width

    def touch(self, slot: Any) -> tuple[Touch, Any]:
        """What is in a slot, and where it counts (mask)."""
        gap, x, y, z, *normal, on = self.touches.get(slot, TOUCH)
        if self.dim == 2:
            return Touch(gap, (x, y, 0.0), (*normal[:2], 0.0)), on > 0.5
        return Touch(gap, (x, y, z), tuple(normal)), on > 0.5

    def features_of(self, number: int, p: Any) -> Vec:
        """Of a pair that meets; number: of its kind."""
        if number not in self.features:
            return ()
        array, width = self.features[number]
        return tuple(array.get(p, width))

    def meet(self, pair: Any, slot: Any, slots: int) -> None:
        k, first = self.meeting_count[0], self.place_count[0]
        self.meetings[k], self.firsts[k] = pair, slot
        for j in range(slots):
            self.places[first + j] = slot + j
        self.meeting_count[0], self.place_count[0] = k + 1, first + slots

    def add(self, slot: Any, pair: Any) -> None:
        k = self.count[0]
        self.slots[k] = slot
        self.pairs[k] = pair
        self.count[0] = k + 1


class Turning(NamedTuple):
    """How a shape moves: the velocity of its origin; rad/s; the part of the velocity that turns as fast; how far from
    the origin it has points that are elsewhere when it turns (None: there are none)."""

    velocity: Vec
    spin: Scalar
    around: Scalar
    arm: Scalar | None


class Meeting:
    """Two shapes of a pair, placed in the world."""

    def __init__(self, constraints: Any, kinds: tuple[ShapeKind, ShapeKind], p: Any, poses: Any, width: int) -> None:
        self.a, self.b, self.support = constraints.pair(p)
        self.kinds, self.constraints = kinds, constraints
        self.records = tuple(constraints.shape_record(shape) for shape in (self.a, self.b))
        ends = (self.support.a, self.support.b)
        self.poses = tuple(pose_of(poses, link, width, constraints.dim) for link in ends)
        self.solids = (
            place_solid(kinds[0], self.records[0], self.poses[0]),
            place_solid(kinds[1], self.records[1], self.poses[1]),
        )

    def hull(self, shape: Any) -> Hull:
        floats = self.constraints.floats
        _, *tables = self.constraints.shape(shape)
        vertex, nvertex, face, nface, edge, nedge = tables
        return Hull(nvertex, floats.at(vertex), nface, floats.at(face), nedge, floats.at(edge))

    def features(self, pair: Pair) -> Vec:
        if pair.search is None:
            return ()
        a, b = self.solids
        return tuple(pair.search(a, b, self.hull(self.a), self.hull(self.b)))

    def velocity(self, end: int, point: Vec) -> Vec:
        """Of a point of one of the two links."""
        pose = self.poses[end]
        return point_velocity(pose[12:15], pose[15:18], pose[9:12], point)

    def spin(self, twists: int) -> Scalar:
        """The square of the faster link's angular velocity; twists: in the faster of so many motions."""
        most: Scalar = 0.0
        for pose in self.poses:
            for at in range(12, 12 + 6 * twists, 6):
                most = maximum(most, sp.dot(pose[at : at + 3], pose[at : at + 3]))
        return most

    def turning(self, end: int, at: int) -> Turning:
        """How one of the two shapes moves; at: where its pose has the twist."""
        kind, pose, record = self.kinds[end], self.poses[end], self.records[end]
        if kind == ShapeKind.PLANE:
            return Turning(sp.ZERO3, 0.0, 0.0, None)
        w, offset = pose[at : at + 3], sp.sub(self.solids[end].center, pose[9:12])
        around = sp.cross(w, offset)
        velocity = sp.add(around, pose[at + 3 : at + 6])
        # What hangs on joints goes round somewhere, a free body about its origin.
        jointed = (self.support.own_a, self.support.own_b)[end] > 0
        turns = select(jointed, length(velocity), length(around))
        reach = arm(kind, record[layout.SIZE :], self.constraints.bound((self.a, self.b)[end]))
        return Turning(velocity, length(w), turns, reach)

    def most_closing(self, touch: Touch, h: Scalar) -> Scalar:
        """The speed at which the gap of a contact closes within the time h, at most, while the velocities go from those
        of the second twist to those of the first (or not, where something holds a link).

        The distance of solids that do not turn is convex: its rate now is its least. What turns adds to it.
        """
        total, now = 0.0, []
        for end in range(2):
            ahead, start = (self.turning(end, at) for at in (12, 18))
            change, spin = length(sp.sub(ahead.velocity, start.velocity)), maximum(ahead.spin, start.spin)
            total = total + change + (start.around + change) * minimum(h * spin, 2.0)
            if start.arm is not None:
                total = total + start.arm * spin
            now.append(start.velocity)
        return total + maximum(sp.dot(touch.normal, sp.sub(now[1], now[0])), 0.0)

    def closing(self, touch: Touch) -> Scalar:
        """The speed at which the surfaces approach each other at a contact (negative: they part)."""
        return sp.dot(touch.normal, sp.sub(self.velocity(1, touch.point), self.velocity(0, touch.point)))


def find_contacts(constraints: Any, poses: Any, width: int, h: Scalar, changing: bool = False) -> Contacts:
    """All contacts that may matter within the time h; poses: over links, with twists (`width` numbers each).

    changing: of a motion from the second twist to the first, all that may touch at any time; else those that the first
    twist leads to.
    """
    contacts = Contacts(constraints)
    pairs = sorted(PAIRS[constraints.dim].items())
    present = [(number, *pairs[number]) for number in constraints.kinds]
    # To look at a ball above a plane takes no longer than to see whether that is worth it.
    simple = all(kinds in SIMPLE for _, kinds, _ in present)
    bounds = None if simple else Bounds(constraints, poses, width, h, MARGIN, changing)
    for number, kinds, pair in present:
        first, end, slot = constraints.group(number)
        for p in loop(end, start=first):
            at = slot + (p - first) * pair.slots
            if bounds is None:
                meeting = Meeting(constraints, kinds, p, poses, width)
                _meet(constraints, contacts, number, pair, p, meeting, at, h, FAR, changing, True)
                continue
            plane = None
            if kinds[1] == ShapeKind.PLANE:
                plane = place_solid(kinds[1], constraints.shape_record(constraints.pair_shapes(p)[1]), ())
            meets = bounds.balls_meet(p, plane)
            for _ in when(any_lane(meets)):
                meeting = Meeting(constraints, kinds, p, poses, width)
                if pair.search is None:
                    _meet(constraints, contacts, number, pair, p, meeting, at, h, bounds.reach(p), changing, meets)
                    continue
                meets = meets & bounds.boxes_meet(p, *meeting.solids, plane is not None)
                for _ in when(any_lane(meets)):
                    _meet(constraints, contacts, number, pair, p, meeting, at, h, bounds.reach(p), changing, meets)
    return contacts


def _meet(
    constraints: Any, contacts: Contacts, number: int, pair: Pair, p: Any, meeting: Meeting, at: Any, h: Scalar,
    reach: Scalar, changing: bool, meets: Any,
) -> None:  # fmt: skip
    """Add those contacts of a pair that count, from slot `at` on; reach: the gap that may close at most. meets: where
    the pair is to be looked at (mask): whether it is elsewhere must not matter, also where another lane has it."""
    features = meeting.features(pair)
    if pair.search is not None:
        if number not in contacts.features:
            contacts.features[number] = (memory(constraints.npair * len(features)), len(features))
        contacts.features[number][0].put(p, features)
    a, b = meeting.solids
    touches, margin = pair.contacts(a, b, features), MARGIN * constraints.pair_size(p)
    swings = h * h * meeting.spin(2 if changing else 1) > SWING * SWING  # what parts now may come back
    ons = []
    for touch in touches:
        closing = meeting.most_closing(touch, h) if changing else maximum(meeting.closing(touch), 0.0)
        ons.append(meets & (in_reach(touch.gap, margin, closing, h) | (swings & (touch.gap < reach))))
    for k, (touch, on) in enumerate(zip(touches, ons, strict=True)):
        contacts.touches.put(at + k, (touch.gap, *touch.point, *touch.normal, select(on, 1.0, 0.0)))
    on = functools.reduce(operator.or_, ons)
    contacts.near[at] = select(on, 1.0, 0.0)
    for _ in when(any_lane(on)):
        contacts.meet(p, at, pair.slots)
        for k, on in enumerate(ons):
            for _ in when(any_lane(on)):
                contacts.add(at + k, p)


def follow_contacts(constraints: Any, contacts: Contacts, poses: Any, width: int) -> Contacts:
    """The same contacts, of the same features, at other poses: what is in a slot stays there."""
    others = copy(contacts)
    others.touches = memory(constraints.nslot * TOUCH)
    for number, pair, p, meeting, at in met_pairs(constraints, contacts, poses, width):
        a, b = meeting.solids
        for k, touch in enumerate(pair.contacts(a, b, contacts.features_of(number, p))):
            on = contacts.touches.at((at + k) * TOUCH)[TOUCH - 1]
            others.touches.put(at + k, (touch.gap, *touch.point, *touch.normal, on))
    return others


def met_pairs(
    constraints: Any, contacts: Contacts, poses: Any, width: int
) -> Iterator[tuple[int, Pair, Any, Meeting, Any]]:
    """All pairs that have contacts: number and functions of their kind, pair, meeting at these poses, first slot."""
    pairs, done = sorted(PAIRS[constraints.dim].items()), counters(1)
    done[0] = 0
    for number in constraints.kinds:
        kinds, pair = pairs[number]
        first, end, slot = constraints.group(number)
        for m in loop(contacts.meeting_count[0], start=done[0]):
            p = contacts.meetings[m]
            if leave(p >= end):  # the next kind
                break
            done[0] = m + 1
            yield number, pair, p, Meeting(constraints, kinds, p, poses, width), slot + (p - first) * pair.slots


def contacts_adjoint(
    constraints: Any, contacts: Contacts, poses: Any, width: int, touch_bars: Any, bars: Any, constants_bar: Any
) -> None:
    """Add what the gradients with respect to gaps, points and normals say of poses and shapes.

    touch_bars: [nslot, TOUCH - 1], of the contacts that count. constants_bar: or None.
    """
    for number, pair, p, meeting, at in met_pairs(constraints, contacts, poses, width):
        features, seeds = contacts.features_of(number, p), []
        for k in range(pair.slots):
            on = contacts.touches.at((at + k) * TOUCH)[TOUCH - 1] > 0.5
            seeds += [select(on, x, 0.0) for x in touch_bars.get(at + k, TOUCH - 1)]
        kinds = meeting.kinds

        def touches(*x: Scalar, kinds: Any = kinds, pair: Pair = pair, features: Vec = features) -> list[Scalar]:
            a, b, record_a, record_b = split(x, 12, 12, layout.SHAPE, layout.SHAPE)
            solids = (place_solid(kinds[0], record_a, a), place_solid(kinds[1], record_b, b))
            found = pair.contacts(*solids, features)
            return [y for touch in found for y in (touch.gap, *touch.point, *touch.normal)]

        inputs = (*meeting.poses[0][:12], *meeting.poses[1][:12], *meeting.records[0], *meeting.records[1])
        _, gradient = vjp(touches, inputs, seeds)
        a_bar, b_bar, *record_bars = split(gradient, 12, 12, layout.SHAPE, layout.SHAPE)
        accumulate(bars.at(meeting.support.a * width), a_bar)
        if not is_constant(meeting.support.b, 0):
            accumulate(bars.at(meeting.support.b * width), b_bar)
        if constants_bar is not None:
            start = constraints.head("shape_constants")
            for shape, record_bar in zip((meeting.a, meeting.b), record_bars, strict=True):
                accumulate(constants_bar.at(start + shape * layout.SHAPE), record_bar)
