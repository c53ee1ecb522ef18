"""Meshes with no more detail than the pixels of a film show: robots come with hundreds of thousands of triangles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...model.looks import Mesh, Visual
from .shapes import shaded

Array = np.ndarray

APART = 2.0
"""How far vertices are apart, pixels."""
FINE = 1000
"""Meshes of fewer triangles are left as they are."""


def coarse(visuals: Sequence[Visual], pixels: Array) -> list[Visual]:
    """The visuals with meshes whose vertices are `APART`. pixels [n]: the size of a pixel at each visual, m.

    Meshes with textures stay as they are.
    """
    smallest: dict[tuple[int, tuple[float, ...]], float] = {}
    for visual, pixel in zip(visuals, pixels.tolist(), strict=True):
        if _fine(visual):
            key = id(visual.mesh), visual.size
            smallest[key] = min(smallest.get(key, np.inf), pixel)
    made: dict[tuple[int, tuple[float, ...]], Visual] = {}
    shown = []
    for visual in visuals:
        key = id(visual.mesh), visual.size
        if key not in smallest or not _fine(visual):
            shown.append(visual)
            continue
        if key not in made:
            made[key] = replace(visual, mesh=clustered(visual, APART * smallest[key]), size=(1.0, 1.0, 1.0))
        shown.append(replace(visual, mesh=made[key].mesh, size=(1.0, 1.0, 1.0)))
    return shown


def _fine(visual: Visual) -> bool:
    return visual.mesh is not None and visual.texture is None and len(visual.mesh.faces) > FINE


def clustered(visual: Visual, cell: float) -> Mesh:
    """The mesh of a visual, at its real size, with one vertex for all that are in the same cell of a grid (m).

    Vertices whose normals point to different sides share a place and keep their own normals, so that edges stay sharp.
    """
    vertices, normals, faces = shaded(visual)
    faces = faces[(np.abs(normals[faces]).max(2) > 0.0).all(1)]  # others have no area
    low, high = vertices.min(0), vertices.max(0)
    if not cell > 1e-6 * float((high - low).max()):
        return Mesh(vertices.astype(np.float32), faces.astype(np.int32), normals=normals.astype(np.float32))
    cells = ((vertices - low) / cell).astype(np.int64)
    counts = cells.max(0) + 1
    place = _numbered((cells[:, 0] * counts[1] + cells[:, 1]) * counts[2] + cells[:, 2])
    side = np.rint(normals).astype(np.int64) + 1  # one of 27 directions
    corner, index = np.unique(place * 27 + side @ np.array([9, 3, 1]), return_inverse=True)
    middles = _sums(place, vertices) / np.bincount(place)[:, None]
    mean = _sums(index, normals)
    mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-300)
    ends = place[faces]
    kept = (ends[:, 0] != ends[:, 1]) & (ends[:, 1] != ends[:, 2]) & (ends[:, 2] != ends[:, 0])
    kept[kept] = _first(ends[kept])
    used, triangles = np.unique(index[faces[kept]], return_inverse=True)
    return Mesh(
        middles[corner[used] // 27].astype(np.float32), triangles.reshape(-1, 3).astype(np.int32),
        normals=mean[used].astype(np.float32),
    )  # fmt: skip


def _numbered(keys: Array) -> Array:
    return np.unique(keys, return_inverse=True)[1]


def _sums(index: Array, values: Array) -> Array:
    """The sums of values [n, 3] with the same index [n]."""
    return np.stack([np.bincount(index, column) for column in values.T], 1)


def _first(faces: Array) -> Array:
    """Which triangles [m, 3] are not the same as one before, whichever corner they begin with: [m]."""
    start = faces.argmin(1)
    turned = np.take_along_axis(faces, (start[:, None] + np.arange(3)) % 3, 1)
    found = np.zeros(len(faces), dtype=bool)
    found[np.unique(turned, axis=0, return_index=True)[1]] = True
    return found
