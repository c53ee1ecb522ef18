"""Train every method on the Ant, and draw its return against the number of samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...envs import find
from ...model import checks
from ..comparison import Trial, part
from ..run import Run, WrongOption
from .methods import METHODS

STEPS, SEEDS, EPOCHS, EPISODES = 1000, 3, 100, 3
"""Steps of an episode and samples of an epoch; numbers of seeds, of epochs, and of episodes that make a score."""
QUICK_SEEDS, QUICK_EPOCHS, QUICK_EPISODES = 1, 6, 1
QUICK_METHODS = ("sac", "sac-samples")
ANT = {"forward_reward_weight": 1.0, "ctrl_cost_weight": 1.0, "healthy_reward": 0.0}
"""Reward of a step: the speed along x (m/s) minus the sum of the squared actions."""
NAMES = {
    "sac-samples": "SAC + sample enhancement", "sac": "SAC", "ppo": "PPO", "sql": "SQL", "mbpo": "MBPO", "shac": "SHAC",
}  # fmt: skip
SHARES = (0.25, 0.5, 0.75)
"""Shares of SAC's best return, to which the numbers of samples are told."""


def run(run: Run) -> None:
    chosen = QUICK_METHODS if run.quick else tuple(METHODS)
    if "method" in run.options:
        if run.options["method"] not in METHODS:
            raise WrongOption(checks.unknown("method", run.options["method"], METHODS))
        chosen = (run.options["method"],)
    for method in chosen:
        _part(run, method)
        found = finished(run.out)
        run.record(parts=[{name: x for name, x in result.items() if name != "curves"} for result in found])
        run.record(samples_to_return=needed(found))
        draw(run, found)


def _part(run: Run, method: str) -> None:
    seeds = tuple(run.seed + k for k in range(QUICK_SEEDS if run.quick else SEEDS))
    name = f"{method}-ant" + ("-quick" if run.quick else "") + (f"-seed{run.seed}" if run.seed else "")
    trial = Trial(
        task=find("Ant", ANT), limit=STEPS, seeds=seeds, every=STEPS, file=run.out / name,
        episodes=QUICK_EPISODES if run.quick else EPISODES, samples=STEPS * (QUICK_EPOCHS if run.quick else EPOCHS),
        advance=lambda share: run.advance(name, round(1000 * share), 1000),
    )  # fmt: skip
    result = part(run, name, {"method": method, "quick": run.quick}, METHODS[method], trial)
    best = result["best"]
    run.say(
        f"{method}: best return {np.mean(best):,.0f} ({min(best):,.0f} to {max(best):,.0f}), "
        f"{trial.samples:,} samples, {result['curves'][0]['simulated'][-1]:,} simulated transitions; "
        f"{len(best)} seeds in {result['seconds']:.0f} s"
    )


def finished(folder: Path) -> list[dict[str, Any]]:
    """The results of the finished parts in a folder; quick ones only where there is no other."""
    results = [json.loads(file.read_text()) for file in sorted(folder.glob("*-ant*.json"))]
    full = {x["method"] for x in results if not x["quick"]}
    return [x for x in results if not x["quick"] or x["method"] not in full]


def needed(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For some returns, the samples after which each seed of each method first had them; None: never."""
    plain = [np.mean(x["best"]) for x in results if x["method"] == "sac"]
    if not plain or plain[0] <= 0.0:
        return []
    rows = []
    for share in SHARES:
        goal = share * float(plain[0])
        firsts = {result["method"]: [first(curve, goal) for curve in result["curves"]] for result in results}
        rows.append({"return": round(goal, 1), **firsts})
    return rows


def first(curve: dict[str, Any], goal: float) -> int | None:
    """The number of samples after which a score was at least `goal` for the first time."""
    return next((n for n, score in zip(curve["samples"], curve["scores"], strict=True) if score >= goal), None)


def draw(run: Run, results: Sequence[dict[str, Any]]) -> None:
    """Returns against samples: every seed, and the mean of the seeds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for color, (method, name) in enumerate(NAMES.items()):
        for result in (x for x in results if x["method"] == method):
            length = min(len(curve["scores"]) for curve in result["curves"])
            samples = result["curves"][0]["samples"][:length]
            scores = np.array([curve["scores"][:length] for curve in result["curves"]])
            axes.plot(samples, scores.T, color=f"C{color}", lw=0.5, alpha=0.5)
            axes.plot(samples, scores.mean(0), color=f"C{color}", label=name)
    axes.set(xlabel="samples", ylabel="return of an episode of 1,000 steps")
    axes.grid(alpha=0.3)
    if results:
        axes.legend(fontsize=8)
    run.figure("sample_enhancement", figure)
