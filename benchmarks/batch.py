"""Steps per second against the number of environments: Laikago standing on four feet, one core."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch

import backdrive as bd

from .contact import first, forward, settle
from .engines import MuJoCo
from .gradient import gradient
from .peers.tools import INSTALL, Tool, ask
from .report import Table, microseconds
from .robots import standing_laikago
from .timing import Case, Run

SIZES = (1, 4, 16, 64, 256, 1024)
STEPS = 50
PEERS = (
    Tool("MJX", "with_mjx"),
    Tool("brax", "with_brax"),
    Tool("newton", "with_newton"),
    Tool("Nimble", "with_nimble", place="nimble"),  # which needs numpy < 2, and JAX does not have it
)
PEER_SIZES, PEER_STEPS = (1, 64, 1024), 10


def measure(run: Run) -> list[Table]:
    robot = standing_laikago()
    sizes = (1, 16, 64) if run.quick else SIZES
    simulator, peer = robot.simulator(), MuJoCo(robot.mjcf, contact=True)
    state, controls = settle(simulator, robot, max(sizes), STEPS)
    q, v, u = state.q.numpy(), state.v.numpy(), controls.numpy().transpose(1, 0, 2).copy()
    cases: dict[str, Case] = {}
    for n in sizes:
        cases[f"backdrive {n}"] = forward(simulator, *first(n, state, controls)), n * STEPS
        cases[f"backdrive, gradient {n}"] = _gradient(simulator, *first(n, state, controls)), n * STEPS
        few = min(n, 64)  # MuJoCo's time per step does not depend on it
        cases[f"MuJoCo {n}"] = peer.roller(q[:few], v[:few], u[:few]), few * STEPS
    time = run.interleave(cases, seconds=40)
    answers = {tool.name: _ask(run, tool, robot.mjcf, state, controls) for tool in PEERS}
    table = Table("Environments at once: Laikago standing, µs per env-step", ["", *(f"{n:,}" for n in sizes)])
    for name in ("MuJoCo", "backdrive", "backdrive, gradient"):
        table.add(name, *(microseconds(time[f"{name} {n}"]) for n in sizes))
    for name, answer in answers.items():
        rows = answer.get("rows", {})
        if not rows:
            table.add(f"{name}: {answer['missing']}", *[""] * len(sizes))
            continue
        for what, label in (("forward", name), ("gradient", f"{name}, gradient")):
            if what not in next(iter(rows.values())):
                continue
            table.add(label, *(microseconds(min(rows[str(n)][what])) if str(n) in rows else "–" for n in sizes))
            run.taken |= {f"{label} {n}": row[what] for n, row in rows.items()}
        compiled = max(row["compile"] for row in rows.values())
        table.notes.append(f"{name}: {answer['version']}, {answer['settings']}; compiled in up to {compiled:.0f} s.")
    table.notes.append(
        f"{STEPS} steps ({PEER_STEPS} of the peers with an environment of their own). Gradient: of |q|² + |v|² of the "
        "last state for the start and all controls, forward included. MuJoCo: at most 64 environments a call."
    )
    return [table]


def _gradient(simulator: bd.Simulator, state: bd.State, controls: torch.Tensor) -> Any:
    return lambda: gradient(simulator, state, controls)


def _ask(run: Run, tool: Tool, mjcf: str, state: bd.State, controls: torch.Tensor) -> dict[str, Any]:
    if run.quick:
        return {"missing": "left out in a quick run"}
    run.tell(f"{tool.name} in its own environment")
    request = {
        "mjcf": mjcf, "q": state.q[0].tolist(), "v": state.v[0].tolist(), "dt": standing_laikago().dt,
        "controls": controls[:PEER_STEPS, 0].tolist(), "batches": PEER_SIZES, "seconds": 2.0,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "request.json")
        path.write_text(json.dumps(request), "utf-8")
        answer = ask(tool, path, folder)
    return answer if "rows" in answer else {"missing": answer.get("missing", INSTALL)}
