"""The methods, with the settings of Qiao et al.'s code where these have a meaning for them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...learn import SAC, SHAC
from ..comparison import Method, at_once, one_by_one
from ..gradient_free.mbpo import MBPO
from ..gradient_free.ppo import proximal
from ..gradient_free.sql import SQL

SOFT: dict[str, Any] = {
    "updates": 20, "discount": 0.99, "learning_rate": 3e-4, "target_entropy": -4.0, "explore": 5000, "keep": 0.995,
    # Smaller than theirs (256 transitions, 256 neurons): two million updates are to take hours and not days.
    "batch": 64, "actor": (128, 128), "critic": (128, 128),
}  # fmt: skip
NEIGHBOURS = {"enhance": "samples", "extra": 9, "spread": 0.01}


def fallen(observations: Tensor) -> Tensor:
    """Whether the height of the torso, the first of the observations, is not that of an Ant that stands."""
    return (observations[..., 0] < 0.2) | (observations[..., 0] > 1.0)


METHODS: dict[str, Method] = {
    "sac": lambda trial: at_once(trial, SAC, SOFT),
    "sac-samples": lambda trial: at_once(trial, SAC, {**SOFT, **NEIGHBOURS}),
    "ppo": lambda trial: proximal(trial, n_steps=1000, batch_size=50, learning_rate=3e-4),
    "sql": lambda trial: at_once(trial, SQL, {**SOFT, "temperature": 1.0 / 300.0, "particles": 8}),
    "mbpo": lambda trial: at_once(trial, MBPO, {**SOFT, "rollout": (20, 100, 1, 25)}, terminates=fallen),
    "shac": lambda trial: one_by_one(trial, SHAC, {"num_envs": 16}),
}
