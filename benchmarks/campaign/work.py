"""One task, in a process of its own: python -m benchmarks.campaign.work TASK, where TASK is JSON. Prints JSON."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from . import bits, energy, gradients, reproductions
from .draw import Draw
from .families import FAMILIES
from .gradients import Functional, judge
from .motions import Motions, draw_motions

BATCH = 64  # motions of a world
BIG = 8  # of a big world
WORST = 5  # reproductions of a task


@dataclass(frozen=True)
class Task:
    """part: gradients, energy or bits. family: its place in FAMILIES. number: of the task, of those that are alike.
    count: motions, worlds or batches. world: the number of the one world that is tried, None: all of them."""

    part: str
    family: int
    number: int
    count: int
    seed: int
    world: int | None = None

    def draw(self, world: int) -> Draw:
        """The random numbers of one of the task's worlds."""
        return Draw(self.seed, sorted(PARTS).index(self.part), self.family, self.number, world)

    def worlds(self, size: int, draw_some: Callable[..., Motions]) -> Iterator[tuple[int, Draw, Motions]]:
        """The worlds that are tried: their numbers, random numbers, and motions, at most `size` each, which
        `draw_some(family, count, draw)` makes. How many motions a world has depends on the worlds before it."""
        left = self.count
        for world in range(10 * (self.count // size + 1)):
            if left <= 0 or (self.world is not None and world > self.world):
                return
            draw = self.draw(world)
            motions = draw_some(FAMILIES[self.family], min(left, size), draw)
            left -= motions.count
            if motions.count and self.world in (None, world):
                yield world, draw, motions


def try_gradients(task: Task, folder: Path) -> dict[str, Any]:
    """Counts of the outcomes, and of the motions that touch something; what is wrong."""
    counts, wrong = Counter[str](), list[dict[str, Any]]()
    for world, draw, motions in task.worlds(BIG if FAMILIES[task.family].sparse else BATCH, draw_motions):
        functional = Functional.random(motions, draw)
        judgement = judge(functional)
        outcomes = judgement.outcomes()
        for k in [k for k, outcome in enumerate(outcomes) if outcome == gradients.WRONG]:
            again = judge(functional.some([k]), gradients.MORE_SIZES)  # a second look, with differences of more sizes
            outcomes[k] = again.outcomes()[0]
            if outcomes[k] == gradients.WRONG:
                what: dict[str, Any] = {
                    "world": world,
                    "motion": k,
                    "steps": motions.steps,
                    "error": float(again.error),
                }
                if len(wrong) < WORST:
                    what["folder"] = reproductions.save(folder, asdict(task) | what, functional.some([k]))
                wrong.append(what)
        counts.update(outcomes)
        counts["touching"] += int(judgement.touching.sum())
        counts.update(judgement.marked_by())
    return {"counts": counts, "wrong": wrong}


def try_energy(task: Task, folder: Path) -> dict[str, Any]:
    """Worlds, and those that gain energy."""
    family, worst, wrong, count = FAMILIES[task.family], -1.0, list[dict[str, Any]](), 0
    for world, draw, motions in task.worlds(BIG, energy.draw_worlds):
        count += motions.count
        gain, marked = energy.gains(motions)
        worst = max(worst, float(gain.max()))
        for k in (gain > energy.GAIN[family.dtype]).nonzero()[:, 0].tolist():
            what: dict[str, Any] = {
                "world": world, "motion": k, "steps": motions.steps, "gain": float(gain[k]),
                "marked": bool(marked[k]),
            }  # fmt: skip
            if len(wrong) < WORST:
                functional = Functional.random(motions.some([k]), draw)
                what["folder"] = reproductions.save(folder, asdict(task) | what, functional)
            wrong.append(what)
    counts = {"worlds": count, "gains": len(wrong), "marked": sum(what["marked"] for what in wrong)}
    return {"counts": counts, "worst": worst, "wrong": wrong}


def try_bits(task: Task, folder: Path) -> dict[str, Any]:
    """Comparisons, and those in which bits differ."""
    counts, wrong = Counter[str](), list[dict[str, Any]]()
    for world in range(task.count) if task.world is None else [task.world]:
        found = bits.differing(FAMILIES[task.family], task.draw(world))
        counts["comparisons"] += len(found)
        for name, different in found.items():
            if different:
                counts["different"] += 1
                wrong.append({"world": world, "comparison": name, "results": different})
    return {"counts": counts, "wrong": wrong}


PARTS: dict[str, Callable[[Task, Path], dict[str, Any]]] = {
    "gradients": try_gradients, "energy": try_energy, "bits": try_bits,
}  # fmt: skip


def main() -> None:
    given = json.loads(sys.argv[1])
    folder, task = Path(given.pop("folder")), Task(**given)
    torch.set_num_threads(1)
    began = time.perf_counter()
    result = PARTS[task.part](task, folder)
    print(json.dumps(asdict(task) | result | {"seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
