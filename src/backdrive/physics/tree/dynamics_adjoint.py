"""The adjoint of the dynamics: from a cotangent of the accelerations to those of everything they depend on.

The accelerations solve  F = (M + h D) v̇ + c(q, v) - τ(q, v, u) = 0.  If the loss has the gradient w with respect to
v̇, then with  λ = (M + h D)⁻¹ w  its gradient with respect to anything else is that of -λ · F: one solve with the
factors of the forward pass, and one sweep over the links that differentiates the power

    φ = λ · (M v̇ + c) = Σ N · (n, f),

where (n, f) is the force on a link (Newton-Euler) and N the motion that λ, as a virtual velocity, gives it. No
Jacobian is formed. The sweep runs from the leaves to the root; the derivatives of its body are generated from the
equations (`vjp`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ...ir import Index, Scalar, ScalarArray, is_constant, loop, memory, switch, vjp, when, workspace
from ...schema import layout
from ...schema.layout import Kind
from ..math import spatial as sp
from ..math.arrays import accumulate, split, zero
from ..math.spatial import BODY, MATRIX, SPATIAL, VECTOR, ZERO3, Vec
from .dynamics import Dynamics, TreeMotion, applied_force, expand, reduce
from .forces_adjoint import forces_adjoint, joint_inertia_adjoint
from .inputs import DynamicsInputs
from .joints import FIXED, JOINTS, JointModel
from .kinematics import turn
from .spin import Spin, newton_matrix, ratios, residual, spin_inertia, torque_change
from .tree import LinkConstants, Tree, accumulate_link


@dataclass(frozen=True)
class Cotangents:
    """The cotangents that an adjoint adds to; None for those that are not wanted.

    q [nq], v [nv], controls [nu], wrenches [nlink, 6], constants [nconst], vdot [nv]. moments (over links): of the
    moments of mass (m, h, Σ), which `bodies_adjoint` turns into cotangents of the constants at the end. spin_time [1]:
    of `DynamicsInputs.spin_time`.
    """

    q: ScalarArray
    v: ScalarArray
    controls: ScalarArray | None = None
    wrenches: ScalarArray | None = None
    constants: ScalarArray | None = None
    moments: ScalarArray | None = None
    vdot: ScalarArray | None = None
    spin_time: ScalarArray | None = None


class ConstraintTerms(Protocol):
    """The terms that constraints add to the adjoint of the dynamics (`constraints.constrain_adjoint`)."""

    def take_up(self, reduced: ScalarArray, /) -> None:
        """From the inward half of a solve with h w to that with h (w - Jᵀ y), in place."""

    def add_rows(
        self, q: ScalarArray, v: ScalarArray, virtual: ScalarArray, q_bar: ScalarArray, v_bar: ScalarArray,
        constants_bar: ScalarArray | None,
    ) -> None:  # fmt: skip
        """Add the cotangents of the constraints' rows."""


# ------------------------------------------------------------------------------------------ the power's derivative


def link_power(body: Vec, w: Vec, alpha: Vec, a: Vec, N: Vec) -> Scalar:
    """N · (n, f) of a link with angular velocity w, angular acceleration alpha, and acceleration a of its origin."""
    return sp.dot(N, sp.newton_euler(body, a, sp.rigid_field(w, alpha)))


def passed_on(w: Vec, alpha: Vec, a: Vec, N: Vec, R: Vec, p: Vec, joint_velocity: Vec) -> tuple[Vec, Vec, Vec, Vec]:
    """(ω, α, a, N) that a link has from its parent's; the joint's own acceleration and virtual velocity come on top."""
    carried = sp.unrotate(R, w)
    joint_w, u = joint_velocity[:3], joint_velocity[3:]
    inherited = sp.rotate(sp.rigid_field(w, alpha), p, a)
    return (
        sp.add(carried, joint_w),
        sp.unrotate(R, alpha, sp.cross(carried, joint_w)),
        sp.unrotate(R, inherited, sp.cross(sp.scale(2.0, carried), u)),
        sp.motion_to_child(R, p, N),
    )


STATE = (VECTOR, VECTOR, VECTOR, SPATIAL)  # sizes of ω, α, a and N of a link
STATE_SIZE = sum(STATE)
JOINT_POSE = (MATRIX, VECTOR, SPATIAL)  # sizes of R, p and the joint velocity


