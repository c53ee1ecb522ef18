"""The time of the next impact: the first time in a substep at which a gap closes.

The gaps are looked at from node to node in time. An impact lies between two looks if the smallest gap has become
negative. It may also lie there if a gap that was closing is now opening: then the search looks more closely, so that
nothing passes through a thin shape (conservative advancement). The time is then found by Newton's method on the
smallest gap, kept inside a bracket.

Nothing here has a derivative: `step_adjoint` differentiates the time of impact through the gap that closed.
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir import (
    Mask,
    Scalar,
    ScalarArray,
    absolute,
    any_lane,
    carry,
    clip,
    counters,
    interruptible,
    loop,
    memory,
    minimum,
    select,
    to_float,
    when,
    while_any,
)
from ..budget import looking
from ..geometry.contact_points import ContactPoints
from ..geometry.narrow_phase import near_pairs
from ..integrators.base import Integrator, VelocityChange
from ..state import StateArrays
from ..tree.poses import link_poses, pose_size
from ..tree.tree import LinkSubset, Tree
from .gaps import Look, WatchedGaps
from .impact import Impacts

# A substep in which a shape turns that is not round has at least this many nodes,
LEAST_NODES = 4
# and as many as it takes for no shape to turn by more than this (rad) from node to node,
NODE_ANGLE = 0.25
# up to this many.
MOST_NODES = 200

# A gap that closes and opens again within this part of the substep may be overlooked.
FINE = 1e-3

# The search looks at all gaps at most this many times; a step with many substeps also has a budget.
MOST_LOOKS = 800

# The time of impact is found to this part of the substep's duration.
TIME_TOLERANCE = 1e-15

# An impact within this part of the step size before the end of a step is left to the next step.
END_TOLERANCE = 1e-10

# A contact that hits at once has no time at which its gap closes if the correction of positions slows it down to less
# than this part of its speed.
LEAST_CLOSING_SPEED = 0.5

# Stages of the search; see `ImpactSearch`.
SEEK, CLOSE_IN, NOTHING, FOUND = 0.0, 1.0, 2.0, 3.0


class SubstepMotion(NamedTuple):
    """The motion of a substep: from a state on, with velocities that change linearly to v_next at its end.

    correction [nv]: a velocity that is added to that of the positions only (the correction of positions).
    """

    tree: Tree
    integrator: Integrator
    state: StateArrays
    v_next: ScalarArray
    correction: ScalarArray

    def advance(
        self, part: Scalar, t: Scalar, q_out: ScalarArray, v_out: ScalarArray, some: LinkSubset | None = None
    ) -> None:
        """q_out [nq] and v_out [nv]: the state at time t (s), which is a `part` of the substep. some: q of these links
        only."""
        tree, v, motion = self.tree, self.state.v, memory(self.tree.nv)
        for k in loop(tree.nv):
            v_out[k] = v[k] + part * (self.v_next[k] - v[k])
            motion[k] = v_out[k] + self.correction[k]
        self.integrator.travel(tree, self.state, motion, t, q_out, some)

    def to_rate(self, part: Scalar, velocity: ScalarArray) -> None:
        """From the velocity at a `part` of the substep, in place, to the rate at which `advance` moves q there."""
        self.integrator.to_rate(self.tree, part, VelocityChange(self.state.v, self.v_next), velocity)


def first_impact(
    motion: SubstepMotion, impacts: Impacts, contacts: ContactPoints, duration: Scalar, flies: Mask
) -> tuple[Mask, Scalar, Mask]:
    """Whether a contact hits in the substep, and when (s); `hit` and `hit_roots` of the impacts tell which. And whether
    the search was given up.

    flies: the lanes in which the substep has a duration (s) at all, and the motion is finite.
    """
    search = ImpactSearch(motion, impacts, contacts, duration)
    at_once = impacts.hit[0] >= 0.0
    return search.run(at_once, flies)


class ImpactSearch:
    """The search for the time of impact in a substep, by root bracketing. Numbers are arrays of one element, in s.

    t: the time looked at. low, high: the bracket; no gap is closed at `low`, and one closes before `high`, or may.
    node: the next node. The gaps at time t decide the next stage and the next time:

        stage     gaps at t                                     bracket     next stage   next t
        SEEK      open, and were open since `low`               low = t     SEEK         node, or the one after it
        SEEK      the same, and the last node is reached        low = t     NOTHING
        SEEK      the smallest is negative                      high = t    CLOSE_IN     Newton's, else the middle
        SEEK      open, but one may have been closed            high = t    SEEK         the middle
        SEEK      the same, and the bracket is empty            low = t     SEEK         node: an impact may be missed
        CLOSE_IN  the smallest is negative                      high = t    CLOSE_IN     Newton's, else the middle
        CLOSE_IN  open                                          low = t     CLOSE_IN     Newton's, else the middle
        CLOSE_IN  another one may have been closed before       high = t    SEEK         the middle; node = t
        CLOSE_IN  open, and the bracket is empty                low = t     CLOSE_IN     high: there a gap is negative
        CLOSE_IN  zero, or negative and the bracket is empty                FOUND

    Newton's: the zero of the smallest gap by its rate, if that lies inside the bracket.
    """

    def __init__(self, motion: SubstepMotion, impacts: Impacts, contacts: ContactPoints, duration: Scalar) -> None:
        self.motion, self.impacts, self.contacts, self.duration = motion, impacts, contacts, duration
        self.q, self.velocity = memory(motion.tree.nq), memory(motion.tree.nv)
        self.t, self.low, self.high, self.node, self.stage = (memory(1) for _ in range(5))
        self.part: Scalar = 0.0  # of the budget of the step, which a look takes

    def run(self, at_once: Mask, flies: Mask) -> tuple[Mask, Scalar, Mask]:
        """Whether there is an impact, and its time, and whether that is unknown; at_once: mask, one that needs no
        search."""
        impacts, t, stage, duration = self.impacts, self.t, self.stage, self.duration
        some = links_in_contact(self.motion.tree, self.contacts)
        seeks = flies & ~at_once & (impacts.watch[0] > 0.5)
        first_stage = select(seeks, SEEK, NOTHING)
        t[0], self.low[0], self.high[0], self.node[0], stage[0] = 0.0, 0.0, 0.0, 0.0, first_stage
        impacts.returns[0], impacts.jumps[0] = -1.0, 0.0
        gaps, self.part = WatchedGaps(self.motion.tree, impacts, self.contacts), self._part_of_budget()
        impacts.budget.spend(self.part, impacts.going)  # the substep itself has looked for contacts
        for _ in interruptible(while_any(self._goes_on, MOST_LOOKS)):
            going, starts = self._look(gaps, some)
            impacts.budget.spend(self.part, going)
            self._continue(gaps, going, starts)
        for _ in when(any_lane(at_once & flies)):
            self._find_closing_time(at_once, some)
        found = at_once | ((stage[0] == FOUND) & (duration - t[0] > END_TOLERANCE * impacts.h))
        return found & flies, t[0], stage[0] < NOTHING

    def _find_closing_time(self, at_once: Mask, some: LinkSubset | None) -> None:
        """Set t to the time at which the gap of a contact that hits at once closes: rounding and regularisation put it
        a little before or after the start of the substep. It is the start itself where the contact is late."""
        motion, impacts, t = self.motion, self.impacts, self.t
        motion.advance(0.0, 0.0, self.q, self.velocity, some)
        motion.to_rate(0.0, self.velocity)
        poses = link_poses(motion.tree, self.q, self.velocity, indexed=True, some=some)
        for narrow, at in near_pairs(motion.tree.constraints, self.contacts, poses, pose_size(1)):
            points = narrow.points(self.contacts.features(narrow.group.number, narrow.p))
            for k, point in enumerate(points):
                hits, speed = at_once & (impacts.hit[0] == to_float(at + k)), narrow.closing_speed(point)
                held = speed < LEAST_CLOSING_SPEED * impacts.hit_speed[0]
                impacts.late[0] = select(hits & held, 1.0, impacts.late[0])
                closing = point.gap / select(held, 1.0, speed)
                t[0] = select(hits & (impacts.late[0] < 0.5), closing, t[0])

    def _goes_on(self) -> Mask:
        return (self.stage[0] < NOTHING) & self.impacts.budget.allows(self.part)

    def _part_of_budget(self) -> Scalar:
        """What a look takes of the budget of the step."""
        contacts, pairs = self.contacts, carry(1)
        pairs[0] = 0.0
        for k in loop(contacts.near_count[0]):
            pairs[0] = pairs[0] + contacts.pair_active[contacts.first_slots[k]]
        return looking(pairs[0])

    def _look(self, gaps: WatchedGaps, some: LinkSubset | None) -> tuple[Mask, Mask]:
        """Look at the gaps at time t; returns where the search is going on, and where t is the start of the substep."""
        motion, t, low = self.motion, self.t, self.low
        part, starts = t[0] / self.duration, (self.stage[0] == SEEK) & (self.node[0] == 0.0)
        going = self._goes_on()
        motion.advance(part, t[0], self.q, self.velocity, some)
        motion.to_rate(part, self.velocity)
        poses = link_poses(motion.tree, self.q, self.velocity, indexed=True, some=some)
        gaps.look(poses, Look(starts, t[0] - low[0], FINE * self.duration))
        return going, starts

    def _continue(self, gaps: WatchedGaps, going: Mask, starts: Mask) -> None:
        """Update the bracket, and choose the next stage and the next time to look at (see the table above)."""
        t, low, high, node, stage, duration = self.t, self.low, self.high, self.node, self.stage, self.duration
        gap, rate = gaps.least[gaps.GAP], gaps.least[gaps.RATE]
        seeking, closing_in = stage[0] == SEEK, stage[0] == CLOSE_IN
        crossed, dipped = (gap < 0.0) & ~starts, (gaps.dips[0] > 0.5) & ~starts
        beyond = crossed | dipped
        high[0] = select(going & beyond, t[0], high[0])
        empty = high[0] - low[0] <= TIME_TOLERANCE * duration
        missed = seeking & ~crossed & beyond & empty
        passed = ~beyond | missed
        low[0] = select(going & passed, t[0], low[0])
        gaps.pass_look(going & passed, missed)
        newton = t[0] - gap / select(rate < 0.0, rate, -1.0)
        inside = (rate < 0.0) & (newton > low[0]) & (newton < high[0])
        close = ((gap == 0.0) & (rate < 0.0)) | (inside & (absolute(newton - t[0]) <= TIME_TOLERANCE * duration))
        arrived = closing_in & ((empty & beyond) | (close & ~dipped))
        gaps.report(arrived)
        at_node = seeking & passed & (t[0] >= node[0])
        ended = at_node & (node[0] >= duration)
        turns = gaps.turns[0]
        nodes = clip(turns * (duration / NODE_ANGLE), select(turns > 0.0, LEAST_NODES, 1.0), MOST_NODES)
        further = select(at_node, minimum(node[0] + duration / nodes, duration), node[0])
        node[0] = select(closing_in & dipped, t[0], select(going, further, node[0]))
        middle = 0.5 * (low[0] + high[0])
        inward = select((crossed | closing_in) & inside & ~(closing_in & dipped), newton, middle)
        inward = select(closing_in & empty & ~beyond, high[0], inward)
        t[0] = select(arrived | ~going, t[0], select(seeking & passed, node[0], inward))
        following = select(seeking, select(crossed, CLOSE_IN, SEEK), select(dipped, SEEK, CLOSE_IN))
        stage[0] = select(going, select(ended, NOTHING, select(arrived, FOUND, following)), stage[0])


def links_in_contact(tree: Tree, contacts: ContactPoints) -> LinkSubset | None:
    """Every link that has a pair in the narrow phase, once; None (all links) where links may have parents."""
    if tree.homogeneous is None:
        return None
    some, listed = LinkSubset(counters(tree.nlink), counters(1)), counters(tree.nlink + 1)
    some.count[0] = 0
    for k in loop(tree.nlink + 1):
        listed[k] = 0
    for m in loop(contacts.near_count[0]):
        *_, support = tree.constraints.pair(contacts.near_pairs[m])
        for link in (support.a, support.b):
            for _ in when((link > 0) & (listed[link] == 0)):  # not the world
                some.links[some.count[0]] = link - 1
                some.count[0] = some.count[0] + 1
                listed[link] = 1
    return some
