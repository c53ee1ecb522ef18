"""The active set of a contact problem: codes of the rows, and the tolerances of everything that decides about it.

A row is FREE (its speed is zero: a contact presses or sticks), at its LOWER bound (separating; sliding backwards) or at
its UPPER bound (sliding forwards). The codes are floats, because every lane has an active set of its own.

    LOWER, FREE, UPPER, NO_ACTIVE_SET      codes of a row
    INFINITE                               a bound that no impulse reaches
    CLAMPED                                distance from a bound at which an impulse counts as clamped
    ROUNDED                                distance from a bound that rounding leaves
    START_MARGIN, PILE_START_MARGIN        how safely pivoting starts at a bound
    NO_PIVOT                               distance without a pivot at which pivoting gives up

This module imports nothing from the package: rows, solvers and piles all read it.
"""

from __future__ import annotations

LOWER, FREE, UPPER = -1.0, 0.0, 1.0

# The code of a row whose factored matrix belongs to no active set (see `ContactProblem.factored`).
NO_ACTIVE_SET = 2.0

# A bound of this magnitude (N s or N m s) means that there is no bound; every real impulse is far below it.
INFINITE = 1e30

# An impulse within this distance of its bound, relative to the bound, counts as clamped there.
CLAMPED = 1e-6

# Linear solves put an impulse at its bound up to this part of it.
ROUNDED = 1e-13

# Pivoting starts with clamped rows pressed against their bounds by at least this fraction of the largest speed. The
# margin differs from row to row, so that no two rows reach a pivot at the same time.
START_MARGIN = 1e-3

# The same for a block-sparse problem: its start is closer to the solution, and a smaller margin needs fewer pivots.
PILE_START_MARGIN = 1e-6

# Pivoting follows a path in a parameter t from 1 to 0. If t moves by more than this without a pivot, the path leads to
# no solution.
NO_PIVOT = 1e12
