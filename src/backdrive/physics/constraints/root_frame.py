"""The factors of the mass matrix in the frames of the roots, where a wrench is the same at all joints of a chain."""

from __future__ import annotations

from ...ir import Index, ScalarArray, loop, memory, when
from ..math import spatial as sp
from ..tree.dynamics import Factors
from ..tree.kinematics import Frames
from ..tree.tree import Tree

# The components of a spatial vector that can differ from zero, by the dimension of the world.
COMPONENTS = {2: (2, 3, 4), 3: (0, 1, 2, 3, 4, 5)}


class RootFrameFactors:
    """The factors of A (`dynamics.Factors`) in the axes of every tree's root, about its origin.

    S, U [nv, width]: motion subspace and I S of every coordinate of v; inverse [nv]: 1 / d. width: components of a
    spatial vector (`COMPONENTS`). The motion subspaces of a floating root are unit vectors: `order` [width] tells the
    component of each of its coordinates.
    """

    def __init__(self, tree: Tree, frames: Frames, factors: Factors, dim: int) -> None:
        keep = COMPONENTS[dim]
        self.width = len(keep)
        angular = sum(c < 3 for c in keep)
        self.order = (*range(angular, self.width), *range(angular))
        self.S, self.U = memory(tree.nv * self.width), memory(tree.nv * self.width)
        self.inverse = memory(tree.nv)
        rotations, origins = tree.over_links(9), tree.over_links(3)
        for i in tree.links():
            self._place(tree, frames, rotations, origins, i)
            R, arm, b = rotations.get(i + 1, 9), origins.get(i + 1, 3), tree.v_start(i)
            for k in loop(tree.dofs(i)):
                s, u = frames.S.get(b + k, 6), factors.U.get(b + k, 6)
                w, f = sp.rotate(R, s[:3]), sp.rotate(R, u[3:])
                S = (*w, *sp.cross(arm, w, sp.rotate(R, s[3:])))
                U = (*sp.cross(arm, f, sp.rotate(R, u[:3])), *f)
                self.S.put(b + k, [S[c] for c in keep])
                self.U.put(b + k, [U[c] for c in keep])
                self.inverse[b + k] = factors.inverse[b + k]

    @staticmethod
    def _place(tree: Tree, frames: Frames, rotations: ScalarArray, origins: ScalarArray, i: Index) -> None:
        """Rotation and origin of link i in the frame of its tree's root."""
        for _ in when(tree.root(i) == i + 1):
            rotations.put(i + 1, sp.IDENTITY)
            origins.put(i + 1, sp.ZERO3)
        for _ in when(tree.root(i) != i + 1):
            (R, p), parent = frames.pose(i), tree.parent(i)
            above = rotations.get(parent, 9)
            rotations.put(i + 1, sp.matmul(above, R))
            origins.put(i + 1, sp.rotate(above, p, origins.get(parent, 3)))
