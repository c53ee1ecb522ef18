"""The results of a rollout, field by field of the state."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class RolloutResult(NamedTuple):
    """States along a rollout, of S segments and T steps; without B for one world.

    path: for every field of the state [S + 1, B, n], the start included. last: [B, n] after the last step.
    status: [T, B, nstatus], as kernels write it.
    """

    path: tuple[Tensor, ...]
    last: tuple[Tensor, ...]
    status: Tensor
