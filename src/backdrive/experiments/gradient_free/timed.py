"""SAC and PPO of Stable-Baselines3 in Gymnasium's own environments, for a given time: what others reach meanwhile.

Settings are the defaults of Stable-Baselines3; PPO has eight environments, and normalises observations and rewards, as
is usual for locomotion.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

METHODS = {"sac": "SAC", "ppo": "PPO"}
PPO_ENVS = 8


@dataclass
class Baseline:
    """A trained policy from observations [B, n] to actions [B, na], the number of steps, and the curve of training."""

    policy: Callable[[Tensor], Tensor]
    steps: int
    curve: dict[str, list[float]] = field(default_factory=dict)


def train(method: str, env: str, seed: int, seconds: float, tell: Callable[[float], None]) -> Baseline:
    """Train for some seconds. env: an id of Gymnasium. tell: called with the seconds that are over."""
    try:
        import stable_baselines3 as sb3
        from stable_baselines3.common.callbacks import BaseCallback
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import VecNormalize
    except ImportError as error:
        raise ImportError(f"--method {method} needs Stable-Baselines3: pip install 'backdrive[sb3]'") from error

    envs: Any = make_vec_env(env, PPO_ENVS if method == "ppo" else 1, seed=seed)
    if method == "ppo":
        envs = VecNormalize(envs)
    model = getattr(sb3, METHODS[method])("MlpPolicy", envs, seed=seed, device="cpu")
    curve: dict[str, list[float]] = {"seconds": [], "steps": [], "return": []}

    class Watch(BaseCallback):
        """Ends training when its time is over, and records returns of episodes."""

        def _on_training_start(self) -> None:
            self.begin = time.perf_counter()

        def _on_step(self) -> bool:
            now = time.perf_counter() - self.begin
            episodes = [x["r"] for x in self.model.ep_info_buffer or []]
            if episodes and now > (curve["seconds"][-1] if curve["seconds"] else 0.0) + seconds / 200.0:
                for name, x in (("seconds", now), ("steps", self.num_timesteps), ("return", np.mean(episodes))):
                    curve[name].append(round(float(x), 3))
                tell(now)
            return now < seconds

    model.learn(10**9, callback=Watch())

    def policy(observations: Tensor) -> Tensor:
        x = observations.numpy()
        actions, _ = model.predict(envs.normalize_obs(x) if method == "ppo" else x, deterministic=True)
        return torch.from_numpy(actions)

    return Baseline(policy, int(model.num_timesteps), curve)
