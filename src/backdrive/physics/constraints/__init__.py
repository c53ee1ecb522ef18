"""Constraint rows, the Delassus matrix that couples them, and their adjoint."""
