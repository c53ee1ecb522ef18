"""The matplotlib artists of a planar world, made once and then moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import Circle, Patch, Polygon
from matplotlib.transforms import Affine2D

from ..model import Kind
from . import style
from .world import Outline, PlanarWorld, Tie, contains, rotated

Array = np.ndarray

ARROW = np.array([(0.0, 0.5), (1.0, 0.5), (1.0, 1.5), (2.0, 0.0), (1.0, -1.5), (1.0, -0.5), (0.0, -0.5)])
"""Corners of an arrow: (along, across). Along: 0 is its tail, 1 the base of its head, 2 its tip. Across: in widths."""


class Drawing:
    """A world on matplotlib axes. ``pose`` moves the bodies; the other methods show forces, trails and the time."""

    def __init__(self, axes: Axes, world: PlanarWorld, colors: Mapping[str, str] | None = None) -> None:
        self.axes, self.world = axes, world
        bodies = style.body_colors(world.model.bodies, colors)
        self.link_color = dict(zip(world.model.body_link.tolist(), bodies.values(), strict=True))
        axes.set_facecolor(style.PAPER)
        axes.set_axisbelow(True)
        axes.grid(color=style.GRID, lw=0.6)
        axes.tick_params(labelsize=7, colors="#8b949e", length=0, pad=2)
        for side in axes.spines.values():
            side.set_color(style.GRID)
        axes.set_aspect("equal")
        self.moving: list[Artist] = []  # In drawing order.
        self._grounds = [self._ground(o) for o in world.outlines if o.normal is not None]
        for outline in world.outlines:
            if outline.normal is None and outline.link < 0:
                axes.add_patch(_patch(outline, style.STATIC, style.STATIC_EDGE, hatch="////", zorder=1))
        self._rails = self._add(LineCollection([], colors=style.ROD, lw=1.0, linestyles=(0, (4, 3)), zorder=1.5))
        self._trail = self._add(LineCollection([], lw=1.8, zorder=2, capstyle="butt"))
        self._rods = self._add(LineCollection([], colors=style.ROD, lw=1.6, zorder=2.5, capstyle="round"))
        self._bodies = [(o, self._body(o)) for o in world.outlines if o.link >= 0]
        (self._centers,) = axes.plot([], [], "o", ms=5, color=style.INK, zorder=3)  # Of bodies without a shape.
        pin_style: dict[str, Any] = {"ls": "none", "mec": style.INK, "mew": 1.1, "zorder": 5}
        (self._hinges,) = axes.plot([], [], "o", ms=5, mfc="white", **pin_style)
        (self._supports,) = axes.plot([], [], "o", ms=6, mfc=style.INK, **pin_style)
        (self._welds,) = axes.plot([], [], "s", ms=4.5, mfc="white", **pin_style)
        (self._touching,) = axes.plot([], [], "o", ms=3.5, color=style.FORCE, zorder=6, ls="none")
        self._arrows = self._add(PolyCollection([], facecolors=style.FORCE, edgecolors="white", lw=0.4, zorder=7))
        place: dict[str, Any] = {
            "transform": axes.transAxes,
            "va": "top",
            "fontsize": 9,
            "color": style.INK,
            "zorder": 10,
        }
        self._time = axes.text(0.015, 0.98, "", family="monospace", **place)
        lines = [self._centers, self._hinges, self._supports, self._welds, self._touching]
        self.moving += [*lines, self._time]
        bare = set(range(world.model.nlink)) - {o.link for o in world.outlines}
        self._bare = [i for i in sorted(bare) if i in world.model.body_link]

    def pose(self, angle: Array, position: Array, limits: Array) -> None:
        """Move links to angle [nlink] (rad) and position [nlink, 2] (m). limits: (left, right, bottom, top), m."""
        self.axes.set_xlim(limits[0], limits[1])
        self.axes.set_ylim(limits[2], limits[3])
        for ground in self._grounds:
            _place_ground(*ground, limits)
        for outline, (patch, spoke) in self._bodies:
            a, p = angle[outline.link], position[outline.link]
            visible = bool(np.isfinite([a, *p]).all())
            patch.set_visible(visible)
            if not visible:
                continue
            patch.set_transform(Affine2D().rotate(a).translate(*p) + self.axes.transData)
            if spoke is not None:
                end = outline.center + rotated(outline.angle, np.array([outline.radius, 0.0]))
                spoke.set_data(*(p + rotated(a, np.stack([outline.center, end]))).T)

        def world_point(link: int, point: Array) -> Array:
            return point if link < 0 else position[link] + rotated(angle[link], point)

        self._place_pins(angle, position, world_point)
        ties = [(tie, world_point(tie.a, tie.point_a), world_point(tie.b, tie.point_b)) for tie in self.world.ties]
        self._rods.set_segments([*self._rod_segments(position, world_point), *(s for t in ties for s in self._tie(*t))])
        self._centers.set_data(*position[self._bare].T)

    def forces(self, points: Array, arrows: Array, width: float) -> None:
        """Show contact points [k, 2], with arrows [k, 2] of a given width; all in m."""
        self._touching.set_data(*points.T)
        length = np.linalg.norm(arrows, axis=-1)
        shown = length > 1e-3 * width
        points, arrows, length = points[shown], arrows[shown], length[shown, None]
        along = arrows / length
        across = np.stack([-along[:, 1], along[:, 0]], -1)
        wide = np.minimum(width, length / 3.5)
        head = np.minimum(3.0 * wide, 0.5 * length)
        reach = np.concatenate([0.0 * length, length - head, length], -1)[:, ARROW[:, 0].astype(int)]
        side = wide * ARROW[:, 1]
        self._arrows.set_verts(
            list(points[:, None] + reach[..., None] * along[:, None] + side[..., None] * across[:, None])
        )

    def trail(self, tracks: Sequence[tuple[int, Array]]) -> None:
        """Show past positions of links, (link, points [n, 2]), oldest first; they fade with age."""
        segments, colors = [], []
        for link, points in tracks:
            if len(points) < 2:
                continue
            segments.append(np.stack([points[:-1], points[1:]], 1))
            fade = np.linspace(0.0, 0.8, len(points) - 1) ** 1.5
            rgba = np.tile(to_rgba(self.link_color[link]), (len(fade), 1))
            rgba[:, 3] = fade
            colors.append(rgba)
        self._trail.set_segments(np.concatenate(segments) if segments else [])
        self._trail.set_color(np.concatenate(colors) if colors else [])

    def time(self, seconds: float) -> None:
        self._time.set_text(f"{seconds:.2f} s")

    # ------------------------------------------------------------------------------------------ making artists

    def _add(self, artist: Any) -> Any:
        self.axes.add_collection(artist, autolim=False)
        self.moving.append(artist)
        return artist

    def _body(self, outline: Outline) -> tuple[Patch, Any]:
        color = self.link_color[outline.link]
        patch = _patch(outline, color, style.shade(color, 0.6), zorder=3)
        self.axes.add_patch(patch)
        self.moving.append(patch)
        if outline.vertices is not None:
            return patch, None
        (spoke,) = self.axes.plot([], [], color=style.shade(color, 0.6), lw=1.2, zorder=3.1, solid_capstyle="round")
        self.moving.append(spoke)
        return patch, spoke

    def _ground(self, outline: Outline) -> tuple[Outline, Polygon, Polygon, Any]:
        fill = Polygon(np.zeros((3, 2)), fc=style.STATIC, ec="none", zorder=0.8)
        band = Polygon(np.zeros((3, 2)), fc="none", ec="#b4bcc6", lw=0, hatch="////", zorder=0.9)
        self.axes.add_patch(fill)
        self.axes.add_patch(band)
        (edge,) = self.axes.plot([], [], color=style.STATIC_EDGE, lw=1.4, zorder=1)
        return outline, fill, band, edge

    # ------------------------------------------------------------------------------------------ joints

    def _place_pins(self, angle: Array, position: Array, world_point: Any) -> None:
        hinges: list[Array] = []
        supports: list[Array] = []
        welds, rails = [], []
        for pin in self.world.pins:
            at = world_point(pin.link, pin.anchor)
            if pin.kind == Kind.HINGE:
                (supports if pin.parent < 0 else hinges).append(at)
            elif pin.kind == Kind.FIXED:
                welds.append(at)
            elif pin.kind == Kind.SLIDER:
                left, right, bottom, top = *self.axes.get_xlim(), *self.axes.get_ylim()
                reach = (right - left) + (top - bottom) if pin.parent < 0 else self._size(pin.link)
                along = rotated(angle[pin.link], pin.axis)
                rails.append(np.stack([at - reach * along, at + reach * along]))
        for tie in self.world.ties:
            ends = [world_point(tie.a, tie.point_a), world_point(tie.b, tie.point_b)]
            (hinges if min(tie.a, tie.b) >= 0 else supports).extend(ends if tie.rod else ends[:1])
        for line, points in ((self._hinges, hinges), (self._supports, supports), (self._welds, welds)):
            line.set_data(*np.array(points).reshape(-1, 2).T)
        self._rails.set_segments(rails)

    def _rod_segments(self, position: Array, world_point: Any) -> list[Array]:
        """Lines from bodies to hinges that lie outside of their shapes, as for a pendulum."""
        segments = []
        for pin in self.world.pins:
            if pin.kind not in (Kind.HINGE, Kind.FIXED):
                continue
            at = world_point(pin.link, pin.anchor)
            for link in (pin.link, pin.parent):
                if link >= 0 and not self._covers(link, at, position[link], world_point):
                    segments.append(np.stack([at, position[link]]))
        return segments

    def _covers(self, link: int, point: Array, origin: Array, world_point: Any) -> bool:
        """Whether a world point lies on a shape of a link, or at its origin."""
        x_axis = world_point(link, np.array([1.0, 0.0])) - origin
        local = rotated(-np.arctan2(x_axis[1], x_axis[0]), point - origin)
        size = self._size(link)
        inside = any(contains(o, local, 1e-6 * size) for o in self.world.outlines if o.link == link)
        return inside or float(np.linalg.norm(local)) < 1e-6 * max(size, 1e-9)

    def _tie(self, tie: Tie, first: Array, second: Array) -> list[Array]:
        return [np.stack([first, second])] if tie.rod else []

    def _size(self, link: int) -> float:
        """A typical length of a link, m."""
        points = [o.points() for o in self.world.outlines if o.link == link]
        return float(np.abs(np.concatenate(points)).max()) if points else 0.1


def _patch(outline: Outline, face: Any, edge: Any, **options: Any) -> Patch:
    looks = {"fc": face, "ec": edge, "lw": 1.2, "joinstyle": "round", **options}
    if outline.vertices is not None:
        return Polygon(outline.vertices, closed=True, **looks)
    return Circle(tuple(outline.center), outline.radius, **looks)


def _place_ground(outline: Outline, fill: Polygon, band: Polygon, edge: Any, limits: Array) -> None:
    left, right, bottom, top = limits
    wide, high = right - left, top - bottom
    x, y = (left - wide, right + wide), (bottom - high, top + high)
    box = np.array([(x[0], y[0]), (x[1], y[0]), (x[1], y[1]), (x[0], y[1])])
    assert outline.normal is not None
    depth = 0.035 * max(wide, high)
    below = _clipped(box, outline.normal, outline.offset)
    strip = _clipped(below, -outline.normal, depth - outline.offset)
    for patch, corners in ((fill, below), (band, strip)):
        patch.set_visible(len(corners) > 2)
        if len(corners) > 2:
            patch.set_xy(corners)
    across = np.array([-outline.normal[1], outline.normal[0]])
    middle = np.array([(left + right) / 2.0, (bottom + top) / 2.0])
    foot = middle - (outline.normal @ middle - outline.offset) * outline.normal
    edge.set_data(*np.stack([foot - 2.0 * (wide + high) * across, foot + 2.0 * (wide + high) * across]).T)


def _clipped(corners: Array, normal: Array, offset: float) -> Array:
    """The part of a convex polygon [n, 2] with normal · x <= offset."""
    kept: list[Array] = []
    heights = corners @ normal - offset
    for i, (here, height) in enumerate(zip(corners, heights, strict=True)):
        after, next_height = corners[(i + 1) % len(corners)], heights[(i + 1) % len(corners)]
        if height <= 0.0:
            kept.append(here)
        if (height < 0.0 < next_height) or (next_height < 0.0 < height):
            kept.append(here + (after - here) * (height / (height - next_height)))
    return np.array(kept).reshape(-1, 2)
