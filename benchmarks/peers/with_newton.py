"""Newton (warp on the CPU) on the same file, by its Featherstone solver, with contact by penalties."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import newton
import numpy as np
import warp

BATCH_SETTINGS = "warp on the CPU, SolverFeatherstone, its own contact by penalties, float32, steps called from Python"
warp.config.quiet = True


def version() -> str:
    return f"newton {importlib.metadata.version('newton')}, warp {importlib.metadata.version('warp-lang')}"


def batched(request: dict[str, Any], batch: int) -> Callable[[], Any]:
    """As `with_mjx.batched`; the servos keep the first of the targets."""
    one, all_of_them = newton.ModelBuilder(), newton.ModelBuilder()
    one.add_mjcf(request["mjcf"])
    all_of_them.replicate(one, batch)
    model = all_of_them.finalize(device="cpu")
    q = np.array(request["q"])
    q[3:7] = q[[4, 5, 6, 3]]  # w last
    model.joint_q.assign(np.tile(q, batch))
    solver, control, contacts = newton.solvers.SolverFeatherstone(model), model.control(), model.contacts()
    control.joint_target_q.assign(np.tile([*q[:7], *request["controls"][0]], batch))
    start, *states = model.state(), model.state(), model.state()
    newton.eval_fk(model, model.joint_q, model.joint_qd, start)

    def roll() -> Any:
        now, after = states
        now.assign(start)
        for _ in request["controls"]:
            now.clear_forces()
            model.collide(now, contacts)
            solver.step(now, after, control, contacts, request["dt"])
            now, after = after, now
        return now.joint_q.numpy()

    return roll
