"""Inverse dynamics τ = M(q) v̇ + c(q, v), forward dynamics as a function of its own, and their adjoints.

The functions `inverse`, `forward` and their adjoints are kernels: their arrays are rows of the caller's tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...ir import ScalarArray, is_constant, loop, workspace
from ...schema import layout
from ..math import spatial as sp
from ..math.arrays import copy, gradient_memory, zero
from ..math.spatial import BODY, SPATIAL, VECTOR, ZERO6
from .bodies import with_bodies
from .dynamics import TreeMotion, forward_dynamics, unforced_motion
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
    """The motions of the links that z [nv] causes, X aₚ + S z: an array over links."""
    caused = tree.over_links(SPATIAL)
    caused.put(0, ZERO6)
    for i in tree.links():
        b = tree.v_start(i)
        caused.put(i + 1, sp.motion_to_child(*frames.pose(i), caused.get(tree.parent(i), SPATIAL)))
        for k in loop(tree.dofs(i)):
            step = sp.scale(z[b + k], frames.S.get(b + k, SPATIAL))
            caused.accumulate(i + 1, step)
    return caused


def inverse_dynamics(tree: Tree, q: ScalarArray, v: ScalarArray, vdot: ScalarArray, tau: ScalarArray) -> TreeMotion:
    """Fill tau [nv] with M v̇ + c (recursive Newton-Euler; the armature is part of M)."""
    motion = unforced_motion(tree, q, v)
    frames, accelerations = motion.frames, motion.accelerations
    z = workspace(tree.nv)
    turn(tree, q, vdot, z)
    caused, forces = accelerate(tree, frames, z), tree.over_links(SPATIAL)
    forces.put(0, ZERO6)
    for i in tree.links():
        accelerations.accumulate(i + 1, caused.get(i + 1, SPATIAL))
        acceleration = accelerations.get(i + 1, SPATIAL)
        field = sp.rigid_field(frames.angular_velocity.get(i + 1, VECTOR), acceleration[:3])
        forces.put(i + 1, sp.newton_euler(tree.bodies.moved.get(i + 1, BODY), acceleration[3:], field))
    for i in tree.links(reverse=True):
        b, armature, force = tree.v_start(i), tree.link(i).armature, forces.get(i + 1, SPATIAL)
        for k in loop(tree.dofs(i)):
            tau[b + k] = sp.dot(frames.S.get(b + k, SPATIAL), force) + armature * z[b + k]
        if not is_constant(tree.parent(i), 0):  # forces on the world are never used
            forces.accumulate(tree.parent(i), sp.force_to_parent(*frames.pose(i), force))
    turn(tree, q, tau, tau, back=True)
    return TreeMotion(frames, accelerations, vdot)


@dataclass(frozen=True)
class CotangentRows:
    """Rows of the caller's tensors that an adjoint writes cotangents to; None for those that are not wanted."""

    q_bar: ScalarArray
    v_bar: ScalarArray
    constants_bar: ScalarArray | None
    controls_bar: ScalarArray | None = None
    wrenches_bar: ScalarArray | None = None


def inverse(tree: Tree, q: ScalarArray, v: ScalarArray, vdot: ScalarArray, tau: ScalarArray) -> None:
    """Kernel: τ of q, v, v̇."""
    result = workspace(tree.nv)
    inverse_dynamics(with_bodies(tree), q, v, vdot, result)
    copy(tree.nv, result, tau)


