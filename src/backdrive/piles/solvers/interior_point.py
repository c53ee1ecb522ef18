"""The primal-dual interior point method on a `SparseDelassus` problem, and the derivative of its solution.

As in `physics.solvers.interior_point`, with the slacks s of all bounds (λₙ >= 0, μ λₙ ± λₜ >= 0) and multipliers α,

    W λ + softness λ + b = α₀, α₋ - α₊        s α = σ → 0        s, α > 0

but a Newton step eliminates the contacts instead of the bodies: it is one system of `SparseDelassus`. Steps are
Mehrotra's predictor-corrector steps: a predictor step to σ = 0 tells how much σ may be reduced, and its second-order
terms s α are taken into account.

Friction bounds that grow with λₙ make the problem non-monotone: the central path may turn back, and steps then become
short. There λ is held back by a proximal term, a compliance of steps that grows as long as they are short. Islands have
no body in common, so each has a step length, σ and proximal term of its own.

Contacts of one face share its load by their softness alone, which is 1e-8 of their rows' compliance: σ must become very
small before it is clear which of them carry. As soon as the active set stays the same, one linear solve gives the
impulses of that active set; if these have a small residual, they are the solution.
"""

from __future__ import annotations

import numpy as np

from ...physics.solvers.active_set import FREE, LOWER, UPPER
from ...physics.solvers.interior_point import STEP_FRACTION, InteriorPoint
from ...physics.solvers.pivot_rules import bound_slacks
from .active_set import ContactSolution, solve_active_set
from .sparse_delassus import SparseDelassus, multiply_blocks

Array = np.ndarray

# A slack or multiplier below this part of the island's largest speed is zero up to rounding: it does not shorten steps.
ROUNDING = 1e-13

# A step that would make a slack or multiplier zero or negative keeps this part of it.
LEAST_PART = 5e-3

# A step reduces σ to this part of the mean s α, at the least: far from the solution, and close to it.
CENTERING, CENTERING_CLOSE = 0.1, 1e-3

# An island is close to the solution if the mean of s α is below this part of its largest speed squared.
CLOSE = 1e-10

# After the tolerance is reached, at most this many steps more are made to find the active set of the solution.
POLISHING_STEPS = 10

# λₙ starts at this part of the impulse that would stop the fastest contact of its island.
FIRST_IMPULSE = 0.01

# Step lengths below which the proximal term grows, and above which it falls.
STALLED, WELL = 0.3, 0.7

# The proximal term at first, as a part of a row's diagonal, and the factor by which it grows and falls.
FIRST_PROXIMAL, PROXIMAL_FACTOR = 1e-8, 4.0


def solve(problem: SparseDelassus, solver: InteriorPoint, start: Array | None = None) -> ContactSolution:
    """The solution, or the best impulses that were found; start: impulses near it, if any are known."""
    iterate = InteriorIterate(problem, start)
    tolerance = solver.tolerance * problem.fastest
    best = iterate.solution()
    least, more = best.residual(), POLISHING_STEPS
    for _ in range(solver.max_iterations):
        if iterate.has_settled():
            trial = solve_active_set(problem, iterate.codes, iterate.impulses)
            if trial is not None and trial.residual() <= tolerance:
                return trial
        more -= least <= tolerance
        if more < 0 or not iterate.step():
            break
        if iterate.residual() < least:
            best, least = iterate.solution(), iterate.residual()
    return best


