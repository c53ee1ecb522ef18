"""The Atari game: Gymnasium's ``ALE/Breakout-v5`` with one action per frame and sticky actions."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

Array = np.ndarray

STICKY = 0.25  # Probability that a frame repeats the previous action instead of the new one.


class Action(enum.IntEnum):
    """The game's actions."""

    NOOP = 0
    FIRE = 1
    RIGHT = 2
    LEFT = 3

    @property
    def direction(self) -> float:
        """The direction in which the paddle is pushed: 1 right, -1 left, 0 none."""
        return {Action.RIGHT: 1.0, Action.LEFT: -1.0}.get(self, 0.0)


@dataclass(frozen=True)
class Turn:
    """The result of one action: the frame, uint8 [210, 160, 3], the points won, and whether the game is over."""

    frame: Array
    reward: float
    over: bool


class Game:
    """The emulator, which plays one game after the other."""

    def __init__(self) -> None:
        gymnasium = load()
        self.env: Any = gymnasium.make(
            "ALE/Breakout-v5", frameskip=1, repeat_action_probability=STICKY, full_action_space=False,
            max_num_frames_per_episode=0,
        )  # fmt: skip

    def reset(self, seed: int) -> Turn:
        """Start a new game, with the randomness of a seed."""
        frame, _ = self.env.reset(seed=seed)
        return Turn(frame, 0.0, False)

    def act(self, action: Action) -> Turn:
        frame, reward, terminated, truncated, _ = self.env.step(int(action))
        return Turn(frame, float(reward), bool(terminated or truncated))

    def __enter__(self) -> Game:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.env.close()


def load() -> Any:
    """Import gymnasium, with the Atari games registered."""
    try:
        import ale_py
        import gymnasium
    except ImportError as error:
        raise ImportError("breakout needs ale-py and gymnasium: pip install 'backdrive[atari]'") from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    return gymnasium
