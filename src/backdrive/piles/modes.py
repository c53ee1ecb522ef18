"""The solution for known modes of all rows of a `Network`, and the derivative of a solution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .network import SparseDelassus, apply

Array = np.ndarray
CORRECTIONS = 4  # of a linear solve, at most; each brings seven more digits


@dataclass
class Solution:
    """impulses [contact, row]; E [contact, row, row]: -dλ/d(speed) and by_mu [contact, row]: dλ/dμ of a contact on its
    own, as the bounds let it move."""

    network: SparseDelassus
    impulses: Array
    E: Array
    by_mu: Array

    def residual(self) -> float:
        """m/s"""
        return float(self.network.residual(self.impulses, self.network.speeds(self.impulses)).max())

    def adjoint(self, y_bar: Array, impulses_bar: Array) -> tuple[Array, Array, Array, Array]:
        """Gradients with respect to pushes, b, softness and μ; y_bar: [block + 1, nv], of y = Pᵀ λ.

        s_bar of the speeds and y_hat, all that depends on y, solve  s_bar = -Eᵀ (λ_bar + P y_hat),
        y_hat = y_bar + Pᵀ s_bar.
        """
        network, transposed = self.network, self.E.transpose(0, 2, 1)
        s_bar = np.zeros_like(self.impulses)
        try:
            factors = network.factor(self.E)
        except RuntimeError:  # of a step that was not solved: it has no derivative
            nan = np.full_like(s_bar, np.nan)
            return np.full_like(network.pushes, np.nan), nan, nan[:, 0], nan[:, 0]
        for _ in range(2):  # and once more for the digits that the factors lose
            y_hat = y_bar + network.push(s_bar)
            left = s_bar + apply(transposed, impulses_bar + network.along(y_hat))
            z = network.solve(factors, network.push(left), transposed=True)
            s_bar = s_bar - left + apply(transposed, network.along(z))
        y, y_hat = network.push(self.impulses), y_bar + network.push(s_bar)
        pushes_bar = s_bar[:, :, None] * network.of_ends(y) + self.impulses[:, :, None] * network.of_ends(y_hat)
        mu_bar = (self.by_mu * (impulses_bar + network.along(y_hat))).sum(1)
        return pushes_bar, s_bar, (s_bar * self.impulses).sum(1), mu_bar


class Modes:
    """Rows that are free (their speed is zero), or at a bound: there λ is a `share` of λₙ. Raises RuntimeError where
    they are singular.

    modes: [contact, row], 0 free, -1 or 1 at the lower or upper bound; friction of what does not press is zero.
    """

    def __init__(self, network: SparseDelassus, modes: Array) -> None:
        self.network, self.modes = network, modes
        self.presses = modes[:, :1] == 0
        self.free = (modes == 0) & self.presses
        self.share = np.where(self.presses & ~self.free, network.mu * modes, 0.0)
        self.E, k = np.zeros((network.count, network.rows, network.rows)), np.arange(network.rows)
        self.E[:, k, k] = np.where(self.free, 1.0 / network.softness, 0.0)
        self.E[:, 1:, 0] = self.share[:, 1:] * self.E[:, :1, 0]
        self.factors = network.factor(self.E)

    def solve(self, b: Array, near: Array) -> Array:
        """Impulses of which the speeds P Pᵀ λ + softness λ + b of free rows are zero, from others that are near."""
        network = self.network
        x, last = np.where(self.free, near, self.share * near[:, :1]), np.inf
        for _ in range(CORRECTIONS):
            left = np.where(self.free, -(network.mobility(x) + network.softness * x + b), 0.0)
            worst = float(np.abs(left).max())
            if not worst < 0.5 * last:
                break
            last = worst
            x = x + network.answer(self.factors, self.E, left)
            x = np.where(self.free, x, self.share * x[:, :1])
        return x

    def solution(self, impulses: Array) -> Solution:
        by_mu = np.where(self.presses & ~self.free, self.modes * impulses[:, :1], 0.0)
        return Solution(self.network, impulses, self.E, by_mu)


def solution_at(network: SparseDelassus, modes: Array, near: Array) -> Solution | None:
    """The solution if the modes are these; None if there is none."""
    try:
        known = Modes(network, modes)
    except RuntimeError:
        return None
    return known.solution(known.solve(network.b, near))
