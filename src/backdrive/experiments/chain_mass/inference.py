"""Infer the mass of the chain: from one guess, from random starts, from noisy observations, and link by link."""

from __future__ import annotations

import time
from typing import Any

import torch

from ...identify import Fit, GradientDescent, Learn
from ..run import Run
from .settings import ChainMassSettings
from .world import BOUNDS, CHAIN, ChainWorld

FIRST_GUESS = 1.0  # Mass of the chain that fits start from, kg.
PAPER = GradientDescent(rate=0.01, clip=100.0, max_iterations=30)
WINDOWS = 5


def from_first_guess(run: Run, worlds: dict[int, ChainWorld]) -> dict[int, dict[str, Fit]]:
    """Infer the mass from a guess of 1 kg, by the paper's descent and by `fit`, and check every gradient used."""
    found: dict[int, dict[str, Fit]] = {}
    for links, world in run.track(worlds.items(), "from 1 kg, with checks"):
        observed = world.observe(world.truth())
        found[links] = {
            "descent": world.fit(observed, world.total(FIRST_GUESS, bounds=None), optimizer=PAPER, check=True),
            "fit": world.fit(observed, world.total(FIRST_GUESS), windows=WINDOWS, check=True),
        }
        for name, result in found[links].items():
            check = result.check
            assert check is not None
            run.say(f"{links} links, {name} from 1 kg: {float(result.value):.6f} kg ({result.outcome}); {check}")
        run.record(from_first_guess={n: {name: _described(f) for name, f in two.items()} for n, two in found.items()})
    return found


def _described(result: Fit) -> dict[str, Any]:
    check = result.check
    assert check is not None
    return {
        "mass": result.value[0], "relative_error": abs(float(result.value[0]) / CHAIN - 1.0), "updates": result.updates,
        "outcome": str(result.outcome), "mass_by_update": result.history.values[:, 0, 0],
        "loss_by_update": result.history.loss[:, 0], "window_by_update": result.history.window,
        "gradients_compared": len(check.compared), "gradients_wrong": len(check.wrong),
        "largest_gradient_error": check.worst, "updates_with_mode_switch": sorted({c.update for c in check.unclear}),
    }  # fmt: skip


def from_random_starts(run: Run, worlds: dict[int, ChainWorld], settings: ChainMassSettings) -> None:
    """Infer the mass from random starts: one batch per chain, each start judged individually."""
    import matplotlib.pyplot as plt

    starts = 0.5 + 11.5 * torch.rand(settings.starts, generator=run.generator(1), dtype=torch.float64)
    figure, axes = plt.subplots(2, len(worlds), figsize=(3.4 * len(worlds), 6.0), layout="constrained", sharex="row")
    results: dict[int, Any] = {}
    for column, (links, world) in enumerate(run.track(worlds.items(), f"{settings.starts} random starts")):
        observed = world.observe(world.truth())
        began = time.perf_counter()
        descent = world.fit(observed, world.total(starts, bounds=None), optimizer=PAPER)
        between = time.perf_counter()
        found = world.fit(observed, world.total(starts), windows=WINDOWS)
        seconds = {"descent": between - began, "fit": time.perf_counter() - between}
        results[links] = {"starts": starts}
        for row, (name, result) in enumerate({"descent": descent, "fit": found}.items()):
            error = (result.values[:, 0] / CHAIN - 1.0).abs()
            hits = int((error <= 1e-3).sum())
            results[links][name] = {
                "found": hits, "of": len(starts), "masses": result.values[:, 0], "largest_relative_error": error.max(),
                "outcomes": [str(o) for o in result.outcomes], "updates": result.updates, "seconds": seconds[name],
            }  # fmt: skip
            run.say(f"{links} links, {name}: to 0.1 % in {hits} of {len(starts)} starts, {seconds[name]:.1f} s")
            axes[row, column].plot(result.history.update, result.history.values[:, :, 0], lw=1.0, alpha=0.7)
            title = f"{links} links: {hits} of {len(starts)}"
            axes[row, column].set(title=title, xlabel="update", ylim=(0, 13))
            axes[row, column].axhline(CHAIN, color="k", ls="--", lw=0.8)
        run.record(random_starts=results)
    axes[0, 0].set_ylabel("the paper's descent\nmass of the chain (kg)")
    axes[1, 0].set_ylabel("fit, in windows\nmass of the chain (kg)")
    run.figure("starts", figure)


