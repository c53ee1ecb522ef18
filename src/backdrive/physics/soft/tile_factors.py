"""The factorisation H = Lᵀ D L of a sparse matrix, in tiles, from the last coordinate to the first.

Constraints make entries between the coordinates that they move. Where one acts between two branches of the tree, its
two chains and what is inward of them fill up. Tiles in which all entries are zero are neither read nor written.
Operations are those of `TreeFactors`, in the same order, besides some with zeros: results have the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...ir import Index, IndexArray, Scalar, ScalarArray, carry, counters, loop, minimum, rolled, when
from ..constraints.constraints import Support
from ..math.linear import TILE

_LAST_FIRST = range(TILE - 1, -1, -1)


class TileFactors:
    """Of a matrix H [n, n], row by row: the lower triangle is overwritten by L, whose unit diagonal is not stored, and
    by 1 / D on the diagonal. n: nv in whole tiles.

    empty [tiles, tiles]: 1 where all entries of a tile below the diagonal are zero, otherwise 0. columns [tiles,
    tiles]: in every row of tiles the numbers of the others, falling; count [tiles]: how many they are.
    """

    def __init__(self, H: ScalarArray, nv: Index) -> None:
        self.H, self.nv, self.tiles = H, nv, (nv + (TILE - 1)) // TILE
        self.n = self.tiles * TILE
        self.empty, self.columns = (counters(nv * nv) for _ in range(2))  # more than tiles²
        self.count, self._away = counters(nv), counters(nv)

    # ---------------------------------------------------------------------------------------- sparsity

    def begin(self, ancestors: Sequence[Sequence[int]] | None) -> None:
        """Mark the entries between coordinates and those inward of them (`TreeFactors`); all if they are not known."""
        for k in rolled(self.tiles * self.tiles):
            self.empty[k] = 0 if ancestors is None else 1
        for I, J in sorted({(i // TILE, j // TILE) for i, inward in enumerate(ancestors or ()) for j in inward}):
            self.empty[I * self.tiles + J] = 0

    def mark(self, chain: IndexArray, support: Support, width: int) -> None:
        """Mark the entries between all coordinates that a support moves: those of the last tile among them, since the
        others follow as its fill-in.

        chain: where supports list their coordinates; width: coordinates of a floating root.
        """
        away, tiles = self._away, self.tiles
        for k in rolled(tiles):  # away [tiles]: 0 where the support moves a coordinate of the tile
            away[k] = 1
        for segment in support.segments():
            for j in loop(segment.count):
                away[chain.at(segment.start)[j] // TILE] = 0
            for _ in when(segment.floating >= 0):
                for k in sorted({*range(0, width, TILE), width - 1}):
                    away[(segment.floating + k) // TILE] = 0
        for I in rolled(tiles, reverse=True):
            for _ in when(away[I] == 0):
                row = self.empty.at(I * tiles)
                for J in loop(I):
                    row[J] = minimum(row[J], away[J])
                    away[J] = 1

    def mark_coordinates(self, coordinates: Collection[int]) -> None:
        """Mark the entries between all of these coordinates."""
        numbers = {k // TILE for k in coordinates}
        for I, J in sorted((I, J) for I in numbers for J in numbers if J < I):
            self.empty[I * self.tiles + J] = 0

    def mark_all(self) -> None:
        for k in rolled(self.tiles * self.tiles):
            self.empty[k] = 0

    def close(self) -> None:
        """All entries are marked: add the fill-in, and list the tiles of every row."""
        tiles, empty = self.tiles, self.empty
        for M in rolled(tiles, reverse=True):
            row, columns = empty.at(M * tiles), self.columns.at(M * tiles)
            self.count[M] = 0
            for I in loop(M, reverse=True):
                for _ in when(row[I] == 0):
                    columns[self.count[M]] = I
                    self.count[M] = self.count[M] + 1
                    filled = empty.at(I * tiles)
                    for J in loop(I):
                        filled[J] = minimum(filled[J], row[J])

    def clear(self, diagonal: ScalarArray) -> None:
        """H = a diagonal matrix, with a unit matrix at the end; diagonal [nv]."""
        zero: list[list[Scalar]] = [[0.0] * TILE] * TILE
        for M in rolled(self.tiles):
            self._put(M, M, zero)
            for k in loop(self.count[M]):
                self._put(M, self.columns.at(M * self.tiles)[k], zero)
        for k in rolled(self.nv):
            self.H[k * (self.n + 1)] = diagonal[k]
        for k in loop(self.n, start=self.nv):
            self.H[k * (self.n + 1)] = 1.0

    # ---------------------------------------------------------------------------------------- factors

    def factor(self) -> None:
        for M in rolled(self.tiles, reverse=True):
            A, count, columns = self._tile(M, M), self.count[M], self.columns.at(M * self.tiles)
            inverse: list[Scalar] = [0.0] * TILE
            for i in _LAST_FIRST:
                inverse[i] = 1.0 / A[i][i]
                row = A[i][:i]
                for j in range(i):
                    A[i][j] = row[j] * inverse[i]
                    for k in range(j + 1):
                        A[j][k] = A[j][k] - A[i][j] * row[k]
            self._put(M, M, [[inverse[i] if i == j else A[i][j] for j in range(TILE)] for i in range(TILE)])
            for k in loop(count):
                B = self._tile(M, columns[k])
                for i in _LAST_FIRST:
                    for m in range(TILE - 1, i, -1):
                        B[i] = [b - A[m][i] * x for b, x in zip(B[i], B[m], strict=True)]
                self._put(M, columns[k], B)
            for k in loop(count):
                L = [[inverse[i] * x for x in row] for i, row in enumerate(self._tile(M, columns[k]))]
                for m in loop(count, start=k):
                    right, target = self._tile(M, columns[m]), self._tile(columns[k], columns[m])
                    for i in _LAST_FIRST:
                        for r in range(TILE):
                            target[r] = [t - L[i][r] * x for t, x in zip(target[r], right[i], strict=True)]
                    self._put(columns[k], columns[m], target)
                self._put(M, columns[k], L)

    def solve(self, x: ScalarArray) -> None:
        """x [n] ← H⁻¹ x, with the factors; x [nv] is given."""
        for k in loop(self.n, start=self.nv):
            x[k] = 0.0
        for M in rolled(self.tiles, reverse=True):
            A, values, columns = self._tile(M, M), list(x.get(M, TILE)), self.columns.at(M * self.tiles)
            for i in _LAST_FIRST:
                for j in range(i):
                    values[j] = values[j] - A[i][j] * values[i]
            x.put(M, values)
            for k in loop(self.count[M]):
                B, other = self._tile(M, columns[k]), list(x.get(columns[k], TILE))
                for i in _LAST_FIRST:
                    other = [o - b * values[i] for o, b in zip(other, B[i], strict=True)]
                x.put(columns[k], other)
        total = carry(TILE)
        for M in rolled(self.tiles):
            A, columns = self._tile(M, M), self.columns.at(M * self.tiles)
            for i, value in enumerate(x.get(M, TILE)):
                total[i] = value * A[i][i]
            for k in loop(self.count[M], reverse=True):
                B, known = self._tile(M, columns[k]), x.get(columns[k], TILE)
                for i in range(TILE):
                    value = total[i]
                    for b, y in zip(B[i], known, strict=True):
                        value = value - b * y
                    total[i] = value
            values = [total[i] for i in range(TILE)]
            for i in range(TILE):
                for j in range(i):
                    values[i] = values[i] - A[i][j] * values[j]
            x.put(M, values)

    def _tile(self, I: Index, J: Index) -> list[list[Scalar]]:
        view = self.H.at(I * (TILE * self.n) + J * TILE)
        return [[view.at(r * self.n)[c] for c in range(TILE)] for r in range(TILE)]

    def _put(self, I: Index, J: Index, tile: list[list[Scalar]]) -> None:
        view = self.H.at(I * (TILE * self.n) + J * TILE)
        for r in range(TILE):
            for c in range(TILE):
                view.at(r * self.n)[c] = tile[r][c]
