"""MuJoCo's renderer: meshes, materials, textures, shadows. It needs OpenGL: a screen, EGL or OSMesa."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np

from ...model.looks import Texture, Visual
from ...model.rotations import from_quaternion
from ..poses import quaternion_of
from .cameras import Viewpoint
from .marks import Marks

Array = np.ndarray

MARKS = 3000  # the most marks in a picture
SHADOWS = {False: 1024, True: 4096}  # pixels of the map of shadows, of films and of single pictures
REACH = 1.25  # of the map of shadows: from the focus to its border, in sizes of what is seen
LINE = 3.0  # width of trails, pixels
SKY, HAZE = ((0.60, 0.72, 0.86), (0.95, 0.97, 1.0)), (0.93, 0.95, 0.98)  # the sky above and below, the horizon
CHECKS = ((0.90, 0.915, 0.93), (0.83, 0.85, 0.875))  # of floors without a material
_GEOMS = {
    kind: getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}")
    for kind in ("plane", "sphere", "capsule", "cylinder", "box", "ellipsoid", "mesh")
}


class NoOpenGL(RuntimeError):
    """There is no OpenGL here."""


class OpenGLRenderer:
    """Draws visuals as the geoms of a MuJoCo model without bodies."""

    def __init__(self, visuals: Sequence[Visual], width: int, height: int, *, fine: bool = False) -> None:
        self._context = open_context(width, height)
        self._model = _compiled(visuals, width, height)
        self._model.vis.quality.shadowsize = SHADOWS[fine]
        self._planes = [i for i, visual in enumerate(visuals) if visual.kind == "plane"]
        self._data = mujoco.MjData(self._model)
        mujoco.mj_forward(self._model, self._data)
        self._resources: Any = None  # made for the size of what is seen
        self._scene = mujoco.MjvScene(self._model, maxgeom=len(visuals) + MARKS)
        self._area = mujoco.MjrRect(0, 0, width, height)
        self._camera, self._options = mujoco.MjvCamera(), mujoco.MjvOption()
        self._camera.type, self._camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, 0
        self._options.geomgroup[:] = 1
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0  # twice the work
        # MuJoCo moves meshes into the frame of their inertia.
        mesh = np.where(self._model.geom_dataid >= 0, self._model.geom_dataid, 0)
        moved = (self._model.geom_dataid >= 0) & (self._model.nmesh > 0)
        self._shift, self._turn = np.zeros((len(visuals), 3)), np.tile(np.eye(3), (len(visuals), 1, 1))
        for i in np.flatnonzero(moved).tolist():
            self._shift[i] = self._model.mesh_pos[mesh[i]]
            self._turn[i] = from_quaternion(self._model.mesh_quat[mesh[i]])

    def image(self, positions: Array, rotations: Array, view: Viewpoint, marks: Marks) -> Array:
        model, data = self._model, self._data
        positions, rotations, view, marks = upright(positions, rotations, view, marks)
        data.geom_xpos[:] = positions + np.einsum("nij,nj->ni", rotations, self._shift)
        data.geom_xmat[:] = (rotations @ self._turn).reshape(-1, 9)
        data.cam_xpos[0], data.cam_xmat[0] = view.eye, view.axes.ravel()
        model.cam_fovy[0] = view.fovy
        data.light_xpos[0], data.light_xdir[0] = view.focus - 1.5 * view.size * view.sun, view.sun
        distance = max(float(np.linalg.norm(view.eye - view.focus)), view.size)
        model.vis.map.znear, model.vis.map.zfar = 0.05 * distance / view.size, 10.0 * distance / view.size
        self._context.make_current()
        self._prepare(view.size)
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateCamera(model, data, self._camera, self._scene)  # the middle of infinite planes follows it
        mujoco.mjv_updateScene(model, data, self._options, mujoco.MjvPerturb(), self._camera, everything, self._scene)
        self._ground()
        self._mark(marks)
        mujoco.mjr_render(self._area, self._scene, self._resources)
        image = np.empty((self._area.height, self._area.width, 3), np.uint8)
        mujoco.mjr_readPixels(image, None, self._area, self._resources)
        return image[::-1].copy()  # OpenGL's rows are from the bottom up.

    def close(self) -> None:
        if self._context is not None:
            self._context.make_current()
            if self._resources is not None:
                self._resources.free()
            self._context.free()
            self._context = None

    def _prepare(self, size: float) -> None:
        """Send everything to OpenGL, for pictures of a size (m) to which the map of shadows is fitted."""
        if self._resources is None or size != self._model.stat.extent:
            self._model.stat.extent = size
            if self._resources is not None:
                self._resources.free()
            try:
                self._resources = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100)
            except mujoco.FatalError as error:
                self._resources = None
                pixels = f"{self._area.width} x {self._area.height} pixels"
                raise ValueError(f"OpenGL cannot draw this here, in {pixels}: {error}") from error
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._resources)

    def _ground(self) -> None:
        """Keep planes out of the map of shadows: rounding would let them shade themselves, in speckles."""
        for k in range(self._scene.ngeom):
            geom = self._scene.geoms[k]
            if geom.objtype == mujoco.mjtObj.mjOBJ_GEOM and geom.objid in self._planes:
                geom.category = mujoco.mjtCatBit.mjCAT_DECOR

    def _mark(self, marks: Marks) -> None:
        for tail, tip, radius, color in marks.arrows:
            self._connect(mujoco.mjtGeom.mjGEOM_ARROW, radius, tail, tip, color)
        for points, _, color in marks.lines:
            dark = (*(0.6 * part for part in color[:3]), color[3])  # lines are lit from all sides
            for first, second in itertools.pairwise(points):
                self._connect(mujoco.mjtGeom.mjGEOM_LINE, LINE, first, second, dark)

    def _connect(self, kind: mujoco.mjtGeom, radius: float, first: Array, second: Array, color: Any) -> None:
        scene = self._scene
        if scene.ngeom >= scene.maxgeom or (first == second).all():
            return
        geom = scene.geoms[scene.ngeom]
        rgba = np.array(color, dtype=np.float32)
        mujoco.mjv_initGeom(geom, kind, np.zeros(3), np.zeros(3), np.eye(3).ravel(), rgba)
        mujoco.mjv_connector(geom, kind, radius, np.asarray(first, dtype=np.float64), np.asarray(second, np.float64))
        geom.category = mujoco.mjtCatBit.mjCAT_DECOR
        scene.ngeom += 1


def upright(positions: Array, rotations: Array, view: Viewpoint, marks: Marks) -> tuple[Array, Array, Viewpoint, Marks]:
    """The same, turned so that up is z, which MuJoCo's sky takes for granted."""
    if view.up[2] == 1.0:
        return positions, rotations, view, marks
    x = np.array([1.0, 0.0, 0.0])
    turn = np.stack([x, np.cross(view.up, x), view.up])
    seen = Viewpoint(turn @ view.eye, turn @ view.axes, view.fovy, turn @ view.focus, view.size, turn @ view.up)
    arrows = [(turn @ tail, turn @ tip, *rest) for tail, tip, *rest in marks.arrows]
    lines = [(points @ turn.T, *rest) for points, *rest in marks.lines]
    return positions @ turn.T, turn @ rotations, seen, Marks(arrows, lines)


