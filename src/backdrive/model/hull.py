"""Convex hulls: tables of vertices, faces and edges for collision, and mass properties.

MuJoCo's mesh compiler finds the triangles of a hull (in float32); everything else is computed here in float64.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

import numpy as np

Array = np.ndarray

HULL_VERTICES = 64
"""Collision uses at most this many vertices of a hull: quickhull adds the farthest point first and stops here."""

FLAT = 1e-6
"""Neighbouring triangles are one face if they are coplanar to this tolerance, relative to the hull's size."""

CYLINDER_SIDES = 24
"""Against boxes and meshes, a cylinder is a prism with this many sides."""

BALL_DIVISIONS = 3
"""In rigid physics, an ellipsoid is an octahedron with edges divided into so many, and vertices on its surface."""

SQUARE = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)])
"""Corners of the unit square, counter-clockwise: a box before it is scaled by its sizes."""


class HullTables(NamedTuple):
    """vertices [n, 3]; faces [m, 6]: outward unit normal, a point of the face; edges [k, 12]: both ends, outward unit
    normals of the two faces at the edge. The records are those of `physics.geometry.solids.Hull`."""

    vertices: Array
    faces: Array
    edges: Array


def hull_faces(points: Array, most: int | None = None) -> tuple[Array, Array]:
    """Vertices [n, 3] and triangles [m, 3] (indices into them) of the convex hull of points.

    The triangles use at most ``most`` of the vertices.
    """
    # MuJoCo is imported here so that only users of hulls and loaders pay for loading it.
    import mujoco

    center = points.mean(0)
    scaled = ((points - center) / np.abs(points - center).max()).astype(np.float32)
    # MuJoCo rounds vertices to float32 and merges equal ones. Doing this first makes its indices valid for `chosen`.
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
    """Tables of the convex hull of points [n, 3]."""
    return hull_tables(*hull_faces(points, HULL_VERTICES))


def planar_tables(vertices: Array) -> HullTables:
    """Tables of a polygon [n, 2], counter-clockwise: collision in the plane needs its vertices only."""
    return HullTables(np.pad(vertices, ((0, 0), (0, 1))), np.zeros((0, 6)), np.zeros((0, 12)))


@lru_cache
def cube() -> HullTables:
    """Tables of the cube with side 1 about the origin."""
    return _prism(SQUARE)


@lru_cache
def cylinder_prism() -> HullTables:
    """Tables of the prism that approximates a cylinder of radius 1 and length 1."""
    angles = 2.0 * np.pi * np.arange(CYLINDER_SIDES) / CYLINDER_SIDES
    return _prism(np.stack([np.cos(angles), np.sin(angles)], 1))


@lru_cache
def ball() -> HullTables:
    """Tables of the polyhedron that approximates a ball of radius 1: an octahedron whose faces are divided."""
    n = BALL_DIVISIONS
    steps = np.arange(-n, n + 1)
    points = np.stack(np.meshgrid(steps, steps, steps), -1).reshape(-1, 3)
    points = points[np.abs(points).sum(1) == n]
    return convex_tables(points / np.linalg.norm(points, axis=1, keepdims=True))


def _prism(ring: Array) -> HullTables:
    """Tables of the prism over a polygon [n, 2], from z = -1/2 to 1/2."""
    sides = len(ring)
    vertices = np.concatenate([np.pad(ring, ((0, 0), (0, 1)), constant_values=z) for z in (-0.5, 0.5)])
    here = np.arange(sides)
    after = (here + 1) % sides
    walls = [np.stack([here, after, after + sides], 1), np.stack([here, after + sides, here + sides], 1)]
    fan = np.stack([np.zeros(sides - 2, dtype=np.int64), here[1:-1], here[2:]], 1)
    return hull_tables(vertices, np.concatenate([*walls, fan, fan + sides]))


def hull_tables(vertices: Array, triangles: Array) -> HullTables:
    """Tables of a convex solid given by vertices [n, 3] and the triangles [m, 3] of its surface (vertex indices)."""
    inside = vertices[np.unique(triangles)].mean(0)
    corners = vertices[triangles]
    # Normals of the triangles, with twice their area as length.
    areas = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    outward = np.einsum("ij,ij->i", areas, corners[:, 0] - inside) >= 0.0
    areas = np.where(outward[:, None], areas, -areas)
    owner = _flat_regions(vertices, triangles, areas)
    count = owner.max() + 1
    normals = np.zeros((count, 3))
    np.add.at(normals, owner, areas)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)

    regions_at: dict[int, set[int]] = {}  # faces at each vertex
    for region, triangle in zip(owner.tolist(), triangles.tolist(), strict=True):
        for vertex in triangle:
            regions_at.setdefault(vertex, set()).add(region)
    # A vertex where fewer than three faces meet is not a corner: it lies inside a face or an edge, and is dropped.
    kept = sorted(vertex for vertex, regions in regions_at.items() if len(regions) >= 3)
    faces = np.zeros((count, 6))
    for region, normal in enumerate(normals):
        around = vertices[[vertex for vertex in kept if region in regions_at[vertex]]]
        height = (vertices[kept] @ normal).max()
        center = around.mean(0)
        faces[region] = [*normal, *(center + (height - center @ normal) * normal)]

    # An edge between two faces may consist of several sides of triangles. Counted over these sides, its two end
    # vertices occur once, and those inside it twice.
    border: dict[tuple[int, int], Counter[int]] = {}
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
    """Every side (a, b), a < b, of the triangles [m, 3], and the two triangles that share it."""
    sides: dict[tuple[int, int], list[int]] = {}
    for index, (a, b, c) in enumerate(triangles.tolist()):
        for side in ((a, b), (b, c), (c, a)):
            sides.setdefault((min(side), max(side)), []).append(index)
    return list(sides.items())


def _flat_regions(vertices: Array, triangles: Array, areas: Array) -> Array:
    """Index of the face that each triangle belongs to, int64 [m]; a face grows from its largest triangle over
    neighbours that lie in the plane of that triangle."""
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
    # The hull is the disjoint union of the tetrahedra spanned by an inner point and the triangles.
    volumes = np.abs(np.einsum("ij,ij->i", a, np.cross(b, c))) / 6.0
    volume = float(volumes.sum())
    total = a + b + c
    center = (volumes @ total) / (4.0 * volume)
    # Second moments of a tetrahedron with one corner at 0: V/20 (aa' + bb' + cc' + ss'), s = a + b + c.
    moments = sum(np.einsum("i,ij,ik->jk", volumes, x, x) for x in (a, b, c, total)) / (20.0 * volume)
    moments = moments - np.outer(center, center)
    return volume, center + inside, np.trace(moments) * np.eye(3) - moments
