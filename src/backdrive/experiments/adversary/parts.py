"""The parts of the experiment: one method and one seed each. They run on their own, and are kept."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..run import Run
from . import trials
from .attack import attacked
from .disturbances import DisturbanceBounds
from .learning import BATCH, DECISIONS, GaitNetworks, Learner
from .mujoco import outcomes as mujoco_outcomes
from .world import DisturbedWorld

METHODS = {
    "before": "before: no disturbance",
    "nothing": "as long again, no disturbance",
    "random": "random disturbances",
    "replayed": "random disturbances, windows thrice",
    "extreme": "random extremes",
    "adversary": "adversary, by the gradient",
}
AGAINST = {"before": "nothing"}  # Of the other methods, their own names.
MUJOCO_IMPULSE = 20.0  # Of the trials in MuJoCo, N s.


@dataclass(frozen=True)
class AdversaryPart:
    """One training. evaluations: windows of 128 robots, with their gradient. tests: trials for each size of pushes.
    in_mujoco: how many of these are repeated in MuJoCo."""

    method: str
    seed: int
    evaluations: int
    tests: int
    in_mujoco: int

    @property
    def name(self) -> str:
        return f"{self.method}-{self.evaluations}-seed{self.seed}"

    def run(self, run: Run, world: DisturbedWorld, first: GaitNetworks | None) -> GaitNetworks:
        """Train, from the networks `first` (None: from random ones), or take what has been trained before."""
        file, weights = run.file(f"{self.name}.json"), run.file(f"{self.name}.pt")
        networks = GaitNetworks(world, run.generator(1))
        if file.exists() and weights.exists():
            networks.load_state_dict(torch.load(weights, weights_only=True))
            run.say(f"{self.name} is finished already, and kept: {file}")
            return networks
        if first is not None:
            networks.load_state_dict(first.state_dict())
        results = self._train(run, world, networks)
        torch.save(networks.state_dict(), weights)
        file.write_text(json.dumps(results) + "\n", "utf-8")
        run.say(in_words(results))
        return networks

    def _train(self, run: Run, world: DisturbedWorld, networks: GaitNetworks) -> dict[str, Any]:
        bounds = DisturbanceBounds()
        against = AGAINST.get(self.method, self.method)
        learner = Learner(world, networks, against, bounds, self.evaluations, run.generator(2))
        began, cpu = time.perf_counter(), time.process_time()
        curve = learner.learn(lambda done: run.advance(self.name, done, self.evaluations))
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
        run.say(f"{self.name} has learned in {cpu_seconds:.0f} s of processor time, and is tested now")
        return {
            **asdict(self), "bounds": asdict(bounds), "decisions": BATCH * DECISIONS * self.evaluations,
            "seconds": seconds, "cpu_seconds": cpu_seconds, "updates_left_out": learner.clips.not_finite,
            "curve": asdict(curve), "nominal": trials.nominal(world, networks.policy),
            "survival": trials.curve(world, networks.policy, self.tests),
            "mujoco": self._in_mujoco(world, networks),
            "attack": attacked(world, networks, bounds, run.generator(3)),
        }  # fmt: skip

    def _in_mujoco(self, world: DisturbedWorld, networks: GaitNetworks) -> dict[str, float]:
        """The first trials of one size, here and in MuJoCo."""
        some = trials.part(trials.trials(world, MUJOCO_IMPULSE, self.tests), slice(self.in_mujoco))
        here, there = (
            go(world, networks.policy, some) for go in (trials.outcomes, mujoco_outcomes)
        )  # fmt: skip
        survived, in_mujoco = (trials.survival(*found) for found in (here, there))
        return {
            "impulse": MUJOCO_IMPULSE, "trials": len(survived), "survived_here": float(survived.double().mean()),
            "survived": float(in_mujoco.double().mean()), "same_fate": float((survived == in_mujoco).double().mean()),
        }  # fmt: skip


def in_words(results: dict[str, Any]) -> str:
    shares = ", ".join(f"{100 * x['survived']:.0f} % at {x['impulse']:g} N s" for x in results["survival"])
    return (
        f"{METHODS[results['method']]}, seed {results['seed']}: survives {shares}; undisturbed "
        f"{results['nominal']['speed']:.2f} m/s; in MuJoCo {100 * results['mujoco']['survived']:.0f} % where "
        f"{100 * results['mujoco']['survived_here']:.0f} % here ({results['mujoco']['impulse']:g} N s)"
    )


def finished(folder: Path) -> list[dict[str, Any]]:
    """The results of the parts in a folder."""
    found = [json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*-seed*.json"))]
    order = list(METHODS)
    return sorted(found, key=lambda x: (order.index(x["method"]), x["evaluations"], x["seed"]))


def table(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each method and number of evaluations, what all seeds reached."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for results in found:
        groups.setdefault((results["method"], results["evaluations"]), []).append(results)
    rows = []
    for (method, evaluations), group in groups.items():
        impulses = [x["impulse"] for x in group[0]["survival"]]
        shares = torch.tensor([[x["survived"] for x in results["survival"]] for results in group])
        rows.append({
            "method": method, "evaluations": evaluations, "seeds": [results["seed"] for results in group],
            "impulses_N_s": impulses, "survived": shares.T.tolist(), "survived_mean": shares.mean(0).tolist(),
            "nominal_m_s": [results["nominal"]["speed"] for results in group],
            "cpu_seconds": [results["cpu_seconds"] for results in group],
        })  # fmt: skip
    return rows