def with_noise(run: Run, worlds: dict[int, ChainWorld], settings: ChainMassSettings) -> None:
    """Add noise of 1 % of the rms displacement; count how often the 95 % interval contains the true mass."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(worlds), figsize=(3.0 * len(worlds), 4.2), layout="constrained", sharey=True, squeeze=False
    )
    results: dict[int, Any] = {}
    trials = [(links, k) for links in worlds for k in range(settings.noisy)]
    found: dict[int, list[Fit]] = {links: [] for links in worlds}
    for links, k in run.track(trials, "with noise"):
        world = worlds[links]
        positions = world.positions(world.truth())
        noise = 0.01 * float((positions - positions[0]).square().mean().sqrt())
        observed = world.observe(world.truth(), noise, run.generator(1000 * links + k))
        found[links].append(world.fit(observed, world.total(FIRST_GUESS), windows=WINDOWS))
        if k + 1 == settings.noisy:
            intervals = torch.stack([result.interval[0] for result in found[links]])
            inside = int(((intervals[:, 0] <= CHAIN) & (intervals[:, 1] >= CHAIN)).sum())
            results[links] = {
                "covered": inside, "of": settings.noisy, "noise_m": noise, "intervals": intervals,
                "masses": [result.value[0] for result in found[links]],
                "outcomes": [str(result.outcome) for result in found[links]],
            }  # fmt: skip
            run.record(noise=results)
            run.say(f"{links} links, noise {1000 * noise:.1f} mm: 7 kg is in {inside} of {settings.noisy} intervals")
    for axis, (links, some) in zip(axes[0], found.items(), strict=True):
        for k, result in enumerate(some):
            low, high = result.interval[0].tolist()
            color = "C0" if low <= CHAIN <= high else "C3"
            axis.plot([low, high], [k, k], color=color, lw=2)
            axis.plot(result.value, [k], "o", color=color, ms=3)
        axis.axvline(CHAIN, color="k", ls="--", lw=0.8)
        axis.set(title=f"{links} links: {results[links]['covered']} of {len(some)}", xlabel="mass of the chain (kg)")
        axis.ticklabel_format(useOffset=False)
        axis.locator_params(axis="x", nbins=4)
        axis.set_yticks([])
    axes[0, 0].set_ylabel("data sets")
    run.figure("noise", figure)


def link_by_link(run: Run, settings: ChainMassSettings) -> None:
    """Learn the individual masses of all links together."""
    import matplotlib.pyplot as plt

    world = ChainWorld(settings.links)
    share = 0.5 + torch.rand(1, settings.links, generator=run.generator(2), dtype=torch.float64)
    truth = CHAIN * share / share.sum()
    guess = FIRST_GUESS / settings.links
    run.advance("link by link", 0, 1)
    found = world.fit(
        world.observe(truth), Learn("mass", world.links, start=guess, bounds=BOUNDS), windows=WINDOWS, check=True
    )
    run.advance("link by link", 1, 1)
    error = float((found.value / truth[0] - 1.0).abs().max())
    check = found.check
    assert check is not None
    numbers = {
        "links": settings.links, "truth": truth[0], "found": found.value, "largest_relative_error": error,
        "updates": found.updates, "outcome": str(found.outcome), "seconds": found.seconds,
        "gradients_compared": len(check.compared), "gradients_wrong": len(check.wrong),
        "largest_gradient_error": check.worst, "updates_with_mode_switch": sorted({c.update for c in check.unclear}),
    }  # fmt: skip
    run.record(link_by_link=numbers)
    run.say(f"{settings.links} masses together: to {100 * error:.2g} % ({found.outcome}, {found.updates} updates)")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    place = torch.arange(settings.links) + 1
    left.bar(place, truth[0], color="0.8", label="true")
    left.plot(place, found.value, "o", color="C1", label="found")
    left.axhline(guess, color="k", ls=":", lw=0.8, label="start")
    left.set(xlabel="link, from above", ylabel="mass (kg)", xticks=place.tolist())
    left.legend()
    right.semilogy(found.history.update, (found.history.values[:, 0] / truth[0] - 1.0).abs().clamp_min(1e-16), lw=1)
    right.set(xlabel="update", ylabel="relative error of each mass")
    run.figure("link_by_link", figure)
