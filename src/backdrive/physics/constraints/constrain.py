"""The constrained part of a substep: from the velocities v* of free motion to those that respect all constraints.

v⁺ = v* + A⁻¹ Jᵀ λ          λ solves the `ContactProblem`                          A = M + h D
q⁺ = qₛ ⊕ s h (v⁺ + p)      qₛ and s: the start and the share of the integrator (Euler: q and 1).
                            p = A⁻¹ Jᵀ π moves out of penetrations and closes loops, and is then discarded:
                            positions are corrected without adding velocity, and so without adding energy
"""

from __future__ import annotations

from ...ir import (
    Index,
    Mask,
    Scalar,
    ScalarArray,
    absolute,
    any_lane,
    carry,
    counters,
    is_constant,
    loop,
    maximum,
    memory,
    select,
    to_float,
    when,
    workspace,
)
from ..geometry.collision import find_contacts, follow_contacts
from ..geometry.contact_points import ContactPoints
from ..impacts.impact import Impacts
from ..math import spatial as sp
from ..math.arrays import copy, local, zero
from ..math.linear import TILE
from ..scheme import StepContext
from ..solvers.active_set import CLAMPED, INFINITE
from ..solvers.complementarity import bounds
from ..tree.dynamics import Dynamics, expand
from ..tree.kinematics import turn
from ..tree.poses import link_poses, pose_size
from ..tree.tree import Tree
from .assemble import LinkMotions, RowAssembler
from .correction import correct
from .energy_guard import EnergyGuard
from .friction_cone import FrictionCone
from .outcome import ConstraintOutcome, FreeMotion, LimitRows
from .problem import ContactProblem
from .root_frame import RootFrameFactors


def constrain(
    ctx: StepContext, motion: FreeMotion, adjoint: bool, impacts: Impacts | None = None,
    contacts: ContactPoints | None = None,
) -> ConstraintOutcome:  # fmt: skip
    """From v* to v⁺.

    adjoint: also keep the intermediates that only the adjoint reads. impacts: decide which contacts take part, by the
    contact points at the beginning of the substep. contacts: those points, if the configuration of `motion` is another
    one; their features are then followed to it. None: the points are found at the configuration of `motion`.
    """
    tree, solver, nv = ctx.tree, ctx.contact_model.solver, ctx.tree.nv
    constraints, q = tree.constraints, None
    if not is_constant(constraints.nsingle, 0):  # there may be rows that depend on q directly
        q = memory(tree.nq)
        copy(tree.nq, motion.q, q)
    links = link_motions(tree, motion, impacts)
    factors = RootFrameFactors(tree, motion.dynamics.frames, motion.dynamics.factors, constraints.dim)
    budget = None if impacts is None else impacts.budget
    problem = ContactProblem(constraints, factors, nv, budget)
    candidates = candidate_points(ctx, motion, links, impacts, contacts)
    found = candidates if impacts is None else candidates.of_those_that_act()
    v_next, move, change, pseudo = (memory(nv) for _ in range(4))
    copy(nv, motion.free, v_next)
    rows = RowAssembler(ctx, motion._replace(free=v_next), links, problem, impacts)
    limits = None
    if q is not None:
        rows.equalities()
        rows.joint_frictions()
        first_limit = problem.count
        limits = LimitRows(*rows.limits(q), first_limit)
        problem.delassus.fill_columns(1)
    first_contact = problem.count
    rows.contacts(found)
    problem.delassus.fill_columns(constraints.block, constraints.grounded)
    caused = pseudo_caused = None
    if adjoint:
        caused, pseudo_caused = (memory((tree.nlink + 1) * 6) for _ in range(2))
        zero((tree.nlink + 1) * 6, caused)
        pseudo_caused.put(0, sp.ZERO6)
    status = memory(4)  # residual, contacts that press, depth, fingerprint of the active set
    zero(4, status)
    cone, slips = None, rows.slips
    round_cones: Mask = True if ctx.contact_model.round_cones else impacts is not None and impacts.hitting
    if slips is not None and round_cones is not False and constraints.directions == 2:
        cone = FrictionCone(problem, found, first_contact, slips, round_cones)
        slips = cone.slips
    guard = EnergyGuard(problem, solver, tree.nlink, cone)
    corrected = counters(1)
    correction, pushes = (memory(constraints.nimpulse + TILE) for _ in range(2))
    corrected[0] = 0
    outcome = ConstraintOutcome(
        problem, found, candidates, first_contact, slips, cone, motion.free, v_next, move, change, pseudo, correction,
        pushes, corrected, guard, q, limits, caused, pseudo_caused,
    )  # fmt: skip
    going: Mask = True if impacts is None else impacts.going
    for _ in when(problem.count > 0):
        count = problem.count
        problem.close()
        if cone is not None:
            cone.begin()
        status[0] = guard.solve(going)
        apply_impulses(tree, motion, problem, problem.impulse, v_next, caused)
        if not adjoint:
            status[1] = rows.pressing(found, first_contact)
            status[3] = active_set_fingerprint(problem, count, constraints.bounces) + 0.5 * guard.guarded[0]
            if cone is not None:
                status[3] = status[3] + select(cone.where & (cone.round[0] < 0.5), 0.25, 0.0)
    if not adjoint:
        status[2] = (contacts or candidates).depth()
    copy(nv, v_next, move)
    if adjoint:
        for k in loop(nv):
            change[k] = v_next[k] - motion.free[k]
    for _ in when(problem.count > 0):
        worst = carry(1)
        worst[0] = 0.0
        for r in loop(problem.count):
            worst[0] = maximum(worst[0], absolute(problem.violation[r]))
        # Equations are corrected even where they are not violated: the derivative of the correction is not zero.
        for _ in when(any_lane(worst[0] > 0.0) | (constraints.head("nequality") > 0)):
            corrected[0] = 1
            failed = correct(problem, solver.erp, motion.times.left, correction, pushes)
            status[0] = select(failed & (worst[0] > 0.0), INFINITE, status[0])
            zero(nv, pseudo)
            apply_impulses(tree, motion, problem, correction, pseudo, pseudo_caused)
            for k in loop(nv):
                move[k] = move[k] + pseudo[k]
            if not adjoint:
                for r in loop(problem.count):
                    status[3] = status[3] + select(pushes[r] > 0.5, 3.0 * to_float(problem.slot[r] + 1), 0.0)
    outcome.residual, outcome.touching, outcome.depth, outcome.modes = (status[k] for k in range(4))
    return outcome


