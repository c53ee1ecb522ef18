"""Small worlds whose parameters are to be found."""

from __future__ import annotations

import functools
import itertools

import torch

import backdrive as bd

DT = 0.02


@functools.cache
def simulator(make, **options) -> bd.Simulator:
    return bd.Simulator(make(), DT, specialize=False, **options)


@functools.cache
def ball() -> bd.Model:
    """2D: a ball falls on the ground, slides and bounces."""
    scene = bd.Scene(dim=2)
    scene.add_static(bd.HalfSpace(normal=(0, 1)), friction=0.1, restitution=0.6, name="ground")
    scene.add_body(
        "ball", bd.Circle(0.1), mass=0.5, position=(0.0, 0.6), velocity=(4.0, 0.0), friction=0.1, restitution=0.6
    )
    return scene.build()


@functools.cache
def chain() -> bd.Model:
    """2D: three damped links that hang from the world, at an angle."""
    scene = bd.Scene(dim=2)
    parent = None
    for i, mass in enumerate((1.0, 0.6, 0.3)):
        name = f"link{i + 1}"
        scene.add_body(name, bd.Box(0.1, 0.5), mass=mass, position=(0.0, -0.25 - 0.5 * i))
        scene.add_joint(
            f"hinge{i + 1}", bd.Hinge(damping=0.05), parent=parent, child=name, anchor=(0.0, -0.5 * i),
            position=0.8 - 0.5 * i,
        )  # fmt: skip
        parent = name
    scene.add_motor("motor", joint="hinge1")
    for a, b in itertools.combinations(("link1", "link2", "link3"), 2):
        scene.exclude(a, b)
    return scene.build()


@functools.cache
def arm() -> bd.Model:
    """3D: a hinge and a ball joint in a chain, and a free body beside them."""
    scene = bd.Scene(dim=3)
    scene.add_body("upper", bd.Box(0.1, 0.2, 0.5), mass=1.0, position=(0.0, 0.0, 1.0))
    scene.add_joint("shoulder", bd.Hinge(axis=(0.0, 1.0, 0.2), damping=0.1), child="upper", anchor=(0.0, 0.0, 1.25))
    scene.add_body("lower", bd.Capsule(0.05, 0.4), mass=0.6, position=(0.1, 0.0, 0.5))
    scene.add_joint("elbow", bd.Ball(stiffness=0.5), parent="upper", child="lower", anchor=(0.0, 0.0, 0.75))
    scene.add_body("top", bd.Box(0.1, 0.2, 0.3), mass=2.0, position=(1.0, 0.0, 0.5), angular_velocity=(1.0, 2.0, 3.0))
    scene.add_motor("torque", joint="shoulder", gear=1.5)
    for a, b in itertools.combinations(("upper", "lower", "top"), 2):
        scene.exclude(a, b)
    return scene.build()


@functools.cache
def stone() -> bd.Model:
    """2D: a body that flies freely."""
    scene = bd.Scene(dim=2)
    scene.add_body("stone", bd.Circle(0.1), mass=1.0, position=(0.0, 0.0), velocity=(1.0, 3.0))
    return scene.build()


def controls(model: bd.Model, steps: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(steps, model.nu, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
