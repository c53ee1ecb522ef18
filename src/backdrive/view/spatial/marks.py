"""What is drawn besides the visuals: arrows of forces, trails, centers of mass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...model.looks import RGBA
from ..stage import Staging

Array = np.ndarray

FORCE: RGBA = (0.82, 0.2, 0.18, 1.0)
LENGTH, LONGEST, WIDTH = 0.22, 0.6, 0.012
"""Arrows of forces relative to the size of the model: length for the median force, largest length, radius."""
TRAIL_POINTS = 60
"""Trails have at most this many points."""


@dataclass(frozen=True)
class Marks:
    """arrows: (tail [3], tip [3], radius, colour); lines: (points [n, 3], radius, colour); lengths in m."""

    arrows: list[tuple[Array, Array, float, RGBA]] = field(default_factory=list)
    lines: list[tuple[Array, float, RGBA]] = field(default_factory=list)


NONE = Marks()


class MarkMaker:
    """The marks of the frames of a film."""

    def __init__(self, stage: Staging, frames: Sequence[int], offsets: Array, size: float) -> None:
        """offsets [B, 3]: where the environments stand; size: of the model, m."""
        self._stage, self._frames, self._offsets, self._size = stage, frames, offsets, size
        self._forces: list[tuple[Array, Array]] | None = None
        self._trailing: list[int] = []
        self._seconds = 1.0

    def show_forces(self, wanted: bool | None) -> None:
        """Arrows for contact forces; wanted: True raises if they are not known, None shows them if they are."""
        if wanted is False:
            return
        found = self._stage.contacts(self._frames)
        if found is None:
            if wanted:
                raise ValueError("contact forces cannot be shown: this was not rolled out with contacts, step by step")
            return
        strength = np.linalg.norm(found.forces, axis=-1)
        if not (strength > 0.0).any():
            return
        typical = float(np.median(strength[strength > 0.0]))
        length = np.minimum(LENGTH * strength / typical, LONGEST) * self._size
        with np.errstate(invalid="ignore", divide="ignore"):
            arrows = np.where(strength[..., None] > 0.0, found.forces * (length / strength)[..., None], 0.0)
        signs = np.where(found.links[:, 0] >= 0, 1.0, -1.0)  # drawn on what moves
        points = found.points + self._offsets[None, :, None]
        self._forces = []
        for k in range(len(self._frames)):
            b, n = np.nonzero(strength[k] > 1e-3 * typical)
            self._forces.append((points[k, b, n], arrows[k, b, n] * signs[n, None]))

    def show_trails(self, links: list[int], seconds: float) -> None:
        """Trails of links, over the last seconds."""
        self._trailing, self._seconds = links, seconds

    def of(self, k: int) -> Marks:
        """Those of the k-th frame of the film."""
        marks = Marks()
        if self._forces is not None:
            for point, arrow in zip(*self._forces[k], strict=True):
                marks.arrows.append((point, point + arrow, WIDTH * self._size, FORCE))
        stage, step = self._stage, self._frames[k]
        since = int(np.searchsorted(stage.time, stage.time[step] - self._seconds - 1e-9))
        stride = max(1, (step - since) // TRAIL_POINTS)
        for link in self._trailing if step > since else ():
            color = next((v.rgba for v in stage.looks.shown if v.link == link), FORCE)
            for b in np.flatnonzero(stage.visible[:, link]):
                points = stage.positions[since : step + 1 : stride, b, link] + self._offsets[b]
                marks.lines.append((points.astype(np.float64), 0.6 * WIDTH * self._size, (*color[:3], 1.0)))
        return marks
