"""The primal-dual interior point method on the contacts of one big world, and the derivative of its solution.

As in `physics.interior_point`, with the slacks s of all bounds (λₙ >= 0, μ λₙ ± λₜ >= 0) and their multipliers α,

    P Pᵀ λ + softness λ + b = α₀, α₋ - α₊        s α = σ → 0        s, α > 0

but a Newton step eliminates the contacts instead of the bodies: it is one `Network`. Steps are Mehrotra's: where the
bounds are met without σ tells how small σ may become, and what the products of changes add is taken into account.

Friction bounds that grow with λₙ make the problem non-monotone: the way to σ = 0 may turn back, and steps then become
short. There λ is held back by a softness of steps, which grows as long as they are short. Islands, that have no body in
common, have step lengths, σ and such softness of their own.

Contacts of one face share its load by their softness alone, 1e-8 of what their rows give way: σ must become very small
before it is clear which of them carry. Once the modes of all rows (free, or at which bound) stay the same, one linear
solve gives the impulses; if these have a small residual, they are the solution.
"""

from __future__ import annotations

import numpy as np

from ..physics.solvers.interior_point import InteriorPoint
from .modes import Solution, solution_at
from .network import SparseDelassus, apply

Array = np.ndarray
SHORT = 0.99  # a step goes at most so much of the way to a bound,
LEAST = 5e-3  # and what is at it up to rounding, which does not hold a step back, keeps so much of itself
ROUNDING = 1e-13  # of the largest speed
CENTER, CENTER_CLOSE = 0.1, 1e-3  # σ falls to so much in a step at most, first and
CLOSE = 1e-10  # as a part of the largest speed², later
POLISH = 10  # steps, at most, that a solution is worth in which the modes are exact
FIRST_IMPULSE = 0.01  # where λₙ starts, as a part of what would stop the fastest contact
STALLED, WELL = 0.3, 0.7  # step lengths at which the softness of steps grows, and falls
HELD, MORE = 1e-8, 4.0  # that softness at first, as a part of what a row gives way, and by how much it grows


def solve(network: SparseDelassus, solver: InteriorPoint, start: Array | None = None) -> Solution:
    """The solution, or what came nearest to it; start: impulses near it, if any are known."""
    way = Way(network, start)
    tolerance = solver.tolerance * network.fastest
    best = way.here()
    least, more = best.residual(), POLISH
    for _ in range(solver.max_iterations):
        if way.settled():
            trial = solution_at(network, way.modes, way.impulses)
            if trial is not None and trial.residual() <= tolerance:
                return trial
        more -= least <= tolerance
        if more < 0 or not way.step():
            break
        if way.residual() < least:
            best, least = way.here(), way.residual()
    return best


