"""Train the chosen methods with one seed, and show all parts in the results folder."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...model import checks
from ...threads import one_torch_thread
from ..run import Run, WrongOption
from .checks import check_gradient
from .controller import controller
from .figures import draw_curves, draw_domain, film
from .learning import BATCH, TEST_SEED, UPDATES, losses
from .learning import TESTS as TARGETS
from .parts import METHODS, ArmPart, finished, table
from .world import SECONDS, ReachWorld, paper_arm, robot_arm

TESTS, QUICK_TESTS = 50, 5
QUICK_UPDATES = {"feedback": 150, "time": 40, "target": 40, "cma": 5, "cma-point": 5}
TIMED = 10
PAPER = {
    "error_m": 0.05, "updates": UPDATES, "evaluations": BATCH * UPDATES, "CMA-ES": "no sign of convergence",
    "ms per simulated second with gradient, one of 128 quadrupeds, 1,296 parameters": {
        "CPU": 1e3 * 263 / 1280, "GPU": 1e3 * 128 / 1280,
    },
}  # fmt: skip


def run(run: Run) -> None:
    methods = _chosen_methods(run)
    if any(method.startswith("cma") for method in methods):
        try:
            import cma  # noqa: F401
        except ImportError as error:
            raise ImportError("arm compares with CMA-ES: pip install 'backdrive[experiments]'") from error
    run.record(paper=PAPER)
    with one_torch_thread():
        robot, make = _chosen_robot(run)
        world = make(dtype=torch.float32)
        run.record(world={"tip": world.tip, "limits_rad": (world.low, world.high), "start_rad": world.start})
        check_gradient(run, make(dtype=torch.float64))
        time_evaluations(run, world)
        tell_angles(run, world)
        for method in methods:
            updates = round(run.number("updates", QUICK_UPDATES[method] if run.quick else UPDATES))
            part = ArmPart(method, robot, run.seed, updates, QUICK_TESTS if run.quick else TESTS)
            results = part.run(run, world)
            show(run, world, part, results)


def _chosen_methods(run: Run) -> tuple[str, ...]:
    if "method" not in run.options:
        return ("feedback",) if "robot" in run.options else tuple(METHODS)
    if run.options["method"] not in METHODS:
        raise WrongOption(checks.unknown("method", run.options["method"], METHODS))
    return (run.options["method"],)


def _chosen_robot(run: Run) -> tuple[str, Callable[..., ReachWorld]]:
    """Its name, and a function that makes its world with a dtype."""
    if "robot" not in run.options:
        return "arm", paper_arm
    file = Path(run.options["robot"])
    if not file.is_file():
        raise WrongOption(f"--robot must be an MJCF file, and there is no file {str(file)!r}")
    return file.stem, functools.partial(robot_arm, file, run.options.get("tip"))


def time_evaluations(run: Run, world: ReachWorld) -> None:
    """Measure the processor time of a motion with and without its gradient, in batches of 256."""
    policy = controller(world, "feedback", run.generator(1))
    targets = world.targets(BATCH, run.generator(2))

    def forward() -> torch.Tensor:
        return losses(world, policy, "feedback", targets).mean()

    def gradient() -> None:
        torch.autograd.grad(forward(), list(policy.parameters()))

    found = {}
    for name, evaluate in (("with gradient", gradient), ("without", torch.no_grad()(forward))):
        evaluate()
        seconds = []
        for _ in range(TIMED):
            began = time.process_time()
            evaluate()
            seconds.append((time.process_time() - began) / BATCH)
        found[name] = {"least": 1e3 * min(seconds), "median": 1e3 * statistics.median(seconds)}
        run.say(
            f"a motion of {SECONDS:g} s {name}: {found[name]['median']:.3f} ms, or "
            f"{found[name]['median'] / SECONDS:.3f} ms per simulated second (processor time, median of {TIMED})"
        )
    run.record(ms_of_an_evaluation=found)


def tell_angles(run: Run, world: ReachWorld) -> None:
    """Measure how near servos come to the test targets that are told the joint angles of each from the start."""
    if not world.all_speeds:
        return
    q = world.angles(TARGETS, torch.Generator().manual_seed(TEST_SEED))
    errors = world.misses(world.reach_angles(q), world.tip_of(q))[-1].norm(dim=-1)
    found = {"mean": float(errors.mean()), "median": float(errors.median()), "p90": float(errors.quantile(0.9))}
    run.record(error_m_if_told_the_angles={**found, "largest": float(errors.max())})
    run.say(f"servos that are told the joint angles of the target miss it by {100 * found['mean']:.2f} cm")


def show(run: Run, world: ReachWorld, part: ArmPart, results: dict[str, Any]) -> None:
    """Draw all parts of the folder, and the domain of this one; film it if it has just been trained."""
    found = finished(run.out)
    kept = ("curve", "targets_mm", "errors_mm")
    run.record(
        table=table(found), parts=[{name: x for name, x in one.items() if name not in kept} for one in found]
    )  # fmt: skip
    draw_curves(run, found)
    weights = run.out / f"{part.name}.pt"
    if part.method != "cma-point":
        draw_domain(run, results)
    if part.method == "feedback" and weights.exists():
        policy = controller(world, part.method, run.generator(1))
        policy.load_state_dict(torch.load(weights, weights_only=True))
        film(run, world, policy, part.method, part.robot)
