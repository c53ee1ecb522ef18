"""The methods, with the settings of Qiao et al.'s code where these have a meaning for them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...learn import SAC, SHAC
from ..baselines.mbpo import MBPO
from ..baselines.ppo import proximal
from ..baselines.sql import SQL
from ..comparison import Course, Method, Progress, one_by_one, together

SOFT: dict[str, Any] = {
    "updates": 20, "discount": 0.99, "learning_rate": 3e-4, "target_entropy": -4.0, "explore": 5000, "keep": 0.995,
    "extra": 9, "spread": 0.01,
    # Smaller than theirs (256 transitions, 256 neurons): two million updates are to take hours and not days.
    "batch": 64, "actor": (128, 128), "critic": (128, 128),
}  # fmt: skip


def soft_actor_critic(course: Course, **settings: Any) -> list[Progress]:
    file = course.agent_file()
    if file.exists():
        agent = SAC.load(file, course.task)
    else:
        given = {**SOFT, **settings, "window": course.every, "max_episode_steps": course.limit}
        agent = SAC(course.task, seed=course.seeds, threads=1, **given)
    return together(course, agent, agent.mean_action, len(course.seeds))


def soft_q_learning(course: Course) -> list[Progress]:
    file = course.agent_file()
    if file.exists():
        agent = SQL.load(file, course.task)
    else:
        given = {**SOFT, "temperature": 1.0 / 300.0, "particles": 8, "max_episode_steps": course.limit}
        agent = SQL(course.task, seed=course.seeds, threads=1, window=course.every, **given)
    return together(course, agent, agent.mean_action, len(course.seeds))


def model_based(course: Course) -> list[Progress]:
    def fallen(observations: Tensor) -> Tensor:
        """Whether the height of the torso, the first of the observations, is not that of an Ant that stands."""
        return (observations[..., 0] < 0.2) | (observations[..., 0] > 1.0)

    file = course.agent_file()
    if file.exists():
        agent = MBPO.load(file, course.task, terminates=fallen)
    else:
        given = {**SOFT, "rollout": (20, 100, 1, 25), "max_episode_steps": course.limit}
        agent = MBPO(course.task, terminates=fallen, seed=course.seeds, threads=1, window=course.every, **given)
    return together(course, agent, agent.mean_action, len(course.seeds))


def short_horizon(course: Course) -> list[Progress]:
    settings: dict[str, Any] = {"num_envs": 16, "max_episode_steps": course.limit}
    return one_by_one(
        course,
        lambda seed: SHAC(course.task, seed=seed, threads=1, **settings),
        lambda file: SHAC.load(file, course.task),
    )


METHODS: dict[str, Method] = {
    "sac": soft_actor_critic,
    "sac-samples": lambda course: soft_actor_critic(course, enhance="samples"),
    "ppo": lambda course: proximal(course, n_steps=1000, batch_size=50, learning_rate=3e-4),
    "sql": soft_q_learning,
    "mbpo": model_based,
    "shac": short_horizon,
}
