"""Scores of a policy, in backdrive's environments or any other of Gymnasium's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from .. import envs as _registered  # noqa: F401
from ..model import checks

Policy = nn.Module | Callable[[Tensor], Tensor]


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
def evaluate(
    policy: Policy, env: str | gymnasium.Env | gymnasium.vector.VectorEnv, *, episodes: int = 20, seed: int = 0
) -> Score:
    """Run a policy for some episodes in an environment of Gymnasium; episode i starts from the seed `seed` + i.

    policy: a module from observations [B, n] to actions [B, na], such as `Agent.policy()`. env: the id of an
    environment, e.g. "Ant-v5" or "backdrive/MuJoCoAnt-v5"; or an environment with its own time limit; or a vector
    environment, which runs one episode in each of its environments, and `episodes` does not count.
    """
    if isinstance(env, gymnasium.vector.VectorEnv):
        return _at_once(policy, env, seed)
    checks.integer(episodes, "episodes")
    opened = gymnasium.make(env) if isinstance(env, str) else env
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    try:
        for i in range(episodes):
            observation, _ = opened.reset(seed=seed + i)
            done = False
            while not done:
                action = _actions(policy, np.asarray(observation)[None], opened.action_space.shape)[0]
                observation, reward, terminated, truncated, _ = opened.step(action)
                returns[i] += float(reward)
                lengths[i] += 1
                done = bool(terminated or truncated)
    finally:
        if isinstance(env, str):
            opened.close()
    return Score(returns, lengths)


def _at_once(policy: Policy, env: gymnasium.vector.VectorEnv, seed: int) -> Score:
    """The first episodes of all environments."""
    returns, lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, np.int64)
    running = np.ones(env.num_envs, bool)
    observations, _ = env.reset(seed=seed)
    while running.any():
        actions = _actions(policy, observations, env.single_action_space.shape)
        observations, rewards, terminated, truncated, _ = env.step(actions)
        returns += np.where(running, rewards, 0.0)
        lengths += running
        running &= ~(terminated | truncated)
    return Score(returns, lengths)


def _actions(policy: Policy, observations: np.ndarray, wanted: Any) -> np.ndarray:
    """The actions for observations [B, n]; raises where a policy's sizes are not those of the environment."""
    x = torch.as_tensor(observations, dtype=torch.float32)
    try:
        actions = policy(x).numpy()
    except RuntimeError as error:
        if "shape" not in str(error) and "size" not in str(error):
            raise
        raise ValueError(f"this policy is not for observations of {tuple(x.shape[1:])} numbers: {error}") from None
    if actions.shape[1:] != wanted:
        shape = actions.shape[1:]
        raise ValueError(f"actions of this policy have the shape {shape}, those of the environment {wanted}")
    return actions


def widened(policy: nn.Module, size: int, columns: list[int] | range) -> nn.Sequential:
    """The policy, for observations [..., size] of which it sees only some columns.

    An agent may thus learn with fewer observations than an environment has, and run in that environment.
    """
    select = nn.Linear(size, len(columns), bias=False)
    with torch.no_grad():
        select.weight.zero_()
        select.weight[torch.arange(len(columns)), torch.tensor(columns)] = 1.0
    return nn.Sequential(select, policy).requires_grad_(False).eval()
