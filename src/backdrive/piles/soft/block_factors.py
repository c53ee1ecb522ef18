"""The Cholesky factors L Lᵀ of a matrix of 6 x 6 blocks, block column after block column (left-looking).

The kernels are scalar: they are compiled for one lane. Blocks are row major, and `stride` numbers apart.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import splu

from ...backends import Kernel
from ...ir import Index, Scalar, ScalarArray, counters, loop, sqrt
from ..arguments import IntegerIn, IntsIn, PacksOut, kernel_arguments
from ..kernels import make_kernel
from ..stages import StageTarget

Array = np.ndarray
N = 6  # rows of a block
SCALAR = StageTarget(64, 1)


@dataclass(frozen=True)
class FactorArguments:
    """The lower triangle of a matrix of n x n blocks: the diagonal, then those below it, column after column.

    column_start [n + 1]: the first block below the diagonal of every column, from 0 on. row: of every one of these,
    growing in a column. end: where its column ends. across: these blocks by rows; row_start [n + 1]: the first of every
    row. x [n, 6]: a right-hand side. The inverses of the factors' diagonal numbers stand in place of these.
    """

    blocks: PacksOut
    x: PacksOut
    column_start: IntsIn
    row: IntsIn
    end: IntsIn
    row_start: IntsIn
    across: IntsIn
    n: IntegerIn
    stride: IntegerIn

    def block(self, k: Index) -> ScalarArray:
        """The block at place k: those below the diagonal come after n."""
        return self.blocks.at(k * self.stride)


def factor_blocks(a: FactorArguments) -> None:
    """Kernel: the factors, in place."""
    place = counters(a.n)  # of the block in every row of the current column
    for k in loop(a.n):
        place[k] = k
        for e in loop(a.column_start[k + 1], start=a.column_start[k]):
            place[a.row[e]] = a.n + e
        for t in loop(a.row_start[k + 1], start=a.row_start[k]):
            here = a.across[t]
            left = a.block(a.n + here).get(0, N * N)
            for e in loop(a.end[here], start=here):
                source, target = a.block(a.n + e).get(0, N * N), a.block(place[a.row[e]])
                for i in range(N):
                    for j in range(N):
                        total = target[i * N + j]
                        for m in range(N):
                            total = total - source[i * N + m] * left[j * N + m]
                        target[i * N + j] = total
        diagonal = _factor_one(a.block(k))
        for e in loop(a.column_start[k + 1], start=a.column_start[k]):
            below = a.block(a.n + e)
            for i in range(N):
                _substitute(diagonal, below.at(i * N))


def _factor_one(block: ScalarArray) -> list[list[Scalar]]:
    """The factors of a block, in place; returns them."""
    L: list[list[Scalar]] = [[0.0] * N for _ in range(N)]
    for i in range(N):
        for j in range(i + 1):
            total = block[i * N + j]
            for m in range(j):
                total = total - L[i][m] * L[j][m]
            L[i][j] = 1.0 / sqrt(total) if i == j else total * L[j][j]
            block[i * N + j] = L[i][j]
    return L


def _substitute(L: list[list[Scalar]], x: ScalarArray) -> None:
    """x [6] ← L⁻¹ x"""
    for i in range(N):
        total = x[i]
        for m in range(i):
            total = total - L[i][m] * x[m]
        x[i] = total * L[i][i]


def solve_blocks(a: FactorArguments) -> None:
    """Kernel: x ← (L Lᵀ)⁻¹ x."""
    for k in loop(a.n):
        numbers, x = a.block(k).get(0, N * N), a.x.at(k * N)
        _substitute([[numbers[i * N + j] for j in range(N)] for i in range(N)], x)
        for e in loop(a.column_start[k + 1], start=a.column_start[k]):
            block, other = a.block(a.n + e).get(0, N * N), a.x.at(a.row[e] * N)
            for i in range(N):
                total = other[i]
                for m in range(N):
                    total = total - block[i * N + m] * x[m]
                other[i] = total
    for k in loop(a.n, reverse=True):
        numbers, x = a.block(k).get(0, N * N), a.x.at(k * N)
        for e in loop(a.column_start[k + 1], start=a.column_start[k]):
            block, other = a.block(a.n + e).get(0, N * N), a.x.at(a.row[e] * N)
            for i in range(N):
                total = x[i]
                for m in range(N):
                    total = total - block[m * N + i] * other[m]
                x[i] = total
        for i in reversed(range(N)):
            total = x[i]
            for m in range(i + 1, N):
                total = total - numbers[m * N + i] * x[m]
            x[i] = total * numbers[i * N + i]


@functools.cache
def factoring() -> Kernel:
    def body(**a: Any) -> None:
        factor_blocks(FactorArguments(**a))

    return make_kernel("factor_blocks", None, kernel_arguments(FactorArguments), body)


@functools.cache
def substituting() -> Kernel:
    def body(**a: Any) -> None:
        solve_blocks(FactorArguments(**a))

    return make_kernel("solve_blocks", None, kernel_arguments(FactorArguments), body)


class BlockPattern:
    """The places of the blocks that the factors have, for pairs of nodes that are coupled.

    order [n]: the nodes in the order in which they are eliminated; position [n]: of every node in it. size: of blocks.
    """

    def __init__(self, n: int, pairs: Array) -> None:
        """pairs [m, 2]: different nodes, 0 to n - 1."""
        self.n, self.pairs = n, pairs
        self.position = _least_fill(n, pairs)
        self.order = np.argsort(self.position)
        low, high = np.sort(self.position[pairs], axis=1).T
        below: list[set[int]] = [set() for _ in range(n)]
        for column, row in zip(low.tolist(), high.tolist(), strict=True):
            below[column].add(row)
        for rows in below:  # eliminating a node couples all those that it is coupled to
            if rows:
                parent = min(rows)
                below[parent] |= rows
                below[parent].discard(parent)
        counts = np.array([len(rows) for rows in below], np.int64)
        self.column_start = np.concatenate([[0], np.cumsum(counts)])
        self.row = np.array([row for rows in below for row in sorted(rows)], np.int64)
        self.end = np.repeat(self.column_start[1:], counts)
        self.across = np.argsort(self.row, kind="stable")
        self.row_start = np.concatenate([[0], np.cumsum(np.bincount(self.row, minlength=n))])
        self.size = n + len(self.row)
        self._codes = np.repeat(np.arange(n), counts) * n + self.row

    def place(self, low: Array, high: Array) -> Array:
        """Where the blocks in columns `low` and rows `high` are (positions in the order, low < high)."""
        return self.n + np.searchsorted(self._codes, low * self.n + high)

    def tables(self) -> dict[str, Any]:
        """The arguments of the kernels that describe the pattern."""
        names = ("column_start", "row", "end", "row_start", "across", "n")
        return {name: getattr(self, name) for name in names}


def _least_fill(n: int, pairs: Array) -> Array:
    """Positions of the nodes in an order of least degree, as SuperLU finds it."""
    if len(pairs) == 0:
        return np.arange(n)
    ends, k = np.concatenate([pairs, pairs[:, ::-1]]), np.arange(n)
    numbers = np.concatenate([np.full(len(ends), -1.0), np.full(n, 2.0 * n)])
    graph = coo_matrix((numbers, (np.concatenate([ends[:, 0], k]), np.concatenate([ends[:, 1], k]))), shape=(n, n))
    return splu(graph.tocsc(), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}).perm_c.astype(np.int64)


class BlockFactors:
    """The factors of a matrix with this pattern; blocks [size, stride]: its lower triangle, which they replace."""

    def __init__(self, solver: BlockSolver, pattern: BlockPattern, blocks: Array) -> None:
        self.solver, self.pattern, self.blocks = solver, pattern, blocks

    def solve(self, x: Array) -> Array:
        """The solution for the right-hand side x [n, 6], in the order of elimination."""
        out = np.ascontiguousarray(x)
        out = out.copy() if out is x else out
        values = self.pattern.tables() | {"blocks": self.blocks, "stride": self.blocks.shape[1]}
        self.solver.substitute(1, x=out, **values)
        return out


class BlockSolver:
    """The kernels, compiled when they are first called."""

    def __init__(self) -> None:
        self._factor, self.substitute = SCALAR.stage(factoring), SCALAR.stage(substituting)

    def factor(self, pattern: BlockPattern, blocks: Array) -> BlockFactors:
        values = pattern.tables() | {"blocks": blocks, "stride": blocks.shape[1], "x": blocks}
        self._factor(1, **values)
        return BlockFactors(self, pattern, blocks)
