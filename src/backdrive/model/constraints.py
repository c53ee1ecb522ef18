"""Constraint equations between bodies besides the joints of the tree: closed loops, distances, welds, locks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from ..schema.layout import EqualityKind, Kind
from . import checks
from .joints import Joint
from .links import Equality

Array = np.ndarray


class Frame(NamedTuple):
    """The pose of a link (-1: the world) with all joint coordinates at zero: position [3] (m) and rotation [3, 3]."""

    link: int
    position: Array
    rotation: Array

    def local(self, point: Array) -> Array:
        """A world point in this frame."""
        return self.rotation.T @ (point - self.position)


WORLD = Frame(-1, np.zeros(3), np.eye(3))


class Constraint(ABC):
    """Restricts the motion of body a relative to body b, or to the world. ``Scene.add_constraint`` takes it."""

    anchors: ClassVar[int] = 0
    """Number of anchors: 0, 1 (on a) or 2 (on a and on b)."""

    rigid: ClassVar[bool] = False
    """Whether it keeps the relative pose of a and b, which then do not collide."""

    @abstractmethod
    def equations(self, name: str, dim: int, a: Frame, b: Frame, anchor_a: Array, anchor_b: Array) -> list[Equality]:
        """The equations of the constraint; anchors are world points [3]."""


@dataclass(frozen=True)
class Distance(Constraint):
    """A massless rod between a point of a and a point of b. length: m; None: their distance as placed."""

    length: float | None = None
    anchors = 2

    def __post_init__(self) -> None:
        if self.length is not None:
            object.__setattr__(self, "length", checks.number(self.length, "Distance length", low=0.0, strict=True))

    def equations(self, name: str, dim: int, a: Frame, b: Frame, anchor_a: Array, anchor_b: Array) -> list[Equality]:
        length = float(np.linalg.norm(anchor_a - anchor_b)) if self.length is None else self.length
        if length < 1e-9:
            raise ValueError(
                f"constraint {name!r}: the two anchors are the same point, so their distance has no direction; "
                "give other anchors, or connect the bodies by a joint"
            )
        points = b.local(anchor_b), a.local(anchor_a)
        return [Equality(name, EqualityKind.DISTANCE, b.link, a.link, *points, distance=length)]


@dataclass(frozen=True)
class Weld(Constraint):
    """a keeps its pose relative to b, or in the world. The two do not collide."""

    rigid = True

    def equations(self, name: str, dim: int, a: Frame, b: Frame, anchor_a: Array, anchor_b: Array) -> list[Equality]:
        return [*_along(name, b, a, a.position, _moves(dim)), *_about(name, b, a, a.position, _turns(dim))]


@dataclass(frozen=True)
class Lock(Constraint):
    """A point of a (by default its position) keeps its coordinate "x", "y" or "z" in the world or in b's frame.

    "angle" (2D): a does not rotate, or does not rotate relative to b.
    """

    coordinate: str
    anchors = 1

    def __post_init__(self) -> None:
        if self.coordinate not in ("x", "y", "z", "angle"):
            raise ValueError(f"Lock takes 'x', 'y', 'z' or 'angle', got {self.coordinate!r}")

    def equations(self, name: str, dim: int, a: Frame, b: Frame, anchor_a: Array, anchor_b: Array) -> list[Equality]:
        if self.coordinate not in ("x", "y", "angle" if dim == 2 else "z"):
            raise ValueError(f"constraint {name!r}: there is no {self.coordinate!r} to lock in {dim}D")
        if self.coordinate == "angle":
            return _about(name, b, a, anchor_a, _turns(dim))
        return _along(name, b, a, anchor_a, np.eye(3)[["xyz".index(self.coordinate)]])


def joint_equations(
    name: str, dim: int, joint: Joint, axis: Array, parent: Frame, child: Frame, anchor: Array
) -> list[Equality]:
    """The equations of a joint that closes a loop. axis: unit vector [3], anchor: point [3], both in the world."""
    moves, turns = _moves(dim), _turns(dim)
    if joint.kind == Kind.BALL:
        turns = turns[:0]
    elif joint.kind == Kind.HINGE:
        turns = _across(dim, parent.rotation.T @ axis) if dim == 3 else turns[:0]
    elif joint.kind == Kind.SLIDER:
        moves = _across(dim, parent.rotation.T @ axis)
    return [*_along(name, parent, child, anchor, moves), *_about(name, parent, child, anchor, turns)]


def _along(name: str, a: Frame, b: Frame, point: Array, directions: Iterable[Array]) -> list[Equality]:
    """The points of a and b at the same world point (as placed) do not separate along directions fixed in a."""
    return [_equality(name, EqualityKind.ALONG, a, b, point, direction) for direction in directions]


def _about(name: str, a: Frame, b: Frame, point: Array, directions: Iterable[Array]) -> list[Equality]:
    """a and b do not rotate relative to each other about directions fixed in a."""
    return [_equality(name, EqualityKind.ABOUT, a, b, point, direction) for direction in directions]


def _equality(name: str, kind: EqualityKind, a: Frame, b: Frame, point: Array, direction: Array) -> Equality:
    relative = a.rotation.T @ b.rotation
    return Equality(name, kind, a.link, b.link, a.local(point), b.local(point), direction, relative)


def _moves(dim: int) -> Array:
    """The directions of translation that exist, [dim, 3]."""
    return np.eye(3)[:dim]


def _turns(dim: int) -> Array:
    """The axes of rotation that exist, [1 or 3, 3]."""
    return np.eye(3)[2:] if dim == 2 else np.eye(3)


def _across(dim: int, axis: Array) -> Array:
    """Unit vectors perpendicular to a unit axis and to each other: one in the plane, two in space."""
    if dim == 2:
        return np.array([[-axis[1], axis[0], 0.0]])
    first = np.cross(axis, np.eye(3)[np.abs(axis).argmin()])
    first /= np.linalg.norm(first)
    return np.array([first, np.cross(axis, first)])
