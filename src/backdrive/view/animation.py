"""Films of planar trajectories, in real time or at another speed."""

from __future__ import annotations

import base64
import importlib.util
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..model import checks
from ..trajectory import Trajectory
from . import video
from .camera import limits as camera_limits
from .drawing import Drawing, choose
from .stage import frames
from .world import PlanarWorld

Array = np.ndarray

WIDTH, DPI = 6.4, 110  # inches, pixels per inch
# Arrows of forces, relative to the picture's diagonal: length for the median force, largest length, width.
ARROW_LENGTH, LONGEST_ARROW, ARROW_WIDTH = 0.08, 0.2, 0.005


def animate(
    path: Trajectory,
    file: str | os.PathLike[str] | None = None,
    *,
    environment: int = 0,
    fps: float = 30.0,
    speed: float = 1.0,
    trail: Sequence[str] | bool = (),
    trail_seconds: float = 1.0,
    forces: bool | None = None,
    limits: Any = "auto",
    colors: Mapping[str, str] | None = None,
    title: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Animation:
    """A film of a planar trajectory, written to ``file`` (.mp4 or .gif) if given; else frames are drawn when needed.

    As the last value of a notebook cell, the film plays there. environment: number of the environment in a batch.
    fps: frames per second. speed: 1 is real time, 0.1 ten times slower. trail: names of bodies (True: all) that leave a
    trail, of ``trail_seconds``. forces: draw contact forces as arrows, averaged over a frame; None: if the rollout
    recorded them. limits: "auto", "all" (the whole motion), "follow" (a window that follows the bodies), or (left,
    right, bottom, top) in m. colors: {body: colour}. progress: called with the numbers of finished and of all frames.
    """
    animation = Animation(
        path, environment=environment, fps=fps, speed=speed, trail=trail, trail_seconds=trail_seconds, forces=forces,
        limits=limits, colors=colors, title=title,
    )  # fmt: skip
    if file is not None:
        animation.save(file, progress)
    return animation


class Animation:
    """A film. ``save(file)`` writes it, ``image(time)`` is one of its frames, and a notebook plays it."""

    def __init__(
        self, path: Trajectory, *, environment: int, fps: float, speed: float, trail: Sequence[str] | bool,
        trail_seconds: float, forces: bool | None, limits: Any, colors: Mapping[str, str] | None, title: str | None,
    ) -> None:  # fmt: skip
        if not isinstance(path, Trajectory):
            raise TypeError(f"path must be what Simulator.rollout returned, got {type(path).__name__}")
        self.fps = checks.number(fps, "fps", low=0.0, strict=True)
        self.speed = checks.number(speed, "speed", low=0.0, strict=True)
        self.trail_seconds = checks.number(trail_seconds, "trail_seconds", low=0.0, strict=True)
        self.file: Path | None = None
        batched = path.q.ndim == 3
        q = choose(path.q.detach().cpu().double().numpy(), environment, batched, 1)
        constants = path.constants.detach().cpu().double().numpy()
        if constants.ndim == 2:
            constants = choose(constants, environment, batched, 0)
        self._world = PlanarWorld(path.model, constants)
        self._trailing = _links(path, trail)
        self._times = path.time.double().numpy()
        self._frames = frames(self._times, self.fps / self.speed)
        self._angle, self._position = self._world.poses(q)
        shown = self._frames
        self._limits = camera_limits(self._world, self._angle[shown], self._position[shown], limits)
        self._forces = self._mean_forces(path, environment, batched, forces)
        self._figure, axes = _figure(self._limits[0], title)
        self._drawing = Drawing(axes, self._world, colors)
        self._html: str | None = None

    def __len__(self) -> int:
        """Number of frames."""
        return len(self._frames)

    @property
    def seconds(self) -> float:
        """Duration of the film, s."""
        return len(self) / self.fps

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        width, height = self._figure.canvas.get_width_height()
        return width, height

    def save(self, file: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> Path:
        """Write a .mp4 or a .gif."""
        if not isinstance(file, str | os.PathLike):
            raise TypeError(f"file must be a path, got {file!r}")
        target = Path(file)
        video.write(target, self.images(progress), self.size, self.fps)
        self.file = target
        return target

    def images(self, progress: Callable[[int, int], None] | None = None) -> Iterator[Array]:
        """All frames: uint8 [height, width, 3], RGB."""
        still = bool((self._limits == self._limits[0]).all())
        background = None
        canvas = self._canvas
        axes = self._drawing.axes
        for k in range(len(self)):
            self._show(k)
            if still and background is None:  # The background is drawn once.
                for artist in self._drawing.moving:
                    artist.set_animated(True)
                canvas.draw()
                background = canvas.copy_from_bbox(self._figure.bbox)
            if background is not None:
                canvas.restore_region(background)
                for artist in sorted(self._drawing.moving, key=lambda artist: artist.zorder):
                    axes.draw_artist(artist)
            else:
                canvas.draw()
            yield self._pixels()
            if progress is not None:
                progress(k + 1, len(self))
        for artist in self._drawing.moving:
            artist.set_animated(False)

    def image(self, time: float) -> Array:
        """The frame nearest to a time (s): uint8 [height, width, 3], RGB."""
        time = checks.number(time, "time")
        self._show(int(np.abs(self._times[self._frames] - time).argmin()))
        self._canvas.draw()
        return self._pixels()

    def _repr_html_(self) -> str:
        if self._html is None:
            kind = "mp4" if importlib.util.find_spec("imageio_ffmpeg") else "gif"
            with tempfile.TemporaryDirectory() as folder:
                film = Path(folder) / f"film.{kind}"
                video.write(film, self.images(), self.size, self.fps)
                data = base64.b64encode(film.read_bytes()).decode("ascii")
            if kind == "mp4":
                source = f'<source src="data:video/mp4;base64,{data}" type="video/mp4">'
                self._html = f'<video width="{self.size[0]}" controls loop autoplay muted>{source}</video>'
            else:
                self._html = f'<img width="{self.size[0]}" src="data:image/gif;base64,{data}">'
        return self._html

    def __repr__(self) -> str:
        width, height = self.size
        return f"Animation({len(self)} frames, {self.seconds:.2f} s at {self.fps:g} fps, {width} x {height} pixels)"

    # ------------------------------------------------------------------------------------------ frames

    @property
    def _canvas(self) -> FigureCanvasAgg:
        canvas = self._figure.canvas
        assert isinstance(canvas, FigureCanvasAgg)
        return canvas

    def _pixels(self) -> Array:
        return np.array(self._canvas.buffer_rgba())[..., :3]

    def _show(self, k: int) -> None:
        step, drawing = self._frames[k], self._drawing
        drawing.pose(self._angle[step], self._position[step], self._limits[k])
        if self._forces is not None:
            points, arrows = self._forces[k]
            drawing.forces(points, arrows, ARROW_WIDTH * _diagonal(self._limits[k]))
        if self._trailing:
            since = np.searchsorted(self._times, self._times[step] - self.trail_seconds * self.speed)
            stride = max(1, (step - int(since)) // 40)
            drawing.trail([(i, self._position[since : step + 1 : stride, i]) for i in self._trailing])
        drawing.time(float(self._times[step]))

    def _mean_forces(
        self, path: Trajectory, environment: int, batched: bool, wanted: bool | None
    ) -> list[tuple[Array, Array]] | None:
        """For every frame, the contacts since the previous one: points [k, 2] (m), and forces [k, 2] as arrows (m)."""
        if wanted is False:
            return None
        try:
            contacts = path.contacts
        except (ValueError, NotImplementedError):
            if wanted:
                raise
            return None
        if not contacts.pairs:
            return None
        force, point = (
            choose(x.detach().cpu().double().numpy(), environment, batched, 1) for x in (contacts.force, contacts.point)
        )
        ends = np.array([[path.model.shape_link[path.model.shape_index(s)] for s in pair] for pair in contacts.pairs])
        frames = []
        for before, now in zip([-1, *self._frames[:-1]], self._frames, strict=True):
            steps = slice(max(before, 0), max(now, 1))
            mean = force[steps].mean(0)
            strongest = np.linalg.norm(force[steps], axis=-1).argmax(0)
            where = np.take_along_axis(point[steps], strongest[None, :, None], 0)[0]
            pressing = np.isfinite(mean).all(-1) & (mean != 0.0).any(-1)
            on_first, on_second = pressing & (ends[:, 0] >= 0), pressing & (ends[:, 1] >= 0)
            points = np.concatenate([where[on_first], where[on_second]])
            frames.append((points, np.concatenate([mean[on_first], -mean[on_second]])))
        sizes = np.concatenate([np.linalg.norm(arrows, axis=-1) for _, arrows in frames])
        typical = float(np.median(sizes)) if len(sizes) else 1.0
        scaled = []
        for (points, arrows), shown in zip(frames, self._limits, strict=True):
            diagonal, size = _diagonal(shown), np.linalg.norm(arrows, axis=-1, keepdims=True)
            length = np.minimum(ARROW_LENGTH * size / typical, LONGEST_ARROW) * diagonal
            scaled.append((points, arrows * (length / np.maximum(size, 1e-300))))
        return scaled


def _links(path: Trajectory, trail: Sequence[str] | bool) -> list[int]:
    model = path.model
    if isinstance(trail, bool):
        names: Sequence[str] = model.bodies if trail else ()
    else:
        names = (trail,) if isinstance(trail, str) else tuple(trail)
    return [int(model.body_link[model.body_index(name)]) for name in names]


def _figure(limits: Array, title: str | None) -> tuple[Figure, Any]:
    """A figure with axes that fill it; its size in pixels is even, as video codecs require."""
    wide, high = limits[1] - limits[0], limits[3] - limits[2]
    left, right, bottom, top = 0.38, 0.1, 0.25, 0.1 if title is None else 0.32  # Margins around the axes, inches.
    width = WIDTH if wide >= high else max(3.2, WIDTH * wide / high)
    height = (width - left - right) * high / wide + bottom + top
    pixels = [2 * round(x * DPI / 2) for x in (width, height)]
    figure = Figure(figsize=(pixels[0] / DPI, pixels[1] / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    box = (left / width, bottom / height, 1 - (left + right) / width, 1 - (bottom + top) / height)
    axes = figure.add_axes(box)
    if title is not None:
        axes.set_title(title, fontsize=10, pad=5)
    return figure, axes


def _diagonal(limits: Array) -> float:
    return math.hypot(limits[1] - limits[0], limits[3] - limits[2])
