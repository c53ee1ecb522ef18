"""The layouts of the records of floats that the stages of a pile pass to each other.

Layouts that depend on a form are its properties (`BodyForm`, `ContactForm`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ..ir import Scalar
from ..physics.math.spatial import Vec


class RecordLayout:
    """Named fields that follow each other in a record of `size` floats.

    ``layout["center"]`` is a slice: of a record, or of the columns of a table of records.
    """

    def __init__(self, **widths: int) -> None:
        ends = itertools.accumulate(widths.values(), initial=0)
        self._fields = {name: slice(a, b) for name, (a, b) in zip(widths, itertools.pairwise(ends), strict=True)}
        self.size = sum(widths.values())

    def __getitem__(self, name: str) -> slice:
        return self._fields[name]

    @property
    def names(self) -> list[str]:
        """The names of the fields, in their order."""
        return list(self._fields)

    def first(self, name: str) -> int:
        """The position of a field's first number."""
        return self._fields[name].start

    def width(self, name: str) -> int:
        """How many numbers a field has."""
        return self._fields[name].stop - self._fields[name].start

    def split(self, record: Sequence[Scalar]) -> list[Vec]:
        """The fields of a record, in their order."""
        return [tuple(record[field]) for field in self._fields.values()]


# The pose of a body: rotation to world axes (3 x 3, row major) and origin (m). Its twists follow (`Pose`).
POSE = RecordLayout(rotation=9, origin=3)

# A shape in the world, as `geometry.solids.Solid`; of a plane, the center is the normal and the first size the offset.
SOLID = RecordLayout(center=3, axes=9, size=3)

# Boxes that contain a shape during a step. center (m); extent (m): half sides of a box along the world axes; half (m):
# half sides of a box along the shape's own axes, to which a shell of thickness `shell` (m) is added on all sides;
# travel (m): how far any point of the shape may move in the step; inside: 1 if the box is in the one that the broad
# phase has searched with.
BOX = RecordLayout(center=3, extent=3, half=3, shell=1, travel=1, inside=1)

# A box along the world axes that the broad phase searches with.
WIDE_BOX = RecordLayout(center=3, extent=3)

# A shape as contacts see it. surface: friction, restitution, softness; size (m): its radius; inverse_mass (1/kg): of
# its body; static: 1 if that is the world.
SHAPE_MATERIAL = RecordLayout(surface=3, size=1, inverse_mass=1, static=1)
