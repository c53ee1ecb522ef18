"""The geometry of a planar world, from the tables of its model: outlines, poses, joints and rods."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ..model import Kind, Model
from ..schema import layout
from ..schema.layout import LINK, EqualityKind, ShapeKind
from .poses import link_poses

Array = np.ndarray

CIRCLE = 24
"""Corners of the polygon that stands for a circle when the extent of a link is computed."""


@dataclass(frozen=True)
class Outline:
    """A shape in the frame of its link (-1: the world): a circle has a radius, a polygon its vertices [n, 2].

    A half-space is all points x (m) with normal · x <= offset.
    """

    link: int
    center: Array
    angle: float = 0.0
    radius: float = 0.0
    vertices: Array | None = None
    normal: Array | None = None
    offset: float = 0.0

    def points(self) -> Array:
        """Corners, or points on the circle, in the link's frame: [n, 2]; none for a half-space."""
        if self.normal is not None:
            return np.zeros((0, 2))
        if self.vertices is not None:
            return self.vertices
        turns = 2.0 * math.pi * np.arange(CIRCLE) / CIRCLE
        return self.center + self.radius * np.stack([np.cos(turns), np.sin(turns)], 1)


@dataclass(frozen=True)
class Pin:
    """A joint of the tree: its link, the parent link (-1: the world), its anchor (m) and axis in the link's frame."""

    link: int
    parent: int
    kind: Kind
    anchor: Array
    axis: Array


@dataclass(frozen=True)
class Tie:
    """Two points, of two links, that a constraint keeps together, or (``rod``) at a fixed distance."""

    a: int
    b: int
    point_a: Array
    point_b: Array
    rod: bool


@dataclass
class PlanarWorld:
    """A planar model with given constants [nconst], and the geometry that is drawn."""

    model: Model
    constants: Array
    outlines: list[Outline] = field(init=False)
    pins: list[Pin] = field(init=False)
    ties: list[Tie] = field(init=False)

    def __post_init__(self) -> None:
        if self.model.dim != 2:
            raise ValueError("the planar backend draws planar worlds, of Scene(dim=2); this model is of dim 3")
        self.outlines = [self._outline(i) for i in range(self.model.nshape)]
        self.pins = [self._pin(i) for i in range(self.model.nlink)]
        self.ties = self._ties()

    def poses(self, q: Array) -> tuple[Array, Array]:
        """Angle [S, nlink] (rad) and position [S, nlink, 2] (m) of the links, for coordinates q [S, nq]."""
        positions, rotations = link_poses(self.model, q[:, None], self.constants, np.float64)
        return 2.0 * np.arctan2(rotations[:, 0, :, 3], rotations[:, 0, :, 0]), positions[:, 0, :, :2]

    def _link(self, i: int) -> Array:
        return self.constants[layout.link_start(i) :][:LINK]

    def _outline(self, i: int) -> Outline:
        model = self.model
        start = layout.shape_start(model.nlink, model.nq, model.nu) + i * layout.SHAPE
        record, link = self.constants[start : start + layout.SHAPE], int(model.shape_link[i])
        place, size = record[layout.PLACE :][:2], record[layout.SIZE :][:2]
        angle = math.atan2(record[layout.TURN + 3], record[layout.TURN])
        if model.shape_kind[i] == ShapeKind.PLANE:
            return Outline(link, place, normal=place, offset=float(size[0]))
        if model.shape_kind[i] == ShapeKind.SPHERE:
            return Outline(link, place, angle, radius=float(size[0]))
        at, count = model.shape_hull[i, :2]
        corners = model.hull_geometry[at : at + 3 * count].reshape(count, 3)[:, :2] * size
        return Outline(link, place, angle, vertices=place + rotated(angle, corners))

    def _pin(self, i: int) -> Pin:
        record = self._link(i)
        place = record[layout.ANCHOR :][:2], record[layout.AXIS :][:2]
        return Pin(i, int(self.model.parent[i]), Kind(self.model.kind[i]), *place)

    def _ties(self) -> list[Tie]:
        model = self.model
        start = layout.equality_start(model.nlink, model.nq, model.nu, model.nshape, model.nlimit, model.nfriction)
        ties: dict[str, Tie] = {}  # One per constraint, which may have several rows.
        for i, name in enumerate(model.equality_names):
            record = self.constants[start + i * layout.EQUALITY :][: layout.EQUALITY]
            points = record[layout.POINT_A :][:2], record[layout.POINT_B :][:2]
            rod = model.equality_kind[i] == EqualityKind.DISTANCE
            a, b = model.equality_link[i].tolist()
            ties[name] = Tie(a, b, *points, rod=bool(rod))
        return list(ties.values())


def rotated(angle: Array | float, points: Array) -> Array:
    """Points [..., 2] rotated by angles [...] (rad)."""
    c, s = np.cos(angle), np.sin(angle)
    x, y = points[..., 0], points[..., 1]
    return np.stack([c * x - s * y, s * x + c * y], -1)


def contains(outline: Outline, point: Array, margin: float = 1e-9) -> bool:
    """Whether a point [2] in the link's frame lies inside the shape."""
    if outline.vertices is not None:
        edges = np.roll(outline.vertices, -1, axis=0) - outline.vertices
        arms = point - outline.vertices
        return bool((edges[:, 0] * arms[:, 1] - edges[:, 1] * arms[:, 0] >= -margin).all())
    return bool(np.linalg.norm(point - outline.center) <= outline.radius + margin)
