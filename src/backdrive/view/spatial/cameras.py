"""From where a stage is seen: a camera that frames all, follows a body or turns around it, or one of the file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...model import checks
from ...model.looks import FileCamera
from ..stage import Staging

Array = np.ndarray

FOVY = 35.0
"""Vertical field of view of cameras that are not the file's, degrees."""
MARGIN = 1.12
"""How much larger than what is framed the picture is."""
FAR = 1.5
"""A camera follows what moves farther than this many times its own size."""
WIDE = 8.0
"""Least width of what a camera shows that follows a body, in sizes of that body; of many bodies, less."""
DIRECTIONS = {"+z": (1.0, -1.25, 0.6), "+y": (0.3, 0.28, 1.0)}
"""From where, by what is up."""
SUN = (0.35, 0.25)
"""How far the light falls along x, and across x and up, on its way down by 1."""
TURN_SECONDS = 8.0
"""The time of one turn of a turntable, s of film."""


@dataclass(frozen=True)
class Viewpoint:
    """A camera: where it is [3] (m), its axes [3, 3] (columns: right, up, backwards), vertical field of view (degrees).

    focus: what it looks at [3]; size: of what it shows, m; up [3]: against which the light falls. Renderers light and
    shade that part.
    """

    eye: Array
    axes: Array
    fovy: float
    focus: Array
    size: float
    up: Array

    @property
    def sun(self) -> Array:
        """The direction of the light, a unit vector [3]."""
        first = np.array([1.0, 0.0, 0.0])
        direction = SUN[0] * first + SUN[1] * np.cross(self.up, first) - self.up
        return direction / np.linalg.norm(direction)


def looking(eye: Array, focus: Array, up: Array, fovy: float, size: float) -> Viewpoint:
    """A camera that looks from one point to another."""
    back = (eye - focus) / max(float(np.linalg.norm(eye - focus)), 1e-12)
    right = np.cross(up, back)
    if np.linalg.norm(right) < 1e-6:
        right = np.cross([0.0, 1.0, 1e-3], back)
    right = right / np.linalg.norm(right)
    return Viewpoint(eye, np.stack([right, np.cross(back, right), back], 1), fovy, focus, size, up)


