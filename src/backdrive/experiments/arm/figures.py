"""Learning curves, errors over the domain, and a film."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...policy import MLP
from ..run import Run
from .controller import encoded, inputs
from .parts import METHODS, PAPER_ERROR
from .world import REACH, ReachWorld, paper_arm

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER_EVALUATIONS = 656_128
FILMED = 4  # Targets of the film, one after another.


def draw_curves(run: Run, found: list[dict[str, Any]]) -> None:
    """The mean error against evaluations and against processor time: each seed thin, the mean of the seeds thick."""
    import matplotlib.pyplot as plt

    figure, (counts, minutes) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", sharey=True)
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for results in found:
        groups.setdefault((results["robot"], results["method"], results["updates"]), []).append(results)
    for k, ((robot, method, _), group) in enumerate(groups.items()):
        curves = [results["curve"] for results in group]
        for axes, x, scale in ((counts, "evaluations", 1.0), (minutes, "cpu_seconds", 60.0)):
            times = np.array([curve[x] for curve in curves]) / scale
            means = 100 * np.array([curve["mean"] for curve in curves])
            axes.plot(times.T, means.T, color=f"C{k}", lw=0.6, alpha=0.5)
            seeds = f"{len(curves)} seed" + "s" * (len(curves) > 1)
            label = ("" if robot == "arm" else f"{robot}, ") + f"{METHODS[method]} ({seeds})"
            axes.plot(times.mean(0), means.mean(0), color=f"C{k}", lw=1.8, label=label)
    counts.plot(PAPER_EVALUATIONS, 100 * PAPER_ERROR, "k*", ms=11, label="the paper's network")
    for axes in (counts, minutes):
        axes.axhline(2.0, color="0.6", lw=0.8, ls=":")
        axes.grid(alpha=0.3)
    counts.set(xlabel="evaluations (motions)", ylabel="mean distance of the tip from its target (cm)", yscale="log")
    minutes.set(xlabel="minutes of processor time")
    counts.legend(fontsize=7)
    run.figure("curves", figure)


def draw_domain(run: Run, results: dict[str, Any]) -> None:
    """The error at every test target: over distance from the vertical axis and height, from above, and its share."""
    import matplotlib.pyplot as plt

    points, errors = np.array(results["targets_mm"]) / 1e3, np.array(results["errors_mm"]) / 10
    figure, (side, above, share) = plt.subplots(1, 3, figsize=(10, 3.3), layout="constrained")
    _scatter(side, np.hypot(points[:, 0], points[:, 1]), points[:, 2], errors)
    side.set(xlabel="distance from the vertical axis (m)", ylabel="height z (m)")
    shown = _scatter(above, points[:, 0], points[:, 1], errors)
    above.set(xlabel="x (m)", ylabel="y (m)", title="from above")
    figure.colorbar(shown, ax=above, label="error (cm)", extend="max")
    ordered = np.sort(errors)
    share.plot(ordered, np.linspace(0, 100, len(ordered)))
    share.axvline(errors.mean(), color="0.4", ls="--", lw=1, label=f"mean {errors.mean():.2f} cm")
    share.set(xlabel="error (cm)", ylabel="targets with at most this error (%)", xscale="log", xlim=(0.05, 100))
    share.grid(alpha=0.3)
    share.legend(fontsize=8)
    figure.suptitle(f"{results['robot']}, {METHODS[results['method']]}, seed {results['seed']}", fontsize=10)
    run.figure(f"domain-{results['robot']}-{results['method']}", figure)


def _scatter(axes: Axes, x: np.ndarray, y: np.ndarray, errors: np.ndarray) -> Any:
    order = np.argsort(errors)  # Large errors on top.
    shown = axes.scatter(x[order], y[order], c=errors[order], s=5, cmap="viridis", vmin=0.0, vmax=5.0)
    axes.set_aspect("equal")
    return shown


@torch.no_grad()
def film(run: Run, world: ReachWorld, policy: MLP, observes: str, robot: str) -> None:
    """Film the arm as it reaches some targets. That of 1 m reaches one after another from where it is, beside spheres
    at the targets; a robot of a file reaches one."""
    if robot != "arm" or observes != "feedback":
        path = world.reach(policy, inputs(world, observes, world.targets(1, run.generator(4))))
        run.film(f"{robot}-{observes}", path, trail=(world.tip,), forces=False)
        return
    points = world.targets(FILMED, run.generator(4))
    shown = paper_arm(world.simulator.dtype, points.tolist())
    shown.steps = FILMED * world.steps
    path = shown.reach(policy, encoded(points)[:, None].repeat_interleave(world.decisions, 0))
    arrivals = path.position(world.tip)[world.steps :: world.steps, 0]
    misses = (arrivals - points).norm(dim=-1)
    run.record(film={"targets_m": points, "errors_m": misses})
    centimetres = ", ".join(f"{100 * miss:.1f}" for miss in misses.tolist())
    run.say(
        f"one target after another, {world.steps * world.simulator.dt:g} s each: {centimetres} cm ({REACH:g} m arm)"
    )
    run.film(f"{robot}-{observes}", path, trail=(world.tip,), forces=False)