def _compiled(visuals: Sequence[Visual], width: int, height: int) -> mujoco.MjModel:
    """A MuJoCo model whose geoms, all of the world, are the visuals."""
    spec = mujoco.MjSpec()
    quality, headlight = spec.visual.quality, spec.visual.headlight
    spec.visual.global_.offwidth, spec.visual.global_.offheight = width, height
    quality.numslices, quality.numstacks = 32, 20
    headlight.ambient, headlight.diffuse, headlight.specular = [0.4] * 3, [0.35] * 3, [0.1] * 3
    spec.visual.map.shadowclip, spec.visual.map.shadowscale = REACH, 1.0
    spec.visual.rgba.haze = [*HAZE, 1.0]
    spec.worldbody.add_light(
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, diffuse=[0.55] * 3, specular=[0.25] * 3, ambient=[0.0] * 3,
        castshadow=True, pos=[0, 0, 4],
    )  # fmt: skip
    spec.worldbody.add_camera(name="view")
    gradient, checker = mujoco.mjtBuiltin.mjBUILTIN_GRADIENT, mujoco.mjtBuiltin.mjBUILTIN_CHECKER
    spec.add_texture(
        name="sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX, builtin=gradient, rgb1=SKY[0], rgb2=SKY[1], width=128,
        height=768,
    )  # fmt: skip
    spec.add_texture(
        name="checks", type=mujoco.mjtTexture.mjTEXTURE_2D, builtin=checker, rgb1=CHECKS[0], rgb2=CHECKS[1], width=256,
        height=256,
    )  # fmt: skip
    floor = spec.add_material(name="checks", texrepeat=[1.0, 1.0], texuniform=True, reflectance=0.04)
    _use(floor, "checks")
    meshes: dict[int, str] = {}
    textures: dict[int, str] = {}
    materials: dict[Any, str] = {}
    for visual in visuals:
        geom = spec.worldbody.add_geom(
            type=_GEOMS[visual.kind], pos=visual.position, quat=quaternion_of(visual.rotation), rgba=visual.rgba,
            contype=0, conaffinity=0,
        )  # fmt: skip
        if visual.mesh is not None:
            geom.meshname = _mesh(spec, visual, meshes)
        elif visual.kind == "plane":
            geom.size = [visual.size[0], visual.size[1], 1.0]
        else:
            geom.size = visual.size
        bare = visual.kind == "plane" and visual.texture is None
        if bare:
            geom.material, geom.rgba = "checks", (1.0, 1.0, 1.0, 1.0)
            continue
        geom.material = _material(spec, visual, materials, textures)
    return spec.compile()


