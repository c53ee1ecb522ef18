"""Newton's method for the convex problem of soft constraints, with an exact line search, in all lanes together.

It starts from the unconstrained acceleration, or within a step, from what an earlier stage of it found: the result is a
function of the state and the controls alone. Lanes that have converged do not change any more.
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir import (
    Mask,
    Scalar,
    ScalarArray,
    absolute,
    any_lane,
    carry,
    interruptible,
    loop,
    maximum,
    memory,
    select,
    sqrt,
    when,
    while_any,
)
from ..math.arrays import copy
from ..math.linear import TILE
from .problem import SoftProblem
from .stage_before import StageBefore

LINE_STEPS = 30  # most steps of the line search
LINE_TOLERANCE = 1e-6  # the slope along the line is reduced to this part of it; beyond, Newton's next step does better


class NewtonSolution(NamedTuple):
    """w [nv], the residuals x and the forces f [n] of all rows, and the part of the first step that the last one was,
    zero where the method converged."""

    w: ScalarArray
    x: ScalarArray
    f: ScalarArray
    residual: Scalar


class Newton:
    """The method, and memory for it."""

    def __init__(self, problem: SoftProblem) -> None:
        self.problem, self.nv = problem, problem.nv
        most = problem.nv + TILE
        self.x, self.f, self.y, self.at = (memory(problem.capacity) for _ in range(4))
        self.w, self.change, self.p, self.g = (memory(most) for _ in range(4))
        self.w0 = memory(self.nv)

    def solve(self, free: ScalarArray, before: StageBefore | None = None) -> NewtonSolution:
        """free [nv]: w₀. before: what the stage before found, and then this one; None: steps have a single stage."""
        problem, nv, residual = self.problem, self.nv, memory(1)
        copy(nv, free, self.w0)
        copy(nv, free, self.w)
        residual[0] = 0.0
        for _ in when(problem.count > 0):
            if before is not None:
                before.start(problem, self.w)
            problem.residual(self.w, self.x)
            self._iterate(residual, before)
            problem.forces(self.x, self.f)
        if before is not None:
            before.keep(problem, self.w, self.w0, self.x)
        return NewtonSolution(self.w, self.x, self.f, residual[0])

    def _iterate(self, residual: ScalarArray, before: StageBefore | None) -> None:
        """From the residuals x of w: pass after pass a test, and a step where it fails in some lane.

        With a stage before, the first step takes the laws as they are linear around its residuals: where rows push as
        they did then, it leads to the solution.
        """
        problem, settings = self.problem, self.problem.settings
        going, first, energy, linear = memory(1), memory(1), memory(1), memory(1)
        going[0], first[0], energy[0], linear[0] = 1.0, 0.0, 1.0, 0.0
        if before is not None:
            linear[0] = before.there
        for k in loop(self.nv):
            energy[0] = energy[0] + self.w0[k] * self.w0[k] / problem.factors.inverse[k]
        passes = settings.iterations + (1 if before is None else 2)
        for _ in interruptible(while_any(lambda: going[0] > 0.0, passes)):
            # The Hessian is greater than diag(d), so that its norm of a step is less than this one of the gradient.
            bound, exact = self._forces_and_gradient(linear, before), linear[0] < 0.5
            solved = exact & ~(bound > settings.solved * settings.solved * first[0] + settings.rounding * energy[0])
            going[0] = select(solved, 0.0, going[0])
            residual[0] = select(solved, 0.0, residual[0])
            for _ in when(any_lane(going[0] > 0.0)):
                moving = going[0] > 0.0
                decrement = self._direction(moving)
                first[0] = select(first[0] > 0.0, first[0], decrement)
                last = ~(decrement > settings.tolerance * settings.tolerance * first[0] + settings.rounding * energy[0])
                residual[0] = select(moving, select(last, 0.0, sqrt(maximum(decrement / first[0], 0.0))), residual[0])
                going[0] = select(last & exact, 0.0, going[0])
                self._advance(decrement, moving, exact & (going[0] > 0.0))
                linear[0] = 0.0

    def _advance(self, decrement: Scalar, moving: Mask, seeking: Mask) -> None:
        """Take the step p in the lanes `moving`; as far as the line search finds in the lanes `seeking`."""
        problem, nv = self.problem, self.nv
        for k in loop(nv):
            self.p[k] = select(moving, self.p[k], 0.0)
        problem.rows.speeds(self.p, self.y)
        step = self._line_search(decrement, seeking)
        for k in loop(nv):
            self.w[k] = self.w[k] + step * self.p[k]
        for r in loop(problem.count):
            self.x[r] = self.x[r] + step * self.y[r]

    def resume(self, w: ScalarArray) -> NewtonSolution:
        """The solution of which w [nv] is known."""
        copy(self.nv, w, self.w)
        for _ in when(self.problem.count > 0):
            self.problem.residual(self.w, self.x)
            self.problem.forces(self.x, self.f)
        return NewtonSolution(self.w, self.x, self.f, 0.0)

    def _forces_and_gradient(self, linear: ScalarArray, before: StageBefore | None) -> Scalar:
        """The forces f and the gradient g; returns its square Σ g² / d.

        linear [1]: 1 for the laws as they are linear around the residuals of the stage before. at [n]: these, or x.
        """
        for k in loop(self.nv):
            self.change[k] = self.w[k] - self.w0[k]
        for _ in when(any_lane(linear[0] < 0.5)):  # in all lanes, or in none
            copy(self.problem.count, self.x, self.at)
            self.problem.forces(self.x, self.f)
        if before is not None:
            for _ in when(any_lane(linear[0] > 0.5)):
                before.residuals(self.problem, self.x, self.at)
                self.problem.linear_forces(self.at, self.x, self.f)
        self.problem.gradient(self.f, self.change, self.g)
        total = carry(1)
        total[0] = 0.0
        for k in loop(self.nv):
            total[0] = total[0] + self.g[k] * self.g[k] * self.problem.factors.inverse[k]
        return total[0]

    def factor(self) -> None:
        """The factors of the Hessian at the current residuals."""
        self.problem.hessian(self.x)
        self.problem.matrix.factor()

    def _direction(self, where: Mask) -> Scalar:
        """p = -H⁻¹ g in the lanes `where`; returns the squared length of the step in the norm of H."""
        self.problem.hessian(self.at, where)
        self.problem.matrix.factor()
        for k in loop(self.nv):
            self.p[k] = -self.g[k]
        self.problem.matrix.solve(self.p)
        total = carry(1)
        total[0] = 0.0
        for k in loop(self.nv):
            total[0] = total[0] - self.g[k] * self.p[k]
        return total[0]

    def _line_search(self, decrement: Scalar, seeking: Mask) -> Scalar:
        """The step along p at which the slope of the cost vanishes; 1 in lanes that do not seek it.

        decrement: minus the slope at the start.
        """
        low, high, step, going = carry(1), carry(1), carry(1), carry(1)
        low[0], high[0], step[0], going[0] = 0.0, 1e30, 1.0, select(seeking, 1.0, 0.0)
        for _ in while_any(lambda: going[0] > 0.0, LINE_STEPS):
            slope, curvature = self._slope(step[0])
            found = absolute(slope) <= LINE_TOLERANCE * decrement
            going[0] = select(found, 0.0, going[0])
            low[0] = select(slope < 0.0, maximum(low[0], step[0]), low[0])
            high[0] = select(slope < 0.0, high[0], step[0])
            wanted = step[0] - slope / curvature
            middle = select(high[0] < 1e29, 0.5 * (low[0] + high[0]), 2.0 * step[0])
            inside = (wanted > low[0]) & (wanted < high[0])
            step[0] = select(going[0] > 0.0, select(inside, wanted, middle), step[0])
        return step[0]

    def _slope(self, step: Scalar) -> tuple[Scalar, Scalar]:
        """The first and second derivative of the cost along p, at this step."""
        problem, block, elliptic = self.problem, self.problem.settings.block, self.problem.settings.elliptic
        slope, curvature = carry(1), carry(1)
        slope[0], curvature[0] = 0.0, 0.0
        for k in loop(self.nv):
            p = self.p[k]
            weighted = p / problem.factors.inverse[k]
            slope[0] = slope[0] + weighted * (self.change[k] + step * p)
            curvature[0] = curvature[0] + weighted * p
        for r in loop(problem.singles[0]):
            y, law = self.y[r], problem.single_law(r)
            at = self.x[r] + step * y
            slope[0] = slope[0] - law.force(at) * y
            curvature[0] = curvature[0] + law.curvature(at) * y * y
        for c in loop(problem.contacts[0]):
            first = problem.first_row(c)
            law_c, y_c = problem.contact_law(first), [self.y[first + k] for k in range(block)]
            at_c = [self.x[first + k] + step * y_c[k] for k in range(block)]
            for f, y in zip(law_c.force(elliptic, at_c), y_c, strict=True):
                slope[0] = slope[0] - f * y
            for row, y in zip(law_c.curvature(elliptic, at_c), y_c, strict=True):
                for c_ij, z in zip(row, y_c, strict=True):
                    curvature[0] = curvature[0] + y * c_ij * z
        return slope[0], curvature[0]
