"""Impacts: which contacts rest and which hit.

A step that is split at its impacts is a sequence of substeps. Between impacts, the velocities change linearly in time
from v to v⁺, by forces and by the contacts that rest; the gaps of all other contacts are watched, and the substep ends
when the first of them closes (`time_of_impact`). An impact is a substep without duration: at fixed positions, the
contacts that hit and those that rest then change the velocities at once.

The decisions made here (which contacts rest, which hit) have no derivative.
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir import (
    Index,
    Mask,
    Scalar,
    ScalarArray,
    absolute,
    any_lane,
    carry,
    clip,
    loop,
    maximum,
    memory,
    minimum,
    select,
    sqrt,
    to_float,
    when,
)
from ..budget import WorkBudget
from ..constraints.constraints import Constraints
from ..constraints.problem import ContactProblem
from ..constraints.rows import Row, contact_normal, material, row_speed
from ..geometry.contact_points import ContactPoints
from ..geometry.solids import ACTIVE
from ..integrators import Integrator
from ..math import spatial as sp
from ..math.arrays import zero
from ..tree.poses import Pose, pose_of
from ..tree.tree import Tree
from .reach import Reach
from .slot_set import SlotSet

# Relative speeds below this (m/s) are treated as zero: the contact neither approaches, nor separates, nor presses.
REST_SPEED = 1e-9

# Of contacts that hit at once, those whose speeds differ by less than this part hit together.
SAME_SPEED = 1e-9

# A contact that approaches counts as closed, and hits together with another one, when its gap is below this part of the
# smaller shape's size.
CLOSED_GAP = 1e-9

# It hits at once, at the start of a substep, when its gap is below this part, which is hardly more than rounding: the
# time at which a larger gap closes depends on the state, however short it is.
AT_ONCE_GAP = 1e-12

# A contact rests, until its load is known, when its gap is below this part of the smaller shape's size.
RESTING_GAP = 1e-4

# A contact that hits at the start of a substep has a time of impact, as a function of its gap, if in a whole step it
# would close by more than this part of the smaller shape's size,
TIMED_GAP = 1e-5
# or if it approaches faster than this part of the change of velocity by forces.
TIMED_SPEED = 1e-3

# Bounds of the threshold below which a contact rests instead of bouncing (`Impacts.rest_share`): the lower one is that
# of contacts without loss.
LEAST_REST_SHARE, MOST_REST_SHARE = 1e-6, 1.0

# Coefficients of restitution are at least this in the threshold of resting, which divides by them.
LEAST_RESTITUTION = 1e-9

# Regularisation of an impact of one contact, and of several at once, relative to the inverse mass they act on.
SINGLE_REGULARISATION, SEVERAL_REGULARISATION = 1e-13, 1e-11

# The role of a contact in a substep: it takes no part; it takes part without bouncing (it rests, or its impact is
# inelastic); it bounces.
ABSENT, HOLDING, BOUNCING = 0.0, 1.0, 2.0

# The twists that a pose has in `Impacts.classify`: of the velocities ahead, and at the start of the substep.
AHEAD, START = 0, 1


class Approach(NamedTuple):
    """A contact at the start of a substep, as `Impacts.classify` judges it.

    on: whether it counts. normal: the row of its normal. ends, roots: the poses of its two links, and the roots of
    their trees (0: the world). gap, size: in m; size is that of the smaller shape. restitution: the coefficient. speed:
    at which the gap opens, m/s. pressing: the acceleration at which forces close the gap, m/s² (0 if they open it).
    least: the speed of approach (m/s) from which on the contact bounces.
    """

    slot: Index
    on: Mask
    normal: Row
    ends: tuple[Pose, Pose]
    roots: tuple[Index, Index]
    gap: Scalar
    size: Scalar
    restitution: Scalar
    speed: Scalar
    pressing: Scalar
    least: Scalar


class Impacts:
    """The state of a step that is split at its impacts, in every lane. Numbers are arrays of one element.

    Passed from substep to substep:
        left: the time left of the step, s. slot: the contact that hits now, or -1; roots [2]: its two trees (0: the
        world). together: what touches and approaches faster than this (m/s) hits together with it. acceleration [nv]:
        before the impact. over: 1 where no more impacts are sought. count: impacts so far. budget: what is spent of
        that of the step. loaded: the resting contacts that carried a load before. struck: contacts that were found not
        to rest.
    Of the current substep:
        role [nslot]: ABSENT, HOLDING or BOUNCING. several: 1 where more than one contact takes part in an impact.
        approach [nslot]: speed of approach at its start, m/s. rest_share [nslot]: a contact that approaches more slowly
        than this part of the speed that pressing forces give it in a step rests. push [nslot]: change of the relative
        velocity at the contact by forces, m/s. watch: 1 where gaps must be watched. hit, hit_roots: the contact that
        hits next (-1: none) and its trees; hit_speed: its speed of approach (m/s), if it hits at once. late: 1 where
        that contact had penetrated already, or is so slow that its gap does not determine the time of impact. returns:
        where that contact hits at the gap that it had at the start of the substep, and not at zero, the slot that it
        had there; else -1. jumps: 1 where its gap did not close, but jumped below zero: an edge came to lie on a face,
        and bodies touch at another place from then on.
    For the status of the step:
        fallbacks: 1 where impacts were given up. simultaneous: impacts of several contacts, and those where gaps jump.
    """

    def __init__(self, tree: Tree, integrator: Integrator, h: Scalar) -> None:
        self.tree, self.integrator, self.h = tree, integrator, h
        self.left, self.slot, self.together, self.over, self.several = (memory(1) for _ in range(5))
        self.roots, self.acceleration = memory(2), memory(tree.nv)
        self.role, self.approach, self.rest_share, self.push = (memory(tree.constraints.nslot) for _ in range(4))
        self.loaded, self.struck = (SlotSet(tree.constraints.nslot) for _ in range(2))
        self.watch, self.hit, self.hit_roots, self.hit_speed, self.late = (memory(n) for n in (1, 1, 2, 1, 1))
        self.returns, self.jumps = memory(1), memory(1)
        self.count, self.fallbacks, self.simultaneous = (memory(1) for _ in range(3))
        self.budget = WorkBudget()

    def begin(self) -> None:
        """Begin a step."""
        self.left[0], self.slot[0] = self.h, -1.0
        for number in (self.over, self.count, self.fallbacks, self.simultaneous):
            zero(1, number)
        self.budget.begin()
        zero(2, self.roots)
        zero(self.tree.nv, self.acceleration)
        self.loaded.clear()
        self.struck.clear()

    def arrays(self) -> list[tuple[ScalarArray, Index]]:
        """The arrays that are passed from one substep to the next, with their sizes."""
        numbers = (self.left, self.slot, self.together, self.over, self.count, self.budget.spent)
        return [
            *((x, 1) for x in numbers), (self.roots, 2), (self.acceleration, self.tree.nv), *self.loaded.arrays(),
            *self.struck.arrays(),
        ]  # fmt: skip

    @property
    def hitting(self) -> Mask:
        """Where the current substep is an impact."""
        return self.slot[0] >= 0.0

    @property
    def going(self) -> Mask:
        """Where the step has not reached its end."""
        return (self.left[0] > 0.0) | self.hitting

    def duration(self) -> Scalar:
        """The time (s) that the current substep takes if nothing hits; h where the step has reached its end."""
        return select(self.hitting, 0.0, select(self.left[0] > 0.0, self.left[0], self.h))

    def ahead(self, free: ScalarArray) -> ScalarArray:
        """[nv] The free velocities at the end of the substep; in an impact, the acceleration before it."""
        result = memory(self.tree.nv)
        for k in loop(self.tree.nv):
            result[k] = select(self.hitting, self.acceleration[k], free[k])
        return result

    def regularisation(self, usual: float) -> Scalar:
        """The regularisation of the current substep, relative to the inverse mass; usual: between impacts."""
        hitting, several = self.hitting, self.several[0] > 0.5
        return select(hitting, select(several, SEVERAL_REGULARISATION, SINGLE_REGULARISATION), usual)

    # ---------------------------------------------------------------------------------------- roles

    def classify(self, constraints: Constraints, contacts: ContactPoints, poses: ScalarArray, width: int) -> None:
        """Decide the role of every contact, whether one hits at once (`hit`), and whether one may hit later (`watch`).

        poses: over links, at the start of the substep, `width` numbers each, with the twists of `ahead` and of the
        velocities at the start.
        """
        duration = self.duration()
        for k in loop(contacts.near_slot_count[0]):
            self.role[contacts.near_slots[k]] = ABSENT
        first_hit = FirstHit()
        hits = carry(1)
        first_hit.clear()
        hits[0] = 0.0
        hitting, over = self.hitting, (self.over[0] > 0.5) & ~self.hitting
        for c in loop(contacts.count[0]):
            contact = self._approach(constraints, contacts, poses, width, c, duration, hitting)
            slot, on, e, speed = contact.slot, contact.on, contact.restitution, contact.speed
            rests = self._rests(contact, duration)
            loaded = self.loaded.has(slot)
            # What closes at the same time, up to rounding, hits together: rounding must not decide which is the first.
            at_once = hitting & ~loaded & (e > 0.0) & (-speed > maximum(contact.least, self.together[0]))
            closed = on & (~rests | at_once) & (contact.gap <= CLOSED_GAP * contact.size)
            self.approach[slot] = -speed
            changes = [
                sp.sub(*(end.velocity(contact.normal.point, which) for which in (AHEAD, START))) for end in contact.ends
            ]
            self.push[slot] = sum(sqrt(sp.dot(x, x)) for x in changes)
            roots = [to_float(root) for root in contact.roots]
            beside = self._shares_tree(roots)
            # A resting contact with a load is hit together with what hits. One that only touches is hit next, unless
            # it does not bounce.
            holds = rests & (loaded | (e <= 0.0))
            hit = (closed & beside) | (self.slot[0] == to_float(slot))
            takes_part = select((hitting & (holds | hit)) | (~hitting & rests), HOLDING, ABSENT)
            bounce = hitting & hit & (e > 0.0) & (-speed >= contact.least)
            role = select(over, select(on, HOLDING, ABSENT), select(bounce, BOUNCING, takes_part))
            self.role[slot] = select(self.going, role, ABSENT)
            hits[0] = hits[0] + select(hitting & hit, 1.0, 0.0)
            first_hit.watch(on & ~rests & ~over)
            at_once = closed & (contact.gap <= AT_ONCE_GAP * contact.size)
            first = at_once & ~hitting & ~over & (-speed > first_hit.speed)
            slight = (-speed * self.h <= TIMED_GAP * contact.size) & (-speed <= TIMED_SPEED * self.push[slot])
            late = (contact.gap < -CLOSED_GAP * contact.size) | slight
            first_hit.replace(first, to_float(slot), roots, -speed, late)
        first_hit.write(self)
        for _ in when(any_lane(hitting)):
            self._leave_out(constraints, contacts)
        self.simultaneous[0] = self.simultaneous[0] + select(hits[0] > 1.5, 1.0, 0.0)

    def _leave_out(self, constraints: Constraints, contacts: ContactPoints) -> None:
        """Let contacts that the impact does not reach take no part in it; sets `several`."""
        reach, members = Reach(self.tree.nlink, self.roots), carry(1)
        reach.spread(constraints, contacts, self.role)
        members[0] = 0.0
        for c in loop(contacts.count[0]):
            slot, (_, _, support) = contacts.slots[c], constraints.pair(contacts.pairs[c])
            absent = self.hitting & ~reach.has(support.root_a, support.root_b)
            self.role[slot] = select(absent, ABSENT, self.role[slot])
            members[0] = members[0] + select(self.role[slot] > 0.5, 1.0, 0.0)
        self.several[0] = select(members[0] > 1.5, 1.0, 0.0)

    def _approach(
        self, constraints: Constraints, contacts: ContactPoints, poses: ScalarArray, width: int, c: Index,
        duration: Scalar, hitting: Mask,
    ) -> Approach:  # fmt: skip
        """Contact c; sets its `rest_share`."""
        slot, p = contacts.slots[c], contacts.pairs[c]
        point, on = contacts.point(slot)
        a, b, support = constraints.pair(p)
        e = material(constraints.shape_record(a), constraints.shape_record(b), constraints.combine).restitution
        end_a, end_b = (Pose.of(pose_of(poses, link, width, constraints.dim)) for link in (support.a, support.b))
        normal = contact_normal(point, constraints.pair_surface(p))
        ahead, speed = (row_speed(normal, end_a, which) - row_speed(normal, end_b, which) for which in (AHEAD, START))
        pressing = maximum(-select(hitting, ahead, (ahead - speed) / select(hitting, 1.0, duration)), 0.0)
        size = constraints.pair_size(p)
        # All rebounds of a ball that hits at speed v, and that forces press with acceleration a, take the time
        # 2 e v / (1 - e) a together. If that is less than a step, the ball comes to rest at once.
        share = clip((1.0 - e) / maximum(e, LEAST_RESTITUTION), LEAST_REST_SHARE, MOST_REST_SHARE)
        self.rest_share[slot] = share
        least = self.h * pressing * self.rest_share[slot]
        ends, roots = (end_a, end_b), (support.root_a, support.root_b)
        return Approach(slot, on, normal, ends, roots, point.gap, size, e, speed, pressing, least)

    def _rests(self, contact: Approach, duration: Scalar) -> Mask:
        """Whether a contact rests in the substep: it would hit too slowly to bounce; or it touches, and `weigh` has not
        found yet that it does not rest."""
        gap, size, speed, least = contact.gap, contact.size, contact.speed, contact.least
        slow = speed * speed + 2.0 * contact.pressing * maximum(gap, 0.0) <= least * least
        struck = contact.on & self.struck.has(contact.slot)
        rests = contact.on & ~struck & (slow | (gap <= RESTING_GAP * size))
        if self.integrator.predicts:  # the load is found at the midpoint: the contact must still be there
            room = maximum(select(speed < 0.0, gap, -gap), 0.0) + RESTING_GAP * size
            rests = rests & (0.5 * duration * absolute(speed) <= room)
        return rests

    def _shares_tree(self, roots: list[Scalar]) -> Mask:
        """Whether a contact has a tree in common with the one that hits; otherwise it hits on its own."""
        same = [(x > 0.0) & ((x == self.roots[0]) | (x == self.roots[1])) for x in roots]
        return same[0] | same[1]

    def bounces(self, slot: Index) -> Mask:
        return self.role[slot] > 1.5

    def takes_part(self, slot: Index) -> Mask:
        return self.role[slot] > 0.5

    def holds(self, slot: Index) -> Mask:
        """Whether a contact rests in the substep, as `weigh` found: one that separates and carries no load does not."""
        return self.takes_part(slot) & (self.loaded.has(slot) | (self.approach[slot] >= -REST_SPEED))

    def apply(self, contacts: ContactPoints) -> None:
        """Let only the contacts that take part count."""
        for c in loop(contacts.count[0]):
            record = contacts.record(contacts.slots[c])
            record[ACTIVE] = select(self.takes_part(contacts.slots[c]), record[ACTIVE], 0.0)

    # ---------------------------------------------------------------------------------------- the end of a substep

    def weigh(self, contacts: ContactPoints, problem: ContactProblem, first: Index) -> Mask:
        """Find which contacts carry a load, and whether those that approach or separate really rest; first: the first
        row of the contacts.

        They rest if they are pressed by more than it takes to stop them, or by enough to end the rebound. Where one
        does not, the substep must be repeated without it: these lanes are returned. A contact that separates may come
        back, and is watched.
        """
        flies, again = self.going & ~self.hitting & (self.over[0] < 0.5), carry(1)
        again[0] = 0.0
        self.loaded.clear(flies)
        for c in loop(contacts.count[0]):
            slot, r = contacts.slots[c], first + c * self.tree.constraints.block
            load, stop = problem.impulse[r] * problem.diagonal[r], self.approach[slot]
            self.loaded.add(slot, flies & (load > REST_SPEED))
            self.watch[0] = select(flies & self.takes_part(slot) & ~self.holds(slot), 1.0, self.watch[0])
            # Part of the load stops other bodies that move along. Pressure is at most the change of velocity by forces.
            pressed = minimum(load - stop, self.push[slot]) * self.rest_share[slot] >= absolute(stop)
            struck = flies & (load > 0.0) & (absolute(stop) > REST_SPEED) & ~pressed & self.takes_part(slot)
            self.struck.add(slot, struck)
            again[0] = select(struck, 1.0, again[0])
        return again[0] > 0.5

    def end_substep(self, again: Mask, found: Mask, length: Scalar, most: Index) -> None:
        """Continue with the impact that was found after the time `length`, or with the rest of the step; after `most`
        impacts, or without a budget, without further ones. again: where the substep is repeated."""
        flies, hitting = self.going & ~self.hitting, self.hitting
        self.struck.clear(hitting | (length > 0.0))
        rest = self.left[0] - length
        self.count[0] = self.count[0] + select(found, 1.0, 0.0)
        self.simultaneous[0] = self.simultaneous[0] + select(found, self.jumps[0], 0.0)
        self.give_up((found & (self.count[0] >= to_float(most))) | ((found | again) & ~self.budget.allows()))
        self.left[0] = select(flies & ~again, select(found, rest, 0.0), self.left[0])
        self.slot[0] = select(found, self.hit[0], -1.0)
        # Of contacts that hit at once, the fastest is the first: those that are as fast hit together with it.
        tied = maximum((1.0 - SAME_SPEED) * self.hit_speed[0], REST_SPEED)
        self.together[0] = select(found, select(length > 0.0, REST_SPEED, tied), self.together[0])
        for k in range(2):
            self.roots[k] = select(found, self.hit_roots[k], self.roots[k])

    def give_up(self, where: Mask) -> None:
        """Seek no more impacts in this step."""
        self.over[0] = select(where, 1.0, self.over[0])
        self.fallbacks[0] = select(where, 1.0, self.fallbacks[0])


class FirstHit:
    """The fastest contact that hits at once, as `Impacts.classify` goes over the contacts; in registers."""

    WATCH, SLOT, ROOT_A, ROOT_B, SPEED, LATE = range(6)

    def __init__(self) -> None:
        self._numbers = carry(6)

    def clear(self) -> None:
        for k, x in enumerate((0.0, -1.0, 0.0, 0.0, 0.0, 0.0)):
            self._numbers[k] = x

    @property
    def speed(self) -> Scalar:
        """Speed of approach, m/s."""
        return self._numbers[self.SPEED]

    def watch(self, where: Mask) -> None:
        """Note that a contact must be watched."""
        self._numbers[self.WATCH] = select(where, 1.0, self._numbers[self.WATCH])

    def replace(self, where: Mask, slot: Scalar, roots: list[Scalar], speed: Scalar, late: Mask) -> None:
        for k, x in enumerate((slot, *roots, speed, select(late, 1.0, 0.0)), start=self.SLOT):
            self._numbers[k] = select(where, x, self._numbers[k])

    def write(self, impacts: Impacts) -> None:
        numbers = self._numbers
        impacts.watch[0], impacts.hit[0] = numbers[self.WATCH], numbers[self.SLOT]
        impacts.hit_speed[0] = numbers[self.SPEED]
        root_a, root_b, late = numbers[self.ROOT_A], numbers[self.ROOT_B], numbers[self.LATE]
        impacts.hit_roots[0], impacts.hit_roots[1], impacts.late[0] = root_a, root_b, late
