"""Which environments of a batch are shown, and where: one, all side by side, or all over each other as ghosts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...model import checks
from ..stage import Staging

Array = np.ndarray

MODES = ("one", "side by side", "ghosts")
GHOST = 0.25
"""The opacity of ghosts."""
SOME = 200
"""Frames that the size of a motion is taken from."""
ROOM = 4.0
"""Environments side by side have room for their motion, but no more than this many times the room of their start."""


@dataclass(frozen=True, eq=False)
class Placing:
    """The shown environments (numbers in the stage), a place [3] (m) for each, and which of them is not a ghost."""

    mode: str
    environments: Array
    shift: Array
    solid: int = 0

    @property
    def copies(self) -> int:
        return len(self.environments)

    @property
    def opacity(self) -> Array:
        """[copies]"""
        if self.mode != "ghosts" or self.copies == 1:
            return np.ones(self.copies, dtype=np.float32)
        return np.where(self.environments == self.solid, 1.0, GHOST).astype(np.float32)


def arrange(stage: Staging, mode: str, environment: int = 0) -> Placing:
    """environment: the one that is shown, or that is not a ghost."""
    if mode not in MODES:
        raise ValueError(checks.unknown("arrangement of environments", mode, MODES))
    if mode == "one" or stage.batch == 1:
        return Placing("one", np.array([environment]), np.zeros((1, 3)), environment)
    chosen = np.arange(stage.batch)
    if mode == "ghosts":
        return Placing(mode, chosen, np.zeros((stage.batch, 3)), environment)
    return Placing(mode, chosen, _grid(stage), environment)


def some(stage: Staging) -> slice:
    """Frames enough to see how far the motion goes."""
    return slice(None, None, max(1, len(stage) // SOME))


def _grid(stage: Staging) -> Array:
    """Places on a square grid, along x and the other horizontal axis; of planar worlds, along x and y."""
    low, high = stage.bounds_of(some(stage))
    start = (high[0] - low[0]).max(0)
    room = np.minimum((high.max(0) - low.min(0)).max(0), ROOM * start) * 1.2
    columns = math.ceil(math.sqrt(stage.batch))
    k = np.arange(stage.batch)
    shift = np.zeros((stage.batch, 3))
    shift[:, 0] = (k % columns) * room[0]
    shift[:, 1] = (k // columns) * room[1]
    return shift


def parse(environments: str | int | Sequence[int] | None, stage: Staging) -> tuple[str, int]:
    """The mode and environment that the argument of `show` means; None: side by side."""
    if isinstance(environments, str):
        if environments not in MODES:
            raise ValueError(checks.unknown("arrangement of environments", environments, MODES))
        return environments, 0
    return ("one" if stage.batch == 1 else "side by side"), 0
