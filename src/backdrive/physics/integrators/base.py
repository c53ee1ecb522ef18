"""The protocol of a time integrator, and what integrators share.

A substep advances the state by a time h (s): the whole step, or the part of it up to the next impact. The integrator
first evaluates the dynamics without constraints (`stages`). Constraints then change the velocity at the end from
v* = v + h v̇, with the v̇ of the last stage, to v⁺. Last, positions move to the end of the substep, by q ⊕ `share` h v⁺
from the start configuration of the last stage. In a step that is split at impacts, `travel` finds the configuration at
any time of a substep; at the end of the substep it is the same one. Each has its adjoint beside it.

The implicit damping of the last stage must act for the time `share` h: the adjoint of the time of impact relies
on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from ...ir import Index, Scalar, ScalarArray, switch, vjp
from ..math import spatial as sp
from ..state import StateArrays, StepInputs
from ..tree.dynamics import Dynamics
from ..tree.dynamics_adjoint import Cotangents
from ..tree.inputs import DynamicsInputs
from ..tree.joints import JOINTS, JointModel
from ..tree.tree import LinkSubset, Tree


class Stages(NamedTuple):
    """The dynamics of a substep without constraints, stage by stage.

    start [nq]: the configuration at which forces and constraints are evaluated, and from which positions move with the
    velocity at the end of the substep. inputs, dynamics: of the last stage, whose accelerations v̇ count. first: the
    dynamics of the stage before it, if there is one.
    """

    start: ScalarArray
    inputs: DynamicsInputs
    dynamics: Dynamics
    first: Dynamics | None = None


@dataclass(frozen=True)
class StagesAdjoint:
    """What the adjoint of an integrator's stages is given.

    state, step_inputs, h, stages: those of the forward pass. start_bar [nq], v_bar [nv]: cotangents of the start
    configuration and of the velocity before the substep, as far as they are known; updated in place. cotangents: where
    the cotangents of controls, wrenches and constants accumulate. last_stage(v_stage_bar): the vector-Jacobian product
    of the last stage with its constraints. It adds to start_bar, to v_bar, and to v_stage_bar, the cotangent of the
    velocity at which the stage was evaluated; this may be v_bar itself, if that velocity is v.
    """

    tree: Tree
    state: StateArrays
    step_inputs: StepInputs
    h: Scalar
    stages: Stages
    start_bar: ScalarArray
    v_bar: ScalarArray
    cotangents: Cotangents
    last_stage: Callable[[ScalarArray], None]


class TravelAdjoint(NamedTuple):
    """Cotangents of `Integrator.travel`: of the displacement by the velocity at time t, [nv]; and of the one by the
    velocity at the start, [nv], if there is one. Each displacement is that velocity times `share` t."""

    end_bar: ScalarArray
    start_bar: ScalarArray | None


class Integrator(Protocol):
    """A time integrator: a frozen dataclass with these members, in a file of its own, listed in `INTEGRATORS`."""

    @property
    def share(self) -> float:
        """The part of the substep during which positions travel with the velocity at its end."""

    @property
    def predicts(self) -> bool:
        """Whether the start configuration of the last stage is a predicted one, and not that of the state. Then
        `stages_adjoint` returns a function for the derivative by the duration."""

    @property
    def has_jacobian_kernel(self) -> bool:
        """Whether `step_jacobian` knows the derivative of its positions: q⁺ = q ⊕ h v⁺."""

    def stages(self, tree: Tree, state: StateArrays, step_inputs: StepInputs, h: Scalar) -> Stages:
        """Evaluate the dynamics without constraints."""

    def stages_adjoint(self, adjoint: StagesAdjoint) -> tuple[ScalarArray, Callable[[], Scalar] | None]:
        """The adjoint of `stages`: the cotangent of q [nq]; and a function that computes the derivative of the loss by
        the duration h through the stages before the last, or None if there are none."""

    def travel(
        self, tree: Tree, state: StateArrays, motion: ScalarArray, t: Scalar, target: ScalarArray,
        some: LinkSubset | None = None,
    ) -> None:  # fmt: skip
        """target [nq] = the configuration at time t of the substep; motion [nv]: the velocity at that time, with the
        correction of positions. With `some`, only for these links."""

    def travel_adjoint(
        self, tree: Tree, state: StateArrays, motion: ScalarArray, length: Scalar, target_bar: ScalarArray,
        q_bar: ScalarArray,
    ) -> TravelAdjoint:  # fmt: skip
        """The adjoint of `travel`: q_bar [nq] is set. length: `share` of the time t."""

    def to_rate(self, tree: Tree, part: Scalar, change: VelocityChange, velocity: ScalarArray) -> None:
        """From the velocity [nv] at a `part` of the substep, in place, to the rate at which the configuration that
        `travel` finds changes with t."""


class VelocityChange(NamedTuple):
    """The velocities [nv] at the start and at the end of a substep, between which they change linearly."""

    start: ScalarArray
    end: ScalarArray


def move(
    tree: Tree, q: ScalarArray, v: ScalarArray, h: Scalar, target: ScalarArray, some: LinkSubset | None = None
) -> None:
    """target = q ⊕ h v on the configuration manifold, joint by joint (target may be q). With `some`, only for these
    links."""

    def one(joint: JointModel, i: Index) -> None:
        a, b = tree.q_start(i), tree.v_start(i)
        step = sp.scale(h, v.at(b).get(0, joint.nv))
        target.at(a).put(0, joint.integrate(q.at(a).get(0, joint.nq), step))

    for i in tree.links_among(some):
        switch(tree.kind(i), [partial(one, joint) for joint in JOINTS], i)


def move_adjoint(
    tree: Tree, q: ScalarArray, v: ScalarArray, h: Scalar, target_bar: ScalarArray, q_bar: ScalarArray,
    step_bar: ScalarArray,
) -> None:  # fmt: skip
    """The adjoint of `move`: q_bar [nq] and step_bar [nv], the cotangents of q and of the displacement h v, are set."""

    def one(joint: JointModel, i: Index) -> None:
        a, b = tree.q_start(i), tree.v_start(i)
        inputs = (*q.at(a).get(0, joint.nq), *sp.scale(h, v.at(b).get(0, joint.nv)))
        _, gradient = vjp(
            lambda *x: joint.integrate(x[: joint.nq], x[joint.nq :]), inputs, target_bar.at(a).get(0, joint.nq)
        )
        q_bar.at(a).put(0, tuple(gradient[: joint.nq]))
        step_bar.at(b).put(0, tuple(gradient[joint.nq :]))

    for i in tree.links():
        switch(tree.kind(i), [partial(one, joint) for joint in JOINTS], i)
