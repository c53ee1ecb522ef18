"""Planar worlds on matplotlib axes, in the plane."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..animation import Animation, FilmOptions
from ..camera import limits as camera_limits
from ..drawing import Drawing
from ..stage import Staging
from ..world import PlanarWorld

Array = np.ndarray

WIDTH, DPI = 6.4, 110  # inches, pixels per inch
# Arrows of forces, relative to the picture's diagonal: length for the median force, largest length, width.
ARROW_LENGTH, LONGEST_ARROW, ARROW_WIDTH = 0.08, 0.2, 0.005


def show(stage: Staging, options: FilmOptions | None = None, *, limits: Any = "auto") -> Animation:
    """A film. limits: "auto", "all" (the whole motion), "follow" (a window that follows the bodies), or (left, right,
    bottom, top) in m."""
    return PlanarAnimation(stage, options or FilmOptions(), limits)


def still(stage: Staging, ax: Axes, options: FilmOptions, *, limits: Any = "auto") -> None:
    """A picture of the first frame on axes."""
    world = PlanarWorld(stage.model, stage.constants if stage.constants.ndim == 1 else stage.constants[0])
    angle, position = world.poses(stage.q[:1, 0])
    Drawing(ax, world, options.colors).pose(angle[0], position[0], camera_limits(world, angle, position, limits)[0])


class PlanarAnimation(Animation):
    """A film of one environment."""

    def __init__(self, stage: Staging, options: FilmOptions, limits: Any) -> None:
        super().__init__(stage, options)
        self._trail_seconds = options.trail_seconds
        self._world = PlanarWorld(stage.model, stage.constants if stage.constants.ndim == 1 else stage.constants[0])
        self._trailing = stage.links(options.trail)
        self._angle, self._position = self._world.poses(stage.q[:, 0])
        shown = self._frames
        self._limits = camera_limits(self._world, self._angle[shown], self._position[shown], limits)
        self._forces = self._mean_forces(options.forces)
        self._figure, axes = _figure(self._limits[0], options.title)
        self._drawing = Drawing(axes, self._world, options.colors)

    @property
    def size(self) -> tuple[int, int]:
        width, height = self._figure.canvas.get_width_height()
        return width, height

    def frame(self, k: int) -> Array:
        self._show(k)
        self._canvas.draw()
        return self._pixels()

    def _all(self) -> Iterator[Array]:
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
        for artist in self._drawing.moving:
            artist.set_animated(False)

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
            since = np.searchsorted(self.stage.time, self.stage.time[step] - self._trail_seconds * self.speed)
            stride = max(1, (step - int(since)) // 40)
            drawing.trail([(i, self._position[since : step + 1 : stride, i]) for i in self._trailing])
        drawing.time(float(self.stage.time[step]))

    def _mean_forces(self, wanted: bool | None) -> list[tuple[Array, Array]] | None:
        """For every frame, the contacts since the previous one: points [k, 2] (m), and forces [k, 2] as arrows (m)."""
        if wanted is False or not self.stage.sources:
            return None
        path, number = self.stage.sources[0]
        try:
            contacts = path.contacts
        except (ValueError, NotImplementedError):
            if wanted:
                raise
            return None
        if not contacts.pairs:
            return None
        force, point = (x.detach().cpu().double().numpy() for x in (contacts.force, contacts.point))
        if number is not None:
            force, point = force[:, number], point[:, number]
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
