"""What distinguishes the kinds of joints. Everything after this file treats them alike.

A joint moves its link relative to the parent by the pose (R, p)(q), with the joint velocity (w, u) = S y: the link's
angular velocity and the velocity of its origin relative to the parent, in the link's axes. The columns of S are
constant; y is the generalised velocity v, with its linear part turned into the link's axes for the joints that
translate before they turn (planar, free):

    relative velocity      (w, u) = S y
    its rate               S z + (0, drift),   z = v̇ turned like y

To add a joint: a class here, its code in `model.layout.Kind`, and its name in `JOINTS`.
"""

from __future__ import annotations

from typing import NamedTuple

from ..math import spatial as sp
from ..math.spatial import UNIT, ZERO3, ZERO6, Vec
from .tree import Link


class Motion(NamedTuple):
    """How a joint moves its link: pose, relative velocity and acceleration, and S y of a virtual velocity."""

    R: Vec
    p: Vec
    velocity: Vec
    acceleration: Vec
    virtual: Vec


class Joint:
    """A joint whose y is v itself."""

    nq = 0
    nv = 0

    @classmethod
    def pose(cls, link: Link, q: Vec) -> tuple[Vec, Vec]:
        """(R, p) of the link in its parent."""
        raise NotImplementedError

    @classmethod
    def columns(cls, link: Link) -> tuple[Vec, ...]:
        """The columns of S, one motion per coordinate of v."""
        raise NotImplementedError

    @classmethod
    def turned(cls, link: Link, q: Vec, v: Vec) -> Vec:
        """v in the link's axes: y of a velocity, z of an acceleration; also of a covector (the turn is orthogonal)."""
        return v

    @classmethod
    def unturned(cls, link: Link, q: Vec, y: Vec) -> Vec:
        return y

    @classmethod
    def drift(cls, velocity: Vec) -> Vec:
        """The acceleration of the link's origin relative to the parent when z = 0: it turns with the link, w × u."""
        return sp.cross(velocity[:3], velocity[3:])

    @classmethod
    def integrate(cls, q: Vec, step: Vec) -> Vec:
        """q ⊕ step, for a small displacement h v."""
        return sp.add(q, step)

    @classmethod
    def displacement(cls, q: Vec, rest: Vec) -> Vec:
        """q ⊖ rest, in the coordinates of v: what a spring pulls back."""
        return sp.sub(q, rest)

    @classmethod
    def covector(cls, q: Vec, gradient: Vec) -> Vec:
        """The gradient for displacements of q, of one for q."""
        return gradient

    @classmethod
    def twist(cls, link: Link, y: Vec) -> Vec:
        """S y"""
        total = ZERO6
        for column, x in zip(cls.columns(link), y, strict=True):
            total = tuple(t + x * c for t, c in zip(total, column, strict=True))
        return total

    @classmethod
    def motion(cls, link: Link, q: Vec, v: Vec, acceleration: Vec, virtual: Vec) -> Motion:
        velocity = cls.twist(link, cls.turned(link, q, v))
        rate = cls.twist(link, cls.turned(link, q, acceleration))
        return Motion(
            *cls.pose(link, q),
            velocity,
            (*rate[:3], *sp.add(rate[3:], cls.drift(velocity))),
            cls.twist(link, cls.turned(link, q, virtual)),
        )


class Fixed(Joint):
    @classmethod
    def pose(cls, link: Link, q: Vec) -> tuple[Vec, Vec]:
        return link.rotation, link.offset

    @classmethod
    def columns(cls, link: Link) -> tuple[Vec, ...]:
        return ()


def _about_anchor(link: Link, turn: Vec) -> tuple[Vec, Vec]:
    """Turned about the anchor, which stays where it is."""
    R = sp.matmul(link.rotation, turn)
    shift = sp.sub(sp.rotate(link.rotation, link.anchor), sp.rotate(R, link.anchor))
    return R, sp.add(link.offset, shift)


class Hinge(Joint):
    nq = nv = 1

    @classmethod
    def pose(cls, link: Link, q: Vec) -> tuple[Vec, Vec]:
        return _about_anchor(link, sp.rotation_about(link.axis, q[0]))

    @classmethod
    def columns(cls, link: Link) -> tuple[Vec, ...]:
        return ((*link.axis, *sp.cross(link.anchor, link.axis)),)


class Slider(Joint):
    nq = nv = 1

    @classmethod
    def pose(cls, link: Link, q: Vec) -> tuple[Vec, Vec]:
        return link.rotation, sp.add(link.offset, sp.rotate(link.rotation, sp.scale(q[0], link.axis)))

    @classmethod
    def columns(cls, link: Link) -> tuple[Vec, ...]:
        return ((*ZERO3, *link.axis),)


