"""Which part of the plane is shown: the whole motion, or a window that follows the moving bodies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..model import checks
from .world import PlanarWorld, rotated

Array = np.ndarray

MARGIN = 0.07
"""Margin around the shown bodies, relative to the longer side of the picture."""

FAR = 4.0
"""The whole motion is shown if it is at most this many times larger than a window that follows the moving bodies.
Otherwise the window follows them, and a body that flies away from the others may leave it."""

WIDE = 8.0
"""Least width of a window that follows the moving bodies, in sizes of a typical body."""


def limits(world: PlanarWorld, angle: Array, position: Array, wanted: Any = "auto") -> Array:
    """(left, right, bottom, top) in m for every frame: [S, 4]; angle [S, nlink] and position [S, nlink, 2] of links.

    wanted: "all" shows the whole motion in every frame; "follow" moves a window with the bodies; "auto" chooses between
    them; or the four limits.
    """
    if not isinstance(wanted, str):
        left, right, bottom, top = checks.vector(wanted, 4, "limits (left, right, bottom, top)")
        if not (left < right and bottom < top):
            raise ValueError(f"limits must be (left, right, bottom, top), the smaller number first, got {wanted!r}")
        return np.tile([left, right, bottom, top], (len(angle), 1))
    if wanted not in ("auto", "all", "follow"):
        raise ValueError(checks.unknown("value of limits", wanted, ("auto", "all", "follow")))
    low, high = _boxes(world, angle, position)
    fixed = np.concatenate([np.zeros((0, 2)), *(o.points() for o in world.outlines if o.link < 0)])
    if wanted == "auto":
        low, high = _near(low, high, fixed)
    bodies = np.median((high - low)[0].max(-1))
    low, high = low.min(1), high.max(1)
    everything = np.concatenate([low, high, fixed])
    all_low, all_high = everything.min(0), everything.max(0)
    window = (high - low).max(0)
    window = np.maximum(window, max(0.35 * window.max(), WIDE * bodies))
    far = (all_high - all_low).max() > FAR * window.max()
    if wanted == "all" or (wanted == "auto" and not far):
        low, high = np.tile(all_low, (len(angle), 1)), np.tile(all_high, (len(angle), 1))
    else:
        # Smooth the window's motion, but keep all bodies inside.
        center = np.clip(_smooth((low + high) / 2.0), high - window / 2.0, low + window / 2.0)
        low, high = center - window / 2.0, center + window / 2.0
    longer = (high - low).max()
    margin = MARGIN * longer if longer > 0.0 else 1.0
    short = np.maximum(0.0, 0.35 * longer - (high - low)) / 2.0  # Avoids very thin pictures.
    low, high = low - margin - short, high + margin + short
    return np.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]], 1)


def _boxes(world: PlanarWorld, angle: Array, position: Array) -> tuple[Array, Array]:
    """Corners of each link's bounding box in every frame, [S, nlink, 2] each, of the points that are finite."""
    low, high = np.full_like(position, np.inf), np.full_like(position, -np.inf)
    own: dict[int, list[Array]] = {pin.link: [np.zeros((1, 2)), pin.anchor[None]] for pin in world.pins}
    for outline in world.outlines:
        if outline.link >= 0:
            own[outline.link].append(outline.points())
    for link, points in own.items():
        cloud = position[:, link, None] + rotated(angle[:, link, None], np.concatenate(points)[None])
        good = np.isfinite(cloud).all(-1, keepdims=True)
        low[:, link], high[:, link] = np.where(good, cloud, np.inf).min(1), np.where(good, cloud, -np.inf).max(1)
    if not np.isfinite(low.min((1, 2))).all():
        raise ValueError("nothing can be shown: in some states no coordinate of any body is finite (see path.status)")
    return low, high


def _near(low: Array, high: Array, fixed: Array) -> tuple[Array, Array]:
    """Clip the boxes of bodies that fly away from all others. fixed: points [n, 2] of the world's own shapes."""
    links = list(range(low.shape[1]))
    lowest, highest = low.min(0), high.max(0)  # Of each link, over all frames.

    def around(kept: list[int]) -> tuple[Array, Array]:
        return np.concatenate([lowest[kept], fixed]).min(0), np.concatenate([highest[kept], fixed]).max(0)

    def size(kept: list[int]) -> float:
        if not kept and not len(fixed):
            return math.inf
        corner, opposite = around(kept)
        return float((opposite - corner).max())

    while True:
        whole = size(links)
        smallest, away = min((size([i for i in links if i != link]), link) for link in links)
        if smallest * FAR >= whole or len(links) == 1:
            break
        links.remove(away)
    corner, opposite = around(links)
    reach = (opposite - corner).max() / 2.0
    return np.clip(low, corner - reach, opposite + reach), np.clip(high, corner - reach, opposite + reach)


def _smooth(values: Array, width: int = 15) -> Array:
    """Running mean over frames [S, k]; the first and last frames are repeated at the ends."""
    padded = np.concatenate([values[:1].repeat(width, 0), values, values[-1:].repeat(width, 0)])
    total = np.cumsum(np.concatenate([np.zeros_like(padded[:1]), padded]), 0)
    size = 2 * width + 1
    return (total[size:] - total[:-size]) / size
