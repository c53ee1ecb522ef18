"""What a frame of Breakout shows, by filters on its colours: the ball, the paddle, and the bricks that are left.

Places are in pixels with y upwards, x = column and y = 210 - row, so that a scene has them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray

HEIGHT = 210  # rows of a frame
LEFT, RIGHT, TOP = 8, 152, HEIGHT - 32  # the inner faces of the walls
ROWS, COLUMNS = 6, 18  # of bricks
BRICK = (8, 6)  # width, height
BRICKS_TOP = HEIGHT - 57  # the upper edge of the first row
BALL = (2, 4)  # width, height
PADDLE_TOP = HEIGHT - 189  # the paddle's upper edge
PADDLE_HEIGHT = 4

RED = (200, 72, 72)  # ball, paddle and the first row of bricks
BRICK_COLORS = (RED, (198, 108, 58), (180, 122, 48), (162, 162, 42), (72, 160, 72), (66, 72, 200))  # from above

_FIRST_ROW = HEIGHT - TOP  # of the frame, of what is looked at: from the upper wall to the paddle
_LAST_ROW = HEIGHT - PADDLE_TOP
_BRICK_ROWS = slice(HEIGHT - BRICKS_TOP - _FIRST_ROW, HEIGHT - BRICKS_TOP - _FIRST_ROW + ROWS * BRICK[1])
_COLORS = np.full((_LAST_ROW - _FIRST_ROW, 1, 3), RED, dtype=np.uint8)
"""Of the ball, by row: the game draws it in the colour of the bricks beside it."""
_COLORS[_BRICK_ROWS, 0] = np.repeat(BRICK_COLORS, BRICK[1], axis=0)


@dataclass(frozen=True)
class Seen:
    """One frame."""

    ball: tuple[float, float] | None
    """Its centre, px; None while there is none, or while it is as low as the paddle."""
    paddle: tuple[float, float] | None
    """Left and right edge, px, of what is visible: at the right wall a part of the paddle is not."""
    bricks: Array
    """bool [6, 18], from above and from the left: those that are there."""


def look(frame: Array) -> Seen:
    """frame: uint8 [210, 160, 3], RGB."""
    field = frame[_FIRST_ROW:_LAST_ROW, LEFT:RIGHT]
    lit = (field[..., 0] == _COLORS[..., 0]) & (field[..., 1] == _COLORS[..., 1]) & (field[..., 2] == _COLORS[..., 2])
    cells = lit[_BRICK_ROWS].reshape(ROWS, BRICK[1], COLUMNS, BRICK[0])
    bricks = cells.all(axis=(1, 3))  # a cell with the ball in it is not filled
    lit[_BRICK_ROWS] = (cells & ~bricks[:, None, :, None]).reshape(ROWS * BRICK[1], RIGHT - LEFT)
    return Seen(_ball(lit), _paddle(frame), bricks)


def _ball(lit: Array) -> tuple[float, float] | None:
    rows = np.flatnonzero(lit.any(1))
    if len(rows) == 0:
        return None
    columns = np.flatnonzero(lit[rows[0]])
    x = LEFT + 0.5 * float(columns[0] + columns[-1] + 1)
    return x, TOP - float(rows[0]) - 0.5 * BALL[1]  # from its upper edge: the paddle's rows may hide the lower one


def _paddle(frame: Array) -> tuple[float, float] | None:
    row = frame[_LAST_ROW + PADDLE_HEIGHT - 1, LEFT:RIGHT]  # its last: a ball that is as low is lost
    columns = np.flatnonzero((row == RED).all(-1))
    return (float(LEFT + columns[0]), float(LEFT + columns[-1] + 1)) if len(columns) else None
