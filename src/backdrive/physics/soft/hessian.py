"""The Hessian H = diag(d) + Yᵀ C Y of the convex problem, and its factors: by the tree, or in tiles where a constraint
acts between branches, or where the tree is not known while tracing."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import Mask, ScalarArray, counters, loop, memory, when
from ..constraints.constraints import Constraints, Support
from ..math.linear import TILE
from ..tree.tree import Tree
from .tile_factors import TileFactors
from .tree_factors import TreeFactors


class Hessian:
    """The lower triangle of H [n, n], row by row, or its factors; n: nv in whole tiles."""

    def __init__(self, tree: Tree, constraints: Constraints, width: int) -> None:
        """width: coordinates of a floating root."""
        self.nv, self.constraints, self.width = tree.nv, constraints, width
        self.H, self.diagonal = memory((tree.nv + TILE) * (tree.nv + TILE)), memory(tree.nv)
        self.tiles = TileFactors(self.H, tree.nv)
        self.n = self.tiles.n
        self.tree = TreeFactors(tree) if TreeFactors.known(tree) else None
        self._across = counters(1)  # 1 if a constraint acts between two branches
        self._across[0] = 0

    def add_support(self, support: Support) -> None:
        """A constraint will act on a support."""
        if self.tree is None:
            return
        for _ in when(support.branches()):
            self._begin(self.tree)
            self.tiles.mark(self.constraints.ints, support, self.width)

    def add_coordinates(self, coordinates: Sequence[int] | None) -> None:
        """A constraint will act on these coordinates of v, and on those inward of them; None: on all."""
        if self.tree is None:
            return
        if coordinates is None:
            self._begin(self.tree)
            self.tiles.mark_all()
            return
        inward = self.tree.ancestors
        moved = {j for i in coordinates for j in (i, *inward[i])}
        if any(i != j and i not in inward[j] and j not in inward[i] for i in moved for j in moved):
            self._begin(self.tree)
            self.tiles.mark_coordinates(moved)

    def _begin(self, tree: TreeFactors) -> None:
        """A constraint acts between two branches."""
        for _ in when(self._across[0] == 0):
            self.tiles.begin(tree.ancestors)
        self._across[0] = 1

    def close(self, inverse: ScalarArray) -> None:
        """All constraints were added; inverse [nv]: 1 / d."""
        for k in loop(self.nv):
            self.diagonal[k] = 1.0 / inverse[k]
        for _ in when(self._in_tiles()):
            if self.tree is None:
                self.tiles.begin(None)
            self.tiles.close()

    def _in_tiles(self) -> Mask:
        return True if self.tree is None else self._across[0] > 0

    def clear(self) -> None:
        """H = diag(d)"""
        for _ in when(self._in_tiles()):
            self.tiles.clear(self.diagonal)
        if self.tree is not None:
            for _ in when(self._across[0] == 0):
                self.tree.clear(self.H, self.n, self.diagonal)

    def factor(self) -> None:
        for _ in when(self._in_tiles()):
            self.tiles.factor()
        if self.tree is not None:
            for _ in when(self._across[0] == 0):
                self.tree.factor(self.H, self.n)

    def solve(self, x: ScalarArray) -> None:
        """x [n] ← H⁻¹ x, with the factors; x [nv] is given."""
        for _ in when(self._in_tiles()):
            self.tiles.solve(x)
        if self.tree is not None:
            for _ in when(self._across[0] == 0):
                self.tree.solve(self.H, self.n, x)
