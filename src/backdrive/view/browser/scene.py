"""The nodes of the page: all solids of a stage as instances, the planes of its world, the camera."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..stage import Staging
from .arrangement import Placing, some
from .parts import Group, Part, Plane, group, parts_of

if TYPE_CHECKING:
    import viser

Array = np.ndarray

VIEW = {"+z": np.array([1.0, -1.6, 0.8]), "+y": np.array([0.0, 0.25, 1.6])}
"""Where the camera stands at first, from the middle of what is shown, by the direction that is up."""
FAR = 3.0
"""The camera shows the whole motion if that is at most this many times larger than the start."""
FINE = 5000
"""Meshes of more vertices are drawn more coarsely where they are far away."""
UP = {"+z": (0.0, 0.0, 1.0), "+y": (0.0, 1.0, 0.0)}
FIELD = np.deg2rad(45.0)
"""The vertical field of view."""


@dataclass(frozen=True, eq=False)
class Poses:
    """Positions [B, nlink + 1, 3] and quaternions [B, nlink + 1, 4] of the links at one time; the last is the world's.

    frame: its number in the stage; -1 while a simulator runs.
    """

    positions: Array
    rotations: Array
    frame: int = -1

    @classmethod
    def of(cls, positions: Array, rotations: Array, frame: int = -1) -> Poses:
        """From those of the links alone, [B, nlink, k]."""
        batch = len(positions)
        world = np.tile([1.0, 0.0, 0.0, 0.0], (batch, 1, 1))
        return cls(
            np.concatenate([positions, np.zeros((batch, 1, 3))], 1), np.concatenate([rotations, world], 1), frame
        )


class PageScene:
    """The solids of a stage on a page, placed anew for all poses."""

    def __init__(self, server: viser.ViserServer, stage: Staging, *, collision: bool = False) -> None:
        """collision: show the shapes that collide in place of those to look at."""
        self.server, self.stage = server, stage
        self._nodes: list[tuple[Group, Any]] = []
        self._floor: list[Any] = []
        self._colors: Array | None = None
        self.arrangement = Placing("one", np.zeros(1, dtype=int), np.zeros((1, 3)))
        self.collision = collision
        low, high = stage.bounds_of(some(stage))
        self._bounds = low.min((0, 1)), high.max((0, 1))
        server.scene.set_up_direction(UP[stage.up])
        server.scene.configure_default_lights(enabled=True, cast_shadow=True)

    def build(self, arrangement: Placing, poses: Poses) -> None:
        """Add all nodes, in place of those that are there."""
        self.arrangement = arrangement
        for _, node in self._nodes:
            node.remove()
        for node in self._floor:
            node.remove()
        looks = self.stage.looks
        shown = [look for look in looks.visuals if look.collides] if self.collision else looks.shown
        parts, planes = parts_of(shown)
        groups = group(parts, self.stage.model.nlink, arrangement.environments.tolist(), arrangement.mode != "ghosts")
        self._nodes = [(one, self._add(i, one, poses)) for i, one in enumerate(groups)]
        self._floor = [self._plane(i, plane) for i, plane in enumerate(planes)] or [self._ground()]
        if self._colors is not None:
            self.paint(self._colors)

    def draw(self, poses: Poses) -> None:
        """Move all instances to their places for poses."""
        for one, node in self._nodes:
            node.batched_positions, node.batched_wxyzs = one.place(
                poses.positions, poses.rotations, self.arrangement.shift
            )

    def paint(self, colors: Array | None) -> None:
        """Colours [nlink, 3] (0 to 1) of the links, in place of their own; None: their own."""
        self._colors = colors
        for one, node in self._nodes:
            if one.parts[0].texture is not None or one.parts[0].link < 0:
                continue
            own = one.colors()
            node.batched_colors = own if colors is None else (colors[one.link] * 255.0).round().astype(np.uint8)

    @property
    def movable(self) -> list[tuple[Group, Any]]:
        """The groups of solids that move, and their nodes."""
        return [(one, node) for one, node in self._nodes if one.parts[0].link >= 0]

    # ---------------------------------------------------------------------------------------------- nodes

    def _add(self, number: int, one: Group, poses: Poses) -> Any:
        part, scene = one.parts[0], self.server.scene
        positions, quaternions = one.place(poses.positions, poses.rotations, self.arrangement.shift)
        name = f"/world/solids {number}" if part.link < 0 else f"/bodies/solids {number}"
        visible = np.append(self.stage.visible, np.ones((self.stage.batch, 1), dtype=bool), 1)
        scale = np.where(visible[one.environment % len(visible), one.link, None], one.scale, 0.0)
        pose: dict[str, Any] = {
            "batched_positions": positions, "batched_wxyzs": quaternions, "batched_scales": scale,
        }  # fmt: skip
        if part.texture is not None and part.uv is not None:
            return scene.add_batched_glb(name, textured(part), lod="off", **pose)
        opacity = one.opacities() * self.arrangement.opacity[one.copy]
        vertices, faces = part.triangles
        return scene.add_batched_meshes_simple(
            name, vertices, faces, batched_colors=one.colors(), flat_shading=part.geometry == "box",
            lod="auto" if len(vertices) > FINE else "off",
            batched_opacities=opacity if (opacity < 1.0).any() else None, side="front", **pose,
        )  # fmt: skip

    def _plane(self, number: int, plane: Plane) -> Any:
        low, high = self._bounds
        size = max(float((high - low).max()), 1e-3)
        infinite = not all(plane.half)
        extent = (20.0 * size, 20.0 * size) if infinite else (2.0 * plane.half[0], 2.0 * plane.half[1])
        cell = 10.0 ** np.floor(np.log10(max(size, 1e-2)))
        return self.server.scene.add_grid(
            f"/world/plane {number}", *extent, plane="xy", infinite_grid=infinite, cell_size=cell / 2,
            section_size=cell, fade_distance=30.0 * size, shadow_opacity=0.35, plane_color=(236, 238, 241),
            plane_opacity=1.0, cell_color=(215, 218, 222), section_color=(190, 195, 200),
            position=plane.position, wxyz=plane.quaternion,
        )  # fmt: skip

    def _ground(self) -> Any:
        """Lines below a world without planes, for the eye; nothing collides with them."""
        low, high = self._bounds
        up = "xyz".index(self.stage.up[1])
        size = max(float((high - low).max()), 1e-3)
        cell = 10.0 ** np.floor(np.log10(max(size, 1e-2)))
        middle = (low + high) / 2.0
        middle[up] = low[up]
        return self.server.scene.add_grid(
            "/world/ground", 20.0 * cell, 20.0 * cell, plane="xy" if up == 2 else "xz", cell_size=cell / 2,
            section_size=cell, cell_color=(225, 228, 232), section_color=(200, 205, 210), position=middle,
        )  # fmt: skip

    def aim(self, arrangement: Placing, *, whole: bool = False) -> None:
        """Stand so that all shown environments are in the picture at the start; whole: in all of the motion, unless it
        goes far."""
        low, high = self._corners(arrangement, slice(0, 1))
        if whole:
            all_low, all_high = self._corners(arrangement, some(self.stage))
            if np.linalg.norm(all_high - all_low) < FAR * np.linalg.norm(high - low):
                low, high = all_low, all_high
        self._look_at((low + high) / 2.0, max(float(np.linalg.norm(high - low)), 1e-2))

    def _corners(self, arrangement: Placing, frames: slice) -> tuple[Array, Array]:
        """Of a box around the shown environments in some frames."""
        low, high = (x[:, arrangement.environments] + arrangement.shift for x in self.stage.bounds_of(frames))
        return low.min((0, 1)), high.max((0, 1))

    def _look_at(self, middle: Array, size: float) -> None:
        """Point the camera of pages that are opened from now on at a place; size: what is to be in the picture, m."""
        toward = VIEW[self.stage.up] / np.linalg.norm(VIEW[self.stage.up])
        camera = self.server.initial_camera
        camera.up = UP[self.stage.up]
        camera.fov = float(FIELD)
        distance = 0.55 * size / np.tan(FIELD / 2.0)
        camera.near, camera.far = float(distance / 100.0), float(distance * 100.0)
        camera.position, camera.look_at = tuple((middle + distance * toward).tolist()), tuple(middle.tolist())


def textured(part: Part) -> bytes:
    """A mesh with its texture, as a GLB file."""
    import trimesh
    from PIL import Image

    assert part.texture is not None and part.uv is not None
    vertices, faces = part.triangles
    image = Image.fromarray(np.ascontiguousarray(part.texture.image.squeeze()))
    repeat = np.array(part.texture.repeat)
    uv = np.stack([part.uv[:, 0] * repeat[0], 1.0 - part.uv[:, 1] * repeat[1]], 1)
    material = trimesh.visual.material.PBRMaterial(
        baseColorTexture=image, baseColorFactor=[round(255 * x) for x in part.rgba], metallicFactor=0.0,
        roughnessFactor=0.8,
    )  # fmt: skip
    visual = trimesh.visual.TextureVisuals(uv=uv, material=material)
    mesh = trimesh.Trimesh(vertices, faces, visual=visual, process=False)
    file = io.BytesIO()
    mesh.export(file, file_type="glb")
    return file.getvalue()
