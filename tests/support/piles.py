"""Random piles of free bodies between walls, for tests of the sparse form."""

import numpy as np
import torch

import backdrive as bd

KINDS = {2: ("box", "circle", "polygon"), 3: ("box", "sphere", "capsule", "cylinder")}


def shape_of(kind, size):
    match kind:
        case "box":
            return bd.Box(*size)
        case "circle":
            return bd.Circle(size[0] / 2)
        case "polygon":
            corners = [(0.5, 0.0), (0.1, 0.5), (-0.5, 0.2), (-0.2, -0.5)]
            return bd.Polygon([(x * size[0], y * size[1]) for x, y in corners])
        case "sphere":
            return bd.Sphere(size[0] / 2)
        case "capsule":
            return bd.Capsule(size[0] / 3, size[1] / 2)
        case "cylinder":
            return bd.Cylinder(size[0] / 2, size[1])


def pile(count, seed=0, dim=3, kinds=None, spacing=1.05, restitution=0.0, friction=0.6, step=False):
    """Bodies of 12 to 20 cm in a box of half-spaces; `step`: with a static box in the middle of its floor."""
    random, kinds = np.random.default_rng(seed), kinds or KINDS[dim]
    scene = bd.Scene(dim=dim, gravity=(0.0,) * (dim - 1) + (-9.81,))
    side = max(1, round(0.8 * count ** (1 / dim)))
    half = 0.1 * spacing * side + 0.1
    up = (0.0,) * (dim - 1) + (1.0,)
    material = {"friction": friction, "restitution": restitution}
    scene.add_static(bd.HalfSpace(normal=up), name="ground", **material)
    for axis in range(dim - 1):
        for sign in (1.0, -1.0):
            normal = tuple(sign * (k == axis) for k in range(dim))
            scene.add_static(bd.HalfSpace(normal=normal, offset=-half), name=f"wall {axis} {sign:g}", **material)
    if step:
        scene.add_static(bd.Box(*[0.1] * dim), name="step", **material)
    for i in range(count):
        place = np.array(
            [*(i // side**k % side - (side - 1) / 2 for k in range(dim - 1)), i // side ** (dim - 1) + 0.6]
        )
        place = 0.2 * spacing * place + 0.01 * random.normal(size=dim)
        turn = {"angle": float(random.uniform(0.0, 6.0))}
        if dim == 3:
            quaternion = random.normal(size=4)
            turn = {"quaternion": tuple(quaternion / np.linalg.norm(quaternion))}
        shape = shape_of(kinds[i % len(kinds)], random.uniform(0.12, 0.2, size=dim))
        scene.add_body(f"body {i}", shape, density=500.0, position=tuple(place), **turn, **material)
    return scene.build()


def tower(count, width=0.2, offset=0.003):
    """Boxes on top of each other, not quite straight."""
    random = np.random.default_rng(1)
    scene = bd.Scene(dim=3)
    scene.add_static(bd.HalfSpace(normal=(0, 0, 1)), friction=0.6)
    for i in range(count):
        x, y = offset * random.normal(size=2)
        place = (x, y, width * (i + 0.5))
        scene.add_body(f"box {i}", bd.Box(*[width] * 3), density=500.0, position=place, friction=0.6)
    return scene.build()


def settled(simulator, steps):
    """The state after some steps of falling."""
    with torch.no_grad():
        return simulator.rollout(simulator.model.initial_state(), steps=steps).last
