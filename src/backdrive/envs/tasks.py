"""The registered tasks, by name; each module is imported when one of its tasks is made."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..model import checks
from .task import Task


@dataclass(frozen=True)
class Entry:
    """The function of this package that makes a task, as "module:function", and the task's time limit in steps."""

    maker: str
    max_episode_steps: int


TASKS = {
    "CartPole": Entry("classic:cart_pole", 500),
    "Pendulum": Entry("classic:pendulum", 200),
    "NLinkPendulum": Entry("classic:n_link_pendulum", 100),
    "Hopper": Entry("locomotion:hopper", 1000),
    "HalfCheetah": Entry("locomotion:half_cheetah", 1000),
    "Ant": Entry("locomotion:ant", 1000),
    "Laikago": Entry("laikago:laikago", 1000),
}


TWINS = {
    "MuJoCoHopper": Entry("mujoco.runners:hopper", 1000),
    "MuJoCoWalker2d": Entry("mujoco.runners:walker2d", 1000),
    "MuJoCoHalfCheetah": Entry("mujoco.runners:half_cheetah", 1000),
    "MuJoCoSwimmer": Entry("mujoco.runners:swimmer", 1000),
    "MuJoCoAnt": Entry("mujoco.runners:ant", 1000),
    "MuJoCoHumanoid": Entry("mujoco.humanoids:humanoid", 1000),
    "MuJoCoHumanoidStandup": Entry("mujoco.humanoids:humanoid_standup", 1000),
    "MuJoCoPusher": Entry("mujoco.arms:pusher", 100),
    "MuJoCoReacher": Entry("mujoco.arms:reacher", 50),
    "MuJoCoInvertedPendulum": Entry("mujoco.pendulums:inverted_pendulum", 1000),
    "MuJoCoInvertedDoublePendulum": Entry("mujoco.pendulums:inverted_double_pendulum", 1000),
}
"""Twins of Gymnasium's environments of the same name without "MuJoCo", with its version number."""
TWIN_VERSION = 5


def find(task: Task | str, options: Mapping[str, Any] | None = None) -> Task:
    """The task with this name, made with the options; or the given task itself, which takes no options."""
    if not isinstance(task, str):
        if options:
            raise TypeError(f"a Task takes no options, got {', '.join(options)}")
        return task
    known = {**TASKS, **TWINS}
    if task not in known:
        raise ValueError(checks.unknown("task", task, known))
    module, function = known[task].maker.split(":")
    maker = getattr(importlib.import_module(f".{module}", __package__), function)
    names = getattr(maker, "options", None) or tuple(inspect.signature(maker).parameters)
    for name in options or {}:
        if name not in names:
            raise TypeError(f"{task}: {checks.unknown('option', name, names)}")
    return maker(**(options or {}))
