"""Perception: find the ball, the paddle and the remaining bricks in a frame of Breakout by their colours.

Positions are in pixels with y upwards, x = column and y = 210 - row, as in the scene.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray

HEIGHT = 210  # Rows of a frame.
LEFT, RIGHT, TOP = 8, 152, HEIGHT - 32  # The inner faces of the walls.
ROWS, COLUMNS = 6, 18  # Rows and columns of bricks.
BRICK = (8, 6)  # Width and height of a brick.
BRICKS_TOP = HEIGHT - 57  # Upper edge of the first row of bricks.
BALL = (2, 4)  # Width and height of the ball.
PADDLE_TOP = HEIGHT - 189  # Upper edge of the paddle.
PADDLE_HEIGHT = 4

RED = (200, 72, 72)  # Colour of ball, paddle and the first row of bricks.
BRICK_COLORS = (
    RED,
    (198, 108, 58),
    (180, 122, 48),
    (162, 162, 42),
    (72, 160, 72),
    (66, 72, 200),
)  # By row, from above.

_FIRST_ROW = (
    HEIGHT - TOP
)  # First row of the frame that is searched, below the upper wall; the last is above the paddle.
_LAST_ROW = HEIGHT - PADDLE_TOP
_BRICK_ROWS = slice(HEIGHT - BRICKS_TOP - _FIRST_ROW, HEIGHT - BRICKS_TOP - _FIRST_ROW + ROWS * BRICK[1])
_COLORS = np.full((_LAST_ROW - _FIRST_ROW, 1, 3), RED, dtype=np.uint8)
"""Colour of the ball by row: the game draws it in the colour of the bricks beside it."""
_COLORS[_BRICK_ROWS, 0] = np.repeat(BRICK_COLORS, BRICK[1], axis=0)


@dataclass(frozen=True)
class Seen:
    """The objects visible in one frame."""

    ball: tuple[float, float] | None
    """Centre of the ball, px; None without a ball, or while it is as low as the paddle."""
    paddle: tuple[float, float] | None
    """Left and right edge, px, of the visible part of the paddle; at the right wall, a part is hidden."""
    bricks: Array
    """Which bricks are left, bool [6, 18], from above and from the left."""


def look(frame: Array) -> Seen:
    """Find the objects in a frame, uint8 [210, 160, 3], RGB."""
    field = frame[_FIRST_ROW:_LAST_ROW, LEFT:RIGHT]
    lit = (field[..., 0] == _COLORS[..., 0]) & (field[..., 1] == _COLORS[..., 1]) & (field[..., 2] == _COLORS[..., 2])
    cells = lit[_BRICK_ROWS].reshape(ROWS, BRICK[1], COLUMNS, BRICK[0])
    bricks = cells.all(axis=(1, 3))  # A cell that only the ball touches is not full.
    lit[_BRICK_ROWS] = (cells & ~bricks[:, None, :, None]).reshape(ROWS * BRICK[1], RIGHT - LEFT)
    return Seen(_ball(lit), _paddle(frame), bricks)


def _ball(lit: Array) -> tuple[float, float] | None:
    rows = np.flatnonzero(lit.any(1))
    if len(rows) == 0:
        return None
    columns = np.flatnonzero(lit[rows[0]])
    x = LEFT + 0.5 * float(columns[0] + columns[-1] + 1)
    return x, TOP - float(rows[0]) - 0.5 * BALL[1]  # By its upper edge; the paddle may hide the lower one.


def _paddle(frame: Array) -> tuple[float, float] | None:
    row = frame[_LAST_ROW + PADDLE_HEIGHT - 1, LEFT:RIGHT]  # Its last row: a ball as low as that is lost.
    columns = np.flatnonzero((row == RED).all(-1))
    return (float(LEFT + columns[0]), float(LEFT + columns[-1] + 1)) if len(columns) else None
