"""The midpoint rule: qₘ = q ⊕ h/2 v, v⁺ = v + h v̇(qₘ, v + h/2 v̇₀), q⁺ = qₘ ⊕ h/2 v⁺, with v̇₀ = v̇(qₘ, v).

Forces that brake in proportion to the velocity (joint damping, motors) are implicit: they act at (v + v⁺)/2. So is the
stiffness of motors, which acts at (q + q⁺)/2 = qₘ ⊕ (h/2)² v̇: it neither damps nor diverges. Joint springs act at qₘ.
The gyroscopic torques of links that can spin are implicit in v̇₀: without other torques v + h/2 v̇₀ = (v + v⁺)/2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from ...ir import Scalar, ScalarArray, carry, loop, memory, workspace
from ..math.arrays import axpy, zero
from ..state import StateArrays, StepInputs
from ..tree.dynamics import forward_dynamics
from ..tree.dynamics_adjoint import DynamicsSeeds, dynamics_adjoint
from ..tree.forces_adjoint import damping_rate
from ..tree.inputs import DynamicsInputs
from ..tree.saturation import saturated
from ..tree.tree import LinkSubset, Tree
from .base import Stages, StagesAdjoint, TravelAdjoint, VelocityChange, move, move_adjoint


@dataclass(frozen=True)
class Midpoint:
    """Second order, and exact for constant forces; about 1.5 times the work of a semi-implicit Euler step."""

    share: ClassVar[float] = 0.5
    predicts: ClassVar[bool] = True
    has_jacobian_kernel: ClassVar[bool] = False

    def stages(self, tree: Tree, state: StateArrays, step_inputs: StepInputs, h: Scalar) -> Stages:
        q_mid, v_mid = workspace(tree.nq), workspace(tree.nv)
        move(tree, state.q, state.v, 0.5 * h, q_mid)
        inputs = saturated(tree, DynamicsInputs(q_mid, state.v, state.v, *step_inputs, 0.5 * h, 0.5 * h, h))
        first = forward_dynamics(tree, inputs)
        axpy(tree.nv, 0.5 * h, first.vdot, state.v, v_mid)
        inputs = replace(inputs, v=v_mid, spin_time=0.0)
        return Stages(q_mid, inputs, forward_dynamics(tree, inputs, first), first)

    def stages_adjoint(self, adjoint: StagesAdjoint) -> tuple[ScalarArray, Callable[[], Scalar] | None]:
        tree, h, v, first = adjoint.tree, adjoint.h, adjoint.state.v, adjoint.stages.first
        assert first is not None
        v_mid_bar, v_bar, vdot_bar = workspace(tree.nv), adjoint.v_bar, workspace(tree.nv)
        zero(tree.nv, v_mid_bar)
        adjoint.last_stage(v_mid_bar)
        for k in loop(tree.nv):
            v_bar[k], vdot_bar[k] = v_bar[k] + v_mid_bar[k], 0.5 * h * v_mid_bar[k]
        spin_bar = carry(1)
        spin_bar[0] = 0.0
        cotangents = replace(adjoint.cotangents, q=adjoint.start_bar, v=v_bar, spin_time=spin_bar)
        inputs = replace(adjoint.stages.inputs, v=v, spin_time=h)
        virtual = dynamics_adjoint(tree, inputs, first, DynamicsSeeds(vdot_bar, v_bar), cotangents)
        q_bar, step_bar = workspace(tree.nq), workspace(tree.nv)
        move_adjoint(tree, adjoint.state.q, v, 0.5 * h, adjoint.start_bar, q_bar, step_bar)
        for k in loop(tree.nv):
            v_bar[k] = v_bar[k] + 0.5 * h * step_bar[k]

        def by_duration() -> Scalar:
            total = carry(1)
            total[0] = 0.5 * damping_rate(tree, inputs, first, virtual, first.vdot) + spin_bar[0]
            for k in loop(tree.nv):
                total[0] = total[0] + 0.5 * (v_mid_bar[k] * first.vdot[k] + step_bar[k] * v[k])
            return total[0]

        return q_bar, by_duration

    def travel(
        self, tree: Tree, state: StateArrays, motion: ScalarArray, t: Scalar, target: ScalarArray,
        some: LinkSubset | None = None,
    ) -> None:  # fmt: skip
        middle = memory(tree.nq)
        move(tree, state.q, state.v, 0.5 * t, middle, some)
        move(tree, middle, motion, 0.5 * t, target, some)

    def travel_adjoint(
        self, tree: Tree, state: StateArrays, motion: ScalarArray, length: Scalar, target_bar: ScalarArray,
        q_bar: ScalarArray,
    ) -> TravelAdjoint:  # fmt: skip
        end_bar = workspace(tree.nv)
        middle, middle_bar, start_bar = workspace(tree.nq), workspace(tree.nq), workspace(tree.nv)
        move(tree, state.q, state.v, length, middle)
        move_adjoint(tree, middle, motion, length, target_bar, middle_bar, end_bar)
        move_adjoint(tree, state.q, state.v, length, middle_bar, q_bar, start_bar)
        return TravelAdjoint(end_bar, start_bar)

    def to_rate(self, tree: Tree, part: Scalar, change: VelocityChange, velocity: ScalarArray) -> None:
        """d/dt t/2 (v + v(t)) = v(t), since v(t) changes linearly: the velocity is the rate."""
