"""The vocabulary of MuJoCo's narrow phase: contacts with their frames, and pairs of geoms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ....ir import Mask, Scalar, absolute, select, sqrt
from ...math.arrays import split
from ...math.spatial import Vec, cross, dot, scale, sub
from ..pairs.common import along, choose
from ..solids import FAR, ContactPoint, Hull, Solid

SMALLEST = 1e-15
"""MuJoCo's smallest length: it takes shorter vectors for zero, and normalises them to X."""

X: Vec = (1.0, 0.0, 0.0)
Y: Vec = (0.0, 1.0, 0.0)
Z: Vec = (0.0, 0.0, 1.0)


# ------------------------------------------------------------------------------------------ vectors


def axis(solid: Solid) -> Vec:
    """The z axis of a geom's frame in the world."""
    return tuple(solid.axes[2::3])


def normalised(a: Vec, otherwise: Vec = X) -> Vec:
    """a / |a|; `otherwise` where |a| is below SMALLEST."""
    return length_and_direction(a, otherwise)[1]


def length_and_direction(a: Vec, otherwise: Vec = X) -> tuple[Scalar, Vec]:
    """|a| and a / |a|. Where |a| is below SMALLEST, the direction is `otherwise`, also in the derivative of |a|."""
    squared = dot(a, a)
    none = squared < SMALLEST * SMALLEST
    length = sqrt(select(none, 1.0, squared))
    return select(none, dot(a, otherwise), length), choose(none, otherwise, scale(1.0 / length, a))


def default_tangent(normal: Vec) -> Vec:
    """The first tangent of a contact without a direction of its own: the y axis of the world, or the z axis where the
    normal is within 60° of the y axis, projected onto the tangent plane and normalised."""
    steep = absolute(normal[1]) >= 0.5
    return projected(choose(steep, Z, Y), normal)


def projected(direction: Vec, normal: Vec) -> Vec:
    """A direction projected onto the plane orthogonal to the unit vector `normal`, and normalised."""
    return normalised(along(direction, normal, -dot(direction, normal)))


# ------------------------------------------------------------------------------------------ contacts


class GeomContact(NamedTuple):
    """A contact of two geoms, as MuJoCo has it.

    dist: signed distance of the surfaces (m), negative in penetration; FAR if there is no contact. position: in the
    world (m), midway between the two surfaces. normal: unit vector from the first geom to the second. tangent: the
    second axis of the contact frame.
    """

    dist: Scalar
    position: Vec
    normal: Vec
    tangent: Vec

    @property
    def bitangent(self) -> Vec:
        """The third axis of the contact frame."""
        return cross(self.normal, self.tangent)

    @property
    def numbers(self) -> tuple[Scalar, ...]:
        return (self.dist, *self.position, *self.normal, *self.tangent)

    @classmethod
    def of(cls, numbers: Vec) -> GeomContact:
        """A view of GEOM_CONTACT numbers."""
        return cls(numbers[0], *split(numbers[1:], 3, 3, 3))

    @property
    def point(self) -> ContactPoint:
        """Without its tangent: that of a pair whose first solid is the second geom."""
        return ContactPoint(self.dist, self.position, self.normal)


GEOM_CONTACT = 10
"""Numbers of a `GeomContact`."""


def contact(dist: Scalar, position: Vec, normal: Vec) -> GeomContact:
    """A contact with the default tangent."""
    return GeomContact(dist, position, normal, default_tangent(normal))


def keep(condition: Mask, given: GeomContact) -> GeomContact:
    """The contact where the condition holds; elsewhere none, without derivatives."""
    return GeomContact(
        select(condition, given.dist, FAR),
        choose(condition, given.position, (0.0, 0.0, 0.0)),
        choose(condition, given.normal, Z),
        choose(condition, given.tangent, Y),
    )


def choose_contact(condition: Mask, a: GeomContact, b: GeomContact) -> GeomContact:
    """Contact a where the condition holds, else b."""
    return GeomContact.of(choose(condition, a.numbers, b.numbers))


def between_balls(a: Vec, radius_a: Scalar, b: Vec, radius_b: Scalar, otherwise: Vec) -> GeomContact:
    """Two balls with centers a and b; otherwise: the normal if they are concentric."""
    distance, normal = length_and_direction(sub(b, a), otherwise)
    dist = distance - radius_a - radius_b
    return contact(dist, along(a, normal, radius_a + 0.5 * dist), normal)


def concentric_normal(a: Solid, b: Solid) -> Vec:
    """The normal of two geoms whose closest points coincide: orthogonal to both z axes."""
    return normalised(cross(axis(a), axis(b)))


# ------------------------------------------------------------------------------------------ pairs


ContactFunction = Callable[[Solid, Solid, Scalar, Vec], list[GeomContact]]
"""(first, second, margin, features) -> `slots` contacts."""

GeomSearch = Callable[[Solid, Solid, Scalar], Vec]
"""(first, second, margin) -> features: always the same number of scalars."""

HullSearch = Callable[[Solid, Solid, Scalar, Hull, Hull], Vec]
"""(first, second, margin, hull of the first, hull of the second) -> features."""


@dataclass(frozen=True)
class GeomPair:
    """The narrow phase of two kinds of geoms, the one with the smaller `GeomKind` first.

    slots: the most contacts that the pair can have. contacts: straight-line code, which is differentiated. search:
    finds what `contacts` takes as constants, its features; None if there are none. continuous: whether features move
    along the geoms, so that they must be found anew at every pose. hull_search: in place of `search`, of a pair that
    needs hulls. cheap: a test of bounding volumes first would not save time.
    """

    slots: int
    contacts: ContactFunction
    search: GeomSearch | None = None
    continuous: bool = False
    hull_search: HullSearch | None = None
    cheap: bool = False

    @property
    def searches(self) -> bool:
        """Whether there are features to find."""
        return self.search is not None or self.hull_search is not None

    def features(self, first: Solid, second: Solid, margin: Scalar, hulls: tuple[Hull, Hull] | None = None) -> Vec:
        """What `contacts` takes as constants at these poses. hulls: of both, empty tables for a geom that has none."""
        if self.hull_search is not None:
            assert hulls is not None
            return tuple(self.hull_search(first, second, margin, *hulls))
        return () if self.search is None else tuple(self.search(first, second, margin))
