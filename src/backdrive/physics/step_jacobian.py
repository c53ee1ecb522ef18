"""The Jacobians of a step: its adjoint for every velocity after it, behind one forward pass.

With v⁺ and the correction p of positions (`constrain`), q⁺ = q ⊕ h (v⁺ + p): the rows of q⁺ follow from those of v⁺ and
p by the derivatives of ⊕, which the caller knows (`runtime.tangent`). So nv cotangents are enough, and nv more where
positions are corrected. The active set of the contacts and the factors of their matrix are the same for all rows, and
found once.
"""

from __future__ import annotations

from ..ir import loop, memory, when, workspace
from .constraints.constrain_adjoint import ConstraintAdjoint
from .constraints.correction import factor_correction
from .constraints.slip_adjoint import free_motion_adjoint
from .control_source import ControlSource
from .jacobian_rows import JacobianRows, unit_vector, write_covector, write_row
from .math.arrays import zero
from .scheme import StepContext
from .soft.step_jacobian import soft_jacobians
from .state import StateArrays, StepInputs
from .step import substep
from .step_adjoint import constrained_dynamics, correction_adjoint, guard_adjoint
from .tree.dynamics_adjoint import Cotangents, DynamicsSeeds, dynamics_adjoint


def jacobians(ctx: StepContext, source: ControlSource, given: JacobianRows) -> None:
    """Kernel: the Jacobians of a step of an integrator with q⁺ = q ⊕ h v⁺, without impacts."""
    if ctx.scheme.soft is not None:
        soft_jacobians(ctx, source, given)
        return
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
        write_row(ctx, given, k, q, cotangents, None if pushed is None else pushed.at(k * nv))
