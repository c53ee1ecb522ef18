"""The narrow phase where MuJoCo has its contacts; lanes are pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir import Scalar, select
from ...physics.geometry.mujoco import GEOM_CONTACT, GeomPair
from ...physics.geometry.solids import Hull, Solid
from ...physics.math import spatial as sp
from ...physics.math.arrays import split
from ...physics.math.spatial import Vec
from ...physics.soft.contacts import shapes_reach
from ...physics.soft.settings import SoftSettings
from ...schema import layout
from ...schema.layout import GeomKind
from ..records import SOLID
from ..shapes import to_solid
from .tables import GEOM_PAIR

POINT = GEOM_CONTACT + 1  # numbers of a slot: a contact, and 1 if it is within its margin
RECORD = layout.SHAPE + layout.SOFT_SHAPE  # numbers of a shape


@dataclass(frozen=True)
class GeomForm:
    """Settings on which the equations of a pair of geoms depend; kinds: in MuJoCo's order."""

    kinds: tuple[GeomKind, GeomKind]
    settings: SoftSettings

    @property
    def pair(self) -> GeomPair:
        return GEOM_PAIR[self.kinds]

    def margin(self, record_a: Vec, record_b: Vec) -> Scalar:
        """The distance (m) from which on contacts act; records of `RECORD` numbers."""
        return shapes_reach(self.settings, record_a[layout.SHAPE :], record_b[layout.SHAPE :])

    def feature_count(self, a: Hull, b: Hull) -> int:
        """How many numbers the features of these hulls are, by finding them on floats."""
        if not self.pair.searches:
            return 0
        above, here = (Solid((0.0, 0.0, z), sp.IDENTITY, (1.0, 1.0, 1.0)) for z in (9.0, 1.0))
        return len(self.pair.features(here, above, 0.0, (b, a)))


def geom_contacts(form: GeomForm, margin: Scalar, features: Vec) -> Callable[..., list[Scalar]]:
    """The contacts of all slots, as a function of the two solids; the second one is MuJoCo's first geom."""

    def numbers(*x: Scalar) -> list[Scalar]:
        second, first = (to_solid(part) for part in split(x, SOLID.size, SOLID.size))
        return [y for found in form.pair.contacts(first, second, margin, features) for y in found.numbers]

    return numbers


def soft_narrow_phase(
    form: GeomForm, solids: tuple[Vec, Vec], hulls: tuple[Hull, Hull], margin: Scalar
) -> tuple[list[Scalar], Vec]:
    """The numbers of every slot (`POINT`), and the features."""
    second, first = (to_solid(solid) for solid in solids)
    features = form.pair.features(first, second, margin, (hulls[1], hulls[0]))
    numbers: list[Scalar] = []
    for found in form.pair.contacts(first, second, margin, features):
        numbers += [*found.numbers, select(found.dist < margin, 1.0, 0.0)]
    return numbers, features
