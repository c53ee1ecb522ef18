"""Atari Breakout, played through the physics: frames become a scene, and plans in the scene become actions."""

from .experiment import run

__all__ = ["run"]
