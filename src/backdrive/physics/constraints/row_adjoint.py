"""The cotangents of all constraint rows' poses, coordinates and constants, at a solution of the contact problem.

They are the gradient, for fixed λ, y, n and v⁺ (see `constrain_adjoint`), of a sum over rows,

    λ · J n - y · (J v⁺ + bias + softness λ)          (rows at a bound: + y · bound instead),

(and where the energy guard acts, with other multipliers of J n and J v⁺, see there),

each of which depends on the poses and twists of two links and on the constants of one constraint.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ...ir import Index, Mask, Scalar, ScalarArray, is_constant, loop, select, to_float, vjp, when
from ...schema import layout
from ...schema.layout import EqualityKind
from ..geometry.solids import CONTACT_POINT, ContactPoint
from ..math import spatial as sp
from ..math.arrays import accumulate, all_elements, split
from ..math.spatial import Vec
from ..solvers.active_set import FREE
from ..tree.poses import Pose, pose_of, pose_size
from .assemble import nearest_limit, signed
from .constraints import Support
from .contact_terms import LIMIT_SLOP, SLOP, contact_bias, gap_bias
from .correction import damping, reachable
from .energy_guard import kept_bias
from .forces import FORCE
from .rows import NO_SLIP, Row, Slip, contact_rows, equality_row, friction_share, joint_row, material, row_speed

if TYPE_CHECKING:
    from .constrain_adjoint import ConstraintAdjoint

CORRECTION, VELOCITY = 0, 1  # which rows: those that correct positions, whose v⁺ is p; or those of velocities


class RowMultipliers(NamedTuple):
    """λ; the multiplier y if the row is free, else zero; that of J v⁺, which is the same without the energy guard; ± y
    if the row is at its upper or lower bound, else zero."""

    impulse: Scalar
    free: Scalar
    pull: Scalar
    bound: Scalar


class LimitMultipliers(NamedTuple):
    """Of a joint limit: the kind of its joint, its row's multipliers, and the part that the energy guard kept of its
    bias."""

    kind: Index
    numbers: RowMultipliers
    kept: Scalar


class ContactMultipliers(NamedTuple):
    """Of a contact: its rows' multipliers; whether it counts, and whether it bounces (masks); the part that the
    energy guard kept of its bias; its pair's surface (`contact_rows`); its slop (m); the cotangents of its force and of
    the point at which it acts, or None; the inverse mass that its compliance is relative to."""

    rows: list[RowMultipliers]
    on: Mask
    hits: Mask
    kept: Scalar
    surface: Scalar
    slop: Scalar
    force_bar: Vec | None
    inverse_mass: Scalar


class LinkCotangents(NamedTuple):
    """poses: over links, with the twists of v⁺ and n (and of v, if contacts bounce). poses_bar: their cotangents. q_bar
    [nq]; constants_bar: None if they are not wanted."""

    poses: ScalarArray
    poses_bar: ScalarArray
    q_bar: ScalarArray
    constants_bar: ScalarArray | None


class RowAdjoint:
    """Adds the gradient of the sum over all rows (see above) to the cotangents of poses, coordinates and constants.

    which: CORRECTION or VELOCITY (an index of a rolled loop).
    """

    def __init__(self, adjoint: ConstraintAdjoint, which: Index, links: LinkCotangents) -> None:
        self.adjoint, self.which, self.links = adjoint, which, links
        self.correcting = to_float(which) < 0.5
        self.constraints, self.outcome, self.times = adjoint.tree.constraints, adjoint.outcome, adjoint.times
        self.velocities = len(adjoint.velocities)
        self.width = pose_size(self.velocities)
        self.constants_bar = all_elements(links.constants_bar)
        self.scale = select(self.correcting, 1.0, 1.0 / self.times.unit)
        self.rate = adjoint.contact_model.solver.erp / self.times.left

    def add_all(self) -> None:
        if self.outcome.limits is not None:  # there are single rows
            self.equalities()
            for _ in when(self.which == VELOCITY):
                self.joint_frictions()
            self.limits()
        self.contacts()

    # ---------------------------------------------------------------------------------------- one row

    def _multipliers(self, r: Index) -> RowMultipliers:
        adjoint, outcome, correcting = self.adjoint, self.outcome, self.correcting
        y, mode, pushes = adjoint.multiplier[r], adjoint.mode[r], outcome.pushes[r] > 0.5
        correction = select(pushes, adjoint.correction_multiplier[r], 0.0)
        return RowMultipliers(
            select(correcting, outcome.correction[r], outcome.problem.impulse[r]),
            select(correcting, correction, select(mode == FREE, y, 0.0)),
            select(correcting, correction, adjoint.pull(r)),
            select(correcting, 0.0, mode * y),
        )

    def _kept(self, r: Index) -> Scalar:
        """The part that the energy guard kept of the bias of row r."""
        return self.outcome.guard.kept[self.outcome.problem.tree[r]]

    def _power(self, numbers: RowMultipliers, row: Row, a: Pose, b: Pose) -> tuple[Scalar, list[Scalar]]:
        """λ · J n - y · J v⁺ of a row; and its speeds J v⁺, J n (and J v)."""
        powers = [row_speed(row, a, k) - row_speed(row, b, k) for k in range(self.velocities)]
        return numbers.impulse * powers[1] - numbers.pull * powers[0], powers

    def _differentiate(
        self, function: Callable[..., Scalar], support: Support, *constants: tuple[Index | None, Vec]
    ) -> list[Vec]:
        """Differentiate function(pose a, pose b, *records), and add to the cotangents of the poses, and of the records
        that have a place in the constants; the cotangents of all records are returned."""
        poses, poses_bar = self.links.poses, self.links.poses_bar
        a, b = (pose_of(poses, link, self.width, self.constraints.dim) for link in (support.a, support.b))
        sizes = [self.width, self.width, *(len(record) for _, record in constants)]
        inputs = (*a, *b, *(x for _, record in constants for x in record))

        def differentiated(a: Vec, b: Vec, *records: Vec) -> Scalar:
            return function(Pose.of(a), Pose.of(b), *records)

        _, gradient = vjp(lambda *x: [differentiated(*split(x, *sizes))], inputs, [self.scale])
        a_bar, b_bar, *records = split(gradient, *sizes)
        accumulate(poses_bar.at(support.a * self.width), a_bar)
        if not is_constant(support.b, 0):
            accumulate(poses_bar.at(support.b * self.width), b_bar)
        for (place, _), bar in zip(constants, records, strict=True):
            if place is not None and self.constants_bar is not None:
                accumulate(self.constants_bar.at(place), bar)
        return records

    # ---------------------------------------------------------------------------------------- all rows

    def equalities(self) -> None:
        constraints = self.constraints
        for i in loop(constraints.head("nequality")):
            kind, support = constraints.equality(i)
            numbers, record = self._multipliers(i), constraints.equality_record(i)

            def power(each: EqualityKind, n: RowMultipliers, scale: Scalar, a: Pose, b: Pose, record: Vec) -> Scalar:
                row, error = equality_row(each, record, a, b)
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
            numbers = self._multipliers(constraints.head("nequality") + i)
            link, _, kind, support = constraints.joint("friction", i)

            def power(kind: Index, numbers: RowMultipliers, a: Pose, b: Pose, record: Vec) -> Scalar:
                return self._power(numbers, joint_row(kind, record, a), a, b)[0]

            place = (link - 1) * layout.LINK
            self._differentiate(partial(power, kind, numbers), support, (place, constraints.joint_link(link)))
            if self.constants_bar is not None:  # at a bound, λ = ± h τ
                at_bound = self.scale * self.times.h * numbers.bound
                accumulate(self.constants_bar.at(constraints.head("friction_constants") + i), (at_bound,))

    def limits(self) -> None:
        constraints, limits, q, left = self.constraints, self.outcome.limits, self.outcome.q, self.times.left
        assert limits is not None
        assert q is not None
        for k in loop(limits.count[0]):
            i, numbers = limits.numbers[k], self._multipliers(limits.first_row + k)
            kept = self._kept(limits.first_row + k)
            link, at, kind, support = constraints.joint("limit", i)

            def power(limit: LimitMultipliers, a: Pose, b: Pose, link: Vec, record: Vec, q: Vec) -> Scalar:
                kind, numbers, kept = limit
                sign, gap = nearest_limit(record, q[0])
                total, _ = self._power(numbers, signed(joint_row(kind, link, a), sign), a, b)
                bias = kept_bias(gap_bias(gap, LIMIT_SLOP, left), kept)
                rate = select(self.correcting, self.rate * gap, bias)
                return total - select(numbers.free == 0.0, 0.0, numbers.free * rate)

            own = ((link - 1) * layout.LINK, constraints.joint_link(link))
            limit = (constraints.head("limit_constants") + i * layout.LIMIT, constraints.limit_record(i))
            own_q = (None, (q[at],))
            of_row = partial(power, LimitMultipliers(kind, numbers, kept))
            *_, q_bar = self._differentiate(of_row, support, own, limit, own_q)
            accumulate(self.links.q_bar.at(at), q_bar)

    def contacts(self) -> None:
        constraints, contacts = self.constraints, self.outcome.contacts
        for c in loop(contacts.count[0]):
            slot, p = contacts.slots[c], contacts.pairs[c]
            first = self.outcome.first_contact + c * constraints.block
            point, on = contacts.point(slot)
            contact = ContactMultipliers(
                [self._multipliers(first + k) for k in range(constraints.block)],
                on,
                self.outcome.problem.bounces[first] > 0.5 if constraints.bounces else False,
                self._kept(first),
                constraints.pair_surface(p),
                SLOP * constraints.pair_size(p),
                self._force_bar(slot),
                constraints.inverse_mass(constraints.pair(p)[2]),
            )
            *shapes, support = constraints.pair(p)
            start = constraints.head("shape_constants")
            records = [(start + i * layout.SHAPE, constraints.shape_record(i)) for i in shapes]

            def power(contact: ContactMultipliers, a: Pose, b: Pose, *given: Vec) -> Scalar:
                return select(contact.on, self._contact(contact, a, b, *given), 0.0)

            found, slip = (None, point.numbers), (None, self.outcome.slip(c))
            *_, point_bar, slip_bar = self._differentiate(partial(power, contact), support, *records, found, slip)
            accumulate(self.adjoint.point_bars.at(slot * CONTACT_POINT), point_bar)
            if self.adjoint.slips is not None:
                self.adjoint.slips.add(c, self._slides(first, slip[1]), slip_bar)

    def _slides(self, first: Index, slip: Vec) -> Mask:
        """Whether a contact in 3D slides, before or after the step; first: its first row; slip: its `Slip`."""
        slides: Mask = False
        for k in range(1, self.constraints.block):
            at_bound = self.adjoint.mode[first + k] != FREE
            slides = slides | (at_bound & (self.outcome.problem.impulse[first + k] != 0.0))
        slides = (slides | (slip[-1] != 0.0)) & ~self.correcting
        return slides if self.outcome.cone is None else slides & (self.outcome.cone.round[0] < 0.5)

    def _force_bar(self, slot: Index) -> Vec | None:
        """The cotangents of a contact's force and of its point."""
        forces_bar = self.adjoint.forces_bar
        if forces_bar is None:
            return None
        return tuple(select(self.correcting, 0.0, x) for x in forces_bar.get(slot, FORCE))

    def _contact(
        self,
        contact: ContactMultipliers,
        a: Pose,
        b: Pose,
        record_a: Vec,
        record_b: Vec,
        numbers_of_point: Vec,
        slip: Vec,
    ) -> Scalar:
        constraints, m, point = self.constraints, self.constraints.directions, ContactPoint.of(numbers_of_point)
        slides = Slip.of(slip) if slip else NO_SLIP
        rows, yielding = contact_rows(point, contact.surface, slides, constraints.dim, m)
        normal, *tangents = contact.rows
        total, powers = self._power(normal, rows[0], a, b)
        surface = material(record_a, record_b, constraints.combine)
        before = powers[2] if constraints.bounces else 0.0
        bias = contact_bias(point.gap, contact.slop, surface.restitution, before, contact.hits, self.times.left)
        bias = select(self.correcting, self.rate * point.gap, kept_bias(bias, contact.kept))
        total = total - normal.free * (bias + surface.softness * normal.impulse)
        for row, give, numbers in zip(rows[1:], yielding[1:], tangents, strict=True):
            part, _ = self._power(numbers, row, a, b)
            compliance = surface.softness + contact.inverse_mass * give
            total = total + part - numbers.free * (compliance * numbers.impulse)
            # At a bound, λt = ± μ λn.
            total = total + numbers.bound * normal.impulse * (friction_share(constraints.dim, m) * surface.friction)
        if contact.force_bar is not None:  # the direction of the force, and its point
            for row, numbers in zip(rows, contact.rows, strict=True):
                total = total + numbers.impulse * sp.dot(contact.force_bar[:3], row.force)
            total = total + self.times.unit * sp.dot(contact.force_bar[3:], rows[0].point)
        return total