class Ball(Joint):
    """q is a quaternion, v the angular velocity in the link's frame."""

    nq, nv = 4, 3

    @classmethod
    def pose(cls, link: Link, q: Vec) -> tuple[Vec, Vec]:
        return _about_anchor(link, sp.rotation_of(q))

    @classmethod
    def columns(cls, link: Link) -> tuple[Vec, ...]:
        return tuple((*e, *sp.cross(link.anchor, e)) for e in UNIT)

    @classmethod
    def integrate(cls, q: Vec, step: Vec) -> Vec:
        return sp.quaternion_product(sp.normalised(q), sp.quaternion_exp(step))

    @classmethod
    def displacement(cls, q: Vec, rest: Vec) -> Vec:
        w, x, y, z = sp.normalised(rest)
        return sp.quaternion_log(sp.quaternion_product((w, -x, -y, -z), sp.normalised(q)))

    @classmethod
    def covector(cls, q: Vec, gradient: Vec) -> Vec:
        """q may have any length: it keeps it."""
        w, x, y, z = q
        along = ((-x, w, z, -y), (-y, -z, w, x), (-z, y, -x, w))  # q i, q j, q k
        return tuple(0.5 * sum(a * b for a, b in zip(direction, gradient, strict=True)) for direction in along)


class Planar(Joint):
    """q = (x, y, angle) in the parent's plane z = 0, v its rate."""

    nq = nv = 3

    @classmethod
    def pose(cls, link: Link, q: Vec) -> tuple[Vec, Vec]:
        shift = sp.rotate(link.rotation, (q[0], q[1], 0.0))
        return sp.matmul(link.rotation, cls._turn(q)), sp.add(link.offset, shift)

    @classmethod
    def _turn(cls, q: Vec) -> Vec:
        return sp.rotation_about(UNIT[2], q[2])

    @classmethod
    def columns(cls, link: Link) -> tuple[Vec, ...]:
        return ((*ZERO3, *UNIT[0]), (*ZERO3, *UNIT[1]), (*UNIT[2], *ZERO3))

    @classmethod
    def turned(cls, link: Link, q: Vec, v: Vec) -> Vec:
        return (*sp.unrotate(cls._turn(q), (v[0], v[1], 0.0))[:2], v[2])

    @classmethod
    def unturned(cls, link: Link, q: Vec, y: Vec) -> Vec:
        return (*sp.rotate(cls._turn(q), (y[0], y[1], 0.0))[:2], y[2])

    @classmethod
    def drift(cls, velocity: Vec) -> Vec:
        return ZERO3  # it translates along the parent's axes


class Free(Joint):
    """q = (position, quaternion) in the world, v = (linear velocity in the world, angular velocity in the link's
    frame)."""

    nq, nv = 7, 6

    @classmethod
    def pose(cls, link: Link, q: Vec) -> tuple[Vec, Vec]:
        return sp.rotation_of(q[3:]), q[:3]

    @classmethod
    def columns(cls, link: Link) -> tuple[Vec, ...]:
        return (*((*ZERO3, *e) for e in UNIT), *((*e, *ZERO3) for e in UNIT))

    @classmethod
    def turned(cls, link: Link, q: Vec, v: Vec) -> Vec:
        return (*sp.unrotate(sp.rotation_of(q[3:]), v[:3]), *v[3:])

    @classmethod
    def unturned(cls, link: Link, q: Vec, y: Vec) -> Vec:
        return (*sp.rotate(sp.rotation_of(q[3:]), y[:3]), *y[3:])

    @classmethod
    def drift(cls, velocity: Vec) -> Vec:
        return ZERO3  # it translates along the parent's axes

    @classmethod
    def integrate(cls, q: Vec, step: Vec) -> Vec:
        return (*sp.add(q[:3], step[:3]), *Ball.integrate(q[3:], step[3:]))

    @classmethod
    def displacement(cls, q: Vec, rest: Vec) -> Vec:
        return (*sp.sub(q[:3], rest[:3]), *Ball.displacement(q[3:], rest[3:]))

    @classmethod
    def covector(cls, q: Vec, gradient: Vec) -> Vec:
        return (*gradient[:3], *Ball.covector(q[3:], gradient[3:]))


JOINTS: tuple[type[Joint], ...] = (Fixed, Hinge, Slider, Ball, Planar, Free)  # in the order of model.layout.Kind
