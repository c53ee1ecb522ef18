"""Twists: the velocity field of a rigid body, in world axes."""

from __future__ import annotations

from . import spatial as sp
from .spatial import Vec


def point_velocity(angular: Vec, linear: Vec, origin: Vec, point: Vec) -> Vec:
    """The velocity (m/s) of a point of a body, linear + angular × (point - origin).

    angular: rad/s; linear: of the body's origin, m/s; origin, point: in the world, m.
    """
    return sp.cross(angular, sp.sub(point, origin), linear)
