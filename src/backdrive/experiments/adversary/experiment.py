"""Train the chosen methods with one seed, and show all parts in the results folder."""

from __future__ import annotations

import torch

from ...model import checks
from ...threads import one_torch_thread
from ..run import Run, WrongOption
from .figures import draw_choices, draw_survival, film
from .learning import GaitNetworks
from .parts import METHODS, AdversaryPart, finished, table
from .trials import TRIALS
from .world import DisturbedWorld

BEFORE, AFTER = 300, 300  # Evaluations, of 128 robots for 0.48 s each.
QUICK_BEFORE, QUICK_AFTER = 60, 24
QUICK_TRIALS, IN_MUJOCO, QUICK_IN_MUJOCO = 16, 64, 2


def run(run: Run) -> None:
    methods = _chosen_methods(run)
    after = round(run.number("evaluations", QUICK_AFTER if run.quick else AFTER))
    before = QUICK_BEFORE if run.quick else BEFORE
    tests, in_mujoco = (QUICK_TRIALS, QUICK_IN_MUJOCO) if run.quick else (TRIALS, IN_MUJOCO)
    with one_torch_thread():
        world = DisturbedWorld(torch.float32)
        trained: dict[str, GaitNetworks] = {}
        for method in ("before", *methods):
            evaluations = before if method == "before" else after
            part = AdversaryPart(method, run.seed, evaluations, tests, in_mujoco)
            trained[method] = part.run(run, world, trained.get("before"))
            found = finished(run.out)
            left_out = ("curve", "attack")
            parts = [{name: x for name, x in one.items() if name not in left_out} for one in found]
            run.record(table=table(found), parts=parts)
            draw_survival(run, found)
            draw_choices(run, found)
        if methods:
            film(run, world, trained)


def _chosen_methods(run: Run) -> tuple[str, ...]:
    """The methods that go on from the gait before."""
    if "method" not in run.options:
        return tuple(METHODS)[1:]
    if run.options["method"] not in METHODS:
        raise WrongOption(checks.unknown("method", run.options["method"], METHODS))
    return () if run.options["method"] == "before" else (run.options["method"],)
