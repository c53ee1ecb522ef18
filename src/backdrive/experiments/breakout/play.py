"""Whole games: frame by frame with the player's predictions, and their results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .game import Game
from .perception import HEIGHT, look
from .planner import Player
from .tracking import Situation, Tracker

Array = np.ndarray

SCALE = 3  # Magnification of pictures.
EXPECTED = (90, 230, 255)  # Colour of the predicted path, RGB.


@dataclass(frozen=True)
class Moment:
    """A frame, the situation in it, the predicted path of the ball [T, 2] (px), the score so far, and the CPU time (s)
    of perception and planning."""

    frame: Array
    known: Situation
    expected: Array
    score: float
    seconds: float


@dataclass(frozen=True)
class Played:
    """The result of a game. milliseconds: CPU time of perception and planning for each frame."""

    score: float
    frames: int
    milliseconds: Array


def play(game: Game, player: Player, seed: int, frames: int) -> Played:
    """Play a game of at most `frames` frames."""
    seconds, score = [], 0.0
    for moment in moments(game, player, seed, frames):
        seconds.append(moment.seconds)
        score = moment.score
    return Played(score, len(seconds) - 1, 1e3 * np.array(seconds[:-1]))


def moments(game: Game, player: Player, seed: int, frames: int) -> Iterator[Moment]:
    """Play a game of at most `frames` frames; yields every frame, and the last one."""
    tracker, turn, score = Tracker(player.frames), game.reset(seed), 0.0
    for _ in range(frames):
        began = time.process_time()
        known = tracker.follow(look(turn.frame))
        action = player.act(known)
        seconds = time.process_time() - began
        path = player.forecast()
        expected = np.zeros((0, 2)) if path is None else path.numpy()
        yield Moment(turn.frame, known, expected, score, seconds)
        turn = game.act(action)
        score += turn.reward
        if turn.over:
            break
    yield Moment(turn.frame, known, np.zeros((0, 2)), score, 0.0)


def picture(moment: Moment) -> Array:
    """The frame, magnified, with the predicted path of the ball as dots; uint8 [630, 480, 3]."""
    image = moment.frame.repeat(SCALE, 0).repeat(SCALE, 1)
    for x, y in moment.expected:
        row, column = round(SCALE * (HEIGHT - y)), round(SCALE * x)
        image[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2] = EXPECTED
    return image
