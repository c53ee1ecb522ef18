"""iLQR: linearise the steps, expand the costs to second order, solve that problem, and line-search along its solution.

The value recursion is that of differential dynamic programming with the dynamics to first order (Li & Todorov 2004);
regularisation, line search and limits follow Tassa et al. (2012, 2014). All environments are optimised in one
batch, each with its own regularisation; finished ones are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..model import checks
from .problem import PlanningProblem, Solution
from .result import Outcome
from .riccati import Policy, backward

Array = np.ndarray

ARMIJO = 1e-4  # A step must achieve this fraction of the predicted decrease of the cost.
EXACT = 1e-22  # Costs below this fraction of the initial cost are rounding errors.
GOOD_STEP = 0.3  # Regularisation is lowered after steps of at least this size.
GROWTH = 1.6  # Growth of the factor by which regularisation changes.


@dataclass(frozen=True)
class ILQR:
    """The iterative linear-quadratic regulator.

    max_iterations: at most this many, each with one backward and one forward pass.
    tolerance: converged when the expected decrease of the cost is below this fraction of the cost.
    regularization: weights (ws, wc) of μ: μ ws is added to the diagonal of the cost-to-go's Hessian, μ wc to that of
        the controls'. μ starts at zero, grows where the problem is not convex or no step helps, and falls again.
    least_regularization, most_regularization: the range of μ when it is not zero; an environment whose μ would exceed
        the range is given up.
    step_sizes: of the line search, in the order in which they are tried; several at once where a larger batch of steps
        costs no more.
    """

    max_iterations: int = 200
    tolerance: float = 1e-8
    regularization: tuple[float, float] = (1.0, 1.0)
    least_regularization: float = 1e-6
    most_regularization: float = 1e10
    step_sizes: tuple[float, ...] = tuple(0.5**k for k in range(11))

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_iterations", checks.integer(self.max_iterations, "max_iterations"))
        checks.number(self.tolerance, "tolerance", low=0.0)
        checks.number(self.least_regularization, "least_regularization", low=0.0, strict=True)
        checks.number(self.most_regularization, "most_regularization", low=self.least_regularization, strict=True)
        if len(self.regularization) != 2 or min(self.regularization) < 0 or max(self.regularization) == 0:
            raise ValueError(f"regularization must be two weights >= 0, not both 0, got {self.regularization!r}")
        if not self.step_sizes or not all(0 < size <= 1 for size in self.step_sizes):
            raise ValueError(f"step_sizes must be numbers above 0 and up to 1, got {self.step_sizes!r}")

    def solve(self, problem: PlanningProblem, controls: Tensor) -> Solution:
        search = _Search(self, problem, controls)
        problem.record(torch.from_numpy(search.cost))
        for _ in range(self.max_iterations):
            at = search.unfinished()
            if len(at) == 0:
                break
            search.differentiate(at)
            at, policy = search.find_policy(at)
            at, policy = search.stop_where_converged(at, policy)
            if len(search.unfinished()):
                search.improve(at, policy)
                problem.record(torch.from_numpy(search.cost))
        return search.solution()


class _Search:
    """The trajectories of all B environments, their second-order problems, and which are finished.

    Arrays are numpy's, whose operators are faster than torch's for a few numbers; the methods of `Dynamics` and the
    costs see them as tensors. `at`: indices of some environments, in increasing order.
    """

    def __init__(self, method: ILQR, problem: PlanningProblem, controls: Tensor) -> None:
        self.method, self.problem = method, problem
        batch, x = controls.shape[1], problem.x
        states = problem.dynamics.rollout(x, controls)
        self.states, self.controls = states.numpy(), controls.numpy().copy()
        self.cost = problem.cost.total(states, controls).numpy()
        self.floor = EXACT * np.abs(self.cost)
        self.F, self.H, self.end, self.gains = (np.empty(0),) * 4  # Set by `differentiate`, `find_policy`.
        self.stale = np.ones(batch, dtype=bool)
        self.level, self.factor = np.zeros_like(self.cost), np.ones_like(self.cost)  # μ, and its factor.
        self.raised = np.zeros(batch, dtype=bool)
        self.iterations = np.zeros(batch, dtype=np.int64)
        self.limits = problem.low.numpy(), problem.high.numpy()
        self.codes: list[Outcome | None] = [None] * batch
        self._end(np.flatnonzero(~np.isfinite(self.cost)), Outcome.DIVERGED)

    def unfinished(self) -> Array:
        return np.array([b for b, code in enumerate(self.codes) if code is None], dtype=np.int64)

    def _end(self, at: Array, code: Outcome) -> None:
        for b in at.tolist():
            self.codes[b] = code

    def _of(self, at: Array, *arrays: Array) -> list[Array]:
        """The parts of arrays [T, B, ...] for some environments."""
        return list(arrays) if len(at) == len(self.codes) else [x[:, at] for x in arrays]

    def differentiate(self, at: Array) -> None:
        """Expand dynamics and costs about the trajectories that have changed."""
        at = at[self.stale[at]]
        if len(at) == 0:
            return
        states, controls = map(torch.from_numpy, self._of(at, self.states, self.controls))
        A, B = self.problem.dynamics.linearize(states[:-1].flatten(0, 1), controls.flatten(0, 1))
        F = torch.cat([B, A], -1).unflatten(0, controls.shape[:2]).numpy()
        H, end = (x.numpy() for x in self.problem.cost.expand(states, controls))
        if len(at) == len(self.codes):
            self.F, self.H, self.end = F, H, end
        else:
            if not self.F.size:  # Environments that diverged at the start have no derivatives.
                self.F, self.H, self.end = (
                    np.zeros((*x.shape[:k], len(self.codes), *x.shape[k + 1 :]), x.dtype)
                    for x, k in ((F, 1), (H, 1), (end, 0))
                )
            self.F[:, at], self.H[:, at], self.end[at] = F, H, end
        self.stale[at] = False

    def find_policy(self, at: Array) -> tuple[Array, Policy]:
        """Policies of the environments, each with the regularisation that it needs; drops those that need too much."""
        policy = self._backward(at)
        self.raised[:] = False
        while not policy.sound.all():
            wrong = np.flatnonzero(~policy.sound)
            self._raise_level(at[wrong])
            self.raised[at[wrong]] = True
            hopeless = self.level[at[wrong]] > self.method.most_regularization
            self._end(at[wrong[hopeless]], Outcome.NOT_CONVEX)
            again = wrong[~hopeless]
            if len(again):
                part = self._backward(at[again])
                policy.gains[:, again], policy.feedforward[:, again] = part.gains, part.feedforward
                policy.expected[again], policy.slope[again] = part.expected, part.slope
                policy.sound[again] = part.sound
            kept = np.ones(len(at), dtype=bool)
            kept[wrong[hopeless]] = False
            at, policy = at[kept], policy.of(kept)
        if len(at) == len(self.codes):
            self.gains = policy.gains
        else:
            if not self.gains.size:
                self.gains = np.zeros((len(self.controls), len(self.codes), *policy.gains.shape[2:]), self.cost.dtype)
            self.gains[:, at] = policy.gains
        return at, policy

    def _backward(self, at: Array) -> Policy:
        F, H, now = self._of(at, self.F, self.H, self.controls)
        end = self.end if len(at) == len(self.codes) else self.end[at]
        low, high = (edge - now for edge in self.limits) if self.problem.limited else (None, None)
        return backward(F, H, end, low, high, np.outer(self.level[at], self.method.regularization))

    def stop_where_converged(self, at: Array, policy: Policy) -> tuple[Array, Policy]:
        """Drop environments whose cost is not expected to fall: they have converged, or are regularised too much."""
        cost = np.abs(self.cost[at])
        tolerance = max(self.method.tolerance, 16 * float(np.finfo(cost.dtype).eps))
        small = (-policy.expected <= tolerance * cost) | (cost < self.floor[at])
        if not small.any():
            return at, policy
        done = small & ((self.level[at] == 0) | self.raised[at])
        self._end(at[done], Outcome.CONVERGED)
        self._lower_level(at[small & ~done])
        return at[~small], policy.of(~small)

    def improve(self, at: Array, policy: Policy) -> None:
        """Line search: move every environment by the first step size that lowers its cost enough, if there is one."""
        self.iterations[self.unfinished()] += 1
        sizes, group = self.method.step_sizes, 0
        while len(at) and group < len(sizes):
            count = max(1, min(self.problem.dynamics.lanes // len(at), len(sizes) - group))
            taken = self._try(at, policy, np.array(sizes[group : group + count], dtype=self.cost.dtype))
            group += count
            if taken.any():
                at, policy = at[~taken], policy.of(~taken)
        if len(at):
            self._raise_level(at)
            self._end(at[self.level[at] > self.method.most_regularization], Outcome.LINE_SEARCH_FAILED)

    def _try(self, at: Array, policy: Policy, sizes: Array) -> Array:
        """Try step sizes [S] for all environments in one batch; returns which environments moved, bool."""
        problem, count = self.problem, len(sizes)
        origin, now = self._of(at, self.states, self.controls)
        steps, batch, nu = now.shape
        wanted = (now[:, None] + sizes[:, None, None] * policy.feedforward[:, None]).reshape(steps, -1, nu)
        start = problem.x if batch == len(self.codes) else problem.x[at]
        gains, around = (_repeated(torch.from_numpy(x), count, 1) for x in (policy.gains, origin))
        states, controls = problem.dynamics.track(
            _repeated(start, count, 0), torch.from_numpy(wanted), gains, around, problem.low, problem.high
        )
        cost, before = problem.cost.total(states, controls).numpy().reshape(count, batch), self.cost[at]
        promised = ARMIJO * sizes[:, None] * policy.slope
        good = (cost <= before + promised) & (cost < before)
        taken, which = good.any(0), good.argmax(0)  # The first good one, however many are tried together.
        moved, which = at[taken], which[taken]
        chosen = which * batch + np.flatnonzero(taken)
        self.states[:, moved], self.controls[:, moved] = states.numpy()[:, chosen], controls.numpy()[:, chosen]
        self.cost[moved], self.stale[moved] = cost[which, np.flatnonzero(taken)], True
        self._lower_level(moved[sizes[which] >= GOOD_STEP])
        return taken

    def _raise_level(self, at: Array) -> None:
        self.factor[at] = GROWTH * np.maximum(self.factor[at], 1.0)
        self.level[at] = np.maximum(self.level[at] * self.factor[at], self.method.least_regularization)

    def _lower_level(self, at: Array) -> None:
        self.factor[at] = np.minimum(self.factor[at], 1.0) / GROWTH
        level = self.level[at] * self.factor[at]
        self.level[at] = np.where(level < self.method.least_regularization, 0.0, level)

    def solution(self) -> Solution:
        outcomes = [code or Outcome.MAX_ITERATIONS for code in self.codes]
        gains = self.gains
        if not gains.size:  # No environment ever had a policy.
            d = self.problem.dynamics.difference(self.problem.x[:1], self.problem.x[:1]).shape[-1]
            gains = np.zeros((*self.controls.shape, d), self.cost.dtype)
        arrays = (self.controls, self.states, self.cost, self.iterations)
        controls, states, cost, iterations = map(torch.from_numpy, arrays)
        return Solution(controls, states, cost, iterations, outcomes, torch.from_numpy(gains))


def _repeated(x: Tensor, count: int, dim: int) -> Tensor:
    """x.repeat along one dimension, without a copy if there is one environment."""
    return x.unsqueeze(dim).expand(*x.shape[:dim], count, *x.shape[dim:]).flatten(dim, dim + 1)
