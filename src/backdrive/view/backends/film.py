"""Films and stills in three dimensions, without a screen."""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from ...model import checks
from ...model.looks import Looks
from ..animation import Animation, FilmOptions
from ..spatial import RENDERERS, Renderer, renderer
from ..spatial.cameras import TURN_SECONDS, Director
from ..spatial.marks import MarkMaker
from ..spatial.scenery import Scenery, grid
from ..stage import Staging

Array = np.ndarray

SIZE = (640, 480)


def show(
    stage: Staging,
    options: FilmOptions | None = None,
    *,
    camera: str = "free",
    track: str | None = None,
    turntable: bool | float = False,
    size: tuple[int, int] = SIZE,
    renderer: str = "auto",
) -> Animation:
    """A film. camera: "free", or the name of one of the file's cameras. track: a body that the free camera follows.
    turntable: let the camera go round, once in so many seconds (True: 8). size: width and height in pixels, even.
    renderer: "opengl" (MuJoCo's), "software", or "auto": the first of them that works."""
    return SpatialAnimation(stage, options or FilmOptions(), (camera, track, turntable), size, renderer)


class SpatialAnimation(Animation):
    """A film of one or more environments, which stand side by side."""

    def __init__(
        self, stage: Staging, options: FilmOptions, camera: tuple[str, str | None, bool | float],
        size: tuple[int, int], which: str,
    ) -> None:  # fmt: skip
        super().__init__(stage, options)
        if options.title is not None:
            raise ValueError("title is for planar films")
        if which not in RENDERERS:
            raise ValueError(checks.unknown("renderer", which, RENDERERS))
        self._size, self._which, self.fine = _checked(size), which, len(stage) == 1
        turntable = camera[2]
        if turntable and len(stage) == 1:  # one turn around what does not move
            seconds = TURN_SECONDS if turntable is True else checks.number(turntable, "turntable", low=0.0, strict=True)
            self._frames = [0] * max(1, math.ceil(seconds * self.fps))
        offsets = grid(stage)
        director = Director(stage, self._frames, offsets, self._size[0] / self._size[1])
        self._views = director.views(*camera, self.fps)
        self._marks = MarkMaker(stage, self._frames, offsets, director.size)
        self._marks.show_forces(options.forces)
        self._marks.show_trails(stage.links(options.trail), options.trail_seconds * self.speed)
        self._scenery = Scenery.of(stage, _painted(stage, options.colors))
        self._renderer: Renderer | None = None
        for note in stage.notes:
            warnings.warn(note, stacklevel=4)

    @property
    def size(self) -> tuple[int, int]:
        return self._size

    def frame(self, k: int) -> Array:
        if self._renderer is None:
            self._renderer = renderer(self._scenery.visuals, *self._size, self._which, fine=self.fine)
        step = self._frames[k]
        poses = self._scenery.poses(self.stage.positions[step], self.stage.rotations[step])
        return self._renderer.image(*poses, self._views[k], self._marks.of(k))

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def __del__(self) -> None:
        if getattr(self, "_renderer", None) is not None and not sys.is_finalizing():
            self.close()


def _checked(size: Any) -> tuple[int, int]:
    try:
        width, height = size
    except (TypeError, ValueError):
        raise ValueError(f"size must be (width, height) in pixels, got {size!r}") from None
    width, height = checks.integer(width, "width in pixels", 2), checks.integer(height, "height in pixels", 2)
    if width % 2 or height % 2:
        raise ValueError(f"size must be even numbers of pixels, as films need, got {width} x {height}")
    return width, height


def _painted(stage: Staging, colors: Any) -> Any:
    """A function that gives the looks of an environment the colours that the user chose for bodies."""
    if not colors:
        return lambda looks: looks
    from ..style import body_colors

    chosen = body_colors(stage.model.bodies, colors)
    by_link = {stage.link(name): (*chosen[name], 1.0) for name in colors}

    def paint(looks: Looks) -> Looks:
        return replace(
            looks,
            visuals=tuple(
                replace(visual, rgba=by_link[visual.link], texture=None) if visual.link in by_link else visual
                for visual in looks.visuals
            ),
        )

    return paint
