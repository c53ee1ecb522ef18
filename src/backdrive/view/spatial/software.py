"""A renderer in software, with numpy alone: triangles with a depth buffer, smooth shading, floors with shadows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ...model.looks import Visual, frame_along
from .cameras import Viewpoint
from .marks import Marks
from .shapes import Triangles, cone, solid_of

Array = np.ndarray

SKY, HORIZON = np.array([0.60, 0.72, 0.86]), np.array([0.94, 0.96, 0.99])
CHECKS = np.array([(0.90, 0.915, 0.93), (0.83, 0.85, 0.875)])
AMBIENT, SUNLIGHT, HEADLIGHT, SHADOW = 0.40, 0.55, 0.25, 0.6  # the last: how bright a shadow is
FRAGMENTS = 2_000_000  # of triangles that are drawn at once
NEAR = 0.02  # the nearest that is drawn, relative to the distance of what is looked at
THIN = 1e-3  # square pixels; smaller triangles are not drawn


class SoftwareRenderer:
    """Draws visuals with numpy; samples: across and along every pixel."""

    def __init__(self, visuals: Sequence[Visual], width: int, height: int, samples: int = 1) -> None:
        self._width, self._height, self._samples = width * samples, height * samples, samples
        self._planes = [i for i, visual in enumerate(visuals) if visual.kind == "plane"]
        self._visuals = visuals
        solids = [(i, solid_of(visual)) for i, visual in enumerate(visuals) if visual.kind != "plane"]
        self._solid = _joined([solid for _, solid in solids])
        self._owner = np.repeat([i for i, _ in solids], [len(solid.vertices) for _, solid in solids]).astype(np.int64)

    def image(self, positions: Array, rotations: Array, view: Viewpoint, marks: Marks) -> Array:
        canvas = _Canvas(view, self._width, self._height)
        turn = rotations[self._owner]
        vertices = np.einsum("nij,nj->ni", turn, self._solid.vertices) + positions[self._owner]
        normals = np.einsum("nij,nj->ni", turn, self._solid.normals)
        marked = _joined([_mark(*arrow) for arrow in marks.arrows] + [s for line in marks.lines for s in _tube(*line)])
        vertices, normals = np.concatenate([vertices, marked.vertices]), np.concatenate([normals, marked.normals])
        faces = np.concatenate([self._solid.faces, marked.faces + len(self._solid.vertices)])
        toward = view.eye - vertices
        toward /= np.maximum(np.linalg.norm(toward, axis=1, keepdims=True), 1e-12)
        light = AMBIENT + SUNLIGHT * np.clip(-normals @ view.sun, 0.0, 1.0)
        light += HEADLIGHT * np.clip((normals * toward).sum(1), 0.0, 1.0)
        colors = np.concatenate([self._solid.colors, marked.colors]) * light[:, None]
        for i in self._planes:
            self._floor(canvas, i, positions[i], rotations[i], vertices, faces)
        canvas.draw(vertices, faces, colors)
        pixels = canvas.picture.reshape(self._height, self._width, 3)
        n = self._samples
        if n > 1:
            pixels = pixels.reshape(self._height // n, n, self._width // n, n, 3).mean((1, 3))
        return (np.clip(pixels, 0.0, 1.0) * np.float32(255.0) + np.float32(0.5)).astype(np.uint8)

    def close(self) -> None:
        pass

    def _floor(self, canvas: _Canvas, i: int, place: Array, axes: Array, vertices: Array, faces: Array) -> None:
        """Draw a plane, with the shadows of the triangles on it."""
        view, normal, visual = canvas.view, axes[:, 2], self._visuals[i]
        height = float((view.eye - place) @ normal)
        if height <= 0.0:
            return
        inverse = canvas.along(normal / -height)  # inverse depths: a ray has the length 1 along the camera's axis
        seen = np.flatnonzero(inverse > np.maximum(canvas.depth, np.float32(1e-6)))
        near = inverse[seen]
        across = [canvas.along(axes[:, k])[seen] / near + np.float32((view.eye - place) @ axes[:, k]) for k in range(2)]
        limits = [k for k in range(2) if visual.size[k] > 0.0]
        if limits:
            inside = np.logical_and.reduce([np.abs(across[k]) <= visual.size[k] for k in limits])
            seen, near, across = seen[inside], near[inside], [x[inside] for x in across]
        light = np.float32(AMBIENT + SUNLIGHT * max(float(-normal @ view.sun), 0.0) + 0.1)
        haze = np.minimum((np.float32(1.0 / (8.0 * canvas.distance)) / near) ** np.float32(1.5), np.float32(1.0))
        shine = light * (1.0 - haze)
        falling = float(-view.sun @ normal)
        if falling > 1e-3 and len(vertices):
            above = (vertices - place) @ normal
            shadow = np.zeros(len(canvas.depth), dtype=bool)
            cast = faces[(above[faces] > 1e-6).any(1)]
            canvas.cover(vertices + view.sun * (np.maximum(above, 0.0) / falling)[:, None], cast, shadow)
            shine[shadow[seen]] *= np.float32(SHADOW)
        color = _pattern(visual, *across)
        color *= shine[:, None]
        color += haze[:, None] * HORIZON.astype(np.float32)
        canvas.picture[seen] = color
        canvas.depth[seen] = near


class _Canvas:
    """A view on pixels: projection, and the drawing of triangles. picture [pixels, 3], depth [pixels]: inverse ones."""

    def __init__(self, view: Viewpoint, width: int, height: int) -> None:
        self.view, self.width, self.height = view, width, height
        self.focal = height / 2.0 / math.tan(math.radians(view.fovy) / 2.0)
        self._x = ((np.arange(width) + 0.5 - width / 2.0) / self.focal).astype(np.float32)
        self._y = ((height / 2.0 - np.arange(height) - 0.5) / self.focal).astype(np.float32)
        self.distance = max(float(np.linalg.norm(view.eye - view.focus)), 1e-9)
        self.depth = np.zeros(height * width, dtype=np.float32)
        length = np.sqrt(self._x**2 + self._y[:, None] ** 2 + 1.0)
        share = np.clip(self.along(view.up).reshape(length.shape) / length * np.float32(1.6), 0.0, 1.0)
        self.picture = np.empty((height * width, 3), dtype=np.float32)
        for k in range(3):
            self.picture[:, k] = (HORIZON[k] + share * (SKY[k] - HORIZON[k])).ravel()

    def along(self, vector: Array) -> Array:
        """The products [pixels] of a vector [3] with the rays of all pixels, of length 1 along the camera's axis."""
        right, up, back = (vector @ self.view.axes).astype(np.float32)
        return (self._x * right + (self._y * up - back)[:, None]).ravel()

    def draw(self, vertices: Array, faces: Array, colors: Array) -> None:
        """Draw triangles whose corners have colours [n, 3]."""
        depth, colors = self.depth, colors.astype(np.float32)
        screen, inverse = self._project(vertices)
        for triangles in self._pieces(screen, inverse, faces, cull=True):
            pixels, owner, weights = self._fragments(screen, triangles)
            near = sum(weights[:, k] * inverse[triangles[:, k]][owner] for k in range(3))
            front = near > depth[pixels]
            pixels, owner, weights, near = pixels[front], owner[front], weights[front], near[front]
            order = np.argsort(near, kind="stable")
            last = np.full(len(depth), -1, dtype=np.int64)
            last[pixels[order]] = order  # of the fragments of a pixel, the nearest is written last
            hit = np.flatnonzero(last >= 0)
            won = last[hit]
            depth[hit] = near[won]
            corners = triangles[owner[won]]
            self.picture[hit] = sum(weights[won, k, None] * colors[corners[:, k]] for k in range(3))

    def cover(self, vertices: Array, faces: Array, mask: Array) -> None:
        """Set the pixels [pixels] that triangles cover."""
        screen, inverse = self._project(vertices)
        for triangles in self._pieces(screen, inverse, faces, cull=False):
            mask[self._fragments(screen, triangles)[0]] = True

    def _project(self, vertices: Array) -> tuple[Array, Array]:
        """Pixels [n, 2] and inverse depths [n]; the inverse depth is negative behind the camera."""
        local = (vertices - self.view.eye) @ self.view.axes
        depth = -local[:, 2]
        safe = np.where(depth > NEAR * self.distance, depth, np.inf)
        screen = np.stack([self.width / 2.0 + self.focal * local[:, 0] / safe,
                           self.height / 2.0 - self.focal * local[:, 1] / safe], 1)  # fmt: skip
        return screen.astype(np.float32), np.where(np.isfinite(safe), 1.0 / safe, -1.0).astype(np.float32)

    def _pieces(self, screen: Array, inverse: Array, faces: Array, cull: bool) -> list[Array]:
        """The triangles [m, 3] that are seen, in pieces of a bounded number of fragments."""
        corners = screen[faces]
        low, high = corners.min(1), corners.max(1)
        seen = (inverse[faces] > 0.0).all(1)
        seen &= (high[:, 0] >= 0.0) & (low[:, 0] <= self.width) & (high[:, 1] >= 0.0) & (low[:, 1] <= self.height)
        first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
        area = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]  # negative if the front is seen
        seen &= area < -THIN if cull else np.abs(area) > THIN
        kept = faces[seen]
        total = np.cumsum(self._boxes(screen, kept)[2].prod(1, dtype=np.int64))
        cuts = np.searchsorted(total, np.arange(FRAGMENTS, total[-1] if len(total) else 0, FRAGMENTS)) + 1
        return [piece for piece in np.split(kept, cuts) if len(piece)]

    def _boxes(self, screen: Array, faces: Array) -> tuple[Array, Array, Array]:
        """First and last pixels whose centers may be in the triangles, and the numbers of both, [m, 2] each."""
        corners = screen[faces]
        most = np.array([self.width - 1, self.height - 1])
        low = np.clip(np.ceil(corners.min(1) - 0.5), 0, most + 1).astype(np.int32)
        high = np.clip(np.floor(corners.max(1) - 0.5), -1, most).astype(np.int32)
        return low, high, np.maximum(high - low + 1, 0)

    def _fragments(self, screen: Array, faces: Array) -> tuple[Array, Array, Array]:
        """The pixels of triangles: numbers [f], the triangle of each, and the weights of its corners [f, 3]."""
        low, _, counts = self._boxes(screen, faces)
        sizes = counts[:, 0] * counts[:, 1]
        owner = np.repeat(np.arange(len(faces), dtype=np.int32), sizes)
        inside = np.arange(len(owner), dtype=np.int32) - np.repeat((np.cumsum(sizes) - sizes).astype(np.int32), sizes)
        wide = counts[owner, 0]
        row = inside // np.maximum(wide, 1)
        column = inside - row * wide + low[owner, 0]
        row = row + low[owner, 1]
        a, b, c = (screen[faces[:, k]] for k in range(3))
        area = (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])
        with np.errstate(divide="ignore", invalid="ignore"):
            rate_b = np.stack([c[:, 1] - a[:, 1], a[:, 0] - c[:, 0]], 1) / area[:, None]
            rate_c = np.stack([a[:, 1] - b[:, 1], b[:, 0] - a[:, 0]], 1) / area[:, None]
        half = np.float32(0.5)
        x, y = column.astype(np.float32) + half - a[owner, 0], row.astype(np.float32) + half - a[owner, 1]
        second = x * rate_b[owner, 0] + y * rate_b[owner, 1]
        third = x * rate_c[owner, 0] + y * rate_c[owner, 1]
        first = np.float32(1.0) - second - third
        hit = (first >= 0.0) & (second >= 0.0) & (third >= 0.0)
        weights = np.stack([first[hit], second[hit], third[hit]], 1)
        return row[hit] * self.width + column[hit], owner[hit], weights


