"""Equations between bodies that joints of the tree do not express: closed loops, distances, welds, locks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..schema.layout import EqualityKind, Kind
from . import checks
from .joints import Joint
from .links import Equality

Array = np.ndarray


class Frame(NamedTuple):
    """Where a link (-1: the world) is when all joint coordinates are zero: position [3] (m) and rotation [3, 3]."""

    link: int
    position: Array
    rotation: Array

    def local(self, point: Array) -> Array:
        """A world point in this frame."""
        return self.rotation.T @ (point - self.position)


WORLD = Frame(-1, np.zeros(3), np.eye(3))


class Constraint(ABC):
    """What ``Scene.add_constraint`` takes: keeps body a in some way with body b, or with the world."""

    anchors = 0
    """How many anchors it has: none, one on a, or one on each."""

    @abstractmethod
    def equations(self, name: str, dim: int, a: Frame, b: Frame, anchor_a: Array, anchor_b: Array) -> list[Equality]:
        """Its equations; anchors are world points [3]."""


@dataclass(frozen=True)
class Distance(Constraint):
    """A point of a and a point of b keep their distance: a massless rod. length: m; None: as placed."""

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

    def equations(self, name: str, dim: int, a: Frame, b: Frame, anchor_a: Array, anchor_b: Array) -> list[Equality]:
        return [*_along(name, b, a, a.position, _moves(dim)), *_about(name, b, a, a.position, _turns(dim))]


@dataclass(frozen=True)
class Lock(Constraint):
    """A point of a (by default its position) keeps its coordinate "x", "y" or "z" in the world or in b's frame.

    "angle" (2D): a does not turn, or not relative to b.
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
    """The equations of a joint that closes a loop; axis: unit vector [3] and anchor: point [3], in the world."""
    moves, turns = _moves(dim), _turns(dim)
    if joint.kind == Kind.BALL:
        turns = turns[:0]
    elif joint.kind == Kind.HINGE:
        turns = _across(dim, parent.rotation.T @ axis) if dim == 3 else turns[:0]
    elif joint.kind == Kind.SLIDER:
        moves = _across(dim, parent.rotation.T @ axis)
    return [*_along(name, parent, child, anchor, moves), *_about(name, parent, child, anchor, turns)]


def _along(name: str, a: Frame, b: Frame, point: Array, directions: Iterable[Array]) -> list[Equality]:
    """The point of a and that of b, the same world point as placed, do not part along directions of a."""
    return [_equality(name, EqualityKind.ALONG, a, b, point, direction) for direction in directions]


def _about(name: str, a: Frame, b: Frame, point: Array, directions: Iterable[Array]) -> list[Equality]:
    """a and b do not turn about directions of a."""
    return [_equality(name, EqualityKind.ABOUT, a, b, point, direction) for direction in directions]


def _equality(name: str, kind: EqualityKind, a: Frame, b: Frame, point: Array, direction: Array) -> Equality:
    relative = a.rotation.T @ b.rotation
    return Equality(name, kind, a.link, b.link, a.local(point), b.local(point), direction, relative)


def _moves(dim: int) -> Array:
    """The directions that exist to move along."""
    return np.eye(3)[:dim]


def _turns(dim: int) -> Array:
    """The directions that exist to turn about."""
    return np.eye(3)[2:] if dim == 2 else np.eye(3)


def _across(dim: int, axis: Array) -> Array:
    """Unit vectors perpendicular to a unit axis and to each other: one in the plane, two in space."""
    if dim == 2:
        return np.array([[-axis[1], axis[0], 0.0]])
    first = np.cross(axis, np.eye(3)[np.abs(axis).argmin()])
    first /= np.linalg.norm(first)
    return np.array([first, np.cross(axis, first)])
