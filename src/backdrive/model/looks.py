"""What a model looks like: the shapes and meshes that pictures show, their colours and textures, sites and cameras.

Looks have no part in the motion. ``load`` takes them from the file (`read_looks`); those of a scene are its shapes.
"""

from __future__ import annotations

import colorsys
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..schema import layout
from ..schema.layout import GeomKind, Kind
from .hull import hull_faces
from .shapes import PlacedShape

if TYPE_CHECKING:
    from .model import Model

Array = np.ndarray
RGB = tuple[float, float, float]
RGBA = tuple[float, float, float, float]

PALETTE = ("#3477b5", "#e2803a", "#3d9a6c", "#b5476d", "#7b62b3", "#c5a02c", "#3ba3b5", "#8a6d57")
"""Colours of bodies, in turn."""
STATIC: RGBA = (0.72, 0.74, 0.77, 1.0)
"""The colour of shapes of the world."""
DEPTH = 0.5
"""The depth of planar shapes that are shown in space, relative to the size of a typical one."""
ROD = 0.06
"""The radius of a rod that stands for a body without a shape, relative to the length of a typical one."""
LINE = 1e-9
"""Rounding of rotations that are compared."""


@dataclass(frozen=True, eq=False)
class Texture:
    """An image, uint8 [height, width, channels], and how it lies on a surface.

    cube: six square images below each other (right, left, up, down, front, back), projected from outside; else the
    image is wrapped by the uv coordinates of a mesh, or along x and y of another shape. repeat: how often, along both;
    uniform: per m instead of per shape.
    """

    image: Array
    cube: bool = False
    repeat: tuple[float, float] = (1.0, 1.0)
    uniform: bool = False


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles: vertices [n, 3] (m, float32), faces [m, 3] (int32) of their indices.

    texcoords [k, 2] and texture_faces [m, 3] (their indices) as files have them, or None; see `uv`.
    """

    vertices: Array
    faces: Array
    texcoords: Array | None = None
    texture_faces: Array | None = None

    @cached_property
    def textured(self) -> Mesh:
        """The same with a vertex for each texture coordinate that it has, so that one index serves both."""
        if self.texcoords is None or self.texture_faces is None:
            return self
        both = np.stack([self.faces.ravel(), self.texture_faces.ravel()], 1)
        pairs, index = np.unique(both, axis=0, return_inverse=True)
        faces = index.reshape(-1, 3).astype(np.int32)
        return Mesh(self.vertices[pairs[:, 0]], faces, self.texcoords[pairs[:, 1]], faces)

    @property
    def uv(self) -> Array | None:
        """Texture coordinates [n, 2] of the vertices of ``textured``; v grows downwards in the image."""
        return self.textured.texcoords


@dataclass(frozen=True, eq=False)
class Visual:
    """Something to be drawn in the frame of a link (-1: the world).

    kind and size (m): plane (half extents along x and y, 0 if infinite; its normal is z), sphere (radius), capsule and
    cylinder (radius, half the length without the caps, along z), box (half extents), ellipsoid (semi-axes), mesh (scale
    along the axes, 1). position [3] and rotation [3, 3]: of its own frame in the link's. shape: the row of the same
    shape in the model's tables, -1 if it does not collide. shown: whether it is drawn unless asked otherwise; files
    often have a simple shape that collides and a fine one to look at.
    """

    name: str
    link: int
    kind: str
    size: tuple[float, float, float]
    position: Array
    rotation: Array
    rgba: RGBA
    mesh: Mesh | None = None
    texture: Texture | None = None
    shape: int = -1
    shown: bool = True
    specular: float = 0.5
    shininess: float = 0.5
    reflectance: float = 0.0

    @property
    def collides(self) -> bool:
        return self.shape >= 0

    def triangles(self) -> Mesh | None:
        """Its mesh at its real size; None for other kinds."""
        if self.mesh is None or self.size == (1.0, 1.0, 1.0):
            return self.mesh
        return replace(self.mesh, vertices=self.mesh.vertices * np.asarray(self.size, dtype=np.float32))


@dataclass(frozen=True, eq=False)
class Site:
    """A named place of a file: position [3] and rotation [3, 3] in the frame of a link (-1: the world)."""

    name: str
    link: int
    position: Array
    rotation: Array


@dataclass(frozen=True, eq=False)
class FileCamera:
    """A camera of a file, which looks along its -z axis, y up, with a vertical field of view `fovy` (degrees).

    mode: "fixed" to the frame of its link: position [3], rotation [3, 3]; "track" or "trackcom": it keeps its axes
    `world_rotation` and its place `world_offset` [3] from the link's origin or the center of mass of the link and those
    it carries, both in world axes; "targetbody" or "targetbodycom": it turns to the link `target`.
    """

    name: str
    link: int
    position: Array
    rotation: Array
    fovy: float
    mode: str = "fixed"
    target: int = -1
    world_offset: Array = field(default_factory=lambda: np.zeros(3))
    world_rotation: Array = field(default_factory=lambda: np.eye(3))


@dataclass(frozen=True, eq=False)
class Looks:
    """All that a model shows."""

    visuals: tuple[Visual, ...]
    sites: tuple[Site, ...] = ()
    cameras: tuple[FileCamera, ...] = ()

    def __deepcopy__(self, memo: Any) -> Looks:
        return self  # (nobody writes to it)

    @property
    def shown(self) -> tuple[Visual, ...]:
        """Those that are drawn unless asked otherwise."""
        return tuple(look for look in self.visuals if look.shown)

    def with_constants(self, model: Model, constants: Array) -> Looks:
        """With the sizes and places of shapes that the constants [nconst] have, which parameters may have changed."""
        start = layout.shape_start(model.nlink, model.nq, model.nu)
        stop = start + model.nshape * layout.SHAPE
        if np.array_equal(constants[start:stop], model.constants[start:stop]):
            return self
        new = constants[start:stop].reshape(-1, layout.SHAPE)
        old = model.constants[start:stop].reshape(-1, layout.SHAPE)
        changed = (new[:, : layout.FRICTION] != old[:, : layout.FRICTION]).any(1)
        return replace(
            self,
            visuals=tuple(
                _resized(look, new[look.shape], old[look.shape]) if look.collides and changed[look.shape] else look
                for look in self.visuals
            ),
        )


def body_colors(bodies: Sequence[str]) -> dict[str, RGB]:
    """Colours of bodies; bodies whose names differ only by a number ("link 1", "link 2") share one, in two shades."""
    groups: dict[str, int] = {}
    colors = {}
    for name in bodies:
        stem = re.sub(r"[\W_]*\d+$", "", name)
        color = PALETTE[groups.setdefault(stem, len(groups)) % len(PALETTE)]
        red, green, blue = (int(color[i : i + 2], 16) / 255.0 for i in (1, 3, 5))
        number = re.search(r"\d+$", name)
        odd = number is not None and int(number[0]) % 2 == 1
        colors[name] = shade((red, green, blue), 1.18) if odd else (red, green, blue)
    return colors


def shade(color: RGB, factor: float) -> RGB:
    """The colour, lighter (factor > 1) or darker."""
    hue, light, saturation = colorsys.rgb_to_hls(*color)
    return colorsys.hls_to_rgb(hue, min(1.0, light * factor), saturation)


def looks_of_shapes(model: Model) -> Looks:
    """The shapes of a model, in the colours of their bodies; planar ones stand in the plane z = 0, with some depth."""
    placed = [shape for shapes in model.shapes for shape in shapes] + list(model.statics)
    colors = {link: (*rgb, 1.0) for link, rgb in zip(model.body_link.tolist(), body_colors(model.bodies).values())}
    owners = np.repeat(model.body_link, [len(shapes) for shapes in model.shapes]).tolist()
    depth = 0.0
    if model.dim == 2:
        extents = [shape.shape.volume**0.5 for shape in placed if shape.shape.bounded]
        depth = DEPTH * float(np.median(extents)) if extents else 0.1
    start = layout.shape_start(model.nlink, model.nq, model.nu)
    records = model.constants[start : start + model.nshape * layout.SHAPE].reshape(-1, layout.SHAPE)
    looks = []
    for i, (shape, record) in enumerate(zip(placed, records, strict=True)):
        kind, size, mesh = _FORMS[shape.shape.geom](shape, depth)
        position, rotation = _place(kind, record)
        rgba = colors[owners[i]] if i < len(owners) else STATIC
        link = int(model.shape_link[i])
        looks.append(Visual(model.shape_names[i], link, kind, size, position, rotation, rgba, mesh, shape=i))
    return Looks((*looks, *(_rods(model, looks, colors) if model.dim == 3 else ())))


def _rods(model: Model, looks: Sequence[Visual], colors: Mapping[int, RGBA]) -> list[Visual]:
    """Thin rods in bodies whose shapes do not reach to their joints: from a body's own joint to its shapes, and to the
    joints of those that it carries. They do not collide."""
    records = model.constants[: model.nlink * layout.LINK].reshape(model.nlink, layout.LINK)
    anchors, turns = records[:, layout.ANCHOR :][:, :3], records[:, layout.ROTATION :][:, :9].reshape(-1, 3, 3)
    in_parent = records[:, layout.OFFSET :][:, :3] + np.einsum("nij,nj->ni", turns, anchors)
    jointed = np.isin(model.kind, (Kind.HINGE, Kind.BALL))
    rods = []
    for link in np.flatnonzero(jointed).tolist():
        own = [visual for visual in looks if visual.link == link]
        ends = [in_parent[child] for child in np.flatnonzero((model.parent == link) & jointed)]
        ends += [visual.position for visual in own]
        for end in ends:
            way = end - anchors[link]
            covered = any(np.linalg.norm((end + anchors[link]) / 2.0 - v.position) <= max(v.size) for v in own)
            if np.linalg.norm(way) > LINE and not covered:
                rods.append((link, anchors[link] + way / 2.0, way))
    thick = ROD * float(np.median([np.linalg.norm(way) for *_, way in rods])) if rods else 0.0
    return [
        Visual(
            f"rod {i}", link, "capsule", (thick, float(np.linalg.norm(way)) / 2.0, 0.0), middle,
            frame_along(way / np.linalg.norm(way)), colors.get(link, STATIC),
        )
        for i, (link, middle, way) in enumerate(rods)
    ]  # fmt: skip


Form = tuple[str, tuple[float, float, float], Mesh | None]


def _plane(placed: PlacedShape, depth: float) -> Form:
    return "plane", (0.0, 0.0, 0.0), None


def _ball(placed: PlacedShape, depth: float) -> Form:
    radius = float(placed.shape.size[0])
    return ("cylinder", (radius, depth / 2.0, 0.0), None) if depth else ("sphere", (radius, 0.0, 0.0), None)


def _rod(kind: str) -> Callable[[PlacedShape, float], Form]:
    def form(placed: PlacedShape, depth: float) -> Form:
        radius, length, _ = placed.shape.size.tolist()
        return kind, (radius, length / 2.0, 0.0), None

    return form


def _ellipsoid(placed: PlacedShape, depth: float) -> Form:
    a, b, c = placed.shape.size.tolist()
    return "ellipsoid", (a, b, c), None


def _box(placed: PlacedShape, depth: float) -> Form:
    x, y, z = placed.shape.size.tolist()
    return "box", (x / 2.0, y / 2.0, (depth or z) / 2.0), None


def _hull(placed: PlacedShape, depth: float) -> Form:
    points = np.array(placed.shape.vertices, dtype=np.float64)  # type: ignore[attr-defined]  # all meshes have them
    vertices, faces = prism(points, depth) if depth else outward(*hull_faces(points))
    return "mesh", (1.0, 1.0, 1.0), Mesh(vertices.astype(np.float32), faces.astype(np.int32))


_FORMS: dict[GeomKind, Callable[[PlacedShape, float], Form]] = {
    GeomKind.PLANE: _plane,
    GeomKind.SPHERE: _ball,
    GeomKind.CAPSULE: _rod("capsule"),
    GeomKind.CYLINDER: _rod("cylinder"),
    GeomKind.ELLIPSOID: _ellipsoid,
    GeomKind.BOX: _box,
    GeomKind.MESH: _hull,
}


def prism(ring: Array, depth: float) -> tuple[Array, Array]:
    """Vertices and triangles of the prism over a convex polygon [n, 2], counter-clockwise, about z = 0."""
    n = len(ring)
    vertices = np.concatenate([np.pad(ring, ((0, 0), (0, 1)), constant_values=z) for z in (-depth / 2, depth / 2)])
    here, after = np.arange(n), (np.arange(n) + 1) % n
    walls = [np.stack([here, after, after + n], 1), np.stack([here, after + n, here + n], 1)]
    fan = np.stack([np.zeros(n - 2, dtype=np.int64), here[1:-1], here[2:]], 1)
    return vertices, np.concatenate([*walls, fan[:, ::-1], fan + n])


def outward(vertices: Array, faces: Array) -> tuple[Array, Array]:
    """Triangles of a convex solid, counter-clockwise seen from outside."""
    corners = vertices[faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    inward = np.einsum("ij,ij->i", normals, corners[:, 0] - vertices.mean(0)) < 0.0
    return vertices, np.where(inward[:, None], faces[:, ::-1], faces)


def frame_along(normal: Array) -> Array:
    """A rotation [3, 3] whose z axis is a unit vector."""
    if normal[2] > 1.0 - LINE:
        return np.eye(3)
    side = np.cross([0.0, 0.0, 1.0], normal)
    if np.linalg.norm(side) < LINE:
        side = np.array([1.0, 0.0, 0.0])
    x = side / np.linalg.norm(side)
    return np.stack([x, np.cross(normal, x), normal], 1)


def _place(kind: str, record: Array) -> tuple[Array, Array]:
    """Position and rotation of a look, from the SHAPE record."""
    place = record[layout.PLACE :][:3].copy()
    if kind == "plane":
        return place * record[layout.SIZE], frame_along(place)
    return place, record[layout.TURN :][:9].reshape(3, 3).copy()


def _resized(look: Visual, new: Array, old: Array) -> Visual:
    """A look with another SHAPE record than the one that it was made from."""
    position, rotation = _place(look.kind, new)
    if look.kind == "plane":
        return replace(look, link=-1, position=position, rotation=rotation)
    sizes, before = new[layout.SIZE :][:3], old[layout.SIZE :][:3]
    ratio = np.divide(sizes, before, out=np.ones(3), where=before != 0.0)
    x, y, z = (np.array(look.size) * ratio).tolist()
    return replace(look, position=position, rotation=rotation, size=(x, y, z))