def inverse_adjoint(
    tree: Tree, q: ScalarArray, v: ScalarArray, vdot: ScalarArray, tau_bar: ScalarArray, vdot_bar: ScalarArray,
    **rows: ScalarArray,
) -> None:  # fmt: skip
    """Kernel: the gradient of τ_bar · τ. M is symmetric: with respect to v̇ it is M τ_bar. rows: `CotangentRows`."""
    results = CotangentRows(**rows)
    tree = with_bodies(tree)
    unused, z = workspace(tree.nv), workspace(tree.nv)
    motion = inverse_dynamics(tree, q, v, vdot, unused)
    turn(tree, q, tau_bar, z)
    N = accelerate(tree, motion.frames, z)
    cotangents = _new_cotangents(tree, results)
    total = workspace(tree.nv)
    zero(tree.nv, total)
    power_adjoint(tree, VirtualPower(q, v, motion, tau_bar, N), 1.0, replace(cotangents, vdot=total))
    for i in tree.links():
        b, armature = tree.v_start(i), tree.link(i).armature
        for k in loop(tree.dofs(i)):
            total[b + k] = total[b + k] + armature * tau_bar[b + k]
            if cotangents.constants is not None:
                record = cotangents.constants.at(i * layout.LINK)
                record[layout.ARMATURE] = record[layout.ARMATURE] + tau_bar[b + k] * vdot[b + k]
    copy(tree.nv, total, vdot_bar)
    _write_cotangents(tree, cotangents, results)


def forward(
    tree: Tree, q: ScalarArray, v: ScalarArray, controls: ScalarArray, wrenches: ScalarArray | None, vdot: ScalarArray
) -> None:
    """Kernel: v̇ of q, v, controls and wrenches."""
    result = forward_dynamics(with_bodies(tree), DynamicsInputs(q, v, v, controls, wrenches, 0.0))
    copy(tree.nv, result.vdot, vdot)


def forward_adjoint(
    tree: Tree, q: ScalarArray, v: ScalarArray, controls: ScalarArray, wrenches: ScalarArray | None,
    vdot_bar: ScalarArray, **rows: ScalarArray,
) -> None:  # fmt: skip
    """Kernel: the gradient of v̇_bar · v̇. rows: `CotangentRows`."""
    results = CotangentRows(**rows)
    tree = with_bodies(tree)
    inputs = DynamicsInputs(q, v, v, controls, wrenches, 0.0)
    dynamics = forward_dynamics(tree, inputs)
    cotangents = _new_cotangents(tree, results)
    assert results.controls_bar is not None
    controls_bar, wrenches_bar = workspace(tree.nu), None
    zero(tree.nu, controls_bar)
    if results.wrenches_bar is not None:
        wrenches_bar = workspace(tree.nlink * SPATIAL)
        zero(tree.nlink * SPATIAL, wrenches_bar)
    cotangents = replace(cotangents, controls=controls_bar, wrenches=wrenches_bar)
    dynamics_adjoint(tree, inputs, dynamics, DynamicsSeeds(vdot_bar, cotangents.v), cotangents)
    copy(tree.nu, controls_bar, results.controls_bar)
    if wrenches_bar is not None and results.wrenches_bar is not None:
        copy(tree.nlink * SPATIAL, wrenches_bar, results.wrenches_bar)
    _write_cotangents(tree, cotangents, results)


def _new_cotangents(tree: Tree, results: CotangentRows) -> Cotangents:
    """Zeros, for q, v and, if they are wanted, the constants."""
    q_bar, v_bar = workspace(tree.nq), workspace(tree.nv)
    zero(tree.nq, q_bar)
    zero(tree.nv, v_bar)
    if results.constants_bar is None:
        return Cotangents(q_bar, v_bar)
    constants, moments = gradient_memory(results.constants_bar, tree.nconst), workspace((tree.nlink + 1) * BODY)
    zero(tree.nconst, constants)
    zero((tree.nlink + 1) * BODY, moments)
    return Cotangents(q_bar, v_bar, constants=constants, moments=moments)


def _write_cotangents(tree: Tree, cotangents: Cotangents, results: CotangentRows) -> None:
    copy(tree.nq, cotangents.q, results.q_bar)
    copy(tree.nv, cotangents.v, results.v_bar)
    if results.constants_bar is not None and cotangents.constants is not None and cotangents.moments is not None:
        bodies_adjoint(tree, cotangents.moments, cotangents.constants)
        copy(tree.nconst, cotangents.constants, results.constants_bar)
