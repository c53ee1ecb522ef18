"""Survival against the size of pushes, what the adversary chose, and a film of the same push before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..run import Run
from . import trials
from .learning import Networks
from .parts import METHODS
from .world import DisturbedWorld

FILMED_IMPULSES = (
    15.0,
    20.0,
    25.0,
    10.0,
    30.0,
)  # The film's trial is the first that one survives and one does not, N s.


def draw_survival(run: Run, found: list[dict[str, Any]]) -> None:
    """Shares of trials survived: each seed thin, the mean of the seeds thick."""
    import matplotlib.pyplot as plt

    figure, (axes, losses) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for k, (method, label) in enumerate(METHODS.items()):
        group = [results for results in found if results["method"] == method]
        if not group:
            continue
        impulses = [x["impulse"] for x in group[0]["survival"]]
        shares = 100 * np.array([[x["survived"] for x in results["survival"]] for results in group])
        axes.plot(impulses, shares.T, color=f"C{k}", lw=0.6, alpha=0.6)
        seeds = f"{len(group)} seed" + "s" * (len(group) > 1)
        axes.plot(impulses, shares.mean(0), color=f"C{k}", lw=2, label=f"{label} ({seeds})")
        loss = np.array([results["attack"]["loss"] for results in group])
        losses.plot((loss - loss[:, :1]).T, color=f"C{k}", lw=0.6, alpha=0.6)
        losses.plot((loss - loss[:, :1]).mean(0), color=f"C{k}", lw=2)
    axes.axvspan(0, found[0]["bounds"]["impulse"], color="0.93", zorder=0)
    axes.set(xlabel="impulse of each of 3 pushes (N s)", ylabel="trials survived (%)", ylim=(0, 100), xlim=(0, None))
    axes.set_title("unseen disturbances (grey: impulses of learning)", fontsize=9)
    axes.legend(fontsize=8)
    losses.set(xlabel="steps of the adversary against the final policy", ylabel="mean loss, above random disturbances")
    for each in (axes, losses):
        each.grid(alpha=0.3)
    run.figure("survival", figure)


def draw_choices(run: Run, found: list[dict[str, Any]]) -> None:
    """What the adversary chooses against the final policies: directions, times and friction."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(11, 3.4), layout="constrained")
    polar = figure.add_subplot(1, 4, 1, projection="polar")
    phases, durations, frictions = (figure.add_subplot(1, 4, k) for k in (2, 3, 4))
    for k, (method, label) in enumerate(METHODS.items()):
        group = [results["attack"] for results in found if results["method"] == method]
        if not group:
            continue
        chosen = {
            name: np.concatenate([x[name] for x in group])
            for name in ("direction_deg", "phase", "duration_s", "friction")
        }
        style: dict[str, Any] = {"color": f"C{k}", "lw": 1.5, "histtype": "step", "density": True}
        counts, edges = np.histogram(np.deg2rad(chosen["direction_deg"]), bins=24, range=(-np.pi, np.pi), density=True)
        middles = 0.5 * (edges[1:] + edges[:-1])
        polar.plot([*middles, middles[0]], [*counts, counts[0]], color=f"C{k}", label=label)
        phases.hist(chosen["phase"], bins=[k / 12 for k in range(13)], **style)
        durations.hist(chosen["duration_s"], bins=[k / 50 for k in range(26)], **style)
        frictions.hist(chosen["friction"], bins=[0.3 + 0.05 * k for k in range(15)], **style)
    polar.set_title("direction (0°: forwards)", fontsize=9)
    polar.set_yticklabels([])
    for axes, name in (
        (phases, "phase of the gait at the push"),
        (durations, "duration of the push (s)"),
        (frictions, "friction"),
    ):
        axes.set(xlabel=name, yticks=[])
    figure.legend(*polar.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    run.figure("choices", figure)


@torch.no_grad()
def film(run: Run, world: DisturbedWorld, trained: dict[str, Networks]) -> None:
    """Film the first trial that the gait before does not survive, and that the last method does, in both."""
    last = list(trained)[-1]
    if last == "before":
        return
    for impulse in FILMED_IMPULSES:
        some = trials.part(trials.trials(world, impulse), slice(trials.CHUNK))
        before, after = (
            trials.survival(*trials.outcomes(world, trained[name].policy, some)) for name in ("before", last)
        )  # fmt: skip
        found = (~before & after).nonzero()
        if len(found):
            break
    else:
        run.say("no trial is survived after and not before: nothing to film")
        return
    chosen = int(found[0])
    one = trials.part(some, slice(chosen, chosen + 1))
    run.record(film={"impulse_N_s": impulse, "trial": chosen, "after": last})
    for name in ("before", last):
        path = world.go(trained[name].policy, world.start(1), torch.zeros(1), one)
        run.film(f"push-{'before' if name == 'before' else 'after'}", path, trail=("trunk",))
