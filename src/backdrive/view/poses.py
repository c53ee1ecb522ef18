"""Positions and orientations of all links along many states, with numpy: nothing is compiled to look at a model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..model import Kind, Model
from ..schema import layout
from ..schema.layout import NQ

Array = np.ndarray


def link_poses(model: Model, q: Array, constants: Array | None = None, dtype: type = np.float32) -> tuple[Array, Array]:
    """Positions [S, B, nlink, 3] (m) and unit quaternions [S, B, nlink, 4] (w first) of the links.

    q: [S, B, nq]. constants: of the model with other parameters, [nconst] or [B, nconst].
    """
    steps, batch = q.shape[:2]
    positions: Array = np.empty((steps, batch, model.nlink, 3), dtype=dtype)
    rotations: Array = np.empty((steps, batch, model.nlink, 4), dtype=dtype)
    numbers = (model.constants if constants is None else constants)[..., : model.nlink * layout.LINK]
    records = np.atleast_2d(numbers).reshape(-1, model.nlink, layout.LINK)  # [1 or B, nlink, LINK]
    poses: list[tuple[Array, Array]] = []
    for i, (kind, parent, at) in enumerate(zip(model.kind, model.parent.tolist(), model.qadr.tolist(), strict=True)):
        coordinates = np.moveaxis(q[..., at : at + NQ[kind]], -1, 0).astype(np.float64)
        turned, moved = _JOINTS[Kind(kind)](_Link(records[:, i]), coordinates)
        if parent >= 0:
            above, origin = poses[parent]
            turned, moved = product(above, turned), origin + rotate(above, moved)
        poses.append((turned, moved))
        positions[:, :, i], rotations[:, :, i] = np.moveaxis(moved, 0, -1), np.moveaxis(turned, 0, -1)
    return positions, rotations


class _Link:
    """Constants of a link, components first: [3, B] or [4, B]."""

    def __init__(self, record: Array) -> None:
        self.offset, self.anchor, self.axis = (
            record[:, at : at + 3].T for at in (layout.OFFSET, layout.ANCHOR, layout.AXIS)
        )
        self.rotation = quaternion_of(record[:, layout.ROTATION :][:, :9].reshape(-1, 3, 3)).T


def _rotated(link: _Link, rotation: Array) -> tuple[Array, Array]:
    """A link that turned about its anchor, which keeps its place in the parent."""
    turned = product(link.rotation, rotation)
    return turned, _at(link.offset + rotate(link.rotation, link.anchor), turned) - rotate(turned, link.anchor)


def _fixed(link: _Link, q: Array) -> tuple[Array, Array]:
    shape = q.shape[1:]
    return np.broadcast_to(link.rotation[:, None], (4, *shape)), np.broadcast_to(link.offset[:, None], (3, *shape))


def _hinge(link: _Link, q: Array) -> tuple[Array, Array]:
    return _rotated(link, about(link.axis, q[0]))


def _slider(link: _Link, q: Array) -> tuple[Array, Array]:
    turned, origin = _fixed(link, q)
    return turned, origin + rotate(link.rotation, link.axis)[:, None] * q[0]


def _ball(link: _Link, q: Array) -> tuple[Array, Array]:
    return _rotated(link, normalised(q))


def _planar(link: _Link, q: Array) -> tuple[Array, Array]:
    turned = product(link.rotation, about(np.array([[0.0], [0.0], [1.0]]), q[2]))
    return turned, _at(link.offset, turned) + rotate(link.rotation, np.stack([q[0], q[1], np.zeros_like(q[0])]))


def _free(link: _Link, q: Array) -> tuple[Array, Array]:
    return normalised(q[3:]), q[:3]


_JOINTS: dict[Kind, Callable[[_Link, Array], tuple[Array, Array]]] = {
    Kind.FIXED: _fixed, Kind.HINGE: _hinge, Kind.SLIDER: _slider, Kind.BALL: _ball, Kind.PLANAR: _planar,
    Kind.FREE: _free,
}  # fmt: skip


# ---------------------------------------------------------------------------------------------- quaternions
# Components first: quaternions [4, ...], vectors [3, ...]. Constants [k, B] broadcast against [k, S, B].


def _at(constant: Array, like: Array) -> Array:
    return constant[:, None] if constant.ndim < like.ndim else constant


def product(a: Array, b: Array) -> Array:
    """The product of quaternions: the rotation b, then a."""
    a, b = _at(a, b), _at(b, a)
    return np.stack(
        [
            a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
            a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
            a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
            a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
        ]
    )


def rotate(a: Array, x: Array) -> Array:
    """Vectors turned by quaternions."""
    a, x = _at(a, x), _at(x, a)
    w, u = a[0], a[1:]
    twice = 2.0 * _cross(u, x)
    return x + w * twice + _cross(u, twice)


def about(axis: Array, angle: Array) -> Array:
    """The quaternion of a rotation by an angle (rad) about a unit axis."""
    half = np.where(np.isfinite(angle), 0.5 * angle, np.nan)
    return np.concatenate([np.cos(half)[None], _at(axis, half[None]) * np.sin(half)])


def normalised(a: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        return a / np.sqrt((a * a).sum(0))


def quaternion_of(R: Array) -> Array:
    """Unit quaternions [..., 4], w first, of rotation matrices [..., 3, 3]."""
    (a, b, c), (d, e, f), (g, h, i) = (np.moveaxis(row, -1, 0) for row in np.moveaxis(R, -2, 0))
    # Four formulas, each good where its component is not small; every row is 4 q_k q.
    rows = np.stack(
        [
            np.stack([1 + a + e + i, h - f, c - g, d - b], -1),
            np.stack([h - f, 1 + a - e - i, b + d, c + g], -1),
            np.stack([c - g, b + d, 1 - a + e - i, f + h], -1),
            np.stack([d - b, c + g, f + h, 1 - a - e + i], -1),
        ],
        -2,
    )
    best = np.diagonal(rows, axis1=-2, axis2=-1).argmax(-1)
    q = np.take_along_axis(rows, best[..., None, None], -2)[..., 0, :]
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


def matrices(quaternions: Array) -> Array:
    """Rotation matrices [..., 3, 3] of unit quaternions [..., 4]."""
    w, x, y, z = np.moveaxis(quaternions, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, -1) for row in rows], -2)


def _cross(a: Array, b: Array) -> Array:
    return np.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])