@dataclass(frozen=True)
class VirtualPower:
    """The power φ = λ · (M v̇ + c - Jᵀ wrenches) of the inertial forces in a virtual motion.

    q [nq], v [nv]: the state, with the motion of its links, v̇ included. virtual [nv]: λ, the virtual velocity. N (over
    links, 6): the motions of the links that λ causes. wrenches: as in `DynamicsInputs`. acting: 1 where gravity and
    wrenches act, 0 where they do not (impacts, corrections of the position). spins, spin_time: as in
    `Dynamics` and `DynamicsInputs`, if gyroscopic torques are implicit.
    """

    q: ScalarArray
    v: ScalarArray
    motion: TreeMotion
    virtual: ScalarArray
    N: ScalarArray
    wrenches: ScalarArray | None = None
    acting: Scalar = 1.0
    spins: ScalarArray | None = None
    spin_time: Scalar = 0.0


def power_adjoint(tree: Tree, power: VirtualPower, sign: float, cotangents: Cotangents) -> None:
    """Add `sign` times the gradient of the power φ, at fixed λ, to the cotangents."""
    q, v, vdot, virtual, N = power.q, power.v, power.motion.vdot, power.virtual, power.N
    n, frames = tree.nlink, power.motion.frames
    state_bar = workspace((n + 1) * STATE_SIZE)
    zero((n + 1) * STATE_SIZE, state_bar)
    rotation_bar = None
    if power.wrenches is not None:
        rotation_bar = workspace((n + 1) * MATRIX)
        zero((n + 1) * MATRIX, rotation_bar)

    def state(record: Index) -> Vec:
        acceleration = power.motion.accelerations.get(record, SPATIAL)
        return (*frames.angular_velocity.get(record, VECTOR), *acceleration, *N.get(record, SPATIAL))

    def joint_part(joint: JointModel, i: Index, seeds: Vec) -> None:
        """From the cotangent of the joint's motion to those of q, v, v̇ and the joint's constants."""
        a, b, nq, nv = tree.q_start(i), tree.v_start(i), joint.nq, joint.nv
        lam = virtual.at(b).get(0, nv)
        inputs = (*tree.link_record(i), *q.at(a).get(0, nq), *v.at(b).get(0, nv), *vdot.at(b).get(0, nv))

        def motion(*x: Scalar) -> list[Scalar]:
            record, qi, vi, vdoti = split(x, layout.LINK, nq, nv, nv)
            return [y for part in joint.motion(LinkConstants.of(record), qi, vi, vdoti, lam) for y in part]

        _, gradient = vjp(motion, inputs, seeds)
        _, q_bar, v_bar, vdot_bar = split(gradient, layout.LINK, nq, nv, nv)
        accumulate(cotangents.q.at(a), q_bar)
        accumulate(cotangents.v.at(b), v_bar)
        if cotangents.vdot is not None:
            accumulate(cotangents.vdot.at(b), vdot_bar)
        if cotangents.constants is not None:
            accumulate_link(cotangents.constants, i, gradient)

    def own_power(*x: Scalar) -> list[Scalar]:
        body, *own = split(x, BODY, *STATE)
        return [link_power(body, *own)]

    def inherit(*x: Scalar) -> list[Scalar]:
        return [y for part in passed_on(*split(x, *STATE, *JOINT_POSE)) for y in part]

    for i in tree.links(reverse=True):
        parent, (R, p) = tree.parent(i), frames.pose(i)
        _, gradient = vjp(own_power, (*tree.bodies.moved.get(i + 1, BODY), *state(i + 1)), [sign])
        body_bar, own_bar = split(gradient, BODY, STATE_SIZE)
        if power.spins is not None:
            _spin_adjoint(tree, power, i, sign, state_bar, cotangents)
        bar = sp.add(state_bar.get(i + 1, STATE_SIZE), own_bar)
        if cotangents.moments is not None:
            accumulate(cotangents.moments.at((i + 1) * BODY), body_bar)
        R_bar: Vec = (0.0,) * MATRIX
        omega_bar, alpha_bar, a_bar, N_bar = split(bar, *STATE)
        if rotation_bar is not None:
            wrench_bar, R_bar = _wrench_adjoint(tree, power, rotation_bar, i, sign, cotangents)
            N_bar = sp.add(N_bar, wrench_bar)
        inputs = (*state(parent), *R, *p, *frames.joint_velocity.get(i, SPATIAL))
        _, gradient = vjp(inherit, inputs, (*omega_bar, *alpha_bar, *a_bar, *N_bar))
        inherited_bar, pose_bar, p_bar, velocity_bar = split(gradient, STATE_SIZE, *JOINT_POSE)
        accumulate(state_bar.at(parent * STATE_SIZE), inherited_bar)
        seeds = (*sp.add(R_bar, pose_bar), *p_bar, *velocity_bar, *alpha_bar, *a_bar, *N_bar)
        switch(tree.kind(i), [partial(joint_part, joint) for joint in JOINTS], i, seeds)
    if cotangents.constants is not None:  # the acceleration of the world is -g
        g = cotangents.constants.at(layout.gravity_start(tree.nlink, tree.nq, tree.nu))
        factor = -power.acting
        _, _, a_bar, _ = split(state_bar.get(0, STATE_SIZE), *STATE)
        accumulate(g, sp.scale(factor, a_bar))


