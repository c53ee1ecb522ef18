"""One time step."""

from __future__ import annotations

from typing import Any

from ..compiler import Scalar, loop, workspace
from .bodies import Bodies
from .dynamics import Dynamics, forward_dynamics
from .integrate import Integrator, Midpoint, move
from .world import World


def axpy(n: Any, h: Scalar, x: Any, y: Any, target: Any) -> None:
    """target = y + h x"""
    for k in loop(n):
        target[k] = y[k] + h * x[k]


def midpoint_stages(
    world: World, bodies: Bodies, q: Any, v: Any, controls: Any, wrenches: Any, h: Scalar
) -> tuple[Any, Any, Dynamics, Dynamics]:
    """(qₘ, vₘ) and the dynamics at (qₘ, v) and (qₘ, vₘ); see `integrate`."""
    q_mid, v_mid = workspace(world.nq), workspace(world.nv)
    move(world, q, v, 0.5 * h, q_mid)
    first = forward_dynamics(world, bodies, q_mid, v, v, controls, wrenches, 0.5 * h)
    axpy(world.nv, 0.5 * h, first.vdot, v, v_mid)
    second = forward_dynamics(world, bodies, q_mid, v_mid, v, controls, wrenches, 0.5 * h, first.factors)
    return q_mid, v_mid, first, second


def step(
    world: World, bodies: Bodies, integrator: Integrator, q: Any, v: Any, controls: Any, wrenches: Any, h: Scalar
) -> Scalar:
    """Advance q and v (in place) by h; returns how many motors were at a limit."""
    if isinstance(integrator, Midpoint):
        q_mid, _, _, dynamics = midpoint_stages(world, bodies, q, v, controls, wrenches, h)
        axpy(world.nv, h, dynamics.vdot, v, v)
        move(world, q_mid, v, 0.5 * h, q)
    else:
        dynamics = forward_dynamics(world, bodies, q, v, v, controls, wrenches, h)
        axpy(world.nv, h, dynamics.vdot, v, v)
        move(world, q, v, h, q)
    return dynamics.clipped
