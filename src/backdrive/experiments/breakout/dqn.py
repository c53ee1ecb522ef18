"""The baseline: DQN of Stable-Baselines3 with the network of Mnih et al. 2015 on small grey frames."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .game import STICKY, Action, load
from .perception import HEIGHT, LEFT, PADDLE_TOP, RIGHT, TOP

SKIP = 4  # Frames per action, as usual for model-free methods.
STACK = 4  # Observations that the network sees at once.


def available() -> bool:
    return importlib.util.find_spec("stable_baselines3") is not None


@dataclass(frozen=True)
class Trained:
    """Number of training frames, and the scores of whole games played after training."""

    frames: int
    scores: list[float]


def train(
    steps: int, episodes: int, seed: int, frames: int, progress: Callable[[str, int, int], None] = lambda *_: None
) -> Trained:
    """Train for `steps` actions of 4 frames each; then play `episodes` games of at most `frames` frames."""
    from stable_baselines3 import DQN

    def tick(now: Any, _: Any) -> bool:
        if now["self"].num_timesteps % 100 == 0:
            progress("DQN learns", now["self"].num_timesteps, steps)
        return True

    env = _environment()
    agent = DQN(
        "CnnPolicy", env, learning_rate=1e-4, buffer_size=min(steps, 50_000), learning_starts=min(1000, steps // 5),
        batch_size=32, train_freq=4, target_update_interval=1000, exploration_fraction=0.5, exploration_final_eps=0.05,
        seed=seed, device="cpu",
    )  # fmt: skip
    agent.learn(steps, callback=tick)
    scores = []
    for episode in range(episodes):
        progress("DQN plays", episode, episodes)
        seen, _ = env.reset(seed=seed + 1 + episode)
        score = 0.0
        for _ in range(frames // SKIP):
            action, _ = agent.predict(seen, deterministic=False)
            seen, reward, over, _, _ = env.step(action)
            score += float(reward)
            if over:
                break
        scores.append(score)
    env.close()
    return Trained(SKIP * steps, scores)


def _environment() -> Any:
    """The game in grey, at half the resolution, cropped to the field, 4 observations stacked, with automatic serves."""
    gymnasium = load()
    rows = slice(HEIGHT - TOP, HEIGHT - PADDLE_TOP + 4, 2)

    class Small(gymnasium.ObservationWrapper):  # type: ignore[name-defined]
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            shape = (1, len(range(HEIGHT)[rows]), (RIGHT - LEFT) // 2)
            self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)

        def observation(self, observation: np.ndarray) -> np.ndarray:
            return observation[rows, LEFT:RIGHT:2].max(-1)[None]

    class Served(gymnasium.Wrapper):  # type: ignore[name-defined]
        def reset(self, **kwargs: Any) -> Any:
            self.lives = 0
            return self.env.reset(**kwargs)

        def step(self, action: Any) -> Any:
            lives = self.env.unwrapped.ale.lives()
            lost, self.lives = lives != self.lives, lives
            return self.env.step(int(Action.FIRE) if lost else int(action))

    env = gymnasium.make("ALE/Breakout-v5", frameskip=SKIP, repeat_action_probability=STICKY)
    stacked = gymnasium.wrappers.FrameStackObservation(Small(Served(env)), STACK)
    shape = stacked.observation_space.shape
    flat = gymnasium.spaces.Box(0, 255, (shape[0] * shape[1], *shape[2:]), np.uint8)
    return gymnasium.wrappers.TransformObservation(stacked, lambda x: x.reshape(flat.shape), flat)
