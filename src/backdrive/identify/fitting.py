"""`fit`: estimate the parameters of a world from its observed motion."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ..model import State, checks
from ..progress import bar
from ..simulator import Simulator
from ..threads import one_torch_thread
from ..trajectory import Trajectory
from .check import GradientCheck
from .observations import Channels, Observations, observations_of
from .optimizers import FitRecord, LevenbergMarquardt, Optimizer, Outcome, TorchOptimizer
from .problem import FitProblem, windows_of
from .result import Fit, History, Uncertainty, misfit_warning, significant
from .sensitivity import jacobian
from .unknowns import Derive, Unknowns, Wanted, as_parameters


def fit(
    simulator: Simulator,
    observed: Observations | Trajectory,
    learn: Wanted,
    *,
    state: State | None = None,
    controls: Tensor | None = None,
    wrenches: Tensor | None = None,
    parameters: Mapping[str, Tensor] | None = None,
    derive: Derive | None = None,
    optimizer: Optimizer | Callable[[list[Tensor]], torch.optim.Optimizer] | None = None,
    windows: int | Sequence[float] = 1,
    starts: int = 1,
    generator: torch.Generator | None = None,
    check: bool = False,
    progress: bool = False,
) -> Fit:
    """Find the parameters for which the simulated motion is closest to the observed one.

    observed: `Observations`, or a `Trajectory`, of which the positions of all bodies count as observed.
    learn: names of parameters ("mass", ["mass", "damping"]), with rows ({"mass": ["link1", "link2"]}), or `Learn` with
        bounds, start values and shared values.
    state: the initial state, q [nq], v [nv]; [B, n] for B observed environments with the same parameters; by default
        the model's. controls [T, (B,) nu], wrenches [T, (B,) nbody, k], parameters [*shape]: known inputs, as in
        `Simulator.rollout`.
    derive: a torch function of the learned and given parameters, {name: [S, *shape]}, that returns other parameters
        which follow from them, for example the inertia of a solid body whose size is learned.
    optimizer: `LevenbergMarquardt()` (default), `GaussNewton()`, `GradientDescent(rate)`, `TorchOptimizer(...)`, or
        just a function that makes a torch optimiser, such as ``lambda z: torch.optim.Adam(z, lr=0.05)``.
    windows: fit growing parts of the observations one after the other, each from the previous result: windows=5 fits
        the first fifth of the time, then the first two fifths, and so on; or a list of times in s. The loss over a long
        motion has many local minima, because later events depend on earlier ones.
    starts: number of random starts between the bounds (drawn from `generator`), run in one batch; the best result is
        returned. `Learn(start=[S, n])` specifies the starts instead.
    check: compare every derivative that is used with central differences; the result reports disagreements.
    progress: show a progress bar (needs rich).
    """
    began = time.perf_counter()
    if not isinstance(simulator, Simulator):
        raise TypeError(f"simulator must be a backdrive Simulator, got {type(simulator).__name__}")
    if simulator.dtype != torch.float64:
        raise TypeError("fit needs a simulator of dtype torch.float64: float32 cannot resolve small differences")
    starts = checks.integer(starts, "starts")
    method = _method(optimizer)
    model = simulator.model
    state = _state(simulator, state)
    batch = None if state.q.ndim == 1 else len(state.q)
    observations = observations_of(observed)
    channels = Channels(observations, model, simulator.dt, batch)
    unknowns = Unknowns(model, learn, as_parameters(model, parameters), state, derive)
    controls = _input("controls", controls, (model.nu,), batch, channels.count)
    wrenches = _input("wrenches", wrenches, (model.nbody, 6 if model.dim == 3 else 3), batch, channels.count)
    problem = FitProblem(simulator, channels, unknowns, controls, wrenches)
    z = unknowns.free(unknowns.starts(starts, generator))
    stages = list(windows_of(problem, windows))
    checked = GradientCheck() if check else None
    record = FitRecord(watch=None if checked is None else checked.watch)
    outcomes: list[Outcome] = []
    with bar(progress, "fit", getattr(method, "max_iterations", 100)) as advance, one_torch_thread():

        def tick(loss: float) -> None:
            updates = record.updates[-1]
            advance(updates, f"update {updates}, loss {loss:.3e}")

        record.tick = tick
        for stage in stages:
            moved, outcomes = method.minimize(stage, z, record, stage is problem)
            lost = torch.tensor([code == Outcome.DIVERGED for code in outcomes])
            z = torch.where(lost.unsqueeze(-1) & (stage is not problem), z, moved)
        return _result(problem, z, outcomes, record, checked, observations.noise is not None, began)


def _result(
    problem: FitProblem, z: Tensor, outcomes: list[Outcome], record: FitRecord, checked: GradientCheck | None,
    noise_known: bool, began: float,
) -> Fit:  # fmt: skip
    unknowns = problem.unknowns
    losses = problem.losses(z)
    best = int(losses.argmin())
    values = unknowns.values(z)
    size = len(unknowns)
    uncertainty = by_residuals = Uncertainty(
        torch.full((size,), torch.inf, dtype=torch.float64),
        torch.full((size, size), torch.inf, dtype=torch.float64),
        torch.stack([unknowns.low, unknowns.high], -1),
    )
    if bool(torch.isfinite(losses[best])):
        with torch.no_grad():
            path = problem.simulate(z[best : best + 1])
            residuals = problem.residuals(path)[0]
        J = jacobian(problem, z[best : best + 1], path)[0]
        uncertainty, by_residuals = (
            Uncertainty.of(unknowns, z[best], J, residuals, known) for known in (noise_known, False)
        )
    history = History(
        torch.tensor(record.updates), torch.tensor(record.window, dtype=torch.float64),
        unknowns.values(torch.stack(record.z)), torch.stack(record.loss),
    )  # fmt: skip
    freedom = max(problem.count - size, 1)
    square = float(losses[best]) * problem.count
    noise = math.sqrt(square / freedom)
    finished = outcomes[best] is not Outcome.MAX_ITERATIONS  # otherwise residuals are large for another reason
    known = noise_known and math.isfinite(noise) and problem.count > size
    misfit = finished and known and significant(square, freedom)
    if misfit:
        warnings.warn(misfit_warning(noise), RuntimeWarning, stacklevel=3)
    return Fit(
        unknowns.labels, unknowns.units, values[best], uncertainty.std, uncertainty.covariance, uncertainty.interval,
        outcomes[best], float(losses[best]), noise, noise_known,
        problem.count, best, values, losses, outcomes, history, time.perf_counter() - began, checked, misfit,
        "given" if noise_known else "residuals", _unknowns=unknowns, _z=z[best], _by_residuals=by_residuals,
    )  # fmt: skip


def _method(optimizer: object) -> Optimizer:
    if optimizer is None:
        return LevenbergMarquardt()
    if hasattr(optimizer, "minimize"):
        return optimizer
    if callable(optimizer) and not isinstance(optimizer, type):
        return TorchOptimizer(optimizer)
    raise TypeError(
        "optimizer must be LevenbergMarquardt(), GaussNewton(), GradientDescent(rate), or a function that makes one of "
        f"torch.optim of a list of tensors, got {optimizer!r}"
    )


def _state(simulator: Simulator, state: State | None) -> State:
    model = simulator.model
    if state is None:
        return model.initial_state()
    try:
        q, v = state
    except (TypeError, ValueError):
        raise TypeError(f"state must be State(q, v), got {type(state).__name__}") from None
    for name, x, n in (("state.q", q, model.nq), ("state.v", v, model.nv)):
        if not isinstance(x, Tensor) or x.dtype != torch.float64:
            raise TypeError(f"{name} must be a tensor of dtype torch.float64")
        if x.ndim not in (1, 2) or x.shape[-1] != n or x.numel() == 0:
            raise ValueError(f"{name} must be [{n}] or [B, {n}], got {list(x.shape)}")
        if not bool(torch.isfinite(x).all()):
            raise ValueError(f"{name} must be finite")
    if q.shape[:-1] != v.shape[:-1]:
        raise ValueError(f"state.q and state.v must have the same batch, got {list(q.shape)} and {list(v.shape)}")
    return State(q.detach().cpu(), v.detach().cpu())


def _input(name: str, x: Tensor | None, shape: tuple[int, ...], batch: int | None, steps: int) -> Tensor | None:
    if x is None:
        return None
    if not isinstance(x, Tensor) or x.dtype != torch.float64:
        raise TypeError(f"{name} must be a tensor of dtype torch.float64")
    lead = [] if batch is None else [batch]
    if list(x.shape[1:]) not in (list(shape), [*lead, *shape]) or x.ndim == 0:
        wanted = ", ".join(map(str, ["T", *lead, *shape]))
        raise ValueError(f"{name} must be [{wanted}], got {list(x.shape)}")
    if len(x) < steps:
        raise ValueError(f"{name} are for {len(x)} steps, but the last observation is after {steps}")
    return x.detach().cpu()
