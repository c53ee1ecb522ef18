"""One big world of free bodies: the sparse form, by sweeps and by the interior point method."""

from __future__ import annotations

import math
from typing import Any

import torch

import backdrive as bd

from .measure import merged, motion, parameters_of, rolled, start
from .registry import Arrays, scene

FLAT: tuple[Any, ...] = (bd.Circle(0.1), bd.Box(0.2, 0.15), bd.Polygon([(-0.1, -0.08), (0.12, -0.08), (0.0, 0.12)]))
SOLID: tuple[Any, ...] = (
    bd.Sphere(0.1),
    bd.Box(0.2, 0.18, 0.15),
    bd.Capsule(0.07, 0.1),
    bd.Cylinder(0.1, 0.15),
    bd.Convex([(0.12, 0, -0.06), (-0.08, 0.1, -0.06), (-0.07, -0.1, -0.06), (0.0, 0.02, 0.12)]),
)


def heap(count: int, dim: int, shapes: tuple[Any, ...] | None = None, restitution: float = 0.0) -> bd.Model:
    """Bodies in a loose grid just above the ground and each other, which meet within a few steps."""
    scene = bd.Scene(dim=dim)
    kinds = shapes or (FLAT if dim == 2 else SOLID)
    up = (0, 1) if dim == 2 else (0, 0, 1)
    scene.add_static(bd.HalfSpace(normal=up), friction=0.6, restitution=restitution, name="ground")
    wide = 5 if dim == 2 else 3
    for k in range(count):
        shape, turn = kinds[k % len(kinds)], 0.3 * math.sin(5.0 * k)
        if dim == 2:
            place = (0.24 * (k % wide) + 0.02 * math.sin(3.0 * k), 0.13 + 0.23 * (k // wide))
            scene.add_body(f"b{k}", shape, mass=0.5 + 0.1 * (k % 4), position=place, angle=turn, velocity=(0, -0.6))
            continue
        layer, rest = divmod(k, wide * wide)
        x, y = rest % wide, rest // wide
        place3 = (0.23 * x + 0.02 * math.sin(3.0 * k), 0.23 * y + 0.02 * math.cos(2.0 * k), 0.14 + 0.24 * layer)
        turned = (math.cos(turn / 2), 0.6 * math.sin(turn / 2), 0.0, 0.8 * math.sin(turn / 2))
        scene.add_body(
            f"b{k}", shape, mass=0.5 + 0.1 * (k % 4), position=place3, quaternion=turned, velocity=(0, 0, -0.6)
        )
    return scene.build()


def fallen(model: bd.Model, batch: int | None = None, *, steps: int = 20, **options: Any) -> Arrays:
    """The heap falls, with wrenches, forces, and gradients by all that there is."""
    sim = rolled(model, **options)
    given = parameters_of(model, ("mass", "inertia", "friction", "size", "gravity"), batch, dtype=sim.dtype)
    state = start(model, batch, speed=0.1, dtype=sim.dtype)
    found = motion(sim, state, steps=steps, wrenches=0.1, parameters=given, forces=True, bodies=("b0", "b7"))
    found["sparse"] = torch.tensor(sim.sparse).numpy()
    return found


@scene
def big_2d() -> Arrays:
    """30 bodies in 2D, in the sparse form by "auto", unbatched"""
    return fallen(heap(30, 2))


@scene
def big_3d() -> Arrays:
    """30 bodies of all shapes in 3D, in the sparse form by "auto", unbatched"""
    return fallen(heap(30, 3))


@scene
def big_3d_batch() -> Arrays:
    """27 bodies in 3D, three environments with parameters of their own"""
    return fallen(heap(27, 3), 3, steps=15)


@scene
def big_2d_small() -> Arrays:
    """8 bodies in 2D with sparse=True, and the same without"""
    model = heap(8, 2)
    return merged(sparse=fallen(model, 3, sparse=True), dense=fallen(model, 3, sparse=False))


@scene
def big_3d_small() -> Arrays:
    """9 boxes and balls in 3D with sparse=True, and the same without"""
    model = heap(9, 3, SOLID[:2])
    return merged(sparse=fallen(model, 1, sparse=True), dense=fallen(model, 1, sparse=False, solver=None))


@scene
def big_dense() -> Arrays:
    """26 discs and boxes in 2D with sparse=False: the dense form of a large system"""
    return fallen(heap(26, 2, FLAT[:2]), sparse=False, steps=12)


@scene
def big_settings() -> Arrays:
    """sparse sweeps with other settings: iterations, tolerance, erp, cfm, pyramid of 8 sides, Midpoint"""
    model = heap(24, 3, SOLID[:3])
    return merged(
        few=fallen(model, solver=bd.ProjectedGaussSeidel(iterations=8, tolerance=1e-4, exact=False), steps=12),
        soft=fallen(model, solver=bd.ProjectedGaussSeidel(iterations=50, erp=0.5, cfm=0.01, exact=False), steps=12),
        pyramid=fallen(model, pyramid=8, steps=12),
        midpoint=fallen(model, integrator=bd.Midpoint(), steps=12),
    )


@scene
def big_float32() -> Arrays:
    """25 bodies in 2D, sparse, in float32"""
    return fallen(heap(25, 2), dtype=torch.float32, steps=15)


@scene
def big_restitution() -> Arrays:
    """24 bodies on a bouncing ground: plain sparse steps"""
    return fallen(heap(24, 2, restitution=0.5), impacts=False, steps=20)


@scene
def big_specialized() -> Arrays:
    """24 bodies in 3D, sparse, specialize=True and "auto", on one thread and on two"""
    model = heap(24, 3, SOLID[:2])
    return merged(
        special=fallen(model, specialize=True, threads=1, steps=12),
        auto=fallen(model, specialize="auto", threads=2, steps=12),
    )


@scene
def big_interior_2d() -> Arrays:
    """15 bodies in 2D, sparse, solved by the interior point method"""
    return fallen(heap(15, 2), sparse=True, solver=bd.InteriorPoint(), steps=15)


@scene
def big_interior_3d() -> Arrays:
    """12 bodies in 3D, sparse, solved by the interior point method"""
    return fallen(heap(12, 3), sparse=True, solver=bd.InteriorPoint(), steps=15)


@scene
def big_interior_rest() -> Arrays:
    """28 boxes in 2D that come to rest, by the interior point method with and without cfm"""
    model = heap(28, 2, FLAT[1:2])
    return merged(
        rigid=fallen(model, solver=bd.InteriorPoint(), steps=15),
        soft=fallen(model, solver=bd.InteriorPoint(cfm=0.01), steps=15),
    )


@scene
def big_checkpoint() -> Arrays:
    """a sparse rollout with checkpoints, and one that is truncated"""
    model = heap(24, 2)
    found = {}
    for name, adjoint in (("checkpoint", bd.Checkpoint(every=6)), ("truncated", bd.Truncated(7))):
        given = parameters_of(model, ("mass",))
        found[name] = motion(rolled(model), start(model, None, speed=0.1), parameters=given, adjoint=adjoint)
    return merged(**found)
