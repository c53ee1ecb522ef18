"""Run the chosen methods with one seed, and show all parts in the results folder."""

from __future__ import annotations

import statistics
from typing import Any

import torch

from ...model import checks
from ...threads import one_torch_thread
from ..run import Run, WrongOption
from .checks import gradient_error
from .controller import PeriodicNetwork
from .figures import draw_curves, draw_motion
from .learning import EVALUATIONS
from .parts import METHODS, GaitPart, finished
from .searches import BUDGET, POPULATION
from .world import GaitWorld

QUICK_EVALUATIONS = {"trot": 96, "trot-wide": 96, "network": 30}
CHECKED = 0.2  # Horizon of the gradient's check, s.
PHYSICS = ("mujoco", "rigid")
PAPER = {
    "evaluations": EVALUATIONS, "faster_than_hand_tuned": 1.5,
    "ms of an evaluation of 8 s with gradient, 1 robot, 1,296 parameters": {"CPU": 800 * 8.17, "GPU": 800 * 69.6},
}  # fmt: skip


def run(run: Run) -> None:
    methods, physics = _chosen(run, "method", tuple(METHODS)), _chosen(run, "physics", PHYSICS)
    if any(method != "network" for method in methods):
        try:
            import cma  # noqa: F401
        except ImportError as error:
            raise ImportError("gait tunes its trot by CMA-ES: pip install 'backdrive[experiments]'") from error
    if "physics" not in run.options:
        physics = physics[:1]
    run.record(paper=PAPER)
    with one_torch_thread():
        for kind in physics:
            check_gradient(run, kind)
            world = GaitWorld(physics=kind)
            for method in methods:
                usual = EVALUATIONS if method == "network" else BUDGET
                evaluations = round(run.number("evaluations", QUICK_EVALUATIONS[method] if run.quick else usual))
                if method != "network":
                    evaluations = POPULATION * -(-evaluations // POPULATION)
                show(run, world, GaitPart(method, kind, run.seed, evaluations))


def _chosen(run: Run, option: str, all_of_them: tuple[str, ...]) -> tuple[str, ...]:
    if option not in run.options:
        return all_of_them
    if run.options[option] not in all_of_them:
        raise WrongOption(checks.unknown(option, run.options[option], all_of_them))
    return (run.options[option],)


def check_gradient(run: Run, physics: str) -> None:
    error = gradient_error(GaitWorld(physics=physics, seconds=CHECKED), PeriodicNetwork(run.generator(1)))
    run.record(**{f"gradient_against_differences_{physics}": error})
    run.say(f"the gradient with respect to all weights agrees with differences to {error:.1e} ({physics}, 0.2 s)")


def show(run: Run, world: GaitWorld, part: GaitPart) -> None:
    """Run a part, draw all parts of the folder, show this one, and film it if it is the fastest network so far."""
    results = part.run(run, world)
    found = finished(run.out)
    kept = ("curve", "fell", "ranges")
    run.record(parts=[{name: x for name, x in one.items() if name not in kept} for one in found])
    compare(run, found)
    draw_curves(run, found)
    targets = part.targets(run, world, results)
    if targets is None:
        return
    rivals = [x["speed"] for x in found if (x["method"], x["physics"]) == (part.method, part.physics)]
    if results["speed"] < max(rivals):
        return
    with torch.no_grad():
        path = world.move(targets)
    draw_motion(run, f"{part.method}-{part.physics}", path)
    if part.method == "network":
        run.film(f"{part.method}-{part.physics}", path, track="trunk", forces=False, fps=15)


def compare(run: Run, found: list[dict[str, Any]]) -> None:
    """Record how much faster networks are than the fastest trot of each kind, in the same physics."""
    ratios = {}
    for physics in sorted({x["physics"] for x in found}):
        best = {m: [x["speed"] for x in found if x["physics"] == physics and x["method"] == m] for m in METHODS}
        for trot in ("trot", "trot-wide"):
            if best[trot] and best["network"]:
                each = [v / max(best[trot]) for v in best["network"]]
                ratios[f"network / {trot}, {physics}"] = {"each": each, "median": statistics.median(each)}
    run.record(ratios=ratios)
