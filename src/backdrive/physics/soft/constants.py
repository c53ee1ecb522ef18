"""The parameters of soft constraints as a kernel reads them: the last part of the model's constants."""

from __future__ import annotations

from ...ir import Index, Scalar, is_constant, select
from ...schema import layout
from ..constraints.constraints import Constraints
from ..math.spatial import Vec


class SoftConstants:
    """Records of `schema.layout`, and where each starts in the constants."""

    def __init__(self, constraints: Constraints, nlink: Index) -> None:
        head = constraints.head
        self._constants = constraints.constants
        self._links = head("equality_constants") + head("nequality") * layout.EQUALITY
        self._shapes = self._links + nlink * layout.SOFT_LINK
        self._limits = self._shapes + constraints.nshape * layout.SOFT_SHAPE
        self._frictions = self._limits + head("nlimit") * layout.SOFT_JOINT
        self._equalities = self._frictions + head("nfriction") * layout.SOFT_JOINT
        self._pairs = self._equalities + head("nequality") * layout.SOFT_EQUALITY

    def weight(self, a: Index, b: Index, which: int = layout.LINEAR_WEIGHT) -> Scalar:
        """The inverse inertia of two links (records in arrays over links), which is zero for the world."""
        total: Scalar = 0.0
        for link in (a, b):
            if not is_constant(link, 0):
                before = self._links - layout.SOFT_LINK + which  # the record of the world would be here
                total = total + select(link > 0, self._constants.at(before + link * layout.SOFT_LINK)[0], 0.0)
        return total

    def shape_place(self, i: Index) -> Index:
        """Where the SOFT_SHAPE record of a shape starts."""
        return self._shapes + i * layout.SOFT_SHAPE

    def limit_place(self, i: Index) -> Index:
        return self._limits + i * layout.SOFT_JOINT

    def friction_place(self, i: Index) -> Index:
        return self._frictions + i * layout.SOFT_JOINT

    def equality_place(self, i: Index) -> Index:
        return self._equalities + i * layout.SOFT_EQUALITY

    def pair_place(self, number: Index) -> Index:
        """Where the SOFT_PAIR record of an explicit pair starts; other numbers of the constants for number 0."""
        return self._pairs - layout.SOFT_PAIR + number * layout.SOFT_PAIR

    def pair(self, number: Index) -> Vec:
        return self._constants.at(self.pair_place(number)).get(0, layout.SOFT_PAIR)

    def shape(self, i: Index) -> Vec:
        return self._constants.at(self.shape_place(i)).get(0, layout.SOFT_SHAPE)

    def limit(self, i: Index) -> Vec:
        return self._constants.at(self.limit_place(i)).get(0, layout.SOFT_JOINT)

    def friction(self, i: Index) -> Vec:
        return self._constants.at(self.friction_place(i)).get(0, layout.SOFT_JOINT)

    def equality(self, i: Index) -> Vec:
        return self._constants.at(self.equality_place(i)).get(0, layout.SOFT_EQUALITY)
