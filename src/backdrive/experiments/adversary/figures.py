"""Survival against the size of pushes, what the adversary chose, and a film of the same push before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...model import State
from ...trajectory import Trajectory
from ..run import Run
from . import trials
from .learning import GaitNetworks
from .parts import METHODS
from .world import HOLD, DisturbedWorld

FILMED_IMPULSES = (20.0, 15.0, 25.0, 10.0, 30.0)  # In which the film's trial is looked for, N s.
FILMED_BEFORE, FILMED_AFTER, FPS = 50, 125, 20  # Decisions of the film before and after the push begins.
PICTURES = (0.0, 0.2, 0.4, 0.7, 1.2, 2.0)  # Times after the push begins, s.


def draw_survival(run: Run, found: list[dict[str, Any]]) -> None:
    """Shares of trials survived: each seed thin, the mean of the seeds thick."""
    import matplotlib.pyplot as plt

    figure, (axes, losses) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
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
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
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
        durations.hist(chosen["duration_s"], bins=[(k - 0.5) / 50 for k in range(1, 26)], **style)
        frictions.hist(chosen["friction"], bins=[0.275 + 0.05 * k for k in range(16)], **style)
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
def film(run: Run, world: DisturbedWorld, trained: dict[str, GaitNetworks]) -> None:
    """Film the first trial that the gait before does not survive, and that of the last method does, with both; and
    draw them from the last push before the fall on."""
    last = list(trained)[-1]
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
    paths = {
        name: world.go(trained[method].policy, world.start(1), torch.zeros(1), one)
        for name, method in (("before", "before"), ("after", last))
    }
    fall = int(trials.falling(world, paths["before"])[:, 0].int().argmax())
    force = one.forces[:, 0].norm(dim=-1)
    begins = (force > 0.0) & (torch.cat([force.new_zeros(1), force[:-1]]) == 0.0)
    earlier = begins[: fall + 1].nonzero()
    first = int(earlier[-1]) if len(earlier) else 0
    filmed = slice(max(first - FILMED_BEFORE, 0), first + FILMED_AFTER)
    rest = one._replace(forces=one.forces[filmed])
    for name, method in (("before", "before"), ("after", last)):
        step = HOLD * filmed.start
        start, clock = State(paths[name].q[step], paths[name].v[step]), torch.tensor([world.decide * filmed.start])
        shown = world.go(trained[method].policy, start, clock, rest)
        run.film(f"push-{name}", shown, trail=("trunk",), track="trunk", forces=False, fps=FPS)
    run.record(film={
        "impulse_N_s": impulse, "trial": chosen, "after": last, "push_s": world.decide * first,
        "fall_s": world.decide * fall, "friction": one.friction, "masses": one.masses[0],
    })  # fmt: skip
    draw_push(run, world, paths, first)


def draw_push(run: Run, world: DisturbedWorld, paths: dict[str, Trajectory], first: int) -> None:
    """Pictures of robots before and after, from a push on that begins with the decision `first`."""
    import matplotlib.pyplot as plt

    from ... import view

    figure, axes = plt.subplots(2, len(PICTURES), figsize=(11, 3.6), layout="constrained")
    for row, (name, path) in zip(axes, paths.items(), strict=True):
        for each, after in zip(row, PICTURES, strict=True):
            step = min(HOLD * first + round(after / world.simulator.dt), len(path.q) - 1)
            state = State(path.q[step, 0], path.v[step, 0])
            each.imshow(view.picture(world.model, state, track="trunk", size=(400, 320)))
            each.set(xticks=[], yticks=[])
            each.set_title(f"{name}, {after:g} s", fontsize=8)
    run.figure("push", figure)
