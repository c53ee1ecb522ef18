"""The gradient of a rollout with respect to all its controls and its start, beside the peers' Jacobians."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

import backdrive as bd

from .engines import MuJoCo, Pinocchio, to_tangent
from .report import Table, Target, microseconds
from .robots import laikago
from .timing import Case, Run

STEPS = 1000
SLICE = 20  # steps per call of the peers, whose time per step does not depend on it


def gradient(
    simulator: bd.Simulator, state: bd.State, controls: Tensor, adjoint: bd.Checkpoint | None = None
) -> tuple[Tensor, ...]:
    """Of |q_T|² + |v_T|², with respect to q, v and the controls."""
    inputs = [x.detach().requires_grad_() for x in (*state, controls)]
    path = simulator.rollout(bd.State(*inputs[:2]), inputs[2], adjoint=adjoint)
    return torch.autograd.grad(path.last.q.square().sum() + path.last.v.square().sum(), inputs)


def measure(run: Run) -> list[Table]:
    robot = laikago()
    mujoco, pinocchio = MuJoCo(robot.mjcf, geoms=False), Pinocchio(robot.mjcf)
    state, controls = robot.motion(1, STEPS)
    one, one_controls = bd.State(state.q[0], state.v[0]), controls[:, 0].contiguous()
    q, v, u = one.q.numpy(), one.v.numpy(), one_controls.numpy()
    fast, rolled = robot.simulator(), robot.simulator(specialize=False)

    def forward(simulator: bd.Simulator, start: bd.State, inputs: Tensor) -> Case:
        def call() -> bd.Trajectory:
            with torch.no_grad():
                return simulator.rollout(start, inputs)

        return call, inputs[..., 0].numel()

    def backward(simulator: bd.Simulator, start: bd.State, inputs: Tensor) -> Case:
        return lambda: gradient(simulator, start, inputs), inputs[..., 0].numel()

    settings = {
        "one environment": (fast, one, one_controls),
        **{f"batch {n:,}": (fast, *robot.motion(n, STEPS)) for n in ((64,) if run.quick else (64, 1024))},
        "one environment, rolled kernel": (rolled, one, one_controls),
    }
    cases: dict[str, Case] = {
        "MuJoCo": (lambda: mujoco.gradient(q, v, u[:SLICE], centered=False), SLICE),
        "Pinocchio": (pinocchio.jacobians(q, v, u[0], SLICE), SLICE),
    }
    for name, setting in settings.items():
        cases |= {f"{name} forward": forward(*setting), f"{name} gradient": backward(*setting)}
    time = run.interleave(cases, seconds=60)

    table = Table(
        f"Gradient of {STEPS:,} steps of Laikago, forward included",
        ["", "µs per env-step", "× forward alone", "× MuJoCo's speed"],
    )
    table.add("MuJoCo, chain of mjd_transitionFD", microseconds(time["MuJoCo"]), "", "1")
    speed = time["MuJoCo"] / time["Pinocchio"]
    table.add("Pinocchio, computeABADerivatives alone", microseconds(time["Pinocchio"]), "", f"{speed:.1f}")
    for name in settings:
        total, alone = time[f"{name} gradient"], time[f"{name} forward"]
        cost, speed = total / alone, time["MuJoCo"] / total
        label, cells = f"backdrive, {name}", [microseconds(total), f"{cost:.2f}", f"{speed:.0f}"]
        if "rolled" in name:
            table.add(label, *cells)
            continue
        table.add(label, *cells, target=Target(cost, 3.5, "× forward"))
        table.add("   against MuJoCo", "", "", "", target=Target(speed, 50, "× MuJoCo", at_least=True))

    ours, theirs = gradient(fast, one, one_controls), mujoco.gradient(q, v, u, centered=True)
    start = np.concatenate([to_tangent(q, ours[0].numpy(), len(v)), ours[1].numpy()])
    table.check("start, backdrive - MuJoCo's central differences, relative", _relative(start, theirs[0]), 1e-4)
    table.check(f"{STEPS:,} controls, the same", _relative(ours[2].numpy(), theirs[1]), 1e-4)
    jacobian = torch.autograd.functional.jacobian(
        lambda x: fast.forward_dynamics(bd.State(x, one.v), one_controls[0]), one.q
    )
    error = _relative(jacobian[6:, 7:].numpy(), pinocchio.jacobians(q, v, u[0], 1)()[6:, 6:])
    table.check("∂v̇/∂q of the joints, backdrive - Pinocchio, relative", error, 1e-9)
    table.notes.append(
        f"The peers loop in Python, {SLICE} steps a call. MuJoCo is timed with forward differences (the "
        "check has central ones, twice as slow). Pinocchio computes Jacobians of v̇: no rollout, no product."
    )
    return [table]


def _relative(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
