"""Inverse dynamics τ = M(q) v̇ + c(q, v), forward dynamics as a function of its own, and their adjoints."""

from __future__ import annotations

from typing import Any

from ...ir import is_constant, loop, workspace
from ...schema import layout
from ..math import spatial as sp
from ..math.arrays import copy, gradient_memory, zero
from ..math.spatial import BODY, ZERO6
from .bodies import Bodies, body_moments
from .dynamics import Dynamics, forward_dynamics, unforced_motion
from .dynamics_adjoint import Bars, bodies_adjoint, dynamics_adjoint, power_adjoint
from .kinematics import turn
from .world import World


def accelerate(world: World, dynamics: Dynamics, z: Any) -> Any:
    """The motions of the links that z causes, X aₚ + S z: an array over links."""
    frames, caused = dynamics.frames, world.over_links(6)
    caused.put(0, ZERO6)
    for i in world.links():
        b = world.velocity(i)
        caused.put(i + 1, sp.motion_to_child(*frames.pose(i), caused.get(world.parent(i), 6)))
        for k in loop(world.dofs(i)):
            step = sp.scale(z[b + k], frames.S.get(b + k, 6))
            caused.accumulate(i + 1, step)
    return caused


def inverse_dynamics(world: World, bodies: Bodies, q: Any, v: Any, vdot: Any, tau: Any) -> Dynamics:
    """Fill tau [nv] with M v̇ + c (recursive Newton-Euler; the armature is part of M)."""
    dynamics = Dynamics()
    motion = unforced_motion(world, bodies, q, v)
    frames = dynamics.frames = motion.frames
    dynamics.accelerations, dynamics.vdot = motion.accelerations, vdot
    z = workspace(world.nv)
    turn(world, q, vdot, z)
    caused, forces = accelerate(world, dynamics, z), world.over_links(6)
    forces.put(0, ZERO6)
    for i in world.links():
        dynamics.accelerations.accumulate(i + 1, caused.get(i + 1, 6))
        acceleration = dynamics.accelerations.get(i + 1, 6)
        field = sp.rigid_field(frames.angular_velocity.get(i + 1, 3), acceleration[:3])
        forces.put(i + 1, sp.newton_euler(bodies.moments.get(i + 1, BODY), acceleration[3:], field))
    for i in world.links(reverse=True):
        b, armature, force = world.velocity(i), world.link(i).armature, forces.get(i + 1, 6)
        for k in loop(world.dofs(i)):
            tau[b + k] = sp.dot(frames.S.get(b + k, 6), force) + armature * z[b + k]
        if not is_constant(world.parent(i), 0):  # the world takes up anything
            forces.accumulate(world.parent(i), sp.force_to_parent(*frames.pose(i), force))
    turn(world, q, tau, tau, back=True)
    return dynamics


def inverse(world: World, q: Any, v: Any, vdot: Any, tau: Any) -> None:
    """Kernel: τ of q, v, v̇."""
    result = workspace(world.nv)
    inverse_dynamics(world, body_moments(world), q, v, vdot, result)
    copy(world.nv, result, tau)


def inverse_adjoint(
    world: World, q: Any, v: Any, vdot: Any, tau_bar: Any, q_bar: Any, v_bar: Any, vdot_bar: Any, constants_bar: Any
) -> None:
    """Kernel: the gradient of τ_bar · τ. M is symmetric: with respect to v̇ it is M τ_bar."""
    bodies = body_moments(world)
    unused, z = workspace(world.nv), workspace(world.nv)
    dynamics = inverse_dynamics(world, bodies, q, v, vdot, unused)
    turn(world, q, tau_bar, z)
    N = accelerate(world, dynamics, z)
    bars = _new_bars(world, constants_bar)
    bars.vdot = workspace(world.nv)
    zero(world.nv, bars.vdot)
    power_adjoint(world, bodies, q, v, vdot, dynamics, tau_bar, N, None, 1.0, bars)
    for i in world.links():
        b, armature = world.velocity(i), world.link(i).armature
        for k in loop(world.dofs(i)):
            bars.vdot[b + k] = bars.vdot[b + k] + armature * tau_bar[b + k]
            if bars.constants is not None:
                record = bars.constants.at(i * layout.LINK)
                record[layout.ARMATURE] = record[layout.ARMATURE] + tau_bar[b + k] * vdot[b + k]
    copy(world.nv, bars.vdot, vdot_bar)
    _write_bars(world, bodies, bars, q_bar, v_bar, constants_bar)


def forward(world: World, q: Any, v: Any, controls: Any, wrenches: Any, vdot: Any) -> None:
    """Kernel: v̇ of q, v, controls and wrenches."""
    result = forward_dynamics(world, body_moments(world), q, v, v, controls, wrenches, 0.0)
    copy(world.nv, result.vdot, vdot)


def forward_adjoint(
    world: World, q: Any, v: Any, controls: Any, wrenches: Any, vdot_bar: Any,
    q_bar: Any, v_bar: Any, controls_bar: Any, wrenches_bar: Any, constants_bar: Any,
) -> None:  # fmt: skip
    """Kernel: the gradient of v̇_bar · v̇."""
    bodies = body_moments(world)
    dynamics = forward_dynamics(world, bodies, q, v, v, controls, wrenches, 0.0)
    bars = _new_bars(world, constants_bar)
    bars.controls = workspace(world.nu)
    zero(world.nu, bars.controls)
    if wrenches_bar is not None:
        bars.wrenches = workspace(world.nlink * 6)
        zero(world.nlink * 6, bars.wrenches)
    dynamics_adjoint(world, bodies, q, v, v, controls, wrenches, 0.0, dynamics, vdot_bar, bars.v, bars)
    copy(world.nu, bars.controls, controls_bar)
    if wrenches_bar is not None:
        copy(world.nlink * 6, bars.wrenches, wrenches_bar)
    _write_bars(world, bodies, bars, q_bar, v_bar, constants_bar)


def _new_bars(world: World, constants_bar: Any) -> Bars:
    bars = Bars(workspace(world.nq), workspace(world.nv))
    zero(world.nq, bars.q)
    zero(world.nv, bars.v)
    if constants_bar is not None:
        bars.constants = gradient_memory(constants_bar, world.nconst)
        bars.moments = workspace((world.nlink + 1) * BODY)
        zero(world.nconst, bars.constants)
        zero((world.nlink + 1) * BODY, bars.moments)
    return bars


def _write_bars(world: World, bodies: Bodies, bars: Bars, q_bar: Any, v_bar: Any, constants_bar: Any) -> None:
    copy(world.nq, bars.q, q_bar)
    copy(world.nv, bars.v, v_bar)
    if constants_bar is not None:
        bodies_adjoint(world, bodies, bars.moments, bars.constants)
        copy(world.nconst, bars.constants, constants_bar)
