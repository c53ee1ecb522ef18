"""Forward dynamics: M(q) z = τ - c(q, v), by the articulated-body algorithm (Featherstone), in O(links).

unforced_motion   poses, velocities, and the forces that keep every link on its way when no joint accelerates: c
factor            M, as the articulated inertias U, d of its joints, which are eliminated one column at a time
reduce, expand    M⁻¹ with these factors, in two halves; also for other right-hand sides (the adjoint's, contact's)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...ir import Scalar, ScalarArray, is_constant, loop, workspace
from ..math import spatial as sp
from ..math.arrays import copy
from ..math.spatial import BODY, IDENTITY, INERTIA, ZERO3, ZERO6, Vec
from .forces import generalised_forces
from .inputs import DynamicsInputs
from .kinematics import Frames, place_link, turn
from .tree import Tree


class Motion:
    """Arrays over links: poses and velocities (`frames`), accelerations (α, a) and forces (n, f)."""

    def __init__(self, tree: Tree) -> None:
        self.frames = Frames(tree)
        self.accelerations, self.forces = tree.over_links(6), tree.over_links(6)
        self.fields = tree.over_links(9)
        # Weight is felt as if the world accelerated upwards.
        self.accelerations.put(0, (*ZERO3, *sp.neg(tree.gravity())))
        self.forces.put(0, ZERO6)
        self.fields.put(0, (0.0,) * 9)


def bias_link(tree: Tree, motion: Motion, i: Any) -> None:
    """Acceleration (α, a) of link i when z = 0, and the force that takes, gravity included.

    a is the acceleration of the point at the link's origin: that of the parent's point there, the Coriolis term of the
    joint velocity u, and the joint's own.
    """
    frames = motion.frames
    (R, p), parent = frames.pose(i), tree.parent(i)
    velocity = frames.joint_velocity.get(i, 6)
    w, u = velocity[:3], velocity[3:]
    above, carried = motion.accelerations.get(parent, 6), sp.unrotate(R, frames.angular_velocity.get(parent, 3))
    alpha = sp.unrotate(R, above[:3], sp.cross(carried, w))
    coriolis = sp.cross(sp.scale(2.0, carried), u, frames.drift.get(i, 3))
    a = sp.unrotate(R, sp.rotate(motion.fields.get(parent, 9), p, above[3:]), coriolis)
    A = sp.rigid_field(frames.angular_velocity.get(i + 1, 3), alpha)
    motion.accelerations.put(i + 1, (*alpha, *a))
    motion.fields.put(i + 1, A)
    motion.forces.put(i + 1, sp.newton_euler(tree.bodies.moved.get(i + 1, BODY), a, A))


def unforced_motion(tree: Tree, q: Any, v: Any) -> Motion:
    """The outward sweep: how the links move when z = 0, and the forces they take."""
    motion = Motion(tree)
    for i in tree.links():
        place_link(tree, q, v, motion.frames, i)
        bias_link(tree, motion, i)
    return motion


def applied_force(com: Vec, W: Vec, wrench: Vec) -> Vec:
    """A wrench (force, torque) at the center of mass, in world axes, as a force of the link's frame; W: to world."""
    f = sp.unrotate(W, wrench[:3])
    return (*sp.unrotate(W, wrench[3:], sp.cross(com, f)), *f)


def world_rotations(tree: Tree, frames: Frames) -> Any:
    """The rotation of every link to world axes: an array over links."""
    W = tree.over_links(9)
    W.put(0, IDENTITY)
    for i in tree.links():
        W.put(i + 1, sp.matmul(W.get(tree.parent(i), 9), frames.R.get(i, 9)))
    return W


class Factors:
    """U = I s and 1 / d, d = s · U + armature, of every coordinate of v (I: the articulated inertia of its link)."""

    def __init__(self, tree: Tree) -> None:
        self.U, self.inverse = tree.over_coordinates(6), workspace(tree.nv)


def factor(tree: Tree, frames: Frames, damping_time: Scalar) -> Factors:
    """The inward sweep that eliminates the joints, and passes what is left of a link's inertia on to its parent.

    `damping_time` h adds h times the joint damping to the armature: it is then implicit, (M + h D) z = τ - D v - c.
    """
    factors = Factors(tree)
    inertias = tree.over_links(INERTIA)
    inertias.put(0, (0.0,) * INERTIA)
    for i in tree.links():
        inertias.put(i + 1, sp.articulated(tree.bodies.moved.get(i + 1, BODY)))
    for i in tree.links(reverse=True):
        link, b = tree.link(i), tree.v_start(i)
        extra = link.armature + damping_time * link.damping
        for k in loop(tree.dofs(i)):
            I, s = inertias.get(i + 1, INERTIA), frames.S.get(b + k, 6)
            U = sp.inertia_mul(I, s)
            inverse = 1.0 / (sp.dot(s, U) + extra)
            factors.U.put(b + k, U)
            factors.inverse[b + k] = inverse
            inertias.put(i + 1, sp.rank_one_update(I, sp.scale(inverse, U), U))
        if not is_constant(tree.parent(i), 0):  # the world takes up anything
            R, p = frames.pose(i)
            inertias.accumulate(tree.parent(i), sp.inertia_to_parent(R, p, inertias.get(i + 1, INERTIA)))
    return factors


