"""Chains of N links: the time per step should grow like N, forward and backward."""

from __future__ import annotations

import numpy as np
import torch

import backdrive as bd

from .engines import MuJoCo
from .report import Table, Target, microseconds
from .robots import Robot, pendulum
from .timing import Case, Run

LINKS = (5, 10, 20, 40, 80)
STEPS = 100
CHECKED = 20  # steps; a chain of 80 multiplies rounding errors too much over 100
WAYS = ("forward", "backward")
WORK = 3200  # links times environments: calls of all N take as long and fill as much memory
KINDS: dict[str, bool | str] = {"rolled": False, "specialised": True, "auto": "auto"}
ENDS = (LINKS[0], LINKS[-1])


def measure(run: Run) -> list[Table]:
    chains = {n: pendulum(n) for n in LINKS}
    cases: dict[str, Case] = {}
    for n, robot in chains.items():
        batch = WORK // n
        state, controls = robot.motion(batch, STEPS)
        q, v, u = state.q.numpy(), state.v.numpy(), controls.numpy().transpose(1, 0, 2)
        steps = STEPS // 4 if n > 20 else STEPS
        roller = MuJoCo(robot.mjcf).roller(q[:1], v[:1], np.ascontiguousarray(u[:1, :steps]))
        cases[f"MuJoCo {n}"] = roller, steps
        for kind in KINDS:
            if (kind == "specialised" and run.quick and n > LINKS[0]) or (kind == "auto" and n not in ENDS):
                continue
            simulator = robot.simulator(specialize=KINDS[kind])
            cases |= _passes(f"{kind} {n}", simulator, state, controls)
    time = run.interleave(cases, seconds=60)

    columns = ["links", "MuJoCo", "rolled", "backward", "specialised", "backward", "× MuJoCo"]
    table = Table("N-link pendulum, µs per env-step", columns)

    def text(name: str) -> str:
        return microseconds(time[name]) if name in time else "–"

    for n in LINKS:
        kinds = [k for k in KINDS if f"{k} {n} forward" in time]
        best = min(time[f"{k} {n} forward"] for k in kinds)
        ways = [f"{k} {n} {way}" for k in ("rolled", "specialised") for way in WAYS]
        passes = map(text, ways)
        table.add(str(n), text(f"MuJoCo {n}"), *passes, f"{time[f'MuJoCo {n}'] / best:.0f}")
    first, last = ENDS
    for kind in KINDS:
        if f"{kind} {last} forward" in time:
            growth = [time[f"{kind} {last} {way}"] / time[f"{kind} {first} {way}"] for way in WAYS]
            ratios = [f"{g:.1f} ×" for g in growth]
            cells = [*ratios, "", ""] if kind == "rolled" else ["", "", *ratios]
            target = Target(max(growth), 18, "×")
            table.add(f"{last} against {first}, {kind}", "", *cells, "", target=target)

    worst = max(_difference(robot) for robot in chains.values())
    table.check(f"q and v after {CHECKED} steps, backdrive - MuJoCo, all N", worst, 1e-8)
    table.notes += [
        f"Batches of {WORK:,} / N. Backward: alone, for all controls and the start.",
        "auto is the default: specialised up to 120 links in the plane.",
        f"Compared after {CHECKED} steps: in 100, 80 links turn one ulp of the start into 1e-8.",
    ]
    return [table]


def _passes(name: str, simulator: bd.Simulator, state: bd.State, controls: torch.Tensor) -> dict[str, Case]:
    """Forward without a graph, and backward alone, of a graph that is kept."""
    work = controls.shape[0] * controls.shape[1]
    inputs = [x.detach().requires_grad_() for x in (*state, controls)]
    path = simulator.rollout(bd.State(*inputs[:2]), inputs[2])
    seeds = [torch.ones_like(path.q), torch.ones_like(path.v)]

    def forward() -> None:
        with torch.no_grad():
            simulator.rollout(state, controls)

    def backward() -> None:
        torch.autograd.grad([path.q, path.v], inputs, seeds, retain_graph=True)

    return {f"{name} forward": (forward, work), f"{name} backward": (backward, work)}


def _difference(robot: Robot) -> float:
    state, controls = robot.motion(2, CHECKED)
    path = robot.simulator(specialize=False).rollout(state, controls)
    u = np.ascontiguousarray(controls.numpy().transpose(1, 0, 2))
    theirs = MuJoCo(robot.mjcf).roller(state.q.numpy(), state.v.numpy(), u)()
    ours = path.q[-1].numpy(), path.v[-1].numpy()
    return max(float(np.abs(a - b[:, -1]).max()) for a, b in zip(ours, theirs))
