"""Models of worlds: scenes, shapes, joints, actuators, parameters, states, and loaders of robot files."""

from ..schema.layout import Kind
from .actuators import Motor, PositionServo, VelocityServo
from .constraints import Constraint, Distance, Lock, Weld
from .joints import Ball, Fixed, Free, Hinge, Joint, Planar, Slider
from .load import load
from .model import Model
from .parameters import ParameterInfo, ParameterTable
from .scene import Scene
from .shapes import Box, Capsule, Circle, Convex, Cylinder, HalfSpace, PlacedShape, Polygon, Shape, Sphere
from .state import State

__all__ = [
    "Ball",
    "Box",
    "Capsule",
    "Circle",
    "Constraint",
    "Convex",
    "Cylinder",
    "Distance",
    "Fixed",
    "Free",
    "HalfSpace",
    "Hinge",
    "Joint",
    "Kind",
    "Lock",
    "Model",
    "Motor",
    "ParameterInfo",
    "ParameterTable",
    "PlacedShape",
    "Planar",
    "Polygon",
    "PositionServo",
    "Scene",
    "Shape",
    "Slider",
    "Sphere",
    "State",
    "VelocityServo",
    "Weld",
    "load",
]
