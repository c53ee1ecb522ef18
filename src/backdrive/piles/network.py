"""The contacts of one big world as one sparse linear system: bodies are its blocks, contacts couple two of them.

With the pushes P of all rows, the whitened velocities are y = Pᵀ λ and the rows' speeds P y + b + softness λ. Where λ
answers to speeds by E, small blocks of one contact each, a body-sized system is left:

    λ = E (r - P y),   y = Pᵀ λ        so        (1 + Pᵀ E P) y = Pᵀ E r

which stays regular whatever the contacts are, since the masses (the 1) are.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix, csc_matrix
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import SuperLU, splu

Array = np.ndarray
PIVOT = 1e-3  # the diagonal is the pivot unless it is so much smaller than the column: fill stays that of the pattern


class SparseDelassus:
    """pushes: [contact, row, 2 nv], of both bodies; bodies: [contact, 2], 0 is what does not move.

    b: [contact, row]; softness, mu: [contact, 1]. d: [contact, row], diagonal of P Pᵀ + softness. fastest: 1 + the
    largest speed in b, m/s. island: of every
    contact, of `islands`: contacts of different ones have no moving body in common.
    """

    def __init__(self, pushes: Array, bodies: Array, b: Array, softness: Array, mu: Array) -> None:
        self.count, self.rows, width = pushes.shape
        self.nv, moves = width // 2, bodies > 0
        self.pushes = pushes * np.repeat(moves, self.nv, axis=1)[:, None, :]
        self.b, self.softness, self.mu = b, softness[:, None], mu[:, None]
        self.fastest = 1.0 + float(np.abs(b).max())
        self.d = (self.pushes**2).sum(2) + self.softness
        self.touched, place = np.unique(bodies[moves], return_inverse=True)  # bodies, and the block of each end
        self.blocks = len(self.touched)
        ends = np.full(bodies.shape, self.blocks)  # a last block takes up what pushes the world
        ends[moves] = place
        self._numbers = (ends[:, :, None] * self.nv + np.arange(self.nv)).reshape(self.count, -1)
        first, second = ends.min(1), np.where(moves.all(1), ends.max(1), ends.min(1))
        graph = coo_matrix((np.ones(self.count), (first, second)), shape=(self.blocks, self.blocks))
        self.islands, label = connected_components(graph, directed=False)
        self.island = label[first]
        self._make_pattern(ends)

    def _make_pattern(self, ends: Array) -> None:
        """Where the numbers of Pᵀ E P stand in a matrix of compressed columns."""
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

    def push(self, impulses: Array) -> Array:
        """Pᵀ λ, [block + 1, nv]."""
        each = (impulses[:, None, :] @ self.pushes)[:, 0]
        total = np.bincount(self._numbers.ravel(), each.ravel(), minlength=(self.blocks + 1) * self.nv)
        return total.reshape(-1, self.nv)

    def along(self, y: Array) -> Array:
        """P y, [contact, row]."""
        return (self.pushes @ self.of_ends(y).transpose(0, 2, 1))[:, :, 0]

    def of_ends(self, y: Array) -> Array:
        """y of both bodies, [contact, 1, 2 nv]."""
        return y.reshape(-1)[self._numbers][:, None, :]

    def mobility(self, impulses: Array) -> Array:
        """P Pᵀ λ"""
        return self.along(self.push(impulses))

    def speeds(self, impulses: Array) -> Array:
        """P Pᵀ λ + softness λ + b"""
        return self.mobility(impulses) + self.softness * impulses + self.b

    def factor(self, E: Array) -> SuperLU:
        """Of 1 + Pᵀ E P; E: [contact, row, row]. Raises RuntimeError where it is singular."""
        each = self.pushes.transpose(0, 2, 1) @ (E @ self.pushes)
        contact, end, other = self._used
        numbers = each.reshape(-1, 2, self.nv, 2, self.nv)[contact, end, :, other, :]
        data = np.bincount(self._at, numbers.ravel(), minlength=len(self._indices))
        data[self._diagonal] += 1.0
        size = self.blocks * self.nv
        matrix = csc_matrix((data, self._indices, self._starts), shape=(size, size))
        return splu(
            matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=PIVOT, options={"SymmetricMode": True, "Equil": False}
        )

    def solve(self, factors: SuperLU, y: Array, transposed: bool = False) -> Array:
        """(1 + Pᵀ E P)⁻¹ y, zero for the world."""
        out = np.zeros((self.blocks + 1, self.nv))
        out[:-1] = factors.solve(y[:-1].ravel(), "T" if transposed else "N").reshape(-1, self.nv)
        return out

    def answer(self, factors: SuperLU, E: Array, r: Array) -> Array:
        """λ = E (r - P Pᵀ λ)"""
        free = apply(E, r)
        return free - apply(E, self.along(self.solve(factors, self.push(free))))

    def residual(self, impulses: Array, speeds: Array) -> Array:
        """`complementarity.residual` of every row, m/s."""
        return self.d * np.abs(impulses - self.projected(impulses, speeds))

    def projected(self, impulses: Array, speeds: Array) -> Array:
        """Impulses that would stop every row on its own, within their bounds: where these act, on them."""
        wanted, most = impulses - speeds / self.d, self.mu * impulses[:, :1]
        wanted[:, 0] = np.maximum(wanted[:, 0], 0.0)
        wanted[:, 1:] = np.clip(wanted[:, 1:], -most, most)
        return wanted

    def total(self, x: Array) -> Array:
        """Of every island."""
        return np.bincount(self.island, x.sum(1), minlength=self.islands)

    def largest(self, x: Array) -> Array:
        """Of every island, of what is not negative."""
        out = np.zeros(self.islands)
        np.maximum.at(out, self.island, x.max(1))
        return out

    def of_islands(self, x: Array) -> Array:
        """The number of every contact's island, [contact, 1]."""
        return x[self.island][:, None]


def apply(E: Array, x: Array) -> Array:
    return (E @ x[:, :, None])[:, :, 0]
