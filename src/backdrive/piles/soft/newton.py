"""Newton's method for the convex problem of soft contacts, over the bodies of a world as blocks.

On whitened accelerations y, the cost is |y|²/2 + Σ s(x₀ + P y), with the cost s of a contact's law. Its gradient is
y - Pᵀ f, and its Hessian 1 + Pᵀ C P, a block-sparse matrix (`block_factors`). The method starts from the smooth
acceleration, y = 0: the result is a function of the state alone. It works in float64 whatever the precision of the
other stages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ...backends.llvm_cpu.target import host
from ...physics.soft.newton import LINE_STEPS, LINE_TOLERANCE
from ..kernels import summing
from ..memory import Memory
from ..stages import StageTarget
from . import kernels
from .block_factors import BlockFactors, BlockPattern, BlockSolver, N
from .contacts import SoftContactForm

Array = np.ndarray


@dataclass(frozen=True)
class SoftPileProblem:
    """The contacts of a step. Bodies are numbered in the order in which they are eliminated.

    touched [n]: the bodies with contacts. ends [contact, 2]: of every contact, the one that is eliminated first comes
    first; n is the world. pushes P [contact, row, 12]: for these ends. residual x₀ [contact, row]. law: numbers.
    """

    pattern: BlockPattern
    touched: Array
    ends: Array
    pushes: Array
    residual: Array
    law: Array

    @property
    def count(self) -> int:
        """Of bodies with contacts."""
        return len(self.touched)

    def along(self, y: Array) -> Array:
        """P y, [contact, row]; y: [n + 1, 6]."""
        return (self.pushes @ y[self.ends].reshape(len(self.ends), -1, 1))[:, :, 0]

    def owners(self) -> Array:
        """The places of the three blocks of all contacts: first ends, couplings, second ends; or the last place, where
        those of the world are left."""
        low, high = self.ends.T
        couples, none = high < self.count, np.full(len(low), self.pattern.size)
        cross = np.where(couples, self.pattern.place(low, np.where(couples, high, 0)), none)
        return np.concatenate([low, cross, np.where(couples, high, none)])


@dataclass
class SoftPileSolution:
    """y of the bodies with contacts [n + 1, 6], the last one zero; residuals x and forces f [contact, row]; curvatures
    C [contact, row, row] and modes [contact] there; residual: the part of the first step that the last one was, zero
    where the method converged. factored: curvatures whose Hessian has the `factors`."""

    y: Array
    x: Array
    f: Array
    C: Array
    mode: Array
    residual: float
    factored: Array | None = field(repr=False)
    factors: BlockFactors | None = field(repr=False)


class SparseNewton:
    """The method, with its kernels."""

    def __init__(self, form: SoftContactForm) -> None:
        self.form, self.settings, self.target = form, form.settings, StageTarget(64, host().lanes(64))
        self.terms, self.slopes, self.sums = (
            self.target.stage(make, *of)
            for make, of in ((kernels.law_terms, (form,)), (kernels.law_slopes, (form,)), (summing, ()))
        )
        self.blocks = BlockSolver()
        self._known: tuple[bytes, BlockPattern] | None = None  # the pattern of the last problem

    def problem(self, blocks: Array, bodies: Array) -> SoftPileProblem:
        """blocks: of all contacts (`SoftContactForm.block`). bodies [contact, 2]: 0 does not move."""
        form, moves = self.form, bodies > 0
        touched, number = np.unique(bodies[moves], return_inverse=True)
        n = len(touched)
        ends = np.full(bodies.shape, n)
        ends[moves] = number.reshape(-1)
        coupled = np.sort(ends[moves.all(1)], axis=1)
        pattern = self._pattern(n, np.unique(coupled[:, 0] * n + coupled[:, 1]))
        ends = np.append(pattern.position, n)[ends]
        pushes, residual, law = (blocks[:, form.block[name]] for name in form.block.names)
        pushes, swap = pushes.reshape(len(blocks), form.rows, 2, -1).copy(), ends[:, 0] > ends[:, 1]
        pushes[swap], ends[swap] = pushes[swap][:, :, ::-1], ends[swap][:, ::-1]
        pushes = pushes.reshape(len(blocks), form.rows, form.push)
        law, residual = np.ascontiguousarray(law), np.ascontiguousarray(residual)
        return SoftPileProblem(pattern, touched[pattern.order], ends, pushes, residual, law)

    def _pattern(self, n: int, codes: Array) -> BlockPattern:
        key = np.append(codes, n).tobytes()
        known = self._known
        if known is None or known[0] != key:
            known = self._known = key, BlockPattern(n, np.column_stack(np.divmod(codes, n)))
        return known[1]

    def solve(self, memory: Memory, problem: SoftPileProblem) -> SoftPileSolution:
        settings, here = self.settings, NewtonPoint(self, memory, problem)
        x, y = here.x, np.zeros((problem.count + 1, N))
        x[...] = problem.residual
        here.evaluate()
        if not (np.isfinite(problem.pushes).all() and np.isfinite(here.f).all()):
            y[:-1] = np.nan
            return SoftPileSolution(y, x, here.f, here.C, here.mode, np.nan, None, None)
        first, residual, factored, factors = 0.0, 0.0, None, None
        for _ in range(settings.iterations + 1):
            gradient = y - here.pushed()
            gradient[-1] = 0.0
            rounding = settings.rounding * (1.0 + float(np.vdot(y, y)))
            if not float(np.vdot(gradient, gradient)) > settings.solved**2 * first + rounding:
                residual = 0.0
                break
            factored, factors = here.C.copy(), here.factor()
            p = np.zeros_like(y)
            p[:-1] = factors.solve(-gradient[:-1])
            decrement = -float(np.vdot(gradient, p))
            first = first or decrement
            last = not decrement > settings.tolerance**2 * first + rounding
            residual = 0.0 if last else float(np.sqrt(max(decrement / first, 0.0)))
            here.z[...] = problem.along(p)
            step = 1.0 if last else self.line_search(here, y, p, decrement)
            y += step * p
            x += step * here.z
            here.evaluate()
            if last:
                break
        return SoftPileSolution(y, x, here.f, here.C, here.mode, residual, factored, factors)

    def hessian_solve(self, memory: Memory, problem: SoftPileProblem, solution: SoftPileSolution, y: Array) -> Array:
        """H⁻¹ y [n, 6] at the solution, with the factors of the last iteration where they are those of the solution."""
        if solution.factored is None or not np.array_equal(solution.factored, solution.C):
            here = NewtonPoint(self, memory, problem)
            here.x[...] = solution.x
            here.evaluate()
            solution.factored, solution.factors = solution.C, here.factor()
        assert solution.factors is not None
        return solution.factors.solve(y)

    def line_search(self, here: NewtonPoint, y: Array, p: Array, decrement: float) -> float:
        """The step along p, and z = P p of the residuals, at which the slope of the cost vanishes.

        decrement: minus the slope at the start.
        """
        start, square = float(np.vdot(y, p)), float(np.vdot(p, p))

        def at(step: float) -> tuple[float, float]:
            slope, curvature = here.slopes(step)
            return slope + start + step * square, curvature + square

        low, high, step = 0.0, np.inf, 1.0
        for _ in range(LINE_STEPS):
            slope, curvature = at(step)
            if abs(slope) <= LINE_TOLERANCE * decrement:
                break
            if slope < 0.0:
                low = step
            else:
                high = step
            wanted = step - slope / curvature
            middle = 0.5 * (low + high) if high < np.inf else 2.0 * step
            step = wanted if low < wanted < high else middle
        return step

    def sum_up(self, rows: Array, owner: Array, totals: Array) -> Callable[[], None]:
        """A call that adds rows[i] to totals[owner[i]]."""
        width = rows.shape[1] // self.target.lanes
        return self.sums.prepare(1, rows=rows, totals=totals, owner=owner, count=len(rows), width=width)


class NewtonPoint:
    """Forces, gradient and Hessian of a problem at residuals x, which change: arrays that kernels read and write, and
    the prepared calls of these.

    x, f, z [contact, row]: residuals, forces, and the direction of `slopes`. C [contact, row, row], mode [contact].
    """

    def __init__(self, newton: SparseNewton, memory: Memory, problem: SoftPileProblem) -> None:
        self.newton, self.problem, target = newton, problem, newton.target
        (n, rows), size = problem.residual.shape, problem.pattern.size

        def array(name: str, *shape: int) -> Array:
            return memory.array(f"Newton: {name}", *shape, dtype=np.float64)

        self.x, self.f, self.z = (array(name, n, rows) for name in "xfz")
        self.C, mode, self._slopes, self._step = (
            array("C", n, rows, rows), array("mode", n, 1), array("slopes", n, 2), array("step", 1))  # fmt: skip
        self.mode = mode[:, 0]
        pushed, blocks = array("pushed", 2 * n, target.padded(N)), array("blocks", 3 * n, target.padded(N * N))
        self._total = array("total", problem.count + 1, target.padded(N))
        self._hessian = array("Hessian", size + 1, target.padded(N * N))
        outputs = {f"push_{end}": pushed[k * n :] for k, end in enumerate(("low", "high"))}
        outputs |= {f"block_{end}": blocks[k * n :] for k, end in enumerate(("low", "cross", "high"))}
        pushes = problem.pushes.reshape(n, -1)
        self.evaluate = newton.terms.prepare(
            n, pushes=pushes, law=problem.law, x=self.x, f=self.f, C=self.C.reshape(n, -1), mode=mode, **outputs
        )
        self._find_slopes = newton.slopes.prepare(
            n, law=problem.law, x=self.x, z=self.z, slopes=self._slopes, step=self._step
        )
        self._owners = np.concatenate(list(problem.ends.T)), problem.owners()
        self._add_pushed = newton.sum_up(pushed, self._owners[0], self._total)
        self._add_blocks = newton.sum_up(blocks, self._owners[1], self._hessian)

    def slopes(self, step: float) -> tuple[float, float]:
        """The first and second derivative of the contacts' cost along z, at x + step z."""
        self._step[0] = step
        self._find_slopes()
        slope, curvature = self._slopes.sum(0).tolist()
        return slope, curvature

    def pushed(self) -> Array:
        """Pᵀ f, [n + 1, 6]."""
        self._total.fill(0.0)
        self._add_pushed()
        return self._total[:, :N]

    def factor(self) -> BlockFactors:
        """The factors of 1 + Pᵀ C P."""
        self._hessian.fill(0.0)
        self._add_blocks()
        self._hessian[: self.problem.count, : N * N : N + 1] += 1.0
        return self.newton.blocks.factor(self.problem.pattern, self._hessian)
