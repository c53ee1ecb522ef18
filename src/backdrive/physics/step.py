"""One time step: free motion, and what constraints make of it; with impacts, in stretches from one to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..ir import Scalar, any_lane, loop, maximum, memory, select, to_float, when, while_any, workspace
from .constraints.constrain import Constrained, RigidContact, Times, add_forces, constrain
from .constraints.warm_start import WarmStart
from .geometry.collision import find_contacts
from .geometry.contact_points import ContactPoints
from .impacts.impact import Impacts
from .impacts.time_of_impact import advance, first_impact
from .integrators.integrate import Integrator, Midpoint, move
from .math.arrays import axpy, copy, zero
from .math.spatial import Vec
from .tree.bodies import Bodies
from .tree.dynamics import Dynamics, forward_dynamics
from .tree.poses import link_poses, pose_size
from .tree.tree import Tree

FOREVER = 1e30  # s
HITTING = 1024.0  # what hits is told in such a part of the number of modes: sums of these are exact
HITS = 4  # impacts of a step, at most so many for every link,
MORE_HITS = 16  # and these; after them the rest of the step is done without bouncing


@dataclass(frozen=True)
class Scheme:
    """How to step: the integrator, and how constraints are treated (None: there are none)."""

    integrator: Integrator
    contact_model: RigidContact | None = None


@dataclass
class Substep:
    """What happens from (q, v) on, if it goes on for the whole time h; the adjoint reads it.

    start: the position for which forces and constraints were found (q, or that of the midpoint). middle: velocities and
    dynamics at the midpoint before those that count. outcome: None without constraints. contacts: what may touch.
    """

    start: Any
    v_mid: Any
    first: Dynamics | None
    dynamics: Dynamics
    times: Times
    outcome: Constrained | None
    contacts: ContactPoints | None


def midpoint_stages(
    tree: Tree, bodies: Bodies, q: Any, v: Any, controls: Any, wrenches: Any, h: Scalar
) -> tuple[Any, Any, Dynamics, Dynamics]:
    """(qₘ, vₘ) and the dynamics at (qₘ, v) and (qₘ, vₘ); see `integrate`."""
    q_mid, v_mid = workspace(tree.nq), workspace(tree.nv)
    move(tree, q, v, 0.5 * h, q_mid)
    first = forward_dynamics(tree, bodies, q_mid, v, v, controls, wrenches, 0.5 * h)
    axpy(tree.nv, 0.5 * h, first.vdot, v, v_mid)
    second = forward_dynamics(tree, bodies, q_mid, v_mid, v, controls, wrenches, 0.5 * h, first.factors)
    return q_mid, v_mid, first, second


def substep(
    tree: Tree, bodies: Bodies, scheme: Scheme, q: Any, v: Any, controls: Any, wrenches: Any, h: Scalar,
    impulses: WarmStart | None, adjoint: bool = False, impacts: Impacts | None = None, after: Any = None,
) -> Substep:  # fmt: skip
    """From (q, v) on for the time h, or through an impact. after: v⁺, where it is known."""
    middle = isinstance(scheme.integrator, Midpoint)
    if middle:
        start, v_mid, first, dynamics = midpoint_stages(tree, bodies, q, v, controls, wrenches, h)
    else:
        start, v_mid, first = q, v, None
        dynamics = forward_dynamics(tree, bodies, q, v, v, controls, wrenches, h)
    share = 0.5 if middle else 1.0
    times = Times(h, share * h, h)
    if impacts is not None:
        hitting = impacts.hitting
        times = Times(h, select(hitting, FOREVER, impacts.h), select(hitting, 1.0, h))
    if impulses is None or scheme.contact_model is None:  # no constraints
        return Substep(start, v_mid, first, dynamics, times, None, None)
    free, contacts = workspace(tree.nv), None
    axpy(tree.nv, h, dynamics.vdot, v, free)
    if impacts is not None and middle:
        poses = link_poses(tree, q, impacts.ahead(free), v, indexed=True)
        contacts = find_contacts(tree.constraints, poses, pose_size(2), h, changing=True)
        impacts.classify(tree.constraints, contacts, poses, pose_size(2))
    outcome = constrain(
        tree, scheme.contact_model, dynamics, start, v, free, times, impulses, adjoint, impacts, contacts, after
    )  # fmt: skip
    return Substep(start, v_mid, first, dynamics, times, outcome, contacts or outcome.contacts)


def step(
    tree: Tree, bodies: Bodies, scheme: Scheme, q: Any, v: Any, controls: Any, wrenches: Any, h: Scalar,
    impulses: WarmStart | None, forces: Any = None,
) -> Vec:  # fmt: skip
    """Advance q and v (in place) by h; returns the numbers of its status that are not about being finite.

    How many motors were at a limit; with constraints also the residual, the contacts that press, the deepest
    penetration, and a number for the modes of all rows; then the impacts, whether there were too many, those of several
    contacts at once, and those whose restitution was reduced. `impulses`: what the solver starts from, and then those
    of this step (None: no constraints). To `forces`, if given, those of the constraints are added.
    """
    if scheme.contact_model is not None and scheme.contact_model.impacts and impulses is not None:
        return step_through_impacts(tree, bodies, scheme, q, v, controls, wrenches, h, impulses, forces)
    now = substep(tree, bodies, scheme, q, v, controls, wrenches, h, impulses)
    outcome, left = now.outcome, now.times.left
    if outcome is None:
        axpy(tree.nv, h, now.dynamics.vdot, v, v)
        move(tree, now.start, v, left, q)
        return (now.dynamics.clipped,)
    copy(tree.nv, outcome.after, v)
    move(tree, now.start, outcome.move, left, q)
    if forces is not None:
        add_forces(tree.constraints, outcome, 1.0 / h, True, forces)
    return (
        now.dynamics.clipped, outcome.residual, outcome.touching, outcome.depth, outcome.modes, 0.0, 0.0, 0.0, 0.0
    )  # fmt: skip


def step_through_impacts(
    tree: Tree, bodies: Bodies, scheme: Scheme, q: Any, v: Any, controls: Any, wrenches: Any, h: Scalar,
    impulses: WarmStart, forces: Any,
) -> Vec:  # fmt: skip
    """As `step`, in stretches.

    What has several solutions (friction) may find another from other impulses. The adjoint of a step of one stretch
    knows it by its end; others begin without impulses, as the adjoint does.
    """
    impacts, numbers, warm = Impacts(tree, scheme.integrator, h), memory(5), memory(1)
    zero(5, numbers)
    impacts.begin()
    q_before, v_before = memory(tree.nq), memory(tree.nv)
    copy(tree.nq, q, q_before)
    copy(tree.nv, v, v_before)
    warm[0] = impulses.largest[0]
    for i in while_any(lambda: impacts.going, most_substeps(tree)):
        now = substep(
            tree, bodies, scheme, q, v, controls, wrenches, impacts.duration(), impulses, impacts=impacts
        )  # fmt: skip
        outcome = now.outcome
        assert outcome is not None  # there are constraints
        passage = pass_substep(tree, scheme, impacts, now, q, v)
        colder = (warm[0] > 0.0) & (passage.found | ~passage.going)
        warm[0] = 0.0
        for _ in when(any_lane(colder)):
            impacts.begin(colder)
            impulses.forget(colder)
            copy(tree.nq, q_before, q, colder)
            copy(tree.nv, v_before, v, colder)
        going = passage.going & ~colder
        if forces is not None:
            add_forces(tree.constraints, outcome, passage.part / h, going, forces)
        for k, x in enumerate((now.dynamics.clipped, outcome.residual, outcome.touching, outcome.depth)):
            numbers[k] = select(going, maximum(numbers[k], x), numbers[k])
        end = select(passage.timed, 1.0, 0.5) + select(passage.returns, 0.25, 0.0) + passage.slot
        modes = outcome.modes + select(passage.found, end / HITTING, 0.0)
        numbers[4] = numbers[4] + select(going, to_float(i + 1) * modes, 0.0)
    fallbacks = select(impacts.going, 1.0, impacts.fallbacks[0])  # or the step did not get to its end
    counts = (impacts.count[0], fallbacks, impacts.simultaneous[0], impacts.guarded[0])
    return (*(numbers[k] for k in range(5)), *counts)


def most_substeps(tree: Tree) -> Any:
    return 3 * (HITS * tree.nlink + MORE_HITS) + 4


@dataclass
class Passage:
    """How far a stretch went, where it counts (mask `going`): its length, as a part of what it could be, and whether it
    ended with a hit (mask), of which contact (slot).

    timed: whether the time of the hit is that at which a gap closed (mask): else it is when the stretch began. returns:
    whether it closed to what it was then (mask): else to what does not depend on the state.
    """

    going: Any
    length: Scalar
    part: Scalar
    found: Any
    slot: Scalar
    timed: Any
    returns: Any


def pass_substep(tree: Tree, scheme: Scheme, impacts: Impacts, now: Substep, q: Any, v: Any) -> Passage:
    """Move q and v (in place) to the end of the stretch, which is the next impact, or the end of the step."""
    outcome, contacts, nv = now.outcome, now.contacts, tree.nv
    assert outcome is not None
    assert contacts is not None
    going, hitting, duration = impacts.going, impacts.hitting, impacts.duration()
    pseudo, before, start = memory(nv), memory(nv), memory(tree.nq)
    for k in loop(nv):
        pseudo[k] = outcome.move[k] - outcome.after[k]
        before[k] = v[k]
    copy(tree.nq, q, start)
    again = impacts.weigh(outcome.contacts, outcome.problem, outcome.first_contact)
    flies = going & ~hitting & ~again
    found, time = first_impact(
        tree, scheme.integrator, impacts, contacts, start, before, outcome.after, pseudo, duration, flies
    )  # fmt: skip
    late = (impacts.hit[0] >= 0.0) & (time <= 0.0) & (impacts.late[0] > 0.5)
    length = select(flies, select(found, time, impacts.left[0]), 0.0)
    part = select(hitting & going, 1.0, select(flies, length / select(flies, duration, 1.0), 0.0))
    moved = memory(tree.nq)
    advance(tree, scheme.integrator, start, before, outcome.after, pseudo, part, length, moved, v)
    for k in loop(tree.nq):
        q[k] = select(flies, moved[k], start[k])
    for k in loop(nv):
        v[k] = select(going & ~again, v[k], before[k])
        acceleration = (outcome.after[k] - before[k]) / select(flies, duration, 1.0)
        impacts.acceleration[k] = select(found, acceleration, impacts.acceleration[k])
    impacts.end_stretch(again, found, length, HITS * tree.nlink + MORE_HITS)
    returns = found & (impacts.returns[0] > 0.5)
    return Passage(going & ~again, length, part, found, impacts.hit[0], found & ~late, returns)
