"""Which motors are at a limit of their force, where their forces are implicit.

A servo that brakes hard may want more than its limit at the velocity before the step, and much less at the one after
it, at which its implicit force acts. It is the latter that must not exceed the limit: at the limit for a whole step,
the servo would drive its joint far past the velocity it was to stop at.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ir import Mask, Scalar, any_lane, carry, memory, rolled, select, when
from ...model import Model
from ...schema import layout
from ..math.arrays import zero
from ..math.spatial import Vec
from .dynamics import forward_dynamics
from .forces import motor_force, motor_state
from .inputs import DynamicsInputs
from .tree import Tree

PASSES = 4  # of the active-set method


def saturates(model: Model) -> bool:
    """Whether some motor has a limit of a force that depends on the state."""
    start, end = (int(layout.motor_start(model.nlink, model.nq, m)) for m in (0, model.nu))
    motors = model.constants[start:end].reshape(-1, layout.MOTOR)
    limits = motors[:, [layout.FORCE_LOW, layout.FORCE_HIGH]]
    return bool((np.isfinite(limits).any(1) & motors[:, layout.BIAS + 1 : layout.BIAS + 3].any(1)).any())


def saturated(tree: Tree, inputs: DynamicsInputs) -> DynamicsInputs:
    """The inputs with the `saturation` of all motors, where an explicit force exceeds a limit: those for which
    f = clip(f₀ - h D v̇(f)), by an active-set method."""
    if not tree.saturating:
        return inputs
    found, exceeds = memory(tree.nu), carry(1)
    zero(tree.nu, found)
    exceeds[0] = 0.0
    for m in tree.joint_motors():
        record, state = tree.motors().get(m, layout.MOTOR), motor_state(tree, inputs, m)
        beyond = motor_force(record, *state).force != motor_force(record, *state, 0.0).force
        exceeds[0] = select(beyond, 1.0, exceeds[0])
    some: Mask = exceeds[0] > 0.5
    for _ in when(any_lane(some) if tree.branching else True):
        for _ in rolled(PASSES):
            vdot = forward_dynamics(tree, replace(inputs, saturation=found)).vdot
            for m in tree.joint_motors():
                record = tree.motors().get(m, layout.MOTOR)
                motor = motor_force(record, *motor_state(tree, inputs, m), 0.0)
                damping = motor.damping + inputs.stiffness_time * motor.stiffness
                acting = motor.force - inputs.damping_time * damping * vdot[tree.motor_v_start(m)]
                limit, before = _limit(record, acting), found[m]
                stays = (before == 0.0) | (limit == before)  # what leaves a limit is free next, not at the other one
                found[m] = select(some & stays, limit, 0.0)
    return replace(inputs, saturation=found)


def _limit(record: Vec, force: Scalar) -> Scalar:
    """The limit that a motor exceeds, -1 or 1, or 0; force: on its coordinate."""
    gear = record[layout.GEAR]
    own = force / select(gear == 0.0, 1.0, gear)
    return select(own > record[layout.FORCE_HIGH], 1.0, select(own < record[layout.FORCE_LOW], -1.0, 0.0))
