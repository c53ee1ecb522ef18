"""The adjoint of accelerations with soft constraints, by implicit differentiation of the convex problem.

At the solution  F = M a + c(q, v) - τ(q, v, u) - Jᵀ f(J a - a_ref) = 0.  With  H λ = ā,  H = M + Jᵀ C J the Hessian,
the gradient with respect to anything else is that of -λ · F for fixed λ and a: that of the smooth dynamics
(`dynamics_adjoint`), and that of the power f · J λ of the constraint forces in the virtual motion λ, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from ...ir import Index, Mask, Scalar, ScalarArray, any_lane, is_constant, loop, memory, select, vjp, when, workspace
from ...schema import layout
from ...schema.layout import EqualityKind
from ..constraints.rows import row_speed
from ..geometry.mujoco import GEOM_CONTACT
from ..math import spatial as sp
from ..math.arrays import accumulate, add_to, all_elements, copy, split, zero
from ..math.spatial import SPATIAL, Vec
from ..state import StateArrays
from ..tree.dynamics_adjoint import Cotangents, DynamicsSeeds, dynamics_adjoint
from ..tree.poses import Pose, link_poses, link_poses_adjoint, pose_of, pose_size
from ..tree.tree import Tree
from .acceleration import Acceleration, SoftConstrained
from .assemble import contact_side
from .combinations import CombinationRows
from .contacts import PoseCotangents, contacts_adjoint, pair_reach
from .drift import DRIFTING, Drifting, drifting_links, drifting_links_adjoint
from .medium import medium_adjoint
from .ropes import RopeRows
from .rows import ContactSide, contact_rows, equality_law, equality_row, friction_row, limit_gaps, limit_row
from .settings import SoftSettings
from .tendons import tendon_forces_adjoint

GIVEN, FOUND, VIRTUAL = 0, 1, 2  # which twist of a pose: those of v, of a, and of λ


def accelerate_adjoint(
    tree: Tree, settings: SoftSettings, h: Scalar, now: Acceleration, a_bar: ScalarArray, cotangents: Cotangents
) -> None:
    """Add the vector-Jacobian product of `accelerate`; a_bar [nv]: the cotangent of a."""
    accelerated_adjoint(tree, settings, now, soft_terms(tree, settings, h, now), a_bar, cotangents)


def accelerated_adjoint(
    tree: Tree, settings: SoftSettings, now: Acceleration, terms: SoftTerms | None, a_bar: ScalarArray,
    cotangents: Cotangents,
) -> None:  # fmt: skip
    """As `accelerate_adjoint`, with the terms of the constraints, which are the same for all a_bar."""
    seeds, inside = DynamicsSeeds(a_bar, cotangents.v), cotangents
    if settings.medium is not None:
        wrenches_bar = workspace(tree.nlink * SPATIAL)
        zero(tree.nlink * SPATIAL, wrenches_bar)
        inside = replace(cotangents, wrenches=wrenches_bar)
    virtual = dynamics_adjoint(tree, now.inputs, now.dynamics, seeds, inside, terms)
    if settings.tendons:
        tendon_forces_adjoint(tree, settings, now.inputs, virtual, cotangents)
    if settings.medium is not None:
        medium_adjoint(tree, settings.medium, StateArrays(now.inputs.q, now.inputs.v), wrenches_bar, cotangents)
        if cotangents.wrenches is not None:
            add_to(tree.nlink * SPATIAL, wrenches_bar, cotangents.wrenches)


def soft_terms(tree: Tree, settings: SoftSettings, h: Scalar, now: Acceleration) -> SoftTerms | None:
    """None without constraints."""
    if now.constrained is None:
        return None
    return SoftTerms(tree, settings, h, now.constrained, now.dynamics.vdot)


class Motions(NamedTuple):
    """v, a and λ [nv], readable in rolled loops."""

    v: ScalarArray
    a: ScalarArray
    virtual: ScalarArray


class ForceCotangents(Protocol):
    """The cotangents of the forces themselves (`forces`), in place of the rates of their rows in a virtual motion."""

    def single(self, place: Index, /) -> Scalar:
        """Of a constraint that is no contact; place: its number among those that there can be."""

    def contact(self, slot: Index, /) -> Vec:
        """Of the force of a contact on its first shape, and of its point."""


class SoftTerms:
    """The terms that soft constraints add to the adjoint of the dynamics; a [nv]: the accelerations.

    The Hessian is factored here, once for all cotangents. given: instead of the power of the forces in a virtual
    motion, that of these is differentiated. a_bar [nv]: to which the gradient with respect to a is added; None if
    it is not wanted.
    """

    def __init__(
        self, tree: Tree, settings: SoftSettings, h: Scalar, constrained: SoftConstrained, a: ScalarArray,
        given: ForceCotangents | None = None, a_bar: ScalarArray | None = None,
    ) -> None:  # fmt: skip
        self.tree, self.settings, self.h, self.constrained, self.a = tree, settings, h, constrained, a
        self.given, self.a_bar = given, a_bar
        if given is None:
            for _ in when(constrained.newton.problem.count > 0):
                constrained.newton.factor()

    def _factor(self, place: Index) -> Scalar | None:
        return None if self.given is None else self.given.single(place)

    def take_up(self, reduced: ScalarArray) -> None:
        """From the inward half of a solve with M to that with H, in place."""
        newton = self.constrained.newton
        inverse = newton.problem.factors.inverse
        for _ in when(newton.problem.count > 0):
            for k in loop(self.tree.nv):
                newton.p[k] = reduced[k] / inverse[k]
            newton.problem.matrix.solve(newton.p)
            copy(self.tree.nv, newton.p, reduced)

    def add_rows(
        self, q: ScalarArray, v: ScalarArray, virtual: ScalarArray, q_bar: ScalarArray, v_bar: ScalarArray,
        constants_bar: ScalarArray | None,
    ) -> None:  # fmt: skip
        """Add the gradient of f · J λ; virtual: λ."""
        tree, nv = self.tree, self.tree.nv
        q_rows, v_rows, a_rows = memory(tree.nq), memory(nv), memory(nv)
        zero(tree.nq, q_rows)
        zero(nv, v_rows)
        zero(nv, a_rows)
        for _ in when(self.constrained.newton.problem.count > 0):
            motions = Motions(*(memory(nv) for _ in range(3)))
            for source, target in zip((v, self.a, virtual), motions, strict=True):
                copy(nv, source, target)
            constants = all_elements(constants_bar)
            self._joint_frictions(motions, v_rows, a_rows, constants)
            self._limits(motions, q_rows, v_rows, a_rows, constants)
            if self.settings.combination_rows and self.a_bar is None:
                combinations = CombinationRows(tree, self.settings, self.h)
                combinations.adjoint(self.constrained.q, motions, q_rows, v_rows, constants)
            if self.settings.ropes and self.a_bar is None:
                ropes = RopeRows(tree, self.settings, self.h)
                ropes.adjoint(q, motions, q_rows, v_rows, constants)
            contacts = self.constrained.contacts
            equations = tree.constraints.head("nequality") > 0
            for _ in when((contacts.count[0] > 0) | equations):
                width = pose_size(3)
                poses, bars = link_poses(tree, q, *motions, indexed=True), memory((tree.nlink + 1) * width)
                zero((tree.nlink + 1) * width, bars)
                links = PoseCotangents(poses, width, bars, constants)
                for _ in when(equations):
                    self._equalities(links, q, v, q_rows, v_rows)
                contact_bars = self._contacts(links)
                reach = partial(pair_reach, tree.constraints, self.settings, self.constrained.soft)
                contacts_adjoint(tree.constraints, reach, contacts, contact_bars, links)
                velocity_bars = [v_rows, None if self.a_bar is None else a_rows, None]
                link_poses_adjoint(tree, poses, bars, q, motions, q_rows, velocity_bars, constants_bar)
        add_to(tree.nq, q_rows, q_bar)
        add_to(nv, v_rows, v_bar)
        if self.a_bar is not None:
            add_to(nv, a_rows, self.a_bar)

    def _joint_frictions(
        self, motions: Motions, v_bar: ScalarArray, a_bar: ScalarArray, constants_bar: ScalarArray | None
    ) -> None:
        constraints, soft = self.tree.constraints, self.constrained.soft
        for i in loop(constraints.head("nfriction")):
            *_, support = constraints.joint("friction", i)
            dof, most = constraints.ints[support.way_a], constraints.joint_friction(i)

            factor = self._factor(constraints.head("nequality") + i)
            factor = motions.virtual[dof] if factor is None else factor

            def power(*x: Scalar, factor: Scalar = factor) -> list[Scalar]:
                record, (most, speed, a) = split(x, layout.SOFT_JOINT, 3)
                reference, law = friction_row(self.settings, self.h, record, most, speed)
                return [law.force(a - reference) * factor]

            inputs = (*soft.friction(i), most, motions.v[dof], motions.a[dof])
            _, gradient = vjp(power, inputs, [select(most > 0.0, 1.0, 0.0)])
            record_bar, most_bar, speed_bar, rate_bar = split(gradient, layout.SOFT_JOINT, 1, 1, 1)
            accumulate(v_bar.at(dof), speed_bar)
            if self.a_bar is not None:
                accumulate(a_bar.at(dof), rate_bar)
            if constants_bar is not None:
                accumulate(constants_bar.at(soft.friction_place(i)), record_bar)
                accumulate(constants_bar.at(constraints.head("friction_constants") + i), most_bar)

    def _limits(
        self, motions: Motions, q_bar: ScalarArray, v_bar: ScalarArray, a_bar: ScalarArray,
        constants_bar: ScalarArray | None,
    ) -> None:  # fmt: skip
        constraints, soft, q = self.tree.constraints, self.constrained.soft, self.constrained.q
        for i in loop(constraints.head("nlimit")):
            _, at, _, support = constraints.joint("limit", i)
            dof = constraints.ints[support.way_a]

            place = constraints.head("nequality") + constraints.head("nfriction") + i
            factor, rate = self._factor(place), motions.virtual[dof]
            factors = [rate, -rate] if factor is None else [factor, factor]

            def power(*x: Scalar, factors: Sequence[Scalar] = factors) -> list[Scalar]:
                record, limit, (q, speed, a) = split(x, layout.SOFT_JOINT, layout.LIMIT, 3)
                total: Scalar = 0.0
                for (sign, gap), factor in zip(limit_gaps(limit, q), factors, strict=True):
                    on = gap < record[layout.MARGIN]
                    reference, law = limit_row(self.settings, self.h, record, select(on, gap, 0.0), sign * speed)
                    total = total + select(on, law.force(sign * a - reference) * factor, 0.0)
                return [total]

            record, limit = soft.limit(i), constraints.limit_record(i)
            near: Mask = False
            for _, gap in limit_gaps(limit, q[at]):
                near = near | (gap < record[layout.MARGIN])
            for _ in when(any_lane(near)):
                _, gradient = vjp(power, (*record, *limit, q[at], motions.v[dof], motions.a[dof]), [1.0])
                record_bar, limit_bar, q_bar_i, speed_bar, rate_bar = split(
                    gradient, layout.SOFT_JOINT, layout.LIMIT, 1, 1, 1
                )
                if self.a_bar is not None:
                    accumulate(a_bar.at(dof), rate_bar)
                accumulate(q_bar.at(at), q_bar_i)
                accumulate(v_bar.at(dof), speed_bar)
                if constants_bar is not None:
                    accumulate(constants_bar.at(soft.limit_place(i)), record_bar)
                    accumulate(constants_bar.at(constraints.head("limit_constants") + i * layout.LIMIT), limit_bar)

    def _equalities(
        self, links: PoseCotangents, q: ScalarArray, v: ScalarArray, q_bar: ScalarArray, v_bar: ScalarArray
    ) -> None:
        constraints, soft, width = self.tree.constraints, self.constrained.soft, pose_size(3)
        sizes = (width, width, layout.EQUALITY, layout.SOFT_EQUALITY, DRIFTING, DRIFTING)
        tree, drifting = self.tree, drifting_links(self.tree, q, v)
        drifting_bar = memory((tree.nlink + 1) * DRIFTING)
        zero((tree.nlink + 1) * DRIFTING, drifting_bar)

        def power(kind: EqualityKind, weight: Scalar, factor: Scalar | None, *x: Scalar) -> list[Scalar]:
            pose_a, pose_b, record, own, moving_a, moving_b = split(x, *sizes)
            a, b = Pose.of(pose_a), Pose.of(pose_b)
            row = equality_row(kind, record, own, Drifting.of(moving_a), Drifting.of(moving_b))
            reference, law = equality_law(self.settings, self.h, own, row, weight, row.speed(a, b))
            factor = row.speed(a, b, VIRTUAL) if factor is None else factor
            return [law.force(row.speed(a, b, FOUND) - reference) * factor]

        for i in loop(constraints.head("nequality")):
            kind, support = constraints.equality(i)
            a, b = (pose_of(links.poses, link, width, constraints.dim) for link in (support.a, support.b))
            moving = [x for link in (support.a, support.b) for x in drifting.get(link, DRIFTING)]
            inputs = (*a, *b, *constraints.equality_record(i), *soft.equality(i), *moving)
            for each in (EqualityKind.ALONG, EqualityKind.ABOUT):
                for _ in when(kind == int(each)):
                    weight = soft.weight(support.a, support.b, int(each == EqualityKind.ABOUT))
                    _, gradient = vjp(partial(power, each, weight, self._factor(i)), inputs, [1.0])
                    a_bar, b_bar, record_bar, own_bar, *moving_bars = split(gradient, *sizes)
                    ends = zip((support.a, support.b), (a_bar, b_bar), moving_bars, strict=True)
                    for link, pose_bar, moving_bar in ends:
                        accumulate(links.poses_bar.at(link * width), pose_bar)
                        accumulate(drifting_bar.at(link * DRIFTING), moving_bar)
                    if links.constants_bar is not None:
                        place = constraints.head("equality_constants") + i * layout.EQUALITY
                        accumulate(links.constants_bar.at(place), record_bar)
                        accumulate(links.constants_bar.at(soft.equality_place(i)), own_bar)

        drifting_links_adjoint(tree, drifting, drifting_bar, q, v, q_bar, v_bar, links.constants_bar)

    def _contacts(self, links: PoseCotangents) -> ScalarArray:
        """The gradient of the contacts' power; returns the cotangents of their numbers, over slots."""
        constraints, contacts, soft = self.tree.constraints, self.constrained.contacts, self.constrained.soft
        contact_bars, width = memory(constraints.nslot * GEOM_CONTACT), pose_size(3)
        for k in loop(contacts.near_slot_count[0]):
            contact_bars.put(contacts.near_slots[k], (0.0,) * GEOM_CONTACT)
        own = layout.SOFT_PAIR if self.settings.explicit else 0
        sizes = (width, width, *(layout.SHAPE,) * 2, *(layout.SOFT_SHAPE,) * 2, GEOM_CONTACT, own)
        for c in loop(contacts.count[0]):
            slot, p = contacts.slots[c], contacts.pairs[c]
            contact, on = contacts.contact(slot)
            side, support = contact_side(constraints, self.settings, soft, p, contact.numbers)
            a, b = (pose_of(links.poses, link, width, constraints.dim) for link in (support.a, support.b))
            inputs = [x for part in (a, b, *side.shapes, *side.softs, side.contact, side.pair) for x in part]
            bar = None if self.given is None else self.given.contact(slot)
            _, gradient = vjp(partial(self._power, sizes, side, on, bar), inputs, [1.0])
            a_bar, b_bar, *shape_bars, soft_a_bar, soft_b_bar, contact_bar, pair_bar = split(gradient, *sizes)
            accumulate(links.poses_bar.at(support.a * width), a_bar)
            if not is_constant(support.b, 0):
                accumulate(links.poses_bar.at(support.b * width), b_bar)
            accumulate(contact_bars.at(slot * GEOM_CONTACT), contact_bar)
            if links.constants_bar is not None:
                self._add_records(links.constants_bar, p, shape_bars, (soft_a_bar, soft_b_bar))
                if self.settings.explicit:
                    accumulate(links.constants_bar.at(soft.pair_place(constraints.explicit_pair(p))), pair_bar)
        return contact_bars

    def _power(self, sizes: tuple[int, ...], given: ContactSide, on: Mask, bar: Vec | None, *x: Scalar) -> list[Scalar]:
        """f · J λ of a contact; or, with the cotangents `bar` of its force and point, their product."""
        pose_a, pose_b, shape_a, shape_b, soft_a, soft_b, contact, pair = split(x, *sizes)
        a, b = Pose.of(pose_a), Pose.of(pose_b)
        side = given._replace(shapes=(shape_a, shape_b), softs=(soft_a, soft_b), contact=contact, pair=pair)
        rows, reference, law = contact_rows(self.settings, self.h, side, a, b)
        speeds = [[row_speed(row, a, k) - row_speed(row, b, k) for row in rows] for k in (FOUND, VIRTUAL)]
        residual = [s - r for s, r in zip(speeds[0], reference, strict=True)]
        total: Scalar = 0.0
        factors = speeds[1]
        if bar is not None:
            factors, total = [sp.dot(bar[:3], row.force) for row in rows], sp.dot(bar[3:], rows[0].point)
        for force, factor in zip(law.force(self.settings.elliptic, residual), factors, strict=True):
            total = total + force * factor
        return [select(on, total, 0.0)]

    def _add_records(
        self, constants_bar: ScalarArray, p: Index, shape_bars: list[Vec], soft_bars: tuple[Vec, Vec]
    ) -> None:
        constraints, soft = self.tree.constraints, self.constrained.soft
        start = constraints.head("shape_constants")
        for shape, shape_bar, soft_bar in zip(constraints.pair_shapes(p), shape_bars, soft_bars, strict=True):
            accumulate(constants_bar.at(start + shape * layout.SHAPE), shape_bar)
            accumulate(constants_bar.at(soft.shape_place(shape)), soft_bar)
