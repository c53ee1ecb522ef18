"""The scene that models the game: walls, bricks, ball and paddle, in pixels and frames, with elastic bounces.

The game's ball is 2 px wide and 4 px high and never rotates; here it is a circle of radius 1 px, and obstacles extend
1 px farther upwards and downwards instead. A brick that is gone stays in the scene but is moved out of reach by a
parameter, so that one kernel serves a whole game.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...model import Box, Circle, HalfSpace, Model, Scene, Slider, State
from ...simulator import Simulator
from ...trajectory import Trajectory
from .paddle import Paddle
from .perception import BALL, BRICK, BRICKS_TOP, COLUMNS, LEFT, PADDLE_HEIGHT, PADDLE_TOP, RIGHT, ROWS, TOP

Array = np.ndarray

ELASTIC: dict[str, Any] = {"friction": 0.0, "restitution": 1.0}
RADIUS = 0.5 * BALL[0]
FLAT = 0.5 * BALL[1] - RADIUS  # By this much, obstacles extend farther upwards and downwards, px.
WIDTH = 16.0  # Width of the paddle until the ball has hit the upper wall.
CONTACT = PADDLE_TOP + 0.5 * BALL[1]  # Height of the ball's centre when it touches the paddle.
AWAY = -1000.0  # Coordinate of objects that are out of reach, px.


class BreakoutWorld:
    """The scene and its simulator, whose steps are frames. bricks: whether the scene has bricks.

    q = (ball x, y, angle, paddle x), v = its rates; px and px per frame.
    """

    def __init__(self, bricks: bool = True) -> None:
        self.model = build(bricks)
        self.simulator = Simulator(self.model, 1.0)
        self._position = self.model.parameter("shape_position")
        self._size = self.model.parameter("size")
        self._width = self.model.parameters()["size"].rows.index("paddle.x")

    def state(self, ball: tuple[float, float], velocity: tuple[float, float], paddle: tuple[float, float]) -> State:
        """The state from the ball's position and velocity, and the paddle's (centre, velocity)."""
        q = torch.tensor([*ball, 0.0, paddle[0]], dtype=torch.float64)
        v = torch.tensor([*velocity, 0.0, paddle[1]], dtype=torch.float64)
        return State(q, v)

    def parameters(self, paddle: Paddle, width: float = WIDTH, bricks: Array | None = None) -> dict[str, Tensor]:
        """Parameters of the scene for a learned paddle, its width, and the remaining bricks, bool [6, 18]."""
        size = self._size.clone()
        size[self._width] = width
        given = {"size": size, **paddle.parameters}
        if bricks is not None:
            position = self._position.clone()
            position[-ROWS * COLUMNS :][torch.from_numpy(~bricks.reshape(-1))] = AWAY
            given["shape_position"] = position
        return given

    def predict(self, state: State, parameters: dict[str, Tensor], steps: int) -> Trajectory:
        """The motion without actions."""
        with torch.no_grad():
            return self.simulator.rollout(state, steps=steps, parameters=parameters)


def build(bricks: bool) -> Model:
    scene = Scene(dim=2, gravity=(0.0, 0.0))
    walls = (((1.0, 0.0), LEFT), ((-1.0, 0.0), -RIGHT), ((0.0, -1.0), FLAT - TOP))
    fixed = [scene.add_static(HalfSpace(normal, offset), **ELASTIC) for normal, offset in walls]
    width, height = BRICK
    for k in range(ROWS * COLUMNS if bricks else 0):
        row, column = divmod(k, COLUMNS)
        place = (LEFT + (column + 0.5) * width, BRICKS_TOP - (row + 0.5) * height)
        fixed.append(scene.add_static(Box(width, height + 2.0 * FLAT), position=place, **ELASTIC))
    scene.add_body("ball", Circle(RADIUS), mass=1.0, position=(80.0, 60.0), **ELASTIC)
    scene.add_body(
        "paddle", Box(WIDTH, PADDLE_HEIGHT + FLAT), mass=1.0,
        position=(0.0, PADDLE_TOP + 0.5 * (FLAT - PADDLE_HEIGHT)), **ELASTIC,
    )  # fmt: skip
    scene.add_joint("rail", Slider(axis=(1.0, 0.0), damping=0.5), child="paddle", position=80.0)
    scene.add_motor("hand", joint="rail", gear=1.0, limits=(-1.0, 1.0))
    for name in fixed:
        scene.exclude("paddle", name)
    return scene.build()