def _pattern(visual: Visual, x: Array, y: Array) -> Array:
    """The colours [n, 3] of points (m) of a plane: its texture, or checks of half a metre."""
    if visual.texture is None:
        even = (np.floor(x * 2.0) + np.floor(y * 2.0)).astype(np.int32) & 1
        return CHECKS.astype(np.float32)[even]
    image, repeat = visual.texture.image, visual.texture.repeat
    height, width = image.shape[:2]
    endless = visual.texture.uniform or not all(visual.size[:2])
    u, v = (
        place * np.float32(repeat[k] / 2.0 if endless else repeat[k] / (2.0 * visual.size[k]))
        for k, place in enumerate((x, y))
    )
    column, row = (
        ((u - np.floor(u)) * (width - 1)).astype(np.int32),
        ((v - np.floor(v)) * (height - 1)).astype(np.int32),
    )
    shades = (image[..., :3] / 255.0 * np.array(visual.rgba[:3])).astype(np.float32).reshape(-1, 3)
    return shades[row * width + column]


def _joined(solids: Sequence[Triangles]) -> Triangles:
    starts = np.cumsum([0, *(len(solid.vertices) for solid in solids)])
    empty = np.zeros((0, 3))
    return Triangles(
        np.concatenate([empty, *(solid.vertices for solid in solids)]),
        np.concatenate([empty, *(solid.normals for solid in solids)]),
        np.concatenate([empty.astype(np.int64), *(s.faces + start for s, start in zip(solids, starts, strict=False))]),
        np.concatenate([empty, *(solid.colors for solid in solids)]),
    )