def _spin_adjoint(
    tree: Tree, power: VirtualPower, i: Index, sign: float, state_bar: ScalarArray, cotangents: Cotangents
) -> None:
    """The part of an implicit gyroscopic torque in the power: add the gradients to `state_bar` and the cotangents.

    The mean velocity x is differentiated implicitly: by one more step of Newton's method, with its matrix at x.
    """
    sizes = (layout.LINK, BODY, VECTOR, VECTOR, 1)
    h, spins = power.spin_time, power.spins
    assert spins is not None

    def one(joint: JointModel) -> None:
        x, rest = split(spins.get(i, SPATIAL), VECTOR, VECTOR)
        record, body = tree.link_record(i), tree.bodies.moved.get(i + 1, BODY)
        J = newton_matrix(ratios(spin_inertia(joint, LinkConstants.of(record), body)), x, h)

        def spin_power(*y: Scalar) -> list[Scalar]:
            record, body, w, N, (h,) = split(y, *sizes)
            I = spin_inertia(joint, LinkConstants.of(record), body)
            mean = sp.sub(x, sp.solve(J, residual(ratios(I), w, sp.sub(x, w), h)))
            return [sp.dot(N, torque_change(I, w, Spin(mean, rest)))]

        w, N = power.motion.frames.angular_velocity.get(i + 1, VECTOR), power.N.get(i + 1, SPATIAL)[:3]
        _, gradient = vjp(spin_power, (*record, *body, *w, *N, h), [sign])
        _, body_bar, w_bar, N_bar, (h_bar,) = split(gradient, *sizes)
        state_bar.accumulate(i + 1, (*w_bar, *(0.0,) * (2 * VECTOR), *N_bar, *ZERO3))
        if cotangents.moments is not None:
            accumulate(cotangents.moments.at((i + 1) * BODY), body_bar)
        if cotangents.constants is not None:
            accumulate_link(cotangents.constants, i, gradient)
        if cotangents.spin_time is not None:
            cotangents.spin_time[0] = cotangents.spin_time[0] + h_bar

    for joint in JOINTS:
        if joint.spins:
            for _ in when(tree.kind(i) == int(joint.kind)):
                one(joint)


def _wrench_adjoint(
    tree: Tree, power: VirtualPower, rotation_bar: ScalarArray, i: Index, sign: float, cotangents: Cotangents
) -> tuple[Vec, Vec]:
    """The part of the wrench on link i in the power, -N · wrench: gradients with respect to N and the rotation R.

    The rotation of the link to world axes is W = Wₚ R; the cotangents of W are summed in `rotation_bar` (over links).
    """
    factor = sign * power.acting
    parent, rotations, wrenches = tree.parent(i), power.motion.rotations, power.wrenches
    assert rotations is not None
    assert wrenches is not None
    sizes = (VECTOR, MATRIX, SPATIAL, SPATIAL)
    com, W = tree.link(i).com, rotations.get(i + 1, MATRIX)
    inputs = (*com, *W, *wrenches.get(i, SPATIAL), *power.N.get(i + 1, SPATIAL))

    def wrench_power(*x: Scalar) -> list[Scalar]:
        com, W, wrench, motion = split(x, *sizes)
        return [sp.dot(motion, applied_force(com, W, wrench))]

    _, gradient = vjp(wrench_power, inputs, [-factor])
    com_bar, W_bar, wrench_bar, N_bar = split(gradient, *sizes)
    if cotangents.constants is not None:
        accumulate(cotangents.constants.at(i * layout.LINK + layout.COM), com_bar)
    if cotangents.wrenches is not None:
        accumulate(cotangents.wrenches.at(i * SPATIAL), wrench_bar)
    _, gradient = vjp(
        lambda *x: sp.matmul(x[:MATRIX], x[MATRIX:]),
        (*rotations.get(parent, MATRIX), *power.motion.frames.R.get(i, MATRIX)),
        sp.add(rotation_bar.get(i + 1, MATRIX), W_bar),
    )
    parent_bar, R_bar = split(gradient, MATRIX, MATRIX)
    accumulate(rotation_bar.at(parent * MATRIX), parent_bar)
    return N_bar, R_bar


