"""The film, and the paper's figure 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...identify import Fit
from ..run import Run
from .world import BALL, CHAIN, DT, ChainWorld

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def film(run: Run, world: ChainWorld) -> None:
    title = f"a ball of {BALL:g} kg hits a chain of {CHAIN:g} kg"
    run.film("chain", world.move(world.truth()), trail=("ball", world.links[-1]), title=title)


def figure_one(
    run: Run,
    worlds: dict[int, ChainWorld],
    guesses: dict[int, dict[str, Fit]],
    times: dict[str, dict[str, list[float]]],
) -> None:
    """Draw the paper's figure 1: frames of the motion; mass and loss by update; run time by number of masses."""
    import matplotlib.pyplot as plt

    from ...view import draw

    figure = plt.figure(figsize=(12, 7.5), layout="constrained")
    panels: Any = figure.subfigures(2, 1, height_ratios=(1, 1.15))
    above, below = panels
    world = worlds[max(n for n in worlds if n <= 10)]
    path = world.move(world.truth())
    for axis, moment in zip(above.subplots(1, 5), (0.0, 1.5, 2.5, 4.0, 6.0), strict=True):
        draw(world.model, path[round(moment / DT)], axis, limits=(-3.2, 3.2, -5.8, 0.4))
        axis.set_title(f"{moment:g} s", fontsize=10)
    mass, loss, seconds = below.subplots(1, 3)
    for color, (links, two) in enumerate(guesses.items()):
        for name, style in (("descent", "--"), ("fit", "-")):
            history = two[name].history
            values = history.values[:, 0, 0]
            mean_square = worlds[links].mean_square(values.clamp_min(1e-3))
            label = f"{links} links" if name == "fit" else None
            mass.plot(history.update, values, style, color=f"C{color}", label=label, lw=1.4)
            loss.semilogy(history.update, mean_square.clamp_min(1e-20), style, color=f"C{color}", lw=1.4)
    mass.axhline(CHAIN, color="k", lw=0.8)
    mass.set(xlabel="update", ylabel="mass of the chain (kg)", title="from 1 kg: fit (—), the paper's descent (- -)")
    mass.legend(fontsize=8)
    loss.set(xlabel="update", ylabel="mean square error over 10 s (cm²)", title="loss")
    draw_times(seconds, run.results["run_time"]["counts"], times)
    run.figure("figure_1", figure)


def draw_times(axis: Axes, counts: Sequence[int], times: dict[str, dict[str, list[float]]]) -> None:
    colors = {"analytic": "C0", "differences": "C3", "differences, batched": "C1"}
    most = max(counts)
    for name, style, series in (("masses", "-o", f"of a chain of {most}"), ("links", ":s", "of a chain of as many")):
        for way, color in colors.items():
            label = f"{way}, {series}" if name == "masses" else None
            axis.loglog(counts, times[name][way], style, color=color, ms=4, lw=1.4, label=label)
    axis.set(xlabel="learned masses", ylabel="30 updates (s)", title=f"run time ({most} links —, as many links ···)")
    axis.legend(fontsize=7)
