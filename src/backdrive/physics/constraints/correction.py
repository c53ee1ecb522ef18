"""How positions are corrected in a step: π, of which contact makes p = A⁻¹ Jᵀ π, the motion that is forgotten.

Equations are met, what has penetrated comes out by a part each step; which rows push is found by pivoting.
"""

from __future__ import annotations

from typing import Any

from ...ir import Scalar, carry, clip, loop, maximum, memory, select, to_float, when, while_any
from ...schema.layout import EqualityKind
from ..math.linear import TILE, factor_lu, multiply, solve_lu
from .delassus import INFINITE, NO_MODE, ContactProblem

REACH = 0.05  # m or rad: equations that are violated by more are corrected by so much a step,
DAMPING = 1.0  # and then with this softness, as a part of the inverse mass
ENOUGH = 1e-9  # of the fastest correction: what is slower by less is fast enough
PATIENCE = 3.0  # so often corrections may get worse before they are sought one by one,
TURNS = 4  # and at most so many turns for each row


def is_equation(problem: ContactProblem, r: Any) -> Any:
    """Whether row r is an equation (mask)."""
    return (problem.low[r] <= -INFINITE) & (problem.high[r] >= INFINITE)


def correction_matrix(problem: ContactProblem, pushes: Any) -> None:
    """W of the rows that correct positions (pushes [n]: 1 there, else 0), factored, in B.

    Equations are damped: two that nearly contradict each other, as rods in one line that are too short, would otherwise
    move bodies as far as it takes to find a place that is right for both.
    """
    n, B = problem.count, problem.B
    problem.factored[0] = NO_MODE
    for r in loop(n):
        row, source = B.at(r * n), problem.W.at(r * n)
        counts = pushes[r] > 0.5
        for c in loop(n):
            row[c] = select(counts & (pushes[c] > 0.5), source[c], 0.0)
        row[r] = row[r] + select(counts, problem.extra[r], 1.0)
    constraints = problem.constraints
    for i in loop(constraints.head("nequality")):  # the first rows
        kind, support = constraints.equality(i)
        for each in EqualityKind:
            for _ in when(kind == int(each)):
                scale = constraints.inverse_mass(support, int(each == EqualityKind.ABOUT))
                B[i * n + i] = B[i * n + i] + scale * damping(problem.violation[i])
    factor_lu(B, n)


def reachable(error: Scalar) -> Scalar:
    """The part of a violation that is corrected in one step: contradictory equations must not throw bodies."""
    return clip(error, -REACH, REACH)


def damping(violation: Scalar) -> Scalar:
    """Of an equation, as a part of the inverse mass: none where it holds, as Levenberg's method has it (1944)."""
    return (DAMPING / REACH**2) * violation * violation


def correct(problem: ContactProblem, erp: float, left: Scalar, correction: Any, pushes: Any) -> None:
    """π with J A⁻¹ Jᵀ π = -violation / left for equations; of what has penetrated each comes out by at least a part
    `erp` of it, π >= 0, and by no more where it is pushed: `pushes` (1, else 0).

    Contacts only push: of two at nearly one place, one deeper, equations would turn the body until both were right.
    Guess who pushes; let go who would pull, and let push who comes out too slowly, all at once as long as that leaves
    fewer of them, else one by one, which always ends (block principal pivoting, Júdice and Pires 1994).
    """
    n, most = problem.count, problem.constraints.nimpulse + TILE
    speed, wrong = memory(most), memory(most)
    going, fewest, patience = (memory(1) for _ in range(3))
    going[0], fewest[0], patience[0] = 1.0, INFINITE, PATIENCE
    number, last, least = carry(1), carry(1), carry(1)
    least[0] = 0.0
    for r in loop(n):
        deep = ~is_equation(problem, r) & (problem.violation[r] < 0.0)
        pushes[r] = select(deep | is_equation(problem, r), 1.0, 0.0)
        least[0] = maximum(least[0], select(deep, -ENOUGH * erp / left * problem.violation[r], 0.0))
    for _ in while_any(lambda: going[0] > 0.0, TURNS * n):
        correction_matrix(problem, pushes)
        for r in loop(n):
            rate = select(is_equation(problem, r), 1.0 / left, erp / left)
            correction[r] = select(pushes[r] > 0.5, -rate * problem.violation[r], 0.0)
        solve_lu(problem.B, n, correction)
        for r in loop(n):
            speed[r] = 0.0
        multiply(problem.W, n, correction, speed)
        number[0], last[0] = 0.0, -1.0
        for r in loop(n):
            pushing, pushed = pushes[r] > 0.5, speed[r] + erp / left * problem.violation[r]
            slow = ~pushing & (problem.violation[r] < 0.0) & (pushed < -least[0])  # equations always push
            pulls = pushing & ~is_equation(problem, r) & (problem.diagonal[r] * correction[r] < -least[0])
            wrong[r] = select(slow | pulls, 1.0, 0.0)
            number[0] = number[0] + wrong[r]
            last[0] = select(wrong[r] > 0.5, to_float(r), last[0])
        fewer = number[0] < fewest[0]
        together = fewer | (patience[0] > 0.0)
        patience[0] = select(fewer, PATIENCE, patience[0] - 1.0)
        fewest[0] = select(fewer, number[0], fewest[0])
        for r in loop(n):
            turns = (wrong[r] > 0.5) & (together | (last[0] == to_float(r)))
            pushes[r] = select(turns, 1.0 - pushes[r], pushes[r])
        going[0] = number[0]
