"""The adjoint of a step of MuJoCo's physics."""

from __future__ import annotations

from dataclasses import replace

from ...ir import ScalarArray, loop, memory, rolled, workspace
from ..integrators.base import move_adjoint
from ..math.arrays import add_to, axpy, copy, local, zero
from ..scheme import StepContext
from ..state import StateArrays, StepInputs
from ..tree.dynamics_adjoint import Cotangents
from .acceleration import accelerate
from .acceleration_adjoint import accelerate_adjoint
from .forces import WHOLE, ForceBars, Share, soft_forces_adjoint
from .integrate import update
from .rates import displacement_rates_adjoint
from .settings import STAGES
from .step import RungeKuttaStages, stage_length, stage_weight


def soft_step_adjoint(
    ctx: StepContext, state: StateArrays, inputs: StepInputs, cotangents: Cotangents,
    forces_bar: ScalarArray | None = None, solution: ScalarArray | None = None,
) -> None:  # fmt: skip
    """From the cotangents after a step from `state` to those before it: those of q and v are replaced in place, others
    are added to. forces_bar: cotangents of the forces of constraints (`forces`). solution: that of the step, if it was
    kept; otherwise it is found again."""
    if ctx.soft.integrator == "rk4":
        stages = RungeKuttaStages(ctx, state, inputs, known=solution)
        _runge_kutta_adjoint(ctx, stages, state, inputs, cotangents, forces_bar)
        return
    tree, h, nq, nv = ctx.tree, ctx.h, ctx.tree.nq, ctx.tree.nv
    now = accelerate(tree, ctx.soft, h, state, inputs, solution)
    result = update(ctx, now)
    v_next, q_bar, v_bar, step_bar, a_bar = (workspace(n) for n in (nv, nq, nv, nv, nv))
    axpy(nv, h, now.dynamics.vdot if result is None else result.acceleration, state.v, v_next)
    move_adjoint(tree, state.q, v_next, h, cotangents.q, q_bar, step_bar)
    for k in loop(nv):
        v_bar[k] = cotangents.v[k] + h * step_bar[k]
        a_bar[k] = h * v_bar[k]
    inside = replace(cotangents, q=q_bar, v=v_bar)
    if result is not None:
        a_bar = result.adjoint(a_bar, inside)
    if forces_bar is not None:
        given = ForceBars(tree.constraints, forces_bar, WHOLE)
        soft_forces_adjoint(tree, ctx.soft, h, now, given, a_bar, inside)
    accelerate_adjoint(tree, ctx.soft, h, now, a_bar, inside)
    copy(nq, q_bar, cotangents.q)
    copy(nv, v_bar, cotangents.v)


def _runge_kutta_adjoint(
    ctx: StepContext, stages: RungeKuttaStages, state: StateArrays, inputs: StepInputs, cotangents: Cotangents,
    forces_bar: ScalarArray | None,
) -> None:  # fmt: skip
    tree, h, nq, nv = ctx.tree, ctx.h, ctx.tree.nq, ctx.tree.nv
    # The cotangents of the state before the step; of v⁺; of the displacement in the whole step; and of the displacement
    # and the velocity of the stage after the current one.
    q_bar, v_bar, after, whole, next_step, next_v = (memory(n) for n in (nq, nv, nv, nv, nv, nv))
    if ctx.soft.last_stage:
        last = local(nv, stages.displacement.at((STAGES - 1) * nv))
        move_adjoint(tree, state.q, last, 1.0, cotangents.q, q_bar, next_step)
        copy(nv, cotangents.v, next_v)
        for array in (v_bar, after, whole):
            zero(nv, array)
    else:
        move_adjoint(tree, state.q, local(nv, stages.mean_rate), h, cotangents.q, q_bar, whole)
        copy(nv, cotangents.v, v_bar)
        copy(nv, cotangents.v, after)
        zero(nv, next_step)
        zero(nv, next_v)
    for s in rolled(ctx.soft.evaluations, reverse=True):
        here, displacement = stages.state(tree, state, s), local(nv, stages.displacement.at(s * nv))
        now = accelerate(tree, ctx.soft, h, here, inputs, stages.w.at(s * nv))
        weight, length = stage_weight(s), stage_length(s)
        rate_bar, a_bar, own_v, by_rate, by_move = (workspace(nv) for _ in range(5))
        own_q, start_bar = workspace(nq), workspace(nq)
        for k in loop(nv):
            rate_bar[k] = h * (weight * whole[k] + length * next_step[k])
            a_bar[k] = h * (weight * after[k] + length * next_v[k])
            v_bar[k] = v_bar[k] + next_v[k]
        displacement_rates_adjoint(tree, displacement, here.v, rate_bar, by_rate, own_v)
        zero(nq, own_q)
        inside = replace(cotangents, q=own_q, v=own_v)
        if forces_bar is not None:
            given = ForceBars(tree.constraints, forces_bar, Share.of_stage(s, weight))
            soft_forces_adjoint(tree, ctx.soft, h, now, given, a_bar, inside)
        accelerate_adjoint(tree, ctx.soft, h, now, a_bar, inside)
        move_adjoint(tree, state.q, displacement, 1.0, own_q, start_bar, by_move)
        add_to(nq, start_bar, q_bar)
        copy(nv, own_v, next_v)
        for k in loop(nv):
            next_step[k] = by_rate[k] + by_move[k]
    add_to(nv, next_v, v_bar)
    copy(nq, q_bar, cotangents.q)
    copy(nv, v_bar, cotangents.v)
