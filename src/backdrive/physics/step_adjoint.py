"""The adjoint of a step: from the cotangents after it to those before it.

A step without impacts is one substep. A step with impacts is computed again from the state before it, which is all that
is kept, and then differentiated backwards, substep by substep (`impacts.impact_adjoint`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ..ir import (
    Scalar,
    ScalarArray,
    any_lane,
    carry,
    counters,
    interruptible,
    loop,
    memory,
    select,
    when,
    while_any,
    workspace,
)
from .constraints.constrain_adjoint import ConstraintAdjoint
from .constraints.forces import power_of_forces
from .constraints.slip_adjoint import free_motion_adjoint
from .impacts.impact import Impacts
from .impacts.impact_adjoint import ImpactEvent, ImpactTiming, SubstepEndCotangents, SubstepStarts
from .integrators.base import StagesAdjoint, move_adjoint
from .math import spatial as sp
from .math.arrays import add_to, axpy, copy, zero
from .math.linear import TILE
from .math.spatial import Vec
from .scheme import StepContext
from .soft.step_adjoint import soft_step_adjoint
from .solvers.active_set import FREE, LOWER
from .state import StateArrays, StepInputs
from .step import Substep, most_substeps, pass_substep, substep
from .tree.dynamics import Dynamics, TreeMotion
from .tree.dynamics_adjoint import (
    Cotangents,
    DynamicsSeeds,
    VirtualPower,
    dynamics_adjoint,
    power_adjoint,
)
from .tree.forces_adjoint import damping_rate, joint_inertia_adjoint
from .tree.inputs import DynamicsInputs
from .tree.tree import Tree


def step_adjoint(
    ctx: StepContext, state: StateArrays, inputs: StepInputs, cotangents: Cotangents,
    forces_bar: ScalarArray | None = None, solution: ScalarArray | None = None,
) -> None:  # fmt: skip
    """From the cotangents after a step from `state` to those before it.

    cotangents: those of q and v are replaced in place, others are added to. forces_bar: cotangents of the forces of
    constraints in this step (`add_forces`). solution: what the solver of this step found, where it was kept.
    """
    if ctx.scheme.soft is not None:
        soft_step_adjoint(ctx, state, inputs, cotangents, forces_bar, solution)
        return
    if not ctx.splits_at_impacts:
        now = substep(ctx, state, inputs, ctx.h, adjoint=True)
        SubstepAdjoint(ctx, now, state, inputs).run(cotangents, forces_bar)
        return
    tree = ctx.tree
    impacts = Impacts(tree, ctx.integrator, ctx.h)
    timing = ImpactTiming(tree, ctx.h, cotangents.constants, forces_bar)
    current, before = StateArrays.in_memory(tree), StateArrays.in_memory(tree)
    most, number, back, more = most_substeps(tree), counters(1), counters(1), memory(1)
    starts = SubstepStarts(most, [*zip(current, StateArrays.sizes(tree), strict=True), *impacts.arrays()])
    number[0], back[0], more[0] = 0, 0, 1.0
    for _ in interruptible(while_any(lambda: more[0] > 0.0, 2 * most)):
        i = number[0]
        for _ in when(i == 0):
            current.copy_from(tree, state)
            impacts.begin()
        for _ in when(i > 0):
            for _ in when(back[0] == 0):
                starts.keep(i)
            for _ in when(back[0] > 0):
                starts.fetch(i)
        before.copy_from(tree, current)
        duration, slot = impacts.duration(), impacts.slot[0]
        now = substep(ctx, before, inputs, duration, True, impacts)
        passage = pass_substep(ctx, impacts, now, current)
        number[0] = i + 1
        for _ in when((back[0] > 0) | (i + 1 == most) | ~any_lane(impacts.going)):
            for _ in when(i > 0):
                timing.several[0] = 1
            impact = ImpactTerms(timing, ImpactEvent(passage, slot))
            SubstepAdjoint(ctx, now, before, inputs, impact).run(cotangents)
            back[0], number[0] = 1, i - 1
            for _ in when(i == 0):
                more[0] = 0.0


@dataclass(frozen=True)
class ImpactTerms:
    """What the adjoint of a substep needs in a step with impacts."""

    timing: ImpactTiming
    event: ImpactEvent


class SubstepAdjoint:
    """The adjoint of a substep from `state`. impact: None in a step without impacts."""

    def __init__(
        self, ctx: StepContext, now: Substep, state: StateArrays, inputs: StepInputs, impact: ImpactTerms | None = None
    ) -> None:
        self.ctx, self.tree, self.now, self.state, self.inputs, self.impact = ctx, ctx.tree, now, state, inputs, impact
        self.h = now.times.h

    def run(self, cotangents: Cotangents, forces_bar: ScalarArray | None = None) -> None:
        """From the cotangents after the substep, in place, to those before it; others are added to."""
        ctx, tree, now, state, h, impact = self.ctx, self.tree, self.now, self.state, self.h, self.impact
        nq, nv, outcome, times = tree.nq, tree.nv, now.outcome, now.times
        acting: Scalar = 1.0  # 0 in an impact, where forces do not act
        if impact is not None:
            acting = select(impact.event.flies, 1.0, 0.0)
        constraints, dynamics, move_velocity = None, now.stages.dynamics, workspace(nv)
        if outcome is None:
            axpy(nv, h, dynamics.vdot, state.v, move_velocity)
        else:
            if impact is not None:
                forces_bar = impact.timing.share_of_forces(tree, now, impact.event)
            constraints = ConstraintAdjoint(tree, ctx.contact_model, outcome, times, forces_bar)
            copy(nv, outcome.move, move_velocity)
            dynamics = constrained_dynamics(tree, now, state.v, acting, rests=impact is not None)
        v_next_bar, v_bar, start_bar, move_bar = workspace(nv), workspace(nv), workspace(nq), workspace(nv)
        end = None
        if impact is None:
            move_adjoint(tree, now.stages.start, move_velocity, times.left, cotangents.q, start_bar, move_bar)
            for k in loop(nv):
                move_bar[k] = times.left * move_bar[k]
                v_next_bar[k] = cotangents.v[k] + move_bar[k]
                v_bar[k] = v_next_bar[k]
        else:
            end = self._end_of_part(impact, move_velocity, acting, cotangents)
            for k in loop(nv):
                v_next_bar[k], move_bar[k] = end.v_next[k], end.move[k]
                v_bar[k] = end.v[k] + end.v_next[k]
            for k in loop(nq):
                start_bar[k] = 0.0 if ctx.integrator.predicts else end.q[k]
        stage_inputs = now.stages.inputs
        if impact is not None:
            v_stage = workspace(nv)
            for k in loop(nv):
                v_stage[k] = acting * stage_inputs.v[k]
            stage_inputs = replace(stage_inputs, v=v_stage)

        def last_stage(v_stage_bar: ScalarArray) -> None:
            vdot_bar = workspace(nv)
            for k in loop(nv):
                vdot_bar[k] = times.unit * v_next_bar[k]
            spin_bar = carry(1)
            spin_bar[0] = 0.0
            inside = replace(cotangents, q=start_bar, v=v_stage_bar, spin_time=None if impact is None else spin_bar)
            rate: Scalar = 0.0
            if constraints is not None:
                rate = correction_adjoint(tree, dynamics, constraints, stage_inputs, move_bar, inside)
            seeds = DynamicsSeeds(vdot_bar, v_bar)
            virtual = dynamics_adjoint(tree, stage_inputs, dynamics, seeds, inside, constraints, acting)
            if constraints is None:
                return
            rate = rate + guard_adjoint(tree, dynamics, constraints, stage_inputs, inside)
            free_rate = free_motion_adjoint(constraints.slips, ctx.integrator, now.stages, h, v_bar, inside)
            if impact is not None and end is not None:
                for _ in when(impact.timing.several[0] > 0):
                    rate = ctx.integrator.share * rate + spin_bar[0]
                    self._duration_adjoint(constraints, end, dynamics, v_next_bar, virtual, rate)
                    impact.timing.left_bar[0] = impact.timing.left_bar[0] + acting * free_rate

        q_bar, by_duration = ctx.integrator.stages_adjoint(
            StagesAdjoint(tree, state, self.inputs, h, now.stages, start_bar, v_bar, cotangents, last_stage)
        )
        if by_duration is not None and impact is not None and end is not None:
            add_to(nq, end.q, q_bar)
            for _ in when(impact.timing.several[0] > 0):
                impact.timing.left_bar[0] = impact.timing.left_bar[0] + acting * by_duration()
        # Where the substep did not take place, not even the normalisation of quaternions may change the cotangents.
        going = True if impact is None else impact.event.passage.going
        copy(nq, q_bar, cotangents.q, going)
        copy(nv, v_bar, cotangents.v, going)
        if impact is not None:
            self._gap_at_start(impact, cotangents)

    def _end_of_part(
        self, impact: ImpactTerms, move_velocity: ScalarArray, acting: Scalar, cotangents: Cotangents
    ) -> SubstepEndCotangents:
        """The cotangents at the end of a substep that went a part of its way, with those of the time of the impact."""
        tree, outcome, state = self.tree, self.now.outcome, self.state
        timing, passage = impact.timing, impact.event.passage
        assert outcome is not None
        for k in loop(tree.nv):
            move_velocity[k] = move_velocity[k] - (1.0 - passage.part) * (outcome.v_next[k] - state.v[k])
        way = (self.ctx, state, outcome.v_next, move_velocity, passage)
        end = SubstepEndCotangents(*way, cotangents.q, cotangents.v)
        if timing.forces_bar is not None:
            end.even[0] = end.even[0] + power_of_forces(tree.constraints, outcome, timing.forces_bar) / timing.h
        for _ in when(timing.several[0] > 0):
            gap = SubstepEndCotangents(*way, timing.gap_q, None)
            whole, timed = select(acting > 0.0, self.h, 1.0), passage.timed
            rate = select(timed, gap.time[0] + gap.even[0] / whole, 1.0)
            time_bar = end.time[0] + end.even[0] / whole - timing.left_bar[0]
            timing.gap_bar[0] = select(timed, -time_bar / rate, 0.0)
            end.add(tree, timing.gap_bar[0], gap)
            timing.add_constants(tree, timing.gap_bar[0], cotangents.constants)
        return end

    def _duration_adjoint(
        self, constraints: ConstraintAdjoint, end: SubstepEndCotangents, dynamics: Dynamics, v_next_bar: ScalarArray,
        virtual: ScalarArray, other_rate: Scalar,
    ) -> None:  # fmt: skip
        """From the cotangent of the time left after a substep to that of the time left before it.

        With A (v⁺ - v) = h f + Jᵀ λ and f = A v̇, v̇ that of the free motion, h enters through f, through the damping in
        A, through the bounds of joint friction, and through how far the substep goes. other_rate: the derivative by h
        through the correction of positions and through gyroscopic torques.
        """
        assert self.impact is not None
        assert self.now.outcome is not None
        tree, timing, event, unit = self.tree, self.impact.timing, self.impact.event, self.now.times.unit
        free = self.now.stages.dynamics
        flies, found = event.flies, event.passage.found
        whole = select(flies, self.h, 1.0)
        rate = damping_rate(tree, self.now.stages.inputs, free, virtual, dynamics.vdot)
        total = carry(1)
        total[0] = self.ctx.integrator.share * rate + other_rate
        for k in loop(tree.nv):
            total[0] = total[0] + v_next_bar[k] * free.vdot[k]
        problem = self.now.outcome.problem
        for _ in when(problem.count > 0):
            speeds, reduced = memory(tree.constraints.nimpulse + TILE), memory(tree.nv)
            copy(tree.nv, free.reduced, reduced)
            problem.delassus.speeds(reduced, speeds)
            for r in loop(problem.count):
                y, mode = constraints.multiplier[r], constraints.mode[r]
                bound = select(mode == LOWER, problem.low[r], problem.high[r])
                at_bound = select(mode == FREE, 0.0, y * bound / whole)
                total[0] = total[0] + (at_bound - constraints.pull(r) * speeds[r]) / unit
        gone = select(found, -end.even[0] * event.passage.part / whole, end.time[0])
        before = total[0] + gone + select(found, timing.left_bar[0], 0.0)
        timing.left_bar[0] = select(flies, before, timing.left_bar[0])

    def _gap_at_start(self, impact: ImpactTerms, cotangents: Cotangents) -> None:
        """The gradient of the gap at the start of an impact, and of a gap that later closes to its value there."""
        tree, timing, event = self.tree, impact.timing, impact.event
        returns = event.passage.returns
        for _ in when(any_lane(event.hitting | returns)):
            timing.differentiate_gap(tree, self.now, self.state.q, event)
            start = select(returns, -timing.gap_bar[0], 0.0)
            for k in loop(tree.nq):
                cotangents.q[k] = cotangents.q[k] + start * timing.gap_q[k]
            timing.add_constants(tree, start, cotangents.constants)


def constrained_dynamics(
    tree: Tree, now: Substep, v: ScalarArray, acting: Scalar = 1.0, rests: bool = False
) -> Dynamics:
    """The dynamics of a substep with the accelerations that its constraints allowed.

    acting: the part of forces that acts. rests: whether velocities and weight are scaled by it, too.
    """
    outcome, dynamics, unit = now.outcome, now.stages.dynamics, now.times.unit
    assert outcome is not None
    assert outcome.caused is not None
    vdot, accelerations, frames = workspace(tree.nv), tree.over_links(6), dynamics.frames
    for k in loop(tree.nv):
        vdot[k] = (outcome.v_next[k] - v[k]) / unit
    for i in tree.links():
        caused = sp.scale(1.0 / unit, outcome.caused.get(i + 1, 6))
        free = sp.scale(acting, dynamics.accelerations.get(i + 1, 6))
        accelerations.put(i + 1, sp.add(free, caused))
    weight: Vec = dynamics.accelerations.get(0, 6)
    if rests:
        frames, weight = frames.slowed(tree, acting), sp.scale(acting, weight)
    accelerations.put(0, weight)
    return replace(dynamics, vdot=vdot, accelerations=accelerations, frames=frames)


def correction_adjoint(
    tree: Tree, dynamics: Dynamics, constraints: ConstraintAdjoint, inputs: DynamicsInputs, move_bar: ScalarArray,
    cotangents: Cotangents,
) -> Scalar:  # fmt: skip
    """From the cotangent of the motion p that corrects positions: add the cotangents that follow through A in
    A p = Jᵀ π. Those of the rows are left to `ConstraintAdjoint.add_rows`.

    Returns the derivative of the loss by the time h in A = M + h D.
    """
    outcome, rate, q_bar = constraints.outcome, memory(1), memory(tree.nq)
    rate[0] = 0.0
    zero(tree.nq, q_bar)
    for _ in when(outcome.corrected[0] > 0):
        assert outcome.pseudo_caused is not None
        virtual, N = constraints.correct(dynamics, inputs.q, move_bar)
        caused = TreeVelocity(outcome.pseudo, outcome.pseudo_caused)
        rate[0] = momentum_adjoint(
            tree, dynamics, inputs, TreeVelocity(virtual, N), caused, replace(cotangents, q=q_bar)
        )
    add_to(tree.nq, q_bar, cotangents.q)
    return rate[0]


def guard_adjoint(
    tree: Tree, dynamics: Dynamics, constraints: ConstraintAdjoint, inputs: DynamicsInputs, cotangents: Cotangents
) -> Scalar:
    """Add the cotangents that follow through A in -z/2 u · A u, where the energy guard acts (`constrain_adjoint`);
    returns the derivative by h as `correction_adjoint` does."""
    outcome, rate, q_bar = constraints.outcome, memory(1), memory(tree.nq)
    rate[0] = 0.0
    zero(tree.nq, q_bar)
    assert outcome.caused is not None
    for _ in when(any_lane(outcome.guard.guarded[0] > 0.0)):
        virtual, N = memory(tree.nv), tree.over_links(6)
        N.put(0, sp.ZERO6)
        for i in tree.links():
            half, b = 0.5 * constraints.gain_multiplier[tree.root(i)] / constraints.times.unit, tree.v_start(i)
            for k in loop(tree.dofs(i)):
                virtual[b + k] = half * outcome.change[b + k]
            N.put(i + 1, sp.scale(half, outcome.caused.get(i + 1, 6)))
        caused = TreeVelocity(outcome.change, outcome.caused)
        rate[0] = momentum_adjoint(
            tree, dynamics, inputs, TreeVelocity(virtual, N), caused, replace(cotangents, q=q_bar)
        )
    add_to(tree.nq, q_bar, cotangents.q)
    return rate[0]


class TreeVelocity(NamedTuple):
    """A change of velocity [nv], and the twists of the links that belong to it (over links)."""

    velocity: ScalarArray
    twists: ScalarArray


def momentum_adjoint(
    tree: Tree, dynamics: Dynamics, inputs: DynamicsInputs, virtual: TreeVelocity, change: TreeVelocity,
    cotangents: Cotangents,
) -> Scalar:  # fmt: skip
    """Add the cotangents of -n · A p that follow through A, for fixed n (`virtual`) and p (`change`); returns its
    derivative by the time h in A = M + h D."""
    v_bar, rest = memory(tree.nv), workspace(tree.nv)
    zero(tree.nv, v_bar)
    zero(tree.nv, rest)
    inside = Cotangents(cotangents.q, v_bar, constants=cotangents.constants, moments=cotangents.moments)
    still = TreeMotion(dynamics.frames.slowed(tree, 0.0), change.twists, change.velocity)
    power_adjoint(tree, VirtualPower(inputs.q, rest, still, virtual.velocity, virtual.twists, acting=0.0), -1.0, inside)
    joint_inertia_adjoint(tree, inputs, virtual.velocity, change.velocity, inside)
    return damping_rate(tree, inputs, dynamics, virtual.velocity, change.velocity)
