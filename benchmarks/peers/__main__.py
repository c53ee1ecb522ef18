"""``python -m benchmarks.peers NAME REQUEST``: time and memory of a tool, as JSON.

REQUEST is a file that `laikago_table` writes: the robot's numbers, its start, controls, numbers of steps, how many
seconds a measurement may take. The last line that is printed is

    {"version", "settings", "stopped": at which number of steps it took too long, or null, "rows": {steps:
     {"forward", "gradient": [s per step, of two rounds], "memory": MB, "compile": s, "q", "v": at the end,
      "start_bar", "controls_bar"}}}

gradient: with the simulation that it needs. start_bar: q's, then v's. A request with "batches" instead asks for

    {"version", "settings", "rows": {batch: {"forward", "gradient": [s per environment and step, of two rounds],
     "compile": s}}}

gradient: if the tool has one for batches.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from .. import timing

KEPT = 100  # steps up to which gradients are returned, to be compared


def run(name: str, request: dict[str, Any]) -> dict[str, Any]:
    tool = importlib.import_module(f"{__package__}.{name}")
    rows: dict[str, Any] = {}
    stopped, last = None, (0, 0.0)
    for steps in request["steps"]:
        if last[0] and last[1] * steps / last[0] > request["patience"]:
            stopped = steps
            break
        began = time.perf_counter()
        forward, gradient, *buffers = tool.prepare(request, steps)
        prepared = time.perf_counter() - began
        began = time.process_time()
        q, v = forward()
        middle = time.process_time()
        bars = gradient()
        first = middle - began, time.process_time() - middle
        times = {
            what: timing.shortest(call, request["seconds"])
            for what, call in (("forward", forward), ("gradient", gradient))
        }
        later = min(times["forward"]), min(times["gradient"])
        rows[str(steps)] = {
            **{what: [x / steps for x in best] for what, best in times.items()},
            "memory": buffers[0] if buffers else timing.growth(gradient),
            "compile": prepared + sum(max(a - b, 0.0) for a, b in zip(first, later)),
            "q": [float(x) for x in q],
            "v": [float(x) for x in v],
        }
        if steps <= KEPT:
            q_bar, v_bar, controls_bar = bars
            rows[str(steps)] |= {
                "start_bar": [float(x) for x in (*q_bar, *v_bar)],
                "controls_bar": [[float(x) for x in row] for row in controls_bar],
            }
        last = steps, sum(later) * 4  # as often as it is called, at least
        print(f"{name}: {steps} steps", file=sys.stderr, flush=True)
    return {"version": tool.version(), "settings": tool.SETTINGS, "rows": rows, "stopped": stopped}


def run_batches(name: str, request: dict[str, Any]) -> dict[str, Any]:
    tool = importlib.import_module(f"{__package__}.{name}")
    rows: dict[str, Any] = {}
    for batch in request["batches"]:
        began = time.perf_counter()
        call = tool.batched(request, batch)
        call()
        first = time.perf_counter() - began
        times = timing.shortest(call, request["seconds"])
        work = batch * len(request["controls"])
        rows[str(batch)] = {"forward": [x / work for x in times], "compile": max(first - min(times), 0.0)}
        if hasattr(tool, "batched_gradient"):
            times = timing.shortest(tool.batched_gradient(request, batch), request["seconds"])
            rows[str(batch)]["gradient"] = [x / work for x in times]
    return {"version": tool.version(), "settings": tool.BATCH_SETTINGS, "rows": rows}


if __name__ == "__main__":
    asked = json.loads(Path(sys.argv[2]).read_text("utf-8"))
    print(json.dumps((run_batches if "batches" in asked else run)(sys.argv[1], asked)))
