"""Convex hulls: MuJoCo's mesh compiler finds the faces, everything else is done here in float64."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

Array = np.ndarray

HULL_VERTICES = 64
"""Collision sees at most so many vertices of a hull: the first ones of those that make it grow the most."""

FLAT = 1e-6
"""Neighbouring triangles belong to one face if they are flat to this, relative to the size of the hull."""


class HullTables(NamedTuple):
    """vertices [n, 3], faces [m, 6]: outward unit normal, a point on it; edges [k, 12]: both ends, both normals."""

    vertices: Array
    faces: Array
    edges: Array


def hull_faces(points: Array, most: int | None = None) -> tuple[Array, Array]:
    """Vertices [n, 3] and triangles [m, 3] (indices into them) of the convex hull of points.

    The triangles use at most ``most`` of the vertices.
    """
    # Imported here: only users of hulls and loaders should pay for loading MuJoCo.
    import mujoco

    center = points.mean(0)
    scaled = ((points - center) / np.abs(points - center).max()).astype(np.float32)
    # MuJoCo works in float32 and merges equal vertices; doing it first keeps its indices ours.
    _, chosen = np.unique(scaled, axis=0, return_index=True)
    chosen.sort()
    spec = mujoco.MjSpec()
    mesh = spec.add_mesh(name="hull", uservert=scaled[chosen].ravel().tolist())
    mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_CONVEX
    if most is not None:
        mesh.maxhullvert = most
    spec.worldbody.add_body().add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="hull")
    try:
        compiled = spec.compile()
    except ValueError as error:
        raise ValueError(f"Convex vertices have no proper hull: {error}") from None
    vertices = points[chosen]
    if compiled.nmeshvert != len(vertices):
        raise ValueError("Convex vertices are too close to each other to find their hull")
    return vertices, compiled.mesh_face


def convex_tables(points: Array) -> HullTables:
    """What collision sees of the convex hull of points [n, 3]."""
    return hull_tables(*hull_faces(points, HULL_VERTICES))


def hull_tables(vertices: Array, triangles: Array) -> HullTables:
    """The faces, edges and corners of a convex solid [n, 3] that is given by triangles [m, 3] around it."""
    inside = vertices[np.unique(triangles)].mean(0)
    corners = vertices[triangles]
    areas = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])  # vectors, twice the area long
    outward = np.einsum("ij,ij->i", areas, corners[:, 0] - inside) >= 0.0
    areas = np.where(outward[:, None], areas, -areas)
    owner = _flat_regions(vertices, triangles, areas)
    count = owner.max() + 1
    normals = np.zeros((count, 3))
    np.add.at(normals, owner, areas)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)

    regions_at: dict[int, set[int]] = {}  # of each vertex
    for region, triangle in zip(owner.tolist(), triangles.tolist(), strict=True):
        for vertex in triangle:
            regions_at.setdefault(vertex, set()).add(region)
    # Where fewer than three faces meet there is no corner: the vertex lies in a face or in the middle of an edge.
    kept = sorted(vertex for vertex, regions in regions_at.items() if len(regions) >= 3)
    faces = np.zeros((count, 6))
    for region, normal in enumerate(normals):
        around = vertices[[vertex for vertex in kept if region in regions_at[vertex]]]
        height = (vertices[kept] @ normal).max()
        center = around.mean(0)
        faces[region] = [*normal, *(center + (height - center @ normal) * normal)]

    border: dict[tuple[int, int], Counter[int]] = {}  # of two faces: its pieces' ends, the inner ones twice
    for (a, b), (first, second) in _neighbours(triangles):
        if owner[first] != owner[second]:
            pair = (min(owner[first], owner[second]), max(owner[first], owner[second]))
            border.setdefault(pair, Counter()).update((a, b))
    edges = []
    for (first, second), ends in border.items():
        a, b = (vertex for vertex, times in ends.items() if times == 1)
        edges.append(np.concatenate([vertices[a], vertices[b], normals[first], normals[second]]))
    return HullTables(vertices[kept], faces, np.array(edges))


def _neighbours(triangles: Array) -> list[tuple[tuple[int, int], list[int]]]:
    """Every edge (a, b), a < b, and the two triangles that share it."""
    sides: dict[tuple[int, int], list[int]] = {}
    for index, (a, b, c) in enumerate(triangles.tolist()):
        for side in ((a, b), (b, c), (c, a)):
            sides.setdefault((min(side), max(side)), []).append(index)
    return list(sides.items())


def _flat_regions(vertices: Array, triangles: Array, areas: Array) -> Array:
    """The face that each triangle belongs to, int64 [m]; a face grows from its largest triangle while it stays flat."""
    tolerance = FLAT * np.ptp(vertices, axis=0).max()
    beside: list[list[int]] = [[] for _ in triangles]
    for _, (first, second) in _neighbours(triangles):
        beside[first].append(second)
        beside[second].append(first)
    owner = np.full(len(triangles), -1, dtype=np.int64)
    count = 0
    sizes = np.linalg.norm(areas, axis=1)
    for seed in np.argsort(-sizes, kind="stable").tolist():
        if owner[seed] >= 0:
            continue
        normal, origin = areas[seed] / sizes[seed], vertices[triangles[seed, 0]]
        owner[seed] = count
        todo = [seed]
        while todo:
            for other in beside[todo.pop()]:
                height = (vertices[triangles[other]] - origin) @ normal
                if owner[other] < 0 and np.abs(height).max() <= tolerance:
                    owner[other] = count
                    todo.append(other)
        count += 1
    return owner


def mass_properties(points: Array) -> tuple[float, Array, Array]:
    """Volume, center of mass [3], and inertia about it per unit mass [3, 3] of the hull of points [n, 3]."""
    vertices, faces = hull_faces(points)
    inside = vertices.mean(0)
    a, b, c = (vertices[faces[:, k]] - inside for k in range(3))
    # The hull is the disjoint union of the tetrahedra from an inner point to its faces.
    volumes = np.abs(np.einsum("ij,ij->i", a, np.cross(b, c))) / 6.0
    volume = float(volumes.sum())
    total = a + b + c
    center = (volumes @ total) / (4.0 * volume)
    # Second moments of a tetrahedron with one corner at 0: V/20 (aa' + bb' + cc' + ss'), s = a + b + c.
    moments = sum(np.einsum("i,ij,ik->jk", volumes, x, x) for x in (a, b, c, total)) / (20.0 * volume)
    moments = moments - np.outer(center, center)
    return volume, center + inside, np.trace(moments) * np.eye(3) - moments
