"""The course of a training: numbers of every iteration, as a table and as a figure."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..model import checks

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Curve:
    """rows: for every iteration {"steps": ..., "return": ..., ...}; a number may be missing in some of them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def add(self, **numbers: float) -> None:
        self.rows.append({name: float(x) for name, x in numbers.items()})

    def last(self) -> dict[str, float]:
        """The row of the last iteration; empty before the first."""
        return self.rows[-1] if self.rows else {}

    def __len__(self) -> int:
        return len(self.rows)

    def names(self) -> list[str]:
        """The names of all numbers."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def __getitem__(self, name: str) -> np.ndarray:
        """One number of all iterations, [iterations]; NaN where it is missing."""
        if name not in self.names():
            raise KeyError(checks.unknown("number of a curve", name, self.names()))
        return np.array([row.get(name, np.nan) for row in self.rows])

    def save(self, file: str | os.PathLike[str]) -> Path:
        """Write the rows as JSON."""
        target = Path(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(self.rows) + "\n")
        return target

    def plot(self, axes: Axes | None = None, *, y: str = "return", x: str = "steps", label: str | None = None) -> Axes:
        """Draw one number over another, on given axes or new ones."""
        if axes is None:
            import matplotlib.pyplot as plt

            axes = plt.figure(figsize=(6, 3.5), layout="constrained").add_subplot()
            axes.grid(alpha=0.3)
        across, up = self[x], self[y]
        known = np.isfinite(up)
        axes.plot(across[known], up[known], label=label)
        axes.set_xlabel({"steps": "steps of all environments", "seconds": "seconds"}.get(x, x.replace("_", " ")))
        axes.set_ylabel(y.replace("_", " "))
        return axes

    def __repr__(self) -> str:
        row = ", ".join(f"{name} {value:,.4g}" for name, value in self.last().items())
        return f"Curve({len(self)} iterations; last: {row})"
