"""What the times of impacts contribute to the adjoint of a step.

The time τ of an impact is where a gap φ closes. With (q₁, v₁) the state there, s the time left of the step before the
substep, and s₁ = s - τ the time left after it,

    dτ = -(∂φ/∂q₁ · dq₁ + ∂φ/∂θ · dθ) / φ̇,        φ̇ = ∂φ/∂q₁ · ∂q₁/∂τ,
    τ̄ = q̄₁ · ∂q₁/∂τ + v̄₁ · ∂v₁/∂τ - s̄₁,

where dq₁ and dθ (constants of the model) are taken at fixed τ: the gap gets the cotangent -τ̄ / φ̇. A contact that parted
at a gap below zero hits again at that gap: then φ₁ - φ₀ closes, and the gap at the start of the substep gets the
opposite cotangent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...ir import Index, IndexArray, Mask, Scalar, ScalarArray, counters, loop, memory, select, to_float
from ..constraints.forces import FORCE, forces_size
from ..geometry.collision import contacts_adjoint
from ..geometry.solids import ACTIVE, CONTACT_POINT
from ..math.arrays import all_elements, copy, gradient_memory, zero
from ..state import StateArrays
from ..tree.poses import link_poses, link_poses_adjoint, pose_size
from ..tree.tree import Tree

if TYPE_CHECKING:
    from ..scheme import StepContext
    from ..step import Passage, Substep


class SubstepStarts:
    """Copies of all that the substeps of a step start from: arrays with their sizes, for each substep."""

    def __init__(self, most: Index, arrays: list[tuple[ScalarArray, Index]]) -> None:
        self.arrays = [(array, size, memory(most * size)) for array, size in arrays]

    def keep(self, i: Index) -> None:
        for array, size, copies in self.arrays:
            copy(size, array, copies.at(i * size))

    def fetch(self, i: Index) -> None:
        for array, size, copies in self.arrays:
            copy(size, copies.at(i * size), array)


@dataclass(frozen=True)
class ImpactEvent:
    """How a substep of a step with impacts went: its passage, and the slot of the contact whose impact it is, or -1."""

    passage: Passage
    slot: Scalar

    @property
    def hitting(self) -> Mask:
        return self.passage.going & (self.slot >= 0.0)

    @property
    def flies(self) -> Mask:
        return self.passage.going & ~self.hitting


class ImpactTiming:
    """Cotangents that the times of impacts carry from substep to substep, backwards over a step.

    several: 1 if the step has several substeps. left_bar: cotangent of the time that is left of the step. gap_q [nq],
    gap_constants: gradient of the gap whose closing is the impact after the substep; gap_bar: its cotangent.
    forces_bar: cotangents of the forces of the whole step, or None; pointed [nslot]: 1 where a later substep has
    determined the point at which the force acts.
    """

    def __init__(
        self, tree: Tree, h: Scalar, constants_bar: ScalarArray | None, forces_bar: ScalarArray | None
    ) -> None:
        self.h, self.forces_bar = h, forces_bar
        if forces_bar is not None:
            self.pointed = memory(tree.constraints.nslot)
            zero(tree.constraints.nslot, self.pointed)
        self.several: IndexArray = counters(1)
        self.left_bar, self.gap_bar, self.gap_q = memory(1), memory(1), memory(tree.nq)
        self.several[0], self.left_bar[0], self.gap_bar[0] = 0, 0.0, 0.0
        zero(tree.nq, self.gap_q)
        self.gap_constants = None if constants_bar is None else gradient_memory(constants_bar, tree.nconst)

    def share_of_forces(self, tree: Tree, now: Substep, event: ImpactEvent) -> ScalarArray | None:
        """The cotangents of the forces of one substep, as λ / unit."""
        if self.forces_bar is None:
            return None
        assert now.outcome is not None
        size, going = forces_size(tree.constraints), event.passage.going
        share, result = select(going, now.times.unit * event.passage.part / self.h, 0.0), memory(size)
        for k in loop(size):
            result[k] = share * self.forces_bar[k]
        contacts = now.outcome.contacts
        for c in loop(contacts.count[0]):
            slot = contacts.slots[c]
            points = going & contacts.active(slot) & (self.pointed[slot] < 0.5)
            bar, own = self.forces_bar.get(slot, FORCE), result.get(slot, FORCE)
            result.put(slot, (*own[:3], *(select(points, x, 0.0) for x in bar[3:])))
            self.pointed[slot] = select(points, 1.0, self.pointed[slot])
        return result

    def differentiate_gap(self, tree: Tree, now: Substep, q: ScalarArray, event: ImpactEvent) -> None:
        """The gradient of the gap at the beginning of an impact, or of a substep after which a gap closes to its value
        at the beginning."""
        zero(tree.nq, self.gap_q)
        constants = all_elements(self.gap_constants)
        if constants is not None:
            zero(tree.nconst, constants)
        assert now.contacts is not None
        contacts = now.contacts
        point_bars, width = memory(tree.constraints.nslot * CONTACT_POINT), pose_size(0)
        place = select(event.hitting, event.slot, event.passage.origin)
        for c in loop(contacts.count[0]):
            slot = contacts.slots[c]
            hits = (event.hitting | event.passage.returns) & (place == to_float(slot))
            point_bars.put(slot, (select(hits, 1.0, 0.0), *(0.0,) * (CONTACT_POINT - 1)))
            record = contacts.record(slot)
            # The contact counts here even if it took no part in the substep.
            record[ACTIVE] = select(hits, 1.0, record[ACTIVE])
        poses, bars = link_poses(tree, q, indexed=True), memory((tree.nlink + 1) * width)
        zero((tree.nlink + 1) * width, bars)
        contacts_adjoint(tree.constraints, contacts, poses, width, point_bars, bars, constants)
        link_poses_adjoint(tree, poses, bars, q, [], self.gap_q, [], self.gap_constants)

    def add_constants(self, tree: Tree, gap_bar: Scalar, constants_bar: ScalarArray | None) -> None:
        """Add the cotangents of the constants that follow from that of the gap."""
        total, own = all_elements(constants_bar), all_elements(self.gap_constants)
        if total is not None and own is not None:
            for k in loop(tree.nconst):
                total[k] = total[k] + select(gap_bar == 0.0, 0.0, gap_bar * own[k])  # there may be no gap yet


class SubstepEndCotangents:
    """The adjoint of the end of a substep that went only a part of its way: positions travel for its length, and the
    velocity changes linearly from v to v⁺.

    q [nq], v [nv]: of the state at the start; v_next [nv]: of v⁺; move [nv]: of the correction of positions. time: of
    the length of the substep, through positions; even: of the part of it that was gone, through velocities.
    """

    def __init__(
        self, ctx: StepContext, state: StateArrays, v_next: ScalarArray, motion: ScalarArray, passage: Passage,
        q_bar: ScalarArray, v_bar: ScalarArray | None,
    ) -> None:  # fmt: skip
        tree, integrator, v = ctx.tree, ctx.integrator, state.v
        nq, nv, share = tree.nq, tree.nv, integrator.share
        self.q, self.v, self.v_next, self.move = memory(nq), memory(nv), memory(nv), memory(nv)
        self.time, self.even = memory(1), memory(1)
        length = share * passage.length
        end_bar, start_bar = integrator.travel_adjoint(tree, state, motion, length, q_bar, self.q)
        self.time[0], self.even[0] = 0.0, 0.0
        for k in loop(nv):
            self.move[k] = length * end_bar[k]
            total = self.move[k] if v_bar is None else v_bar[k] + self.move[k]
            self.v_next[k] = passage.part * total
            self.v[k] = total - self.v_next[k]
            self.time[0] = self.time[0] + share * end_bar[k] * motion[k]
            self.even[0] = self.even[0] + total * (v_next[k] - v[k])
            if start_bar is not None:
                self.v[k] = self.v[k] + length * start_bar[k]
                self.time[0] = self.time[0] + share * start_bar[k] * v[k]

    def add(self, tree: Tree, factor: Scalar, other: SubstepEndCotangents) -> None:
        for k in loop(tree.nq):
            self.q[k] = self.q[k] + factor * other.q[k]
        for mine, its in ((self.v, other.v), (self.v_next, other.v_next), (self.move, other.move)):
            for k in loop(tree.nv):
                mine[k] = mine[k] + factor * its[k]
        self.time[0] = self.time[0] + factor * other.time[0]
        self.even[0] = self.even[0] + factor * other.even[0]
