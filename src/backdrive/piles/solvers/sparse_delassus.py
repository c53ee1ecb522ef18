"""The contact problem of a pile with its Delassus matrix in block-sparse form: bodies are blocks, contacts couple two.

With the pushes P of all rows, the whitened velocities are y = Pᵀ λ, the Delassus matrix is W = P Pᵀ, and the speeds of
the rows are P y + b + softness λ. Where the impulses respond to speeds by E, small blocks of one contact each, a system
of the size of the bodies is left:

    λ = E (r - P y),   y = Pᵀ λ        so        (1 + Pᵀ E P) y = Pᵀ E r

It stays regular whatever the contacts are, since the mass matrix of whitened velocities is 1.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix, csc_matrix
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import SuperLU, splu

from ..budget import PileBudget

Array = np.ndarray

# The diagonal is the pivot of a factorisation unless it is smaller than this part of the largest number in its column:
# the fill-in then stays that of the pattern.
PIVOT_THRESHOLD = 1e-3


class SparseDelassus:
    """The contacts of a pile, whose Delassus matrix is never formed.

    Arguments: pushes [contact, row, 2 nv], for both bodies (`ContactBlock`); bodies [contact, 2], 0 does not move; b
    and softness [contact, row]; mu [contact]; budget: that of the step, which factorisations spend
    (None: one of its own).

    diagonal [contact, row]: of W + softness. fastest: 1 + the largest speed in b, m/s. touched: the bodies with
    contacts, one block each. island [contact]: contacts of different islands have no moving body in common.
    """

    def __init__(
        self, pushes: Array, bodies: Array, b: Array, softness: Array, mu: Array, budget: PileBudget | None = None
    ) -> None:
        self.budget = budget or PileBudget()
        self.count, self.rows, width = pushes.shape
        self.nv, moves = width // 2, bodies > 0
        self.pushes = pushes * np.repeat(moves, self.nv, axis=1)[:, None, :]
        self.b, self.softness, self.mu = b, softness, mu[:, None]
        self.fastest = 1.0 + float(np.abs(b).max())
        self.diagonal = (self.pushes**2).sum(2) + self.softness
        self.touched, block = np.unique(bodies[moves], return_inverse=True)
        self.blocks = len(self.touched)
        ends = np.full(bodies.shape, self.blocks)  # a last block collects the pushes on the world
        ends[moves] = block
        self._numbers = (ends[:, :, None] * self.nv + np.arange(self.nv)).reshape(self.count, -1)
        first, second = ends.min(1), np.where(moves.all(1), ends.max(1), ends.min(1))
        graph = coo_matrix((np.ones(self.count), (first, second)), shape=(self.blocks, self.blocks))
        self.islands, label = connected_components(graph, directed=False)
        self.island = label[first]
        self._make_pattern(ends)

    def _make_pattern(self, ends: Array) -> None:
        """The positions of the numbers of Pᵀ E P in a matrix of compressed columns."""
        nv, n = self.nv, self.blocks
        row, column = np.repeat(ends, 2, axis=1), np.tile(ends, 2)
        used = (row < n) & (column < n)
        codes = np.concatenate([(column * n + row)[used], np.arange(n) * (n + 1)])
        unique, number = np.unique(codes, return_inverse=True)
        block_column, block_row = np.divmod(unique, n)
        high = np.bincount(block_column, minlength=n)  # blocks of a column
        first = np.concatenate([[0], np.cumsum(high)])[block_column]
        k = np.arange(nv)
        corner = first * nv * nv + (np.arange(len(unique)) - first) * nv
        at = corner[:, None, None] + k[:, None] + k * (high[block_column] * nv)[:, None, None]  # [block, row, column]
        self._indices = np.empty(at.size, np.int32)
        self._indices[at] = np.broadcast_to((block_row * nv)[:, None, None] + k[:, None], at.shape)
        self._starts = np.concatenate([[0], np.cumsum(np.repeat(high * nv, nv))]).astype(np.int32)
        self._used = np.nonzero(used.reshape(-1, 2, 2))
        self._at, self._diagonal = at[number[: used.sum()]].ravel(), at[number[used.sum() :]][:, k, k].ravel()

    # ------------------------------------------------------------------------------------------ products

    def whitened(self, impulses: Array) -> Array:
        """y = Pᵀ λ, [block + 1, nv]."""
        each = (impulses[:, None, :] @ self.pushes)[:, 0]
        total = np.bincount(self._numbers.ravel(), each.ravel(), minlength=(self.blocks + 1) * self.nv)
        return total.reshape(-1, self.nv)

    def along(self, y: Array) -> Array:
        """P y, [contact, row]."""
        return (self.pushes @ self.at_ends(y).transpose(0, 2, 1))[:, :, 0]

    def at_ends(self, y: Array) -> Array:
        """y of both bodies of every contact, [contact, 1, 2 nv]."""
        return y.reshape(-1)[self._numbers][:, None, :]

    def product(self, impulses: Array) -> Array:
        """W λ, [contact, row]."""
        return self.along(self.whitened(impulses))

    def row_speeds(self, impulses: Array) -> Array:
        """The speeds of the rows, W λ + softness λ + b, m/s."""
        return self.product(impulses) + self.softness * impulses + self.b

    # The interface `Delassus`, as the dense form has it; `reduced` are the whitened velocities y.

    def apply(self, impulse: Array, speed: Array) -> None:
        """speed += W λ"""
        speed += self.product(impulse)

    def effect(self, impulse: Array, reduced: Array) -> None:
        """reduced = Pᵀ λ"""
        reduced[...] = self.whitened(impulse)

    def speeds(self, reduced: Array, result: Array) -> None:
        """result = P y"""
        result[...] = self.along(reduced)

    # ------------------------------------------------------------------------------------------ linear systems

    def factor(self, E: Array) -> SuperLU:
        """The factors of 1 + Pᵀ E P; E: [contact, row, row]. Raises RuntimeError where it is singular."""
        self.budget.factor(self.count)
        each = self.pushes.transpose(0, 2, 1) @ (E @ self.pushes)
        contact, end, other = self._used
        numbers = each.reshape(-1, 2, self.nv, 2, self.nv)[contact, end, :, other, :]
        data = np.bincount(self._at, numbers.ravel(), minlength=len(self._indices))
        data[self._diagonal] += 1.0
        size = self.blocks * self.nv
        matrix = csc_matrix((data, self._indices, self._starts), shape=(size, size))
        options = {"SymmetricMode": True, "Equil": False}
        return splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=PIVOT_THRESHOLD, options=options)

    def solve(self, factors: SuperLU, y: Array, transposed: bool = False) -> Array:
        """(1 + Pᵀ E P)⁻¹ y, zero for the world."""
        out = np.zeros((self.blocks + 1, self.nv))
        out[:-1] = factors.solve(y[:-1].ravel(), "T" if transposed else "N").reshape(-1, self.nv)
        return out

    def respond(self, factors: SuperLU, E: Array, r: Array) -> Array:
        """The impulses λ = E (r - W λ)."""
        free = multiply_blocks(E, r)
        return free - multiply_blocks(E, self.along(self.solve(factors, self.whitened(free))))

    # ------------------------------------------------------------------------------------------ complementarity

    def residual(self, impulses: Array, speeds: Array) -> Array:
        """How far every row is from satisfying the complementarity conditions, m/s: d |λ - projected λ|.

        As `complementarity.residual` of a dense problem, which scales the impulses before it projects them.
        """
        return self.diagonal * np.abs(impulses - self.projected(impulses, speeds))

    def projected(self, impulses: Array, speeds: Array) -> Array:
        """The impulses that would stop every row on its own, projected onto their bounds."""
        wanted, most = impulses - speeds / self.diagonal, self.mu * impulses[:, :1]
        wanted[:, 0] = np.maximum(wanted[:, 0], 0.0)
        wanted[:, 1:] = np.clip(wanted[:, 1:], -most, most)
        return wanted

    # ------------------------------------------------------------------------------------------ islands

    def island_sum(self, x: Array) -> Array:
        """Sums over the contacts of every island; x: [contact, n]."""
        return np.bincount(self.island, x.sum(1), minlength=self.islands)

    def island_max(self, x: Array) -> Array:
        """The largest number of every island; x: [contact, n], not negative."""
        out = np.zeros(self.islands)
        np.maximum.at(out, self.island, x.max(1))
        return out

    def per_contact(self, x: Array) -> Array:
        """The number of every contact's island, [contact, 1]."""
        return x[self.island][:, None]


def multiply_blocks(E: Array, x: Array) -> Array:
    """E x for the blocks of every contact; E: [contact, row, row], x: [contact, row]."""
    return (E @ x[:, :, None])[:, :, 0]
