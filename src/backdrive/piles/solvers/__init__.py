"""The solvers of the contact problems of piles, by the class of the solver that the user chose.

A further one is a file with a class that has the methods of `base.PileSolver`, and an entry here.

base                                     the problem of a step, and the protocol of a solver
sweeps                                   ProjectedGaussSeidel; its kernels are in sweep_kernels, sweep_adjoint and
                                         position_sweeps, with their common parts in sweep_parts
exact                                    InteriorPoint, on the block-sparse form of the problem:
sparse_delassus, active_set              the Delassus matrix; solutions for a given active set, and their derivative
interior_point, pivoting                 methods that find the active set
"""

from __future__ import annotations

from typing import Any

from ...physics.solvers.gauss_seidel import ProjectedGaussSeidel
from ...physics.solvers.interior_point import InteriorPoint
from .base import PileForm, PileSolver
from .exact import ExactSolver
from .sweeps import SweepSolver

PILE_SOLVERS: dict[type, type[PileSolver]] = {ProjectedGaussSeidel: SweepSolver, InteriorPoint: ExactSolver}


def pile_solver(form: PileForm, settings: Any) -> PileSolver:
    """The solver of piles for the solver that the user chose; TypeError if there is none."""
    found = PILE_SOLVERS.get(type(settings))
    if found is None:
        names = " or ".join(f"{each.__name__}(...)" for each in PILE_SOLVERS)
        raise TypeError(f"the solver of a big world must be {names}, got {settings!r}")
    return found(form, settings)
