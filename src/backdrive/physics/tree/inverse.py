"""Inverse dynamics τ = M(q) v̇ + c(q, v), forward dynamics as a function of its own, and their adjoints."""

from __future__ import annotations

from typing import Any

from ...ir import ScalarArray, is_constant, loop, workspace
from ...schema import layout
from ..math import spatial as sp
from ..math.arrays import copy, gradient_memory, zero
from ..math.spatial import BODY, ZERO6
from .bodies import with_bodies
from .dynamics import LinkMotion, forward_dynamics, unforced_motion
from .dynamics_adjoint import (
    Cotangents,
    DynamicsSeeds,
    VirtualPower,
    bodies_adjoint,
    dynamics_adjoint,
    power_adjoint,
)
from .inputs import DynamicsInputs
from .kinematics import Frames, turn
from .tree import Tree


def accelerate(tree: Tree, frames: Frames, z: ScalarArray) -> ScalarArray:
    """The motions of the links that z causes, X aₚ + S z: an array over links."""
    caused = tree.over_links(6)
    caused.put(0, ZERO6)
    for i in tree.links():
        b = tree.v_start(i)
        caused.put(i + 1, sp.motion_to_child(*frames.pose(i), caused.get(tree.parent(i), 6)))
        for k in loop(tree.dofs(i)):
            step = sp.scale(z[b + k], frames.S.get(b + k, 6))
            caused.accumulate(i + 1, step)
    return caused


def inverse_dynamics(tree: Tree, q: ScalarArray, v: ScalarArray, vdot: ScalarArray, tau: ScalarArray) -> LinkMotion:
    """Fill tau [nv] with M v̇ + c (recursive Newton-Euler; the armature is part of M)."""
    motion = unforced_motion(tree, q, v)
    frames, accelerations = motion.frames, motion.accelerations
    z = workspace(tree.nv)
    turn(tree, q, vdot, z)
    caused, forces = accelerate(tree, frames, z), tree.over_links(6)
    forces.put(0, ZERO6)
    for i in tree.links():
        accelerations.accumulate(i + 1, caused.get(i + 1, 6))
        acceleration = accelerations.get(i + 1, 6)
        field = sp.rigid_field(frames.angular_velocity.get(i + 1, 3), acceleration[:3])
        forces.put(i + 1, sp.newton_euler(tree.bodies.moved.get(i + 1, BODY), acceleration[3:], field))
    for i in tree.links(reverse=True):
        b, armature, force = tree.v_start(i), tree.link(i).armature, forces.get(i + 1, 6)
        for k in loop(tree.dofs(i)):
            tau[b + k] = sp.dot(frames.S.get(b + k, 6), force) + armature * z[b + k]
        if not is_constant(tree.parent(i), 0):  # the world takes up any force
            forces.accumulate(tree.parent(i), sp.force_to_parent(*frames.pose(i), force))
    turn(tree, q, tau, tau, back=True)
    return LinkMotion(frames, accelerations, vdot)


def inverse(tree: Tree, q: Any, v: Any, vdot: Any, tau: Any) -> None:
    """Kernel: τ of q, v, v̇."""
    result = workspace(tree.nv)
    inverse_dynamics(with_bodies(tree), q, v, vdot, result)
    copy(tree.nv, result, tau)


def inverse_adjoint(
    tree: Tree, q: Any, v: Any, vdot: Any, tau_bar: Any, q_bar: Any, v_bar: Any, vdot_bar: Any, constants_bar: Any
) -> None:
    """Kernel: the gradient of τ_bar · τ. M is symmetric: with respect to v̇ it is M τ_bar."""
    tree = with_bodies(tree)
    unused, z = workspace(tree.nv), workspace(tree.nv)
    motion = inverse_dynamics(tree, q, v, vdot, unused)
    turn(tree, q, tau_bar, z)
    N = accelerate(tree, motion.frames, z)
    cotangents = _new_cotangents(tree, constants_bar)
    cotangents.vdot = workspace(tree.nv)
    zero(tree.nv, cotangents.vdot)
    power_adjoint(tree, VirtualPower(q, v, motion, tau_bar, N), 1.0, cotangents)
    for i in tree.links():
        b, armature = tree.v_start(i), tree.link(i).armature
        for k in loop(tree.dofs(i)):
            cotangents.vdot[b + k] = cotangents.vdot[b + k] + armature * tau_bar[b + k]
            if cotangents.constants is not None:
                record = cotangents.constants.at(i * layout.LINK)
                record[layout.ARMATURE] = record[layout.ARMATURE] + tau_bar[b + k] * vdot[b + k]
    copy(tree.nv, cotangents.vdot, vdot_bar)
    _write_cotangents(tree, cotangents, q_bar, v_bar, constants_bar)


def forward(tree: Tree, q: Any, v: Any, controls: Any, wrenches: Any, vdot: Any) -> None:
    """Kernel: v̇ of q, v, controls and wrenches."""
    result = forward_dynamics(with_bodies(tree), DynamicsInputs(q, v, v, controls, wrenches, 0.0))
    copy(tree.nv, result.vdot, vdot)


def forward_adjoint(
    tree: Tree, q: Any, v: Any, controls: Any, wrenches: Any, vdot_bar: Any,
    q_bar: Any, v_bar: Any, controls_bar: Any, wrenches_bar: Any, constants_bar: Any,
) -> None:  # fmt: skip
    """Kernel: the gradient of v̇_bar · v̇."""
    tree = with_bodies(tree)
    inputs = DynamicsInputs(q, v, v, controls, wrenches, 0.0)
    dynamics = forward_dynamics(tree, inputs)
    cotangents = _new_cotangents(tree, constants_bar)
    cotangents.controls = workspace(tree.nu)
    zero(tree.nu, cotangents.controls)
    if wrenches_bar is not None:
        cotangents.wrenches = workspace(tree.nlink * 6)
        zero(tree.nlink * 6, cotangents.wrenches)
    dynamics_adjoint(tree, inputs, dynamics, DynamicsSeeds(vdot_bar, cotangents.v), cotangents)
    copy(tree.nu, cotangents.controls, controls_bar)
    if wrenches_bar is not None:
        copy(tree.nlink * 6, cotangents.wrenches, wrenches_bar)
    _write_cotangents(tree, cotangents, q_bar, v_bar, constants_bar)


def _new_cotangents(tree: Tree, constants_bar: Any) -> Cotangents:
    cotangents = Cotangents(workspace(tree.nq), workspace(tree.nv))
    zero(tree.nq, cotangents.q)
    zero(tree.nv, cotangents.v)
    if constants_bar is not None:
        cotangents.constants = gradient_memory(constants_bar, tree.nconst)
        cotangents.moments = workspace((tree.nlink + 1) * BODY)
        zero(tree.nconst, cotangents.constants)
        zero((tree.nlink + 1) * BODY, cotangents.moments)
    return cotangents


def _write_cotangents(tree: Tree, cotangents: Cotangents, q_bar: Any, v_bar: Any, constants_bar: Any) -> None:
    copy(tree.nq, cotangents.q, q_bar)
    copy(tree.nv, cotangents.v, v_bar)
    if constants_bar is not None:
        bodies_adjoint(tree, cotangents.moments, cotangents.constants)
        copy(tree.nconst, cotangents.constants, constants_bar)
