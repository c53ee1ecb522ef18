"""From impulses that are nearly right to a solution of a `SparseDelassus` problem, as `physics.solvers.pivoting`.

A parametric term t d is added to b, such that the impulses are right at t = 1; while t falls to 0 they move along
straight lines, which end where a row changes its code in the active set. Each of these pivots costs a factorisation.
"""

from __future__ import annotations

import numpy as np

from ...physics.solvers.active_set import CLAMPED, FREE, LOWER, NO_PIVOT, PILE_START_MARGIN, UPPER
from ...physics.solvers.pivot_rules import bound_slacks, parametric_term, pivot_distance, sliding_code, spread
from .active_set import ActiveSetSystem, ContactSolution
from .sparse_delassus import SparseDelassus

Array = np.ndarray
PIVOTS = 400  # at most


def solve_by_pivoting(problem: SparseDelassus, near: Array) -> ContactSolution | None:
    """The solution at t = 0; None if the path does not lead there within the budget of the step."""
    codes, d = start(problem, near)
    t, last, side, none = 1.0, None, FREE, np.zeros_like(near)  # last: the row that pivoted; side: its code before
    counts = np.repeat(problem.mu > 0.0, problem.rows, axis=1)
    counts[:, 0] = True
    for _ in range(PIVOTS):
        if not problem.budget.left:
            return None
        try:
            system = ActiveSetSystem(problem, codes)
        except RuntimeError:
            return None
        p, r = system.solve(problem.b, near), system.solve(-d, none)  # λ = p - t r
        slope = d - problem.product(r) - problem.softness * r
        slack = slacks(problem, codes, p, problem.row_speeds(p), never=1.0)
        rate = slacks(problem, codes, -r, slope, never=0.0)
        rate = np.where(counts[:, :, None], rate, 0.0)
        direction = 1.0  # -dt: the row that pivoted last moves away from its pivot
        if last is not None:
            which = int(codes[last] == FREE and side > FREE)
            direction = 1.0 if rate[last][which] < 0.0 else -1.0
        closing = direction * rate > 0.0
        if last is not None:
            closing[last] &= (codes[last] == FREE) & (np.array([LOWER, UPPER]) != side)
        far = np.where(closing, pivot_distance(slack, rate, t, direction, closing), np.inf)
        nearest = np.unravel_index(np.argmin(far), far.shape)
        if not np.isfinite(p).all() or not np.isfinite(r).all():
            return None
        if direction > 0.0 and t <= far[nearest]:
            return system.solution(p)
        if far[nearest] > NO_PIVOT:
            return None
        t -= direction * far[nearest]
        contact, row, bound = (int(k) for k in nearest)
        last, side = (contact, row), float(codes[contact, row])
        codes = codes.copy()
        if side == FREE:
            codes[last] = (LOWER, UPPER)[bound]
        else:  # friction of a contact that does not press changes from one bound to the other
            idle = row > 0 and codes[contact, 0] < FREE
            codes[last] = -side if idle else FREE
    return None


def start(problem: SparseDelassus, near: Array) -> tuple[Array, Array]:
    """The active set of the impulses, and d for which they are the solution at t = 1."""
    normal = np.maximum(near[:, :1], 0.0)
    most = problem.mu * normal
    x = np.concatenate([normal, np.clip(near[:, 1:], -most, most)], axis=1)
    speeds = problem.row_speeds(x)
    at_lower, at_upper = x[:, 1:] <= (CLAMPED - 1.0) * most, x[:, 1:] >= (1.0 - CLAMPED) * most
    clamped = np.where(at_lower, LOWER, np.where(at_upper, UPPER, FREE))
    friction = np.where(normal <= 0.0, sliding_code(speeds[:, 1:]), clamped)
    codes = np.concatenate([np.where(normal <= 0.0, LOWER, FREE), friction], axis=1)
    margin = PILE_START_MARGIN * problem.fastest * (0.5 + spread(np.arange(codes.size).reshape(codes.shape)))
    d = parametric_term(codes, speeds, margin)
    d[:, 1:] = np.where(problem.mu > 0.0, d[:, 1:], 0.0)
    return codes, d


def slacks(problem: SparseDelassus, codes: Array, impulses: Array, speeds: Array, never: float) -> Array:
    """How far rows are from a pivot, [contact, row, 2]; or its rate, from the rates of impulses and speeds.

    A free row: the distances of its impulse from its lower and upper bound. A row at a bound: the speed at which it
    presses against it, and a second number that never closes (`never`).
    """
    most = problem.mu * impulses[:, :1]
    below, above = bound_slacks(impulses[:, 1:], 0.0, 0.0, most)
    below = np.concatenate([impulses[:, :1], below], axis=1)
    above = np.concatenate([np.full_like(most, never), above], axis=1)
    free = codes == FREE
    return np.stack([np.where(free, below, -codes * speeds), np.where(free, above, never)], axis=2)
