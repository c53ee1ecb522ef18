"""The protocol of a solver of contact problems, and the check of the settings that solvers have in common.

A solver is a frozen dataclass in a file of its own, registered in `solvers.SOLVERS`. Its repr is part of the key under
which compiled kernels are cached: every setting that changes what `solve` traces must be a field.
"""

from __future__ import annotations

import math
from dataclasses import Field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ...ir import Scalar
from ...model import checks

if TYPE_CHECKING:
    from ..constraints.problem import ContactProblem


class Solver(Protocol):
    """Solves contact problems, and has the settings of how constraints are softened and positions are corrected."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]  # a solver is a dataclass

    @property
    def tolerance(self) -> float:
        """The residual at which a problem counts as solved: a speed in m/s, relative to 1 + the largest in the step."""

    @property
    def erp(self) -> float:
        """The part of a penetration that one step corrects, 0 to 1."""

    @property
    def cfm(self) -> float:
        """The compliance of all constraints, (m/s) per N s."""

    def solve(self, problem: ContactProblem) -> Scalar:
        """Replace `problem.impulse`, which is zero before, by the solution; return the residual
        (`complementarity.residual`). It may exceed the tolerance: the status of the step then says so.

        A problem with friction may have several solutions. The one that is found must follow from the problem alone, in
        every lane from its own numbers: the adjoint solves the problem again, and must find the same one.
        """


def check_settings(solver: Solver, iterations: str) -> None:
    """Raise a ValueError for settings out of range; iterations: the name of the field that limits the iterations."""
    name = type(solver).__name__
    object.__setattr__(solver, iterations, checks.integer(getattr(solver, iterations), f"{name}: {iterations}"))
    for field, fits, rule in (
        ("tolerance", lambda x: 0 < x < math.inf, "> 0"),
        ("erp", lambda x: 0 <= x <= 1, "between 0 and 1"),
        ("cfm", lambda x: 0 <= x < math.inf, ">= 0"),
    ):
        x = checks.in_range(getattr(solver, field), f"{name}: {field}", f"a number {rule}", fits)
        object.__setattr__(solver, field, x)
