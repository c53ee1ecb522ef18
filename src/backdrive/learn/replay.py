"""Transitions that were seen, to learn from again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

FIRST = 1024
"""Number of rows of each seed for which there is room at first."""


class Replay:
    """The last `capacity` rows of numbers of each of `seeds` seeds. Rows are added for all seeds at once.

    Room grows with the number of rows. When it is used up the oldest ones are replaced, but never one that counted when
    the running iteration began: an iteration adds at most `slack` rows, and the room is that much larger. So to return
    to the beginning of an iteration it is enough to know how many rows there were.
    """

    def __init__(self, seeds: int, width: int, capacity: int, slack: int, dtype: torch.dtype = torch.float32) -> None:
        self.capacity, self.room = capacity, capacity + slack
        self.rows = torch.zeros(seeds, min(FIRST, self.room), width, dtype=dtype)
        self.added = 0
        self._first = torch.arange(seeds)[:, None]

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, rows: Tensor) -> None:
        """Add rows [S, k, width]."""
        count, width = rows.shape[1:]
        while self.rows.shape[1] < min(self.added + count, self.room):
            more = min(self.rows.shape[1], self.room - self.rows.shape[1])
            self.rows = torch.cat([self.rows, self.rows.new_zeros(len(rows), more, width)], 1)
        begin = self.added % self.room
        fits = min(count, self.room - begin)
        self.rows[:, begin : begin + fits] = rows[:, :fits]
        self.rows[:, : count - fits] = rows[:, fits:]
        self.added += count

    def places(self, chance: Tensor) -> Tensor:
        """Places of rows that count, [S, k], from uniform random numbers in [0, 1), [S, k]."""
        return ((chance * len(self)).long() + (self.added - len(self))) % self.room

    def at(self, places: Tensor) -> Tensor:
        """The rows at some places [S, k]: [S, k, width]."""
        flat = self.rows.view(-1, self.rows.shape[-1])
        found = flat.index_select(0, (places + self.rows.shape[1] * self._first).flatten())
        return found.view(*places.shape, flat.shape[-1])

    def state_dict(self) -> dict[str, Any]:
        """What is here now. The rows are not copied, since those that count now stay for an iteration."""
        return {"rows": self.rows, "added": self.added}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        rows, full = saved["rows"], min(saved["added"], self.room)
        here = len(self.rows), self.rows.shape[-1]
        if (len(rows), rows.shape[-1]) != here or not full <= rows.shape[1] <= self.room:
            raise ValueError(
                f"its replay is {list(rows.shape)}, which does not fit into {[here[0], self.room, here[1]]}"
            )
        self.rows, self.added = rows, saved["added"]
