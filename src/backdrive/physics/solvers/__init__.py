"""Solvers of contact problems, one file each. A new one implements `Solver` (`base`) and is listed in `SOLVERS`."""

from .base import Solver
from .gauss_seidel import ProjectedGaussSeidel
from .interior_point import InteriorPoint

SOLVERS: tuple[type[Solver], ...] = (InteriorPoint, ProjectedGaussSeidel)

__all__ = ["SOLVERS", "InteriorPoint", "ProjectedGaussSeidel", "Solver", "check"]


def check(solver: object) -> None:
    """Raise a TypeError for anything but an instance of a registered solver."""
    if not isinstance(solver, SOLVERS):
        names = " or ".join(f"{each.__name__}(...)" for each in SOLVERS)
        raise TypeError(f"solver must be {names}, got {solver!r}")
