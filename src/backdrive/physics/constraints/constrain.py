"""The constrained part of a step: from the velocities v* of free motion to those that respect all constraints.

v⁺ = v* + A⁻¹ Jᵀ λ          λ solves the `System`                                  A = M + h D
q⁺ = q ⊕ h (v⁺ + p)         p = A⁻¹ Jᵀ π moves out of penetrations and closes loops, and is forgotten:
                            positions are corrected without giving speed, so no energy comes of it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...ir import (
    Scalar,
    absolute,
    any_lane,
    carry,
    counters,
    is_constant,
    is_finite,
    loop,
    maximum,
    memory,
    minimum,
    select,
    to_float,
    when,
    workspace,
)
from ...schema import layout
from ...schema.layout import EqualityKind
from ..geometry.collision import TOUCH, Contacts, find_contacts, follow_contacts
from ..impacts.impact import Impacts, solve_without_gain
from ..math import spatial as sp
from ..math.arrays import copy, local, zero
from ..math.linear import TILE
from ..math.spatial import Vec
from ..solvers.complementarity import bounds
from ..solvers.solve import Solver, solve
from ..tree.dynamics import Dynamics, expand
from ..tree.joints import is_angular
from ..tree.kinematics import turn
from ..tree.poses import link_poses, pose_of, pose_size
from ..tree.tree import Tree
from .correction import correct, reachable
from .delassus import INFINITE, ContactProblem, Mobility
from .rows import Constraints, Row, contact_rows, equality_row, friction_share, joint_row, material, row_speed
from .warm_start import WarmStart

SLOP = 1e-4  # penetration of so much of the smaller shape's size is closed like a gap: by velocities
LIMIT_SLOP = 1e-4  # rad or m, likewise
LIMIT_MARGIN = 0.05  # limits count from so close on, rad or m; wider for what approaches fast
ABOUT = 1e-6  # so close to a bound, relative to it, an impulse is at it


@dataclass(frozen=True)
class RigidContact:
    """How constraints are treated: the solver, and the speed (m/s) from which on contacts bounce.

    regularisation: softness of all rows, as a part of the inverse mass: which of several contacts of one face carries
    how much is then defined.
    impacts: steps are split at impacts (`impact`); without, what bounces is found out from speeds alone.
    """

    solver: Solver
    bounce_threshold: float = 0.05
    regularisation: float = 1e-8
    impacts: bool = False


@dataclass(frozen=True)
class Times:
    """Of a stretch. h: for which forces act (0 in an impact); left: in which gaps may close, of the whole step.

    unit: h, or 1 in an impact: gradients with respect to velocities come multiplied by it, as those of accelerations.
    """

    h: Scalar
    left: Scalar
    unit: Scalar


FORCE = 6  # of every slot: force (N, on the first shape of its pair) and the point it acts at (m), in world axes


class Constrained:
    """A step's constraints and what came of them; its adjoint reads it.

    after, move [nv]: v⁺ and v⁺ + p. caused: accelerations of the links times h, over links. corrected: 1 if p is not
    zero in some lane.
    """

    q: Any = None  # that rolled loops can read
    contacts: Contacts
    limits: Any  # which limits count: a list of their numbers
    limit_count: Any
    first_limit: Any  # their first row
    first_contact: Any
    problem: ContactProblem
    correction: Any  # π [n]
    pushes: Any  # [n] 1 where it is not zero
    corrected: Any
    after: Any
    move: Any
    caused: Any = None
    pseudo: Any  # p [nv], where positions are corrected
    pseudo_caused: Any = None  # over links
    rebound: Any  # what part of restitution there is
    residual: Scalar
    touching: Scalar  # contacts that press
    depth: Scalar  # the deepest penetration, m
    modes: Scalar  # a number that changes when a row changes its mode


def constrain(
    tree: Tree, contact_model: RigidContact, dynamics: Dynamics, q: Any, v: Any, free: Any, times: Times, impulses: WarmStart,
    adjoint: bool, impacts: Impacts | None = None, contacts: Contacts | None = None, after: Any = None,
) -> Constrained:  # fmt: skip
    """From v* (`free`) to v⁺. `v`: before the step. `impulses`: those of the step before, and then of this one.

    `adjoint`: what only the adjoint reads is wanted, too. `after`: v⁺, NaN where it is not known, or None. `impacts`:
    decide which contacts take part, from what touches at the beginning of the stretch: `contacts`, which are followed
    to here, or if that is here, what is found.
    """
    constraints, solver, nv = tree.constraints, contact_model.solver, tree.nv
    outcome = Constrained()
    if not is_constant(constraints.nsingle, 0):
        outcome.q = memory(tree.nq)
        copy(tree.nq, q, outcome.q)
    velocities = [free, v] if constraints.bounces else [free]
    if impacts is not None:
        velocities = [impacts.ahead(free), v]
    if after is not None:
        velocities.append(after)
    width = pose_size(len(velocities))
    poses = link_poses(tree, q, *velocities, indexed=True)
    mobility = Mobility(tree, dynamics.frames, dynamics.factors, constraints.dim)
    problem = outcome.problem = ContactProblem(constraints, mobility, nv, impulses, after is not None)
    if after is not None:
        problem.known[0] = select(is_finite(after[0]), 1.0, 0.0)
    reach = times.left if impacts is None else times.h
    if contacts is None:
        outcome.contacts = find_contacts(constraints, poses, width, reach, impacts is not None)
    else:
        outcome.contacts = follow_contacts(constraints, contacts, poses, width)
    if impacts is not None:
        if contacts is None:
            impacts.classify(constraints, outcome.contacts, poses, width)
        impacts.apply(outcome.contacts)
    outcome.after, outcome.move, outcome.pseudo = memory(nv), memory(nv), memory(nv)
    copy(nv, free, outcome.after)
    builder = Builder(constraints, contact_model, problem, poses, width, outcome.after, times, impacts, after)
    outcome.limit_count = None
    if not is_constant(constraints.nsingle, 0):
        builder.equalities()
        builder.joint_frictions()
        outcome.first_limit = problem.count
        outcome.limits, outcome.limit_count = builder.limits(outcome.q)
        problem.fill_columns(1)
    outcome.first_contact = problem.count
    builder.contacts(outcome.contacts)
    problem.fill_columns(constraints.block, constraints.grounded)
    if adjoint:
        outcome.caused, outcome.pseudo_caused = (memory((tree.nlink + 1) * 6) for _ in range(2))
        zero((tree.nlink + 1) * 6, outcome.caused)
        outcome.pseudo_caused.put(0, sp.ZERO6)
    numbers = memory(4)
    zero(4, numbers)
    outcome.rebound = memory(1)
    outcome.rebound[0] = 1.0
    outcome.corrected = counters(1)
    outcome.correction, outcome.pushes = (memory(constraints.nimpulse + TILE) for _ in range(2))
    outcome.corrected[0] = 0
    going = True if impacts is None else impacts.going
    impulses.forget(going)
    for _ in when(problem.count > 0):
        rows = problem.count
        problem.close()
        problem.couple()
        if impacts is not None and constraints.bounces:
            numbers[0] = solve_without_gain(
                impacts, problem, solver, outcome.contacts, outcome.first_contact, builder.bounce, outcome.rebound
            )  # fmt: skip
        else:
            numbers[0] = solve(problem, solver)
        impulses.keep(rows, problem.place, problem.impulse, going)
        apply(tree, dynamics, q, problem, problem.impulse, outcome.after, outcome.caused)
        if not adjoint:
            numbers[1], numbers[2] = builder.touching(contacts or outcome.contacts, outcome.first_contact)
            numbers[3] = mode_number(problem, rows, constraints.bounces)
    copy(nv, outcome.after, outcome.move)
    for _ in when(problem.count > 0):
        worst = carry(1)
        worst[0] = 0.0
        for r in loop(problem.count):
            worst[0] = maximum(worst[0], absolute(problem.violation[r]))
        # Equations need it also where they are not violated: their derivative is not zero.
        for _ in when(any_lane(worst[0] > 0.0) | (constraints.head("nequality") > 0)):
            outcome.corrected[0] = 1
            correct(problem, solver.erp, times.left, outcome.correction, outcome.pushes)
            zero(nv, outcome.pseudo)
            apply(tree, dynamics, q, problem, outcome.correction, outcome.pseudo, outcome.pseudo_caused)
            for k in loop(nv):
                outcome.move[k] = outcome.move[k] + outcome.pseudo[k]
            if not adjoint:
                for r in loop(problem.count):
                    numbers[3] = numbers[3] + select(outcome.pushes[r] > 0.5, 3.0 * to_float(problem.place[r] + 1), 0.0)
    outcome.residual, outcome.touching, outcome.depth, outcome.modes = (numbers[k] for k in range(4))
    return outcome


def mode_number(problem: ContactProblem, rows: Any, bounces: bool) -> Scalar:
    """A sum over the rows: of their modes, and whether they bounce, times their place."""
    total = carry(1)
    total[0] = 0.0
    for r in loop(rows):
        low, high = bounds(problem, problem.impulse, r)
        x = problem.impulse[r]
        code = select(x <= low + ABOUT * absolute(low), 0.0, select(x >= high - ABOUT * high, 2.0, 1.0))
        if bounces:
            code = code + 6.0 * problem.hits[r]
        total[0] = total[0] + code * to_float(problem.place[r] + 1)
    return total[0]


def apply(
    tree: Tree, dynamics: Dynamics, q: Any, problem: ContactProblem, impulse: Any, velocity: Any, caused: Any
) -> None:
    """velocity += A⁻¹ Jᵀ λ, and the motions of the links that this is (over links) to `caused`, if that is not None."""
    reduced, change = memory(tree.nv), workspace(tree.nv)
    problem.effect(impulse, reduced)
    z = local(tree.nv, reduced)
    motions = expand(tree, dynamics.frames, dynamics.factors, z)
    turn(tree, q, z, change, back=True)
    for k in loop(tree.nv):
        velocity[k] = velocity[k] + change[k]
    if caused is not None:
        for i in tree.links():
            caused.put(i + 1, motions.get(i + 1, 6))


def add_forces(constraints: Constraints, outcome: Constrained, share: Scalar, going: Any, forces: Any) -> None:
    """Add λ `share` of every row, where the stretch counts (mask): forces of contacts and where they act, FORCE numbers
    for every slot, then those of all single rows."""
    problem, block = outcome.problem, constraints.block
    for c in loop(outcome.contacts.count[0]):
        slot, first = outcome.contacts.slots[c], outcome.first_contact + c * block
        touch, on = outcome.contacts.touch(slot)
        surface = constraints.pair_surface(outcome.contacts.pairs[c])
        rows = contact_rows(touch, surface, constraints.dim, constraints.directions)
        before = forces.get(slot, FORCE)
        force = before[:3]
        for k, row in enumerate(rows):
            force = sp.add(force, sp.scale(share * problem.impulse[first + k], row.force))
        after = (*force, *rows[0].point)
        forces.put(slot, [select(on & going, x, y) for x, y in zip(after, before, strict=True)])
    if outcome.limit_count is not None:
        singles = forces.at(constraints.nslot * FORCE)
        for r in loop(outcome.first_contact):
            place = problem.place[r]
            singles[place] = singles[place] + select(going, share * problem.impulse[r], 0.0)


def power_of_forces(constraints: Constraints, outcome: Constrained, forces_bar: Any) -> Scalar:
    """Σ λ · forces_bar over all rows: how the loss depends on the share that `add_forces` takes."""
    problem, total = outcome.problem, carry(1)
    total[0] = 0.0
    for c in loop(outcome.contacts.count[0]):
        slot, first = outcome.contacts.slots[c], outcome.first_contact + c * constraints.block
        touch, on = outcome.contacts.touch(slot)
        bar = forces_bar.get(slot, FORCE)[:3]
        for k, row in enumerate(contact_rows(touch, 0.0, constraints.dim, constraints.directions)):
            total[0] = total[0] + select(on, problem.impulse[first + k] * sp.dot(bar, row.force), 0.0)
    if outcome.limit_count is not None:
        for r in loop(outcome.first_contact):
            bar = forces_bar.at(constraints.nslot * FORCE)[problem.place[r]]
            total[0] = total[0] + problem.impulse[r] * bar
    return total[0]


# ------------------------------------------------------------------------------------------ rows


def gap_bias(gap: Scalar, slop: Scalar, left: Scalar) -> Scalar:
    """What is added to the speed at which a gap opens: gap / left, so that it may just close.

    A penetration up to `slop` is treated alike: what rests lies at a gap of about zero, and must not lie on a kink.
    What is deeper is left to the correction of positions (`violation`).
    """
    return maximum(gap, -slop) / left


def violation(gap: Scalar, slop: Scalar) -> Scalar:
    return minimum(gap + slop, 0.0)


def contact_bias(gap: Scalar, slop: Scalar, restitution: Scalar, before: Scalar, hits: Any, left: Scalar) -> Scalar:
    """`gap_bias`; where a contact bounces (mask `hits`) e v⁻, with v⁻ = `before`, the normal speed before the step."""
    return select(hits, restitution * before, gap_bias(gap, slop, left))


class Builder:
    """Puts the rows of all constraints into a system; poses: over links, with the twists of the free motion."""

    def __init__(
        self, constraints: Constraints, contact_model: RigidContact, problem: ContactProblem, poses: Any, width: int, free: Any,
        times: Times, impacts: Impacts | None, after: Any,
    ) -> None:  # fmt: skip
        """after: v⁺, if it is known; then the last of the twists is its."""
        self.after = after
        self.constraints, self.contact_model, self.problem, self.times = constraints, contact_model, problem, times
        self.poses, self.width, self.free, self.impacts = poses, width, free, impacts
        self.bounce = memory(constraints.nslot)  # e v⁻ of every contact that hits
        self.regularisation: Scalar = contact_model.regularisation
        if impacts is not None:
            self.regularisation = impacts.regularisation(contact_model.regularisation)

    def _add(self, support: Any, rows: list[Row], on: list[Any], place: Any, **numbers: Any) -> None:
        self.problem.add(self.poses, self.width, support, rows, on, place, **numbers)

    def _speed(self, row: Row, support: Any, velocity: int = 0) -> Scalar:
        """J v, for the velocities that the poses have twists of."""
        a, b = (pose_of(self.poses, link, self.width, self.constraints.dim) for link in (support.a, support.b))

        def speed(k: int) -> Scalar:
            at = 12 + 6 * k
            return row_speed(row, a, a[at : at + 6]) - row_speed(row, b, b[at : at + 6])

        if self.impacts is not None and velocity == 0:  # in an impact nothing moves freely
            return select(self.impacts.hitting, speed(1), speed(0))
        return speed(velocity)

    def _speed_after(self, row: Row, support: Any) -> Scalar:
        """J v⁺"""
        return 0.0 if self.after is None else self._speed(row, support, (self.width - 12) // 6 - 1)

    def _extra(self, support: Any, angular: Any = 0, softness: Scalar = 0.0) -> Scalar:
        scale = self.constraints.inverse_mass(support, angular)
        return self.regularisation * scale + (softness + self.contact_model.solver.cfm)

    def equalities(self) -> None:
        constraints = self.constraints
        for i in loop(constraints.head("nequality")):
            kind, support = constraints.equality(i)
            record = constraints.equality_record(i)
            for each in EqualityKind:
                for _ in when(kind == int(each)):
                    places = [self.poses.get(link, self.width)[:12] for link in (support.a, support.b)]
                    row, error = equality_row(each, record, *places)
                    self._add(
                        support, [row], [True], i, speeds=[self._speed(row, support)], after=[0.0],
                        extra=[self._extra(support, int(each == EqualityKind.ABOUT))], low=[-INFINITE], high=[INFINITE],
                        mu=[0.0], violation=reachable(error),
                    )  # fmt: skip

    def _joint(self, link: Any, kind: Any, support: Any) -> tuple[Row, Scalar]:
        """Row and regularisation of a joint's own coordinate."""
        row = joint_row(kind, self.constraints.joint_link(link), self.poses.get(link, self.width)[:12])
        return row, self._extra(support, is_angular(kind))

    def _joint_speeds(self, support: Any) -> tuple[Scalar, Scalar]:
        """The velocity of a joint, which is the first on the way from its link, of the free motion; and of v⁺."""
        k = self.constraints.ints[support.way_a]
        return self.free[k], 0.0 if self.after is None else self.after[k]

    def joint_frictions(self) -> None:
        constraints = self.constraints
        for i in loop(constraints.head("nfriction")):
            link, _, kind, support = constraints.joint("friction", i)
            row, extra = self._joint(link, kind, support)
            most, (speed, after) = self.times.h * constraints.joint_friction(i), self._joint_speeds(support)
            self._add(
                support, [row], [most > 0.0], constraints.head("nequality") + i, speeds=[speed], after=[after],
                extra=[extra], low=[-most], high=[most], mu=[0.0], violation=0.0,
            )  # fmt: skip

    def limits(self, q: Any) -> tuple[Any, Any]:
        """Rows of the joints that are close to a limit in some lane; their numbers and count."""
        constraints = self.constraints
        numbers, count = counters(constraints.nsingle), counters(1)
        count[0] = 0
        place = constraints.head("nequality") + constraints.head("nfriction")
        for i in loop(constraints.head("nlimit")):
            link, at, kind, support = constraints.joint("limit", i)
            sign, gap = nearest_limit(constraints.limit_record(i), q[at])
            speed, after = (sign * x for x in self._joint_speeds(support))
            if self.impacts is None:
                on = gap < LIMIT_MARGIN + self.times.left * maximum(-speed, 0.0)
            else:  # in an impact, those that are reached
                reach = LIMIT_MARGIN + self.times.h * maximum(-speed, 0.0)
                on = gap < select(self.impacts.hitting, LIMIT_SLOP, reach)
            for _ in when(any_lane(on)):
                numbers[count[0]] = i
                count[0] = count[0] + 1
                (row, extra), bias = self._joint(link, kind, support), gap_bias(gap, LIMIT_SLOP, self.times.left)
                self._add(
                    support, [signed(row, sign)], [on], place + i, speeds=[speed + bias], after=[after + bias],
                    extra=[extra], low=[0.0], high=[INFINITE], mu=[0.0], violation=violation(gap, LIMIT_SLOP),
                )  # fmt: skip
        return numbers, count

    def contacts(self, contacts: Contacts) -> None:
        constraints, times = self.constraints, self.times
        m = constraints.directions
        for c in loop(contacts.count[0]):
            slot, p = contacts.slots[c], contacts.pairs[c]
            touch, on = contacts.touch(slot)
            a, b, support = constraints.pair(p)
            stuff = material(constraints.shape_record(a), constraints.shape_record(b), constraints.combine)
            rows = contact_rows(touch, constraints.pair_surface(p), constraints.dim, m)
            speeds = [self._speed(row, support) for row in rows]
            before, hits = 0.0, False
            if constraints.bounces and self.impacts is not None:
                before, hits = self._speed(rows[0], support, 1), self.impacts.role[slot] > 1.5
                self.bounce[c] = select(hits, stuff.restitution * before, 0.0)
            elif constraints.bounces:
                before = self._speed(rows[0], support, 1)
                meets = touch.gap + times.left * speeds[0] < 0.0
                hits = meets & (before < -self.contact_model.bounce_threshold) & (stuff.restitution > 0.0)
            slop = SLOP * constraints.pair_size(p)
            bias = contact_bias(touch.gap, slop, stuff.restitution, before, hits, times.left)
            mu = friction_share(constraints.dim, m) * stuff.friction
            rough = on & (mu > 0.0)
            extra = self._extra(support, softness=stuff.softness)
            after = [self._speed_after(row, support) for row in rows]
            self._add(
                support, rows, [on, *[rough] * m], constraints.nsingle + slot * constraints.block,
                speeds=[speeds[0] + bias, *speeds[1:]], after=[after[0] + bias, *after[1:]], extra=[extra] * (1 + m),
                low=[0.0] * (1 + m), high=[INFINITE, *[0.0] * m], mu=[0.0, *[mu] * m],
                violation=violation(touch.gap, slop), hits=hits,
            )  # fmt: skip

    def touching(self, contacts: Contacts, first: Any) -> tuple[Scalar, Scalar]:
        """How many contacts press, and the deepest penetration."""
        numbers = carry(2)
        numbers[0], numbers[1] = 0.0, 0.0
        for c in loop(contacts.count[0]):
            numbers[0] = numbers[0] + select(self.problem.impulse[first + c * self.constraints.block] > 0.0, 1.0, 0.0)
            gap = contacts.touches.get(contacts.slots[c], TOUCH)[0]
            numbers[1] = maximum(numbers[1], -gap)
        return numbers[0], numbers[1]


def nearest_limit(record: Vec, q: Scalar) -> tuple[Scalar, Scalar]:
    """1 if the lower limit is nearer, -1 if the upper is; and the distance to it."""
    below, above = q - record[layout.LOW], record[layout.HIGH] - q
    lower = below < above
    return select(lower, 1.0, -1.0), select(lower, below, above)


def signed(row: Row, sign: Scalar) -> Row:
    return Row(row.point, sp.scale(sign, row.couple), sp.scale(sign, row.force))
