"""The factorisation H = Lᵀ D L of a matrix with the sparsity of a tree, leaves first: there is no fill-in.

Entry (i, j) is nonzero only if coordinate j is one of the same joint or of a joint further inward. M is such a matrix;
the Hessian of soft constraints is one as long as no constraint acts between two branches. Kernels that are specialised
to a model know the tree, and the factorisation is straight code.
"""

from __future__ import annotations

from typing import cast

from ...ir import Index, ScalarArray, traced
from ..tree.tree import Tree


class TreeFactors:
    """ancestors [nv]: of every coordinate, those inward of it, falling. The lower triangle of a matrix [n, n] is read
    and overwritten: by L, whose unit diagonal is not stored, and by 1 / D on the diagonal."""

    def __init__(self, tree: Tree) -> None:
        self.ancestors: list[list[int]] = []
        chains: list[list[int]] = [[]]  # by records of links
        for i in range(cast(int, tree.nlink)):
            chain, start = list(chains[cast(int, tree.parent(i))]), cast(int, tree.v_start(i))
            for k in range(cast(int, tree.dofs(i))):
                self.ancestors.append(chain)
                chain = [start + k, *chain]
            chains.append(chain)

    @staticmethod
    def known(tree: Tree) -> bool:
        """Whether the tree is known while tracing."""
        return not traced(tree.nlink)

    def clear(self, H: ScalarArray, n: Index, diagonal: ScalarArray) -> None:
        """H = a diagonal matrix; diagonal [nv]."""
        for i, inward in enumerate(self.ancestors):
            H[i * n + i] = diagonal[i]
            for j in inward:
                H[i * n + j] = 0.0

    def factor(self, H: ScalarArray, n: Index) -> None:
        for i in range(len(self.ancestors) - 1, -1, -1):
            inward = self.ancestors[i]
            inverse = 1.0 / H[i * n + i]
            H[i * n + i] = inverse
            row = {j: H[i * n + j] for j in inward}
            for place, j in enumerate(inward):
                entry = row[j] * inverse
                for k in inward[place:]:
                    H[j * n + k] = H[j * n + k] - entry * row[k]
                H[i * n + j] = entry

    def solve(self, H: ScalarArray, n: Index, x: ScalarArray) -> None:
        """x [nv] ← H⁻¹ x, with the factors."""
        count = len(self.ancestors)
        values = [x[k] for k in range(count)]
        for i in range(count - 1, -1, -1):
            for j in self.ancestors[i]:
                values[j] = values[j] - H[i * n + j] * values[i]
        for i in range(count):
            value = x[i] = values[i] * H[i * n + i]  # written, it is rounded before anything is subtracted
            for j in reversed(self.ancestors[i]):  # rising, as in `TileFactors`
                value = value - H[i * n + j] * values[j]
            values[i] = value
        for k, value in enumerate(values):
            x[k] = value
