"""Learn by the chosen methods, each with all seeds, and show all parts in the results folder."""

from __future__ import annotations

import statistics
from typing import Any

from ...model import checks
from ...threads import one_torch_thread
from ..gait.world import SECONDS
from ..run import Run, WrongOption
from .checks import check_gradients
from .figures import draw_curves, draw_measures, draw_robots, film
from .hardware import MEASURES, nominal, total_mass
from .motion import nominal_world
from .parts import METHODS, CoDesignPart, bests, finished, median_training, table

EVALUATIONS, SEEDS = 500, 5
QUICK_EVALUATIONS, QUICK_SEEDS = 40, 2
AIM = 1.2  # Speed with learned hardware, relative to that of the controller alone.


def run(run: Run) -> None:
    methods = _chosen_methods(run)
    if any(method.startswith("cma") for method in methods):
        try:
            import cma  # noqa: F401
        except ImportError as error:
            raise ImportError("co-design compares with CMA-ES: pip install 'backdrive[experiments]'") from error
    evaluations = round(run.number("evaluations", QUICK_EVALUATIONS if run.quick else EVALUATIONS))
    seeds = tuple(range(run.seed, run.seed + (QUICK_SEEDS if run.quick else SEEDS)))
    with one_torch_thread():
        run.record(nominal={"mass_kg": total_mass(nominal()), **{n: m._asdict() for n, m in MEASURES.items()}})
        check_gradients(run)
        world = nominal_world()
        for method in methods:
            results = CoDesignPart(method, seeds, evaluations).run(run, world)
            if not method.startswith("cma"):
                film(run, results, 2.0 if run.quick else SECONDS)
        show(run)


def _chosen_methods(run: Run) -> tuple[str, ...]:
    if "method" not in run.options:
        return tuple(METHODS)
    if run.options["method"] not in METHODS:
        raise WrongOption(checks.unknown("method", run.options["method"], METHODS))
    return (run.options["method"],)


def show(run: Run) -> None:
    """Draw all parts of the folder, and compare them."""
    found = finished(run.out)
    run.record(table=table(found))
    draw_curves(run, found)
    by_method = {results["method"]: results for results in found}
    if "co-design" not in by_method:
        return
    draw_measures(run, found)
    draw_robots(run, found)
    tell_measures(run, by_method["co-design"])
    for alone, both in (("controller", "co-design"), ("cma-controller", "cma")):
        if alone in by_method and both in by_method:
            compare(run, by_method[alone], by_method[both])


def tell_measures(run: Run, results: dict[str, Any]) -> None:
    """The measures before and after, and what each is worth, for the seed of median speed and for all seeds."""
    training = median_training(results)
    rows = {}
    for name, measure in MEASURES.items():
        values = [x["measures"][name] for x in results["trainings"]]
        rows[name] = {
            "unit": measure.unit, "before": measure.nominal, "after": training["measures"][name],
            "median_of_seeds": statistics.median(values), "least": min(values), "largest": max(values),
            "set_back": training["set_back"][name],
        }  # fmt: skip
    run.record(measures={"seed": training["seed"], "speed_m_s": training["best_m_s"], "rows": rows,
                         "mass_kg": training["mass_kg"], "set_back_all": training["set_back"]["all"]})  # fmt: skip


def compare(run: Run, controller: dict[str, Any], both: dict[str, Any]) -> None:
    """How much faster robots are whose hardware was learned, too."""
    before, after = statistics.median(bests(controller)), statistics.median(bests(both))
    if before > 0.0:
        gain = after / before
        run.record(**{f"{both['method']}: speed relative to controller alone": {"gain": gain, "reached": gain >= AIM}})
        run.say(f"{METHODS[both['method']]}: {gain:.2f} times as fast as with the controller alone (medians)")
