"""The methods, with the settings of Qiao et al.'s code where these have a meaning for them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...learn import BPTT, SAC, SHAC
from ..comparison import Method, Trial, at_once, one_by_one
from ..gradient_free.mbpo import MBPO
from ..gradient_free.ppo import proximal
from ..gradient_free.sql import SQL
from .world import FRAMES, most

SOFT: dict[str, Any] = {
    "updates": 5, "discount": 1.0, "learning_rate": 3e-4, "target_entropy": -0.01, "explore": 500, "keep": 0.995,
    # Smaller than theirs (256 transitions, 256 neurons), so that all parts together take hours and not days.
    "batch": 64, "actor": (64, 64), "critic": (64, 64),
}  # fmt: skip

MODEL = {"rollout": (1, 15, 1, 10), "model_updates": 100, "branches": 2500}


def soft(trial: Trial, temperature: float = 0.04) -> dict[str, Any]:
    """Settings with a temperature in units of the largest return. Theirs begins at 1 for all tasks, which is 0.04 of
    the largest return with 7 links. With 1 link it would be twice that return, and take long to fall."""
    return {**SOFT, "temperature": temperature * most(trial.task.model.nu)}


def over(observations: Tensor) -> Tensor:
    """Whether the time, the last of the observations, is up."""
    return observations[..., -1] > 1.0 - 0.5 / FRAMES


METHODS: dict[str, Method] = {
    "sac": lambda trial: at_once(trial, SAC, soft(trial)),
    "sac-policy": lambda trial: at_once(trial, SAC, {**soft(trial), "enhance": "policy"}),
    "ppo": lambda trial: proximal(trial, n_steps=200, batch_size=50, gamma=1.0, learning_rate=3e-4),
    "sql": lambda trial: at_once(trial, SQL, {**soft(trial, 0.06), "particles": 8, "batch": 32}),
    "mbpo": lambda trial: at_once(trial, MBPO, {**soft(trial), **MODEL}, terminates=over),
    "shac": lambda trial: one_by_one(
        trial, SHAC, {"num_envs": 4, "horizon": 25, "discount": 1.0, "terminal_value": False}
    ),
    "bptt": lambda trial: one_by_one(trial, BPTT, {"num_envs": 1, "learning_rate": 5e-3}),
}
