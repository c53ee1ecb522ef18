"""The solution of a `SparseDelassus` problem for a given active set, and the derivative of a solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...physics.solvers.active_set import FREE
from .sparse_delassus import SparseDelassus, multiply_blocks

Array = np.ndarray
REFINEMENTS = 4  # steps of iterative refinement of a linear solve, at most; each adds about seven digits


class ProblemCotangents(NamedTuple):
    """Cotangents of a problem: pushes [contact, row, 2 nv], b and softness [contact, row], mu [contact]."""

    pushes: Array
    b: Array
    softness: Array
    mu: Array


@dataclass
class ContactSolution:
    """Impulses [contact, row] that solve a problem, or nearly.

    E [contact, row, row]: -∂λ/∂s, and by_mu [contact, row]: ∂λ/∂μ of a contact on its own, within its active set.
    """

    problem: SparseDelassus
    impulses: Array
    E: Array
    by_mu: Array

    def residual(self) -> float:
        """The largest residual of all rows, m/s."""
        return float(self.problem.residual(self.impulses, self.problem.row_speeds(self.impulses)).max())

    def vjp(self, y_bar: Array, impulses_bar: Array) -> ProblemCotangents:
        """From the cotangents of y = Pᵀ λ [block + 1, nv] and of the impulses [contact, row]; NaN where the system is
        singular.

        s_bar of the speeds and y_hat, the cotangent of y with all that depends on it, solve
        s_bar = -Eᵀ (λ_bar + P y_hat), y_hat = y_bar + Pᵀ s_bar.
        """
        problem, transposed = self.problem, self.E.transpose(0, 2, 1)
        s_bar = np.zeros_like(self.impulses)
        try:
            factors = problem.factor(self.E)
        except RuntimeError:  # a step that was not solved has no derivative
            nan = np.full_like(s_bar, np.nan)
            return ProblemCotangents(np.full_like(problem.pushes, np.nan), nan, nan, nan[:, 0])
        for _ in range(2):  # the second time restores digits that the factors lose
            y_hat = y_bar + problem.whitened(s_bar)
            left = s_bar + multiply_blocks(transposed, impulses_bar + problem.along(y_hat))
            z = problem.solve(factors, problem.whitened(left), transposed=True)
            s_bar = s_bar - left + multiply_blocks(transposed, problem.along(z))
        y, y_hat = problem.whitened(self.impulses), y_bar + problem.whitened(s_bar)
        pushes_bar = s_bar[:, :, None] * problem.at_ends(y) + self.impulses[:, :, None] * problem.at_ends(y_hat)
        mu_bar = (self.by_mu * (impulses_bar + problem.along(y_hat))).sum(1)
        return ProblemCotangents(pushes_bar, s_bar, s_bar * self.impulses, mu_bar)


class ActiveSetSystem:
    """The linear system of an active set. Raises RuntimeError where it is singular.

    codes [contact, row]: FREE rows have the speed zero; for rows at a bound λ = share λₙ. Friction of a contact that
    does not press is zero.
    """

    def __init__(self, problem: SparseDelassus, codes: Array) -> None:
        self.problem, self.codes = problem, codes
        self.presses = codes[:, :1] == FREE
        self.free = (codes == FREE) & self.presses
        self.share = np.where(self.presses & ~self.free, problem.mu * codes, 0.0)
        self.E, k = np.zeros((problem.count, problem.rows, problem.rows)), np.arange(problem.rows)
        self.E[:, k, k] = np.where(self.free, 1.0 / problem.softness, 0.0)
        self.E[:, 1:, 0] = self.share[:, 1:] * self.E[:, :1, 0]
        self.factors = problem.factor(self.E)

    def solve(self, b: Array, near: Array) -> Array:
        """Impulses for which the speeds W λ + softness λ + b of free rows are zero, from nearby impulses."""
        problem = self.problem
        x, last = np.where(self.free, near, self.share * near[:, :1]), np.inf
        for _ in range(REFINEMENTS):
            left = np.where(self.free, -(problem.product(x) + problem.softness * x + b), 0.0)
            worst = float(np.abs(left).max())
            if not worst < 0.5 * last:
                break
            last = worst
            x = x + problem.respond(self.factors, self.E, left)
            x = np.where(self.free, x, self.share * x[:, :1])
        return x

    def solution(self, impulses: Array) -> ContactSolution:
        by_mu = np.where(self.presses & ~self.free, self.codes * impulses[:, :1], 0.0)
        return ContactSolution(self.problem, impulses, self.E, by_mu)


def solve_active_set(problem: SparseDelassus, codes: Array, near: Array) -> ContactSolution | None:
    """The solution for this active set, from nearby impulses; None if the system is singular."""
    try:
        system = ActiveSetSystem(problem, codes)
    except RuntimeError:
        return None
    return system.solution(system.solve(problem.b, near))