def reduce(tree: Tree, frames: Frames, factors: Factors, tau: Any, z: Any, forces: Any = None) -> None:
    """The inward half of z = M⁻¹ (τ - Sᵀ forces): what is left of τ and the forces at every joint, divided by d.

    `forces` (over links, or None) are overwritten. τ and z are turned into the links' axes (`joints`).
    """
    if forces is None:
        forces = tree.over_links(6)
        forces.put(0, ZERO6)
        for i in tree.links():
            forces.put(i + 1, ZERO6)
    for i in tree.links(reverse=True):
        b = tree.v_start(i)
        for k in loop(tree.dofs(i)):
            force = forces.get(i + 1, 6)
            u = (tau[b + k] - sp.dot(frames.S.get(b + k, 6), force)) * factors.inverse[b + k]
            z[b + k] = u
            forces.put(i + 1, tuple(f + u * x for f, x in zip(force, factors.U.get(b + k, 6), strict=True)))
        if not is_constant(tree.parent(i), 0):
            forces.accumulate(tree.parent(i), sp.force_to_parent(*frames.pose(i), forces.get(i + 1, 6)))


def expand(tree: Tree, frames: Frames, factors: Factors, z: Any) -> Any:
    """The outward half: z in place, and the accelerations of the links that it causes (an array over links)."""
    accelerations = tree.over_links(6)
    accelerations.put(0, ZERO6)
    for i in tree.links():
        b = tree.v_start(i)
        accelerations.put(i + 1, sp.motion_to_child(*frames.pose(i), accelerations.get(tree.parent(i), 6)))
        for k in loop(tree.dofs(i), reverse=True):
            a = accelerations.get(i + 1, 6)
            x = z[b + k] - factors.inverse[b + k] * sp.dot(factors.U.get(b + k, 6), a)
            z[b + k] = x
            accelerations.put(i + 1, tuple(y + x * s for y, s in zip(a, frames.S.get(b + k, 6), strict=True)))
    return accelerations


@dataclass(frozen=True)
class LinkMotion:
    """How the links move at some q, v and v̇.

    accelerations (over links, 6): (α, a) of every link, minus gravity. vdot [nv]. rotations (over links, 9): to world
    axes, if wrenches act.
    """

    frames: Frames
    accelerations: ScalarArray
    vdot: ScalarArray
    rotations: ScalarArray | None = None


@dataclass(frozen=True, kw_only=True)
class Dynamics(LinkMotion):
    """The result of `forward_dynamics`, with the intermediates that constraints and the adjoint use.

    factors: of M + h D. reduced [nv]: the inward half of the solve for v̇. clipped: the number of motors at a limit.
    """

    factors: Factors
    reduced: ScalarArray
    clipped: Scalar


def forward_dynamics(tree: Tree, inputs: DynamicsInputs, factors: Factors | None = None) -> Dynamics:
    """v̇ of (M + h D) v̇ = τ(q, v, u) - D v - c(q, v) + Σ Jᵀ wrench, with the intermediates that led to it.

    `factors`: those of M + h D at the same q, if they are known.
    """
    q = inputs.q
    motion = unforced_motion(tree, q, inputs.v)
    frames, accelerations = motion.frames, motion.accelerations
    tau, z, vdot = workspace(tree.nv), workspace(tree.nv), workspace(tree.nv)
    clipped = generalised_forces(tree, inputs, tau)
    turn(tree, q, tau, tau)
    rotations = None
    if inputs.wrenches is not None:
        rotations = world_rotations(tree, frames)
        for i in tree.links():
            applied = applied_force(tree.link(i).com, rotations.get(i + 1, 9), inputs.wrenches.get(i, 6))
            motion.forces.accumulate(i + 1, sp.neg(applied))
    factors = factors or factor(tree, frames, inputs.damping_time)
    reduce(tree, frames, factors, tau, z, motion.forces)
    reduced = workspace(tree.nv)
    copy(tree.nv, z, reduced)
    caused = expand(tree, frames, factors, z)
    for i in tree.links():
        accelerations.accumulate(i + 1, caused.get(i + 1, 6))
    turn(tree, q, z, vdot, back=True)
    return Dynamics(
        frames, accelerations, vdot, rotations, factors=factors, reduced=reduced, clipped=clipped
    )  # fmt: skip
