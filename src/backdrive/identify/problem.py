"""From free numbers to residuals: simulate, subtract the observations, divide by their standard deviations."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

from ..model import State, checks
from ..simulator import Simulator
from ..trajectory import Trajectory
from .observations import Channels
from .unknowns import Unknowns


class FitProblem:
    """The residuals of S starts, each of which simulates all B environments: one batch of S B rows."""

    def __init__(
        self, simulator: Simulator, channels: Channels, unknowns: Unknowns, controls: Tensor | None,
        wrenches: Tensor | None,
    ) -> None:  # fmt: skip
        self.simulator, self.unknowns, self.channels = simulator, unknowns, channels
        self.controls, self.wrenches = controls, wrenches
        self.batch = channels.batch

    def until(self, time: float) -> FitProblem:
        """The same problem, restricted to the observations up to a time, s."""
        return FitProblem(self.simulator, self.channels.until(time), self.unknowns, self.controls, self.wrenches)

    @property
    def count(self) -> int:
        """Number R of observed values."""
        return int(self.channels.seen.sum())

    def rows(self, z: Tensor) -> Tensor:
        """z [S, P], repeated for every environment: [S B, P]."""
        return z.repeat_interleave(self.batch, 0)

    def start(self, z: Tensor) -> State:
        """The initial states of the S B rows."""
        q, v = (x.reshape(-1, x.shape[-1]) for x in self.unknowns.start_state(z))
        return State(q, v)

    def inputs(self, x: Tensor | None, starts: int, begin: int, end: int) -> Tensor | None:
        """Controls or wrenches of some steps, for all rows: [T, S B, ...] of [T, ...] or [T, B, ...]."""
        if x is None:
            return None
        shared = x.ndim == (2 if x is self.controls else 3)
        part = x[begin:end].unsqueeze(1) if shared else x[begin:end]
        part = part.expand(-1, self.batch, *part.shape[2:])
        return part.repeat(1, starts, *[1] * (part.ndim - 2))

    def simulate(self, z: Tensor) -> Trajectory:
        """The motion of every row, up to the last observation: q [T + 1, S B, nq]."""
        return self.simulator.rollout(
            self.start(z),
            self.inputs(self.controls, len(z), 0, self.channels.count),
            steps=self.channels.count,
            wrenches=self.inputs(self.wrenches, len(z), 0, self.channels.count),
            parameters=self.unknowns.parameters(self.rows(z)),
        )

    def predicted(self, path: Trajectory) -> Tensor:
        """The simulated counterparts of the observations, at every step: [T + 1, S B, D]."""
        pieces = [path.position(body) for body in self.channels.bodies]
        pieces += [path.orientation(body).unsqueeze(-1) for body in self.channels.turning]
        if self.channels.has_q:
            pieces.append(path.q)
        if self.channels.has_v:
            pieces.append(path.v)
        return torch.cat(pieces, -1)

    def residuals(self, path: Trajectory) -> Tensor:
        """(simulated - observed) / deviation, [S, R], for the R observed values."""
        at_times = self.channels.interpolate(self.predicted(path))  # [N, S B, D]
        return self.select(at_times - self._observed(at_times.shape[1]))

    def select(self, x: Tensor) -> Tensor:
        """The entries of x [N, S B, D, ...] that were observed, divided by their deviation: [S, R, ...]."""
        extra = x.ndim - 3
        x = x / self.channels.deviation.reshape(-1, *[1] * extra)
        by_start = x.unflatten(1, (-1, self.batch)).movedim(1, 0)  # [S, N, B, D, ...]
        return by_start[:, self.channels.seen]

    def _observed(self, rows: int) -> Tensor:
        return torch.nan_to_num(self.channels.value).repeat(1, rows // self.batch, 1)

    def loss(self, z: Tensor) -> tuple[Tensor, Trajectory]:
        """The mean square of the residuals [S], differentiable with respect to z [S, P]; and the motion."""
        path = self.simulate(z)
        return self.residuals(path).square().mean(-1), path

    def losses(self, z: Tensor) -> Tensor:
        """The losses [S], without graph; infinite where z is physically impossible or the motion is not finite."""
        result = torch.full((len(z),), torch.inf, dtype=torch.float64)
        fine = torch.nonzero(self.unknowns.possible(z)).flatten()
        if len(fine):
            with torch.no_grad(), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "the motion of environment")  # Trial values may diverge.
                loss, path = self.loss(z[fine])
            finite = path.status.finite.all(0).unflatten(0, (-1, self.batch)).all(-1) & torch.isfinite(loss)
            result[fine] = torch.where(finite, loss, torch.full_like(loss, torch.inf))
        return result


def windows_of(problem: FitProblem, windows: object) -> Iterator[FitProblem]:
    """Problems with growing parts of the observations, the last one with all of them; see `fit`."""
    end = float(problem.channels.time[-1])
    try:
        times = [] if isinstance(windows, str) else [float(t) for t in windows]  # type: ignore[attr-defined]
        several = True
    except TypeError:  # not iterable: one number
        several = False
    if not several:
        count = checks.integer(windows, "windows, if not times in s,")
        times = [end * (k + 1) / count for k in range(count)]
    else:
        if not times or any(b <= a for a, b in itertools.pairwise(times)) or not times[0] > 0:
            raise ValueError(f"windows must be increasing times > 0, in s, got {windows!r}")
        times = [t for t in times if t < end] + [end]
    for time in times[:-1]:
        yield problem.until(time)
    yield problem
