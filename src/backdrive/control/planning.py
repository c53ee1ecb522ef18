"""Find controls that minimise the cost of a motion: ``optimize(sim, Cost(stage, final), state, controls)``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..progress import bar
from ..threads import one_torch_thread
from .costs import Cost, TrajectoryCost
from .dynamics import Dynamics, as_dynamics
from .ilqr import ILQR
from .problem import Method, PlanningProblem
from .result import Plan


def optimize(
    dynamics: Any,
    cost: Cost | Callable[..., Tensor],
    state: Any,
    controls: Tensor,
    *,
    limits: Any = None,
    method: Method | None = None,
    start: int = 0,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> Plan:
    """Find controls that minimise the cost of a motion, by local improvement of the given ones.

    dynamics: a `Simulator`, a torch function or module x⁺ = f(x, u), or `Dynamics`.
    cost: `Cost(stage, final)`, or just the function stage(state, u, t).
    state: the initial state: `State` with q [B, nq], v [B, nv] for a simulator, else x [B, n]; or without B.
    controls: the initial guess, [T, B, nu], or [T, nu] for all environments. T is the horizon.
    limits: (low, high), numbers or [nu]; None: the limits of the simulator's motors.
    method: `ILQR()` (default), `Shooting()`, `MPPI()`, `CEM()`.
    start: the number of the first step, as the cost sees it.
    generator: source of random numbers, for the methods that use them.
    progress: show a progress bar (needs rich).
    """
    began = time.perf_counter()
    if method is None:
        method = ILQR()
    if not hasattr(method, "solve"):
        raise TypeError(f"method must be ILQR(), Shooting(), MPPI() or CEM(), got {method!r}")
    dynamics = as_dynamics(dynamics)
    x, controls, unbatched = _inputs(dynamics, state, controls)
    low, high = control_limits(dynamics, limits, controls.shape[-1], x.dtype)
    problem = PlanningProblem(dynamics, TrajectoryCost(cost, dynamics, start), x, low, high, generator)
    with torch.no_grad(), one_torch_thread(), bar(progress, type(method).__name__, method.max_iterations) as advance:

        def tick(cost: Tensor) -> None:
            done = len(problem.history) - 1
            advance(done, f"iteration {done}, cost {float(cost.min()):.6g}")

        problem.tick = tick
        found = method.solve(problem, problem.clamp(controls))
    history = torch.stack(problem.history)
    tensors = [found.controls, found.states, history]
    gains, cost_now, iterations = found.gains, found.cost, found.iterations
    if unbatched:
        tensors = [y.squeeze(1) for y in tensors]
        gains = None if gains is None else gains.squeeze(1)
        cost_now, iterations = cost_now.squeeze(0), iterations.squeeze(0)
    best, states, history = tensors
    return Plan(
        best, dynamics.unpack(states), cost_now, history, iterations, found.outcomes, gains, type(method).__name__,
        time.perf_counter() - began,
    )  # fmt: skip


def _inputs(dynamics: Dynamics, state: Any, controls: Tensor) -> tuple[Tensor, Tensor, bool]:
    """x [B, n], controls [T, B, nu], and whether the state was unbatched."""
    x = dynamics.pack(state).detach().cpu()
    if x.ndim not in (1, 2) or x.shape[0] == 0:
        raise ValueError(f"state must be [n] or [B, n], got {list(x.shape)}")
    if not isinstance(controls, Tensor) or controls.dtype != x.dtype:
        raise TypeError(f"controls must be a tensor of the state's dtype {x.dtype}")
    unbatched = x.ndim == 1
    nu = controls.shape[-1] if dynamics.nu is None and controls.ndim else dynamics.nu
    batch = [] if unbatched else [len(x)]
    shape = list(controls.shape)
    if shape[1:] not in ([nu], [*batch, nu]) or not shape or 0 in shape:
        wanted = ", ".join(str(n) for n in ("T", *batch, nu))
        raise ValueError(f"controls must be [{wanted}], one row for each of T >= 1 steps, got {shape}")
    for name, y in (("state", x), ("controls", controls)):
        if not bool(torch.isfinite(y).all()):
            place = torch.nonzero(~torch.isfinite(y))[0].tolist()
            raise ValueError(f"{name} must be finite: {y[tuple(place)].item()} at {place} of its shape {list(y.shape)}")
    x = x.unsqueeze(0) if unbatched else x
    controls = controls.detach().cpu()
    if controls.ndim == 2:
        controls = controls.unsqueeze(1).repeat(1, len(x), 1)
    return x, controls, unbatched


def control_limits(dynamics: Dynamics, limits: Any, nu: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """low and high [nu]; infinite where there are none."""
    if limits is None:
        limits = dynamics.limits() or (-math.inf, math.inf)
    try:
        low, high = limits
        low, high = (torch.as_tensor(x, dtype=dtype).detach().cpu() for x in (low, high))
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"limits must be a pair (low, high) of numbers or tensors [{nu}], got {limits!r}") from None
    for name, x in (("low", low), ("high", high)):
        if list(x.shape) not in ([], [nu]):
            raise ValueError(f"limits: {name} must be a number or [{nu}], got {list(x.shape)}")
        if bool(torch.isnan(x).any()):
            raise ValueError(f"limits: {name} must not be NaN, got {x.tolist()}")
    low, high = low.expand(nu).contiguous(), high.expand(nu).contiguous()
    if bool((low > high).any()):
        k = int(torch.nonzero(low > high)[0])
        raise ValueError(f"limits: low must not be above high, got {low[k]:g} > {high[k]:g} for control {k}")
    return low, high
