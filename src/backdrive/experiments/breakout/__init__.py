"""Atari Breakout, played by planning in a physics scene that is built from the frames of the game."""

from .experiment import run

__all__ = ["run"]
