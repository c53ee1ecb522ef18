"""Random worlds of rods, boxes, wedges, discs and balls without gravity, in which friction and restitution may be large
and masses differ by up to a hundred times."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

import backdrive as bd

PLACES = (-0.5, 0.0, 0.5)  # m; of three bodies, none of which reaches further than 0.24 m


def world(dim: int, seed: int) -> bd.Model:
    """Three bodies in a box of 1.6 m. In space they are balls: the free motion of all others is not uniform."""
    random = np.random.default_rng(seed)
    scene = bd.Scene(dim, gravity=(0.0,) * dim)

    def surface() -> dict[str, float]:
        friction, restitution = random.choice([0.0, 0.3, 1.0, 3.0]), random.choice([0.0, 0.5, 0.9, 1.0])
        return {"friction": float(friction * random.uniform(0.5, 1.0)), "restitution": float(restitution)}

    for k in range(dim):
        for sign in (1.0, -1.0):
            normal = tuple(sign if j == k else 0.0 for j in range(dim))
            scene.add_static(bd.HalfSpace(normal, -0.8), **surface())
    for k in range(len(PLACES)):
        a, b = (float(x) for x in random.uniform(0.1, 0.3, 2))
        planar = (bd.Box(0.45, 0.03), bd.Box(a, b), bd.Circle(0.5 * a), bd.Polygon(((-a, -0.1), (a, -0.1), (0.0, 0.2))))
        shape = planar[random.integers(len(planar))] if dim == 2 else bd.Sphere(0.5 * a)
        scene.add_body(f"body{k}", shape, mass=float(10.0 ** random.uniform(-1.0, 1.0)), **surface())
    return scene.build()


def states(model: bd.Model, seed: int, batch: int) -> bd.State:
    """Bodies at some distance from each other, at random angles and velocities."""
    random, start = np.random.default_rng(seed), model.initial_state(batch)
    q = start.q.unflatten(-1, (len(PLACES), -1)).clone()
    q[..., 0] = torch.tensor(PLACES)
    q[..., 1] = torch.from_numpy(random.uniform(-0.5, 0.5, q.shape[:2]))
    if model.dim == 2:
        q[..., 2] = torch.from_numpy(random.uniform(-3.0, 3.0, q.shape[:2]))
    speed = torch.from_numpy(10.0 ** random.uniform(-0.5, 0.7, (batch, 1)))
    return bd.State(q.flatten(1), speed * torch.from_numpy(random.normal(size=start.v.shape)))


def kinetic_energy(model: bd.Model, v: Tensor) -> Tensor:
    """[..., nv] to [...], J; the velocities of the bodies' origins are those of their centers of mass."""
    x, mass, inertia = v.double().unflatten(-1, (len(PLACES), -1)), model.parameter("mass"), model.parameter("inertia")
    turning = inertia.reshape(len(PLACES), -1)[:, :1] * x[..., model.dim :].square()
    return 0.5 * (mass * x[..., : model.dim].square().sum(-1) + turning.sum(-1)).sum(-1)
