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
from .dynamics_adjoint import Cotangents, bodies_adjoint, dynamics_adjoint, power_adjoint
from .kinematics import turn
from .tree import Tree


def accelerate(tree: Tree, dynamics: Dynamics, z: Any) -> Any:
    """The motions of the links that z causes, X aₚ + S z: an array over links."""
    frames, caused = dynamics.frames, tree.over_links(6)
    caused.put(0, ZERO6)
    for i in tree.links():
        b = tree.v_start(i)
        caused.put(i + 1, sp.motion_to_child(*frames.pose(i), caused.get(tree.parent(i), 6)))
        for k in loop(tree.dofs(i)):
            step = sp.scale(z[b + k], frames.S.get(b + k, 6))
            caused.accumulate(i + 1, step)
    return caused


def inverse_dynamics(tree: Tree, bodies: Bodies, q: Any, v: Any, vdot: Any, tau: Any) -> Dynamics:
    """Fill tau [nv] with M v̇ + c (recursive Newton-Euler; the armature is part of M)."""
    dynamics = Dynamics()
    motion = unforced_motion(tree, bodies, q, v)
    frames = dynamics.frames = motion.frames
    dynamics.accelerations, dynamics.vdot = motion.accelerations, vdot
    z = workspace(tree.nv)
    turn(tree, q, vdot, z)
    caused, forces = accelerate(tree, dynamics, z), tree.over_links(6)
    forces.put(0, ZERO6)
    for i in tree.links():
        dynamics.accelerations.accumulate(i + 1, caused.get(i + 1, 6))
        acceleration = dynamics.accelerations.get(i + 1, 6)
        field = sp.rigid_field(frames.angular_velocity.get(i + 1, 3), acceleration[:3])
        forces.put(i + 1, sp.newton_euler(bodies.moments.get(i + 1, BODY), acceleration[3:], field))
    for i in tree.links(reverse=True):
        b, armature, force = tree.v_start(i), tree.link(i).armature, forces.get(i + 1, 6)
        for k in loop(tree.dofs(i)):
            tau[b + k] = sp.dot(frames.S.get(b + k, 6), force) + armature * z[b + k]
        if not is_constant(tree.parent(i), 0):  # the world takes up anything
            forces.accumulate(tree.parent(i), sp.force_to_parent(*frames.pose(i), force))
    turn(tree, q, tau, tau, back=True)
    return dynamics


def inverse(tree: Tree, q: Any, v: Any, vdot: Any, tau: Any) -> None:
    """Kernel: τ of q, v, v̇."""
    result = workspace(tree.nv)
    inverse_dynamics(tree, body_moments(tree), q, v, vdot, result)
    copy(tree.nv, result, tau)


def inverse_adjoint(
    tree: Tree, q: Any, v: Any, vdot: Any, tau_bar: Any, q_bar: Any, v_bar: Any, vdot_bar: Any, constants_bar: Any
) -> None:
    """Kernel: the gradient of τ_bar · τ. M is symmetric: with respect to v̇ it is M τ_bar."""
    bodies = body_moments(tree)
    unused, z = workspace(tree.nv), workspace(tree.nv)
    dynamics = inverse_dynamics(tree, bodies, q, v, vdot, unused)
    turn(tree, q, tau_bar, z)
    N = accelerate(tree, dynamics, z)
    bars = _new_bars(tree, constants_bar)
    bars.vdot = workspace(tree.nv)
    zero(tree.nv, bars.vdot)
    power_adjoint(tree, bodies, q, v, vdot, dynamics, tau_bar, N, None, 1.0, bars)
    for i in tree.links():
        b, armature = tree.v_start(i), tree.link(i).armature
        for k in loop(tree.dofs(i)):
            bars.vdot[b + k] = bars.vdot[b + k] + armature * tau_bar[b + k]
            if bars.constants is not None:
                record = bars.constants.at(i * layout.LINK)
                record[layout.ARMATURE] = record[layout.ARMATURE] + tau_bar[b + k] * vdot[b + k]
    copy(tree.nv, bars.vdot, vdot_bar)
    _write_bars(tree, bodies, bars, q_bar, v_bar, constants_bar)


def forward(tree: Tree, q: Any, v: Any, controls: Any, wrenches: Any, vdot: Any) -> None:
    """Kernel: v̇ of q, v, controls and wrenches."""
    result = forward_dynamics(tree, body_moments(tree), q, v, v, controls, wrenches, 0.0)
    copy(tree.nv, result.vdot, vdot)


def forward_adjoint(
    tree: Tree, q: Any, v: Any, controls: Any, wrenches: Any, vdot_bar: Any,
    q_bar: Any, v_bar: Any, controls_bar: Any, wrenches_bar: Any, constants_bar: Any,
) -> None:  # fmt: skip
    """Kernel: the gradient of v̇_bar · v̇."""
    bodies = body_moments(tree)
    dynamics = forward_dynamics(tree, bodies, q, v, v, controls, wrenches, 0.0)
    bars = _new_bars(tree, constants_bar)
    bars.controls = workspace(tree.nu)
    zero(tree.nu, bars.controls)
    if wrenches_bar is not None:
        bars.wrenches = workspace(tree.nlink * 6)
        zero(tree.nlink * 6, bars.wrenches)
    dynamics_adjoint(tree, bodies, q, v, v, controls, wrenches, 0.0, dynamics, vdot_bar, bars.v, bars)
    copy(tree.nu, bars.controls, controls_bar)
    if wrenches_bar is not None:
        copy(tree.nlink * 6, bars.wrenches, wrenches_bar)
    _write_bars(tree, bodies, bars, q_bar, v_bar, constants_bar)


def _new_bars(tree: Tree, constants_bar: Any) -> Cotangents:
    bars = Cotangents(workspace(tree.nq), workspace(tree.nv))
    zero(tree.nq, bars.q)
    zero(tree.nv, bars.v)
    if constants_bar is not None:
        bars.constants = gradient_memory(constants_bar, tree.nconst)
        bars.moments = workspace((tree.nlink + 1) * BODY)
        zero(tree.nconst, bars.constants)
        zero((tree.nlink + 1) * BODY, bars.moments)
    return bars


def _write_bars(tree: Tree, bodies: Bodies, bars: Cotangents, q_bar: Any, v_bar: Any, constants_bar: Any) -> None:
    copy(tree.nq, bars.q, q_bar)
    copy(tree.nv, bars.v, v_bar)
    if constants_bar is not None:
        bodies_adjoint(tree, bodies, bars.moments, bars.constants)
        copy(tree.nconst, bars.constants, constants_bar)
