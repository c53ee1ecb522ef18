"""Pictures of environments: planar models by `backdrive.view`, spatial ones by MuJoCo's renderer."""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from typing import Any

import numpy as np

from ..model import Box, Capsule, Convex, Cylinder, HalfSpace, Model, Sphere, State, checks
from ..model.shapes import Ellipsoid
from ..simulator import Simulator
from .task import Task

Array = np.ndarray

DPI = 100
COLORS = ("0.80 0.55 0.35", "0.35 0.55 0.75", "0.50 0.65 0.40", "0.70 0.50 0.65")  # Colours of bodies, in turn.
LIGHT = '<light mode="track" directional="true" pos="-1 -1 4" dir="0.25 0.25 -1" diffuse="0.7 0.7 0.7"/>'


class Picture:
    """Draws states of one task as pictures of `width` × `height` pixels."""

    def __init__(self, simulator: Simulator, task: Task, width: int, height: int) -> None:
        for name, pixels in (("width", width), ("height", height)):
            checks.integer(pixels, f"{name} in pixels")
        self._painter = (PlanarPainter if task.model.dim == 2 else SpatialPainter)(simulator, task, width, height)

    def of(self, state: State, environment: int) -> Array:
        """The picture of one environment of a state [B, n]: uint8 [height, width, 3]."""
        return self._painter.of(State(state.q[environment], state.v[environment]))

    def close(self) -> None:
        self._painter.close()


class PlanarPainter:
    """Draws planar models with matplotlib."""

    def __init__(self, simulator: Simulator, task: Task, width: int, height: int) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        from ..view import draw

        self._draw, self._task = draw, task
        self._figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
        self._canvas = FigureCanvasAgg(self._figure)
        self._axes = self._figure.add_axes((0.0, 0.0, 1.0, 1.0))

    def of(self, state: State) -> Array:
        self._axes.clear()
        self._draw(self._task.model, state, self._axes, limits=self._task.limits)
        self._canvas.draw()
        return np.asarray(self._canvas.buffer_rgba())[..., :3].copy()

    def close(self) -> None:
        self._figure.clear()


class SpatialPainter:
    """Draws spatial models with MuJoCo, in a MuJoCo model whose bodies are posed as the simulator's."""

    def __init__(self, simulator: Simulator, task: Task, width: int, height: int) -> None:
        import mujoco

        self._mujoco, self._simulator, model = mujoco, simulator, task.model
        self._bodies = model.bodies
        self._model = mujoco.MjModel.from_xml_string(scenery(model, width, height))
        self._data = mujoco.MjData(self._model)
        self._context = _open_context(mujoco, width, height)
        self._context.make_current()
        self._resources = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._resources)
        self._scene = mujoco.MjvScene(self._model, maxgeom=1000)
        self._area = mujoco.MjrRect(0, 0, width, height)
        self._camera = mujoco.MjvCamera()
        x, y, z = task.camera
        self._camera.azimuth = math.degrees(math.atan2(-y, -x))
        self._camera.elevation = -math.degrees(math.atan2(z, math.hypot(x, y)))
        self._camera.distance = math.sqrt(x * x + y * y + z * z)

    def of(self, state: State) -> Array:
        mujoco, data = self._mujoco, self._data
        path = self._simulator.rollout(state, steps=1)  # Its first state has the poses of the bodies.
        for i, body in enumerate(self._bodies):
            data.mocap_pos[i] = path.position(body)[0].numpy()
            data.mocap_quat[i] = path.orientation(body)[0].numpy()
        mujoco.mj_kinematics(self._model, data)
        mujoco.mj_camlight(self._model, data)
        self._camera.lookat = data.mocap_pos[0]
        self._context.make_current()
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(
            self._model, data, mujoco.MjvOption(), mujoco.MjvPerturb(), self._camera, everything, self._scene
        )
        mujoco.mjr_render(self._area, self._scene, self._resources)
        image = np.empty((self._area.height, self._area.width, 3), np.uint8)
        mujoco.mjr_readPixels(image, None, self._area, self._resources)
        return image[::-1].copy()  # OpenGL's rows are from the bottom up.

    def close(self) -> None:
        self._context.make_current()
        self._resources.free()
        self._context.free()