def _material(spec: mujoco.MjSpec, visual: Visual, known: dict[Any, str], textures: dict[int, str]) -> str:
    """The name of the material of a visual; those that look the same share one, for there can be 999."""
    texture = visual.texture
    wrapped = None if texture is None else (id(texture.image), texture.cube, texture.repeat, texture.uniform)
    key = visual.rgba, visual.specular, visual.shininess, visual.reflectance, wrapped
    if key not in known:
        known[key] = f"material{len(known)}"
        made = spec.add_material(name=known[key], rgba=visual.rgba)
        made.specular, made.shininess = visual.specular, visual.shininess
        made.reflectance = min(visual.reflectance, 0.15)
        if texture is not None:
            _use(made, _texture(spec, texture, textures))
            made.texrepeat, made.texuniform = texture.repeat, texture.uniform
    return known[key]


def _use(material: Any, texture: str) -> None:
    names = [""] * int(mujoco.mjtTextureRole.mjNTEXROLE)
    names[int(mujoco.mjtTextureRole.mjTEXROLE_RGB)] = texture
    material.textures = names


def _mesh(spec: mujoco.MjSpec, visual: Visual, known: dict[int, str]) -> str:
    plain = visual.size == (1.0, 1.0, 1.0)
    key = id(visual.mesh) if plain else -id(visual)
    if key not in known:
        mesh = visual.triangles()
        assert mesh is not None
        known[key] = f"mesh{len(known)}"
        made = spec.add_mesh(name=known[key], uservert=mesh.vertices.ravel(), userface=mesh.faces.ravel())
        made.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
        if mesh.normals is not None:
            made.usernormal, made.userfacenormal = mesh.normals.ravel(), mesh.faces.ravel()
        if mesh.texcoords is not None and mesh.texture_faces is not None:
            made.usertexcoord = mesh.texcoords.ravel()
            made.userfacetexcoord = mesh.texture_faces.ravel()
    return known[key]


def _texture(spec: mujoco.MjSpec, texture: Texture, known: dict[int, str]) -> str:
    key = id(texture.image)
    if key not in known:
        known[key] = f"texture{len(known)}"
        height, width, channels = texture.image.shape
        kind = mujoco.mjtTexture.mjTEXTURE_CUBE if texture.cube else mujoco.mjtTexture.mjTEXTURE_2D
        made = spec.add_texture(name=known[key], type=kind, width=width, height=height, nchannel=channels)
        made.data = texture.image.tobytes()
    return known[key]


def open_context(width: int, height: int) -> Any:
    """A rendering context: MUJOCO_GL's or MuJoCo's own choice; on Linux without a screen, EGL or OSMesa."""
    screen = sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    failures = []
    if screen or os.environ.get("MUJOCO_GL"):
        try:
            return mujoco.GLContext(width, height)
        except Exception as error:  # Drivers raise all kinds of errors.
            failures.append(f"MuJoCo's choice: {_said(error)}")
    for name in ("egl", "osmesa") if sys.platform == "linux" else ():
        try:
            module = __import__(f"mujoco.{name}", fromlist=["GLContext"])
            return module.GLContext(width, height)
        except Exception as error:
            failures.append(f"{name}: {_said(error)}")
    raise NoOpenGL(
        f"MuJoCo cannot draw here, for OpenGL does not work ({'; '.join(failures)}); install it (Debian: libegl1 and "
        "libgl1-mesa-dri, or libosmesa6)"
    )


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
