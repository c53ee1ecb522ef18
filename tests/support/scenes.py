"""Small worlds, and random states and controls for them."""

from __future__ import annotations

import functools
import itertools

import torch
from torch import Tensor

import backdrive as bd

DT = 0.01


def without_contact(scene: bd.Scene, *bodies: str) -> bd.Model:
    """Smooth motion: these tests are about tensors. Contact has tests of its own."""
    for a, b in itertools.combinations(bodies, 2):
        scene.exclude(a, b)
    return scene.build()


@functools.cache
def arm() -> bd.Model:
    """3D: hinge, ball and slider in a chain, and a free body; one motor with limits, one servo. nq 13, nv 11, nu 2."""
    scene = bd.Scene(dim=3)
    scene.add_body("upper", bd.Box(0.2, 0.3, 0.6), mass=1.0, position=(0.0, 0.0, 1.0))
    scene.add_joint("shoulder", bd.Hinge(axis=(0.0, 1.0, 0.2), damping=0.1), child="upper", anchor=(0.0, 0.0, 1.3))
    scene.add_body("lower", bd.Capsule(0.1, 0.4), mass=0.7, position=(0.1, 0.0, 0.5), com=(0.0, 0.02, -0.1))
    scene.add_joint("elbow", bd.Ball(stiffness=0.5), parent="upper", child="lower", anchor=(0.0, 0.0, 0.7))
    scene.add_body("hand", bd.Sphere(0.1), mass=0.4, position=(0.1, 0.0, 0.2))
    scene.add_joint("wrist", bd.Slider(axis=(0.0, 0.3, 1.0)), parent="lower", child="hand")
    scene.add_body("ball", bd.Box(0.1, 0.2, 0.3), mass=2.0, position=(1.0, 0.0, 0.5))
    scene.add_motor("torque", joint="shoulder", gear=1.5, limits=(-3.0, 3.0))
    scene.add_motor("servo", bd.PositionServo(kp=3.0, kv=0.2), joint="wrist")
    return without_contact(scene, "upper", "lower", "hand", "ball")


@functools.cache
def chain() -> bd.Model:
    """2D: two hinges on a slider, built at an angle; one motor. nq 3, nv 3, nu 1."""
    scene = bd.Scene(dim=2)
    scene.add_body("cart", bd.Box(0.4, 0.2), mass=1.0, position=(0.0, 0.5), angle=0.3)
    scene.add_joint("rail", bd.Slider(axis=(1.0, 0.0)), child="cart")
    scene.add_body("pole", bd.Box(0.1, 1.0), mass=0.5, position=(0.0, 1.0), angle=-0.4)
    scene.add_joint("hinge", bd.Hinge(), parent="cart", child="pole", anchor=(0.0, 0.5))
    scene.add_body("tip", bd.Box(0.1, 0.6), mass=0.2, position=(0.2, 1.7))
    scene.add_joint("second", bd.Hinge(), parent="pole", child="tip", anchor=(0.0, 1.5))
    scene.add_motor("push", joint="rail", gear=2.0)
    return without_contact(scene, "cart", "pole", "tip")


@functools.cache
def puck() -> bd.Model:
    """2D: a free body without gravity. nq 3, nv 3, nu 0."""
    scene = bd.Scene(dim=2, gravity=(0.0, 0.0))
    scene.add_body(
        "puck", bd.Circle(0.2), mass=2.0, position=(1.0, 2.0), angle=0.5, velocity=(3.0, -1.0), angular_velocity=4.0
    )
    return scene.build()


@functools.cache
def top() -> bd.Model:
    """3D: a free body without gravity that turns about a fixed axis. nq 7, nv 6, nu 0."""
    scene = bd.Scene(dim=3, gravity=(0.0, 0.0, 0.0))
    scene.add_body(
        "top", bd.Sphere(0.2), mass=1.0, position=(1.0, 2.0, 3.0), velocity=(0.5, -1.0, 2.0),
        angular_velocity=(1.0, 2.0, -0.5),
    )  # fmt: skip
    return scene.build()


@functools.cache
def pendulum() -> bd.Model:
    """2D: a point-like mass on a hinge at the origin, with a motor of limits ±1. nq 1, nv 1, nu 1."""
    scene = bd.Scene(dim=2)
    scene.add_body("bob", bd.Circle(0.1), mass=1.0, position=(0.0, -1.0))
    scene.add_joint("pivot", bd.Hinge(), child="bob", anchor=(0.0, 0.0))
    scene.add_motor("motor", joint="pivot", limits=(-1.0, 1.0))
    return scene.build()


@functools.cache
def statue() -> bd.Model:
    """3D: nothing moves. nq 0, nv 0, nu 0."""
    scene = bd.Scene(dim=3)
    scene.add_body("statue", bd.Sphere(0.1), mass=1.0, position=(1.0, 2.0, 3.0))
    scene.add_joint("weld", bd.Fixed(), child="statue")
    return scene.build()


ALL = (arm, chain, puck, top, pendulum, statue)


@functools.cache
def simulator(make, **options) -> bd.Simulator:
    return bd.Simulator(make(), DT, specialize=False, **options)


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def random_state(model: bd.Model, *batch: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> bd.State:
    """Quaternions have any length but zero."""
    start = model.initial_state()
    q, v = 0.5 * randn(*batch, model.nq, seed=seed) + start.q, randn(*batch, model.nv, seed=seed + 1)
    return bd.State(q.to(dtype), v.to(dtype))


def random_controls(model: bd.Model, *shape: int, seed: int = 2, dtype: torch.dtype = torch.float64) -> Tensor:
    return randn(*shape, model.nu, seed=seed, dtype=dtype)


def random_wrenches(model: bd.Model, *shape: int, seed: int = 3, dtype: torch.dtype = torch.float64) -> Tensor:
    return randn(*shape, model.nbody, 6 if model.dim == 3 else 3, seed=seed, dtype=dtype)


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [x.detach().clone().requires_grad_() for x in tensors]


def project(*tensors: Tensor) -> Tensor:
    """A weighted sum of all numbers, so that none is without influence; also where there is no generator."""
    total = 0.0
    for k, x in enumerate(tensors):
        weights = torch.arange(x.numel(), dtype=x.dtype).mul(1.7 + k).add(k).cos().reshape(x.shape)
        total = total + (x * weights).sum()
    return total