class Way:
    """Impulses on the way to a solution, slacks and multipliers [contact, 1 + 2 directions]: of λₙ, then of the lower
    and of the upper bounds of friction. on: which of these there are; without friction only the first."""

    def __init__(self, network: SparseDelassus, start: Array | None) -> None:
        self.network = network
        count, m, rough = network.count, network.rows - 1, network.mu > 0.0
        self.on = np.concatenate([np.ones((count, 1), bool), np.broadcast_to(rough, (count, 2 * m))], axis=1)
        self.rows_on, self.bounds = self.on[:, : 1 + m], network.total(self.on)
        self.d = np.concatenate([network.d, network.d[:, 1:]], axis=1)
        self.scale = network.largest(np.abs(network.b)) + 1e-12
        scale = network.of_islands(self.scale)
        self.rounding = ROUNDING * scale
        self.impulses = np.zeros((count, network.rows))
        if start is None:
            self.impulses[:, :1] = FIRST_IMPULSE * scale / network.d[:, :1]
            self.multipliers = np.where(self.on, scale, 0.0)
        else:
            speeds = network.speeds(start)
            off = network.of_islands(network.largest(network.residual(start, speeds))) + self.rounding
            self.impulses[:, :1] = np.maximum(start[:, :1], 0.0) + off / network.d[:, :1]
            most = network.mu * self.impulses[:, :1]
            inside = most - np.minimum(off / network.d[:, 1:], 0.5 * most)
            self.impulses[:, 1:] = np.clip(start[:, 1:], -inside, inside)
            both = np.concatenate([np.maximum(speeds, 0.0), np.maximum(-speeds[:, 1:], 0.0)], axis=1)
            self.multipliers = np.where(self.on, both + off, 0.0)
        self.slacks = np.where(self.on, self._slacks(self.impulses), 1.0)
        self.held = np.zeros(network.islands)
        self.modes = self._find_modes()
        self._tried: Array | None = None

    def _slacks(self, impulses: Array) -> Array:
        most, friction = self.network.mu * impulses[:, :1], impulses[:, 1:]
        return np.where(self.on, np.concatenate([impulses[:, :1], most + friction, most - friction], axis=1), 0.0)

    def _acting(self, multipliers: Array) -> Array:
        """On the speeds: α₀, α₋ - α₊"""
        rows = self.network.rows
        return np.concatenate([multipliers[:, :1], multipliers[:, 1:rows] - multipliers[:, rows:]], axis=1)

    def _products(self) -> Array:
        return np.where(self.on, self.slacks * self.multipliers, 0.0)

    def residual(self) -> float:
        return float(self.network.residual(self.impulses, self.network.speeds(self.impulses)).max())

    def here(self) -> Solution:
        """The impulses as they are, and how they change with the speeds if σ stays the same."""
        ratio = self._ratio()
        _, E = self._contact_blocks(ratio, np.zeros((self.network.count, 1)))
        rows = self.network.rows
        by_mu = np.zeros_like(self.impulses)
        by_mu[:, 1:] = -(ratio[:, 1:rows] - ratio[:, rows:]) * self.impulses[:, :1]
        return Solution(self.network, self.impulses.copy(), E, apply(E, by_mu))

    def _find_modes(self) -> Array:
        """Of every row: 0 free, -1 or 1 at a bound. Friction of what does not press has none."""
        rows = self.network.rows
        at = self.on & (self.multipliers > self.d * self.slacks)
        below, above = self.multipliers[:, 1:rows], self.multipliers[:, rows:]
        modes = np.where(at[:, :rows], -1, 0)
        modes[:, 1:] = np.where(at[:, 1:rows] & (below > above), -1, np.where(at[:, rows:], 1, 0))
        modes[:, 1:] = np.where((modes[:, :1] < 0) | ~self.rows_on[:, 1:], -1, modes[:, 1:])
        return modes

    def settled(self) -> bool:
        """Whether the modes are those before the last step, and were not asked for before."""
        modes = self._find_modes()
        same = np.array_equal(modes, self.modes)
        self.modes = modes
        if not same or (self._tried is not None and np.array_equal(modes, self._tried)):
            return False
        self._tried = modes
        return True

    # ------------------------------------------------------------------------------------------ a step

    def _ratio(self) -> Array:
        return np.where(self.on, self.multipliers / self.slacks, 0.0)

    def _contact_blocks(self, ratio: Array, held: Array) -> tuple[Array, Array]:
        """D = softness + what the bounds add, and its inverse E; of a row that is off, E is zero."""
        network, rows = self.network, self.network.rows
        (D, E), k = np.zeros((2, network.count, rows, rows)), np.arange(rows)
        steep = np.concatenate([ratio[:, :1], ratio[:, 1:rows] + ratio[:, rows:]], axis=1)
        D[:, k, k] = network.softness + held * network.d + steep
        D[:, 1:, 0] = network.mu * (ratio[:, 1:rows] - ratio[:, rows:])
        E[:, k, k] = np.where(self.rows_on, 1.0 / D[:, k, k], 0.0)
        E[:, 1:, 0] = -D[:, 1:, 0] * E[:, k[1:], k[1:]] * E[:, :1, 0]
        return D, E

    def step(self) -> bool:
        """Towards the solution; False if there is no such step."""
        network = self.network
        ratio, products = self._ratio(), self._products()
        D, E = self._contact_blocks(ratio, network.of_islands(self.held))
        if not np.isfinite(E).all():
            return False
        try:
            factors = network.factor(E)
        except RuntimeError:  # singular
            return False
        off = self._acting(self.multipliers) - network.speeds(self.impulses)

        def direction(wanted: Array) -> tuple[Array, Array, Array]:
            """Of λ, s and α, to s α = wanted."""
            change = np.where(self.on, (wanted - products) / self.slacks, 0.0)
            r = np.where(self.rows_on, off + self._acting(change), 0.0)
            x = network.answer(factors, E, r)
            left = np.where(self.rows_on, r - network.mobility(x) - apply(D, x), 0.0)
            x = x + network.answer(factors, E, left)
            ds = self._slacks(x)
            return x, ds, np.where(self.on, change - ratio * ds, 0.0)

        _, ds, da = direction(np.zeros_like(products))
        length = network.of_islands(np.minimum(1.0, self._length(ds, da)))
        mean = network.total(products) / self.bounds
        after = (self.slacks + length * ds) * (self.multipliers + length * da)
        ahead = np.maximum(network.total(np.where(self.on, after, 0.0)) / self.bounds, 0.0)
        center = np.where(mean > CLOSE * self.scale**2, CENTER, CENTER_CLOSE)
        sigma = mean * np.maximum((ahead / mean) ** 3, center)
        x, ds, da = direction(network.of_islands(sigma) - ds * da)
        lengths = np.minimum(1.0, SHORT * self._length(ds, da))
        length = network.of_islands(lengths)
        if not np.isfinite(x).all():
            return False
        self.impulses = self.impulses + length * x
        self.slacks = np.where(self.on, np.maximum(self.slacks + length * ds, LEAST * self.slacks), 1.0)
        self.multipliers = np.maximum(self.multipliers + length * da, LEAST * self.multipliers)
        more = np.clip(MORE * self.held, HELD, 1.0)
        self.held = np.where(lengths < STALLED, more, np.where(lengths > WELL, self.held / MORE, self.held))
        self.held[self.held < 0.01 * HELD] = 0.0
        return True

    def _length(self, ds: Array, da: Array) -> Array:
        """Of every island: how far it is to the nearest bound."""
        reach = np.full(self.network.islands, np.inf)
        for x, dx, least in (
            (self.slacks, ds, self.rounding / self.d),
            (self.multipliers, da, self.rounding),
        ):
            closing = self.on & (dx < 0.0) & (x > least)
            each = np.where(closing, x / np.where(closing, -dx, 1.0), np.inf)
            np.minimum.at(reach, self.network.island, each.min(1))
        return reach
