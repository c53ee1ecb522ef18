"""Scores of a policy, in backdrive's environments or any other of Gymnasium's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from ..model import checks


@dataclass(frozen=True)
class Score:
    """returns and lengths (steps) of the episodes, [episodes] each."""

    returns: np.ndarray
    lengths: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(self.returns.std())

    def __repr__(self) -> str:
        episodes = f"{len(self.returns)} episodes of {self.lengths.mean():.0f} steps"
        return f"Score({self.mean:,.1f} ± {self.std:,.1f}, {episodes})"


@torch.no_grad()
def evaluate(policy: nn.Module, env: Any, *, episodes: int = 20, seed: int = 0) -> Score:
    """Run a policy for some episodes, in environments of Gymnasium; episode i starts from the seed `seed` + i.

    policy: a module from observations [B, n] to actions [B, na], such as `Agent.policy()`. env: the id of an environment,
    e.g. "Ant-v5" or "backdrive/MuJoCoAnt-v5", or an environment with its own time limit.
    """
    import gymnasium

    checks.integer(episodes, "episodes")
    opened = gymnasium.make(env) if isinstance(env, str) else env
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    try:
        for i in range(episodes):
            observation, _ = opened.reset(seed=seed + i)
            done = False
            while not done:
                action = policy(torch.as_tensor(np.asarray(observation), dtype=torch.float32)[None])[0].numpy()
                observation, reward, terminated, truncated, _ = opened.step(action)
                returns[i] += float(reward)
                lengths[i] += 1
                done = bool(terminated or truncated)
    finally:
        if isinstance(env, str):
            opened.close()
    return Score(returns, lengths)
