"""The figures: best relative reward against the number of links, and curves over samples and simulated transitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..run import Run

NAMES = {
    "sac-policy": "SAC + policy enhancement", "sac": "SAC", "ppo": "PPO", "sql": "SQL", "mbpo": "MBPO", "shac": "SHAC",
    "bptt": "BPTT",
}  # fmt: skip
LEAST = -0.5
"""Relative rewards below this are not shown: far below 0 they only say that a policy moves away from its goal."""


def draw_links(run: Run, results: Sequence[dict[str, Any]]) -> None:
    """The mean over the seeds of the best relative reward, with the range of the seeds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for color, (method, name) in enumerate(NAMES.items()):
        chosen = sorted((x for x in results if x["method"] == method), key=lambda x: x["links"])
        if not chosen:
            continue
        links = np.array([x["links"] for x in chosen])
        best = [np.array(x["best"]) / x["most"] for x in chosen]
        axes.plot(links, [x.mean() for x in best], "o-", color=f"C{color}", label=name)
        axes.vlines(
            links + 0.02 * color, [x.min() for x in best], [x.max() for x in best], color=f"C{color}", alpha=0.5
        )
    axes.set(xlabel="links", ylabel="best relative reward", ylim=(LEAST, 1.05))
    axes.set_xticks(range(1, 8))
    axes.grid(alpha=0.3)
    if results:
        axes.legend(fontsize=8)
    run.figure("policy_enhancement", figure)


def draw_curves(run: Run, results: Sequence[dict[str, Any]]) -> None:
    """The relative reward on the way, the mean over seeds: against samples, and against simulated transitions."""
    import matplotlib.pyplot as plt

    links = sorted({x["links"] for x in results}) or [1]
    figure, grid = plt.subplots(
        2, len(links), figsize=(2.2 + 2.6 * len(links), 5.4), layout="constrained", squeeze=False
    )
    for column, n in enumerate(links):
        for axes, x, label in zip(
            grid[:, column], ("samples", "simulated"), ("samples", "simulated transitions"), strict=True
        ):
            for color, (method, name) in enumerate(NAMES.items()):
                for result in (r for r in results if (r["method"], r["links"]) == (method, n)):
                    length = min(len(curve["scores"]) for curve in result["curves"])
                    scores = np.mean([curve["scores"][:length] for curve in result["curves"]], 0) / result["most"]
                    axes.plot(result["curves"][0][x][:length], scores, color=f"C{color}", lw=1, label=name)
            axes.set(xlabel=label, ylim=(LEAST, 1.05), xscale="log" if x == "simulated" else "linear")
            axes.grid(alpha=0.3)
        grid[0, column].set_title(f"{n} link" + ("s" if n > 1 else ""))
    grid[0, 0].set_ylabel("relative reward")
    grid[1, 0].set_ylabel("relative reward")
    if results:
        grid[0, -1].legend(fontsize=7)
    run.figure("policy_enhancement_curves", figure)
