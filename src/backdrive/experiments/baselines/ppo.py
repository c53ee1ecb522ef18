"""Proximal policy optimisation (Schulman et al. 2017), that of Stable-Baselines3."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..comparison import Course, Progress


def proximal(course: Course, **settings: Any) -> list[Progress]:
    """Train the seeds of a course one after another. settings: of `stable_baselines3.PPO`."""
    from stable_baselines3 import PPO  # An optional dependency.
    from stable_baselines3.common.callbacks import BaseCallback

    from ...envs.stable_baselines import BatchedEnv

    class Score(BaseCallback):
        """Scores the policy after every rollout, but at most once in `every` samples."""

        def __init__(self, share: float) -> None:
            super().__init__()
            self.share, self.progress = share, Progress([], [], [])

        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            self.look()

        def _on_training_end(self) -> None:
            self.look()

        def look(self) -> None:
            seen, last = self.num_timesteps, self.progress.samples[-1:] or [0]
            if seen >= last[0] + course.every or (seen >= course.samples and seen > last[0]):
                self.progress.samples.append(seen)
                self.progress.simulated.append(seen)
                self.progress.scores.append(round(course.scores(act, course.seeds[:1])[0], 5))
            course.advance(self.share + min(1.0, seen / course.samples) / len(course.seeds))

    found = []
    for k, seed in enumerate(course.seeds):
        env = BatchedEnv(course.task, num_envs=1, max_episode_steps=course.limit, threads=1)
        agent = PPO("MlpPolicy", env, seed=seed, device="cpu", **settings)

        def act(observations: Tensor, agent: PPO = agent) -> Tensor:
            actions, _ = agent.predict(observations.flatten(0, 1).numpy(), deterministic=True)
            return torch.as_tensor(actions).view(*observations.shape[:2], -1)

        score = Score(k / len(course.seeds))
        agent.learn(course.samples, callback=score)
        found.append(score.progress)
    return found
