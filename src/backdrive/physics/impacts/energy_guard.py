"""The energy guard: restitution is reduced where an impact would otherwise create energy.

Newton's law of restitution, v⁺ = -e v⁻ at every contact, may create energy when friction acts on an eccentric impact.
Without restitution, energy is never gained.
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir import Index, Scalar, ScalarArray, absolute, any_lane, carry, loop, memory, select, when, while_any
from ..constraints.problem import ContactProblem
from ..geometry.contact_points import ContactPoints
from ..solvers import Solver
from .impact import Impacts

# A gain of this part of the energy that is exchanged in an impact counts as rounding; the kept part of restitution is
# found to the same precision.
ENERGY_TOLERANCE = 1e-12

# At most this many solves, each of which halves the interval of the kept part of restitution.
MOST_SOLVES = 50


class Rebounds(NamedTuple):
    """The contacts that bounce in a contact problem.

    contacts, first: the contacts of the problem, and their first row. bounce [nslot]: the term e v⁻ (m/s) in the speed
    b of a contact that bounces; 0 for others. kept [1]: the part of restitution that is kept; set by the energy guard.
    """

    contacts: ContactPoints
    first: Index
    bounce: ScalarArray
    kept: ScalarArray


def solve_without_gain(impacts: Impacts, problem: ContactProblem, solver: Solver, rebounds: Rebounds) -> Scalar:
    """Solve the problem; where energy is gained in an impact, bisect the part of restitution that is kept, until there
    is no change of energy. Returns the residual."""
    contacts, first, bounce, kept_part = rebounds
    block, n = impacts.tree.constraints.block, problem.count
    speed, kept = (memory(problem.capacity) for _ in range(2))
    error = memory(1)
    error[0] = 0.0
    low, high, going, bisects = (memory(1) for _ in range(4))

    def gain() -> Scalar:
        """The gain of energy Σ λ (c + W λ / 2), c the speeds before the impact, relative to Σ |λ b|."""
        for r in loop(n):
            speed[r] = 0.0
        problem.delassus.apply(problem.impulse, speed, n)
        total = carry(2)
        total[0], total[1] = 0.0, 1e-300
        for r in loop(n):
            total[0] = total[0] + problem.impulse[r] * (problem.b[r] + 0.5 * speed[r])
            total[1] = total[1] + absolute(problem.impulse[r] * problem.b[r])
        for c in loop(contacts.count[0]):
            total[0] = total[0] - problem.impulse[first + c * block] * (kept_part[0] * bounce[c])
        return total[0] / total[1]

    kept_part[0], low[0], high[0], going[0], bisects[0] = 1.0, 0.0, 1.0, 1.0, 0.0
    for _ in while_any(lambda: going[0] > 0.0, MOST_SOLVES):
        for r in loop(n):
            kept[r] = problem.impulse[r]
        now, again = solver.solve(problem), going[0] > 0.0
        error[0] = select(again, now, error[0])
        for r in loop(n):
            problem.impulse[r] = select(again, problem.impulse[r], kept[r])
        active = again & impacts.hitting
        going[0] = 0.0
        for _ in when(any_lane(active)):
            gained, bisecting = gain(), bisects[0] > 0.5
            close = bisecting & (high[0] - low[0] <= ENERGY_TOLERANCE)
            starts = active & ~bisecting & (gained > ENERGY_TOLERANCE)
            impacts.guarded[0] = impacts.guarded[0] + select(starts, 1.0, 0.0)
            bisects[0] = select(starts, 1.0, bisects[0])
            low[0] = select(active & bisecting & (gained <= 0.0), kept_part[0], low[0])
            high[0] = select(active & bisecting & (gained > 0.0), kept_part[0], high[0])
            more = starts | (active & bisecting & ~close)
            narrow = high[0] - low[0] <= ENERGY_TOLERANCE
            part = select(more, select(narrow, low[0], 0.5 * (low[0] + high[0])), kept_part[0])
            for c in loop(contacts.count[0]):
                r = first + c * block
                problem.b[r] = problem.b[r] + (part - kept_part[0]) * bounce[c]
            # The next solve starts from zero: impulses close to the solution would be accepted as the solution.
            for r in loop(n):
                problem.impulse[r] = select(more, 0.0, problem.impulse[r])
            kept_part[0] = part
            going[0] = select(more, 1.0, 0.0)
    return error[0]