# ------------------------------------------------------------------------------------------ dynamics


@dataclass(frozen=True)
class DynamicsSeeds:
    """The cotangent vdot_bar [nv] of v̇, which the adjoint starts from; to damped_bar [nv] it adds that of v_damped."""

    vdot_bar: ScalarArray
    damped_bar: ScalarArray


def dynamics_adjoint(
    tree: Tree, inputs: DynamicsInputs, dynamics: Dynamics, seeds: DynamicsSeeds, cotangents: Cotangents,
    constraints: ConstraintTerms | None = None, acting: Scalar = 1.0,
) -> ScalarArray:  # fmt: skip
    """The adjoint of `forward_dynamics`: add the cotangents of its inputs. Returns λ [nv].

    With `constraints`, v̇ and the accelerations in `dynamics` are the constrained ones, and the constraints are
    differentiated too. `acting`: 0 in an impact, during which no forces act.
    """
    q = inputs.q
    w, virtual = workspace(tree.nv), workspace(tree.nv)
    lam = workspace(tree.nv) if constraints is None else memory(tree.nv)
    turn(tree, q, seeds.vdot_bar, w)
    reduce(tree, dynamics.frames, dynamics.factors, w, lam)
    if constraints is not None:
        constraints.take_up(lam)
    N = expand(tree, dynamics.frames, dynamics.factors, lam)
    turn(tree, q, lam, virtual, back=True)
    spins = None if is_constant(inputs.spin_time, 0.0) else dynamics.spins
    power = VirtualPower(q, inputs.v, dynamics, virtual, N, inputs.wrenches, acting, spins, inputs.spin_time)
    power_adjoint(tree, power, -1.0, cotangents)
    pushed = virtual
    if not is_constant(acting, 1.0):
        pushed = workspace(tree.nv)
        for k in loop(tree.nv):
            pushed[k] = acting * virtual[k]
    forces_adjoint(tree, inputs, pushed, seeds.damped_bar, cotangents)
    joint_inertia_adjoint(tree, inputs, virtual, dynamics.vdot, cotangents)
    if constraints is not None:
        constraints.add_rows(q, inputs.v_damped, virtual, cotangents.q, seeds.damped_bar, cotangents.constants)
    return virtual


def bodies_adjoint(tree: Tree, moments_bar: ScalarArray, constants_bar: ScalarArray) -> None:
    """From the cotangent of the moments of mass to that of mass, center of mass and inertia.

    The reverse of `body_moments`: parents first, because the links that are fixed to them get their cotangent from
    them. `moments_bar` (over links) is overwritten.
    """
    for i in tree.links():
        record = tree.link_record(i)
        for _ in when(tree.kind(i) == Kind.FIXED):
            R, p = FIXED.pose(LinkConstants.of(record), ())
            inputs = (*p, *tree.bodies.gathered.get(i + 1, BODY))
            seeds = moments_bar.get(tree.parent(i), BODY)
            _, gradient = vjp(lambda *x, R=R: sp.body_to_parent(R, x[:VECTOR], x[VECTOR:]), inputs, seeds)
            p_bar, body_bar = split(gradient, VECTOR, BODY)
            accumulate(constants_bar.at(i * layout.LINK + layout.OFFSET), p_bar)
            moments_bar.put(i + 1, body_bar)
        own = record[layout.MASS : layout.MASS + layout.INERTIAL]
        _, gradient = vjp(_inertial_moments, own, moments_bar.get(i + 1, BODY))
        accumulate(constants_bar.at(i * layout.LINK + layout.MASS), tuple(gradient))


def _inertial_moments(*x: Scalar) -> Vec:
    """The moments of mass from the INERTIAL floats of a link record."""
    return sp.body_moments(x[layout.MASS], x[layout.COM : layout.INERTIA], x[layout.INERTIA :])
