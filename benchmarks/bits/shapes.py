"""Contact of every pair of shapes, in the plane and in space, one on the other on the ground."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import backdrive as bd

from .measure import merged, motion, parameters_of, rolled, start
from .registry import Arrays, add

FLAT = {
    "circle": bd.Circle(0.2),
    "box": bd.Box(0.5, 0.3),
    "polygon": bd.Polygon([(-0.25, -0.15), (0.25, -0.15), (0.3, 0.05), (0.0, 0.2), (-0.2, 0.1)]),
}
SOLID = {
    "sphere": bd.Sphere(0.2),
    "box": bd.Box(0.5, 0.4, 0.3),
    "capsule": bd.Capsule(0.12, 0.3),
    "cylinder": bd.Cylinder(0.2, 0.3),
    "convex": bd.Convex(
        [(0.25, 0, -0.1), (-0.15, 0.25, -0.1), (-0.15, -0.2, -0.1), (0.02, 0.03, 0.3), (0.2, 0.2, 0.1)]
    ),
}
CONTACT = ("mass", "size", "friction", "restitution", "com", "inertia", "shape_position", "softness")


def stack(dim: int, lower: Any, upper: Any, tilt: float) -> bd.Model:
    """One body near the ground, another one that falls on it, turned by `tilt` (rad)."""
    scene = bd.Scene(dim=dim)
    if dim == 2:
        scene.add_static(bd.HalfSpace(normal=(0, 1)), friction=0.6, name="ground")
        scene.add_body("lower", lower, mass=2.0, position=(0.0, 0.2))
        scene.add_body("upper", upper, mass=1.0, position=(0.07, 0.62), angle=tilt, velocity=(0.2, -2.0))
        return scene.build()
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1)), friction=0.6, name="ground")
    scene.add_body("lower", lower, mass=2.0, position=(0.0, 0.0, 0.22))
    c, s = math.cos(tilt / 2), math.sin(tilt / 2)
    quaternion = (c, 0.6 * s, 0.8 * s, 0.0)
    scene.add_body(
        "upper", upper, mass=1.0, position=(0.06, 0.04, 0.7), quaternion=quaternion, velocity=(0.2, 0.1, -2.0)
    )
    return scene.build()


def pair_scene(dim: int, first: str, second: str) -> Arrays:
    """Each on top of the other, level and tilted, three environments each."""
    shapes: dict[str, Any] = FLAT if dim == 2 else SOLID
    found = {}
    orders = [(first, second)] if first == second else [(first, second), (second, first)]
    for lower, upper in orders:
        for pose, tilt in (("level", 0.0), ("tilted", 0.7)):
            model = stack(dim, shapes[lower], shapes[upper], tilt)
            given = parameters_of(model, CONTACT)
            found[f"{lower}_{pose}"] = motion(
                rolled(model), start(model, 3, speed=0.1), steps=40, parameters=given, forces=pose == "tilted"
            )
    return merged(**found)


for _dim, _shapes in ((2, FLAT), (3, SOLID)):
    for _a, _b in itertools.combinations_with_replacement(_shapes, 2):
        add(
            f"pair-{_dim}d-{_a}-{_b}",
            f"{_a} and {_b} on each other on a half-space, {_dim}D",
            partial(pair_scene, _dim, _a, _b),
        )


def ground_scene(dim: int, name: str) -> Arrays:
    """A body that lands on the ground edge first, by both solvers and both integrators."""
    shapes: dict[str, Any] = FLAT if dim == 2 else SOLID
    scene = bd.Scene(dim=dim)
    if dim == 2:
        scene.add_static(bd.HalfSpace(normal=(0.1, 1)), friction=0.4)
        scene.add_body("body", shapes[name], mass=1.0, position=(0.0, 0.4), angle=0.3, velocity=(1.0, -1.0))
    else:
        scene.add_static(bd.HalfSpace(normal=(0.1, 0.0, 1)), friction=0.4)
        scene.add_body(
            "body", shapes[name], mass=1.0, position=(0.0, 0.0, 0.45), quaternion=(0.96, 0.28, 0.0, 0.0),
            velocity=(1.0, 0.3, -1.0),
        )  # fmt: skip
    model = scene.build()
    found = {}
    for kind, options in {
        "sweeps": {}, "interior": {"solver": bd.InteriorPoint()}, "midpoint": {"integrator": bd.Midpoint()},
    }.items():  # fmt: skip
        given = parameters_of(model, CONTACT, 3)
        found[kind] = motion(rolled(model, **options), start(model, 3, speed=0.2), steps=30, parameters=given)
    return merged(**found)


for _dim, _shapes in ((2, FLAT), (3, SOLID)):
    for _a in _shapes:
        add(
            f"ground-{_dim}d-{_a}",
            f"{_a} on a tilted half-space, {_dim}D, both solvers and integrators",
            partial(ground_scene, _dim, _a),
        )
