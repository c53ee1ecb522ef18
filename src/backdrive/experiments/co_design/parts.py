"""The parts of the experiment: one method with all its seeds. They run on their own, and are kept."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..gait.controller import parameters_of
from ..gait.world import GaitWorld
from ..run import Run
from .hardware import MEASURES, design, measures, total_mass
from .learning import Evaluations, Robot, first_robot, learn_from_the_fastest
from .searches import search
from .transfer import in_mujoco, set_back

METHODS = {
    "controller": "gradient: controller alone",
    "co-design": "gradient: controller and hardware",
    "cma": "CMA-ES: controller and hardware",
    "cma-controller": "CMA-ES: controller alone",
}


@dataclass(frozen=True)
class CoDesignPart:
    """One method. evaluations: motions of 8 s of each seed."""

    method: str
    seeds: tuple[int, ...]
    evaluations: int

    @property
    def name(self) -> str:
        return f"{self.method}-{self.evaluations}"

    def run(self, run: Run, world: GaitWorld) -> dict[str, Any]:
        """The results of the part: kept ones, or those of learning now."""
        file = run.file(f"{self.name}.json")
        if file.exists():
            run.say(f"{self.name} is finished already, and kept: {file}")
            return json.loads(file.read_text("utf-8"))
        results = self._learn(run, world)
        file.write_text(json.dumps(results) + "\n", "utf-8")
        run.say(in_words(results))
        return results

    def _learn(self, run: Run, world: GaitWorld) -> dict[str, Any]:
        def advance(done: int) -> None:
            run.advance(self.name, done, self.evaluations)

        hardware = has_hardware(self.method)
        if self.method.startswith("cma"):
            robots = [first_robot(seed, hardware) for seed in self.seeds]
            found = search(world, robots, self.seeds, self.evaluations, advance)
        else:
            robots, found = learn_from_the_fastest(world, self.seeds, hardware, self.evaluations, advance)
        for robot, curve in zip(robots, found.curves, strict=True):
            robot.load_state_dict(curve.best_state)
        return {
            **asdict(self), "unknowns": sum(x.numel() for x in robots[0].learned()),
            "weights_of_networks": parameters_of(robots[0].network), "motion_s": world.seconds,
            "cpu_seconds": found.cpu_seconds, "updates_left_out": found.left_out,
            "trainings": [
                self._training(world, *each) for each in zip(self.seeds, robots, found.curves, strict=True)
            ],
        }  # fmt: skip

    def _training(self, world: GaitWorld, seed: int, robot: Robot, curve: Evaluations) -> dict[str, Any]:
        values = measures(robot.hardware).detach()
        return {
            "seed": seed, "best_m_s": curve.best, "best_at": curve.best_at, "falls": sum(curve.fell),
            "measures": dict(zip(MEASURES, values.tolist(), strict=True)), "mass_kg": total_mass(design(values)),
            "in_mujoco": in_mujoco(robot, world.seconds),
            "set_back": set_back(world, robot) if has_hardware(self.method) else None,
            "state": {name: x.tolist() for name, x in robot.state_dict().items()},
            "curve": {"speeds": curve.speeds, "fell": curve.fell, "best": curve.bests},
        }  # fmt: skip


def has_hardware(method: str) -> bool:
    """Whether a method learns the measures, too."""
    return not method.endswith("controller")


def learned_robot(method: str, training: dict[str, Any]) -> Robot:
    """The best robot of a training."""
    robot = first_robot(training["seed"], has_hardware(method))
    robot.load_state_dict({name: torch.tensor(x, dtype=torch.float64) for name, x in training["state"].items()})
    return robot


def bests(results: dict[str, Any]) -> list[float]:
    return [training["best_m_s"] for training in results["trainings"]]


def median_training(results: dict[str, Any]) -> dict[str, Any]:
    """The training whose best speed is the median of the seeds'; the lower of two."""
    ordered = sorted(results["trainings"], key=lambda x: x["best_m_s"])
    return ordered[(len(ordered) - 1) // 2]


def in_words(results: dict[str, Any]) -> str:
    found = bests(results)
    return (
        f"{METHODS[results['method']]}: {statistics.median(found):.2f} m/s, median of {len(found)} seeds "
        f"({min(found):.2f} to {max(found):.2f}), after {results['evaluations']} evaluations, "
        f"{results['cpu_seconds'] / 60:.1f} min of processor time for all seeds"
    )


def finished(folder: Path) -> list[dict[str, Any]]:
    """The results of the parts in a folder."""
    files = (file for method in METHODS for file in sorted(folder.glob(f"{method}-[0-9]*.json")))
    return [json.loads(file.read_text("utf-8")) for file in files]


def table(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The best speeds (m/s) of all seeds of each method, here and in MuJoCo."""
    rows = []
    for results in found:
        best, trainings = bests(results), results["trainings"]
        there = [x["in_mujoco"] for x in trainings]
        rows.append({
            "method": results["method"], "evaluations": results["evaluations"], "unknowns": results["unknowns"],
            "seeds": results["seeds"], "best_m_s": best, "median_m_s": statistics.median(best),
            "least_m_s": min(best), "largest_m_s": max(best), "falls": [x["falls"] for x in trainings],
            "in_mujoco_m_s": [x["speed_m_s"] for x in there], "falls_in_mujoco": [x["falls"] for x in there],
            "cpu_seconds": results["cpu_seconds"],
        })  # fmt: skip
    return rows
