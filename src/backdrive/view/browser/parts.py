"""What is drawn of a model, as instances of few geometries: a page shows hundreds of bodies with a handful of messages.

A `Part` is one solid in the frame of a link. Parts of the same geometry are a `Group`: one node of the page, with a
pose, scale and colour for every instance, which is a part in an environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..poses import quaternion_of
from . import solids
from .solids import Triangles

if TYPE_CHECKING:
    from ...model.looks import Texture, Visual

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Part:
    """A solid in the frame of a link (-1: the world): its pose there, its scale [3], and its colour (0 to 1)."""

    geometry: Any
    """What parts of the same geometry have in common: a name of a solid, or the identity of a mesh."""
    triangles: Triangles
    link: int
    position: Array
    quaternion: Array
    scale: Array
    rgba: tuple[float, float, float, float]
    shape: int = -1
    """The row of its shape in the model's tables; -1: it does not collide."""
    texture: Texture | None = None
    uv: Array | None = None


@dataclass(frozen=True, eq=False)
class Plane:
    """A plane of the world, infinite or with half extents (m) along x and y; its normal is z of its frame."""

    position: Array
    quaternion: Array
    half: tuple[float, float]
    rgba: tuple[float, float, float, float]


def parts_of(looks: Iterable[Visual]) -> tuple[list[Part], list[Plane]]:
    """All parts of a model, and the planes of its world."""
    parts: list[Part] = []
    planes: list[Plane] = []
    for look in looks:
        if look.kind == "plane" and look.link < 0:
            quaternion = quaternion_of(look.rotation)
            planes.append(Plane(look.position, quaternion, (look.size[0], look.size[1]), look.rgba))
        else:
            parts += _FORMS[look.kind](look)
    return parts, planes


def _part(look: Visual, name: str, triangles: Triangles, scale: Sequence[float], shift: float = 0.0) -> Part:
    """shift: along z of the look's frame, m."""
    place = look.position + look.rotation[:, 2] * shift
    rgba = tinted(look.rgba, look.texture)
    return Part(name, triangles, look.link, place, quaternion_of(look.rotation), np.array(scale), rgba, look.shape)


def _sphere(look: Visual) -> list[Part]:
    return [_part(look, "ball", solids.ball(), [look.size[0]] * 3)]


def _ellipsoid(look: Visual) -> list[Part]:
    return [_part(look, "ball", solids.ball(), look.size)]


def _box(look: Visual) -> list[Part]:
    return [_part(look, "box", solids.box(), look.size)]


def _slab(look: Visual) -> list[Part]:
    """A plane that moves with a link: a thin box."""
    x, y = (half or 10.0 for half in look.size[:2])
    return [_part(look, "box", solids.box(), (x, y, 1e-3))]


def _cylinder(look: Visual) -> list[Part]:
    radius, half, _ = look.size
    return [_part(look, "cylinder", solids.cylinder(), (radius, radius, half))]


def _capsule(look: Visual) -> list[Part]:
    radius, half, _ = look.size
    caps = [_part(look, "ball", solids.ball(), [radius] * 3, side * half) for side in (-1.0, 1.0)]
    return [*_cylinder(look), *caps]


def _mesh(look: Visual) -> list[Part]:
    assert look.mesh is not None
    uv = look.mesh.uv if look.texture is not None and not look.texture.cube else None
    mesh = look.mesh if uv is None else look.mesh.textured
    triangles = (mesh.vertices, mesh.faces)
    geometry = (id(look.mesh), None if uv is None else id(look.texture))
    place, turn = look.position, quaternion_of(look.rotation)
    rgba = look.rgba if uv is not None else tinted(look.rgba, look.texture)
    scale, texture = np.array(look.size), None if uv is None else look.texture
    return [Part(geometry, triangles, look.link, place, turn, scale, rgba, look.shape, texture, uv)]


_FORMS: dict[str, Callable[[Any], list[Part]]] = {
    "sphere": _sphere,
    "ellipsoid": _ellipsoid,
    "box": _box,
    "plane": _slab,
    "cylinder": _cylinder,
    "capsule": _capsule,
    "mesh": _mesh,
}


def tinted(rgba: tuple[float, float, float, float], texture: Texture | None) -> tuple[float, float, float, float]:
    """The colour of a surface whose texture is not drawn: that of the texture on average."""
    if texture is None:
        return rgba
    image = texture.image.reshape(-1, texture.image.shape[-1])[:, :3].mean(0) / 255.0
    red, green, blue = (float(a * b) for a, b in zip(rgba[:3], np.broadcast_to(image, 3), strict=True))
    return red, green, blue, rgba[3]


@dataclass(frozen=True, eq=False)
class Group:
    """Instances of one geometry, in some environments: which, and where in the frames of their links."""

    parts: list[Part]
    index: Array
    """Of the part, [n]."""
    environment: Array
    """Of the batch, [n]."""
    copy: Array
    """The place in the arrangement of environments, [n]."""
    link: Array
    """[n]; the number of links stands for the world."""
    position: Array
    quaternion: Array
    scale: Array

    def place(self, origin: Array, turn: Array, shift: Array) -> tuple[Array, Array]:
        """Positions [n, 3] and quaternions [n, 4] in the world, of links' positions [B, nlink + 1, 3] and quaternions;
        shift: of the copies, [copies, 3]."""
        x, q = origin[self.environment, self.link], turn[self.environment, self.link]
        return x + rotated(q, self.position) + shift[self.copy], product(q, self.quaternion)

    def colors(self) -> Array:
        """uint8 [n, 3]"""
        rgb = np.array([part.rgba[:3] for part in self.parts])[self.index]
        return np.asarray(np.clip(rgb, 0.0, 1.0) * 255.0).round().astype(np.uint8)

    def opacities(self) -> Array:
        """[n]"""
        return np.array([part.rgba[3] for part in self.parts], dtype=np.float32)[self.index]


def group(parts: Sequence[Part], nlink: int, environments: Sequence[int], apart: bool) -> list[Group]:
    """The instances of all parts in some environments; apart: they are shown at different places, each with its own
    copies of the solids of the world, which otherwise are there once."""
    by_geometry: dict[Any, list[Part]] = {}
    for part in parts:
        by_geometry.setdefault((part.geometry, part.link < 0), []).append(part)
    groups = []
    for (_, static), same in by_geometry.items():
        shown = list(environments) if apart or not static else list(environments)[:1]
        n, copies = len(same), len(shown)
        index, copy = np.tile(np.arange(n), copies), np.repeat(np.arange(copies), n)
        link = np.array([part.link if part.link >= 0 else nlink for part in same])[index]
        local = [
            np.stack([getattr(part, name) for part in same])[index] for name in ("position", "quaternion", "scale")
        ]
        groups.append(Group(same, index, np.array(shown)[copy], copy, link, *local))
    return groups


def product(a: Array, b: Array) -> Array:
    """The product of quaternions [..., 4]."""
    w, x, y, z = np.moveaxis(a, -1, 0)
    t, i, j, k = np.moveaxis(b, -1, 0)
    return np.stack([
        w * t - x * i - y * j - z * k, w * i + x * t + y * k - z * j,
        w * j - x * k + y * t + z * i, w * k + x * j - y * i + z * t,
    ], -1)  # fmt: skip


def rotated(q: Array, x: Array) -> Array:
    """Vectors [..., 3] rotated by unit quaternions [..., 4]."""
    w, u = q[..., :1], q[..., 1:]
    t = 2.0 * np.cross(u, x)
    return x + w * t + np.cross(u, t)