class InteriorIterate:
    """Impulses on the central path, slacks and multipliers [contact, 1 + 2 directions]: of λₙ, then of the lower and of
    the upper bounds of friction. on: which of these bounds there are; without friction only the first.

    codes: the active set, by the larger of multiplier and slack. proximal [island]: the proximal term of steps.
    """

    def __init__(self, problem: SparseDelassus, start: Array | None) -> None:
        self.problem = problem
        count, m, rough = problem.count, problem.rows - 1, problem.mu > 0.0
        self.on = np.concatenate([np.ones((count, 1), bool), np.broadcast_to(rough, (count, 2 * m))], axis=1)
        self.rows_on, self.bounds = self.on[:, : 1 + m], problem.island_sum(self.on)
        self.diagonal = np.concatenate([problem.diagonal, problem.diagonal[:, 1:]], axis=1)
        self.scale = problem.island_max(np.abs(problem.b)) + 1e-12
        scale = problem.per_contact(self.scale)
        self.rounding = ROUNDING * scale
        self.impulses = np.zeros((count, problem.rows))
        if start is None:
            self.impulses[:, :1] = FIRST_IMPULSE * scale / problem.diagonal[:, :1]
            self.multipliers = np.where(self.on, scale, 0.0)
        else:
            speeds = problem.row_speeds(start)
            off = problem.per_contact(problem.island_max(problem.residual(start, speeds))) + self.rounding
            self.impulses[:, :1] = np.maximum(start[:, :1], 0.0) + off / problem.diagonal[:, :1]
            most = problem.mu * self.impulses[:, :1]
            inside = most - np.minimum(off / problem.diagonal[:, 1:], 0.5 * most)
            self.impulses[:, 1:] = np.clip(start[:, 1:], -inside, inside)
            both = np.concatenate([np.maximum(speeds, 0.0), np.maximum(-speeds[:, 1:], 0.0)], axis=1)
            self.multipliers = np.where(self.on, both + off, 0.0)
        self.slacks = np.where(self.on, self._slacks(self.impulses), 1.0)
        self.proximal = np.zeros(problem.islands)
        self.codes = self._active_set()
        self._tried: Array | None = None

    def _slacks(self, impulses: Array) -> Array:
        """The distances of the impulses from their bounds."""
        below, above = bound_slacks(impulses[:, 1:], 0.0, 0.0, self.problem.mu * impulses[:, :1])
        return np.where(self.on, np.concatenate([impulses[:, :1], below, above], axis=1), 0.0)

    def _acting(self, multipliers: Array) -> Array:
        """The terms α₀, α₋ - α₊ that multipliers add to the speeds."""
        rows = self.problem.rows
        return np.concatenate([multipliers[:, :1], multipliers[:, 1:rows] - multipliers[:, rows:]], axis=1)

    def _products(self) -> Array:
        return np.where(self.on, self.slacks * self.multipliers, 0.0)

    def residual(self) -> float:
        return float(self.problem.residual(self.impulses, self.problem.row_speeds(self.impulses)).max())

    def solution(self) -> ContactSolution:
        """The impulses as they are, and their derivatives for a constant σ."""
        ratio = self._ratio()
        _, E = self._contact_blocks(ratio, np.zeros((self.problem.count, 1)))
        rows = self.problem.rows
        by_mu = np.zeros_like(self.impulses)
        by_mu[:, 1:] = -(ratio[:, 1:rows] - ratio[:, rows:]) * self.impulses[:, :1]
        return ContactSolution(self.problem, self.impulses.copy(), E, multiply_blocks(E, by_mu))

    def _active_set(self) -> Array:
        """Codes of all rows; friction of contacts that do not press, or have none, is LOWER."""
        rows = self.problem.rows
        at = self.on & (self.multipliers > self.diagonal * self.slacks)
        below, above = self.multipliers[:, 1:rows], self.multipliers[:, rows:]
        codes = np.where(at[:, :rows], LOWER, FREE)
        codes[:, 1:] = np.where(at[:, 1:rows] & (below > above), LOWER, np.where(at[:, rows:], UPPER, FREE))
        codes[:, 1:] = np.where((codes[:, :1] < FREE) | ~self.rows_on[:, 1:], LOWER, codes[:, 1:])
        return codes

    def has_settled(self) -> bool:
        """Whether the active set is that of the step before, and was not reported as settled already."""
        codes = self._active_set()
        same = np.array_equal(codes, self.codes)
        self.codes = codes
        if not same or (self._tried is not None and np.array_equal(codes, self._tried)):
            return False
        self._tried = codes
        return True

    # ------------------------------------------------------------------------------------------ a step

    def _ratio(self) -> Array:
        return np.where(self.on, self.multipliers / self.slacks, 0.0)

    def _contact_blocks(self, ratio: Array, proximal: Array) -> tuple[Array, Array]:
        """D = softness + the terms α/s of the bounds, and its inverse E; for a row that is off, E is zero."""
        problem, rows = self.problem, self.problem.rows
        (D, E), k = np.zeros((2, problem.count, rows, rows)), np.arange(rows)
        steep = np.concatenate([ratio[:, :1], ratio[:, 1:rows] + ratio[:, rows:]], axis=1)
        D[:, k, k] = problem.softness + proximal * problem.diagonal + steep
        D[:, 1:, 0] = problem.mu * (ratio[:, 1:rows] - ratio[:, rows:])
        E[:, k, k] = np.where(self.rows_on, 1.0 / D[:, k, k], 0.0)
        E[:, 1:, 0] = -D[:, 1:, 0] * E[:, k[1:], k[1:]] * E[:, :1, 0]
        return D, E

    def step(self) -> bool:
        """One predictor-corrector step; False if its linear system is singular or not finite."""
        problem = self.problem
        ratio, products = self._ratio(), self._products()
        D, E = self._contact_blocks(ratio, problem.per_contact(self.proximal))
        if not np.isfinite(E).all():
            return False
        try:
            factors = problem.factor(E)
        except RuntimeError:  # singular
            return False
        off = self._acting(self.multipliers) - problem.row_speeds(self.impulses)

        def direction(wanted: Array) -> tuple[Array, Array, Array]:
            """The changes of λ, s and α that lead to s α = wanted."""
            change = np.where(self.on, (wanted - products) / self.slacks, 0.0)
            r = np.where(self.rows_on, off + self._acting(change), 0.0)
            x = problem.respond(factors, E, r)
            left = np.where(self.rows_on, r - problem.product(x) - multiply_blocks(D, x), 0.0)
            x = x + problem.respond(factors, E, left)
            ds = self._slacks(x)
            return x, ds, np.where(self.on, change - ratio * ds, 0.0)

        _, ds, da = direction(np.zeros_like(products))
        length = problem.per_contact(np.minimum(1.0, self._length(ds, da)))
        mean = problem.island_sum(products) / self.bounds
        predicted = (self.slacks + length * ds) * (self.multipliers + length * da)
        ahead = np.maximum(problem.island_sum(np.where(self.on, predicted, 0.0)) / self.bounds, 0.0)
        center = np.where(mean > CLOSE * self.scale**2, CENTERING, CENTERING_CLOSE)
        sigma = mean * np.maximum((ahead / mean) ** 3, center)
        x, ds, da = direction(problem.per_contact(sigma) - ds * da)
        lengths = np.minimum(1.0, STEP_FRACTION * self._length(ds, da))
        length = problem.per_contact(lengths)
        if not np.isfinite(x).all():
            return False
        self.impulses = self.impulses + length * x
        self.slacks = np.where(self.on, np.maximum(self.slacks + length * ds, LEAST_PART * self.slacks), 1.0)
        self.multipliers = np.maximum(self.multipliers + length * da, LEAST_PART * self.multipliers)
        more = np.clip(PROXIMAL_FACTOR * self.proximal, FIRST_PROXIMAL, 1.0)
        self.proximal = np.where(
            lengths < STALLED, more, np.where(lengths > WELL, self.proximal / PROXIMAL_FACTOR, self.proximal)
        )
        self.proximal[self.proximal < 0.01 * FIRST_PROXIMAL] = 0.0
        return True

    def _length(self, ds: Array, da: Array) -> Array:
        """The length of the step of every island at which the first slack or multiplier becomes zero."""
        reach = np.full(self.problem.islands, np.inf)
        for x, dx, least in (
            (self.slacks, ds, self.rounding / self.diagonal),
            (self.multipliers, da, self.rounding),
        ):
            closing = self.on & (dx < 0.0) & (x > least)
            each = np.where(closing, x / np.where(closing, -dx, 1.0), np.inf)
            np.minimum.at(reach, self.problem.island, each.min(1))
        return reach
