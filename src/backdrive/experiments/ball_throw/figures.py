"""The figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..run import Run
from .searches import TOLERANCES, Search
from .world import TARGET, ThrowWorld

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PAPER = {"gradient": {"iterations": 88, "seconds": 16.3}, "CMA-ES": {"iterations": 2422, "seconds": 59.9}}


def draw_throws(run: Run, world: ThrowWorld, searches: Sequence[Search]) -> None:
    """Draw, from the side and from above, the throws tried from one start, and the throws found from ten starts."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(12, 5.5), layout="constrained", sharex="col", height_ratios=(1, 1.6))
    one = searches[0]
    _draw_paths(axes[:, 0], world, one.throws, [plt.cm.viridis(x) for x in np.linspace(0.9, 0.0, len(one.throws))])
    axes[0, 0].set_title(f"from one start: {len(one.throws)} iterations, the last one dark")
    ends = [other.throws[-1] for other in searches[:10]]
    _draw_paths(axes[:, 1], world, ends, [f"C{i}" for i in range(len(ends))])
    axes[0, 1].set_title(f"throws found from {len(ends)} starts")
    run.figure("trajectories", figure)


def film_throws(run: Run, world: ThrowWorld, searches: Sequence[Search]) -> None:
    """Film the throw that was found from the first start, and write a page of it for the browser."""
    with torch.no_grad():
        path = world.throw(searches[0].throws[-1][None])
    run.film("throw", path, trail=("ball",), trail_seconds=2.0, forces=False)


def _draw_paths(axes: Sequence[Axes], world: ThrowWorld, throws: Sequence[Tensor], colors: Sequence[Any]) -> None:
    side, above = axes
    with torch.no_grad():
        paths = world.throw(torch.stack(list(throws))).position("ball")
    for path, color in zip(paths.unbind(1), colors, strict=True):
        side.plot(path[:, 0], path[:, 2], color=color, lw=1.2)
        above.plot(path[:, 0], path[:, 1], color=color, lw=1.2)
        above.plot(path[-1, 0], path[-1, 1], "o", color=color, ms=4)
    side.axhline(0.0, color="0.5", lw=0.8)
    side.set_ylabel("height (m)")
    above.plot(TARGET[0], TARGET[1], "k+", ms=14, label="target")
    above.plot(0.0, 0.0, "k.", ms=6)
    above.set(xlabel="x (m)", ylabel="y (m)")
    above.legend(loc="lower right", fontsize=8)


def draw_losses(run: Run, searches: dict[str, list[Search]], best: str) -> None:
    """Draw the least loss so far against evaluations and against seconds, for ten starts."""
    import matplotlib.pyplot as plt

    figure, (counts, seconds) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", sharey=True)
    for name, color in (("gradient", "C0"), (best, "C3")):
        for i, one in enumerate(searches[name][:10]):
            least, label = np.minimum.accumulate(one.loss), name if i == 0 else None
            counts.loglog(np.arange(1, len(least) + 1), least, color=color, lw=1.1, alpha=0.7, label=label)
            seconds.loglog(one.seconds, least, color=color, lw=1.1, alpha=0.7, label=label)
    for axis, what in ((counts, "evaluations"), (seconds, "seconds")):
        for tolerance in TOLERANCES:
            axis.axhline(tolerance**2, color="0.7", lw=0.7, ls=":")
        axis.set(xlabel=what)
    for what, axis in (("iterations", counts), ("seconds", seconds)):
        for name, color in (("gradient", "C0"), ("CMA-ES", "C3")):
            axis.axvline(PAPER[name][what], color=color, lw=0.9, ls="--")
    counts.set(ylabel="least loss so far (m²)", title="dashed: the paper's totals; dotted: 30, 10, 3, 1 cm")
    counts.legend(fontsize=8)
    run.figure("loss", figure)
