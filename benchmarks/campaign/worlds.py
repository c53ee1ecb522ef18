"""Random worlds of free bodies: thrown at each other, dropped on floors, walls and obstacles, or in a heap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

import backdrive as bd

from .draw import Draw, material, reach, shape

Start = Callable[[Draw], tuple[np.ndarray, np.ndarray]]
"""A random start: q [nq] and v [nv]."""


@dataclass(frozen=True)
class World:
    """A scene, its model, and how its motions start."""

    scene: bd.Scene
    model: bd.Model
    start: Start

    def starts(self, count: int, draw: Draw) -> bd.State:
        """q [count, nq], v [count, nv]."""
        pairs = [self.start(draw) for _ in range(count)]
        q, v = (torch.from_numpy(np.stack(x)) for x in zip(*pairs))
        return bd.State(q, v)


def up(dim: int) -> tuple[float, ...]:
    return (0.0,) * (dim - 1) + (1.0,)


def gravity(dim: int, draw: Draw) -> tuple[float, ...]:
    """Mostly the Earth's, sometimes none, sometimes oblique."""
    if draw.chance(0.25):
        return (0.0,) * dim
    pull = -9.81 * np.array(up(dim))
    return tuple((pull + (2.0 * draw.normal(dim) if draw.chance(0.3) else 0.0)).tolist())


def inertia(dim: int, solid: bd.Shape, mass: float, draw: Draw) -> object:
    """Moments of inertia as large as the shape's, but of another body; in 3D about other axes."""
    if dim == 2:
        return float(solid.inertia(mass)[2, 2]) * draw.between(0.7, 1.3)
    square = mass * (0.4 * reach(solid)) ** 2  # of point masses on the axes, so that the triangle inequality holds
    a, b, c = square * (0.3 + draw.rng.random(3))
    turn = np.linalg.qr(draw.normal(3, 3))[0]
    return turn @ np.diag([b + c, a + c, a + b]) @ turn.T


def add_free(scene: bd.Scene, name: str, kind: str, draw: Draw, uniform: bool, size: float = 0.2) -> bd.Shape:
    """A body that moves freely. uniform: its motion without forces is uniform (see `pair`)."""
    dim, solid, mass = scene.dim, shape(kind, draw, size), draw.spread(0.1, 10.0)
    options: dict = {}
    if uniform:
        moment = 0.4 * mass * (0.7 * reach(solid)) ** 2
        options = {"com": (0.0,) * dim, "inertia": moment if dim == 2 else (moment,) * 3}
    elif draw.chance(0.5):
        options["inertia"] = inertia(dim, solid, mass, draw)
        if draw.chance(0.5):
            options["com"] = tuple((0.1 * reach(solid) * draw.normal(dim)).tolist())
    scene.add_body(name, solid, mass=mass, **material(draw, uniform), **options)
    return solid


def pose(dim: int, place: np.ndarray, draw: Draw) -> np.ndarray:
    """The coordinates of a free body at a place, at a random angle."""
    turn = [draw.between(-3.0, 3.0)] if dim == 2 else draw.unit(4)
    return np.concatenate([place, turn])


def pair(kinds: tuple[str, ...], dim: int, draw: Draw, uniform: bool = False) -> World:
    """Two or three bodies of two kinds, a floor, walls, and sometimes an obstacle of the second kind.

    uniform: without gravity, and with bodies whose motion without forces is uniform, so that energy has a closed form:
    the center of mass is the origin, and in 3D the moments of inertia are equal.
    """
    first, second = kinds
    pull = (0.0,) * dim if uniform else gravity(dim, draw)
    scene = bd.Scene(dim, gravity=pull)
    # A wedge is two walls that are not perpendicular; bodies start above the floor, at z = 0.
    scene.add_static(bd.HalfSpace(up(dim), 0.0), **material(draw, uniform), name="floor")
    for k in range(2 if uniform else draw.choice((0, 1, 2))):
        normal = (1.0 - 2.0 * k, *(0.3 * draw.normal(dim - 1)).tolist())
        scene.add_static(bd.HalfSpace(normal, -0.7), **material(draw, uniform), name=f"wall{k}")
    solids = [add_free(scene, "a", first, draw, uniform), add_free(scene, "b", second, draw, uniform)]
    if first == second and draw.chance(0.5):
        solids.append(add_free(scene, "c", first, draw, uniform))
    if draw.chance(0.3):
        obstacle = {"angle": draw.between(-3, 3)} if dim == 2 else {"quaternion": tuple(draw.unit(4))}
        place = 0.12 * np.array(up(dim))
        scene.add_static(shape(second, draw), **material(draw, uniform), name="obstacle", position=place,
                         **obstacle)  # fmt: skip
        if first != second:
            scene.exclude("b", "obstacle")
    sizes = [reach(solid) for solid in solids]

    def start(draw: Draw) -> tuple[np.ndarray, np.ndarray]:
        """At a distance from each other, towards their middle or the floor."""
        count, low = len(sizes), draw.chance(0.5)
        places, height = np.zeros((count, dim)), 0.0 if low else draw.between(0.1, 0.5)
        axis = draw.unit(dim - 1) if dim == 3 else np.ones(1)
        far = 0.30 + draw.between(0.0, 0.15)  # clear of an obstacle at the origin
        for k, side in zip(range(count), (1.0, -1.0, 0.0)):
            places[k, :-1] = side * (far + sizes[k] - 0.1) * axis
            above = 0.6 if side == 0.0 else 0.0
            places[k, -1] = sizes[k] + draw.between(0.0, 0.1) + height + above
        middle = places.mean(0)
        v = []
        for k in range(count):
            aim = (middle - places[k]) * np.array([1.0] * (dim - 1) + [0.3])
            fly = draw.between(0.5, 4.0) * aim / np.linalg.norm(aim) + 0.3 * draw.normal(dim)
            fly[-1] -= draw.between(0.0, 3.0) if low else 0.0
            v.append(np.concatenate([fly, 3.0 * draw.normal(1 if dim == 2 else 3)]))
        return np.concatenate([pose(dim, p, draw) for p in places]), np.concatenate(v)

    return World(scene, scene.build(), start)


