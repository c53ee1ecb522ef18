"""Steps per second of a floating quadruped that touches nothing: Laikago on one core, float64 unless said."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

import backdrive as bd

from .engines import MuJoCo, Pinocchio
from .report import Table, Target, microseconds, per_second
from .robots import laikago
from .timing import Case, Run

BATCH, STEPS = 1024, 100
SLICE = 8  # environments per call of MuJoCo, whose time per step does not depend on it
ALONE = 1000  # steps of a single environment in one call


def measure(run: Run) -> list[Table]:
    robot = laikago()
    state, controls = robot.motion(BATCH, STEPS)
    fast = robot.simulator()
    q, v, u = state.q.numpy(), state.v.numpy(), np.ascontiguousarray(controls.numpy().transpose(1, 0, 2))
    one, one_controls = robot.motion(1, ALONE)
    one_u = np.ascontiguousarray(one_controls.numpy().transpose(1, 0, 2))
    kept, bare, pinocchio = MuJoCo(robot.mjcf), MuJoCo(robot.mjcf, geoms=False), Pinocchio(robot.mjcf)

    def roll(simulator: bd.Simulator, last_only: bool = False) -> Case:
        start, inputs = state.to(simulator.dtype), controls.to(simulator.dtype)
        adjoint = bd.Checkpoint(STEPS) if last_only else None
        return _without_gradient(lambda: simulator.rollout(start, inputs, adjoint=adjoint)), BATCH * STEPS

    alone = bd.State(one.q[0], one.v[0]), one_controls[:, 0]
    single = robot.simulator()
    first = q[:SLICE], v[:SLICE], u[:SLICE]
    cases: dict[str, Case] = {
        "MuJoCo": (kept.roller(*first), SLICE * STEPS),
        "MuJoCo, geoms deleted": (bare.roller(*first), SLICE * STEPS),
        "MuJoCo, two threads": (bare.roller(*first, threads=2), SLICE * STEPS),
        "Pinocchio aba alone": (pinocchio.batch_aba(q, v, u[:, 0]), BATCH),
        "Pinocchio from Python": (pinocchio.stepper(q[0], v[0], u[0, 0], 1000), 1000),
        "specialised": roll(fast),
        "last state only": roll(fast, last_only=True),
        "float32": roll(robot.simulator(dtype=torch.float32)),
        "two threads": roll(robot.simulator(threads=2)),
        "rolled": roll(robot.simulator(specialize=False)),
        "MuJoCo alone": (bare.roller(one.q.numpy(), one.v.numpy(), one_u), ALONE),
        "alone": (_without_gradient(lambda: single.rollout(*alone)), ALONE),
    }
    time = run.interleave(cases, seconds=60)
    table = Table("Smooth dynamics, Laikago", ["", "µs per env-step", "env-steps/s", "ratio"])

    def row(
        name: str,
        label: str,
        bound: float | None = None,
        other: str = "MuJoCo, geoms deleted",
        to: str = "MuJoCo",
    ) -> None:
        t, ratio = time[name], time[other] / time[name]
        target = None if bound is None else Target(ratio, bound, "×", at_least=True)
        table.add(label, microseconds(t), per_second(t), f"{ratio:.2f} × {to}", target=target)

    batch = f"batch {BATCH:,}"
    row("MuJoCo", "MuJoCo, as loaded")
    row("MuJoCo, geoms deleted", "MuJoCo, geoms deleted (below: “MuJoCo”)")
    row("Pinocchio from Python", "Pinocchio, aba + integrate called from Python")
    row("Pinocchio aba alone", "Pinocchio, aba only, looped in C++")
    row("specialised", f"backdrive, {batch}", 25)
    row("last state only", f"backdrive, {batch}, keeping the last state only")
    row("rolled", f"backdrive, {batch}, rolled kernel")
    row("float32", f"backdrive, {batch}, float32", 1.6, "specialised", "float64")
    row("MuJoCo, two threads", "MuJoCo, two threads", to="one thread")
    row("two threads", f"backdrive, {batch}, two threads", 1.7, "specialised", "one thread")
    row("MuJoCo alone", "MuJoCo, one environment", other="MuJoCo alone")
    row("alone", f"backdrive, one environment, {ALONE:,} steps in a call", 4, "MuJoCo alone")

    path = fast.rollout(state, controls)
    mujoco_q, mujoco_v = bare.roller(q, v, u)()
    error = max(_error(path.q[-1], mujoco_q[:, -1]), _error(path.v[-1], mujoco_v[:, -1]))
    table.check(f"q and v of {BATCH:,} after {STEPS} steps, backdrive - MuJoCo", error, 1e-5)
    vdot = fast.forward_dynamics(state, controls[0])[:64]
    peers = np.stack([pinocchio.acceleration(*x) for x in zip(q[:64], v[:64], u[:64, 0])])
    error = _error(vdot, peers) / np.abs(peers).max()
    table.check("v̇ of 64 states, backdrive - Pinocchio, relative", error, 1e-10)
    table.notes.append(
        f"backdrive stores and returns the {STEPS} states of every environment in new memory; MuJoCo writes "
        f"into memory that it is given, {SLICE} environments a call. Two threads need an idle machine: "
        "MuJoCo's two show how much of the second core was free. The gyroscopic torque of the trunk is implicit here "
        "and explicit in MuJoCo: velocities differ by h² ω³ in every step."
    )
    return [table]


def _without_gradient(call: Callable[[], object]) -> Callable[[], object]:
    def quiet() -> object:
        with torch.no_grad():
            return call()

    return quiet


def _error(ours: torch.Tensor, theirs: np.ndarray) -> float:
    return float(np.abs(ours.detach().numpy() - theirs).max())
