"""The Atari game: Gymnasium's ``ALE/Breakout-v5``, one action for every frame, and actions that sometimes stick."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

Array = np.ndarray

STICKY = 0.25  # the probability with which a frame repeats the last action instead


class Action(enum.IntEnum):
    """As the game numbers them."""

    NOOP = 0
    FIRE = 1
    RIGHT = 2
    LEFT = 3

    @property
    def direction(self) -> float:
        """In which the paddle is pushed: 1 right, -1 left."""
        return {Action.RIGHT: 1.0, Action.LEFT: -1.0}.get(self, 0.0)


@dataclass(frozen=True)
class Turn:
    """What came of one action: the frame, uint8 [210, 160, 3], the points won, and whether the game is over."""

    frame: Array
    reward: float
    over: bool


class Game:
    """One game after the other."""

    def __init__(self) -> None:
        gymnasium = load()
        self.env: Any = gymnasium.make(
            "ALE/Breakout-v5", frameskip=1, repeat_action_probability=STICKY, full_action_space=False,
            max_num_frames_per_episode=0,
        )  # fmt: skip

    def reset(self, seed: int) -> Turn:
        """A new game, whose chances are those of the seed."""
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
    """Gymnasium, with the Atari games in its registry."""
    try:
        import ale_py
        import gymnasium
    except ImportError as error:
        raise ImportError("breakout needs ale-py and gymnasium: pip install 'backdrive[atari]'") from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    return gymnasium
