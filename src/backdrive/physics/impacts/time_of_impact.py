"""When the next impact is: the first time in a stretch at which a gap closes.

The gaps are looked at from node to node. Between two looks there is an impact if the smallest gap has become negative;
and there may be one if a gap that closed now opens: this is looked at more closely, so that nothing passes through
anything thin. Then Newton's method on the smallest gap, kept between the bounds, finds when.

None of that has a derivative: that of the time is taken in `step_adjoint`, from the gap that closed.
"""

from __future__ import annotations

from typing import Any

from ...ir import (
    Scalar,
    absolute,
    carry,
    clip,
    counters,
    loop,
    maximum,
    memory,
    minimum,
    select,
    sqrt,
    to_float,
    when,
    while_any,
)
from ..geometry.bounds import length
from ..geometry.contact_points import ContactPoints
from ..geometry.narrow_phase import NarrowPhase, near_pairs
from ..geometry.solids import FAR, ContactPoint
from ..integrators.integrate import Integrator, Midpoint, move
from ..math import spatial as sp
from ..tree.poses import link_poses, pose_size
from ..tree.tree import LinkSubset, Tree
from .impact import RESTING, Impacts, each_place

AGAIN = 1.3e-4  # of the smaller shape's size: how deep what rests hits again; below `contact.SLOP`, where it may lie
DEPTHS = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # likewise: how deep what is held anyway hits again
SAME, OTHER = 1e-2, 0.5  # likewise: contacts closer to each other are one; farther from what was in its slot, another
NODES = 4  # a stretch of what turns is searched for closing gaps in so many parts, at least,
TURN = 0.25  # rad: and in which nothing turns by more,
MOST_NODES = 200  # but not in more than so many
FINE = 1e-3  # of a stretch: what may come and go within less is left out
SEARCH = 800  # evaluations of all gaps, at most
EXACT = 1e-15  # the time of an impact is found to so much of the stretch
SHORT = 1e-10  # what hits within so much of the end of a step is left to the next one
SEEK, CLOSE_IN, NOTHING, FOUND = 0.0, 1.0, 2.0, 3.0  # stages of the search


def advance(
    tree: Tree, integrator: Integrator, q: Any, v: Any, after: Any, pseudo: Any, part: Scalar, t: Scalar, target: Any,
    velocity: Any, some: LinkSubset | None = None,
) -> None:  # fmt: skip
    """Time t into a stretch whose velocities go from v to `after` (t is a `part` of it): q and v there.

    pseudo: the motion that corrects positions. some: q of these links only.
    """
    motion = memory(tree.nv)
    for k in loop(tree.nv):
        velocity[k] = v[k] + part * (after[k] - v[k])
        motion[k] = velocity[k] + pseudo[k]
    if isinstance(integrator, Midpoint):
        middle = memory(tree.nq)
        move(tree, q, v, 0.5 * t, middle, some)
        move(tree, middle, motion, 0.5 * t, target, some)
    else:
        move(tree, q, motion, t, target, some)