def _mark(tail: Array, tip: Array, radius: float, color: Sequence[float]) -> Triangles:
    """An arrow."""
    way = tip - tail
    length = max(float(np.linalg.norm(way)), 1e-12)
    head = min(4.0 * radius, 0.5 * length)
    shaft = _joined(_tube(np.stack([tail, tip - way / length * head]), radius, color))
    vertices, normals, faces = cone(2.0 * radius, head)
    turn = frame_along(way / length)
    point = Triangles(vertices @ turn.T + tip - way / length * head, normals @ turn.T, faces, _plain(vertices, color))
    return _joined([shaft, point])


def _tube(points: Array, radius: float, color: Sequence[float]) -> Sequence[Triangles]:
    """Rods from point to point."""
    rods = []
    for first, second in itertools.pairwise(points):
        way = second - first
        length = float(np.linalg.norm(way))
        if length < 1e-9:
            continue
        ring = np.array([(math.cos(k * math.pi / 3), math.sin(k * math.pi / 3)) for k in range(6)])
        vertices = np.concatenate([np.pad(ring * radius, ((0, 0), (0, 1)), constant_values=z) for z in (0.0, length)])
        normals = np.pad(np.tile(ring, (2, 1)), ((0, 0), (0, 1)))
        here, after = np.arange(6), (np.arange(6) + 1) % 6
        faces = np.concatenate([np.stack([here, after, after + 6], 1), np.stack([here, after + 6, here + 6], 1)])
        turn = frame_along(way / length)
        rods.append(Triangles(vertices @ turn.T + first, normals @ turn.T, faces, _plain(vertices, color)))
    return rods


def _plain(vertices: Array, color: Sequence[float]) -> Array:
    return np.tile(np.array(color[:3]), (len(vertices), 1))
