"""How thorough a run of the experiment is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChainMassSettings:
    """How thorough a run is."""

    lengths: tuple[int, ...]
    """Numbers of links of the chains."""
    starts: int
    """Number of random starts."""
    noisy: int
    """Number of noisy data sets for each length."""
    links: int
    """Number of links of the chain whose masses are learned individually."""
    counts: tuple[int, ...]
    """Numbers of learned masses for which the run time is measured."""
    updates: int
    """Number of updates for which the run time is measured."""


FULL = ChainMassSettings((2, 5, 10, 20), 20, 20, 10, (1, 2, 5, 10, 20, 40), 30)
QUICK = ChainMassSettings((2, 5, 10), 8, 3, 5, (1, 10, 40), 2)
