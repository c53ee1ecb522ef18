"""Newton's method for the convex problem of soft contacts, over the bodies of a world as blocks.

On whitened accelerations y, the cost is |y|²/2 + Σ s(x₀ + P y), with the cost s of a contact's law. Its gradient is
y - Pᵀ f, and its Hessian 1 + Pᵀ C P, which `SparseDelassus` factors. The method starts from the smooth acceleration,
y = 0: the result is a function of the state alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.sparse.linalg import SuperLU

from ...backends.llvm_cpu.target import host
from ...physics.soft.newton import LINE_STEPS, LINE_TOLERANCE
from ..solvers.sparse_delassus import SparseDelassus
from ..stages import StageTarget
from . import kernels
from .contacts import SoftContactForm

Array = np.ndarray


@dataclass
class SoftPileProblem:
    """The contacts of a step: P and x₀, as a `SparseDelassus` has them (b = x₀), and the numbers of their laws."""

    contacts: SparseDelassus
    law: Array

    @classmethod
    def of(cls, form: SoftContactForm, blocks: Array, bodies: Array) -> SoftPileProblem:
        """blocks: of all contacts (`SoftContactForm.block`). bodies [contact, 2]: 0 does not move."""
        pushes, residual, law = (blocks[:, form.block[name]] for name in form.block.names)
        none = np.zeros_like(residual)
        rows = pushes.reshape(len(blocks), form.rows, form.push)
        return cls(SparseDelassus(rows, bodies, residual, none, none[:, 0]), np.ascontiguousarray(law))


@dataclass
class SoftPileSolution:
    """y of the bodies with contacts [block + 1, nv], the last one zero; residuals x and forces f [contact, row];
    curvatures C [contact, row, row] and modes [contact] there; residual: the part of the first step that the last one
    was, zero where the method converged. factored: curvatures whose Hessian has the `factors`."""

    y: Array
    x: Array
    f: Array
    C: Array
    mode: Array
    residual: float
    factored: Array | None = field(repr=False)
    factors: SuperLU | None = field(repr=False)

    def solve(self, problem: SoftPileProblem, y: Array) -> Array:
        """H⁻¹ y at the solution, with the factors of the last iteration where they are those of the solution."""
        contacts = problem.contacts
        if self.factored is None or not np.array_equal(self.factored, self.C):
            self.factored, self.factors = self.C, contacts.factor(self.C)
        assert self.factors is not None
        return contacts.solve(self.factors, y)


class SparseNewton:
    """The method, with the kernels of the laws, in float64 whatever the precision of the other stages."""

    def __init__(self, form: SoftContactForm) -> None:
        self.form, self.settings, target = form, form.settings, StageTarget(64, host().lanes(64))
        self._law, self._slopes = (target.stage(make, form) for make in (kernels.law_forces, kernels.law_slopes))

    def solve(self, problem: SoftPileProblem) -> SoftPileSolution:
        contacts, settings = problem.contacts, self.settings
        x, y = contacts.b.copy(), np.zeros((contacts.blocks + 1, contacts.nv))
        f, C, mode = self.respond(problem, x)
        if not (np.isfinite(contacts.pushes).all() and np.isfinite(f).all()):
            y[:-1] = np.nan
            return SoftPileSolution(y, x, f, C, mode, np.nan, None, None)
        first, residual, factored, factors = 0.0, 0.0, None, None
        for _ in range(settings.iterations + 1):
            gradient = y - contacts.whitened(f)
            gradient[-1] = 0.0
            rounding = settings.rounding * (1.0 + float(np.vdot(y, y)))
            if not float(np.vdot(gradient, gradient)) > settings.solved**2 * first + rounding:
                residual = 0.0
                break
            factored, factors = C, contacts.factor(C)
            p = -contacts.solve(factors, gradient)
            decrement = -float(np.vdot(gradient, p))
            first = first or decrement
            last = not decrement > settings.tolerance**2 * first + rounding
            residual = 0.0 if last else float(np.sqrt(max(decrement / first, 0.0)))
            z = contacts.along(p)
            step = 1.0 if last else self.line_search(problem, x, y, p, z)
            y, x = y + step * p, x + step * z
            f, C, mode = self.respond(problem, x)
            if last:
                break
        return SoftPileSolution(y, x, f, C, mode, residual, factored, factors)

    def respond(self, problem: SoftPileProblem, x: Array) -> tuple[Array, Array, Array]:
        """Forces [contact, row], curvatures [contact, row, row] and modes [contact] at these residuals."""
        count, rows = x.shape
        f, C, mode = np.empty_like(x), np.empty((count, rows * rows), x.dtype), np.empty((count, 1), x.dtype)
        self._law(count, law=problem.law, x=x, f=f, C=C, mode=mode)
        return f, C.reshape(count, rows, rows), mode[:, 0]

    def line_search(self, problem: SoftPileProblem, x: Array, y: Array, p: Array, z: Array) -> float:
        """The step along p at which the slope of the cost vanishes; z = P p."""
        slopes, start, square = np.empty((len(x), 2), x.dtype), float(np.vdot(y, p)), float(np.vdot(p, p))

        def at(step: float) -> tuple[float, float]:
            self._slopes(len(x), law=problem.law, x=x, z=z, slopes=slopes, step=step)
            slope, curvature = slopes.sum(0).tolist()
            return slope + start + step * square, curvature + square

        steepest, _ = at(0.0)
        low, high, step = 0.0, np.inf, 1.0
        for _ in range(LINE_STEPS):
            slope, curvature = at(step)
            if abs(slope) <= LINE_TOLERANCE * abs(steepest):
                break
            if slope < 0.0:
                low = step
            else:
                high = step
            wanted = step - slope / curvature
            middle = 0.5 * (low + high) if high < np.inf else 2.0 * step
            step = wanted if low < wanted < high else middle
        return step
