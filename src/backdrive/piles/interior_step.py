"""A step whose contacts `InteriorPoint` solves: from their blocks to a `Network`, and back with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..physics.solvers.interior_point import InteriorPoint
from .contacts import ContactForm
from .interior_point import solve
from .modes import Solution
from .network import SparseDelassus
from .pivoting import solve_by_pivoting

if TYPE_CHECKING:
    from .step import Contacts

Array = np.ndarray
PIVOTED = 1500  # contacts, at most


class Places:
    """The numbers of contacts [contact, n] in arrays [register, n, lane]."""

    def __init__(self, form: ContactForm, contacts: Contacts, lanes: int) -> None:
        self.form, self.register, self.lane = form, contacts.place // lanes, contacts.place % lanes
        self.bodies = np.column_stack([contacts.at[f"body_{end}_at"][contacts.place] for end in "ab"])
        self.rows_of_bodies = contacts.row_of

    def take(self, array: Array) -> Array:
        return array[self.register, :, self.lane].astype(np.float64)

    def put(self, array: Array, numbers: Array) -> None:
        array[self.register, :, self.lane] = numbers

    def network(self, blocks: Array) -> SparseDelassus:
        """Of all contacts."""
        pushes, _, b, _, softness, mu, _ = np.split(self.take(blocks), np.cumsum(self.form.block)[:-1], axis=1)
        return SparseDelassus(self._by_row(pushes), self.bodies, b, softness[:, 0], mu[:, 0])

    def deep(self, blocks: Array) -> Array:
        """The contacts that have penetrated."""
        return np.nonzero(self.take(blocks)[:, -1] < 0.0)[0]

    def deep_network(self, blocks: Array, deep: Array) -> SparseDelassus:
        """Of their normal rows."""
        parts = np.split(self.take(blocks)[deep], np.cumsum(self.form.block)[:-1], axis=1)
        pushes, softness, rate = self._by_row(parts[0])[:, :1], parts[4][:, 0], parts[6]
        return SparseDelassus(pushes, self.bodies[deep], rate, softness, np.zeros(len(deep)))

    def _by_row(self, pushes: Array) -> Array:
        return pushes.reshape(-1, self.form.rows, self.form.push)

    def put_y(self, network: SparseDelassus, y: Array, table: Array) -> None:
        """Into a table of rows of bodies."""
        table[self.rows_of_bodies[network.touched], : network.nv] = y[:-1]

    def take_y(self, network: SparseDelassus, table: Array) -> Array:
        y = np.zeros((network.blocks + 1, network.nv))
        y[:-1] = table[self.rows_of_bodies[network.touched], : network.nv]
        return y


def solve_velocities(
    network: SparseDelassus, solver: InteriorPoint, swept: Array, sweep: Callable[[], Array]
) -> Solution:
    """From the impulses that sweeps came to; if that leads nowhere, from where more sweeps come to. Islands that are
    not solved then are left to pivoting; where that would take too long, to a start from the middle of all bounds."""
    tolerance = solver.tolerance * network.fastest
    best = solve(network, solver, swept)
    if best.residual() > tolerance:
        swept = sweep()
        best = better(best, solve(network, solver, swept))
    if best.residual() > tolerance and network.count > PIVOTED:
        return better(best, solve(network, solver))
    speeds = network.speeds(best.impulses)
    solved = network.of_islands(network.largest(network.residual(best.impulses, speeds))) <= tolerance
    for near in (network.projected(best.impulses, speeds), swept):
        if best.residual() > tolerance:
            best = better(best, solve_by_pivoting(network, np.where(solved, best.impulses, near)))
    return best


def better(a: Solution, b: Solution | None) -> Solution:
    return b if b is not None and b.residual() < a.residual() else a


def velocities_adjoint(
    places: Places, solution: Solution, y_bar: Array, impulses_bar: Array, blocks_bar: Array
) -> None:
    """Gradients with respect to the blocks, from those of y (rows of bodies) and of the impulses."""
    form, network = places.form, solution.network
    pushes_bar, b_bar, softness_bar, mu_bar = solution.adjoint(
        places.take_y(network, y_bar), places.take(impulses_bar)
    )  # fmt: skip
    numbers = np.zeros((network.count, sum(form.block)))
    parts = np.split(numbers, np.cumsum(form.block)[:-1], axis=1)
    parts[0][...] = pushes_bar.reshape(network.count, -1)
    parts[2][...], parts[4][:, 0], parts[5][:, 0] = b_bar, softness_bar, mu_bar
    places.put(blocks_bar, places.take(blocks_bar) + numbers)


def positions_adjoint(places: Places, solution: Solution, deep: Array, shift_bar: Array, blocks_bar: Array) -> None:
    """As `velocities_adjoint`, of the corrections of what has penetrated."""
    form, network = places.form, solution.network
    pushes_bar, rate_bar, softness_bar, _ = solution.adjoint(
        places.take_y(network, shift_bar), np.zeros_like(solution.impulses)
    )
    numbers = np.zeros((len(places.bodies), sum(form.block)))
    parts = np.split(numbers, np.cumsum(form.block)[:-1], axis=1)
    parts[0][deep, : form.push] = pushes_bar[:, 0]
    parts[4][deep, 0], parts[6][deep] = softness_bar, rate_bar
    places.put(blocks_bar, places.take(blocks_bar) + numbers)
