"""The damping of single coordinates, D x of joints and motors; that of a motor at a limit of its force is zero."""

from __future__ import annotations

from ...ir import Index, Scalar, ScalarArray, clip, loop, select, vjp, workspace
from ...schema import layout
from ..math.arrays import accumulate
from ..math.spatial import Vec
from ..tree.dynamics_adjoint import Cotangents
from ..tree.inputs import DynamicsInputs
from ..tree.tree import Tree


def motor_damping(record: Vec, q: Scalar, v: Scalar, control: Scalar) -> Scalar:
    """-∂(gear force)/∂v of a MOTOR record (`tree.forces.motor_force`), N m s/rad or N s/m; negative if it drives."""
    gear, (b0, b1, b2) = record[layout.GEAR], record[layout.BIAS : layout.BIAS + 3]
    u = clip(control, record[layout.CTRL_LOW], record[layout.CTRL_HIGH])
    wanted = record[layout.GAIN] * u + b0 + gear * (b1 * q + b2 * v)
    free = (wanted > record[layout.FORCE_LOW]) & (wanted < record[layout.FORCE_HIGH])
    return select(free, -(gear * gear * b2), 0.0)


def coordinate_damping(tree: Tree, inputs: DynamicsInputs, motors: bool) -> ScalarArray:
    """[nv]: of the joints, and of the motors if `motors`."""
    damping = workspace(tree.nv)
    for i in tree.links():
        b, own = tree.v_start(i), tree.link(i).damping
        for k in loop(tree.dofs(i)):
            damping[b + k] = own
    if motors:
        for m in tree.joint_motors():
            b = tree.motor_v_start(m)
            damping[b] = damping[b] + motor_damping(tree.motors().get(m, layout.MOTOR), *_state(tree, inputs, m))
    return damping


def _state(tree: Tree, inputs: DynamicsInputs, m: Index) -> tuple[Scalar, Scalar, Scalar]:
    """q, v and control of motor m."""
    return inputs.q[tree.motor_q_start(m)], inputs.v[tree.motor_v_start(m)], inputs.controls[m]


def coordinate_damping_adjoint(
    tree: Tree, inputs: DynamicsInputs, motors: bool, damping_bar: ScalarArray, constants_bar: ScalarArray
) -> None:
    """Add the gradient of damping_bar · damping to that of the constants; damping_bar [nv]."""
    for i in tree.links():
        b, record = tree.v_start(i), constants_bar.at(i * layout.LINK)
        for k in loop(tree.dofs(i)):
            record[layout.DAMPING] = record[layout.DAMPING] + damping_bar[b + k]
    start = layout.motor_start(tree.nlink, tree.nq)
    for m in tree.joint_motors() if motors else ():
        state = _state(tree, inputs, m)
        _, record_bar = vjp(
            lambda *record, state=state: [motor_damping(record, *state)],
            tree.motors().get(m, layout.MOTOR),
            [damping_bar[tree.motor_v_start(m)]],
        )
        accumulate(constants_bar.at(start).at(m * layout.MOTOR), tuple(record_bar))


def armature_adjoint(tree: Tree, virtual: ScalarArray, x: ScalarArray, cotangents: Cotangents) -> None:
    """Subtract the gradient of μ · armature x; virtual [nv]: μ."""
    assert cotangents.constants is not None
    for i in tree.links():
        b, record = tree.v_start(i), cotangents.constants.at(i * layout.LINK)
        for k in loop(tree.dofs(i)):
            record[layout.ARMATURE] = record[layout.ARMATURE] - virtual[b + k] * x[b + k]
