"""Rotation matrices from angles and quaternions (w first); numpy only."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray


def about_z(angle: float) -> Array:
    """Rotation by an angle (rad) about z, [3, 3]."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def about_axis(axis: Array, angle: float) -> Array:
    """Rotation by an angle (rad) about a unit axis, [3, 3]."""
    x, y, z = axis
    skew = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + math.sin(angle) * skew + (1.0 - math.cos(angle)) * (skew @ skew)


def from_quaternion(quaternion: Any) -> Array:
    """Rotation matrix of a unit quaternion (w, x, y, z), [3, 3]."""
    w, x, y, z = (float(c) for c in quaternion)
    return np.array(
        [
            [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)],
            [2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)],
            [2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)],
        ]
    )


def from_orientation(orientation: Array) -> Array:
    """Rotation matrix of an angle [1] (rad, about z) or a unit quaternion [4]."""
    return about_z(float(orientation[0])) if len(orientation) == 1 else from_quaternion(orientation)
