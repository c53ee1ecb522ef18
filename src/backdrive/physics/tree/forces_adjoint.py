"""The adjoint of the forces of springs, dampers and motors, and of what joints add to M: armature and damping."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ...ir import Index, Scalar, ScalarArray, carry, is_constant, loop, switch, vjp
from ...schema import layout
from ..math.arrays import accumulate, split
from ..math.spatial import Vec
from .dynamics import Dynamics
from .forces import motor_force, motor_state
from .inputs import DynamicsInputs
from .joints import JOINTS, JointModel
from .tree import LinkConstants, Tree, accumulate_link

if TYPE_CHECKING:
    from .dynamics_adjoint import Cotangents


def forces_adjoint(
    tree: Tree, inputs: DynamicsInputs, virtual: ScalarArray, damped_bar: ScalarArray, cotangents: Cotangents
) -> None:
    """Add the gradient of λ · τ(q, v, u) to the cotangents, and that with respect to `v_damped` to `damped_bar`."""
    q, v_damped = inputs.q, inputs.v_damped

    def passive(joint: JointModel, i: Index) -> None:
        a, b, nq, nv = tree.q_start(i), tree.v_start(i), joint.nq, joint.nv
        rest, sizes = tree.reference().at(a), (layout.LINK, nq, nq, nv)

        def force(*x: Scalar) -> Vec:
            record, qi, resti, vi = split(x, *sizes)
            return joint.passive_force(LinkConstants.of(record), qi, resti, vi)

        inputs = (*tree.link_record(i), *q.at(a).get(0, nq), *rest.get(0, nq), *v_damped.at(b).get(0, nv))
        _, gradient = vjp(force, inputs, virtual.at(b).get(0, nv))
        _, q_bar, rest_bar, v_bar = split(gradient, *sizes)
        accumulate(cotangents.q.at(a), q_bar)
        accumulate(damped_bar.at(b), v_bar)
        if cotangents.constants is not None:
            accumulate_link(cotangents.constants, i, gradient)
            accumulate(cotangents.constants.at(layout.reference_start(tree.nlink)).at(a), rest_bar)

    for i in tree.links():
        switch(tree.kind(i), [partial(passive, joint) for joint in JOINTS], i)
    for m in tree.joint_motors():
        a, b = tree.motor_q_start(m), tree.motor_v_start(m)
        arguments = (*tree.motors().get(m, layout.MOTOR), *motor_state(tree, inputs, m))
        _, gradient = vjp(partial(_force, inputs.limit_of(m)), arguments, [virtual[b]])
        *record_bar, q_bar, v_bar, v_damped_bar, control_bar = gradient
        accumulate(cotangents.q.at(a), (q_bar,))
        accumulate(cotangents.v.at(b), (v_bar,))
        accumulate(damped_bar.at(b), (v_damped_bar,))
        if cotangents.controls is not None:
            accumulate(cotangents.controls.at(m), (control_bar,))
        if cotangents.constants is not None:
            _accumulate_motor(tree, cotangents.constants, m, record_bar)


def _force(saturation: Scalar | None, *x: Scalar) -> list[Scalar]:
    """The force of a motor; x: its record, and its `motor_state`."""
    q, v, v_damped, control = x[layout.MOTOR :]
    return [motor_force(x[: layout.MOTOR], q, v, v_damped, control, saturation).force]


def _accumulate_motor(tree: Tree, constants_bar: ScalarArray, m: Index, record_bar: Vec) -> None:
    start = layout.motor_start(tree.nlink, tree.nq)
    accumulate(constants_bar.at(start).at(m * layout.MOTOR), tuple(record_bar))


def joint_inertia_adjoint(
    tree: Tree, inputs: DynamicsInputs, virtual: ScalarArray, vdot: ScalarArray, cotangents: Cotangents
) -> None:
    """Subtract the gradient of λ · (armature + h D) v̇ from the cotangents. virtual [nv]: λ."""
    if cotangents.constants is None:
        return
    damping_time = inputs.damping_time
    for i in tree.links():
        b, record = tree.v_start(i), cotangents.constants.at(i * layout.LINK)
        for k in loop(tree.dofs(i)):
            inertial = virtual[b + k] * vdot[b + k]
            record[layout.ARMATURE] = record[layout.ARMATURE] - inertial
            record[layout.DAMPING] = record[layout.DAMPING] - damping_time * inertial
    for m in tree.joint_motors():
        b, state = tree.motor_v_start(m), (*motor_state(tree, inputs, m), inputs.limit_of(m))
        seed = -(damping_time * (virtual[b] * vdot[b]))

        def implicit(*record: Scalar, state: tuple[Any, ...] = state) -> list[Scalar]:
            _, damping, stiffness, _ = motor_force(record, *state)
            return [damping, stiffness]

        motor = tree.motors().get(m, layout.MOTOR)
        _, record_bar = vjp(implicit, motor, [seed, inputs.stiffness_time * seed])
        _accumulate_motor(tree, cotangents.constants, m, record_bar)


def damping_rate(
    tree: Tree, inputs: DynamicsInputs, dynamics: Dynamics, virtual: ScalarArray, vdot: ScalarArray
) -> Scalar:
    """The derivative of -λ · (M + h D) v̇ with respect to h, with which `stiffness_time` grows in proportion.

    virtual [nv]: λ.
    """
    total = carry(1)
    total[0] = 0.0
    for k in loop(tree.nv):
        total[0] = total[0] - virtual[k] * vdot[k] * dynamics.damping[k]
    if not is_constant(inputs.stiffness_time, 0.0):
        for m in tree.joint_motors():
            b, record = tree.motor_v_start(m), tree.motors().get(m, layout.MOTOR)
            motor = motor_force(record, *motor_state(tree, inputs, m), inputs.limit_of(m))
            total[0] = total[0] - inputs.stiffness_time * motor.stiffness * virtual[b] * vdot[b]
    return total[0]
