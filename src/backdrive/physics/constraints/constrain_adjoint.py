"""The adjoint of the constrained part of a step (`contact`), by implicit differentiation at its solution.

With A (v⁺ - v*) = Jᵀ λ, and the rows of λ in their modes, B λ = c (`complementarity`): if the loss has the gradient w
with respect to v⁺, then  Bᵀ y = J A⁻¹ w,  and with the virtual motion  n = A⁻¹ (w - Jᵀ y)  its gradient with respect
to whatever J, the gaps and the materials depend on is that of

    λ · J n - y · (J v⁺ + bias + softness λ)          (rows at a bound: + y · bound instead)

for fixed λ, y, n, v⁺; that of M and τ follows from n as without constraints (`adjoint`). The correction of positions is
linear on its rows, and has an adjoint of the same form. Both are sums over rows, of functions of the poses and twists
of two links and of the constants of a constraint: `RowPower`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ...ir import (
    Masked,
    Scalar,
    absolute,
    any_lane,
    carry,
    is_constant,
    loop,
    memory,
    select,
    to_float,
    vjp,
    when,
    workspace,
)
from ...schema import layout
from ...schema.layout import EqualityKind
from ..geometry.collision import contacts_adjoint
from ..geometry.solids import CONTACT_POINT, ContactPoint
from ..math import spatial as sp
from ..math.arrays import accumulate, add_to, copy, split, zero
from ..math.linear import TILE, solve_lu_transposed
from ..math.spatial import Vec
from ..solvers.complementarity import diagonal, mode_matrix, modes, speeds_after
from ..tree.dynamics import Dynamics, expand, reduce
from ..tree.kinematics import turn
from ..tree.poses import link_poses, link_poses_adjoint, pose_of, pose_size
from ..tree.tree import Tree
from .constrain import (
    FORCE,
    LIMIT_SLOP,
    SLOP,
    Constrained,
    RigidContact,
    Times,
    contact_bias,
    gap_bias,
    nearest_limit,
    signed,
)
from .correction import correction_matrix, damping, reachable
from .delassus import INFINITE
from .rows import Row, contact_rows, equality_row, friction_share, joint_row, material, row_speed


class RowNumbers(NamedTuple):
    """λ; y if the row is free, else zero; ± y if it is at its upper or lower bound."""

    impulse: Scalar
    free: Scalar
    bound: Scalar


class ContactNumbers(NamedTuple):
    rows: list[RowNumbers]
    on: Any  # mask: the contact counts
    hits: Any  # mask: it bounces
    rebound: Scalar  # with so much of its restitution
    surface: Scalar
    slop: Scalar
    force_bar: Vec | None


def all_constants(constants_bar: Any) -> Any:
    """The whole array, which rolled loops can write, of one of which only some elements are wanted."""
    return constants_bar.array if isinstance(constants_bar, Masked) else constants_bar


class RowPower:
    """Adds the gradient of the sum over all rows (see above) to poses, coordinates and constants.

    poses: over links, with the twists of v⁺ and n (and v, if contacts bounce); bars: gradients with respect to them.
    which: 0 for the rows that correct positions, whose v⁺ is p; else 1.
    """

    def __init__(
        self, adjoint: ConstraintAdjoint, which: Any, poses: Any, bars: Any, q_bar: Any, constants_bar: Any
    ) -> None:
        self.adjoint, self.which, self.poses, self.bars, self.q_bar = adjoint, which, poses, bars, q_bar
        self.correcting = to_float(which) < 0.5
        self.constraints, self.outcome, self.times = adjoint.tree.constraints, adjoint.outcome, adjoint.times
        self.velocities = len(adjoint.velocities)
        self.width = pose_size(self.velocities)
        self.constants_bar = all_constants(constants_bar)
        self.scale = select(self.correcting, 1.0, 1.0 / self.times.unit)
        self.rate = adjoint.contact_model.solver.erp / self.times.left

    def add_all(self) -> None:
        if self.outcome.limit_count is not None:  # there are single rows
            self.equalities()
            for _ in when(self.which == 1):
                self.joint_frictions()
            self.limits()
        self.contacts()

    # ---------------------------------------------------------------------------------------- one row

    def _numbers(self, r: Any) -> RowNumbers:
        adjoint, outcome, correcting = self.adjoint, self.outcome, self.correcting
        y, mode, pushes = adjoint.multiplier[r], adjoint.mode[r], outcome.pushes[r] > 0.5
        return RowNumbers(
            select(correcting, outcome.correction[r], outcome.problem.impulse[r]),
            select(correcting, select(pushes, adjoint.correction_multiplier[r], 0.0), select(mode == 0.0, y, 0.0)),
            select(correcting, 0.0, mode * y),
        )

    def _power(self, numbers: RowNumbers, row: Row, a: Vec, b: Vec) -> tuple[Scalar, list[Scalar]]:
        """λ · J n - y · J v⁺ of a row; and its powers J v⁺, J n (and J v)."""
        at = [12 + 6 * k for k in range(self.velocities)]
        powers = [row_speed(row, a, a[k : k + 6]) - row_speed(row, b, b[k : k + 6]) for k in at]
        return numbers.impulse * powers[1] - numbers.free * powers[0], powers

    def _differentiate(self, function: Any, support: Any, *constants: tuple[Any, Vec]) -> list[Vec]:
        """Differentiate function(pose a, pose b, *records), and add to the bars of the poses, and of the records that
        have a place in the constants; all records' gradients are returned."""
        a, b = (pose_of(self.poses, link, self.width, self.constraints.dim) for link in (support.a, support.b))
        sizes = [self.width, self.width, *(len(record) for _, record in constants)]
        inputs = (*a, *b, *(x for _, record in constants for x in record))
        _, gradient = vjp(lambda *x: [function(*split(x, *sizes))], inputs, [self.scale])
        a_bar, b_bar, *records = split(gradient, *sizes)
        accumulate(self.bars.at(support.a * self.width), a_bar)
        if not is_constant(support.b, 0):
            accumulate(self.bars.at(support.b * self.width), b_bar)
        for (place, _), bar in zip(constants, records, strict=True):
            if place is not None and self.constants_bar is not None:
                accumulate(self.constants_bar.at(place), bar)
        return records

    # ---------------------------------------------------------------------------------------- all rows

    def equalities(self) -> None:
        constraints = self.constraints
        for i in loop(constraints.head("nequality")):
            kind, support = constraints.equality(i)
            numbers, record = self._numbers(i), constraints.equality_record(i)

            def power(each: EqualityKind, n: RowNumbers, scale: Scalar, a: Vec, b: Vec, record: Vec) -> Scalar:
                row, error = equality_row(each, record, a[:12], b[:12])
                total, _ = self._power(n, row, a, b)
                violation = reachable(error)
                bias = violation / self.times.left + scale * damping(violation) * n.impulse
                return total - n.free * select(self.correcting, bias, 0.0)

            for each in EqualityKind:
                for _ in when(kind == int(each)):
                    place = constraints.head("equality_constants") + i * layout.EQUALITY
                    scale = constraints.inverse_mass(support, int(each == EqualityKind.ABOUT))
                    self._differentiate(partial(power, each, numbers, scale), support, (place, record))

    def joint_frictions(self) -> None:
        constraints = self.constraints
        for i in loop(constraints.head("nfriction")):
            numbers = self._numbers(constraints.head("nequality") + i)
            link, _, kind, support = constraints.joint("friction", i)

            def power(kind: Any, numbers: RowNumbers, a: Vec, b: Vec, record: Vec) -> Scalar:
                return self._power(numbers, joint_row(kind, record, a[:12]), a, b)[0]

            place = (link - 1) * layout.LINK
            self._differentiate(partial(power, kind, numbers), support, (place, constraints.joint_link(link)))
            if self.constants_bar is not None:  # λ = ± h τ
                at_bound = self.scale * self.times.h * numbers.bound
                accumulate(self.constants_bar.at(constraints.head("friction_constants") + i), (at_bound,))

    def limits(self) -> None:
        constraints, outcome, left = self.constraints, self.outcome, self.times.left
        for k in loop(outcome.limit_count[0]):
            i, numbers = outcome.limits[k], self._numbers(outcome.first_limit + k)
            link, at, kind, support = constraints.joint("limit", i)

            def power(kind: Any, numbers: RowNumbers, a: Vec, b: Vec, link: Vec, record: Vec, q: Vec) -> Scalar:
                sign, gap = nearest_limit(record, q[0])
                total, _ = self._power(numbers, signed(joint_row(kind, link, a[:12]), sign), a, b)
                rate = select(self.correcting, self.rate * gap, gap_bias(gap, LIMIT_SLOP, left))
                return total - select(numbers.free == 0.0, 0.0, numbers.free * rate)

            own = ((link - 1) * layout.LINK, constraints.joint_link(link))
            limit = (constraints.head("limit_constants") + i * layout.LIMIT, constraints.limit_record(i))
            own_q = (None, (outcome.q[at],))
            *_, q_bar = self._differentiate(partial(power, kind, numbers), support, own, limit, own_q)
            accumulate(self.q_bar.at(at), q_bar)

    def contacts(self) -> None:
        constraints, contacts = self.constraints, self.outcome.contacts
        for c in loop(contacts.count[0]):
            slot, p = contacts.slots[c], contacts.pairs[c]
            first = self.outcome.first_contact + c * constraints.block
            point, on = contacts.point(slot)
            contact = ContactNumbers(
                [self._numbers(first + k) for k in range(constraints.block)],
                on,
                self.outcome.problem.hits[first] > 0.5 if constraints.bounces else False,
                self.outcome.rebound[0],
                constraints.pair_surface(p),
                SLOP * constraints.pair_size(p),
                self._force_bar(slot),
            )
            *shapes, support = constraints.pair(p)
            start = constraints.head("shape_constants")
            records = [(start + i * layout.SHAPE, constraints.shape_record(i)) for i in shapes]

            def power(contact: ContactNumbers, a: Vec, b: Vec, record_a: Vec, record_b: Vec, x: Vec) -> Scalar:
                return select(contact.on, self._contact(ContactPoint.of(x), contact, record_a, record_b, a, b), 0.0)

            found = (None, point.numbers)
            *_, point_bar = self._differentiate(partial(power, contact), support, *records, found)
            accumulate(self.adjoint.point_bars.at(slot * CONTACT_POINT), point_bar)

    def _force_bar(self, slot: Any) -> Vec | None:
        """With respect to a contact's force and its point."""
        forces_bar = self.adjoint.forces_bar
        if forces_bar is None:
            return None
        return tuple(select(self.correcting, 0.0, x) for x in forces_bar.get(slot, FORCE))

    def _contact(
        self, point: ContactPoint, contact: ContactNumbers, record_a: Vec, record_b: Vec, a: Vec, b: Vec
    ) -> Scalar:
        constraints, m = self.constraints, self.constraints.directions
        rows = contact_rows(point, contact.surface, constraints.dim, m)
        normal, *tangents = contact.rows
        total, powers = self._power(normal, rows[0], a, b)
        stuff = material(record_a, record_b, constraints.combine)
        before = powers[2] if constraints.bounces else 0.0
        restitution = stuff.restitution * contact.rebound
        bias = contact_bias(point.gap, contact.slop, restitution, before, contact.hits, self.times.left)
        bias = select(self.correcting, self.rate * point.gap, bias)
        total = total - normal.free * (bias + stuff.softness * normal.impulse)
        for row, numbers in zip(rows[1:], tangents, strict=True):
            part, _ = self._power(numbers, row, a, b)
            total = total + part - numbers.free * (stuff.softness * numbers.impulse)
            # At a bound, λt = ± μ λn.
            total = total + numbers.bound * normal.impulse * (friction_share(constraints.dim, m) * stuff.friction)
        if contact.force_bar is not None:  # the force's direction, and its point
            for row, numbers in zip(rows, contact.rows, strict=True):
                total = total + numbers.impulse * sp.dot(contact.force_bar[:3], row.force)
            total = total + self.times.unit * sp.dot(contact.force_bar[3:], rows[0].point)
        return total


