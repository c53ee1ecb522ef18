"""One step of MuJoCo's physics, by the integrators that act on accelerations.

euler, implicit ...   v⁺ = v + h â, q⁺ = q ⊕ h v⁺, with implicit forces in â (`integrate`, `implicit`)
rk4                   the Runge-Kutta method of order four, in which all forces are explicit; rotations: `rates`
"""

from __future__ import annotations

from ...ir import Index, Scalar, ScalarArray, loop, maximum, memory, rolled, select, to_float, workspace
from ..integrators.base import move
from ..math.arrays import axpy, copy, local, zero
from ..scheme import StepContext
from ..state import StateArrays, StepInputs
from ..tree.tree import Tree
from .acceleration import accelerate, accelerations
from .forces import WHOLE, FirstContacts, Share, add_soft_forces
from .integrate import update
from .rates import displacement_rates
from .settings import STAGES
from .stage_before import StageBefore


def soft_step(
    ctx: StepContext, state: StateArrays, inputs: StepInputs, forces: ScalarArray | None = None,
    solution: ScalarArray | None = None, likeness: ScalarArray | None = None,
) -> tuple[Scalar, ...]:  # fmt: skip
    """Advance the state (in place) by h; returns the numbers of a `StepStatus`. The forces of constraints are added to
    `forces`, if given. solution [stages, nv]: receives those of the constraints (w of `problem`). likeness [1]:
    receives that of the last stage of "rk4" (`Acceleration`)."""
    tree, h, nv = ctx.tree, ctx.h, ctx.tree.nv
    if ctx.soft.integrator == "rk4":
        stages = RungeKuttaStages(ctx, state, inputs, forces, likeness=likeness)
        if solution is not None:
            copy(ctx.soft.evaluations * nv, stages.w, solution)
        if ctx.soft.last_stage:
            end = stages.state(tree, state, STAGES - 1)
            copy(tree.nq, end.q, state.q)
            copy(nv, end.v, state.v)
        else:
            axpy(nv, h, stages.mean_a, state.v, state.v)
            move(tree, state.q, stages.mean_rate, h, state.q)
        return tuple(stages.status[k] for k in range(5))
    now = accelerate(tree, ctx.soft, h, state, inputs)
    if forces is not None:
        add_soft_forces(tree, ctx.soft, h, now, WHOLE, forces)
    if solution is not None and now.constrained is not None:
        copy(nv, now.constrained.solution.w, solution)
    status, result = (now.dynamics.clipped, *now.status()), update(ctx, now)
    axpy(nv, h, now.dynamics.vdot if result is None else result.acceleration, state.v, state.v)
    move(tree, state.q, state.v, h, state.q)
    return status


def stage_weight(s: Index) -> Scalar:
    """The weight of stage s in the means: 1/6, 1/3, 1/3, 1/6."""
    inner = (to_float(s) > 0.5) & (to_float(s) < 2.5)
    return select(inner, 1.0 / 3.0, 1.0 / 6.0)


def stage_length(s: Index) -> Scalar:
    """The part of the step from its start to stage s + 1, at the velocity and acceleration of stage s: 1/2, 1/2, 1."""
    return select(to_float(s) < 1.5, 0.5, 1.0)


class RungeKuttaStages:
    """The stages of a step, s = 0 to 3. Their arrays follow each other, [nv] each.

    displacement: of the configuration from that at the start. v: velocities. rate: that of the displacement, which is v
    but for rotations (`rates`). w: the solutions of the constraints (`problem`). mean_rate, mean_a [nv]: the weighted
    means; status [5]. With the setting `last_stage`, nothing is evaluated at the last one.
    known: w, if the step was solved before; there is no status then, and no likeness [1].
    """

    def __init__(
        self, ctx: StepContext, state: StateArrays, inputs: StepInputs, forces: ScalarArray | None = None,
        known: ScalarArray | None = None, likeness: ScalarArray | None = None,
    ) -> None:  # fmt: skip
        tree, h, nv = ctx.tree, ctx.h, ctx.tree.nv
        self.ctx, self.inputs, self.forces, self.likeness = ctx, inputs, forces, likeness
        self.displacement, self.v = memory((STAGES + 1) * nv), memory((STAGES + 1) * nv)
        self.rate, self.w = memory(STAGES * nv), memory(STAGES * nv) if known is None else known
        self.mean_rate, self.mean_a, self.status = memory(nv), memory(nv), memory(5)
        for array, n in ((self.mean_rate, nv), (self.mean_a, nv), (self.status, 5), (self.displacement, nv)):
            zero(n, array)
        copy(nv, state.v, self.v)
        self._first = None if forces is None or tree.constraints is None else FirstContacts(tree.constraints)
        self._before = None if tree.constraints is None else StageBefore(tree, ctx.soft)
        for s in rolled(ctx.soft.evaluations):
            here = self.state(tree, state, s)
            if known is None:
                a = self._solve(s, here)
            else:
                a = accelerations(tree, ctx.soft, here, inputs, self.w.at(s * nv))
            rate, weight, length = workspace(nv), stage_weight(s), stage_length(s) * h
            displacement_rates(tree, local(nv, self.displacement.at(s * nv)), here.v, rate)
            copy(nv, rate, self.rate.at(s * nv))
            for k in loop(nv):
                self.mean_rate[k] = self.mean_rate[k] + weight * rate[k]
                self.mean_a[k] = self.mean_a[k] + weight * a[k]
                self.displacement.at((s + 1) * nv)[k] = length * rate[k]
            axpy(nv, length, a, state.v, self.v.at((s + 1) * nv))

    def _solve(self, s: Index, here: StateArrays) -> ScalarArray:
        """The accelerations of stage s; with the forces of its constraints, their solution, and its status."""
        ctx, nv = self.ctx, self.ctx.tree.nv
        before = None if self._before is None else self._before.at(s)
        now = accelerate(ctx.tree, ctx.soft, ctx.h, here, self.inputs, before=before)
        if self.forces is not None:
            if self._first is not None:
                self._first.find(now, s)
            add_soft_forces(ctx.tree, ctx.soft, ctx.h, now, Share(stage_weight(s), s, self._first), self.forces)
        if now.constrained is not None:
            copy(nv, now.constrained.solution.w, self.w.at(s * nv))
        for k, x in enumerate((now.dynamics.clipped, *now.status())):
            self.status[k] = self.status[k] + x if k == 4 else maximum(self.status[k], x)
        if self.likeness is not None:
            self.likeness[0] = now.likeness()
        return now.dynamics.vdot

    def state(self, tree: Tree, start: StateArrays, s: Index) -> StateArrays:
        """The state of stage s; start: that before the step."""
        q, v = workspace(tree.nq), local(tree.nv, self.v.at(s * tree.nv))
        move(tree, start.q, local(tree.nv, self.displacement.at(s * tree.nv)), 1.0, q)
        return StateArrays(q, v)
