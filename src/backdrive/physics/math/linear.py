"""Dense linear systems of a size known at run time, one in every lane: LU factors without pivoting, in tiles.

A matrix is an array of n x n numbers, row by row; n is a multiple of TILE. Inner loops run over tiles whose sums stay
in registers. Rows are not exchanged: the systems of `complementarity` are regularised, and their pivots stay positive
as long as friction does not jam (Painlevé's paradox), which shows in the residual.
"""

from __future__ import annotations

from ...ir import Index, Scalar, ScalarArray, carry, interruptible, loop, subroutine

# Rows and columns of a tile.
TILE = 3

_TILE = [(r, c) for r in range(TILE) for c in range(TILE)]


def padded(n: int) -> int:
    """n rounded up to whole tiles."""
    return -(-n // TILE) * TILE


@subroutine("lanes", "i")
def factor_lu(A: ScalarArray, n: Index) -> None:
    """Factor A [n, n] = L U in place. L has a unit diagonal, which is not stored; that of U is stored inverted."""
    total = carry(TILE * TILE)
    rows = TILE * n
    for K in interruptible(loop(n // TILE)):
        k = K * TILE
        upper = A.at(K * rows)  # the rows of tile K

        def gather(target: ScalarArray, left: ScalarArray, column: Index, K: Index = K) -> None:
            """total = the tile at `target` - Σ over m < K of the tiles of L (in rows `left`) times U (in `column`)."""
            for r, c in _TILE:
                total[r * TILE + c] = target.at(r * n)[c]
            for m in loop(K):
                of_left, of_upper = left.at(m * TILE), A.at(m * rows + column)
                a = [[of_left.at(r * n)[x] for x in range(TILE)] for r in range(TILE)]
                b = [[of_upper.at(x * n)[c] for c in range(TILE)] for x in range(TILE)]
                for r, c in _TILE:
                    value = total[r * TILE + c]
                    for x in range(TILE):
                        value = value - a[r][x] * b[x][c]
                    total[r * TILE + c] = value

        gather(upper.at(k), upper, k)
        D = [[total[r * TILE + c] for c in range(TILE)] for r in range(TILE)]
        for x in range(TILE):
            D[x][x] = 1.0 / D[x][x]
            for r in range(x + 1, TILE):
                D[r][x] = D[r][x] * D[x][x]
                for c in range(x + 1, TILE):
                    D[r][c] = D[r][c] - D[r][x] * D[x][c]
        diagonal = upper.at(k)
        for r, c in _TILE:
            diagonal.at(r * n)[c] = D[r][c]
        for J in loop(n // TILE, start=K + 1):
            right, lower = upper.at(J * TILE), A.at(J * rows)
            gather(right, upper, J * TILE)
            X = [[total[r * TILE + c] for c in range(TILE)] for r in range(TILE)]
            for r in range(TILE):
                for x in range(r):
                    X[r] = [u - D[r][x] * w for u, w in zip(X[r], X[x], strict=True)]
            for r, c in _TILE:
                right.at(r * n)[c] = X[r][c]
            gather(lower.at(k), lower, k)
            Y = [[total[r * TILE + c] for c in range(TILE)] for r in range(TILE)]
            for r in range(TILE):
                for c in range(TILE):
                    for x in range(c):
                        Y[r][c] = Y[r][c] - Y[r][x] * D[x][c]
                    Y[r][c] = Y[r][c] * D[c][c]
            for r, c in _TILE:
                lower.at(k).at(r * n)[c] = Y[r][c]


@subroutine("lanes", "i", "lanes")
def solve_lu(A: ScalarArray, n: Index, x: ScalarArray) -> None:
    """x [n] ← (L U)⁻¹ x, with the factors in A."""
    _substitute(A, n, x, lower=True, transposed=False)
    _substitute(A, n, x, lower=False, transposed=False)


@subroutine("lanes", "i", "lanes")
def solve_lu_transposed(A: ScalarArray, n: Index, x: ScalarArray) -> None:
    """x [n] ← (L U)⁻ᵀ x, with the factors in A."""
    _substitute(A, n, x, lower=False, transposed=True)
    _substitute(A, n, x, lower=True, transposed=True)


def _substitute(A: ScalarArray, n: Index, x: ScalarArray, lower: bool, transposed: bool) -> None:
    """x ← T⁻¹ x, with T one of L, U, Lᵀ and Uᵀ, tile after tile."""
    total = carry(TILE)
    forward = lower != transposed  # L and Uᵀ are lower triangular
    tiles, rows = n // TILE, TILE * n

    def entry(view: ScalarArray, r: int, c: int) -> Scalar:
        return view.at(c * n)[r] if transposed else view.at(r * n)[c]

    # Terms are added in the order of columns and not tile by tile: rows and columns of zeros then change no bit.
    for K in loop(tiles, reverse=not forward):
        for r in range(TILE):
            total[r] = x.at(K * TILE)[r]
        start, stop = (0, K) if forward else (K + 1, tiles)
        within = range(TILE) if forward else range(TILE - 1, -1, -1)
        for m in loop(stop, start=start, reverse=not forward):
            tile = A.at(m * rows + K * TILE) if transposed else A.at(K * rows + m * TILE)
            known = x.get(m, TILE)
            for r in range(TILE):
                value = total[r]
                for c in within:
                    value = value - entry(tile, r, c) * known[c]
                total[r] = value
        tile, values = A.at(K * rows + K * TILE), [total[r] for r in range(TILE)]
        for r in within:
            for c in range(r) if forward else range(TILE - 1, r, -1):
                values[r] = values[r] - entry(tile, r, c) * values[c]
            if not lower:
                values[r] = values[r] * entry(tile, r, r)
        x.put(K, values)


@subroutine("lanes", "i", "lanes", "lanes")
def multiply(A: ScalarArray, n: Index, x: ScalarArray, y: ScalarArray) -> None:
    """y [n] += A x"""
    total = carry(TILE)
    for K in loop(n // TILE):
        rows = A.at(K * (TILE * n))
        for r in range(TILE):
            total[r] = y.at(K * TILE)[r]
        for m in loop(n // TILE):
            known, tile = x.get(m, TILE), rows.at(m * TILE)
            for r in range(TILE):
                value = total[r]
                for c in range(TILE):
                    value = value + tile.at(r * n)[c] * known[c]
                total[r] = value
        y.put(K, [total[r] for r in range(TILE)])
