"""The interface of a joint, with the defaults of the joints whose q is a vector and whose y is v itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from ....schema.layout import Kind
from ...math import spatial as sp
from ...math.spatial import ZERO6, Vec
from ..tree import LinkConstants


class JointMotion(NamedTuple):
    """How a joint moves its link relative to the parent, as spatial vectors in the link's axes.

    R (9), p (3): the pose. velocity (6): S y. acceleration (6): S z + (0, drift). virtual (6): S λ, for a virtual
    velocity λ in the link's axes.
    """

    R: Vec
    p: Vec
    velocity: Vec
    acceleration: Vec
    virtual: Vec


class JointModel(ABC):
    """A joint in the dynamics. All methods are pure functions of scalars, which are traced or run on floats."""

    kind: ClassVar[Kind]
    in_parent_axes: ClassVar[bool] = False  # whether v has a linear part in the parent's axes
    spins: ClassVar[bool] = False  # whether the link can rotate about every axis (see `spin`)

    @property
    def nq(self) -> int:
        """Number of position coordinates."""
        return self.kind.nq

    @property
    def nv(self) -> int:
        """Number of velocity coordinates."""
        return self.kind.nv

    @abstractmethod
    def pose(self, link: LinkConstants, q: Vec) -> tuple[Vec, Vec]:
        """(R, p) of the link in its parent."""

    @abstractmethod
    def columns(self, link: LinkConstants) -> tuple[Vec, ...]:
        """The columns of the motion subspace S, one spatial motion for every coordinate of v."""

    def to_link_axes(self, link: LinkConstants, q: Vec, v: Vec) -> Vec:
        """v (or v̇, or a generalised force: the rotation is orthogonal) with its linear part in the link's axes."""
        return v

    def from_link_axes(self, link: LinkConstants, q: Vec, y: Vec) -> Vec:
        """The inverse of `to_link_axes`."""
        return y

    def columns_of_v(self, link: LinkConstants, q: Vec) -> tuple[Vec, ...]:
        """The spatial motions of the coordinates of v: `columns`, where y is v."""
        units = (tuple(float(j == k) for j in range(self.nv)) for k in range(self.nv))
        return tuple(self.twist(link, self.to_link_axes(link, q, unit)) for unit in units)

    def drift(self, velocity: Vec) -> Vec:
        """The acceleration of the link's origin relative to the parent when z = 0.

        By default w × u: the direction of S rotates with the link. `velocity`: (w, u).
        """
        return sp.cross(velocity[:3], velocity[3:])

    def center(self, link: LinkConstants, body: Vec) -> Vec:
        """The point about which a link with the moments `body` rotates, if the joint `spins`."""
        raise NotImplementedError(f"{type(self).__name__} does not let its link rotate about every axis")

    def integrate(self, q: Vec, step: Vec) -> Vec:
        """q ⊕ step, for a displacement h v in the coordinates of v."""
        return sp.add(q, step)

    def displacement(self, q: Vec, rest: Vec) -> Vec:
        """q ⊖ rest, in the coordinates of v: the elongation of a spring."""
        return sp.sub(q, rest)

    def covector(self, q: Vec, gradient: Vec) -> Vec:
        """The gradient with respect to displacements of q, from a gradient with respect to q."""
        return gradient

    def passive_force(self, link: LinkConstants, q: Vec, rest: Vec, v: Vec) -> Vec:
        """The generalised force of spring and damper: -k (q ⊖ rest) - d v."""
        elongation = self.displacement(q, rest)
        return tuple(-(link.stiffness * x) - link.damping * y for x, y in zip(elongation, v, strict=True))

    def twist(self, link: LinkConstants, y: Vec) -> Vec:
        """S y"""
        total = ZERO6
        for column, x in zip(self.columns(link), y, strict=True):
            total = tuple(t + x * c for t, c in zip(total, column, strict=True))
        return total

    def motion(self, link: LinkConstants, q: Vec, v: Vec, vdot: Vec, virtual: Vec) -> JointMotion:
        """The motion of the link relative to its parent, for v, v̇ and a virtual velocity."""
        velocity = self.twist(link, self.to_link_axes(link, q, v))
        rate = self.twist(link, self.to_link_axes(link, q, vdot))
        return JointMotion(
            *self.pose(link, q),
            velocity,
            (*rate[:3], *sp.add(rate[3:], self.drift(velocity))),
            self.twist(link, self.to_link_axes(link, q, virtual)),
        )


def rotated_about_anchor(link: LinkConstants, rotation: Vec) -> tuple[Vec, Vec]:
    """(R, p) of a link that is rotated about its anchor, which keeps its position in the parent."""
    R = sp.matmul(link.rotation, rotation)
    shift = sp.sub(sp.rotate(link.rotation, link.anchor), sp.rotate(R, link.anchor))
    return R, sp.add(link.offset, shift)
