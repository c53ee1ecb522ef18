"""Solvers of the complementarity problem of a step."""

from .solve import Solver

__all__ = ["Solver"]
