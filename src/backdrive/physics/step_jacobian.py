"""The Jacobians of a step: its adjoint for every velocity after it, behind one forward pass.

With v⁺ and the correction p of positions (`constrain`), q⁺ = q ⊕ h (v⁺ + p): the rows of q⁺ follow from those of v⁺ and
p by the derivatives of ⊕, which the caller knows (`runtime.tangent`). So nv cotangents are enough, and nv more where
positions are corrected. The active set of the contacts and the factors of their matrix are the same for all rows, and
found once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..ir import Index, ScalarArray, TimedArray, loop, memory, select, switch, to_float, when, workspace
from .constraints.constrain_adjoint import ConstraintAdjoint
from .constraints.correction import factor_correction
from .constraints.slip_adjoint import free_motion_adjoint
from .math.arrays import copy, zero
from .policy import ControlSource
from .scheme import StepContext
from .state import StateArrays, StepInputs
from .step import substep
from .step_adjoint import constrained_dynamics, correction_adjoint, guard_adjoint
from .tree.dynamics_adjoint import Cotangents, DynamicsSeeds, dynamics_adjoint
from .tree.joints import JOINTS, JointModel
from .tree.tree import Tree


@dataclass(frozen=True)
class JacobianRows:
    """Rows of the caller. after, step: nv rows (`rows`) of 2 nv + nu numbers, for displacements of q, for v, and for
    the controls: the derivatives of the elements of v⁺, and of h (v⁺ + p)."""

    start: StateArrays
    after: TimedArray
    step: TimedArray
    rows: Index


def jacobians(ctx: StepContext, source: ControlSource, given: JacobianRows) -> None:
    """Kernel: the Jacobians of a step of an integrator with q⁺ = q ⊕ h v⁺, without impacts."""
    tree, h = ctx.tree, ctx.h
    nq, nv, nu = tree.nq, tree.nv, tree.nu
    state = StateArrays.local_copy(tree, given.start)
    q, v = state
    now = substep(ctx, state, StepInputs(source.control(0, *state), None), h, adjoint=True)
    inputs, dynamics, outcome, constraints = now.stages.inputs, now.stages.dynamics, now.outcome, None
    pushed = None  # the derivatives of p by displacements of q
    if outcome is not None:
        dynamics = constrained_dynamics(tree, now, v)
        constraints = ConstraintAdjoint(tree, ctx.contact_model, outcome, now.times, apart=True)
        pushed = memory(nv * nv)
        zero(nv * nv, pushed)
        for _ in when(outcome.corrected[0] > 0):
            factor_correction(outcome.problem, outcome.pushes)
            for k in loop(given.rows):
                q_bar, v_bar, move_bar = memory(nq), workspace(nv), unit_vector(nv, k)
                zero(nq, q_bar)
                zero(nv, v_bar)
                constraints.forget_points()
                correction_adjoint(tree, dynamics, constraints, inputs, move_bar, Cotangents(q_bar, v_bar))
                constraints.add_corrections(q, q_bar)
                write_covector(tree, q, q_bar, pushed.at(k * nv))
        constraints.find_active_set()
    for k in loop(given.rows):
        q_bar, v_bar, u_bar, vdot_bar = workspace(nq), unit_vector(nv, k), workspace(nu), workspace(nv)
        zero(nq, q_bar)
        zero(nu, u_bar)
        for j in loop(nv):
            vdot_bar[j] = h * v_bar[j]
        if constraints is not None:
            constraints.forget_points()
        cotangents = Cotangents(q_bar, v_bar, u_bar)
        dynamics_adjoint(tree, inputs, dynamics, DynamicsSeeds(vdot_bar, v_bar), cotangents, constraints)
        if constraints is not None:
            guard_adjoint(tree, dynamics, constraints, inputs, cotangents)
            free_motion_adjoint(constraints.slips, ctx.integrator, now.stages, h, v_bar, cotangents)
        by_q = workspace(nv)
        write_covector(tree, q, q_bar, by_q)
        of_velocity, of_step = given.after.row(k), given.step.row(k)
        copy(nv, by_q, of_velocity)
        copy(nv, v_bar, of_velocity.at(nv))
        copy(nu, u_bar, of_velocity.at(2 * nv))
        for j in loop(nv):
            of_step[j] = h * (by_q[j] if pushed is None else by_q[j] + pushed.at(k * nv)[j])
            of_step[nv + j] = h * v_bar[j]
        for j in loop(nu):
            of_step[2 * nv + j] = h * u_bar[j]


def write_covector(tree: Tree, q: ScalarArray, q_bar: ScalarArray, target: ScalarArray) -> None:
    """target [nv] = the cotangent of displacements of q, from that of q [nq]."""

    def one(joint: JointModel, i: Index) -> None:
        a = tree.q_start(i)
        target.at(tree.v_start(i)).put(0, joint.covector(q.at(a).get(0, joint.nq), q_bar.at(a).get(0, joint.nq)))

    for i in tree.links():
        switch(tree.kind(i), [partial(one, joint) for joint in JOINTS], i)


def unit_vector(n: Index, k: Index) -> ScalarArray:
    vector = workspace(n)
    for j in loop(n):
        vector[j] = select(to_float(k - j) == 0.0, 1.0, 0.0)
    return vector
