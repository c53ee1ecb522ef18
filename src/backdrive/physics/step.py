"""One time step: the free motion, then the constraints.

With impacts, a step is a sequence of substeps, each of which ends at the next impact; an impact itself is a substep of
no duration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..ir import (
    Index,
    Mask,
    Scalar,
    ScalarArray,
    interruptible,
    loop,
    maximum,
    memory,
    select,
    to_float,
    while_any,
    workspace,
)
from .constraints.constrain import constrain
from .constraints.forces import add_forces
from .constraints.outcome import ConstraintOutcome, FreeMotion, SubstepTimes
from .geometry.collision import find_contacts
from .geometry.contact_points import ContactPoints
from .impacts.impact import Impacts
from .impacts.time_of_impact import SubstepMotion, first_impact
from .integrators.base import Stages, move
from .math.arrays import all_finite, axpy, copy, zero
from .scheme import StepContext
from .soft.step import soft_step
from .state import StateArrays, StepInputs
from .tree.poses import link_poses, pose_size
from .tree.tree import Tree

NO_LIMIT = 1e30  # s; the time in which gaps may close in an impact: so long that open gaps put no bound on velocities
IMPACT_CODE = 1024.0  # the fingerprint of modes counts impacts in units of 1 / IMPACT_CODE, so that sums stay exact
IMPACTS_PER_LINK = 4  # a step may have this many impacts per link
MORE_IMPACTS = 16  # and this many besides; after them, the rest of the step is done without bouncing


class StepStatus(NamedTuple):
    """What a step reports besides whether its result is finite, in the order of the rows of the status.

    clipped: motors at a limit. The following are there with constraints: residual of the complementarity conditions;
    contacts that press; the deepest penetration (m); a fingerprint of the active set; how often the energy guard
    reduced what pushes bodies apart. The last three are there with impacts: their number; whether there were too many;
    those of several contacts at once.
    """

    clipped: Scalar
    residual: Scalar = 0.0
    contacts: Scalar = 0.0
    depth: Scalar = 0.0
    modes: Scalar = 0.0
    guarded: Scalar = 0.0
    impacts: Scalar = 0.0
    fallbacks: Scalar = 0.0
    simultaneous: Scalar = 0.0


@dataclass(frozen=True)
class Substep:
    """A substep from a state on, as if no impact ended it early; the adjoint reads it.

    outcome: what constraints make of it; None without constraints. contacts: the candidate contact points at the
    beginning of the substep.
    """

    stages: Stages
    times: SubstepTimes
    outcome: ConstraintOutcome | None = None
    contacts: ContactPoints | None = None


def substep(
    ctx: StepContext, state: StateArrays, inputs: StepInputs, h: Scalar, adjoint: bool = False,
    impacts: Impacts | None = None,
) -> Substep:  # fmt: skip
    """From `state` on for the time h, or through an impact. It is a function of the arguments only: the adjoint, which
    computes it again, finds the same contact problem, and of several solutions the same one."""
    tree, integrator = ctx.tree, ctx.integrator
    stages = integrator.stages(tree, state, inputs, h)
    times = SubstepTimes(h, integrator.share * h, h)
    if impacts is not None:
        hitting = impacts.hitting
        times = SubstepTimes(h, select(hitting, NO_LIMIT, impacts.h), select(hitting, 1.0, h))
    if not ctx.constrained:
        return Substep(stages, times)
    free, contacts = workspace(tree.nv), None
    axpy(tree.nv, h, stages.dynamics.vdot, state.v, free)
    if impacts is not None and integrator.predicts:
        poses = link_poses(tree, state.q, impacts.ahead(free), state.v, indexed=True)
        contacts = find_contacts(tree.constraints, poses, pose_size(2), h, changing=True)
        impacts.classify(tree.constraints, contacts, poses, pose_size(2))
    motion = FreeMotion(stages.start, state.v, free, stages.dynamics, times)
    outcome = constrain(ctx, motion, adjoint, impacts, contacts)
    return Substep(stages, times, outcome, contacts or outcome.candidates)


def step(
    ctx: StepContext, state: StateArrays, inputs: StepInputs, forces: ScalarArray | None = None,
    solution: ScalarArray | None = None, likeness: ScalarArray | None = None,
) -> StepStatus:  # fmt: skip
    """Advance the state (in place) by h; the forces of the constraints are added to `forces`, if given. solution
    [`Scheme.solutions`, nv]: receives what the solver found, for the adjoint of the step. likeness [1]: receives a
    number that is close in environments with similar active sets; of Runge-Kutta steps of MuJoCo's physics."""
    if ctx.scheme.soft is not None:
        return StepStatus(*soft_step(ctx, state, inputs, forces, solution, likeness))
    if ctx.splits_at_impacts:
        return step_through_impacts(ctx, state, inputs, forces)
    tree, h = ctx.tree, ctx.h
    now = substep(ctx, state, inputs, h)
    outcome, dynamics = now.outcome, now.stages.dynamics
    if outcome is None:
        axpy(tree.nv, h, dynamics.vdot, state.v, state.v)
        move(tree, now.stages.start, state.v, now.times.left, state.q)
        return StepStatus(dynamics.clipped)
    copy(tree.nv, outcome.v_next, state.v)
    move(tree, now.stages.start, outcome.move, now.times.left, state.q)
    if forces is not None:
        add_forces(tree.constraints, outcome, 1.0 / h, True, forces)
    numbers = (outcome.residual, outcome.touching, outcome.depth, outcome.modes, outcome.guard.guarded[0])
    return StepStatus(dynamics.clipped, *numbers)


