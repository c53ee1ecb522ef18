"""Gymnasium's CartPole-v1 with a continuous force, and random play."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

DT, GRAVITY, FORCE = 0.02, 9.8, 10.0  # s, m/s², N: Gymnasium's
CAP = 1000  # Steps of an episode, at most; each has a reward of 1.
GOOD = 990.0  # Mean reward that counts as balanced.


class CartPole:
    """CartPole-v1 with any force up to 10 N; episodes end by its own rules, or after `CAP` steps."""

    def __init__(self) -> None:
        self.env: Any = load().make("CartPole-v1", max_episode_steps=CAP, disable_env_checker=True)

    def reset(self, seed: int | None = None) -> list[float]:
        """x (m), its rate, the pole's angle (rad, to the right), its rate; without a seed, the randomness continues."""
        return self.env.reset(seed=seed)[0].tolist()

    def push(self, force: float) -> tuple[list[float], bool]:
        """The observation after a step, and whether the episode is over."""
        if not abs(force) <= FORCE:
            raise ValueError(f"force must be between -{FORCE:g} and {FORCE:g} N, got {force!r}")
        self.env.unwrapped.force_mag = force  # Its action 1 pushes with this force, of either sign.
        seen, _, terminated, truncated, _ = self.env.step(1)
        return seen.tolist(), terminated or truncated


def load() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise ImportError("cartpole needs gymnasium: pip install 'backdrive[envs]'") from error
    return gymnasium


@dataclass(frozen=True)
class Steps:
    """n steps: the observations before [n, 4], the forces [n] (N), and the observations after [n, 4]."""

    before: Tensor
    force: Tensor
    after: Tensor

    def first(self, count: int) -> Steps:
        return Steps(self.before[:count], self.force[:count], self.after[:count])


def play_at_random(count: int, seed: int, generator: torch.Generator) -> Steps:
    """`count` steps with forces uniform in ± 10 N, in as many episodes as needed."""
    env, rows = CartPole(), []
    seen = env.reset(seed)
    for force in (FORCE * (2.0 * torch.rand(count, generator=generator, dtype=torch.float64) - 1.0)).tolist():
        after, over = env.push(force)
        rows.append([*seen, force, *after])
        seen = env.reset() if over else after
    table = torch.tensor(rows, dtype=torch.float64)
    return Steps(table[:, :4], table[:, 4], table[:, 5:])
