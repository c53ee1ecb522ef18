"""Triangles of the visuals' shapes, with normals, for renderers without a library of shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...model.looks import Visual

Array = np.ndarray

SLICES, STACKS = 24, 12  # around and along round shapes
CREASE = 0.5  # cosine of the angle between the normals of faces at an edge that is drawn sharp


@dataclass(frozen=True)
class Triangles:
    """vertices [n, 3] (m), normals [n, 3], faces [m, 3] (indices, counter-clockwise from outside), colours [n, 3]."""

    vertices: Array
    normals: Array
    faces: Array
    colors: Array


def solid_of(visual: Visual) -> Triangles:
    """The triangles of a visual, in its own frame; a plane has none."""
    vertices, normals, faces = _mesh(visual) if visual.mesh is not None else _MAKERS[visual.kind](*visual.size)
    color = np.tile(np.array(visual.rgba[:3]), (len(vertices), 1))
    if visual.texture is not None and visual.mesh is not None and visual.mesh.uv is not None:
        image = visual.texture.image
        height, width = image.shape[:2]
        across, down = (np.asarray(visual.mesh.uv) * visual.texture.repeat % 1.0).T
        seen = image[(down * (height - 1)).astype(int), (across * (width - 1)).astype(int), :3] / 255.0
        color = color * seen[: len(color)] if len(seen) == len(color) else color
    elif visual.texture is not None:
        color = color * visual.texture.image[..., :3].reshape(-1, 3).mean(0) / 255.0
    return Triangles(vertices, normals, faces, color)


def _revolved(profile: Array, slope: Array) -> tuple[Array, Array, Array]:
    """A surface of revolution about z. profile [k, 2]: radius and height, from the bottom up; slope: its normals."""
    turns = 2.0 * np.pi * np.arange(SLICES) / SLICES
    ring = np.stack([np.cos(turns), np.sin(turns)], 1)
    vertices = np.concatenate([profile[:, None, :1] * ring, np.tile(profile[:, None, 1:], (1, SLICES, 1))], -1)
    normals = np.concatenate([slope[:, None, :1] * ring, np.tile(slope[:, None, 1:], (1, SLICES, 1))], -1)
    here = (np.arange(len(profile) - 1)[:, None] * SLICES + np.arange(SLICES)).ravel()
    after = (np.arange(len(profile) - 1)[:, None] * SLICES + (np.arange(SLICES) + 1) % SLICES).ravel()
    faces = np.concatenate(
        [np.stack([here, after, after + SLICES], 1), np.stack([here, after + SLICES, here + SLICES], 1)]
    )
    return vertices.reshape(-1, 3), normals.reshape(-1, 3), faces


def _arc() -> Array:
    angle = np.pi * (np.arange(STACKS + 1) / STACKS - 0.5)
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def _ellipsoid(a: float, b: float, c: float) -> tuple[Array, Array, Array]:
    vertices, normals, faces = _revolved(_arc(), _arc())
    size = np.array([a, b, c])
    normals = normals / size
    return vertices * size, normals / np.linalg.norm(normals, axis=1, keepdims=True), faces


def _sphere(radius: float, *_: float) -> tuple[Array, Array, Array]:
    return _ellipsoid(radius, radius, radius)


def _capsule(radius: float, half: float, _: float) -> tuple[Array, Array, Array]:
    arc, middle = _arc(), STACKS // 2 + 1
    slope = np.concatenate([arc[:middle], arc[middle - 1 :]])
    lift = np.concatenate([np.full(middle, -half), np.full(len(arc) - middle + 1, half)])
    return _revolved(slope * radius + np.stack([np.zeros_like(lift), lift], 1), slope)


def _cylinder(radius: float, half: float, _: float) -> tuple[Array, Array, Array]:
    profile = np.array([(0, -half), (radius, -half), (radius, -half), (radius, half), (radius, half), (0, half)], float)
    return _revolved(profile, np.array([(0, -1), (0, -1), (1, 0), (1, 0), (0, 1), (0, 1)], float))


def cone(radius: float, height: float) -> tuple[Array, Array, Array]:
    """A cone on z = 0."""
    profile = np.array([(0, 0), (radius, 0), (radius, 0), (0, height)], float)
    side = np.array([height, radius]) / np.hypot(radius, height)
    return _revolved(profile, np.array([(0, -1), (0, -1), side, side]))


def _box(x: float, y: float, z: float) -> tuple[Array, Array, Array]:
    corners, normals = [], []
    square = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)], float)
    for axis in range(3):
        for side in (-1.0, 1.0):
            face = np.zeros((4, 3))
            face[:, [(axis + 1) % 3, (axis + 2) % 3]] = square if side > 0 else square[::-1]
            face[:, axis] = side
            corners.append(face)
            normals.append(np.tile(np.eye(3)[axis] * side, (4, 1)))
    first = 4 * np.arange(6)[:, None]
    faces = np.concatenate([first + [0, 1, 2], first + [0, 2, 3]])
    return np.concatenate(corners) * np.array([x, y, z]), np.concatenate(normals), faces


def _mesh(visual: Visual) -> tuple[Array, Array, Array]:
    """A mesh, smooth but at sharp edges; where it has a texture, with the vertices that the texture needs."""
    mesh = visual.mesh
    assert mesh is not None
    if visual.texture is not None:
        mesh = mesh.textured
    vertices, faces = mesh.vertices.astype(np.float64) * np.array(visual.size), mesh.faces.astype(np.int64)
    corners = vertices[faces]
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    smooth = np.zeros_like(vertices)
    for k in range(3):
        for axis in range(3):
            smooth[:, axis] += np.bincount(faces[:, k], across[:, axis], len(vertices))
    smooth /= np.maximum(np.linalg.norm(smooth, axis=1, keepdims=True), 1e-300)
    flat = across / np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-300)
    sharp = (np.einsum("mki,mi->mk", smooth[faces], flat) < CREASE).any(1)
    if visual.texture is not None or not sharp.any():
        return vertices, smooth, faces
    extra = faces[sharp].ravel()
    moved = faces.copy()
    moved[sharp] = (len(vertices) + np.arange(len(extra))).reshape(-1, 3)
    return (
        np.concatenate([vertices, vertices[extra]]),
        np.concatenate([smooth, np.repeat(flat[sharp], 3, 0)]),
        moved,
    )


_MAKERS: dict[str, Callable[[float, float, float], tuple[Array, Array, Array]]] = {
    "sphere": _sphere,
    "ellipsoid": _ellipsoid,
    "capsule": _capsule,
    "cylinder": _cylinder,
    "box": _box,
}
