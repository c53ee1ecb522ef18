"""Train every method on pendulums of 1 to 7 links, and draw the best relative reward against the number of links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...model import checks
from ..comparison import Trial, part
from ..run import Run, WrongOption
from .figures import draw_curves, draw_links
from .methods import METHODS
from .world import FRAMES, most, pendulum

LINKS, SEEDS, EPOCHS = tuple(range(1, 8)), 5, 100
"""Numbers of links, of seeds, and of epochs of 100 samples per link."""
QUICK_LINKS, QUICK_SEEDS, QUICK_EPOCHS = (1, 3), 2, 15
QUICK_METHODS = ("sac", "sac-policy", "shac", "bptt")


def run(run: Run) -> None:
    for links in _chosen_links(run):
        for method in _chosen_methods(run):
            _part(run, links, method)
            _draw(run)


def _chosen_links(run: Run) -> tuple[int, ...]:
    if "links" not in run.options:
        return QUICK_LINKS if run.quick else LINKS
    value = run.number("links", 1)
    if value not in LINKS:
        raise WrongOption(f"--links must be a whole number from 1 to {LINKS[-1]}, got {run.options['links']!r}")
    return (int(value),)


def _chosen_methods(run: Run) -> tuple[str, ...]:
    if "method" not in run.options:
        return QUICK_METHODS if run.quick else tuple(METHODS)
    if run.options["method"] not in METHODS:
        raise WrongOption(checks.unknown("method", run.options["method"], METHODS))
    return (run.options["method"],)


def _part(run: Run, links: int, method: str) -> None:
    seeds = tuple(run.seed + k for k in range(QUICK_SEEDS if run.quick else SEEDS))
    name = f"{method}-{links}" + ("-quick" if run.quick else "") + (f"-seed{run.seed}" if run.seed else "")
    trial = Trial(
        task=pendulum(links), limit=FRAMES, seeds=seeds, every=100, episodes=1, file=run.out / name,
        samples=100 * (QUICK_EPOCHS if run.quick else EPOCHS) * links,
        advance=lambda share: run.advance(name, round(1000 * share), 1000),
    )  # fmt: skip
    about = {"method": method, "links": links, "most": most(links), "quick": run.quick}
    result = part(run, name, about, METHODS[method], trial)
    best = [x / result["most"] for x in result["best"]]
    simulated = result["curves"][0]["simulated"][-1]
    run.say(
        f"{method}, {links} links: best relative reward {_mean(best):.3f} ({min(best):.3f} to {max(best):.3f}), "
        f"{trial.samples:,} samples, {simulated:,} simulated transitions; "
        f"{len(best)} seeds in {result['seconds']:.0f} s"
    )


def _draw(run: Run) -> None:
    found = finished(run.out)
    run.record(parts=[{name: x for name, x in result.items() if name != "curves"} for result in found])
    draw_links(run, found)
    draw_curves(run, found)


def finished(folder: Path) -> list[dict[str, Any]]:
    """The results of the finished parts in a folder; quick ones only where there is no other."""
    results = [json.loads(file.read_text()) for file in sorted(folder.glob("*-[1-7]*.json"))]
    full = {(x["method"], x["links"]) for x in results if not x["quick"]}
    return [x for x in results if not x["quick"] or (x["method"], x["links"]) not in full]


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)
