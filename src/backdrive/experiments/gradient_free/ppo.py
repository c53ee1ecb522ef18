"""Proximal policy optimisation (Schulman et al. 2017), that of Stable-Baselines3."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..comparison import Progress, Trial


def proximal(trial: Trial, **settings: Any) -> list[Progress]:
    """Train the seeds of a trial one after another. settings: of `stable_baselines3.PPO`."""
    from stable_baselines3 import PPO  # An optional dependency.
    from stable_baselines3.common.callbacks import BaseCallback

    from ...envs.stable_baselines import BatchedEnv

    class Scorer(BaseCallback):
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
            if seen >= last[0] + trial.every or (seen >= trial.samples and seen > last[0]):
                self.progress.samples.append(seen)
                self.progress.simulated.append(seen)
                self.progress.scores.append(round(trial.scores(act, trial.seeds[:1])[0], 5))
            trial.advance(self.share + min(1.0, seen / trial.samples) / len(trial.seeds))

    found = []
    for k, seed in enumerate(trial.seeds):
        env = BatchedEnv(trial.task, num_envs=1, max_episode_steps=trial.limit, threads=1)
        agent = PPO("MlpPolicy", env, seed=seed, device="cpu", **settings)

        def act(observations: Tensor, agent: PPO = agent) -> Tensor:
            actions, _ = agent.predict(observations.flatten(0, 1).numpy(), deterministic=True)
            return torch.as_tensor(actions).view(*observations.shape[:2], -1)

        scorer = Scorer(k / len(trial.seeds))
        agent.learn(trial.samples, callback=scorer)
        found.append(scorer.progress)
    return found
