"""The looks and keyframes of a compiled MuJoCo model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mujoco
import numpy as np

from .looks import RGBA, FileCamera, Looks, Mesh, Site, Texture, Visual
from .rotations import from_quaternion

Array = np.ndarray

DEFAULT = (0.5, 0.5, 0.5, 1.0)
"""The colour of geoms that the file does not give one; a material's takes its place."""
LAST_SHOWN = 2
"""Geoms of groups up to this are drawn, as MuJoCo does; collision shapes beside visual ones are usually of group 3."""
_KINDS = {
    mujoco.mjtGeom.mjGEOM_PLANE: "plane",
    mujoco.mjtGeom.mjGEOM_SPHERE: "sphere",
    mujoco.mjtGeom.mjGEOM_CAPSULE: "capsule",
    mujoco.mjtGeom.mjGEOM_ELLIPSOID: "ellipsoid",
    mujoco.mjtGeom.mjGEOM_CYLINDER: "cylinder",
    mujoco.mjtGeom.mjGEOM_BOX: "box",
    mujoco.mjtGeom.mjGEOM_MESH: "mesh",
    mujoco.mjtGeom.mjGEOM_SDF: "mesh",
    mujoco.mjtGeom.mjGEOM_HFIELD: "mesh",
}


def read_looks(model: mujoco.MjModel, body_links: Sequence[int], shapes: Mapping[int, int], urdf: bool) -> Looks:
    """body_links: the link of each body. shapes: the row of each geom that became a shape. urdf: bodies show what their
    file calls visual, and what collides only where there is nothing else; a MJCF file says by groups what is shown."""
    meshes = {i: _mesh(model, i) for i in range(model.nmesh)}
    fields = {i: _height_field(model, i) for i in range(model.nhfield)}
    textures = {i: _texture(model, i) for i in range(model.nmat)}
    geoms = [g for g in range(model.ngeom) if mujoco.mjtGeom(model.geom_type[g]) in _KINDS]
    shown = _shown(model, geoms, urdf)
    looks = []
    for g in geoms:
        kind, data, material = mujoco.mjtGeom(model.geom_type[g]), int(model.geom_dataid[g]), int(model.geom_matid[g])
        mesh = None
        if _KINDS[kind] == "mesh":
            mesh = (fields if kind == mujoco.mjtGeom.mjGEOM_HFIELD else meshes)[data]
        x, y, z = (1.0, 1.0, 1.0) if mesh is not None else model.geom_size[g].tolist()
        surface = {}
        if material >= 0:
            for name in ("specular", "shininess", "reflectance"):
                surface[name] = float(getattr(model, f"mat_{name}")[material])
        looks.append(
            Visual(
                _name(model, mujoco.mjtObj.mjOBJ_GEOM, g, "geom"),
                body_links[model.geom_bodyid[g]],
                _KINDS[kind],
                (x, y, z),
                model.geom_pos[g].copy(),
                from_quaternion(model.geom_quat[g]),
                _color(model, g),
                mesh,
                textures.get(material),
                shapes.get(g, -1),
                g in shown,
                **surface,
            )
        )
    return Looks(tuple(looks), _sites(model, body_links), _cameras(model, body_links))


def read_keyframes(model: mujoco.MjModel) -> tuple[tuple[str, Array, Array], ...]:
    """Name, q and v of each keyframe."""
    return tuple(
        (_name(model, mujoco.mjtObj.mjOBJ_KEY, i, "key"), model.key_qpos[i].copy(), model.key_qvel[i].copy())
        for i in range(model.nkey)
    )


def _shown(model: mujoco.MjModel, geoms: Sequence[int], urdf: bool) -> set[int]:
    body, visual = model.geom_bodyid, (model.geom_contype == 0) & (model.geom_conaffinity == 0)
    if urdf:
        decorated = {int(body[g]) for g in geoms if visual[g]}
        return {g for g in geoms if visual[g] or int(body[g]) not in decorated}
    shown = {g for g in geoms if model.geom_group[g] <= LAST_SHOWN and model.geom_rgba[g, 3] > 0.0}
    if all(model.body_weldid[body[g]] == 0 for g in shown):  # nothing that moves would be seen
        shown |= {g for g in geoms if not visual[g]}
    return shown


