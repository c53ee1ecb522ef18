"""The forces of constraints along a path, on their own: a step from every state, of which only the forces are kept."""

from __future__ import annotations

from typing import Any

from ..compiler import Scalar, loop, memory
from .arrays import copy, local, zero
from .bodies import body_moments
from .contact import FORCE, Times, write_forces
from .dynamics import forward_dynamics
from .integrate import Midpoint
from .rollout import BackwardSweep, at_time, no_impulses
from .step import Scheme, constrained, midpoint_stages
from .world import World


def forces(
    world: World, scheme: Scheme, q: Any, v: Any, controls: Any, wrenches: Any, out: Any, times: Any, h: Scalar
) -> None:
    """Kernel: `contact.write_forces` of a step from every state."""
    bodies, impulses = body_moments(world), no_impulses(world)
    size = world.constraints.nslot * FORCE + world.constraints.nsingle
    written = memory(size)
    for t in loop(times):
        qt, vt, u = local(world.nq, q.row(t)), local(world.nv, v.row(t)), local(world.nu, controls.row(t))
        if isinstance(scheme.integrator, Midpoint):
            start, _, _, dynamics = midpoint_stages(world, bodies, qt, vt, u, at_time(wrenches, t), h)
            left = 0.5 * h
        else:
            start, left = qt, h
            dynamics = forward_dynamics(world, bodies, qt, vt, vt, u, at_time(wrenches, t), h)
        outcome = constrained(world, scheme, dynamics, start, vt, Times(h, left), impulses)
        assert outcome is not None  # there are constraints
        write_forces(world.constraints, outcome, h, written)
        copy(size, written, out.row(t))


def forces_adjoint(
    world: World, scheme: Scheme, q: Any, v: Any, controls: Any, wrenches: Any, out_bar: Any, q_bar: Any, v_bar: Any,
    controls_bar: Any, wrenches_bar: Any, constants_bar: Any, times: Any, h: Scalar,
) -> None:  # fmt: skip
    """Kernel: the gradient of out_bar · forces."""
    sweep = BackwardSweep(world, scheme, controls, wrenches, controls_bar, wrenches_bar, constants_bar, times + 1, h)
    size = world.constraints.nslot * FORCE + world.constraints.nsingle
    forces_bar = memory(size)
    for t in loop(times):
        copy(size, out_bar.row(t), forces_bar)
        zero(world.nq, sweep.q_bar)
        zero(world.nv, sweep.v_bar)
        sweep.step(t, q.row(t), v.row(t), forces_bar)
        copy(world.nq, sweep.q_bar, q_bar.row(t))
        copy(world.nv, sweep.v_bar, v_bar.row(t))
    sweep.finish_constants(constants_bar)
