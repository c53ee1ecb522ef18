"""The Jacobians of a step of MuJoCo's physics: its adjoint for every velocity after it, behind one forward pass.

The rows of q⁺ = q ⊕ h v⁺ follow from those of v⁺, as in `physics.step_jacobian`. The solution of the constraints, the
factors of their Hessian and those of the damped mass matrix are the same for all rows, and found once.
"""

from __future__ import annotations

from ...ir import loop, workspace
from ..control_source import ControlSource
from ..jacobian_rows import JacobianRows, unit_vector, write_row
from ..math.arrays import zero
from ..scheme import StepContext
from ..state import StateArrays, StepInputs
from ..tree.dynamics_adjoint import Cotangents
from .acceleration import accelerate
from .acceleration_adjoint import accelerated_adjoint, soft_terms
from .integrate import update


def soft_jacobians(ctx: StepContext, source: ControlSource, given: JacobianRows) -> None:
    """Kernel: the Jacobians of a step with q⁺ = q ⊕ h v⁺: of all integrators but Runge-Kutta's."""
    tree, h, nq, nv, nu = ctx.tree, ctx.h, ctx.tree.nq, ctx.tree.nv, ctx.tree.nu
    state = StateArrays.local_copy(tree, given.start)
    inputs = StepInputs(source.control(0, *state), None)
    now = accelerate(tree, ctx.soft, h, state, inputs, given.solution)
    result, terms = update(ctx, now), soft_terms(tree, ctx.soft, h, now)
    for k in loop(given.rows):
        q_bar, v_bar, u_bar, a_bar = workspace(nq), unit_vector(nv, k), workspace(nu), workspace(nv)
        zero(nq, q_bar)
        zero(nu, u_bar)
        for j in loop(nv):
            a_bar[j] = h * v_bar[j]
        cotangents = Cotangents(q_bar, v_bar, u_bar)
        if result is not None:
            a_bar = result.adjoint(a_bar, cotangents)
        accelerated_adjoint(tree, ctx.soft, now, terms, a_bar, cotangents)
        write_row(ctx, given, k, state.q, cotangents)
