"""The parts of the experiment: one method, physics and seed each. They run on their own, and are kept."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..run import Run
from .checks import disturbed, in_mujoco, pushes_survived
from .controller import FREQUENCY, PeriodicNetwork, parameters_of
from .learning import learn
from .searches import RANGES, trot_of, tune
from .world import GaitWorld, energy_per_metre, fallen, speed, upright

METHODS = {
    "trot": "trot in the ranges of hand tuning, by CMA-ES",
    "trot-wide": "trot in wide ranges, by CMA-ES",
    "network": "network, by the gradient",
}


@dataclass(frozen=True)
class GaitPart:
    """One search. evaluations: motions of 8 s, of a network with their gradients."""

    method: str
    physics: str
    seed: int
    evaluations: int

    @property
    def name(self) -> str:
        return f"{self.method}-{self.physics}-{self.evaluations}-seed{self.seed}"

    def run(self, run: Run, world: GaitWorld) -> dict[str, Any]:
        """The results of the part: kept ones, or those of a search now."""
        file = run.file(f"{self.name}.json")
        if file.exists():
            run.say(f"{self.name} is finished already, and kept: {file}")
            return json.loads(file.read_text("utf-8"))
        results = self._search(run, world)
        file.write_text(json.dumps(results) + "\n", "utf-8")
        run.say(in_words(results))
        return results

    def _search(self, run: Run, world: GaitWorld) -> dict[str, Any]:
        def advance(done: int) -> None:
            run.advance(self.name, done, self.evaluations)

        began = time.process_time()
        if self.method == "network":
            network = PeriodicNetwork(run.generator(1))
            curve = learn(world, network, self.evaluations, advance)
            torch.save(network.state_dict(), run.file(f"{self.name}.pt"))
            found: dict[str, Any] = {
                "parameters": parameters_of(network), "frequency_hz": FREQUENCY, "curve": curve.best(),
                "fell": curve.fell,
            }  # fmt: skip
            targets = network.targets(world.times()).detach()
        else:
            ranges = "wide" if self.method == "trot-wide" else "hand"
            numbers, scores = tune(world, ranges, self.seed, self.evaluations, advance)
            found = {"numbers": numbers.tolist(), "ranges": RANGES[ranges], "curve": scores}
            targets = trot_of(numbers).targets(world.times())
        seconds = time.process_time() - began
        cost = {"cpu_seconds": seconds, "ms_per_evaluation": 1e3 * seconds / self.evaluations}
        return {**asdict(self), **found, **judged(world, targets, run.generator(5)), **cost}

    def targets(self, run: Run, world: GaitWorld, results: dict[str, Any]) -> Tensor | None:
        """Target angles of its gait, [T, nu], rad; None if the file of a network's weights is missing."""
        if self.method != "network":
            return trot_of(torch.tensor(results["numbers"]).numpy()).targets(world.times())
        file = run.out / f"{self.name}.pt"
        if not file.exists():
            return None
        network = PeriodicNetwork(run.generator(1))
        network.load_state_dict(torch.load(file, weights_only=True))
        return network.targets(world.times()).detach()


@torch.no_grad()
def judged(world: GaitWorld, targets: Tensor, generator: torch.Generator) -> dict[str, Any]:
    """The gait's speed, falls, energy, and what becomes of it in MuJoCo itself and after pushes."""
    path = world.move(targets)
    there, fell_there = in_mujoco(world, targets)
    mean, falls = disturbed(world, targets, torch.Generator().manual_seed(0))
    return {
        "speed": float(speed(path, world.seconds)), "falls": bool(fallen(world, path.q)[-1]),
        "least_cosine_of_tilt": float(upright(path.q).min()), "sideways_m": float(path.last.q[1]),
        "energy_j_per_m": energy_per_metre(world, path, targets),
        "in_mujoco": {"speed": there, "falls": fell_there}, "disturbed": {"mean_speed": mean, "falls": falls},
        "pushes_survived": pushes_survived(world, targets, generator),
    }  # fmt: skip


def in_words(results: dict[str, Any]) -> str:
    there, off = results["in_mujoco"], results["disturbed"]
    return (
        f"{METHODS[results['method']]}, {results['physics']} physics, seed {results['seed']}: "
        f"{results['speed']:.2f} m/s{' (falls)' if results['falls'] else ''} after {results['evaluations']} "
        f"evaluations, {results['energy_j_per_m']:.0f} J/m; in MuJoCo itself {there['speed']:.2f} m/s"
        f"{' (falls)' if there['falls'] else ''}; from disturbed starts {off['mean_speed']:.2f} m/s, and "
        f"{100 * off['falls']:.0f} % fall; survives {100 * results['pushes_survived']:.0f} % of pushes; "
        f"{results['ms_per_evaluation']:.0f} ms of processor time per evaluation"
    )


def finished(folder: Path) -> list[dict[str, Any]]:
    """The results of the parts in a folder."""
    found = [json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*-seed*.json"))]
    order = list(METHODS)
    return sorted(found, key=lambda x: (x["physics"], order.index(x["method"]), x["evaluations"], x["seed"]))