def _open_context(mujoco: Any, width: int, height: int) -> Any:
    """A rendering context: MUJOCO_GL's or MuJoCo's own choice; on Linux without a screen, EGL or OSMesa."""
    screen = sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if screen or os.environ.get("MUJOCO_GL"):
        return mujoco.GLContext(width, height)
    failures = []
    for name in ("egl", "osmesa"):
        try:
            module = __import__(f"mujoco.{name}", fromlist=["GLContext"])
            return module.GLContext(width, height)
        except Exception as error:  # Drivers raise all kinds of errors.
            failures.append(f"{name}: {error}")
    raise RuntimeError(
        "MuJoCo cannot draw here: there is no screen, and neither EGL nor OSMesa works "
        f"({'; '.join(failures)}). Install one of them (Debian: libegl1 or libosmesa6)"
    )


def scenery(model: Model, width: int, height: int) -> str:
    """A MuJoCo model (MJCF) with the shapes of a model; its bodies are mocap bodies."""
    meshes: list[str] = []
    bodies = []
    for i, (name, shapes) in enumerate(zip(model.bodies, model.shapes, strict=True)):
        geoms = "".join(_geom(placed, f'rgba="{COLORS[i % len(COLORS)]} 1"', meshes) for placed in shapes)
        bodies.append(f'<body name="{name}" mocap="true">{"" if i else LIGHT}{geoms}</body>')
    statics = "".join(_geom(placed, 'material="floor"', meshes) for placed in model.statics)
    return f"""<mujoco>
      <visual>
        <global offwidth="{width}" offheight="{height}"/><map shadowclip="3"/><quality shadowsize="4096"/>
      </visual>
      <asset>
        <texture type="skybox" builtin="gradient" rgb1="1 1 1" rgb2="0.75 0.82 0.9" width="64" height="64"/>
        <texture name="floor" type="2d" builtin="checker" rgb1="0.86 0.88 0.9" rgb2="0.78 0.81 0.84" width="128"
          height="128"/>
        <material name="floor" texture="floor" texrepeat="1 1" texuniform="true"/>
        {"".join(meshes)}
      </asset>
      <statistic extent="2"/>
      <worldbody>{"".join(bodies)}{statics}</worldbody>
    </mujoco>"""


def _geom(placed: Any, look: str, meshes: list[str]) -> str:
    import mujoco

    shape, rotation = placed.shape, np.array(placed.rotation)
    place, turn = np.array(placed.position), np.empty(4)
    mujoco.mju_mat2Quat(turn, rotation.ravel())
    pose = f'pos="{_text(place)}" quat="{_text(turn)}"'
    match shape:
        case HalfSpace():
            normal = rotation @ np.array(shape.normal, float)
            foot = place + normal * shape.offset
            return f'<geom type="plane" size="0 0 1" pos="{_text(foot)}" zaxis="{_text(normal)}" {look}/>'
        case Sphere():
            return f'<geom type="sphere" size="{shape.radius}" {pose} {look}/>'
        case Box():
            return f'<geom type="box" size="{_text(np.array(shape.sizes) / 2.0)}" {pose} {look}/>'
        case Capsule() | Cylinder():
            kind = "capsule" if isinstance(shape, Capsule) else "cylinder"
            return f'<geom type="{kind}" size="{shape.radius} {shape.length / 2.0}" {pose} {look}/>'
        case Ellipsoid():
            return f'<geom type="ellipsoid" size="{_text(shape.size)}" {pose} {look}/>'
        case Convex():
            name = f"hull{len(meshes)}"
            points = _text(np.array(shape.vertices, float).ravel())
            meshes.append(f'<mesh name="{name}" vertex="{points}"/>')
            return f'<geom type="mesh" mesh="{name}" {pose} {look}/>'
    raise NotImplementedError(f"a {type(shape).__name__} cannot be drawn")


def _text(numbers: Array) -> str:
    return " ".join(repr(float(x)) for x in numbers)


class Window:
    """Shows pictures as a film in a matplotlib window; invisible with a backend without windows (Agg)."""

    def __init__(self, image: Array, task: Task) -> None:
        import matplotlib.pyplot as plt

        self._plt, self._seconds = plt, task.seconds
        height, width = image.shape[:2]
        self._figure = plt.figure(task.name, figsize=(width / DPI, height / DPI), dpi=DPI)
        axes = self._figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        self._image = axes.imshow(image)
        self._next = time.perf_counter()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*non-interactive.*")
            plt.show(block=False)

    def show(self, image: Array) -> None:
        """Show the next picture, in real time if drawing is fast enough."""
        self._image.set_data(image)
        self._figure.canvas.draw_idle()
        self._figure.canvas.flush_events()
        self._next = max(self._next + self._seconds, time.perf_counter() - self._seconds)
        time.sleep(max(0.0, self._next - time.perf_counter()))

    def close(self) -> None:
        self._plt.close(self._figure)
