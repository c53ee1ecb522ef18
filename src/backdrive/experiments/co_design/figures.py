"""Speed against evaluations, the learned measures, and the robots before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ... import view
from ..gait.world import GaitWorld
from ..run import Run
from .hardware import MEASURES, design, measures, nominal
from .parts import METHODS, learned_robot, median_training


def draw_curves(run: Run, found: list[dict[str, Any]]) -> None:
    """The best speed so far against evaluations: each seed thin, the median of the seeds thick. Motions with a fall do
    not count. Beside it, the share of motions that ended with a fall."""
    import matplotlib.pyplot as plt

    figure, (speeds, falls) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for results in found:
        color = f"C{list(METHODS).index(results['method'])}"
        curves = [training["curve"] for training in results["trainings"]]
        fell = np.array([curve["fell"] for curve in curves])
        best = np.array([training["curve"]["best"] for training in results["trainings"]])
        count = np.arange(1, best.shape[1] + 1)
        label = f"{METHODS[results['method']]} ({len(best)} seeds)"
        speeds.plot(count, best.T, color=color, lw=0.6, alpha=0.5)
        speeds.plot(count, np.median(best, axis=0), color=color, lw=2, label=label)
        window = max(1, len(count) // 20)
        share = np.convolve(fell.mean(0), np.full(window, 1 / window), "valid")
        falls.plot(count[window - 1 :], 100 * share, color=color, lw=1.5)
    speeds.set(xlabel="evaluations (motions of 8 s)", ylabel="best mean speed without a fall (m/s)")
    falls.set(xlabel="evaluations", ylabel="motions that end with a fall (%)", ylim=(0, 102))
    for axes in (speeds, falls):
        axes.grid(alpha=0.3)
    speeds.legend(fontsize=8)
    run.figure("curves", figure)


def draw_measures(run: Run, found: list[dict[str, Any]]) -> None:
    """Where the learned measures are between their bounds, for all seeds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    rows = np.arange(len(MEASURES))[::-1]
    for shift, method in ((0.12, "co-design"), (-0.12, "cma")):
        color = f"C{list(METHODS).index(method)}"
        for results in found:
            if results["method"] != method:
                continue
            for k, training in enumerate(results["trainings"]):
                shares = [(training["measures"][n] - m.low) / (m.high - m.low) for n, m in MEASURES.items()]
                label = METHODS[method] if k == 0 else None
                axes.plot(shares, rows + shift, "o", ms=4, alpha=0.7, color=color, label=label)
    axes.plot([m.share for m in MEASURES.values()], rows, "k|", ms=16, label="nominal")
    axes.set(xlim=(0, 1), xticks=(0, 0.5, 1), xticklabels=("lower bound", "middle", "upper bound"), yticks=rows)
    axes.set_yticklabels([name.replace("_", " ") for name in MEASURES])
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    run.figure("measures", figure)


def draw_robots(run: Run, found: list[dict[str, Any]]) -> None:
    """The robot before and after, as they stand, at the same scale: that of the median seed."""
    import matplotlib.pyplot as plt

    training = median_training(_co_design(found))
    after = design(torch.tensor(list(training["measures"].values()), dtype=torch.float64))
    figure, columns = plt.subplots(1, 2, figsize=(10, 3.9), layout="constrained")
    for axes, title, d in zip(columns, ("before", "after"), (nominal(), after), strict=True):
        world = GaitWorld(d)
        axes.imshow(view.picture(world.model, world.start()))
        axes.set_title(f"{title} (seed {training['seed']})" if title == "after" else title)
        axes.set_axis_off()
    run.figure("robots", figure)


def film(run: Run, results: dict[str, Any], seconds: float) -> None:
    """Film the best motion of the median seed."""
    training = median_training(results)
    robot = learned_robot(results["method"], training)
    with torch.no_grad():
        d = design(measures(robot.hardware))
        world = GaitWorld(d, seconds=seconds)
        path = world.move(robot.network.targets(world.times()), world.start())
    run.film(results["method"], path, track="trunk", forces=False)


def _co_design(found: list[dict[str, Any]]) -> dict[str, Any]:
    return next(results for results in found if results["method"] == "co-design")
