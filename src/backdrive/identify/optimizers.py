"""Optimisers of the free numbers: Levenberg-Marquardt, Gauss-Newton, plain gradient descent, and those of torch.

All of them move S starts in one batch, independently of each other.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from ..model import checks
from .problem import FitProblem
from .sensitivity import jacobian

EXACT = 1e-24  # A loss below this fraction of the observations' mean square is rounding error.


class Outcome(enum.Enum):
    """How the optimisation of one start ended."""

    CONVERGED = "converged"
    MAX_ITERATIONS = "max_iterations"
    STALLED = "stalled"
    """No step lowers the loss although its gradient predicts it, or no unknown has any influence on the residuals."""
    DIVERGED = "diverged"
    """The loss is not finite, or the values are impossible (such as a negative mass, without bounds)."""

    def __str__(self) -> str:
        return self.value


Derivative = tuple[Tensor, Tensor, Tensor]
"""For s of the starts: the free numbers z [s, P], and either the residuals [s, R] and their Jacobian [s, R, P], or the
losses [s] and their gradients [s, P]."""


@dataclass
class FitRecord:
    """The course of a fit, for all S starts: z [S, P] and loss [S] at the start of each window and after every update.

    window: end of the window, s. updates: number of updates so far.
    watch: called for every derivative that is used, with the number of the update, the window's problem, the numbers of
        the starts, and the derivative. tick: called after every update with the best loss.
    """

    z: list[Tensor] = field(default_factory=list)
    loss: list[Tensor] = field(default_factory=list)
    window: list[float] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)
    next_update: int = 1
    watch: Callable[[int, FitProblem, Tensor, Derivative], None] | None = None
    tick: Callable[[float], None] | None = None

    def add(self, problem: FitProblem, z: Tensor, loss: Tensor, updates: int) -> None:
        """Record z and the losses after `updates` more updates."""
        self.updates.append(updates + (self.updates[-1] if self.updates else 0))
        self.z.append(z.detach().clone())
        self.loss.append(loss.detach().clone())
        self.window.append(float(problem.channels.time[-1]))
        if self.tick is not None:
            self.tick(float(loss.min()))

    def used(self, problem: FitProblem, starts: Tensor, derivative: Derivative) -> None:
        """Report a derivative that serves the next update."""
        if self.watch is not None:
            self.watch(self.next_update, problem, starts, derivative)


class Optimizer(Protocol):
    def minimize(
        self, problem: FitProblem, z: Tensor, record: FitRecord, thorough: bool
    ) -> tuple[Tensor, list[Outcome]]:
        """Improved z [S, P], and the outcome of each start. thorough: False if a larger window follows."""


@dataclass(frozen=True)
class _LeastSquares:
    """Steps from the residuals r and their exact Jacobian J, with the Gauss-Newton model of the loss.

    max_iterations: updates at most, including rejected ones, in the last window; a quarter of that in earlier windows.
    max_step: the farthest that the free number of a bounded unknown moves in one update; 1 is a factor of e.
    tolerance: converged when the next step would move the estimate by less than this many standard deviations.
    """

    max_iterations: int = 60
    max_step: float = 1.0
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_iterations", checks.integer(self.max_iterations, "max_iterations"))
        checks.number(self.max_step, "max_step", low=0.0, strict=True)
        checks.number(self.tolerance, "tolerance", low=0.0, strict=True)

    def minimize(
        self, problem: FitProblem, z: Tensor, record: FitRecord, thorough: bool
    ) -> tuple[Tensor, list[Outcome]]:
        record.next_update = record.updates[-1] + 1 if record.updates else 1
        model = _Quadratic(problem, z, record, self.tolerance if thorough else 0.1)
        record.add(problem, model.z, model.loss, 0)
        level = torch.full((len(z),), self._first(), dtype=torch.float64)
        for _ in range(self.max_iterations if thorough else max(3, self.max_iterations // 4)):
            record.next_update = record.updates[-1] + 2  # A derivative taken after a step serves the next one.
            at = model.unfinished()
            if len(at) == 0:
                break
            step = self._step(model.H[at], model.g[at], level[at], problem.unknowns.relative)
            farthest = torch.where(problem.unknowns.relative, step.abs(), torch.zeros_like(step)).amax(-1, keepdim=True)
            step = step * (self.max_step / farthest.clamp_min(1e-300)).clamp_max(1.0)
            gain = model.try_step(at, step)
            level[at] = self._adapted(level[at], gain)
            model.stall(at[level[at] > self._last()])
            record.add(problem, model.z, model.loss, 1)
        return model.z, [code or Outcome.MAX_ITERATIONS for code in model.codes]

    def _first(self) -> float:
        raise NotImplementedError

    def _last(self) -> float:
        """The level beyond which a start is given up."""
        raise NotImplementedError

    def _step(self, H: Tensor, g: Tensor, level: Tensor, relative: Tensor) -> Tensor:
        raise NotImplementedError

    def _adapted(self, level: Tensor, gain: Tensor) -> Tensor:
        """The next level; gain: actual over predicted decrease of the loss."""
        raise NotImplementedError


@dataclass(frozen=True)
class LevenbergMarquardt(_LeastSquares):
    """(JᵀJ + λ D) δz = -Jᵀr; λ falls after a step that achieves its predicted decrease, and grows after others.

    For free numbers that are exponents (bounded unknowns), D is the largest element of diag JᵀJ: an unknown with little
    influence on the observations stays where it is until the others are found, where D = diag JᵀJ would send it to its
    bounds. An unknown without bounds has units, so its D is its own element of diag JᵀJ.

    damping: the initial λ.
    """

    damping: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.number(self.damping, "damping", low=0.0, strict=True)

    def _first(self) -> float:
        return self.damping

    def _last(self) -> float:
        return 1e8

    def _step(self, H: Tensor, g: Tensor, level: Tensor, relative: Tensor) -> Tensor:
        own = H.diagonal(dim1=-2, dim2=-1)
        largest = torch.where(relative, own, torch.zeros_like(own)).amax(-1, keepdim=True)
        scale = torch.where(relative, largest, own)
        scale = torch.maximum(scale, 1e-12 * own.amax(-1, keepdim=True)).clamp_min(1e-300)
        damped = H + torch.diag_embed(level.unsqueeze(-1) * scale)
        return -_solve(damped, g)

    def _adapted(self, level: Tensor, gain: Tensor) -> Tensor:
        less = torch.where(gain > 0.75, level / 9.0, level).clamp_min(1e-12)
        return torch.where(gain > 0.25, less, level * 4.0)


@dataclass(frozen=True)
class GaussNewton(_LeastSquares):
    """JᵀJ δz = -Jᵀr, halved until the loss decreases; directions without influence on the residuals are left out."""

    def _first(self) -> float:
        return 0.0

    def _last(self) -> float:
        return 30.0  # Halvings of the step.

    def _step(self, H: Tensor, g: Tensor, level: Tensor, relative: Tensor) -> Tensor:
        return -_solve(H, g) * 0.5 ** level.unsqueeze(-1)

    def _adapted(self, level: Tensor, gain: Tensor) -> Tensor:
        return torch.where(gain > 0.0, torch.zeros_like(level), level + 1.0)


class _Quadratic:
    """The model ½ loss(z + δ) ≈ ½ loss + gᵀδ + ½ δᵀHδ of every start, and the outcomes of finished starts."""

    def __init__(self, problem: FitProblem, z: Tensor, record: FitRecord, tolerance: float) -> None:
        self.problem, self.record, self.tolerance = problem, record, tolerance
        self.z = z.detach().clone()
        starts, size = z.shape
        self.loss = torch.full((starts,), torch.inf, dtype=torch.float64)
        self.H = torch.zeros(starts, size, size, dtype=torch.float64)
        self.g = torch.zeros(starts, size, dtype=torch.float64)
        self.codes: list[Outcome | None] = [None] * starts
        channels = problem.channels
        seen = (channels.value / channels.deviation)[channels.seen]
        self.floor = EXACT * float(seen.square().mean())
        self.loss = problem.losses(self.z)
        for k in torch.nonzero(~torch.isfinite(self.loss)).flatten().tolist():
            self.codes[k] = Outcome.DIVERGED
        self._differentiate(self.unfinished())

    def unfinished(self) -> Tensor:
        return torch.tensor([k for k, code in enumerate(self.codes) if code is None], dtype=torch.int64)

    def stall(self, starts: Tensor) -> None:
        for k in starts.tolist():
            self.codes[k] = self.codes[k] or Outcome.STALLED

    def try_step(self, at: Tensor, step: Tensor) -> Tensor:
        """Accept the steps that lower the loss; returns actual over predicted decrease, for each start of `at`."""
        trial = self.z[at] + step
        loss = self.problem.losses(trial)
        curved = (step.unsqueeze(-2) @ self.H[at] @ step.unsqueeze(-1)).flatten()
        predicted = -2.0 * (self.g[at] * step).sum(-1) - curved
        gain = (self.loss[at] - loss) / predicted.clamp_min(1e-300)
        better = loss < self.loss[at]
        self.z[at[better]], self.loss[at[better]] = trial[better], loss[better]
        self._differentiate(at[better])
        return gain

    def _differentiate(self, at: Tensor) -> None:
        for k in at.tolist():
            if self.loss[k] <= self.floor:
                self.codes[k] = Outcome.CONVERGED
        at = torch.tensor([k for k in at.tolist() if self.codes[k] is None], dtype=torch.int64)
        if len(at) == 0:
            return
        with torch.no_grad():
            path = self.problem.simulate(self.z[at])
            r = self.problem.residuals(path)
        J = jacobian(self.problem, self.z[at], path)
        self.record.used(self.problem, at, (self.z[at], r, J))
        count = r.shape[1]
        self.H[at] = J.mT @ J / count
        self.g[at] = (J.mT @ r.unsqueeze(-1)).squeeze(-1) / count
        reduction = (self.g[at] * _solve(self.H[at], self.g[at])).sum(-1)  # The decrease of the loss by a full step.
        deviations = (count * reduction / self.loss[at]).sqrt()
        for k, moves, felt in zip(at.tolist(), deviations.tolist(), J.flatten(1).any(-1).tolist(), strict=True):
            if not felt:
                self.codes[k] = Outcome.STALLED
            elif moves < self.tolerance:
                self.codes[k] = Outcome.CONVERGED


def _solve(H: Tensor, g: Tensor) -> Tensor:
    """H⁺ g with symmetric H [S, P, P] and g [S, P]; H is scaled to a unit diagonal, and its null space is left out."""
    scale = H.diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt()
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    values, vectors = torch.linalg.eigh(H / (scale.unsqueeze(-1) * scale.unsqueeze(-2)))
    kept = values > 1e-13 * values.amax(-1, keepdim=True).clamp_min(1e-300)
    inverse = torch.where(kept, 1.0 / torch.where(kept, values, torch.ones_like(values)), torch.zeros_like(values))
    along = vectors.mT @ (g / scale).unsqueeze(-1)
    return (vectors @ (inverse.unsqueeze(-1) * along)).squeeze(-1) / scale


@dataclass(frozen=True)
class GradientDescent:
    """z ← z - rate clip(∂loss/∂z): clip limits each element of the gradient to ±clip.

    The loss is the mean square of the residuals. With ``Learn(..., bounds=None)``, z is the parameter itself.
    """

    rate: float
    clip: float | None = None
    max_iterations: int = 100

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_iterations", checks.integer(self.max_iterations, "max_iterations"))
        checks.number(self.rate, "rate", low=0.0, strict=True)
        if self.clip is not None:
            checks.number(self.clip, "clip", low=0.0, strict=True)

    def minimize(
        self, problem: FitProblem, z: Tensor, record: FitRecord, thorough: bool
    ) -> tuple[Tensor, list[Outcome]]:
        def make(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
            return torch.optim.SGD(parameters, lr=self.rate)

        return _descend(problem, z, record, make, self.max_iterations, self.clip)


@dataclass(frozen=True)
class TorchOptimizer:
    """An optimiser of torch.optim: ``TorchOptimizer(lambda z: torch.optim.Adam(z, lr=0.05), max_iterations=300)``."""

    make: Callable[[list[Tensor]], torch.optim.Optimizer]
    max_iterations: int = 200

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_iterations", checks.integer(self.max_iterations, "max_iterations"))

    def minimize(
        self, problem: FitProblem, z: Tensor, record: FitRecord, thorough: bool
    ) -> tuple[Tensor, list[Outcome]]:
        return _descend(problem, z, record, self.make, self.max_iterations, None)


def _descend(
    problem: FitProblem, z: Tensor, record: FitRecord, make: Callable[[Any], torch.optim.Optimizer], iterations: int,
    clip: float | None,
) -> tuple[Tensor, list[Outcome]]:  # fmt: skip
    """Minimise with an optimiser of torch; each start is a leaf tensor [P]."""
    leaves = [row.detach().clone().requires_grad_() for row in z]
    optimizer = make(leaves)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer must make a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, torch.optim.LBFGS) and len(z) > 1:
        raise ValueError("torch.optim.LBFGS mixes several starts: give it one at a time")
    codes: list[Outcome | None] = [None] * len(z)
    final = z.detach().clone()
    losses: list[Tensor] = []  # Losses [S] of the evaluations since the last update.

    def closure() -> float:
        """Set the gradients of all unfinished starts; returns the sum of the losses."""
        now = torch.stack([leaf.detach() for leaf in leaves])
        fine = problem.unknowns.possible(now)
        for k in range(len(codes)):
            if codes[k] is None and not bool(fine[k]):
                codes[k] = Outcome.DIVERGED
            leaves[k].grad = torch.zeros_like(leaves[k])
        at = torch.tensor([k for k, code in enumerate(codes) if code is None], dtype=torch.int64)
        all_losses = torch.full((len(z),), torch.inf, dtype=torch.float64)
        if len(at):
            moving = now[at].requires_grad_()
            with torch.enable_grad():
                loss, _ = problem.loss(moving)
                (gradient,) = torch.autograd.grad(loss.sum(), moving)
            all_losses[at] = loss.detach()
            record.used(problem, at, (moving.detach(), loss.detach(), gradient))
            for k, row in zip(at.tolist(), gradient, strict=True):
                if bool(torch.isfinite(row).all()) and bool(torch.isfinite(all_losses[k])):
                    leaves[k].grad = row if clip is None else row.clamp(-clip, clip)
                else:
                    codes[k] = Outcome.DIVERGED
        losses.append(all_losses)
        return float(all_losses[torch.isfinite(all_losses)].sum())

    done = record.updates[-1] if record.updates else 0
    for update in range(iterations):
        record.next_update = done + update + 1
        before = final.clone()
        optimizer.step(closure)
        record.add(problem, before, losses[0], min(update, 1))
        losses.clear()
        for k, leaf in enumerate(leaves):
            if codes[k] is None:
                final[k] = leaf.detach()
        small = (final - before).abs() <= 1e-9 * final.abs().clamp_min(1.0)
        for k in torch.nonzero(small.all(-1)).flatten().tolist():
            codes[k] = codes[k] or Outcome.CONVERGED
        if all(codes):
            break
    loss = problem.losses(final)
    record.add(problem, final, loss, 1)
    for k in torch.nonzero(~torch.isfinite(loss)).flatten().tolist():
        codes[k] = Outcome.DIVERGED
    return final, [code or Outcome.MAX_ITERATIONS for code in codes]