def link_motions(tree: Tree, motion: FreeMotion, impacts: Impacts | None) -> LinkMotions:
    """The poses of the links, with their twists for v*, and for v where contacts read it.

    In an impact there is no v*: there the first twist is that of the acceleration before the impact, which tells
    whether forces press a contact.
    """
    velocities = [motion.free, motion.v] if tree.constraints.reads_before else [motion.free]
    if impacts is not None:
        velocities = [impacts.ahead(motion.free), motion.v]
    poses = link_poses(tree, motion.q, *velocities, indexed=True)
    return LinkMotions(poses, pose_size(len(velocities)))


def candidate_points(
    ctx: StepContext, motion: FreeMotion, links: LinkMotions, impacts: Impacts | None, contacts: ContactPoints | None
) -> ContactPoints:
    """The contact points that may press in this substep."""
    constraints, times = ctx.tree.constraints, motion.times
    reach = times.left if impacts is None else times.h
    if contacts is None:
        found = find_contacts(constraints, links.poses, links.width, reach, impacts is not None)
    else:
        found = follow_contacts(constraints, contacts, links.poses, links.width)
    if impacts is not None:
        if contacts is None:
            impacts.classify(constraints, found, links.poses, links.width)
        impacts.apply(found)
    return found


def active_set_fingerprint(problem: ContactProblem, rows: Index, bounces: bool) -> Scalar:
    """A number that changes when a row changes its place in the active set, or begins or ceases to bounce: the sum of
    the rows' codes, each times the number of its slot."""
    total = carry(1)
    total[0] = 0.0
    for r in loop(rows):
        low, high = bounds(problem, problem.impulse, r)
        x = problem.impulse[r]
        code = select(x <= low + CLAMPED * absolute(low), 0.0, select(x >= high - CLAMPED * high, 2.0, 1.0))
        if bounces:
            code = code + 6.0 * problem.bounces[r]
        total[0] = total[0] + code * to_float(problem.slot[r] + 1)
    return total[0]


def apply_impulses(
    tree: Tree, motion: FreeMotion, problem: ContactProblem, impulse: ScalarArray, velocity: ScalarArray,
    caused: ScalarArray | None,
) -> None:  # fmt: skip
    """velocity += A⁻¹ Jᵀ λ; the twists of the links that belong to this change go to `caused`, if it is not None."""
    dynamics: Dynamics = motion.dynamics
    reduced, change = memory(tree.nv), workspace(tree.nv)
    problem.delassus.effect(impulse, reduced)
    z = local(tree.nv, reduced)
    motions = expand(tree, dynamics.frames, dynamics.factors, z)
    turn(tree, motion.q, z, change, back=True)
    for k in loop(tree.nv):
        velocity[k] = velocity[k] + change[k]
    if caused is not None:
        for i in tree.links():
            caused.put(i + 1, motions.get(i + 1, 6))
