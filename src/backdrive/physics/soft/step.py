"""One step of MuJoCo's physics, by the integrators that act on accelerations.

euler          v⁺ = v + h â, q⁺ = q ⊕ h v⁺, where (M + h D) â = M a, and D is the damping of the joints
implicitfast   the same, and D is that of the motors, too
rk4            the classical Runge-Kutta method of order four
"""

from __future__ import annotations

from ...ir import Scalar, loop, memory, workspace
from ..integrators.base import move
from ..math.arrays import axpy, copy
from ..scheme import StepContext
from ..state import StateArrays, StepInputs
from ..tree.dynamics import expand, factor, reduce
from ..tree.kinematics import turn
from .acceleration import Acceleration, accelerate


def soft_step(ctx: StepContext, state: StateArrays, inputs: StepInputs) -> tuple[Scalar, ...]:
    """Advance the state (in place) by h; returns the numbers of a `StepStatus`."""
    settings = ctx.soft
    if settings.integrator == "rk4":
        return _runge_kutta(ctx, state, inputs)
    tree, h = ctx.tree, ctx.h
    now = accelerate(tree, settings, h, state, inputs)
    status = (now.dynamics.clipped, *now.status())
    acceleration = damped_acceleration(ctx, now)
    axpy(tree.nv, h, acceleration, state.v, state.v)
    move(tree, state.q, state.v, h, state.q)
    return status


def damped_acceleration(ctx: StepContext, now: Acceleration):
    """â [nv] of (M + h D) â = M a: it is a - x with (M + h D) x = h D a."""
    tree, h, nv = ctx.tree, ctx.h, ctx.tree.nv
    a, result, braked, x = now.dynamics.vdot, workspace(nv), workspace(nv), workspace(nv)
    damping = implicit_damping(ctx, now)
    if damping is None:
        return a
    for k in loop(nv):
        braked[k] = h * damping[k] * a[k]
    factors = factor(tree, now.dynamics.frames, damping, h)
    turn(tree, now.inputs.q, braked, braked)
    reduce(tree, now.dynamics.frames, factors, braked, x)
    expand(tree, now.dynamics.frames, factors, x)
    turn(tree, now.inputs.q, x, x, back=True)
    for k in loop(nv):
        result[k] = a[k] - x[k]
    return result


def implicit_damping(ctx: StepContext, now: Acceleration):
    """The diagonal of D, [nv]; None if no damping is implicit."""
    settings, tree = ctx.soft, ctx.tree
    if settings.integrator == "implicitfast":
        return now.dynamics.damping
    if not settings.eulerdamp:
        return None
    damping = workspace(tree.nv)
    for i in tree.links():
        b, own = tree.v_start(i), tree.link(i).damping
        for k in loop(tree.dofs(i)):
            damping[b + k] = own
    return damping


WEIGHTS = (1.0 / 6.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 6.0)
STAGES = (0.5, 0.5, 1.0)


def _runge_kutta(ctx: StepContext, state: StateArrays, inputs: StepInputs) -> tuple[Scalar, ...]:
    raise NotImplementedError