class ConstraintAdjoint:
    """The adjoint of `constrain`, around that of the dynamics (`adjoint.dynamics_adjoint`).

    Gradients with respect to v⁺ come multiplied by h, as those with respect to v̇. mode, multiplier: of every row, and
    y; correction_multiplier: y of the rows that correct positions. velocities: arrays of 2 nv each: p, the virtual
    motion of the correction, and nothing; then v⁺, n, and (if contacts bounce) v.
    """

    def __init__(
        self, tree: Tree, contact_model: RigidContact, outcome: Constrained, times: Times, forces_bar: Any = None,
        apart: bool = False,
    ) -> None:  # fmt: skip
        """forces_bar: gradient with respect to λ / unit and its point, as `contact.add_forces` orders them, or None.

        apart: positions and velocities are differentiated apart, and several times: who calls has their matrices
        factored before (`contact.correction_matrix`, `find_modes`).
        """
        self.tree, self.contact_model, self.outcome, self.times = tree, contact_model, outcome, times
        self.forces_bar, self.apart = forces_bar, apart
        most = tree.constraints.nimpulse + TILE
        self.mode, self.multiplier, self.correction_multiplier = (memory(most) for _ in range(3))
        self.velocities = [memory(2 * tree.nv) for _ in range(3 if tree.constraints.bounces else 2)]
        self.point_bars = memory(tree.constraints.nslot * CONTACT_POINT)
        self.forget_points()

    def forget_points(self) -> None:
        """Begin with another gradient."""
        for c in loop(self.outcome.contacts.count[0]):
            self.point_bars.put(self.outcome.contacts.slots[c], (0.0,) * CONTACT_POINT)

    def find_modes(self) -> None:
        """The rows' modes at the solution, and their matrix, factored."""
        problem = self.outcome.problem
        most = problem.constraints.nimpulse + TILE
        mode = self.mode
        for _ in when(problem.count > 0):
            speed = memory(most)
            speeds_after(problem, problem.impulse, speed)
            modes(problem, problem.impulse, speed, mode)
            others, least = carry(1), self.contact_model.solver.tolerance / problem.unit[0]
            others[0] = 0.0
            for r in loop(problem.count):
                # What only touches, and carries no more than rounding, is free to part: always, not now and then.
                idle = (problem.high[r] >= INFINITE) & (problem.low[r] == 0.0) & (absolute(speed[r]) <= least)
                mode[r] = select(idle & (diagonal(problem, r) * problem.impulse[r] <= least), -1.0, mode[r])
                others[0] = others[0] + absolute(mode[r] - problem.factored[r])
            for _ in when(any_lane(others[0] > 0.0)):  # else the solver's last factors are those of the solution
                mode_matrix(problem, mode)

    def take_up(self, reduced: Any) -> None:
        """From the inward half of a solve with h w to that with h (w - Jᵀ y), in place (memory)."""
        problem = self.outcome.problem
        if not self.apart:
            self.find_modes()
        for _ in when(problem.count > 0):
            problem.speeds(reduced, self.multiplier)
            if self.forces_bar is not None:
                self._add_forces(self.multiplier)
            self._share(reduced, self.multiplier, lambda r: self.mode[r] == 0.0)

    def _add_forces(self, impulse_bar: Any) -> None:
        """Add h times the gradient with respect to the impulses: forces are λ / h, of a contact along its rows."""
        constraints, outcome = self.tree.constraints, self.outcome
        for c in loop(outcome.contacts.count[0]):
            slot, first = outcome.contacts.slots[c], outcome.first_contact + c * constraints.block
            point, _ = outcome.contacts.point(slot)
            force_bar = self.forces_bar.get(slot, FORCE)[:3]
            for k, row in enumerate(contact_rows(point, 0.0, constraints.dim, constraints.directions)):
                impulse_bar[first + k] = impulse_bar[first + k] + sp.dot(row.force, force_bar)
        if outcome.limit_count is None:
            return
        singles = self.forces_bar.at(constraints.nslot * FORCE)
        for r in loop(outcome.first_contact):
            impulse_bar[r] = impulse_bar[r] + singles[outcome.problem.place[r]]

    def _share(self, reduced: Any, multiplier: Any, free: Callable[[Any], Any]) -> None:
        """Bᵀ y = λ̄ with the factored B and λ̄ = J A⁻¹ w (`multiplier`); what the free rows take up is subtracted."""
        problem = self.outcome.problem
        solve_lu_transposed(problem.B, problem.count, multiplier)
        taken = memory(problem.constraints.nimpulse + TILE)
        for r in loop(problem.count):
            taken[r] = select(free(r), -multiplier[r], 0.0)
        problem.add_effect(taken, reduced)

    def correct(self, dynamics: Dynamics, q: Any, move_bar: Any) -> tuple[Any, Any]:
        """Of p = A⁻¹ Jᵀ π, from the gradient with respect to it: the virtual motion n [nv] and its twists (over links),
        of which -n · A p is left to differentiate; and what the rows say, which `add_rows` adds.

        To be called where positions are corrected (`outcome.corrected`).
        """
        tree, outcome, problem = self.tree, self.outcome, self.outcome.problem
        w, reduced, virtual = workspace(tree.nv), memory(tree.nv), memory(tree.nv)
        turn(tree, q, move_bar, w)
        reduce(tree, dynamics.frames, dynamics.factors, w, reduced)
        if not self.apart:
            correction_matrix(problem, outcome.pushes)
        problem.speeds(reduced, self.correction_multiplier)
        self._share(reduced, self.correction_multiplier, lambda r: outcome.pushes[r] > 0.5)
        motions = expand(tree, dynamics.frames, dynamics.factors, reduced)
        turn(tree, q, reduced, virtual, back=True)
        for source, target in zip((outcome.pseudo, virtual), self.velocities[:2], strict=True):
            copy(tree.nv, source, target)
        for rest in self.velocities[2:]:
            zero(tree.nv, rest)
        return virtual, motions

    def add_corrections(self, q: Any, q_bar: Any) -> None:
        """Add what the rows say that correct positions, by themselves: else `add_rows` does."""
        v_rows = memory(self.tree.nv)
        self._rows(q, 0, 0, q_bar, v_rows, None)

    def add_rows(self, q: Any, v: Any, virtual: Any, q_bar: Any, v_bar: Any, constants_bar: Any) -> None:
        """Add what the rows say; `virtual`: h n; v_bar: of the velocities before the step, which A (v⁺ - v) has, too:
        there w became w - Jᵀ y."""
        tree, outcome = self.tree, self.outcome
        q_rows, v_rows = memory(tree.nq), memory(tree.nv)
        zero(tree.nq, q_rows)
        zero(tree.nv, v_rows)
        for _ in when(outcome.problem.count > 0):
            for source, target in zip((outcome.after, virtual, v), self.velocities, strict=False):
                copy(tree.nv, source, target.at(tree.nv))
            first = 1 if self.apart else 1 - outcome.corrected[0]
            for which in loop(2, start=first):
                self._rows(q, which, 1, q_rows, v_rows, constants_bar)
        add_to(tree.nq, q_rows, q_bar)
        add_to(tree.nv, v_rows, v_bar)

    def _rows(self, q: Any, which: Any, last: int, q_bar: Any, v_bar: Any, constants_bar: Any) -> None:
        """Of those that correct positions (which: 0), or those of velocities (1), whose v_bar this is.

        last: after which of them where the shapes touch is differentiated, for both.
        """
        tree, given = self.tree, [array.at(which * self.tree.nv) for array in self.velocities]
        width = pose_size(len(given))
        poses, bars = link_poses(tree, q, *given, indexed=True), memory((tree.nlink + 1) * width)
        zero((tree.nlink + 1) * width, bars)
        zero(tree.nv, v_bar)
        RowPower(self, which, poses, bars, q_bar, constants_bar).add_all()
        for _ in when(which == last):
            constants = all_constants(constants_bar)
            contacts_adjoint(tree.constraints, self.outcome.contacts, poses, width, self.point_bars, bars, constants)
        velocity_bars = [v_bar, None, v_bar][: len(given)]
        link_poses_adjoint(tree, poses, bars, q, given, q_bar, velocity_bars, constants_bar)