def first_impact(
    tree: Tree, integrator: Integrator, impacts: Impacts, contacts: ContactPoints, q: Any, v: Any, after: Any,
    pseudo: Any, duration: Scalar, flies: Any,
) -> tuple[Any, Scalar]:  # fmt: skip
    """Whether and when something hits in the stretch (mask and time); `hit` and `hit_roots` of the impacts tell what.

    Where the stretch has a duration at all (mask `flies`).
    """
    trial, velocity = memory(tree.nq), memory(tree.nv)
    t, low, high, node, stage = (memory(1) for _ in range(5))
    at_once, some = impacts.hit[0] >= 0.0, links_that_meet(tree, contacts)
    seeks = flies & ~at_once & (impacts.watch[0] > 0.5)
    t[0], low[0], high[0], node[0], stage[0] = 0.0, 0.0, 0.0, 0.0, select(seeks, SEEK, NOTHING)
    impacts.returns[0] = 0.0
    gaps = Gaps(tree, impacts, contacts)
    for _ in while_any(lambda: stage[0] < NOTHING, SEARCH):
        part, starts, going = t[0] / duration, (stage[0] == SEEK) & (node[0] == 0.0), stage[0] < NOTHING
        advance(tree, integrator, q, v, after, pseudo, part, t[0], trial, velocity, some)
        if not isinstance(integrator, Midpoint):  # the rate of q: d/dt t (v + t/s (v⁺ - v))
            for k in loop(tree.nv):
                velocity[k] = velocity[k] + part * (after[k] - v[k])
        gaps.look(link_poses(tree, trial, velocity, indexed=True, some=some), starts, t[0] - low[0], FINE * duration)
        gap, rate = gaps.least[0], gaps.least[1]
        seeking, closing_in = stage[0] == SEEK, stage[0] == CLOSE_IN
        crossed, dipped = (gap < 0.0) & ~starts, (gaps.dips[0] > 0.5) & ~starts
        # The bounds: at `low` no gap is closed, before `high` one closes, or may.
        beyond = crossed | dipped
        high[0] = select(going & beyond, t[0], high[0])
        narrow = high[0] - low[0] <= EXACT * duration
        missed = seeking & ~crossed & beyond & narrow  # it came close, and went away again
        passed = ~beyond | missed
        low[0] = select(going & passed, t[0], low[0])
        gaps.go_on(going & passed, missed)
        newton = t[0] - gap / select(rate < 0.0, rate, -1.0)
        inside = (rate < 0.0) & (newton > low[0]) & (newton < high[0])
        close = (gap == 0.0) | (inside & (absolute(newton - t[0]) <= EXACT * duration))
        arrived = closing_in & (narrow | (close & ~dipped))
        gaps.tell(arrived)
        at_node = seeking & passed & (t[0] >= node[0])
        ended = at_node & (node[0] >= duration)
        parts = clip(gaps.turns[0] * (duration / TURN), select(gaps.turns[0] > 0.0, NODES, 1.0), MOST_NODES)
        further = select(at_node, minimum(node[0] + duration / parts, duration), node[0])
        node[0] = select(closing_in & dipped, t[0], select(going, further, node[0]))
        middle = 0.5 * (low[0] + high[0])
        inward = select((crossed | closing_in) & inside & ~(closing_in & dipped), newton, middle)
        t[0] = select(arrived | ~going, t[0], select(seeking & passed, node[0], inward))
        following = select(seeking, select(crossed, CLOSE_IN, SEEK), select(dipped, SEEK, CLOSE_IN))
        stage[0] = select(going, select(ended, NOTHING, select(arrived, FOUND, following)), stage[0])
    impacts.fallbacks[0] = select(stage[0] < NOTHING, 1.0, impacts.fallbacks[0])  # it was given up
    found = at_once | ((stage[0] == FOUND) & (duration - t[0] > SHORT * impacts.h))
    return found & flies, select(at_once, 0.0, t[0])


def links_that_meet(tree: Tree, contacts: ContactPoints) -> LinkSubset | None:
    """Each link that has a pair in the contacts, once; or None, for all, where they may have parents."""
    if tree.homogeneous is None:
        return None
    some, met = LinkSubset(counters(tree.nlink), counters(1)), counters(tree.nlink + 1)
    some.count[0] = 0
    for k in loop(tree.nlink + 1):
        met[k] = 0
    for m in loop(contacts.near_count[0]):
        *_, support = tree.constraints.pair(contacts.near_pairs[m])
        for link in (support.a, support.b):
            for _ in when((link > 0) & (met[link] == 0)):  # not the world
                some.links[some.count[0]] = link - 1
                some.count[0] = some.count[0] + 1
                met[link] = 1
    return some


