"""The budget of a step: how much work it may take, so that no state, however hopeless, keeps a call from coming back.

Loops that search or iterate are nested in a step: substeps between impacts, looks at gaps, solves, pivots. Each has a
bound of its own, and the product of all bounds is more than anybody waits for. So a step also has one budget for all
of them. It suffices many times for what a step usually takes. Where it is used up, solvers leave the impulses as they
are, and no more impacts are sought; the status of the step tells.
"""

from __future__ import annotations

from ..ir import Index, Mask, Scalar, counters, lane_count, maximum, memory, select, take_apart, to_float, traced

# A step may take as many factorisations of a matrix of n rows,
FACTORISATIONS, MORE_PER_ROW = 4000, 20
# but no more than come to this many multiplications n³.
MULTIPLICATIONS = 1e9

# Environments that share a pack factor matrices with the rows of all of them. They part if, in a step, that takes this
# many multiplications more than they would take one by one.
TOGETHER = 1e8

# A step may look at all gaps this often,
LOOKS = 3200
# but no more often than comes to this many looks at one pair.
LOOKS_AT_PAIRS = 100_000


class WorkBudget:
    """What is spent of the budget of a step, in every lane: from 0 to 1. It depends on nothing but the lane itself."""

    def __init__(self) -> None:
        self.spent, self.alone, self.together = memory(1), memory(1), counters(1)
        self.begin()

    def begin(self) -> None:
        """Begin a step."""
        self.spent[0], self.alone[0], self.together[0] = 0.0, 0.0, 0

    def share(self, own: Scalar, rows: Index, where: Mask) -> None:
        """Note the factorisation of a matrix with the `rows` of all lanes; own: the rows of the lane itself, which
        wants it in the lanes `where`. The lanes part if they are slower together than one by one."""
        self.alone[0] = self.alone[0] + select(where, own * own * own, 0.0)
        self.together[0] = self.together[0] + rows * rows * rows
        if traced(rows):
            take_apart(to_float(self.together[0]) > lane_count() * self.alone[0] + TOGETHER)

    def spend(self, part: Scalar, where: Mask) -> None:
        self.spent[0] = self.spent[0] + select(where, part, 0.0)

    def use_up(self, where: Mask) -> None:
        """Nothing is left, where less is left than was wanted."""
        self.spent[0] = select(where, 2.0, self.spent[0])

    def allows(self, part: Scalar = 0.0) -> Mask:
        """Whether so much is left."""
        return self.spent[0] + part <= 1.0


class Factorisations:
    """The factorisations of the matrix of a contact problem, as far as the budget of the step allows them.

    Only lanes that want a solution spend anything: what others in their company do is no concern of theirs.
    """

    def __init__(self, budget: WorkBudget | None = None) -> None:
        """budget: None: all of a step's."""
        self.budget = budget or WorkBudget()
        self.rows, self.part, self._wanted, self._size = memory(1), memory(1), memory(1), counters(1)
        self._wanted[0] = 1.0

    def of(self, rows: Scalar, size: Index) -> None:
        """Set the number of rows of the matrix that count, which differs from lane to lane, and of all its rows."""
        self.rows[0], self.part[0], self._size[0] = rows, factoring(rows), size

    def want(self, where: Mask) -> None:
        """Set the lanes in which a solution is wanted from now on."""
        self._wanted[0] = select(where, 1.0, 0.0)

    @property
    def wanted(self) -> Mask:
        """Where a solution is wanted."""
        return self._wanted[0] > 0.5

    def possible(self) -> Mask:
        """Whether the matrix is small enough to be factored at all."""
        return self.part[0] <= 1.0

    def first_allowed(self) -> Mask:
        """Whether the first one of a solution is allowed: as long as anything is left, however large the matrix is."""
        return self.wanted & self.budget.allows()

    def allowed(self) -> Mask:
        """Whether another one is allowed."""
        return self.wanted & self.budget.allows(self.part[0])

    def spend(self, where: Mask) -> None:
        """Note a factorisation, in the lanes that want it."""
        self.budget.spend(self.part[0], where)
        self.budget.share(self.rows[0], self._size[0], where)

    def use_up(self, where: Mask) -> None:
        """Nothing is left for other problems of the step, where this one was not solved."""
        self.budget.use_up(where & self.wanted)


def factoring(rows: Scalar) -> Scalar:
    """The part of a budget that it takes to factor a matrix of so many rows."""
    return maximum(rows * rows * rows / MULTIPLICATIONS, 1.0 / (FACTORISATIONS + MORE_PER_ROW * rows))


def looking(pairs: Scalar) -> Scalar:
    """The part of a budget that it takes to look at the gaps of so many pairs."""
    return maximum(pairs / LOOKS_AT_PAIRS, 1.0 / LOOKS)
