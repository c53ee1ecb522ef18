"""Pictures of environments, by `backdrive.view`."""

from __future__ import annotations

import time
import warnings

import numpy as np

from ..model import State, checks
from .task import Task

Array = np.ndarray

DPI = 100
FOVY = 45.0  # degrees


class Picture:
    """Draws states of one task as pictures of `width` × `height` pixels."""

    def __init__(self, task: Task, width: int, height: int) -> None:
        for name, pixels in (("width", width), ("height", height)):
            checks.integer(pixels, f"{name} in pixels")
        self._painter = (PlanarPainter if task.model.dim == 2 else SpatialPainter)(task, width, height)

    def of(self, state: State, environment: int) -> Array:
        """The picture of one environment of a state [B, n]: uint8 [height, width, 3]."""
        return self._painter.of(State(state.q[environment], state.v[environment]))

    def close(self) -> None:
        self._painter.close()


class PlanarPainter:
    """Draws planar models with matplotlib."""

    def __init__(self, task: Task, width: int, height: int) -> None:
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
    """Draws spatial models as films do, from the camera of the task."""

    def __init__(self, task: Task, width: int, height: int) -> None:
        from ..view.spatial import renderer
        from ..view.spatial.scenery import Scenery

        self._model, self._offset = task.model, np.array(task.camera, dtype=np.float64)
        self._scenery = Scenery([task.model.looks], np.zeros((1, 3)))
        self._renderer = renderer(self._scenery.visuals, width, height)

    def of(self, state: State) -> Array:
        from ..view import Staging
        from ..view.spatial.cameras import looking
        from ..view.spatial.marks import NONE

        stage = Staging.of(self._model, state)
        center = stage.positions[0, 0, stage.link(self._model.bodies[0])].astype(np.float64)
        size = float(np.linalg.norm(self._offset))
        view = looking(center + self._offset, center, np.array([0.0, 0.0, 1.0]), FOVY, size)
        return self._renderer.image(*self._scenery.poses(stage.positions[0], stage.rotations[0]), view, NONE)

    def close(self) -> None:
        self._renderer.close()


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
