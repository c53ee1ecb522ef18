"""Generalised forces of springs, dampers and motors: τ(q, v, u)."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ...ir import Index, Scalar, ScalarArray, clip, select, switch, workspace
from ...schema import layout
from ..math.arrays import add_to
from ..math.spatial import Vec
from .inputs import DynamicsInputs
from .joints import JOINTS, JointModel
from .tree import Tree


class MotorForce(NamedTuple):
    """What a motor does to its coordinate. force: N m or N. damping (N m s/rad or N s/m) and stiffness (N m/rad or
    N/m): how its force falls with velocity and length, if it does. limited: 1 if a limit of its control or of its force
    acts, else 0."""

    force: Scalar
    damping: Scalar
    stiffness: Scalar
    limited: Scalar


def motor_force(
    record: Vec, q: Scalar, v: Scalar, v_damped: Scalar, control: Scalar, saturation: Scalar | None = None
) -> MotorForce:
    """gear · clip(gain · clip(u) + b₀ + b₁ l + b₂ l̇) with the length l = gear · q.

    A force that brakes (b₂ ≤ 0) is implicit, as that of a joint damper: l̇ = gear · v_damped, and the damping is
    -gear² b₂. Where the force is clipped, it depends neither on velocity nor on length; `saturation` says where (-1, 0,
    1), or, if it is None, the explicit force. A force that drives (b₂ > 0) acts at v: implicit, it would take inertia
    away.
    """
    gear, gain = record[layout.GEAR], record[layout.GAIN]
    b0, b1, b2 = record[layout.BIAS : layout.BIAS + 3]
    u = clip(control, record[layout.CTRL_LOW], record[layout.CTRL_HIGH])
    wanted = gain * u + b0 + b1 * (gear * q) + b2 * (gear * select(b2 <= 0.0, v_damped, v))
    low, high = record[layout.FORCE_LOW], record[layout.FORCE_HIGH]
    if saturation is None:
        force = clip(wanted, low, high)
        clipped = force != wanted
    else:
        force = select(saturation > 0.5, high, select(saturation < -0.5, low, wanted))
        clipped = saturation != 0.0
    damping, stiffness = (select((b <= 0.0) & ~clipped, -(gear * gear * b), 0.0) for b in (b2, b1))
    return MotorForce(gear * force, damping, stiffness, select((u != control) | clipped, 1.0, 0.0))


def motor_state(tree: Tree, inputs: DynamicsInputs, m: Index) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """What the force of motor m depends on: q, v and v_damped of its coordinate, and its control."""
    a, b = tree.motor_q_start(m), tree.motor_v_start(m)
    return inputs.q[a], inputs.v[b], inputs.v_damped[b], inputs.controls[m]


def generalised_forces(tree: Tree, inputs: DynamicsInputs, tau: ScalarArray, damping: ScalarArray) -> Scalar:
    """Fill tau [nv] with the forces of all joints and motors, and `damping` [nv] with the diagonal of D in M + h D.

    Returns the number of motors at a limit. Forces that brake act on `inputs.v_damped`; the rest of the implicit
    treatment of forces is in M + h D.
    """
    q, v_damped = inputs.q, inputs.v_damped

    def passive(joint: JointModel, i: Index) -> None:
        a, b, link = tree.q_start(i), tree.v_start(i), tree.link(i)
        rest = tree.reference().at(a).get(0, joint.nq)
        force = joint.passive_force(link, q.at(a).get(0, joint.nq), rest, v_damped.at(b).get(0, joint.nv))
        tau.at(b).put(0, force)
        damping.at(b).put(0, (link.damping,) * joint.nv)

    for i in tree.links():
        switch(tree.kind(i), [partial(passive, joint) for joint in JOINTS], i)
    clipped = workspace(1)
    clipped[0] = 0.0
    for m in tree.joint_motors():
        b = tree.motor_v_start(m)
        motor = motor_force(tree.motors().get(m, layout.MOTOR), *motor_state(tree, inputs, m), inputs.limit_of(m))
        tau[b] = tau[b] + motor.force
        damping[b] = damping[b] + (motor.damping + inputs.stiffness_time * motor.stiffness)
        clipped[0] = clipped[0] + motor.limited
    if inputs.applied is not None:
        add_to(tree.nv, inputs.applied, tau)
    return clipped[0]
