"""Random numbers, and random shapes of every kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import backdrive as bd

Array = np.ndarray


class Draw:
    """Random numbers that depend on the key alone."""

    def __init__(self, *key: int) -> None:
        self.rng = np.random.default_rng(key)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def between(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def spread(self, low: float, high: float) -> float:
        """Between two positive numbers, by the logarithm."""
        return math.exp(self.between(math.log(low), math.log(high)))

    def choice(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def normal(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape)

    def unit(self, n: int) -> Array:
        """A direction in n dimensions; for n = 4, a rotation."""
        x = self.normal(n)
        return x / np.linalg.norm(x)


def shape(kind: str, draw: Draw, size: float = 0.2) -> bd.Shape:
    """A shape about as large as `size` (m)."""

    def about() -> float:
        return size * draw.between(0.6, 1.4)

    match kind:
        case "circle":
            return bd.Circle(0.5 * about())
        case "rectangle":
            return bd.Box(about(), about())
        case "polygon":
            angles = np.linspace(0.0, 2.0 * math.pi, draw.choice((3, 4, 5, 6)), endpoint=False) + draw.between(0, 1)
            a, b = 0.6 * about(), 0.6 * about()
            return bd.Polygon([(a * math.cos(t), b * math.sin(t)) for t in angles])
        case "sphere":
            return bd.Sphere(0.5 * about())
        case "box":
            return bd.Box(about(), about(), about())
        case "capsule":
            return bd.Capsule(0.3 * about(), 0.8 * about())
        case "cylinder":
            return bd.Cylinder(0.4 * about(), 0.9 * about())
        case "convex":
            corners = draw.normal(draw.choice((6, 8, 10)), 3)
            return bd.Convex((0.6 * about() * corners / np.linalg.norm(corners, axis=1)[:, None]).tolist())
    raise ValueError(f"there is no kind of shape named {kind!r}")


def reach(shape: bd.Shape) -> float:
    """The largest distance (m) of a point of the shape from its origin."""
    corners = np.abs(np.array(getattr(shape, "vertices", [[0.0]])))
    sizes = np.array(getattr(shape, "sizes", [0.0]))
    rod = getattr(shape, "radius", 0.0) + 0.5 * getattr(shape, "length", 0.0)
    return float(max(np.linalg.norm(corners, axis=1).max(), 0.5 * np.linalg.norm(sizes), rod))


def material(draw: Draw, lively: bool = False) -> dict[str, float]:
    """Friction 0 to 2, restitution 0 to 1, both with their ends; sometimes softness. lively: much of both, as it takes
    to create energy by wrong impacts."""
    if lively and draw.chance(0.7):
        return {"friction": draw.between(0.2, 2.0), "restitution": min(1.0, draw.between(0.5, 1.2))}
    return {
        "friction": 0.0 if draw.chance(0.1) else draw.between(0.05, draw.choice((0.5, 1.0, 2.0))),
        "restitution": draw.choice((0.0, 0.0, 1.0)) if draw.chance(0.5) else draw.between(0.05, 0.95),
        "softness": draw.spread(1e-4, 1e-1) if draw.chance(0.1) else 0.0,
    }
