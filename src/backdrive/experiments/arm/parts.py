"""The parts of the experiment: one method and one seed each. They run on their own, and are kept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..run import Run
from .controller import controller, parameters_of
from .learning import BATCH, SETTLED, Test, learn
from .searches import search
from .world import ReachWorld

METHODS = {
    "feedback": "gradient: angles, rates, tip, target",
    "time": "gradient: target and time",
    "target": "gradient: target alone",
    "cma": "CMA-ES: angles, rates, tip, target",
    "cma-point": "CMA-ES, one target only",
}
PAPER_ERROR = 0.05  # Mean error of the paper's network over the domain, m.


@dataclass(frozen=True)
class ArmPart:
    """One training. robot: "arm", or the name of a robot's file. updates: of 256 evaluations each."""

    method: str
    robot: str
    seed: int
    updates: int
    tests: int

    @property
    def name(self) -> str:
        return f"{self.robot}-{self.method}-{self.updates}-seed{self.seed}"

    def run(self, run: Run, world: ReachWorld) -> dict[str, Any]:
        """The results of the part: kept ones, or those of training now."""
        file = run.file(f"{self.name}.json")
        if file.exists():
            run.say(f"{self.name} is finished already, and kept: {file}")
            return json.loads(file.read_text("utf-8"))
        results = self._train(run, world)
        file.write_text(json.dumps(results) + "\n", "utf-8")
        run.say(in_words(results))
        return results

    def _train(self, run: Run, world: ReachWorld) -> dict[str, Any]:
        by_cma = self.method.startswith("cma")
        observes = "feedback" if by_cma else self.method
        policy = controller(world, observes, run.generator(1))
        points = run.generator(2)
        point = world.targets(1, run.generator(3))[0] if self.method == "cma-point" else None
        test = Test(world, observes, None if point is None else point[None])

        def advance(update: int) -> None:
            run.advance(self.name, update, self.updates)

        if by_cma:
            search(test, policy, self.updates, points, self.tests, advance, point)
        else:
            learn(test, policy, self.updates, points, self.tests, advance)
        torch.save(policy.state_dict(), run.file(f"{self.name}.pt"))
        errors = test.errors(policy, own=True)
        settled = errors[-round(SETTLED / world.simulator.dt) :].mean(0)
        end, evaluations = errors[-1], BATCH * self.updates
        by_speeds = {} if world.own is None else {"mean_by_speeds": float(test.errors(policy)[-1].mean())}
        return {
            **asdict(self), "parameters": parameters_of(policy), "evaluations": evaluations,
            "updates_left_out": test.clips.not_finite,
            "motion_s": world.steps * world.simulator.dt, "dt_s": world.simulator.dt,
            "error_m": {
                "mean": float(end.mean()), "median": float(end.median()), "p90": float(end.quantile(0.9)),
                "largest": float(end.max()), "mean_while_settled": float(settled.mean()), **by_speeds,
            },
            "to_5_cm": to(test, PAPER_ERROR), "seconds": test.watch.seconds, "cpu_seconds": test.watch.cpu_seconds,
            "threads": torch.get_num_threads(), "ms_per_evaluation": 1e3 * test.watch.cpu_seconds / evaluations,
            "curve": asdict(test.curve),
            "targets_mm": (1e3 * test.targets).round().int().tolist(),
            "errors_mm": [round(1e3 * error, 1) for error in end.tolist()],
        }  # fmt: skip


def to(test: Test, error: float) -> dict[str, float] | None:
    """The updates and minutes after which the mean error was below `error` (m) in a test for the first time."""
    curve = test.curve
    for k, mean in enumerate(curve.mean):
        if mean <= error:
            return {
                "updates": curve.evaluations[k] / BATCH, "minutes": curve.seconds[k] / 60,
                "cpu_minutes": curve.cpu_seconds[k] / 60,
            }  # fmt: skip
    return None


def in_words(results: dict[str, Any]) -> str:
    error, reached = results["error_m"], results["to_5_cm"]
    words = (
        f"{results['robot']}, {METHODS[results['method']]}, seed {results['seed']}: mean error "
        f"{100 * error['mean']:.2f} cm (median {100 * error['median']:.2f}, 90 % within {100 * error['p90']:.1f}) "
        f"after {results['updates']:,} updates, {results['seconds'] / 60:.1f} min "
        f"({results['cpu_seconds'] / 60:.1f} min of processor time)"
    )
    if reached is None:
        return words + "; never 5 cm"
    return words + f"; 5 cm after {reached['updates']:,.0f} updates, {reached['minutes']:.1f} min"


def finished(folder: Path) -> list[dict[str, Any]]:
    """The results of the parts in a folder."""
    found = [json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*-seed*.json"))]
    order = list(METHODS)
    return sorted(found, key=lambda x: (x["robot"] != "arm", x["robot"], order.index(x["method"]), x["seed"]))


def table(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The errors (m) of all seeds for each robot, method and number of updates."""
    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for results in found:
        groups.setdefault((results["robot"], results["method"], results["updates"]), []).append(results)
    rows = []
    for (robot, method, updates), group in groups.items():
        means = torch.tensor([results["error_m"]["mean"] for results in group])
        rows.append({
            "robot": robot, "method": method, "updates": updates, "evaluations": BATCH * updates,
            "parameters": group[0]["parameters"], "seeds": [results["seed"] for results in group],
            "mean_errors_m": means.tolist(), "mean_m": float(means.mean()), "least_m": float(means.min()),
            "largest_m": float(means.max()), "to_5_cm": [results["to_5_cm"] for results in group],
            "cpu_seconds": [results["cpu_seconds"] for results in group],
        })  # fmt: skip
    return rows
