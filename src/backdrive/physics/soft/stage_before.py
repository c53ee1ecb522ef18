"""What a stage of a Runge-Kutta step passes to the next, whose constraints are nearly the same."""

from __future__ import annotations

from ...ir import Index, Scalar, ScalarArray, loop, memory, rolled, select, to_float, when
from ..tree.tree import Tree
from .problem import SoftProblem, most_places
from .settings import SoftSettings


class StageBefore:
    """The solution of the stage before: change [nv], w - w₀ (`problem`); and the residuals of its rows, by places.

    With a residual goes the number of the last stage in which its row counted, from 1 on.
    """

    def __init__(self, tree: Tree, settings: SoftSettings) -> None:
        places = most_places(tree.constraints, settings) + 1
        self.change, self._x, self._stage = memory(tree.nv), memory(places), memory(places)
        self._number: Index = 0
        for k in rolled(places):
            self._stage[k] = 0.0

    def at(self, s: Index) -> StageBefore:
        """For stage s, the first of which is 0."""
        self._number = s
        return self

    @property
    def there(self) -> Scalar:
        """1 if there is one, otherwise 0."""
        return select(to_float(self._number) > 0.5, 1.0, 0.0)

    def start(self, problem: SoftProblem, w: ScalarArray) -> None:
        """From w₀ to w = w₀ + (w - w₀) of the stage before, [nv], where any constraint counts."""
        counts = problem.counts()
        for _ in when(self._number > 0):
            for k in loop(problem.nv):
                w[k] = w[k] + select(counts, self.change[k], 0.0)

    def residuals(self, problem: SoftProblem, x: ScalarArray, target: ScalarArray) -> None:
        """target [n]: the residuals of the stage before; those given, x [n], of rows that did not count in it."""
        for r in loop(problem.count):
            place = problem.place[r]
            target[r] = select(self._stage[place] == to_float(self._number), self._x[place], x[r])

    def keep(self, problem: SoftProblem, w: ScalarArray, free: ScalarArray, x: ScalarArray) -> None:
        """For the next stage: w and w₀ [nv], residuals x [n]."""
        for k in loop(problem.nv):
            self.change[k] = w[k] - free[k]
        for r in loop(problem.count):
            place = problem.place[r]
            self._x[place] = x[r]
            self._stage[place] = select(problem.on[r] > 0.0, to_float(self._number + 1), 0.0)
