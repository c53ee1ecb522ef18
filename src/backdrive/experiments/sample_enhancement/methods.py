"""The methods, with the settings of Qiao et al.'s code where these have a meaning for them."""

from __future__ import annotations

from typing import Any

from ...learn import SAC, SHAC
from ..baselines.ppo import proximal
from ..comparison import Course, Method, Progress, one_by_one, together

SOFT: dict[str, Any] = {
    "updates": 20, "discount": 0.99, "learning_rate": 3e-4, "target_entropy": -4.0, "explore": 5000, "keep": 0.995,
    "extra": 9, "spread": 0.01,
    # Smaller than theirs (256 transitions, 256 neurons): two million updates are to take hours and not days.
    "batch": 64, "actor": (128, 128), "critic": (128, 128),
}  # fmt: skip


def soft_actor_critic(course: Course, **settings: Any) -> list[Progress]:
    file = course.file.with_suffix(".pt")
    if file.exists():
        agent = SAC.load(file, course.task)
    else:
        given = {**SOFT, **settings, "window": course.every, "max_episode_steps": course.limit}
        agent = SAC(course.task, seed=course.seeds, threads=1, **given)
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
    "shac": short_horizon,
}
