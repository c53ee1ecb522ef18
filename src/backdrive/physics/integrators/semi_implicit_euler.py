"""Semi-implicit Euler: v⁺ = v + h v̇(q, v), q⁺ = q ⊕ h v⁺.

Forces that brake in proportion to the velocity (joint damping, motors) are implicit: they act at v⁺. Springs and the
stiffness of motors act at q: implicit, they would damp. They are stable for h² k < 4 (inertia + h damping / 2).
The gyroscopic torques of links that can spin are implicit: they act at (v + v⁺)/2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ...ir import Scalar, ScalarArray, loop, workspace
from ..state import StateArrays, StepInputs
from ..tree.dynamics import forward_dynamics
from ..tree.inputs import DynamicsInputs
from ..tree.saturation import saturated
from ..tree.tree import LinkSubset, Tree
from .base import Stages, StagesAdjoint, TravelAdjoint, VelocityChange, move, move_adjoint


@dataclass(frozen=True)
class SemiImplicitEuler:
    """First order, good energy behaviour; what MuJoCo's "implicitfast" does (and its Euler, where no motor brakes), but
    for servos at a limit of their force."""

    share: ClassVar[float] = 1.0
    predicts: ClassVar[bool] = False
    has_jacobian_kernel: ClassVar[bool] = True

    def stages(self, tree: Tree, state: StateArrays, step_inputs: StepInputs, h: Scalar) -> Stages:
        inputs = saturated(tree, DynamicsInputs(state.q, state.v, state.v, *step_inputs, h, spin_time=h))
        return Stages(state.q, inputs, forward_dynamics(tree, inputs))

    def stages_adjoint(self, adjoint: StagesAdjoint) -> tuple[ScalarArray, Callable[[], Scalar] | None]:
        adjoint.last_stage(adjoint.v_bar)
        return adjoint.start_bar, None

    def travel(
        self, tree: Tree, state: StateArrays, motion: ScalarArray, t: Scalar, target: ScalarArray,
        some: LinkSubset | None = None,
    ) -> None:  # fmt: skip
        move(tree, state.q, motion, t, target, some)

    def travel_adjoint(
        self, tree: Tree, state: StateArrays, motion: ScalarArray, length: Scalar, target_bar: ScalarArray,
        q_bar: ScalarArray,
    ) -> TravelAdjoint:  # fmt: skip
        end_bar = workspace(tree.nv)
        move_adjoint(tree, state.q, motion, length, target_bar, q_bar, end_bar)
        return TravelAdjoint(end_bar, None)

    def to_rate(self, tree: Tree, part: Scalar, change: VelocityChange, velocity: ScalarArray) -> None:
        for k in loop(tree.nv):  # d/dt t (v + t/h (v⁺ - v)) = v + 2 t/h (v⁺ - v)
            velocity[k] = velocity[k] + part * (change.end[k] - change.start[k])
