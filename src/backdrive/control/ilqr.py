"""iLQR: linearise the steps, expand the costs to second order, solve that problem, take as much of it as helps.

The value recursion is that of differential dynamic programming with the dynamics to first order (Li & Todorov 2004);
regularisation, line search and limits follow Tassa et al. (2012, 2014). All environments move at once, each with its
own regularisation, and are left alone when they are done.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..model import checks
from .problem import Problem, Solution, whole_number
from .result import Outcome
from .riccati import Policy, backward

ARMIJO = 1e-4  # part of the promised decrease that a step must bring
EXACT = 1e-22  # a cost so small beside that at the start is rounding
GOOD_STEP = 0.3  # step sizes from which on regularisation is lowered
GROWTH = 1.6  # of the factor by which regularisation changes


@dataclass(frozen=True)
class ILQR:
    """max_iterations: at most so many, each one pass back and one forth.

    tolerance: converged when the cost is expected to fall by less than this part of it.
    regularization: weights of μ on the state and on the control: μ (ws, wc) is added to the diagonals of the cost to
        come and of the control's. μ is zero at first, grows where that is not convex or no step helps, and falls
        again.
    least_regularization, most_regularization: of μ, when it is not zero; beyond the second an environment is given up.
    step_sizes: tried from the first on; where steps of many environments at once cost no more, together.
    """

    max_iterations: int = 200
    tolerance: float = 1e-8
    regularization: tuple[float, float] = (1.0, 1.0)
    least_regularization: float = 1e-6
    most_regularization: float = 1e10
    step_sizes: tuple[float, ...] = tuple(0.5**k for k in range(11))

    def __post_init__(self) -> None:
        whole_number("max_iterations", self.max_iterations)
        checks.number(self.tolerance, "tolerance", low=0.0)
        checks.number(self.least_regularization, "least_regularization", low=0.0, strict=True)
        checks.number(self.most_regularization, "most_regularization", low=self.least_regularization, strict=True)
        if len(self.regularization) != 2 or min(self.regularization) < 0 or max(self.regularization) == 0:
            raise ValueError(f"regularization must be two weights >= 0, not both 0, got {self.regularization!r}")
        if not self.step_sizes or not all(0 < size <= 1 for size in self.step_sizes):
            raise ValueError(f"step_sizes must be numbers above 0 and up to 1, got {self.step_sizes!r}")

    def solve(self, problem: Problem, controls: Tensor) -> Solution:
        search = _Search(self, problem, controls)
        problem.record(search.cost)
        for _ in range(self.max_iterations):
            at = search.unfinished()
            if len(at) == 0:
                break
            search.differentiate(at)
            at, policy = search.find_policy(at)
            at, policy = search.stop_where_converged(at, policy)
            if len(search.unfinished()):
                search.improve(at, policy)
                problem.record(search.cost)
        outcomes = [code or Outcome.MAX_ITERATIONS for code in search.codes]
        return Solution(search.controls, search.states, search.cost, search.iterations, outcomes, search.gains)


class _Search:
    """The trajectories of all B environments, the problem about them to second order, and which are finished."""

    def __init__(self, method: ILQR, problem: Problem, controls: Tensor) -> None:
        self.method, self.problem, self.controls = method, problem, controls.clone()
        steps, batch, nu = controls.shape
        x, bill, dynamics = problem.x, problem.bill, problem.dynamics
        self.states = dynamics.rollout(x, controls)
        self.cost = bill.total(self.states, controls)
        self.floor = EXACT * self.cost.abs()
        d = dynamics.difference(x[:1], x[:1]).shape[-1]
        self.F, self.H = x.new_empty(steps, batch, d, nu + d), x.new_empty(steps, batch, nu + d + 1, nu + d + 1)
        self.end = x.new_empty(batch, d + 1, d + 1)
        self.stale = torch.ones(batch, dtype=torch.bool)
        self.gains = x.new_zeros(steps, batch, nu, d)
        self.level, self.factor = x.new_zeros(batch), x.new_ones(batch)  # of regularisation: μ, and how it changes
        self.iterations = torch.zeros(batch, dtype=torch.int64)
        self.codes: list[Outcome | None] = [None] * batch
        self._end(torch.nonzero(~torch.isfinite(self.cost)).flatten(), Outcome.DIVERGED)

    def unfinished(self) -> Tensor:
        return torch.tensor([b for b, code in enumerate(self.codes) if code is None], dtype=torch.int64)

    def _end(self, at: Tensor, code: Outcome) -> None:
        for b in at.tolist():
            self.codes[b] = code

    def differentiate(self, at: Tensor) -> None:
        """Linearise about the trajectories that have changed."""
        at = at[self.stale[at]]
        if len(at) == 0:
            return
        steps = len(self.controls)
        states, controls = self.states[:, at], self.controls[:, at]
        A, B = self.problem.dynamics.linearize(states[:-1].flatten(0, 1), controls.flatten(0, 1))
        self.F[:, at] = torch.cat([B, A], -1).unflatten(0, (steps, len(at)))
        self.H[:, at], self.end[at] = self.problem.bill.expand(states, controls)
        self.stale[at] = False

    def find_policy(self, at: Tensor) -> tuple[Tensor, Policy]:
        """The policies of all environments for which there are some, with as much regularisation as they need."""
        policy = self._backward(at)
        self.raised = torch.zeros(len(self.cost), dtype=torch.bool)
        while not bool(policy.sound.all()):
            wrong = torch.nonzero(~policy.sound).flatten()
            self._raise_level(at[wrong])
            self.raised[at[wrong]] = True
            hopeless = self.level[at[wrong]] > self.method.most_regularization
            self._end(at[wrong[hopeless]], Outcome.NOT_CONVEX)
            again = wrong[~hopeless]
            if len(again):
                for whole, part in zip(_parts(policy), _parts(self._backward(at[again])), strict=True):
                    whole[..., again] = part
            kept = torch.ones(len(at), dtype=torch.bool)
            kept[wrong[hopeless]] = False
            at, policy = at[kept], _select(policy, kept)
        self.gains[:, at] = policy.gains
        return at, policy

    def _backward(self, at: Tensor) -> Policy:
        low = high = None
        if self.problem.limited:
            now = self.controls[:, at]
            low, high = self.problem.low - now, self.problem.high - now
        level = torch.stack([weight * self.level[at] for weight in self.method.regularization], -1)
        everyone = len(at) == len(self.cost)
        F, H, end = (self.F, self.H, self.end) if everyone else (self.F[:, at], self.H[:, at], self.end[at])
        return backward(F, H, end, low, high, level)

    def stop_where_converged(self, at: Tensor, policy: Policy) -> tuple[Tensor, Policy]:
        """Leave out environments whose cost is not expected to fall: they are done, or regularised too much."""
        cost = self.cost[at]
        tolerance = max(self.method.tolerance, 16 * torch.finfo(cost.dtype).eps)
        small = (-policy.expected <= tolerance * cost.abs()) | (cost.abs() < self.floor[at])
        done = small & ((self.level[at] == 0) | self.raised[at])
        self._end(at[done], Outcome.CONVERGED)
        self._lower_level(at[small & ~done])
        return at[~small], _select(policy, ~small)

    def improve(self, at: Tensor, policy: Policy) -> None:
        """A step of every environment, of the first size that lowers its cost by enough, if any does."""
        self.iterations[self.unfinished()] += 1
        sizes, group = self.method.step_sizes, 0
        while len(at) and group < len(sizes):
            count = max(1, min(self.problem.dynamics.lanes // len(at), len(sizes) - group))
            tried = torch.tensor(sizes[group : group + count], dtype=self.cost.dtype)
            group += count
            taken = self._try(at, policy, tried)
            at, policy = at[~taken], _select(policy, ~taken)
        self._raise_level(at)
        self._end(at[self.level[at] > self.method.most_regularization], Outcome.LINE_SEARCH_FAILED)

    def _try(self, at: Tensor, policy: Policy, sizes: Tensor) -> Tensor:
        """Step sizes [S] for all environments in one batch; which of these have moved."""
        problem, count = self.problem, len(sizes)
        start, origin, now = problem.x[at], self.states[:, at], self.controls[:, at]
        wanted = (now + sizes.view(-1, 1, 1, 1) * policy.feedforward).transpose(0, 1).flatten(1, 2)  # [T, S b, nu]
        gains, origin = policy.gains.repeat(1, count, 1, 1), origin.repeat(1, count, 1)
        states, controls = problem.dynamics.track(
            start.repeat(count, 1), wanted, gains, origin, problem.low, problem.high
        )
        cost = problem.bill.total(states, controls).view(count, -1)
        promised = ARMIJO * sizes.unsqueeze(-1) * policy.slope
        good = (cost <= self.cost[at] + promised) & (cost < self.cost[at])
        taken, which = good.any(0), good.int().argmax(0)  # the first: how many are tried together must not matter
        best = cost.gather(0, which.unsqueeze(0)).squeeze(0)
        chosen = (which * len(at) + torch.arange(len(at)))[taken]
        moved = at[taken]
        self.states[:, moved], self.controls[:, moved] = states[:, chosen], controls[:, chosen]
        self.cost[moved], self.stale[moved] = best[taken], True
        self._lower_level(moved[sizes[which[taken]] >= GOOD_STEP])
        return taken

    def _raise_level(self, at: Tensor) -> None:
        self.factor[at] = GROWTH * self.factor[at].clamp_min(1.0)
        self.level[at] = (self.level[at] * self.factor[at]).clamp_min(self.method.least_regularization)

    def _lower_level(self, at: Tensor) -> None:
        self.factor[at] = self.factor[at].clamp_max(1.0) / GROWTH
        level = self.level[at] * self.factor[at]
        self.level[at] = torch.where(level < self.method.least_regularization, 0.0, level)


def _parts(policy: Policy) -> list[Tensor]:
    """Views of everything in a policy, with the environments last."""
    return [policy.gains.movedim(1, -1), policy.feedforward.movedim(1, -1), policy.expected, policy.slope, policy.sound]


def _select(policy: Policy, which: Tensor) -> Policy:
    if bool(which.all()):
        return policy
    return Policy(
        policy.gains[:, which], policy.feedforward[:, which], policy.expected[which], policy.slope[which],
        policy.sound[which],
    )  # fmt: skip
