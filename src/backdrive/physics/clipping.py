"""Limits for the cotangents of states on their way back in time.

Where motion is chaotic, the cotangent of the state grows from step to step, and the gradients of a few environments
outweigh those of all others. Scaled down to a largest norm between steps, it keeps its direction.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import Index, Scalar, ScalarArray, TimedArray, absolute, is_finite, loop, maximum, select, sqrt, workspace
from .math.arrays import all_finite
from .state import StateArrays
from .tree.tree import Tree

NORMS = 2  # numbers of a row: the norm of the cotangent before it was limited; 1 if a step's adjoint was not finite
SMALLEST = 1e-30  # of a norm, so that the inverse of it is finite


@dataclass(frozen=True)
class Clipping:
    """norm: the largest of a cotangent (q̄, v̄). every: it is limited at states whose number is a multiple of this. norms
    [T, NORMS]: rows of the caller, which tell what was done."""

    norm: Scalar
    every: Index
    norms: TimedArray

    def limit(self, tree: Tree, t: Index, steps: Index, bar: StateArrays) -> None:
        """Scale the cotangent of the state after step t down to the largest norm; one that is not finite is dropped.

        That of the last state, after `steps` steps, is not scaled: it has not come back over any step.
        """
        arrays = list(zip(bar, StateArrays.sizes(tree), strict=True))
        largest, total = workspace(1), workspace(1)
        largest[0], total[0] = SMALLEST, 0.0
        for x, n in arrays:
            for k in loop(n):
                largest[0] = maximum(largest[0], absolute(x[k]))
        inverse = 1.0 / largest[0]
        for x, n in arrays:
            for k in loop(n):
                part = inverse * x[k]
                total[0] = total[0] + part * part
        norm = largest[0] * sqrt(total[0])
        self.norms.row(t)[0] = norm
        limited = select(norm > self.norm, self.norm / norm, 1.0)
        between = ((t + 1) % self.every == 0) & (t + 1 < steps)
        scale, fine = select(between, limited, 1.0), is_finite(norm)
        for x, n in arrays:
            for k in loop(n):
                x[k] = select(fine, scale * x[k], 0.0)

    def drop(
        self, tree: Tree, t: Index, bar: StateArrays, controls_bar: ScalarArray, wrenches_bar: ScalarArray | None
    ) -> None:
        """After the adjoint of step t: cotangents that are not finite become zero, all of the environment together."""
        arrays = [*zip(bar, StateArrays.sizes(tree), strict=True), (controls_bar, tree.nu)]
        if wrenches_bar is not None:
            arrays.append((wrenches_bar, tree.nlink * 6))
        fine = all_finite(*arrays)
        self.norms.row(t)[1] = select(fine, 0.0, 1.0)
        for x, n in arrays:
            for k in loop(n):
                x[k] = select(fine, x[k], 0.0)