def step_through_impacts(
    ctx: StepContext, state: StateArrays, inputs: StepInputs, forces: ScalarArray | None
) -> StepStatus:
    """As `step`, in substeps."""
    tree, h = ctx.tree, ctx.h
    impacts, numbers = Impacts(tree, ctx.integrator, h), memory(6)
    zero(6, numbers)
    impacts.begin()
    for i in interruptible(while_any(lambda: impacts.going, most_substeps(tree))):
        now = substep(ctx, state, inputs, impacts.duration(), impacts=impacts)
        outcome = now.outcome
        assert outcome is not None  # there are constraints
        passage = pass_substep(ctx, impacts, now, state)
        going = passage.going
        if forces is not None:
            add_forces(tree.constraints, outcome, passage.part / h, going, forces)
        clipped = now.stages.dynamics.clipped
        for k, x in enumerate((clipped, outcome.residual, outcome.touching, outcome.depth)):
            numbers[k] = select(going, maximum(numbers[k], x), numbers[k])
        end = select(passage.timed, 1.0, 0.5) + select(passage.returns, 0.25, 0.0) + passage.slot
        modes = outcome.modes + select(passage.found, end / IMPACT_CODE, 0.0)
        numbers[4] = numbers[4] + select(going, to_float(i + 1) * modes, 0.0)
        numbers[5] = numbers[5] + select(going, outcome.guard.guarded[0], 0.0)
    fallbacks = select(impacts.going, 1.0, impacts.fallbacks[0])  # or the step did not get to its end
    counts = (impacts.count[0], fallbacks, impacts.simultaneous[0])
    return StepStatus._make((*(numbers[k] for k in range(6)), *counts))


def most_impacts(tree: Tree) -> Index:
    return IMPACTS_PER_LINK * tree.nlink + MORE_IMPACTS


def most_substeps(tree: Tree) -> Index:
    return 3 * most_impacts(tree) + 4


@dataclass(frozen=True)
class Passage:
    """How far a substep went, in the lanes where it counts (mask `going`).

    length: in s; part: as a part of the time it could have lasted. found: whether it ended with an impact (mask), of
    the contact in this slot. timed: whether the time of that impact is the time at which a gap closed (mask); otherwise
    it is the beginning of the substep, or a gap jumped. returns: whether the contact separated with a gap below zero
    and came back to that gap (mask); otherwise the gap at which it hits does not depend on the state. origin: the slot
    that it had then.
    """

    going: Mask
    length: Scalar
    part: Scalar
    found: Mask
    slot: Scalar
    timed: Mask
    returns: Mask
    origin: Scalar


def pass_substep(ctx: StepContext, impacts: Impacts, now: Substep, state: StateArrays) -> Passage:
    """Move the state (in place) to the end of the substep, which is the next impact, or the end of the step."""
    tree, integrator = ctx.tree, ctx.integrator
    outcome, contacts, nv = now.outcome, now.contacts, tree.nv
    assert outcome is not None
    assert contacts is not None
    q, v, v_next = state.q, state.v, outcome.v_next
    going, hitting, duration = impacts.going, impacts.hitting, impacts.duration()
    pseudo, before, start = memory(nv), memory(nv), memory(tree.nq)
    for k in loop(nv):
        pseudo[k] = outcome.move[k] - v_next[k]
        before[k] = v[k]
    copy(tree.nq, q, start)
    again = impacts.weigh(outcome.contacts, outcome.problem, outcome.first_contact)
    flies = going & ~hitting & ~again
    motion = SubstepMotion(tree, integrator, StateArrays(start, before), v_next, pseudo)
    at_once = impacts.hit[0] >= 0.0
    found, time, unknown = first_impact(motion, impacts, contacts, duration, flies & all_finite((v_next, nv)))
    impacts.give_up(unknown)
    again, flies = again | unknown, flies & ~unknown  # the substep is repeated without seeking impacts
    late = at_once & (impacts.late[0] > 0.5)
    length = select(flies, select(found, time, impacts.left[0]), 0.0)
    part = select(hitting & going, 1.0, select(flies, length / select(flies, duration, 1.0), 0.0))
    moved = memory(tree.nq)
    motion.advance(part, length, moved, v)
    for k in loop(tree.nq):
        q[k] = select(flies, moved[k], start[k])
    for k in loop(nv):
        v[k] = select(going & ~again, v[k], before[k])
        acceleration = (v_next[k] - before[k]) / select(flies, duration, 1.0)
        impacts.acceleration[k] = select(found, acceleration, impacts.acceleration[k])
    impacts.end_substep(again, found, length, most_impacts(tree))
    returns = found & (impacts.returns[0] > -0.5)
    timed, hit, origin = found & ~late & (impacts.jumps[0] < 0.5), impacts.hit[0], impacts.returns[0]
    return Passage(going & ~again, length, part, found, hit, timed, returns, origin)
