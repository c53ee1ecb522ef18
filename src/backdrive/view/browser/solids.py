"""Triangles of simple solids of unit size: vertices [n, 3] and faces [m, 3]. Edges are sharp where a solid's are."""

from __future__ import annotations

from functools import cache

import numpy as np

Array = np.ndarray
Triangles = tuple[Array, Array]

AROUND = 24
"""Corners of the polygon that stands for a circle."""


@cache
def box() -> Triangles:
    """The cube with corners (±1, ±1, ±1)."""
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)], dtype=float)
    vertices: list[Array] = []
    faces: list[Array] = []
    for axis in range(3):
        for side in (-1.0, 1.0):
            square = np.insert(corners, axis, side, axis=1)
            order = np.array([(0, 1, 2), (0, 2, 3)])
            flip = (side < 0.0) != (axis == 1)  # seen from outside, counter-clockwise
            faces.append(4 * len(vertices) + (order[:, ::-1] if flip else order))
            vertices.append(square)
    return np.concatenate(vertices), np.concatenate(faces)


@cache
def ball() -> Triangles:
    """The sphere of radius 1."""
    rings = AROUND // 2
    polar = np.pi * np.arange(1, rings) / rings
    around = 2.0 * np.pi * np.arange(AROUND) / AROUND
    sine, cosine = np.sin(polar)[:, None], np.cos(polar)[:, None]
    grid = np.stack([sine * np.cos(around), sine * np.sin(around), np.broadcast_to(cosine, (rings - 1, AROUND))], -1)
    vertices = np.concatenate([grid.reshape(-1, 3), [[0, 0, 1], [0, 0, -1]]])
    here = np.arange(AROUND)
    after, top, bottom = (here + 1) % AROUND, len(vertices) - 2, len(vertices) - 1
    faces = [np.stack([np.full(AROUND, top), here, after], 1)]
    for ring in range(rings - 2):
        a, b = ring * AROUND, (ring + 1) * AROUND
        faces += [np.stack([a + here, b + here, b + after], 1), np.stack([a + here, b + after, a + after], 1)]
    last = (rings - 2) * AROUND
    faces.append(np.stack([np.full(AROUND, bottom), last + after, last + here], 1))
    return vertices, np.concatenate(faces)


@cache
def cylinder() -> Triangles:
    """The cylinder of radius 1 about z, from z = -1 to 1."""
    around = 2.0 * np.pi * np.arange(AROUND) / AROUND
    ring = np.stack([np.cos(around), np.sin(around)], 1)
    low, high = (np.pad(ring, ((0, 0), (0, 1)), constant_values=z) for z in (-1.0, 1.0))
    vertices = np.concatenate([low, high, low, high, [[0, 0, -1], [0, 0, 1]]])  # wall, then caps
    here, n = np.arange(AROUND), AROUND
    after, below, above = (here + 1) % n, np.full(n, 4 * n), np.full(n, 4 * n + 1)
    wall = [np.stack([here, after, after + n], 1), np.stack([here, after + n, here + n], 1)]
    caps = [np.stack([below, 2 * n + after, 2 * n + here], 1), np.stack([above, 3 * n + here, 3 * n + after], 1)]
    return vertices, np.concatenate([*wall, *caps])