class Director:
    """Places the camera for every frame of a film."""

    def __init__(self, stage: Staging, frames: Sequence[int], offsets: Array, aspect: float) -> None:
        """offsets [B, 3]: where the environments stand; aspect: width of the picture by its height."""
        self._stage, self._frames, self._offsets, self._aspect = stage, list(frames), offsets, aspect
        self._up = np.array([0.0, 1.0, 0.0] if stage.up == "+y" else [0.0, 0.0, 1.0])
        self._direction = np.array(DIRECTIONS[stage.up])
        low, high = stage.bounds_of(self._frames)  # [F, B, 3]
        self._low, self._high = (low + offsets).min(1), (high + offsets).max(1)
        sizes = (high - low).reshape(-1, 3)
        self.size = float(np.median(np.linalg.norm(sizes, axis=1)))  # of one environment, m
        radii = stage.balls[0][stage.balls[0] >= 0.0]
        self._window = WIDE * 2.0 * float(np.median(radii)) / math.sqrt(len(radii))
        self._extent = float(np.linalg.norm(self._high - self._low, axis=1).max())  # of all, in any frame

    def views(
        self, camera: str = "free", track: str | None = None, turntable: bool | float = False, fps: float = 30.0
    ) -> list[Viewpoint]:
        """The cameras of all frames. camera: "free" or the name of a camera of the file. track: a body to follow.
        turntable: seconds per turn about the middle; True: 8."""
        if not isinstance(camera, str):
            raise TypeError(f"camera must be 'free' or the name of one of the file's cameras, got {camera!r}")
        if camera != "free":
            if track is not None or turntable:
                raise ValueError("track and turntable are for camera='free'; a camera of the file has its own motion")
            return self._of_file(camera)
        link = None if track is None else self._stage.link(track)
        centers = self._centers(link, fps)
        directions = np.tile(self._direction, (len(self._frames), 1))
        if turntable:
            seconds = checks.number(
                TURN_SECONDS if turntable is True else turntable, "turntable (seconds per turn)", low=0.0, strict=True
            )
            angle = 2.0 * math.pi * np.arange(len(self._frames)) / (fps * seconds)
            directions = _about(self._up, angle, self._direction)
        return self._framed(centers, directions)

    def fixed(self, direction: Array, centers: Array) -> list[Viewpoint]:
        """Cameras at a vector [3] (m) from centers [F, 3]."""
        return [looking(center + direction, center, self._up, 45.0, self._extent) for center in centers]

    def _centers(self, link: int | None, fps: float) -> Array:
        """What the camera looks at, [F, 3]."""
        if link is not None:
            positions = self._stage.positions[self._frames][:, :, link] + self._offsets
            return _smooth(positions.mean(1).astype(np.float64), round(0.1 * fps))
        low, high = self._low.min(0), self._high.max(0)
        if np.linalg.norm(high - low) <= max(FAR * self._extent, self._window) or len(self._frames) == 1:
            return np.tile((low + high) / 2.0, (len(self._frames), 1))
        return _smooth((self._low + self._high) / 2.0, round(0.5 * fps))

    def _framed(self, centers: Array, directions: Array) -> list[Viewpoint]:
        """Cameras along directions from centers, [F, 3] each, so far away that all is seen."""
        stage = self._stage
        radii, middles = stage.balls
        links = np.flatnonzero(radii >= 0.0)
        some = np.linspace(0, len(self._frames) - 1, min(len(self._frames), 40)).round().astype(int)
        tangent = math.tan(math.radians(FOVY) / 2.0)
        reach: list[float] = []
        shift = []
        for k in some.tolist():
            frame = self._frames[k]
            turned = stage.rotation_matrices(frame)[:, links] @ middles[links, :, None]
            points = stage.positions[frame][:, links] + turned[..., 0] + self._offsets[:, None]
            points = points[stage.visible[:, links]] - centers[k]
            sizes = np.broadcast_to(radii[links], (stage.batch, len(links)))[stage.visible[:, links]]
            axes = looking(directions[k], np.zeros(3), self._up, FOVY, 1.0).axes
            right, up, back = (points @ axes).T
            shift.append(((right - sizes).min() + (right + sizes).max(), (up - sizes).min() + (up + sizes).max()))
            needed = np.maximum((np.abs(right) + sizes) / (tangent * self._aspect), (np.abs(up) + sizes) / tangent)
            reach.append(float((needed + back).max()))
        distance = MARGIN * float(np.percentile(reach, 90))
        if np.ptp(centers, axis=0).any():
            distance = max(distance, self._window / 2.0 / tangent)
        units = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        return [
            looking(center + distance * unit, center, self._up, FOVY, self._extent)
            for center, unit in zip(centers, units, strict=True)
        ]

    def _of_file(self, name: str) -> list[Viewpoint]:
        cameras = {camera.name: camera for camera in self._stage.looks.cameras}
        if name not in cameras:
            raise ValueError(checks.unknown("camera", name, ["free", *cameras]))
        return [self._file_view(cameras[name], frame) for frame in self._frames]

    def _file_view(self, camera: FileCamera, frame: int) -> Viewpoint:
        stage, link = self._stage, camera.link
        turn = stage.rotation_matrices(frame)[0, link] if link >= 0 else np.eye(3)
        origin = stage.positions[frame, 0, link].astype(np.float64) if link >= 0 else np.zeros(3)
        eye, axes = origin + turn @ camera.position, turn @ camera.rotation
        if camera.mode.startswith("track"):
            base = self._carried(link, frame) if camera.mode == "trackcom" else origin
            eye, axes = base + camera.world_offset, camera.world_rotation
        elif camera.mode.startswith("target"):
            target = stage.positions[frame, 0, camera.target].astype(np.float64)
            if camera.mode == "targetbodycom":
                target = self._carried(camera.target, frame)
            return looking(eye, target, self._up, camera.fovy, self._extent)
        middle = (self._low + self._high)[self._frames.index(frame)] / 2.0
        return Viewpoint(eye, axes, camera.fovy, middle, self._extent, self._up)

    def _carried(self, link: int, frame: int) -> Array:
        """The center of mass of a link and of those that it carries, in the first environment."""
        model, member = self._stage.model, np.zeros(self._stage.model.nlink, dtype=bool)
        for i, parent in enumerate(model.parent.tolist()):
            member[i] = i == link or (parent >= 0 and member[parent])
        masses = self._stage.body_masses[0] * member[model.body_link]
        centers = self._stage.body_centers([frame])[0, 0]
        return (centers * masses[:, None]).sum(0) / max(float(masses.sum()), 1e-300)


def _about(axis: Array, angle: Array, vector: Array) -> Array:
    """A vector [3] turned about a unit axis by angles [F], [F, 3]."""
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    along = axis * (axis @ vector)
    return along + c * (vector - along) + s * np.cross(axis, vector)


def _smooth(values: Array, width: int) -> Array:
    """Running mean over frames [F, k]; the first and last frames are repeated at the ends."""
    padded = np.concatenate([values[:1].repeat(width, 0), values, values[-1:].repeat(width, 0)])
    total = np.cumsum(np.concatenate([np.zeros_like(padded[:1]), padded]), 0)
    size = 2 * width + 1
    return (total[size:] - total[:-size]) / size
