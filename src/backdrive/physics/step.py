"""One time step: free motion, then what constraints make of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..compiler import Scalar, workspace
from .arrays import axpy, copy
from .bodies import Bodies
from .contact import Constrained, Stepping, Times, constrain
from .dynamics import Dynamics, forward_dynamics
from .integrate import Integrator, Midpoint, move
from .spatial import Vec
from .world import World


@dataclass(frozen=True)
class Scheme:
    """How to step: the integrator, and how constraints are treated (None: there are none)."""

    integrator: Integrator
    stepping: Stepping | None = None


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


def constrained(
    world: World, scheme: Scheme, dynamics: Dynamics, q: Any, v: Any, times: Times, impulses: Any, adjoint: bool = False
) -> Constrained | None:
    """What constraints make of the free motion v + h v̇; None if there are none."""
    if world.constraints is None or scheme.stepping is None:
        return None
    free = workspace(world.nv)
    axpy(world.nv, times.h, dynamics.vdot, v, free)
    return constrain(world, scheme.stepping, dynamics, q, v, free, times, impulses, adjoint)


def step(
    world: World, bodies: Bodies, scheme: Scheme, q: Any, v: Any, controls: Any, wrenches: Any, h: Scalar, impulses: Any
) -> Vec:
    """Advance q and v (in place) by h; returns the numbers of its status that are not about being finite.

    How many motors were at a limit; with constraints also the residual, the contacts that press, the deepest
    penetration, and a number for the modes of all rows. `impulses`: what the solver starts from, and then those of this
    step (None: no constraints).
    """
    if isinstance(scheme.integrator, Midpoint):
        start, _, _, dynamics = midpoint_stages(world, bodies, q, v, controls, wrenches, h)
        left = 0.5 * h
    else:
        start, left = q, h
        dynamics = forward_dynamics(world, bodies, q, v, v, controls, wrenches, h)
    outcome = constrained(world, scheme, dynamics, start, v, Times(h, left), impulses)
    if outcome is None:
        axpy(world.nv, h, dynamics.vdot, v, v)
        move(world, start, v, left, q)
        return (dynamics.clipped,)
    copy(world.nv, outcome.after, v)
    move(world, start, outcome.move, left, q)
    return (dynamics.clipped, outcome.residual, outcome.touching, outcome.depth, outcome.modes)
