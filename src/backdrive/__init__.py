"""backdrive: differentiable physics for PyTorch. Give it a loss on a motion, and it drives the gradient back."""

from .gradcheck import GradcheckReport, gradcheck
from .model import (
    Ball,
    Box,
    Capsule,
    Circle,
    Convex,
    Cylinder,
    Fixed,
    Free,
    HalfSpace,
    Hinge,
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
    load,
)
from .physics.integrate import Midpoint, SemiImplicitEuler
from .simulator import Checkpoint, Simulator, Truncated
from .trajectory import Status, Trajectory

__version__ = "0.1.0"
__all__ = [
    "Ball", "Box", "Capsule", "Checkpoint", "Circle", "Convex", "Cylinder", "Fixed", "Free", "GradcheckReport",
    "HalfSpace", "Hinge", "Midpoint", "Model", "Motor", "Planar", "Polygon", "PositionServo", "Scene",
    "SemiImplicitEuler", "Simulator", "Slider", "Sphere", "State", "Status", "Trajectory", "Truncated",
    "VelocityServo", "gradcheck", "load",
]  # fmt: skip
