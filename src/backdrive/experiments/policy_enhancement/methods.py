"""The methods, with the settings of Qiao et al.'s code where these have a meaning for them."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...learn import BPTT, SAC, SHAC
from ..baselines.mbpo import MBPO
from ..baselines.ppo import proximal
from ..baselines.sql import SQL
from ..comparison import Course, Method, Progress, one_by_one, together
from .world import FRAMES, most

SOFT: dict[str, Any] = {
    "updates": 5, "discount": 1.0, "learning_rate": 3e-4, "target_entropy": -0.01, "explore": 500, "keep": 0.995,
    # Smaller than theirs (256 transitions, 256 neurons), so that all parts together take hours and not days.
    "batch": 64, "actor": (64, 64), "critic": (64, 64),
}  # fmt: skip


def _scale(course: Course) -> float:
    """The largest return of the task, in whose units temperatures are given. Theirs begins at 1 for all tasks, which
    is 0.04 of the largest return with 7 links. With 1 link it would be twice that return, and take long to fall."""
    return most(course.task.model.nu)


def soft_actor_critic(course: Course, **settings: Any) -> list[Progress]:
    file = course.agent_file()
    if file.exists():
        agent = SAC.load(file, course.task)
    else:
        given = {**SOFT, "temperature": 0.04 * _scale(course), **settings}
        agent = SAC(course.task, seed=course.seeds, threads=1, window=course.every, **given)
    return together(course, agent, agent.mean_action, len(course.seeds))


def soft_q_learning(course: Course) -> list[Progress]:
    file = course.agent_file()
    if file.exists():
        agent = SQL.load(file, course.task)
    else:
        given = {**SOFT, "temperature": 0.06 * _scale(course), "particles": 8}
        agent = SQL(course.task, seed=course.seeds, threads=1, window=course.every, **given)
    return together(course, agent, agent.mean_action, len(course.seeds))


def model_based(course: Course) -> list[Progress]:
    def over(observations: Tensor) -> Tensor:
        """Whether the time, the last of the observations, is up."""
        return observations[..., -1] > 1.0 - 0.5 / FRAMES

    file = course.agent_file()
    if file.exists():
        agent = MBPO.load(file, course.task, terminates=over)
    else:
        given = {**SOFT, "temperature": 0.04 * _scale(course), "rollout": (1, 15, 1, 10)}
        agent = MBPO(course.task, terminates=over, seed=course.seeds, threads=1, window=course.every, **given)
    return together(course, agent, agent.mean_action, len(course.seeds))


def short_horizon(course: Course) -> list[Progress]:
    settings: dict[str, Any] = {"num_envs": 4, "horizon": 25, "discount": 1.0, "terminal_value": False}
    return one_by_one(
        course,
        lambda seed: SHAC(course.task, seed=seed, threads=1, max_episode_steps=FRAMES, **settings),
        lambda file: SHAC.load(file, course.task),
    )


def through_time(course: Course) -> list[Progress]:
    settings: dict[str, Any] = {"num_envs": 1, "max_episode_steps": FRAMES, "learning_rate": 5e-3}
    return one_by_one(
        course,
        lambda seed: BPTT(course.task, seed=seed, threads=1, **settings),
        lambda file: BPTT.load(file, course.task),
    )


def proximal_policy(course: Course) -> list[Progress]:
    return proximal(course, n_steps=200, batch_size=50, gamma=1.0, learning_rate=3e-4)


METHODS: dict[str, Method] = {
    "sac": soft_actor_critic,
    "sac-policy": lambda course: soft_actor_critic(course, enhance="policy"),
    "ppo": proximal_policy,
    "sql": soft_q_learning,
    "mbpo": model_based,
    "shac": short_horizon,
    "bptt": through_time,
}