class Gaps:
    """The gaps of all pairs that meet, as the search goes on; each above the one at which the contact hits.

    least: the smallest gap, its rate, slot, roots, and 1 if it closes to what it was at the start (`Impacts.returns`).
    dips: 1 where a gap may have been closed since the last look. turns: rad/s, of what turns and is not round.
    closed [nslot]: the gap at which a contact hits, or FAR: it is not watched.
    """

    def __init__(self, tree: Tree, impacts: Impacts, contacts: ContactPoints) -> None:
        self.tree, self.impacts, self.contacts = tree, impacts, contacts
        self.least, self.dips, self.turns = carry(6), carry(1), carry(1)
        self.closed, *arrays = (memory(tree.constraints.nslot) for _ in range(9))
        # Gaps and rates of contacts, and of the nearest contacts of pairs (at their first slots); the velocities with
        # which these pass each other: before, and now.
        self.before, self.now, self.nearest_before, self.nearest = zip(arrays[::2], arrays[1::2], strict=True)
        self.passing, self.passing_before = (memory(3 * tree.constraints.nslot) for _ in range(2))
        for slot in each_place(contacts):
            for gap, rate in (self.before, self.nearest_before):
                gap[slot], rate[slot] = 0.0, 1.0
            self.passing_before.put(slot, sp.ZERO3)

    def look(self, poses: Any, starts: Any, since: Scalar, fine: Scalar) -> None:
        """At these poses: at the start of the stretch (mask), or so long since the last look that went on."""
        for k, x in enumerate((1e30, -1.0, -1.0, 0.0, 0.0, 0.0)):
            self.least[k] = x
        self.dips[0], self.turns[0] = 0.0, 0.0
        for narrow, at in near_pairs(self.tree.constraints, self.contacts, poses, pose_size(1)):
            self._look_at(narrow, at, starts, since, fine)

    def _look_at(self, narrow: NarrowPhase, at: Any, starts: Any, since: Scalar, fine: Scalar) -> None:
        size, near = self.tree.constraints.pair_size(narrow.p), self.contacts.pair_active[at] > 0.5
        roots = [to_float(root) for root in (narrow.support.root_a, narrow.support.root_b)]
        points = before = narrow.points(self.contacts.features(narrow.group.number, narrow.p))
        if narrow.group.pair.search is not None:
            points = narrow.points(narrow.search())
        nearest_gap, nearest_rate = FAR, 0.0
        for k, point in enumerate(points):
            slot, rate = at + k, -narrow.closing_speed(point)
            rests = self._rests(point, k, before, at, size)
            gap = point.gap + select(rests, AGAIN * size, 0.0)
            # What parts now, after it hit, is below zero by rounding, and may come back. What rests does not part:
            # where it hit once, by rounding to either side, it does not hit again.
            parts = ~rests & (rate > 0.0) & (gap > -RESTING * size)
            above = gap > select(rests, 0.1 * AGAIN * size, 0.0)
            level = select(above, 0.0, select(parts, gap, next_depth(gap, size)))
            self.closed[slot] = select(starts, level, self.closed[slot])
            closed = self.closed[slot]
            watched, gap = near & (closed < FAR), gap - closed
            closer = watched & (gap < self.least[0])
            returns = select((closed < 0.0) & (closed > -RESTING * size), 1.0, 0.0)
            for j, x in enumerate((gap, rate, to_float(slot), *roots, returns)):
                self.least[j] = select(closer, x, self.least[j])
            dips = watched & (lasting(*self._at(self.before, slot)) + lasting(gap, -rate) < since)
            self.dips[0] = select(dips, 1.0, self.dips[0])
            self.now[0][slot], self.now[1][slot] = gap, rate
            nearer = watched & (gap < nearest_gap)
            nearest_gap, nearest_rate = select(nearer, gap, nearest_gap), select(nearer, rate, nearest_rate)
        # The distance of solids that move evenly and do not turn is convex. Else it is bent by no more than this.
        ends = [narrow.shape_motion(end) for end in range(2)]
        passing, passed = sp.sub(*(end.velocity for end in ends)), self.passing_before.get(at, 3)
        self.passing.put(at, passing)
        bend = length(sp.sub(passing, passed)) / select(since > 0.0, since, 1.0)
        for end in ends:
            bend, turns = bend + end.circling * end.spin, select(end.circling > 0.0, end.spin, 0.0)
            if end.lever is not None:
                bend, turns = bend + (end.lever * end.spin + 2.0 * length(passing)) * end.spin, end.spin
            self.turns[0] = maximum(self.turns[0], select(near, turns, 0.0))
        old_gap, old_rate = self._at(self.nearest_before, at)
        sure = lasting(old_gap, old_rate) + lasting(nearest_gap, -nearest_rate) < since
        maybe = lasting(old_gap, old_rate, bend) + lasting(nearest_gap, -nearest_rate, bend) < since
        dips = (nearest_gap < FAR) & (sure | (maybe & (since > fine)))
        self.dips[0] = select(dips, 1.0, self.dips[0])
        self.nearest[0][at], self.nearest[1][at] = nearest_gap, nearest_rate

    def _rests(self, point: ContactPoint, k: int, before: list[ContactPoint], at: Any, size: Scalar) -> Any:
        """Whether what is now contact k of a pair rests (mask). before: the contacts of the features of the start."""
        if len(before) == 1:
            return self.impacts.holds(at)
        rests = False
        for j, other in enumerate(before):  # as things turn, it may be in another slot, and another in its slot
            between, near = sp.sub(point.position, other.position), (OTHER if j == k else SAME) * size
            rests = rests | (self.impacts.holds(at + j) & (sp.dot(between, between) < near * near))
        return rests

    @staticmethod
    def _at(arrays: Any, slot: Any) -> tuple[Scalar, Scalar]:
        gap, rate = arrays
        return gap[slot], rate[slot]

    def tell(self, where: Any) -> None:
        """The impacts what hits: what has the smallest gap (mask)."""
        impacts = self.impacts
        for k, x in enumerate((impacts.hit, impacts.hit_roots, impacts.hit_roots.at(1), impacts.returns), start=2):
            x[0] = select(where, self.least[k], x[0])

    def go_on(self, where: Any, missed: Any) -> None:
        """The last look was before any impact (mask); missed: as far as that can be said: no gap is seen to close."""

        def keep(before: Any, now: Any, slot: Any) -> None:
            gap, rate = self._at(now, slot)
            before[0][slot] = select(where, gap, before[0][slot])
            before[1][slot] = select(missed, 1.0, select(where, rate, before[1][slot]))

        for slot in each_place(self.contacts):
            keep(self.before, self.now, slot)
        for k in loop(self.contacts.near_count[0]):
            at = self.contacts.first_slots[k]
            keep(self.nearest_before, self.nearest, at)
            old, new = self.passing_before.get(at, 3), self.passing.get(at, 3)
            self.passing_before.put(at, [select(where, x, y) for x, y in zip(new, old, strict=True)])


def lasting(gap: Scalar, rate: Scalar, bend: Scalar = 0.0) -> Scalar:
    """How long a gap surely stays open that changes at this rate, which falls by `bend` in a unit of time at most."""
    gap = maximum(gap, 0.0)
    if isinstance(bend, float) and bend == 0.0:
        return select(rate < 0.0, gap / select(rate < 0.0, -rate, 1.0), FAR)
    bend = maximum(bend, 1e-30)
    root = sqrt(rate * rate + 2.0 * bend * gap)
    return select(rate < 0.0, 2.0 * gap / maximum(root - rate, 1e-30), (rate + root) / bend)


def next_depth(gap: Scalar, size: Scalar) -> Scalar:
    """The gap at which what has penetrated hits again, although it is held: rims that roll come down elsewhere."""
    level: Scalar = FAR
    for depth in reversed(DEPTHS):
        level = select(gap > -0.9 * depth * size, -depth * size, level)
    return level
