"""The budget of a step of a pile, as `physics.budget` of a dense world.

A problem is always solved once; what comes after that spends the budget: other starts, pivots, and the solves of the
energy guard. Where it is used up, the best impulses so far stay, and the status of the step tells.
"""

from __future__ import annotations

# A step may take this many factorisations of small systems, or as many as come to this many contacts together,
FACTORISATIONS, FACTORED_CONTACTS = 4000, 2_500_000
# or sweeps that solve so many contacts together.
SWEPT_CONTACTS = 200_000_000


class PileBudget:
    """What is spent of the budget of a step, from 0 to 1."""

    def __init__(self) -> None:
        self.spent = 0.0

    @property
    def left(self) -> bool:
        """Whether anything is left."""
        return self.spent < 1.0

    def factor(self, contacts: int) -> None:
        """Note the factorisation of the system of so many contacts."""
        self.spent += 1.0 / FACTORISATIONS + contacts / FACTORED_CONTACTS

    def sweep(self, sweeps: int, contacts: int) -> None:
        """Note sweeps over so many contacts."""
        self.spent += sweeps * contacts / SWEPT_CONTACTS

    def sweeps(self, contacts: int) -> int:
        """How many sweeps over so many contacts are left."""
        return int(max(0.0, 1.0 - self.spent) * SWEPT_CONTACTS / max(1, contacts))