def _color(model: mujoco.MjModel, geom: int) -> RGBA:
    material = int(model.geom_matid[geom])
    own = tuple(model.geom_rgba[geom].tolist())
    r, g, b, a = model.mat_rgba[material].tolist() if material >= 0 and own == DEFAULT else own
    return r, g, b, a


def _mesh(model: mujoco.MjModel, i: int) -> Mesh:
    start, count = model.mesh_vertadr[i], model.mesh_vertnum[i]
    vertices = model.mesh_vert[start : start + count].copy()
    start, count = model.mesh_faceadr[i], model.mesh_facenum[i]
    faces = model.mesh_face[start : start + count].copy()
    at, number = model.mesh_texcoordadr[i], model.mesh_texcoordnum[i]
    if at < 0 or number == 0:
        return Mesh(vertices, faces)
    texcoords = model.mesh_texcoord[at : at + number].copy()
    return Mesh(vertices, faces, texcoords, model.mesh_facetexcoord[start : start + count].copy())


def _height_field(model: mujoco.MjModel, i: int) -> Mesh:
    rows, columns = int(model.hfield_nrow[i]), int(model.hfield_ncol[i])
    x, y, top, _ = model.hfield_size[i].tolist()
    start = model.hfield_adr[i]
    heights = model.hfield_data[start : start + rows * columns].reshape(rows, columns) * top
    across, along = np.meshgrid(np.linspace(-x, x, columns), np.linspace(-y, y, rows))
    vertices = np.stack([across, along, heights], -1).reshape(-1, 3).astype(np.float32)
    corner = (np.arange(rows - 1)[:, None] * columns + np.arange(columns - 1)).ravel()
    first = np.stack([corner, corner + 1, corner + columns + 1], 1)
    second = np.stack([corner, corner + columns + 1, corner + columns], 1)
    return Mesh(vertices, np.concatenate([first, second]).astype(np.int32))


def _texture(model: mujoco.MjModel, material: int) -> Texture | None:
    """The texture of a material's colour."""
    roles = np.atleast_1d(model.mat_texid[material])
    used = [int(roles[role]) for role in (mujoco.mjtTextureRole.mjTEXROLE_RGB, mujoco.mjtTextureRole.mjTEXROLE_RGBA)]
    i = next((texture for texture in used if texture >= 0), -1)
    if i < 0:
        return None
    height, width, channels = (int(x[i]) for x in (model.tex_height, model.tex_width, model.tex_nchannel))
    start = model.tex_adr[i]
    image = model.tex_data[start : start + height * width * channels].reshape(height, width, channels).copy()
    across, along = model.mat_texrepeat[material].tolist()
    cube = model.tex_type[i] != mujoco.mjtTexture.mjTEXTURE_2D
    return Texture(image, cube, (across, along), bool(model.mat_texuniform[material]))


def _sites(model: mujoco.MjModel, body_links: Sequence[int]) -> tuple[Site, ...]:
    return tuple(
        Site(
            _name(model, mujoco.mjtObj.mjOBJ_SITE, i, "site"),
            body_links[model.site_bodyid[i]],
            model.site_pos[i].copy(),
            from_quaternion(model.site_quat[i]),
        )
        for i in range(model.nsite)
    )


def _cameras(model: mujoco.MjModel, body_links: Sequence[int]) -> tuple[FileCamera, ...]:
    cameras = []
    for i in range(model.ncam):
        mode = mujoco.mjtCamLight(model.cam_mode[i]).name.removeprefix("mjCAMLIGHT_").lower()
        target = int(model.cam_targetbodyid[i])
        offset = model.cam_poscom0[i] if mode == "trackcom" else model.cam_pos0[i]
        cameras.append(
            FileCamera(
                _name(model, mujoco.mjtObj.mjOBJ_CAMERA, i, "camera"),
                body_links[model.cam_bodyid[i]],
                model.cam_pos[i].copy(),
                from_quaternion(model.cam_quat[i]),
                float(model.cam_fovy[i]),
                mode,
                body_links[target] if target >= 0 else -1,
                offset.copy(),
                model.cam_mat0[i].reshape(3, 3).copy(),
            )
        )
    return tuple(cameras)


def _name(model: mujoco.MjModel, kind: mujoco.mjtObj, i: int, prefix: str) -> str:
    return mujoco.mj_id2name(model, kind, i) or f"{prefix}{i}"
