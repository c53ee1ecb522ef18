"""MuJoCo's physics against MuJoCo on the MJCF files of a folder, as dm_control's suite, which are not kept here.

    python -m benchmarks.mujoco_agreement --suite FOLDER

writes `docs/mujoco_suite.json` after every file, and continues where it stopped: remove a file's entry to compare it
again. Then it prints the section of `docs/mujoco_agreement.md`.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import mujoco

from backdrive.physics.soft.options import CONES, INTEGRATORS

from .mujoco_agreement import load, one_step, visited
from .timing import Run

STATES = 2000


def compare(run: Run, folder: Path, results: Path) -> str:
    """The table, of all files of the folder; results: what was found before, to which is added."""
    found: dict[str, Any] = json.loads(results.read_text("utf-8")) if results.exists() else {}
    for path in sorted(folder.glob("*.xml")):
        if path.stem in found:
            continue
        run.tell(path.stem)
        found[path.stem] = compared(path, 200 if run.quick else STATES)
        results.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", "utf-8")
    return section(results)


def section(results: Path) -> str:
    """The part of the page on these results, if there are any."""
    return INTRODUCTION + table(json.loads(results.read_text("utf-8"))) if results.exists() else ""


INTRODUCTION = f"""
### The files of dm_control's suite

One step from {STATES:,} states of each file (dm_control 1.0.50), with every integrator and both cones: the largest
difference of q and v, relative to the largest speed after the step where that is above 1. Within 1e-9: the part of the
states, in the worst of these eight, and not relative. (`python -m benchmarks.mujoco_agreement --suite FOLDER`)

MuJoCo iterates for some contacts of humanoid_CMU: with `ccd_tolerance` 1e-4 the differences are a hundred times
those with its default. The fingers of manipulator and stacker are damped so strongly that the explicit RK4 explodes, by
300 km/s in a step, and rounding errors with it.

"""


def compared(path: Path, states: int) -> dict[str, Any]:
    """The largest differences of q and v after a step, by integrator and cone; or why the file cannot be simulated."""
    model = load(path)
    if isinstance(model, str):
        return {"refused": model if len(model) < 160 else model[:150].rpartition(",")[0] + ", ..."}
    at = visited(mujoco.MjModel.from_xml_path(str(path)), states)
    own = one_step(model, path, at, None, None)
    result: dict[str, Any] = {"states": states, "with contact": round(own.touching, 3)}
    for integrator, cone in itertools.product(INTEGRATORS, CONES):
        step = one_step(model, path, at, integrator, cone)
        numbers = {"q": float(step.q), "v": float(step.v), "within 1e-9": step.within, "relative": step.relative}
        result[f"{integrator}, {cone}"] = numbers
    return result


def table(found: dict[str, Any]) -> str:
    """In Markdown: one row for each file."""
    kinds = [f"{integrator}, {cone}" for integrator, cone in itertools.product(INTEGRATORS, CONES)]
    rows = ["| | with contact | " + " | ".join(kinds) + " | within 1e-9 |", "| --- |" + " ---: |" * (len(kinds) + 2)]
    refused = []
    for name, result in found.items():
        if "refused" in result:
            refused.append(f"- {name} is not loaded: {result['refused']}")
            continue
        steps = [result[kind] for kind in kinds]
        cells = [f"{step['relative']:.0e}" for step in steps]
        within = min(step["within 1e-9"] for step in steps)
        rows.append(f"| {name} | {result['with contact']:.0%} | " + " | ".join(cells) + f" | {within:.2%} |")
    return "\n".join([*rows, "", *refused, ""])
