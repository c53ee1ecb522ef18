"""Where the controls of a step come from: given rows, or a policy (`policy`); with the adjoint."""

from __future__ import annotations

from typing import Protocol

from ..ir import Index, ScalarArray, TimedArray
from .math.arrays import copy, local
from .tree.dynamics_adjoint import Cotangents
from .tree.tree import Tree


class ControlSource(Protocol):
    """Has the controls of every step, and takes their cotangents."""

    def prefetch(self, t: Index) -> None:
        """Load the rows of step t into the cache ahead of their use."""

    def prefetch_adjoint(self, t: Index) -> None:
        """Load the rows that the adjoint of the step before t uses into the cache."""

    def control(self, t: Index, q: ScalarArray, v: ScalarArray) -> ScalarArray:
        """The controls [nu] of step t, which starts from (q, v)."""
        ...

    def again(self, t: Index) -> ScalarArray:
        """The controls [nu] of step t, after `control` has been called for it."""
        ...

    def vjp(self, t: Index, control_bar: ScalarArray, q: ScalarArray, v: ScalarArray, cotangents: Cotangents) -> None:
        """From the cotangent control_bar [nu] of the controls of step t to those of everything they depend on.

        Those of q, v and the constants are added to `cotangents`.
        """

    def finish(self) -> None:
        """Write the cotangents that are summed up over the steps."""


class GivenControls:
    """Controls that are given: a row for every step."""

    def __init__(self, tree: Tree, controls: TimedArray, controls_bar: TimedArray | None = None) -> None:
        self.tree, self.controls, self.controls_bar = tree, controls, controls_bar

    def prefetch(self, t: Index) -> None:
        self.controls.row(t).prefetch(self.tree.nu)

    def prefetch_adjoint(self, t: Index) -> None:
        assert self.controls_bar is not None
        self.controls.row(t - 1).prefetch(self.tree.nu)
        self.controls_bar.row(t).prefetch(self.tree.nu)

    def control(self, t: Index, q: ScalarArray, v: ScalarArray) -> ScalarArray:
        return self.again(t)

    def again(self, t: Index) -> ScalarArray:
        return local(self.tree.nu, self.controls.row(t))

    def vjp(self, t: Index, control_bar: ScalarArray, q: ScalarArray, v: ScalarArray, cotangents: Cotangents) -> None:
        assert self.controls_bar is not None
        copy(self.tree.nu, control_bar, self.controls_bar.row(t))

    def finish(self) -> None:
        pass
