"""Mesh and image files that only pictures need: they are read where they exist, and missed by nobody where not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco

_INERTIA = mujoco.mjtInertiaFromGeom


def spare_geoms(spec: mujoco.MjSpec, contact_ignored: bool) -> list[mujoco.MjsGeom]:
    """The geoms with meshes that have no part in the motion: they neither collide nor give their body its inertia.

    Where contact is ignored, no geom collides, and those kept are made so that MuJoCo computes no hulls of them.
    """
    if spec.compiler.inertiafromgeom == _INERTIA.mjINERTIAFROMGEOM_TRUE:
        return []
    inferred = spec.compiler.inertiafromgeom == _INERTIA.mjINERTIAFROMGEOM_AUTO
    paired = set() if contact_ignored else {name for pair in spec.pairs for name in (pair.geomname1, pair.geomname2)}
    spare = []
    for body in spec.bodies:
        if inferred and not body.explicitinertial and body.name != "world":
            continue
        for geom in body.geoms:
            collides = geom.contype or geom.conaffinity or (geom.name and geom.name in paired)
            if geom.meshname and (contact_ignored or not collides):
                spare.append(geom)
    return spare


def drop_missing(spec: mujoco.MjSpec, spare: list[mujoco.MjsGeom]) -> None:
    """Delete the spare geoms whose mesh file does not exist, and the images that do not."""
    missing = {mesh.name for mesh in spec.meshes if mesh.file and not _exists(spec, mesh, mesh.compiler.meshdir)}
    gone = [geom for geom in spare if geom.meshname in missing]
    drop_geoms(spec, gone)
    for geom in gone:
        spare.remove(geom)
    lost = set()
    for texture in list(spec.textures):
        if texture.file and not _exists(spec, texture, texture.compiler.texturedir):
            lost.add(texture.name)
            spec.delete(texture)
    for material in spec.materials if lost else ():
        material.textures = ["" if name in lost else name for name in material.textures]


def drop_geoms(spec: mujoco.MjSpec, geoms: list[mujoco.MjsGeom]) -> None:
    """Delete geoms, and the meshes that nothing else uses."""
    if not geoms:
        return
    names = {geom.meshname for geom in geoms}
    for geom in geoms:
        spec.delete(geom)
    used = {geom.meshname for geom in spec.geoms}
    for mesh in list(spec.meshes):
        if mesh.name in names - used:
            spec.delete(mesh)


def _exists(spec: mujoco.MjSpec, asset: Any, folder: str) -> bool:
    """Whether the file of a mesh or texture is there. folder: where its kind of files is, relative to the model's."""
    return (Path(spec.modelfiledir) / folder / asset.file).is_file()
