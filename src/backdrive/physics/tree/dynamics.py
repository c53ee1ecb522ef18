"""Forward dynamics: M(q) z = τ - c(q, v), by the articulated-body algorithm (Featherstone), in O(links).

unforced_motion   poses, velocities, and the forces on the links when no joint accelerates: the bias force c
factor            the factorisation of M: U and d of every joint coordinate, which are eliminated one at a time
reduce, expand    the two halves of a solve with these factors, for any right-hand side (adjoint, contact)
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir import Index, Scalar, ScalarArray, is_constant, loop, when, workspace
from ..math import spatial as sp
from ..math.arrays import copy
from ..math.spatial import BODY, IDENTITY, INERTIA, MATRIX, SPATIAL, VECTOR, ZERO3, ZERO6, Vec
from .forces import generalised_forces
from .inputs import DynamicsInputs
from .joints import JOINTS, JointModel
from .kinematics import Frames, place_link, turn
from .spin import free_spin, spin_inertia, torque_change
from .tree import Tree


class UnforcedMotion:
    """The motion when no joint accelerates (z = 0): frames, and arrays over links.

    accelerations (6): (α, a) of every link, minus gravity. fields (9): A = [α] + [ω]² of its acceleration field.
    forces (6): (n, f), the force that this motion takes. spins (6): `Spin` of the links that can spin; None if their
    gyroscopic torques are explicit.
    """

    def __init__(self, tree: Tree, spins: bool) -> None:
        self.frames = Frames(tree)
        self.accelerations, self.forces = tree.over_links(SPATIAL), tree.over_links(SPATIAL)
        self.fields = tree.over_links(MATRIX)
        self.spins = tree.over_links(SPATIAL, first=0) if spins else None
        # Gravity enters as an upward acceleration of the world.
        self.accelerations.put(0, (*ZERO3, *sp.neg(tree.gravity())))
        self.forces.put(0, ZERO6)
        self.fields.put(0, (0.0,) * MATRIX)


def bias_link(tree: Tree, motion: UnforcedMotion, i: Index) -> None:
    """Acceleration (α, a) of link i when z = 0, and the force that this takes, gravity included.

    a is the acceleration of the link's origin: that of the parent's point there, the Coriolis term of the joint
    velocity u, and the drift of the joint.
    """
    frames = motion.frames
    (R, p), parent = frames.pose(i), tree.parent(i)
    velocity = frames.joint_velocity.get(i, SPATIAL)
    w, u = velocity[:3], velocity[3:]
    above = motion.accelerations.get(parent, SPATIAL)
    carried = sp.unrotate(R, frames.angular_velocity.get(parent, VECTOR))
    alpha = sp.unrotate(R, above[:3], sp.cross(carried, w))
    coriolis = sp.cross(sp.scale(2.0, carried), u, frames.drift.get(i, VECTOR))
    a = sp.unrotate(R, sp.rotate(motion.fields.get(parent, MATRIX), p, above[3:]), coriolis)
    A = sp.rigid_field(frames.angular_velocity.get(i + 1, VECTOR), alpha)
    motion.accelerations.put(i + 1, (*alpha, *a))
    motion.fields.put(i + 1, A)
    motion.forces.put(i + 1, sp.newton_euler(tree.bodies.moved.get(i + 1, BODY), a, A))


def spin_link(tree: Tree, motion: UnforcedMotion, i: Index, h: Scalar) -> None:
    """If link i can spin, add what more torque its rotation takes in a step of time h."""

    def spin(joint: JointModel) -> None:
        assert motion.spins is not None
        w = motion.frames.angular_velocity.get(i + 1, VECTOR)
        I = spin_inertia(joint, tree.link(i), tree.bodies.moved.get(i + 1, BODY))
        found = free_spin(tree, I, w, h)
        motion.spins.put(i, (*found.mean, *found.rest))
        motion.forces.accumulate(i + 1, (*torque_change(I, w, found), *ZERO3))

    for joint in JOINTS:
        if joint.spins:
            for _ in when(tree.kind(i) == int(joint.kind)):
                spin(joint)


def unforced_motion(tree: Tree, q: ScalarArray, v: ScalarArray, spin_time: Scalar = 0.0) -> UnforcedMotion:
    """The outward sweep: how the links move when z = 0, and the forces that this takes."""
    spins = not is_constant(spin_time, 0.0)
    motion = UnforcedMotion(tree, spins)
    for i in tree.links():
        place_link(tree, q, v, motion.frames, i)
        bias_link(tree, motion, i)
        if spins:
            spin_link(tree, motion, i, spin_time)
    return motion


def add_rest(tree: Tree, spins: ScalarArray | None, forces: ScalarArray) -> None:
    """Add the part of gyroscopic torques that explicit ones at the mean velocities lack (`Spin.rest`)."""
    if spins is None:
        return
    for i in tree.links():
        for joint in JOINTS:
            if joint.spins:
                for _ in when(tree.kind(i) == int(joint.kind)):
                    forces.accumulate(i + 1, (*spins.get(i, SPATIAL)[VECTOR:], *ZERO3))


def applied_force(com: Vec, W: Vec, wrench: Vec) -> Vec:
    """A wrench (force, torque) at the center of mass, in world axes, as a spatial force in the link's frame.

    W (9): the rotation from the link's axes to the world's.
    """
    f = sp.unrotate(W, wrench[:3])
    return (*sp.unrotate(W, wrench[3:], sp.cross(com, f)), *f)


def world_rotations(tree: Tree, frames: Frames) -> ScalarArray:
    """The rotation of every link to world axes: an array over links."""
    W = tree.over_links(MATRIX)
    W.put(0, IDENTITY)
    for i in tree.links():
        W.put(i + 1, sp.matmul(W.get(tree.parent(i), MATRIX), frames.R.get(i, MATRIX)))
    return W


class Factors:
    """The factors of M, over the coordinates of v: U = I s, and `inverse` = 1 / d with d = s · U + armature.

    s is the coordinate's column of S, and I the articulated inertia of its link when the coordinate is eliminated.
    """

    def __init__(self, tree: Tree) -> None:
        self.U, self.inverse = tree.over_coordinates(SPATIAL), workspace(tree.nv)


def factor(tree: Tree, frames: Frames, damping: ScalarArray, damping_time: Scalar) -> Factors:
    """The inward sweep that eliminates the joints; what remains of a link's inertia is added to its parent's.

    `damping_time` h (s) adds h times the damping of every coordinate, the diagonal [nv] of D, to the armature, which
    makes it implicit: (M + h D) z = τ - D v - c.
    """
    factors = Factors(tree)
    inertias = tree.over_links(INERTIA)
    inertias.put(0, (0.0,) * INERTIA)
    for i in tree.links():
        inertias.put(i + 1, sp.articulated(tree.bodies.moved.get(i + 1, BODY)))
    for i in tree.links(reverse=True):
        armature, b = tree.link(i).armature, tree.v_start(i)
        for k in loop(tree.dofs(i)):
            I, s = inertias.get(i + 1, INERTIA), frames.S.get(b + k, SPATIAL)
            U = sp.inertia_mul(I, s)
            inverse = 1.0 / (sp.dot(s, U) + (armature + damping_time * damping[b + k]))
            factors.U.put(b + k, U)
            factors.inverse[b + k] = inverse
            inertias.put(i + 1, sp.rank_one_update(I, sp.scale(inverse, U), U))
        if not is_constant(tree.parent(i), 0):  # the inertia of the world is never used
            R, p = frames.pose(i)
            inertias.accumulate(tree.parent(i), sp.inertia_to_parent(R, p, inertias.get(i + 1, INERTIA)))
    return factors


def reduce(
    tree: Tree, frames: Frames, factors: Factors, tau: ScalarArray, z: ScalarArray, forces: ScalarArray | None = None
) -> None:
    """The inward half of z = M⁻¹ (τ - Sᵀ forces): the force that remains at every joint, divided by d.

    `forces` (over links, 6; None: zero) are overwritten. τ and z [nv] are in the links' axes (see `joints`).
    """
    if forces is None:
        forces = tree.over_links(SPATIAL)
        forces.put(0, ZERO6)
        for i in tree.links():
            forces.put(i + 1, ZERO6)
    for i in tree.links(reverse=True):
        b = tree.v_start(i)
        for k in loop(tree.dofs(i)):
            force = forces.get(i + 1, SPATIAL)
            u = (tau[b + k] - sp.dot(frames.S.get(b + k, SPATIAL), force)) * factors.inverse[b + k]
            z[b + k] = u
            forces.put(i + 1, tuple(f + u * x for f, x in zip(force, factors.U.get(b + k, SPATIAL), strict=True)))
        if not is_constant(tree.parent(i), 0):  # forces on the world are never used
            forces.accumulate(tree.parent(i), sp.force_to_parent(*frames.pose(i), forces.get(i + 1, SPATIAL)))


def expand(tree: Tree, frames: Frames, factors: Factors, z: ScalarArray) -> ScalarArray:
    """The outward half: completes z [nv] in place. Returns the accelerations of the links that z causes, over links."""
    accelerations = tree.over_links(SPATIAL)
    accelerations.put(0, ZERO6)
    for i in tree.links():
        b = tree.v_start(i)
        accelerations.put(i + 1, sp.motion_to_child(*frames.pose(i), accelerations.get(tree.parent(i), SPATIAL)))
        for k in loop(tree.dofs(i), reverse=True):
            a = accelerations.get(i + 1, SPATIAL)
            x = z[b + k] - factors.inverse[b + k] * sp.dot(factors.U.get(b + k, SPATIAL), a)
            z[b + k] = x
            accelerations.put(i + 1, tuple(y + x * s for y, s in zip(a, frames.S.get(b + k, SPATIAL), strict=True)))
    return accelerations


@dataclass(frozen=True)
class TreeMotion:
    """How the links move at some q, v and v̇.

    accelerations (over links, 6): (α, a) of every link, minus gravity. vdot [nv]. rotations (over links, 9): to world
    axes, if wrenches act.
    """

    frames: Frames
    accelerations: ScalarArray
    vdot: ScalarArray
    rotations: ScalarArray | None = None


@dataclass(frozen=True, kw_only=True)
class Dynamics(TreeMotion):
    """The result of `forward_dynamics`, with the intermediates that constraints and the adjoint use.

    factors: of M + h D. damping [nv]: the diagonal of D. spins (over links, 6; None if there are none): as in
    `UnforcedMotion`. reduced [nv]: the inward half of the solve for v̇. clipped: the number of motors at a limit.
    """

    factors: Factors
    damping: ScalarArray
    spins: ScalarArray | None
    reduced: ScalarArray
    clipped: Scalar


def forward_dynamics(tree: Tree, inputs: DynamicsInputs, first: Dynamics | None = None) -> Dynamics:
    """v̇ of (M + h D) v̇ = τ(q, v, u) - D v - c(q, v) + Σ Jᵀ wrench, with the intermediates that led to it.

    `first`: an earlier stage at the same q, which has the factors of M + h D, and of whose spins the rest is added.
    """
    dynamics = reduced_dynamics(tree, inputs, first)
    complete(tree, inputs.q, dynamics, dynamics.reduced)
    return dynamics


def reduced_dynamics(tree: Tree, inputs: DynamicsInputs, first: Dynamics | None = None) -> Dynamics:
    """`forward_dynamics` up to the inward half of the solve for v̇: `complete` has the other half."""
    q = inputs.q
    motion = unforced_motion(tree, q, inputs.v, inputs.spin_time)
    frames, accelerations = motion.frames, motion.accelerations
    tau, damping, reduced, vdot = (workspace(tree.nv) for _ in range(4))
    clipped = generalised_forces(tree, inputs, tau, damping)
    turn(tree, q, tau, tau)
    rotations = None
    if inputs.wrenches is not None:
        rotations = world_rotations(tree, frames)
        for i in tree.links():
            applied = applied_force(tree.link(i).com, rotations.get(i + 1, MATRIX), inputs.wrenches.get(i, SPATIAL))
            motion.forces.accumulate(i + 1, sp.neg(applied))
    if first is not None:
        factors = first.factors
        add_rest(tree, first.spins, motion.forces)
    else:
        factors = factor(tree, frames, damping, inputs.damping_time)
    reduce(tree, frames, factors, tau, reduced, motion.forces)
    return Dynamics(
        frames, accelerations, vdot, rotations, factors=factors, damping=damping, spins=motion.spins, reduced=reduced,
        clipped=clipped,
    )  # fmt: skip


def complete(tree: Tree, q: ScalarArray, dynamics: Dynamics, reduced: ScalarArray) -> None:
    """The outward half of the solve for v̇, in place: v̇ and the accelerations that follow from `reduced` [nv]."""
    z = workspace(tree.nv)
    copy(tree.nv, reduced, z)
    caused = expand(tree, dynamics.frames, dynamics.factors, z)
    for i in tree.links():
        dynamics.accelerations.accumulate(i + 1, caused.get(i + 1, SPATIAL))
    turn(tree, q, z, dynamics.vdot, back=True)
