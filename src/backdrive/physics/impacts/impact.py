"""Impacts: which contacts rest and which hit.

A step is a sequence of stretches of time. Where nothing hits, the velocities change evenly along a stretch, from v to
v⁺, by forces and by the contacts that rest; other gaps are watched, and the stretch ends when the first of them closes.
An impact is a stretch that takes no time: at fixed positions, the contacts that hit and those that rest then change the
velocities at once. `impact_time` finds when.

The decisions here (which contacts rest) have no derivative.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ir import (
    Scalar,
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
    while_any,
)
from ..constraints.delassus import ContactProblem
from ..constraints.rows import Constraints, contact_rows, material, row_speed
from ..constraints.warm_start import Marks
from ..geometry.contact_points import ContactPoints
from ..geometry.solids import ACTIVE
from ..integrators.integrate import Integrator, Midpoint
from ..math import spatial as sp
from ..math.arrays import zero
from ..math.linear import TILE, multiply
from ..math.spatial import Vec
from ..solvers.solve import Solver, solve
from ..tree.poses import pose_of
from ..tree.tree import Tree

SLOW = 1e-9  # m/s: what approaches slower does not hit
TOUCHING = 1e-9  # gaps up to so much of the smaller shape's size are closed for what hits,
RESTING = 1e-4  # and up to so much for what rests
TIMELY = 1e-5  # what does not even close such a gap in a step has no time at which it hits, but at once,
SLIGHT = 1e-3  # if it is slower than so much of what forces do in a step
ELASTIC = 1e-6  # what bounces without loss rests if it is slower than so much of what a step's forces do
GAIN = 1e-12  # of the energy of an impact may come of rounding
HALVINGS = 50
SINGLE, SEVERAL = 1e-13, 1e-11  # regularisation of impacts of one or several contacts, as a part of the inverse mass


class Impacts:
    """The impacts of a step as it goes on, in every lane.

    left: time that is left of the step. slot: the contact that hits now, or -1; roots: of its two trees (0: the world).
    acceleration [nv]: before the hit. late: 1 where what hits at once had penetrated already, or is so slow that its
    gap does not say when. returns: 1 where what hits is back where it was at the start of the stretch, not where a gap
    is zero. over: 1 where no more impacts are sought. role [nslot]: 1 where a contact takes part in the current
    stretch, 2 where it bounces, else 0. several: 1 where more contacts than one do. loaded: resting contacts that
    carried something before. struck: contacts that were found not to rest. approach [nslot]: speed at the start of the
    stretch. patience [nslot]: how much faster than what a step's forces do a contact must hit to bounce. push [nslot]:
    by how much forces change the velocities at a contact in the stretch.
    """

    def __init__(self, tree: Tree, integrator: Integrator, h: Scalar) -> None:
        self.tree, self.integrator, self.h = tree, integrator, h
        self.left, self.slot, self.over, self.several = (memory(1) for _ in range(4))
        self.roots, self.acceleration = memory(2), memory(tree.nv)
        self.role, self.approach, self.patience, self.push = (memory(tree.constraints.nslot) for _ in range(4))
        self.loaded, self.struck = (Marks(tree.constraints.nslot) for _ in range(2))
        self.watch, self.hit, self.hit_roots, self.late, self.returns = (memory(n) for n in (1, 1, 2, 1, 1))
        self.count, self.fallbacks, self.simultaneous, self.guarded = (memory(1) for _ in range(4))

    def begin(self, where: Any = True) -> None:
        """Of a step, in some lanes (mask): nothing has hit yet."""
        self.left[0], self.slot[0] = select(where, self.h, self.left[0]), select(where, -1.0, self.slot[0])
        for number in (self.over, self.count, self.fallbacks, self.simultaneous, self.guarded):
            zero(1, number, where)
        zero(2, self.roots, where)
        zero(self.tree.nv, self.acceleration, where)
        self.loaded.clear(where)
        self.struck.clear(where)

    def arrays(self) -> list[tuple[Any, Any]]:
        """What passes from one stretch to the next, with sizes."""
        numbers = [(x, 1) for x in (self.left, self.slot, self.over, self.count)]
        return [
            *numbers, (self.roots, 2), (self.acceleration, self.tree.nv), *self.loaded.arrays(), *self.struck.arrays()
        ]  # fmt: skip

    @property
    def hitting(self) -> Any:
        """Where the current stretch is an impact (mask)."""
        return self.slot[0] >= 0.0

    @property
    def going(self) -> Any:
        """Where the step is not at its end (mask)."""
        return (self.left[0] > 0.0) | self.hitting

    def duration(self) -> Scalar:
        """Of the current stretch, if nothing hits (any time where the step is at its end)."""
        return select(self.hitting, 0.0, select(self.left[0] > 0.0, self.left[0], self.h))

    def ahead(self, free: Any) -> Any:
        """The free velocities at the end of the stretch; in an impact, the acceleration before it."""
        result = memory(self.tree.nv)
        for k in loop(self.tree.nv):
            result[k] = select(self.hitting, self.acceleration[k], free[k])
        return result

    def classify(self, constraints: Constraints, contacts: ContactPoints, poses: Any, width: int) -> None:
        """Fill `role`, and find out whether something hits at once (`hit`), or may within the stretch (`watch`).

        poses: at the start of the stretch, `width` numbers each: with the twists of what is `ahead`, and of the motion
        at the start, first.
        """
        duration = self.duration()
        for slot in each_place(contacts):
            self.role[slot] = 0.0
        numbers = carry(6)  # to be watched; slot and roots of the fastest hit; its speed, and whether it is late
        members, bounces = carry(1), carry(1)
        for k, x in enumerate((0.0, -1.0, 0.0, 0.0, 0.0, 0.0)):
            numbers[k] = x
        members[0], bounces[0] = 0.0, 0.0
        hitting, over = self.hitting, (self.over[0] > 0.5) & ~self.hitting
        for c in loop(contacts.count[0]):
            slot, p = contacts.slots[c], contacts.pairs[c]
            point, on = contacts.point(slot)
            a, b, support = constraints.pair(p)
            e = material(constraints.shape_record(a), constraints.shape_record(b), constraints.combine).restitution
            ends = [pose_of(poses, link, width, constraints.dim) for link in (support.a, support.b)]
            normal = contact_rows(point, constraints.pair_surface(p), constraints.dim, constraints.directions)[0]
            ahead, speed = (
                row_speed(normal, ends[0], ends[0][at : at + 6]) - row_speed(normal, ends[1], ends[1][at : at + 6])
                for at in (12, 18)
            )
            pressing = maximum(-select(hitting, ahead, (ahead - speed) / select(hitting, 1.0, duration)), 0.0)
            size = constraints.pair_size(p)
            # Rebounds that the pressing forces end within a step are none, all that would follow together, 2 e v /
            # (1 - e) a: so a bouncing ball comes to rest, and what would hit that slowly rests already. So does what
            # touches, until it is seen what it carries.
            self.patience[slot] = clip((1.0 - e) / maximum(e, TOUCHING), ELASTIC, 1.0)
            least = self.h * pressing * self.patience[slot]
            slow = speed * speed + 2.0 * pressing * maximum(point.gap, 0.0) <= least * least
            struck = on & self.struck.has(slot)
            rests = on & ~struck & (slow | (point.gap <= RESTING * size))
            if isinstance(self.integrator, Midpoint):  # which finds the load where v leads in half the time
                room = maximum(select(speed < 0.0, point.gap, -point.gap), 0.0) + RESTING * size
                rests = rests & (0.5 * duration * absolute(speed) <= room)
            closed = on & ~rests & (point.gap <= TOUCHING * size)
            self.approach[slot] = -speed
            changes = [sp.sub(*(point_velocity(end, normal.point, at) for at in (12, 18))) for end in ends]
            self.push[slot] = sum(sqrt(sp.dot(x, x)) for x in changes)
            roots = [to_float(root) for root in (support.root_a, support.root_b)]
            beside = self._meets(roots)
            # What rests is hit with what it carries; what only touches is hit next, unless it does not bounce.
            holds = rests & (self.loaded.has(slot) | (e <= 0.0))
            hit = (closed & beside) | (self.slot[0] == to_float(slot))
            takes_part = select((hitting & (holds | hit)) | (~hitting & rests), 1.0, 0.0)
            bounce = hitting & hit & (e > 0.0) & (-speed >= least)
            role = select(over, select(on, 1.0, 0.0), select(bounce, 2.0, takes_part))
            self.role[slot] = role
            members[0] = members[0] + select(role > 0.5, 1.0, 0.0)
            bounces[0] = bounces[0] + select(hitting & hit, 1.0, 0.0)
            numbers[0] = select(on & ~rests & ~over, 1.0, numbers[0])
            first = closed & ~hitting & ~over & (-speed > numbers[4])
            slight = (-speed * self.h <= TIMELY * size) & (-speed <= SLIGHT * self.push[slot])
            late = (point.gap < -TOUCHING * size) | slight
            for k, x in enumerate((to_float(slot), *roots, -speed, select(late, 1.0, 0.0)), start=1):
                numbers[k] = select(first, x, numbers[k])
        self.watch[0], self.hit[0] = numbers[0], numbers[1]
        self.hit_roots[0], self.hit_roots[1], self.late[0] = numbers[2], numbers[3], numbers[5]
        self.several[0] = select(members[0] > 1.5, 1.0, 0.0)
        self.simultaneous[0] = self.simultaneous[0] + select(bounces[0] > 1.5, 1.0, 0.0)

    def _meets(self, roots: list[Scalar]) -> Any:
        """Whether a contact has a tree in common with the one that hits (mask): else it hits on its own."""
        same = [(x > 0.0) & ((x == self.roots[0]) | (x == self.roots[1])) for x in roots]
        return same[0] | same[1]

    def weigh(self, contacts: ContactPoints, problem: ContactProblem, first: Any) -> Any:
        """See which contacts carry something, and whether those that approach or part rest: they do if they are pressed
        by more than what it takes to stop them, or by enough to end the rebound (first: their first row). Where one
        does not, the stretch has to be found again without it (mask). What parts, and may come back, is to be watched.
        """
        flies, again = self.going & ~self.hitting & (self.over[0] < 0.5), carry(1)
        again[0] = 0.0
        self.loaded.clear(flies)
        for c in loop(contacts.count[0]):
            slot, r = contacts.slots[c], first + c * self.tree.constraints.block
            load, stop = problem.impulse[r] * problem.diagonal[r], self.approach[slot]
            self.loaded.add(slot, flies & (load > SLOW))
            self.watch[0] = select(flies & (self.role[slot] > 0.5) & ~self.holds(slot), 1.0, self.watch[0])
            # The load is also what it takes to stop what moves along: no more than forces do is pressure.
            pressed = minimum(load - stop, self.push[slot]) * self.patience[slot] >= absolute(stop)
            struck = flies & (load > 0.0) & (absolute(stop) > SLOW) & ~pressed & (self.role[slot] > 0.5)
            self.struck.add(slot, struck)
            again[0] = select(struck, 1.0, again[0])
        return again[0] > 0.5

    def holds(self, slot: Any) -> Any:
        """Whether a contact rests in the stretch (mask), as `weigh` found: what carries nothing and parts does not."""
        return (self.role[slot] > 0.5) & (self.loaded.has(slot) | (self.approach[slot] >= -SLOW))

    def apply(self, contacts: ContactPoints) -> None:
        """Only contacts that take part count."""
        for c in loop(contacts.count[0]):
            record = contacts.record(contacts.slots[c])
            record[ACTIVE] = select(self.role[contacts.slots[c]] > 0.5, record[ACTIVE], 0.0)

    def end_stretch(self, again: Any, found: Any, length: Scalar, most: Any) -> None:
        """Go on with the impact that was found, or with what is left of the step; after `most` impacts without more."""
        flies, hitting = self.going & ~self.hitting, self.hitting
        self.struck.clear(hitting | (length > 0.0))
        rest = self.left[0] - length
        self.count[0] = self.count[0] + select(found, 1.0, 0.0)
        too_many = found & (self.count[0] >= to_float(most))
        self.over[0] = select(too_many, 1.0, self.over[0])
        self.fallbacks[0] = select(too_many, 1.0, self.fallbacks[0])
        self.left[0] = select(flies & ~again, select(found, rest, 0.0), self.left[0])
        self.slot[0] = select(found, self.hit[0], -1.0)
        for k in range(2):
            self.roots[k] = select(found, self.hit_roots[k], self.roots[k])

    def regularisation(self, usual: float) -> Scalar:
        """Of the current stretch."""
        return select(self.hitting, select(self.several[0] > 0.5, SEVERAL, SINGLE), usual)


def point_velocity(pose: Vec, point: Vec, at: int) -> Vec:
    """Of a point of a link; at: where its pose has the twist."""
    return sp.cross(pose[at : at + 3], sp.sub(point, pose[9:12]), pose[at + 3 : at + 6])


def solve_without_gain(
    impacts: Impacts, problem: ContactProblem, solver: Solver, contacts: ContactPoints, first: Any, bounce: Any,
    rebound: Any,
) -> Scalar:  # fmt: skip
    """Solve the system, with restitution reduced where it would create energy, as it may with friction on an eccentric
    hit: until there is no change of energy. Returns the residual.

    bounce: e v⁻ in the speed of every contact that bounces (first: their first row). The part of it that is left
    (`rebound`) is found by bisection: without restitution, energy is never gained.
    """
    block, n = impacts.tree.constraints.block, problem.count
    speed, kept = (memory(impacts.tree.constraints.nimpulse + TILE) for _ in range(2))
    error = memory(1)
    error[0] = 0.0
    low, high, going, bisects = (memory(1) for _ in range(4))

    def gain() -> Scalar:
        """Σ λ (c + W λ / 2), c: speeds before; relative to Σ |λ c|."""
        for r in loop(n):
            speed[r] = 0.0
        multiply(problem.W, n, problem.impulse, speed)
        total = carry(2)
        total[0], total[1] = 0.0, 1e-300
        for r in loop(n):
            total[0] = total[0] + problem.impulse[r] * (problem.b[r] + 0.5 * speed[r])
            total[1] = total[1] + absolute(problem.impulse[r] * problem.b[r])
        for c in loop(contacts.count[0]):
            total[0] = total[0] - problem.impulse[first + c * block] * (rebound[0] * bounce[c])
        return total[0] / total[1]

    rebound[0], low[0], high[0], going[0], bisects[0] = 1.0, 0.0, 1.0, 1.0, 0.0
    for _ in while_any(lambda: going[0] > 0.0, HALVINGS):
        for r in loop(n):
            kept[r] = problem.impulse[r]
        now, again = solve(problem, solver), going[0] > 0.0
        error[0] = select(again, now, error[0])
        for r in loop(n):
            problem.impulse[r] = select(again, problem.impulse[r], kept[r])
        active = again & impacts.hitting
        going[0] = 0.0
        for _ in when(any_lane(active)):
            gained, bisecting = gain(), bisects[0] > 0.5
            close = bisecting & (high[0] - low[0] <= GAIN)
            starts = active & ~bisecting & (gained > GAIN)
            impacts.guarded[0] = impacts.guarded[0] + select(starts, 1.0, 0.0)
            bisects[0] = select(starts, 1.0, bisects[0])
            low[0] = select(active & bisecting & (gained <= 0.0), rebound[0], low[0])
            high[0] = select(active & bisecting & (gained > 0.0), rebound[0], high[0])
            more = starts | (active & bisecting & ~close)
            narrow = high[0] - low[0] <= GAIN
            part = select(more, select(narrow, low[0], 0.5 * (low[0] + high[0])), rebound[0])
            for c in loop(contacts.count[0]):
                r = first + c * block
                problem.b[r] = problem.b[r] + (part - rebound[0]) * bounce[c]
            for r in loop(n):  # a start that is too good would be taken for the solution
                problem.impulse[r] = select(more, 0.0, problem.impulse[r])
            rebound[0] = part
            going[0] = select(more, 1.0, 0.0)
    return error[0]


def each_place(contacts: ContactPoints) -> Iterator[Any]:
    """The slots of all pairs that have contacts."""
    for k in loop(contacts.near_slot_count[0]):
        yield contacts.near_slots[k]
