"""backdrive, on the same file; its contacts are solved exactly, by the default solver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import backdrive as bd

SETTINGS = "one environment, one thread, float64, specialize=True, impacts=False"


def version() -> str:
    return f"backdrive {bd.__version__}"


def prepare(request: dict[str, Any], steps: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """As `with_torch.prepare`."""
    torch.set_num_threads(1)
    model = bd.load(request["mjcf"])
    simulator = bd.Simulator(model, request["dt"], physics="rigid", threads=1, specialize=True)
    q0, v0, controls = (torch.tensor(request[name], dtype=torch.float64) for name in ("q", "v", "controls"))
    controls = controls[:steps].clone()

    def forward() -> tuple[Any, Any]:
        with torch.no_grad():
            last = simulator.rollout(bd.State(q0, v0), controls).last
        return last.q, last.v

    def gradient() -> tuple[Any, ...]:
        q, v, u = (x.detach().requires_grad_() for x in (q0, v0, controls))
        last = simulator.rollout(bd.State(q, v), u).last
        return torch.autograd.grad(last.q.square().sum() + last.v.square().sum(), (q, v, u))

    return forward, gradient
