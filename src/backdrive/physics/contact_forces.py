"""The forces of constraints along a path, on their own: a step from every state, of which only the forces are kept."""

from __future__ import annotations

from typing import Any

from ..ir import Scalar, loop, memory
from .constraints.constrain import FORCE
from .math.arrays import copy, zero
from .rollout import BackwardSweep, Driver, at_time, no_impulses
from .step import Scheme, step
from .tree.bodies import body_moments
from .tree.world import World


def forces(
    world: World, scheme: Scheme, q: Any, v: Any, driver: Driver, wrenches: Any, out: Any, times: Any, h: Scalar
) -> None:
    """Kernel: `contact.add_forces` of a step from every state."""
    bodies, impulses = body_moments(world), no_impulses(world)
    size = world.constraints.nslot * FORCE + world.constraints.nsingle
    written, qt, vt = memory(size), memory(world.nq), memory(world.nv)
    for t in loop(times):
        copy(world.nq, q.row(t), qt)
        copy(world.nv, v.row(t), vt)
        u = driver.control(t, qt, vt)
        zero(size, written)
        step(world, bodies, scheme, qt, vt, u, at_time(wrenches, t), h, impulses, written)
        copy(size, written, out.row(t))


def forces_adjoint(
    world: World, scheme: Scheme, q: Any, v: Any, driver: Driver, wrenches: Any, out_bar: Any, q_bar: Any, v_bar: Any,
    wrenches_bar: Any, constants_bar: Any, times: Any, h: Scalar,
) -> None:  # fmt: skip
    """Kernel: the gradient of out_bar · forces."""
    sweep = BackwardSweep(world, scheme, driver, wrenches, wrenches_bar, constants_bar, times + 1, h)
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
