"""Convex hulls: MuJoCo's mesh compiler finds the faces, the integrals over them are done here in float64."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def hull_faces(points: Array) -> tuple[Array, Array]:
    """Vertices [n, 3] and triangles [m, 3] (indices into them) of the convex hull of points."""
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
    spec.worldbody.add_body().add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="hull")
    try:
        compiled = spec.compile()
    except ValueError as error:
        raise ValueError(f"Convex vertices have no proper hull: {error}") from None
    vertices = points[chosen]
    if compiled.nmeshvert != len(vertices):
        raise ValueError("Convex vertices are too close to each other to find their hull")
    return vertices, compiled.mesh_face


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
