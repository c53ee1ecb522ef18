"""The adjoint of a step: from the gradients after it those before it.

A step without impacts is one stretch. One with impacts is gone through once more from the state before it, which is all
that is known, and then back over, stretch by stretch.

The time τ of an impact is where a gap φ closes. With (q₁, v₁) the state there, and s the time left of the step before,
s₁ = s - τ after it,

    dτ = -(∂φ/∂q₁ · dq₁ + ∂φ/∂θ · dθ) / φ̇,        φ̇ = ∂φ/∂q₁ · ∂q₁/∂τ,
    τ̄ = q̄₁ · ∂q₁/∂τ + v̄₁ · ∂v₁/∂τ - s̄₁,

where dq₁ and dθ (constants of the model) are at fixed τ: the gap gets the gradient -τ̄ / φ̇. What parted at a gap below
zero hits where it was: then φ₁ - φ₀ closes, and the gap at the start of the stretch gets the opposite gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..ir import (
    Scalar,
    any_lane,
    carry,
    counters,
    loop,
    memory,
    select,
    switch,
    to_float,
    vjp,
    when,
    while_any,
    workspace,
)
from .constraints.constrain import FORCE, power_of_forces
from .constraints.constrain_adjoint import ConstraintAdjoint, all_constants
from .constraints.rows import Constraints
from .constraints.warm_start import WarmStart
from .geometry.collision import TOUCH, contacts_adjoint
from .impacts.impact import Impacts
from .integrators.integrate import Midpoint, move
from .math import spatial as sp
from .math.arrays import add_to, axpy, copy, gradient_memory, zero
from .math.linear import TILE
from .step import Passage, Scheme, Substep, most_substeps, pass_substep, substep
from .tree.dynamics import Dynamics, LinkMotion
from .tree.dynamics_adjoint import (
    Cotangents,
    DynamicsSeeds,
    VirtualPower,
    dynamics_adjoint,
    joint_inertia_adjoint,
    power_adjoint,
)
from .tree.inputs import DynamicsInputs
from .tree.joints import JOINTS, JointModel
from .tree.poses import link_poses, link_poses_adjoint, pose_size
from .tree.tree import Tree


def step_adjoint(
    tree: Tree, scheme: Scheme, q: Any, v: Any, controls: Any, wrenches: Any, h: Scalar,
    impulses: WarmStart | None, q_bar: Any, v_bar: Any, controls_bar: Any, wrenches_bar: Any, constants_bar: Any,
    moments_bar: Any, forces_bar: Any = None, after: Any = None,
) -> None:  # fmt: skip
    """From the gradients after a step from (q, v), in place, those before it; others are added to their arrays.

    after: the velocity after the step, NaN where it is not known, or None. forces_bar: gradient with respect to the
    forces of constraints in this step (`contact.add_forces`).
    """
    bars = Cotangents(q_bar, v_bar, controls_bar, wrenches_bar, constants_bar, moments_bar)
    given = (controls, wrenches)
    if scheme.contact_model is None or not scheme.contact_model.impacts or impulses is None:
        now = substep(tree, scheme, q, v, *given, h, impulses, adjoint=True, after=after)
        substep_adjoint(tree, scheme, now, q, v, *given, h, bars, forces_bar)
        return
    impacts, timing = Impacts(tree, scheme.integrator, h), Timing(tree, h, constants_bar, forces_bar)
    position, velocity, before_q, before_v = (memory(n) for n in (tree.nq, tree.nv) * 2)
    most, number, back, more = most_substeps(tree), counters(1), counters(1), memory(1)
    starts = Starts(most, [(position, tree.nq), (velocity, tree.nv), *impacts.arrays(), *impulses.arrays()])
    number[0], back[0], more[0] = 0, 0, 1.0
    ahead = None if after is None else memory(tree.nv)
    for _ in while_any(lambda: more[0] > 0.0, 2 * most):
        i = number[0]
        for _ in when(i == 0):
            copy(tree.nq, q, position)
            copy(tree.nv, v, velocity)
            impacts.begin()
            # What later steps had is no start: the solver may end at another solution than the step did.
            impulses.forget()
        for _ in when(i > 0):
            for _ in when(back[0] == 0):
                starts.keep(i)
            for _ in when(back[0] > 0):
                starts.fetch(i)
        copy(tree.nq, position, before_q)
        copy(tree.nv, velocity, before_v)
        duration, slot = impacts.duration(), impacts.slot[0]
        if ahead is not None:  # most steps are one stretch, whose end is known; elsewhere nothing follows from it
            for k in loop(tree.nv):
                ahead[k] = select(to_float(i) < 0.5, after[k], math.nan)
        now = substep(tree, scheme, before_q, before_v, *given, duration, impulses, True, impacts, ahead)
        passage = pass_substep(tree, scheme, impacts, now, position, velocity)
        number[0] = i + 1
        for _ in when((back[0] > 0) | (i + 1 == most) | ~any_lane(impacts.going)):
            for _ in when(i > 0):
                timing.several[0] = 1
            event = Event(passage, slot)
            substep_adjoint(
                tree, scheme, now, before_q, before_v, *given, duration, bars, None, timing, event
            )  # fmt: skip
            back[0], number[0] = 1, i - 1
            for _ in when(i == 0):
                more[0] = 0.0


class Starts:
    """What the stretches of a step start from: copies of arrays (with their sizes), for each of them."""

    def __init__(self, most: Any, arrays: list[tuple[Any, Any]]) -> None:
        self.arrays = [(array, size, memory(most * size)) for array, size in arrays]

    def keep(self, i: Any) -> None:
        for array, size, copies in self.arrays:
            copy(size, array, copies.at(i * size))

    def fetch(self, i: Any) -> None:
        for array, size, copies in self.arrays:
            copy(size, copies.at(i * size), array)


@dataclass
class Event:
    """What became of a stretch: how far it went; and the contact of the impact that it is, or -1."""

    passage: Passage
    slot: Scalar

    @property
    def hitting(self) -> Any:
        return self.passage.going & (self.slot >= 0.0)

    @property
    def flies(self) -> Any:
        return self.passage.going & ~self.hitting


class Timing:
    """What the times of impacts say, on the way back over a step.

    several: 1 if the step has several stretches. left_bar: gradient with respect to the time that is left. gap_q,
    gap_constants: gradient of the gap whose closing is the impact after the stretch; gap_bar: with respect to that gap.
    forces_bar: of the whole step; pointed [nslot]: 1 where a later stretch says where the force acts.
    """

    def __init__(self, tree: Tree, h: Scalar, constants_bar: Any, forces_bar: Any) -> None:
        self.h, self.forces_bar = h, forces_bar
        if forces_bar is not None:
            self.pointed = memory(tree.constraints.nslot)
            zero(tree.constraints.nslot, self.pointed)
        self.several, self.left_bar, self.gap_bar, self.gap_q = counters(1), memory(1), memory(1), memory(tree.nq)
        self.several[0], self.left_bar[0], self.gap_bar[0] = 0, 0.0, 0.0
        zero(tree.nq, self.gap_q)
        self.gap_constants = None if constants_bar is None else gradient_memory(constants_bar, tree.nconst)

    def share_of_forces(self, constraints: Constraints, now: Substep, event: Event) -> Any:
        """The gradient with respect to the forces of a stretch, as λ / unit."""
        if self.forces_bar is None:
            return None
        assert now.outcome is not None
        size, going = constraints.nslot * FORCE + constraints.nsingle, event.passage.going
        share, result = select(going, now.times.unit * event.passage.part / self.h, 0.0), memory(size)
        for k in loop(size):
            result[k] = share * self.forces_bar[k]
        contacts = now.outcome.contacts
        for c in loop(contacts.count[0]):
            slot = contacts.slots[c]
            points = going & (contacts.touches.get(slot, TOUCH)[7] > 0.5) & (self.pointed[slot] < 0.5)
            bar, own = self.forces_bar.get(slot, FORCE), result.get(slot, FORCE)
            result.put(slot, (*own[:3], *(select(points, x, 0.0) for x in bar[3:])))
            self.pointed[slot] = select(points, 1.0, self.pointed[slot])
        return result

    def differentiate_gap(self, tree: Tree, now: Substep, q: Any, event: Event) -> None:
        """The gradient of the gap at the beginning of an impact, or of a stretch at whose end something returns."""
        zero(tree.nq, self.gap_q)
        constants = all_constants(self.gap_constants)
        if constants is not None:
            zero(tree.nconst, constants)
        assert now.contacts is not None
        contacts, size = now.contacts, TOUCH - 1
        touch_bars, width = memory(tree.constraints.nslot * size), pose_size(0)
        place = select(event.hitting, event.slot, event.passage.slot)
        for c in loop(contacts.count[0]):
            slot = contacts.slots[c]
            hits = (event.hitting | event.passage.returns) & (place == to_float(slot))
            touch_bars.put(slot, (select(hits, 1.0, 0.0), *(0.0,) * (size - 1)))
            record = contacts.touches.at(slot * TOUCH)
            record[TOUCH - 1] = select(hits, 1.0, record[TOUCH - 1])  # also of what took no part in the stretch
        poses, bars = link_poses(tree, q, indexed=True), memory((tree.nlink + 1) * width)
        zero((tree.nlink + 1) * width, bars)
        contacts_adjoint(tree.constraints, contacts, poses, width, touch_bars, bars, constants)
        link_poses_adjoint(tree, poses, bars, q, [], self.gap_q, [], self.gap_constants)

    def add_constants(self, tree: Tree, gap_bar: Scalar, constants_bar: Any) -> None:
        """Add what a gradient with respect to the gap says of the model."""
        if self.gap_constants is not None:
            total, own = all_constants(constants_bar), all_constants(self.gap_constants)
            for k in loop(tree.nconst):
                total[k] = total[k] + select(gap_bar == 0.0, 0.0, gap_bar * own[k])  # there may be no gap yet


class PathAdjoint:
    """The adjoint of `impact_time.advance`: q [nq] and v [nv] at the start, after [nv] at the end if nothing hits.

    move [nv]: with respect to the correction of positions. time: of the length of the stretch, as far as positions
    depend on it; even: of the part of it that was gone, as far as velocities do.
    """

    def __init__(
        self, tree: Tree, scheme: Scheme, q: Any, v: Any, after: Any, motion: Any, passage: Passage, q_bar: Any,
        v_bar: Any,
    ) -> None:  # fmt: skip
        nq, nv, length = tree.nq, tree.nv, passage.length
        self.q, self.v, self.after, self.move = memory(nq), memory(nv), memory(nv), memory(nv)
        self.time, self.even = memory(1), memory(1)
        step_bar, first_bar = workspace(nv), None
        if isinstance(scheme.integrator, Midpoint):
            length = 0.5 * length
            middle, middle_bar, first_bar = workspace(nq), workspace(nq), workspace(nv)
            move(tree, q, v, length, middle)
            displacement_adjoint(tree, middle, motion, length, q_bar, middle_bar, step_bar)
            displacement_adjoint(tree, q, v, length, middle_bar, self.q, first_bar)
        else:
            displacement_adjoint(tree, q, motion, length, q_bar, self.q, step_bar)
        self.time[0], self.even[0] = 0.0, 0.0
        share = 1.0 if first_bar is None else 0.5
        for k in loop(nv):
            self.move[k] = length * step_bar[k]
            total = self.move[k] if v_bar is None else v_bar[k] + self.move[k]
            self.after[k] = passage.part * total
            self.v[k] = total - self.after[k]
            self.time[0] = self.time[0] + share * step_bar[k] * motion[k]
            self.even[0] = self.even[0] + total * (after[k] - v[k])
            if first_bar is not None:
                self.v[k] = self.v[k] + length * first_bar[k]
                self.time[0] = self.time[0] + share * first_bar[k] * v[k]

    def add(self, tree: Tree, factor: Scalar, other: PathAdjoint) -> None:
        for k in loop(tree.nq):
            self.q[k] = self.q[k] + factor * other.q[k]
        for mine, its in ((self.v, other.v), (self.after, other.after), (self.move, other.move)):
            for k in loop(tree.nv):
                mine[k] = mine[k] + factor * its[k]
        self.time[0] = self.time[0] + factor * other.time[0]
        self.even[0] = self.even[0] + factor * other.even[0]


def substep_adjoint(
    tree: Tree, scheme: Scheme, now: Substep, q: Any, v: Any, controls: Any, wrenches: Any, h: Scalar,
    after: Cotangents, forces_bar: Any = None, timing: Timing | None = None, event: Event | None = None,
) -> None:  # fmt: skip
    """From the gradients after a stretch from (q, v), in place, those before it; others are added to their arrays.

    h: how long it lasts if nothing hits. With `timing` and `event` it is part of a step with impacts.
    """
    nq, nv = tree.nq, tree.nv
    middle = isinstance(scheme.integrator, Midpoint)
    outcome, dynamics, times = now.outcome, now.dynamics, now.times
    share = 0.5 if middle else 1.0
    damping_time = share * h
    acting: Scalar = 1.0
    if event is not None:
        acting = select(event.flies, 1.0, 0.0)
    constraints, smooth, v_start, rate = None, workspace(nv), now.v_mid, 0.0
    move_velocity = workspace(nv)
    if outcome is None or scheme.contact_model is None:
        axpy(nv, h, dynamics.vdot, v, move_velocity)
    else:
        if timing is not None and event is not None:
            forces_bar = timing.share_of_forces(tree.constraints, now, event)
        constraints = ConstraintAdjoint(tree, scheme.contact_model, outcome, times, forces_bar)
        if event is not None:
            copy(nv, dynamics.vdot, smooth)
        copy(nv, outcome.move, move_velocity)
        allow(tree, now, v, acting)
    after_bar, before_bar, vdot_bar = workspace(nv), workspace(nv), workspace(nv)
    start_bar, move_bar = workspace(nq), workspace(nv)
    path = None
    if event is None or timing is None:
        displacement_adjoint(tree, now.start, move_velocity, times.left, after.q, start_bar, move_bar)
        for k in loop(nv):
            move_bar[k] = times.left * move_bar[k]
            after_bar[k] = after.v[k] + move_bar[k]
            before_bar[k] = after_bar[k]
    else:
        assert outcome is not None
        part = event.passage.part
        for k in loop(nv):
            move_velocity[k] = move_velocity[k] - (1.0 - part) * (outcome.after[k] - v[k])
        path = PathAdjoint(tree, scheme, q, v, outcome.after, move_velocity, event.passage, after.q, after.v)
        if timing.forces_bar is not None:
            path.even[0] = path.even[0] + power_of_forces(tree.constraints, outcome, timing.forces_bar) / timing.h
        for _ in when(timing.several[0] > 0):
            gap = PathAdjoint(tree, scheme, q, v, outcome.after, move_velocity, event.passage, timing.gap_q, None)
            whole, timed = select(acting > 0.0, h, 1.0), event.passage.timed
            rate = select(timed, gap.time[0] + gap.even[0] / whole, 1.0)
            time_bar = path.time[0] + path.even[0] / whole - timing.left_bar[0]
            timing.gap_bar[0] = select(timed, -time_bar / rate, 0.0)
            path.add(tree, timing.gap_bar[0], gap)
            timing.add_constants(tree, timing.gap_bar[0], after.constants)
        for k in loop(nv):
            after_bar[k], move_bar[k] = path.after[k], path.move[k]
            before_bar[k] = path.v[k] + path.after[k]
        for k in loop(nq):
            start_bar[k] = 0.0 if middle else path.q[k]
        dynamics = resting(tree, dynamics, acting)
        v_start = workspace(nv)
        for k in loop(nv):
            v_start[k] = acting * now.v_mid[k]
    v_mid_bar = workspace(nv) if middle else before_bar
    if middle:
        zero(nv, v_mid_bar)
    for k in loop(nv):
        vdot_bar[k] = times.unit * after_bar[k]
    gradients = (after.controls, after.wrenches, after.constants, after.moments)
    bars = Cotangents(start_bar, v_mid_bar, *gradients)
    if constraints is not None:
        rate = correction_adjoint(tree, dynamics, constraints, now.start, damping_time, move_bar, bars)
    inputs = DynamicsInputs(now.start, v_start, v, controls, wrenches, damping_time)
    seeds = DynamicsSeeds(vdot_bar, before_bar)
    virtual = dynamics_adjoint(tree, inputs, dynamics, seeds, bars, constraints, acting)
    if path is not None and timing is not None and event is not None and constraints is not None:
        for _ in when(timing.several[0] > 0):
            time_adjoint(
                tree, now, constraints, timing, event, path, smooth, after_bar, virtual, rate, h, share
            )  # fmt: skip
    if middle:
        first = now.first
        assert first is not None
        for k in loop(nv):
            before_bar[k], vdot_bar[k] = before_bar[k] + v_mid_bar[k], 0.5 * h * v_mid_bar[k]
        bars = Cotangents(start_bar, before_bar, *gradients)
        inputs = DynamicsInputs(now.start, v, v, controls, wrenches, damping_time)
        virtual = dynamics_adjoint(tree, inputs, first, seeds, bars)
        moved_bar, step_bar = workspace(nq), workspace(nv)
        displacement_adjoint(tree, q, v, 0.5 * h, start_bar, moved_bar, step_bar)
        for k in loop(nv):
            before_bar[k] = before_bar[k] + 0.5 * h * step_bar[k]
        if path is not None and timing is not None:
            add_to(nq, path.q, moved_bar)
            for _ in when(timing.several[0] > 0):
                total = carry(1)
                total[0] = 0.5 * damping_rate(tree, virtual, first.vdot)
                for k in loop(nv):
                    total[0] = total[0] + 0.5 * (v_mid_bar[k] * first.vdot[k] + step_bar[k] * v[k])
                timing.left_bar[0] = timing.left_bar[0] + acting * total[0]
        start_bar = moved_bar
    for k in loop(nq):
        after.q[k] = start_bar[k]
    for k in loop(nv):
        after.v[k] = before_bar[k]
    if timing is not None and event is not None:
        returns = event.passage.returns
        for _ in when(any_lane(event.hitting | returns)):
            timing.differentiate_gap(tree, now, q, event)
            start = select(returns, -timing.gap_bar[0], 0.0)
            for k in loop(nq):
                after.q[k] = after.q[k] + start * timing.gap_q[k]
            timing.add_constants(tree, start, after.constants)


def allow(tree: Tree, now: Substep, v: Any, acting: Scalar = 1.0) -> None:
    """The accelerations in the dynamics become those that constraints allowed."""
    outcome, dynamics, unit = now.outcome, now.dynamics, now.times.unit
    assert outcome is not None
    for k in loop(tree.nv):
        dynamics.vdot[k] = (outcome.after[k] - v[k]) / unit
    for i in tree.links():
        caused = sp.scale(1.0 / unit, outcome.caused.get(i + 1, 6))
        free = sp.scale(acting, dynamics.accelerations.get(i + 1, 6))
        dynamics.accelerations.put(i + 1, sp.add(free, caused))


def time_adjoint(
    tree: Tree, now: Substep, constraints: ConstraintAdjoint, timing: Timing, event: Event, path: PathAdjoint,
    smooth: Any, after_bar: Any, virtual: Any, correction_rate: Scalar, h: Scalar, share: float,
) -> None:  # fmt: skip
    """From the gradient with respect to the time left after a stretch that with respect to the time left before it.

    With A (v⁺ - v) = h f + Jᵀ λ, f = A v̇ (`smooth`), h enters by f, the damping in A (`share` h D), and the bounds of
    joint friction; and by how far the stretch goes.
    """
    outcome, unit = now.outcome, now.times.unit
    assert outcome is not None
    flies, found = event.flies, event.passage.found
    whole = select(flies, h, 1.0)
    total = carry(1)
    total[0] = share * (damping_rate(tree, virtual, now.dynamics.vdot) + correction_rate)
    for k in loop(tree.nv):
        total[0] = total[0] + after_bar[k] * smooth[k]
    problem = outcome.problem
    for _ in when(problem.count > 0):
        speeds, reduced = memory(tree.constraints.nimpulse + TILE), memory(tree.nv)
        copy(tree.nv, now.dynamics.reduced, reduced)
        problem.speeds(reduced, speeds)
        for r in loop(problem.count):
            y, mode = constraints.multiplier[r], constraints.mode[r]
            bound = select(mode < 0.0, problem.low[r], problem.high[r])
            at_bound = select(mode == 0.0, 0.0, y * bound / whole)
            total[0] = total[0] + (at_bound - select(mode == 0.0, y * speeds[r], 0.0)) / unit
    gone = select(found, -path.even[0] * event.passage.part / whole, path.time[0])
    before = total[0] + gone + select(found, timing.left_bar[0], 0.0)
    timing.left_bar[0] = select(flies, before, timing.left_bar[0])


def damping_rate(tree: Tree, virtual: Any, vdot: Any) -> Scalar:
    """How -λ · (M + h D) v̇ depends on h."""
    total = carry(1)
    total[0] = 0.0
    for i in tree.links():
        b = tree.v_start(i)
        for k in loop(tree.dofs(i)):
            total[0] = total[0] - virtual[b + k] * vdot[b + k] * tree.link(i).damping
    return total[0]


def resting(tree: Tree, dynamics: Dynamics, acting: Scalar) -> Dynamics:
    """The same dynamics, without velocities and weight where nothing acts."""
    frames = dynamics.frames.slowed(tree, acting)
    dynamics.accelerations.put(0, sp.scale(acting, dynamics.accelerations.get(0, 6)))
    return replace(dynamics, frames=frames)


def correction_adjoint(
    tree: Tree, dynamics: Dynamics, constraints: ConstraintAdjoint, q: Any, damping_time: Scalar,
    move_bar: Any, bars: Cotangents,
) -> Scalar:  # fmt: skip
    """Add what the gradient with respect to the motion that corrects positions means for A in A p = Jᵀ π; what it means
    for the rows is left to `ConstraintAdjoint.add_rows`.

    Returns how the loss depends on the time in A, that of damping.
    """
    outcome, rate = constraints.outcome, memory(1)
    rate[0] = 0.0
    q_bar, v_bar = memory(tree.nq), memory(tree.nv)
    zero(tree.nq, q_bar)
    for _ in when(outcome.corrected[0] > 0):
        zero(tree.nv, v_bar)
        inside = Cotangents(q_bar, v_bar, constants=bars.constants, moments=bars.moments)
        virtual, N = constraints.correct(dynamics, q, move_bar)
        rest = workspace(tree.nv)
        still = LinkMotion(dynamics.frames.slowed(tree, 0.0), outcome.pseudo_caused, outcome.pseudo)
        zero(tree.nv, rest)
        power_adjoint(tree, VirtualPower(q, rest, still, virtual, N, acting=0.0), -1.0, inside)
        joint_inertia_adjoint(tree, virtual, outcome.pseudo, damping_time, inside)
        rate[0] = damping_rate(tree, virtual, outcome.pseudo)
    add_to(tree.nq, q_bar, bars.q)
    return rate[0]


def displacement_adjoint(tree: Tree, q: Any, v: Any, h: Scalar, target_bar: Any, q_bar: Any, step_bar: Any) -> None:
    """q_bar = and step_bar = the gradient of q ⊕ h v with respect to q, and to the displacement h v."""

    def one(joint: JointModel, i: Any) -> None:
        a, b = tree.q_start(i), tree.v_start(i)
        inputs = (*q.at(a).get(0, joint.nq), *sp.scale(h, v.at(b).get(0, joint.nv)))
        _, gradient = vjp(
            lambda *x: joint.integrate(x[: joint.nq], x[joint.nq :]), inputs, target_bar.at(a).get(0, joint.nq)
        )
        q_bar.at(a).put(0, tuple(gradient[: joint.nq]))
        step_bar.at(b).put(0, tuple(gradient[joint.nq :]))

    for i in tree.links():
        switch(tree.kind(i), [partial(one, joint) for joint in JOINTS], i)