def heap(kinds: tuple[str, ...], dim: int, draw: Draw, uniform: bool = False) -> World:
    """Bodies of all kinds in a loose grid that falls (or, without gravity, is thrown) on the floor. See `pair`."""
    pull = (0.0,) * dim if uniform else tuple((-9.81 * np.array(up(dim))).tolist())
    scene = bd.Scene(dim, gravity=pull)
    scene.add_static(bd.HalfSpace(up(dim), 0.0), **material(draw, uniform), name="floor")
    solids = [add_free(scene, f"b{k}", kinds[k % len(kinds)], draw, uniform, 0.15) for k in range(9 if dim == 2 else 8)]
    wide, space = (3, 0.36) if dim == 2 else (2, 0.36)

    def start(draw: Draw) -> tuple[np.ndarray, np.ndarray]:
        q, v = [], []
        for k, solid in enumerate(solids):
            column = np.array([k % wide] if dim == 2 else [k % wide, k // wide % wide])
            layer = k // wide ** (dim - 1)
            place = np.append(space * column, reach(solid) + 0.01 + space * layer) + 0.01 * draw.rng.random(dim)
            q.append(pose(dim, place, draw))
            fall = -draw.between(0.5, 3.0) * np.array(up(dim)) + 0.5 * draw.normal(dim)
            v.append(np.concatenate([fall, 2.0 * draw.normal(1 if dim == 2 else 3)]))
        return np.concatenate(q), np.concatenate(v)

    return World(scene, scene.build(), start)


def standing(kinds: tuple[str, ...], dim: int, draw: Draw, uniform: bool = False) -> World:
    """Boxes or upright cylinders that stand on a floor, in 3D: the second pushes the first, fast or slowly.

    uniform: see `pair`.
    """
    scene = bd.Scene(dim, gravity=(0.0, 0.0, 0.0 if uniform else -9.81))
    scene.add_static(bd.HalfSpace(up(dim), 0.0), **material(draw, uniform), name="floor")
    solids = [add_free(scene, name, kind, draw, uniform) for name, kind in zip("ab", kinds)]
    sizes = [x.sizes if isinstance(x, bd.Box) else (2.0 * x.radius, 0.0, x.length) for x in solids]

    def start(draw: Draw) -> tuple[np.ndarray, np.ndarray]:
        angle = draw.between(-3.0, 3.0)
        along, turn = np.array([np.cos(angle), np.sin(angle), 0.0]), (np.cos(0.5 * angle), 0, 0, np.sin(0.5 * angle))
        behind = 0.5 * (sizes[0][0] + sizes[1][0]) + draw.spread(1e-5, 1e-2)
        places = [along * away + [0.0, 0.0, 0.5 * size[2]] for away, size in zip((0.0, -behind), sizes)]
        speeds = [0.0 if draw.chance(0.3) else draw.spread(1e-3, 3.0) for _ in solids]
        spins = [0.0 if draw.chance(0.5) else draw.spread(1e-2, 5.0) for _ in solids]
        v = [np.array([*(speed * along), 0.0, 0.0, spin]) for speed, spin in zip(speeds, spins)]
        return np.concatenate([np.concatenate([place, turn]) for place in places]), np.concatenate(v)

    return World(scene, scene.build(), start)
