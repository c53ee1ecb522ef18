"""The gaps of all contacts during a substep, as the search for the time of impact looks at them again and again.

The search is conservative advancement: from the gaps, their rates, and bounds of their second derivatives at two looks
follows whether a gap can have been closed in between.
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir import Index, Mask, Scalar, ScalarArray, carry, is_constant, loop, maximum, memory, select, sqrt, to_float
from ..geometry.bounds import length
from ..geometry.contact_points import ContactPoints
from ..geometry.narrow_phase import NarrowPhase, near_pairs
from ..geometry.solids import FAR, ContactPoint
from ..math import spatial as sp
from ..tree.poses import pose_size
from ..tree.tree import Tree
from .impact import CLOSED_GAP, RESTING_GAP, Impacts

# Lengths as parts of the smaller shape's size:
# A resting contact hits again at this depth; it is below the slop (`SLOP`) at which resting contacts may lie.
REST_DEPTH = 1.3e-4
# A contact that has penetrated, and is held by others, hits again at the next of these depths.
HELD_DEPTHS = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
# Contact points closer to each other than this are the same one, wherever they are listed;
SAME_POINT = 1e-2
# and a contact point that has moved by less than this is still the one that was in its slot.
SAME_SLOT = 0.5

# No gap is larger (m): the start of a search for the smallest.
NO_GAP = 1e30


class Look(NamedTuple):
    """When the gaps are looked at. starts: mask, at the start of the substep. since: time since the last look that was
    passed, s. fine: between looks closer than this (s), gaps that only may have closed are taken as open."""

    starts: Mask
    since: Scalar
    fine: Scalar


class GapHistory(NamedTuple):
    """Gaps (m) and their rates (m/s), [nslot] each."""

    gap: ScalarArray
    rate: ScalarArray

    def at(self, slot: Index) -> tuple[Scalar, Scalar]:
        return self.gap[slot], self.rate[slot]

    def put(self, slot: Index, gap: Scalar, rate: Scalar) -> None:
        self.gap[slot], self.rate[slot] = gap, rate


class WatchedGaps:
    """The gaps of all pairs in the narrow phase, each relative to the gap at which the contact hits.

    least: the smallest gap, its rate, slot, two roots, 1 if it is relative to the gap at the start of the substep
    (`Impacts.returns`), and 1 if it is so far below zero that the contact is closed already (`Impacts.jumps`). dips: 1
    where a gap may have been closed since the last look. turns: the largest angular velocity (rad/s) of a shape that is
    not round. level [nslot]: the gap at which a contact hits; FAR: it is not watched.
    """

    GAP, RATE, SLOT = range(3)  # the first numbers of `least`

    def __init__(self, tree: Tree, impacts: Impacts, contacts: ContactPoints) -> None:
        self.tree, self.impacts, self.contacts = tree, impacts, contacts
        self.least, self.dips, self.turns = carry(7), carry(1), carry(1)
        nslot = tree.constraints.nslot
        self.level = memory(nslot)
        # Of every contact point, and of the nearest one of every pair (at the first slot of the pair): at the last look
        # that was passed, and now.
        self.before, self.now = (GapHistory(memory(nslot), memory(nslot)) for _ in range(2))
        self.nearest_before, self.nearest = (GapHistory(memory(nslot), memory(nslot)) for _ in range(2))
        # The relative velocities of the pairs' shapes, [nslot, 3], at the pairs' first slots.
        self.passing, self.passing_before = (memory(3 * nslot) for _ in range(2))
        for k in loop(contacts.near_slot_count[0]):
            slot = contacts.near_slots[k]
            for history in (self.before, self.nearest_before):
                history.put(slot, 0.0, 1.0)
            self.passing_before.put(slot, sp.ZERO3)

    def look(self, poses: ScalarArray, look: Look) -> None:
        """Evaluate all gaps at these poses."""
        for k, x in enumerate((NO_GAP, -1.0, -1.0, 0.0, 0.0, 0.0, 0.0)):
            self.least[k] = x
        self.dips[0], self.turns[0] = 0.0, 0.0
        for narrow, at in near_pairs(self.tree.constraints, self.contacts, poses, pose_size(1)):
            self._look_at_pair(narrow, at, look)

    def _look_at_pair(self, narrow: NarrowPhase, at: Index, look: Look) -> None:
        """narrow: the pair's shapes in the world; at: its first slot."""
        size, near = self.tree.constraints.pair_size(narrow.p), self.contacts.pair_active[at] > 0.5
        roots = [to_float(root) for root in (narrow.support.root_a, narrow.support.root_b)]
        points = points_before = narrow.points(self.contacts.features(narrow.group.number, narrow.p))
        if narrow.group.pair.search is not None:
            points = narrow.points(narrow.search())
        nearest_gap: Scalar = FAR
        nearest_rate: Scalar = 0.0
        for k, point in enumerate(points):
            slot, rate = at + k, -narrow.closing_speed(point)
            rests = self._rests(point, k, points_before, at, size)
            gap = point.gap + select(rests, REST_DEPTH * size, 0.0)
            # A contact that separates after an impact may have a gap below zero by rounding, and may come back: it hits
            # at that gap. A resting contact does not separate: where it hit once, it does not hit again.
            separates = ~rests & (rate > 0.0) & (gap > -RESTING_GAP * size)
            above = gap > select(rests, 0.1 * REST_DEPTH * size, 0.0)
            level = select(above, 0.0, select(separates, gap, next_depth(gap, size)))
            self.level[slot] = select(look.starts, level, self.level[slot])
            level = self.level[slot]
            watched, gap = near & (level < FAR), gap - level
            closer = watched & (gap < self.least[self.GAP])
            returns = select((level < 0.0) & (level > -RESTING_GAP * size), 1.0, 0.0)
            jumps = select(gap < -CLOSED_GAP * size, 1.0, 0.0)
            for j, x in enumerate((gap, rate, to_float(slot), *roots, returns, jumps)):
                self.least[j] = select(closer, x, self.least[j])
            dips = watched & (time_open(*self.before.at(slot)) + time_open(gap, -rate) < look.since)
            self.dips[0] = select(dips, 1.0, self.dips[0])
            self.now.put(slot, gap, rate)
            nearer = watched & (gap < nearest_gap)
            nearest_gap, nearest_rate = select(nearer, gap, nearest_gap), select(nearer, rate, nearest_rate)
        bend = self._bend(narrow, at, near, look)
        old_gap, old_rate = self.nearest_before.at(at)
        sure = time_open(old_gap, old_rate) + time_open(nearest_gap, -nearest_rate) < look.since
        maybe = time_open(old_gap, old_rate, bend) + time_open(nearest_gap, -nearest_rate, bend) < look.since
        dips = (nearest_gap < FAR) & (sure | (maybe & (look.since > look.fine)))
        self.dips[0] = select(dips, 1.0, self.dips[0])
        self.nearest.put(at, nearest_gap, nearest_rate)

    def _bend(self, narrow: NarrowPhase, at: Index, near: Mask, look: Look) -> Scalar:
        """A bound of the second derivative (m/s²) of a pair's distance; also updates `turns`.

        The distance of solids that move evenly and do not turn is convex: accelerations and rotations add to the bound.
        """
        ends = [narrow.shape_motion(end) for end in range(2)]
        passing, passed = sp.sub(*(end.velocity for end in ends)), self.passing_before.get(at, 3)
        self.passing.put(at, passing)
        bend = length(sp.sub(passing, passed)) / select(look.since > 0.0, look.since, 1.0)
        for end in ends:
            bend, turns = bend + end.circling * end.spin, select(end.circling > 0.0, end.spin, 0.0)
            if end.lever is not None:
                bend, turns = bend + (end.lever * end.spin + 2.0 * length(passing)) * end.spin, end.spin
            self.turns[0] = maximum(self.turns[0], select(near, turns, 0.0))
        return bend

    def _rests(self, point: ContactPoint, k: int, before: list[ContactPoint], at: Index, size: Scalar) -> Mask:
        """Whether contact point k of a pair rests; before: the points of the features at the start of the substep.

        As shapes turn, a resting point may move to another slot, and another point into its slot: points are compared.
        """
        if len(before) == 1:
            return self.impacts.holds(at)
        rests: Mask = False
        for j, other in enumerate(before):
            between, near = sp.sub(point.position, other.position), (SAME_SLOT if j == k else SAME_POINT) * size
            rests = rests | (self.impacts.holds(at + j) & (sp.dot(between, between) < near * near))
        return rests

    def report(self, where: Mask) -> None:
        """Write the contact with the smallest gap as the one that hits, in the lanes `where`."""
        impacts = self.impacts
        targets = (impacts.hit, impacts.hit_roots, impacts.hit_roots.at(1), impacts.returns, impacts.jumps)
        for k, x in enumerate(targets, start=self.SLOT):
            x[0] = select(where, self.least[k], x[0])

    def pass_look(self, where: Mask, missed: Mask) -> None:
        """No impact was found up to this look, in the lanes `where`: the next one is compared with it.

        missed: where that is not certain; gaps that closed then count as opening.
        """

        def keep(before: GapHistory, now: GapHistory, slot: Index) -> None:
            gap, rate = now.at(slot)
            before.gap[slot] = select(where, gap, before.gap[slot])
            before.rate[slot] = select(missed, 1.0, select(where, rate, before.rate[slot]))

        for k in loop(self.contacts.near_slot_count[0]):
            keep(self.before, self.now, self.contacts.near_slots[k])
        for k in loop(self.contacts.near_count[0]):
            at = self.contacts.first_slots[k]
            keep(self.nearest_before, self.nearest, at)
            old, new = self.passing_before.get(at, 3), self.passing.get(at, 3)
            self.passing_before.put(at, [select(where, x, y) for x, y in zip(new, old, strict=True)])


def time_open(gap: Scalar, rate: Scalar, bend: Scalar = 0.0) -> Scalar:
    """The time (s) for which a gap surely stays open, if its rate falls by at most `bend` (m/s²)."""
    gap = maximum(gap, 0.0)
    if is_constant(bend, 0.0):
        return select(rate < 0.0, gap / select(rate < 0.0, -rate, 1.0), FAR)
    bend = maximum(bend, 1e-30)
    root = sqrt(rate * rate + 2.0 * bend * gap)
    return select(rate < 0.0, 2.0 * gap / maximum(root - rate, 1e-30), (rate + root) / bend)


def next_depth(gap: Scalar, size: Scalar) -> Scalar:
    """The gap (m) at which a contact that has penetrated, although it is held, hits again: the rim of a rolling body
    comes down elsewhere."""
    level: Scalar = FAR
    for depth in reversed(HELD_DEPTHS):
        level = select(gap > -0.9 * depth * size, -depth * size, level)
    return level
