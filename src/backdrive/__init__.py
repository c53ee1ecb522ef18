"""backdrive: differentiable physics for PyTorch. Give it a loss on a motion, and it drives the gradient back."""

import importlib
from typing import Any

from ._version import __version__
from .contacts import Contacts
from .gradcheck import GradcheckReport, gradcheck
from .model import (
    Ball,
    Box,
    Capsule,
    Circle,
    Convex,
    Cylinder,
    Distance,
    Fixed,
    Free,
    HalfSpace,
    Hinge,
    Lock,
    Model,
    Motor,
    Planar,
    Polygon,
    PositionServo,
    Scene,
    Slider,
    Sphere,
    State,
    VelocityServo,
    Weld,
    load,
)
from .physics.integrators import Midpoint, SemiImplicitEuler
from .physics.soft.options import MuJoCo
from .physics.solvers import InteriorPoint, ProjectedGaussSeidel
from .policy import MLP
from .simulator import Checkpoint, Simulator, Truncated
from .smoothing import smoothed
from .trajectory import AdjointStatus, Status, Trajectory

__all__ = [
    "MLP", "AdjointStatus", "Ball", "Box", "Capsule", "Checkpoint", "Circle", "Contacts", "Convex", "Cylinder",
    "Distance", "Fixed",
    "Free", "GradcheckReport", "HalfSpace", "Hinge", "InteriorPoint", "Lock", "Midpoint", "Model", "Motor", "MuJoCo",
    "Planar", "Polygon", "PositionServo", "ProjectedGaussSeidel", "Scene", "SemiImplicitEuler", "Simulator", "Slider",
    "Sphere", "State", "Status", "Trajectory", "Truncated", "VelocityServo", "Weld", "__version__", "gradcheck", "load",
    "smoothed",
]  # fmt: skip

_ON_DEMAND = ("control", "envs", "experiments", "identify", "view")  # imported when they are first used


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})
