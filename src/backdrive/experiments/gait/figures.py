"""Speed against evaluations, pictures of a stride, and a film."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import view
from ...trajectory import Trajectory
from ..run import Run
from .parts import METHODS

PICTURES, STRIDE = 8, 1 / 3  # Pictures of a gait, and the time that they span, s.


def draw_curves(run: Run, found: list[dict[str, Any]]) -> None:
    """The best speed up to each evaluation; trots' search and networks' learning."""
    import matplotlib.pyplot as plt

    kinds = sorted({results["physics"] for results in found})
    figure, rows = plt.subplots(
        1, len(kinds), figsize=(5.5 * len(kinds), 4), layout="constrained", squeeze=False, sharey=True
    )
    for axes, physics in zip(rows[0], kinds, strict=True):
        shown = set()
        for results in found:
            if results["physics"] != physics:
                continue
            method = results["method"]
            label = None if method in shown else METHODS[method]
            shown.add(method)
            axes.plot(np.maximum(results["curve"], 0.0), color=f"C{list(METHODS).index(method)}", lw=1.0, label=label)
        axes.set(xlabel="evaluations (motions of 8 s)", ylabel="best speed without a fall (m/s)", title=physics)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    run.figure("curves", figure)


def draw_motion(run: Run, name: str, path: Trajectory) -> None:
    """Pictures within a third of a second, after half of the motion."""
    import matplotlib.pyplot as plt

    steps = len(path.time) - 1
    dt = float(path.time[1] - path.time[0])
    first, span = steps // 2, round(STRIDE / dt)
    figure, rows = plt.subplots(2, PICTURES // 2, figsize=(10, 4), layout="constrained")
    for k, axes in enumerate(rows.flat):
        at = first + span * k // PICTURES
        axes.imshow(view.picture(path.model, path[at], size=(400, 300)))
        axes.set_title(f"{float(path.time[at]):.2f} s", fontsize=8)
        axes.axis("off")
    run.figure(f"pictures-{name}", figure)
