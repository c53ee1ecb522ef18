"""Balancing by model-predictive control: in every step, iLQR over a few steps of a learned model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...control import ILQR, MPC, Cost
from .game import CAP, FORCE, CartPole
from .model_batch import ModelBatch

HORIZON = 5
PLANNER = ILQR(max_iterations=2, tolerance=1e-4)


def _leaning(x: Tensor) -> Tensor:
    return x[2].square()


COST = Cost(lambda x, u, t: _leaning(x), _leaning)  # The paper's cost: the square of the pole's angle.


def balance(
    dynamics: ModelBatch, models: Sequence[int], seeds: Sequence[int], tick: Callable[[int, int], None] | None = None
) -> list[int]:
    """The rewards of episodes, each with its own model and seed, run in one batch. tick: called with the progress."""
    envs = [CartPole() for _ in seeds]
    rows = [[*env.reset(seed), model] for env, seed, model in zip(envs, seeds, models, strict=True)]
    x = torch.tensor(rows, dtype=torch.float64)
    rewards = [0] * len(envs)
    going = list(range(len(envs)))
    mpc = MPC(dynamics, COST, HORIZON, limits=(-FORCE, FORCE), method=PLANNER)
    while going:
        if tick is not None:
            tick(max(rewards), CAP)
        seen, over = zip(*(envs[k].push(u) for k, u in zip(going, mpc.act(x)[:, 0].tolist(), strict=True)), strict=True)
        for k in going:
            rewards[k] += 1
        x = torch.cat([torch.tensor(seen, dtype=torch.float64), x[:, 4:]], -1)
        if any(over):  # The other episodes continue from their last plans.
            left = ~torch.tensor(over)
            assert mpc.plan is not None
            controls = mpc.plan.controls[[*range(1, HORIZON), HORIZON - 1]][:, left]
            going, x = [k for k, end in zip(going, over, strict=True) if not end], x[left]
            mpc = MPC(dynamics, COST, HORIZON, limits=(-FORCE, FORCE), method=PLANNER, controls=controls)
    return rewards
