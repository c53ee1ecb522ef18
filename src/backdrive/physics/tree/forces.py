"""Generalised forces of springs, dampers and motors: τ(q, v, u)."""

from __future__ import annotations

from functools import partial

from ...ir import Index, Scalar, ScalarArray, clip, loop, select, switch, workspace
from ...schema import layout
from ..math.spatial import Vec
from .inputs import DynamicsInputs
from .joints import JOINTS, JointModel
from .tree import Tree


def motor_force(record: Vec, q: Scalar, v: Scalar, control: Scalar) -> tuple[Scalar, Scalar]:
    """gear · clip(gain · clip(u) + b₀ + b₁ l + b₂ l̇) with the length l = gear · q; and 1 if a limit acts, else 0."""
    gear, gain = record[layout.GEAR], record[layout.GAIN]
    b0, b1, b2 = record[layout.BIAS : layout.BIAS + 3]
    u = clip(control, record[layout.CTRL_LOW], record[layout.CTRL_HIGH])
    wanted = gain * u + b0 + b1 * (gear * q) + b2 * (gear * v)
    force = clip(wanted, record[layout.FORCE_LOW], record[layout.FORCE_HIGH])
    limited = (u != control) | (force != wanted)
    return gear * force, select(limited, 1.0, 0.0)


def generalised_forces(tree: Tree, inputs: DynamicsInputs, tau: ScalarArray) -> Scalar:
    """Fill tau [nv] with the forces of all joints and motors. Returns the number of motors at a limit.

    The dampers act on `inputs.v_damped`; the rest of their implicit treatment is in the mass matrix.
    """
    q, v, v_damped, controls = inputs.q, inputs.v, inputs.v_damped, inputs.controls

    def passive(joint: JointModel, i: Index) -> None:
        a, b = tree.q_start(i), tree.v_start(i)
        rest = tree.reference().at(a).get(0, joint.nq)
        force = joint.passive_force(tree.link(i), q.at(a).get(0, joint.nq), rest, v_damped.at(b).get(0, joint.nv))
        tau.at(b).put(0, force)

    for i in tree.links():
        switch(tree.kind(i), [partial(passive, joint) for joint in JOINTS], i)
    clipped = workspace(1)
    clipped[0] = 0.0
    for m in loop(tree.nu):
        a, b = tree.motor_q_start(m), tree.motor_v_start(m)
        force, limited = motor_force(tree.motors().get(m, layout.MOTOR), q[a], v[b], controls[m])
        tau[b] = tau[b] + force
        clipped[0] = clipped[0] + limited
    return clipped[0]
