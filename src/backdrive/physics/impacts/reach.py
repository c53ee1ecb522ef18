"""How far an impact reaches: over the trees of the contact that hits, and all that constraints connect with them.

What rests elsewhere takes no part in the impact. Its contacts are still closing a rest of their gap, or leaving a
slight penetration: an impact that stopped them would change motions that it has nothing to do with.
"""

from __future__ import annotations

from ...ir import Index, Mask, ScalarArray, loop, memory, select, to_float, while_any
from ..constraints.constraints import Constraints
from ..geometry.contact_points import ContactPoints


class Reach:
    """The trees that an impact reaches, in every lane; roots [2]: those of the contact that hits, 0 for the world."""

    def __init__(self, nlink: Index, roots: ScalarArray) -> None:
        self._size, self._reached, self._grows = nlink + 1, memory(nlink + 1), memory(1)
        for i in loop(self._size):
            hit = (to_float(i) == roots[0]) | (to_float(i) == roots[1])
            self._reached[i] = select(hit, 1.0, 0.0)
        self._reached[0] = 0.0

    def has(self, a: Index, b: Index) -> Mask:
        """Whether one of two trees is reached; the world (0) never is."""
        return (self._reached[a] > 0.5) | (self._reached[b] > 0.5)

    def spread(self, constraints: Constraints, contacts: ContactPoints, role: ScalarArray) -> None:
        """Reach what equalities connect, and contacts that take part (role [nslot] above 1/2), until nothing is new."""
        self._grows[0] = 1.0
        for _ in while_any(lambda: self._grows[0] > 0.5, self._size):
            self._grows[0] = 0.0
            for c in loop(contacts.count[0]):
                _, _, support = constraints.pair(contacts.pairs[c])
                self._connect(support.root_a, support.root_b, role[contacts.slots[c]] > 0.5)
            for i in loop(constraints.head("nequality")):
                _, support = constraints.equality(i)
                self._connect(support.root_a, support.root_b, True)

    def _connect(self, a: Index, b: Index, where: Mask) -> None:
        reaches = where & self.has(a, b)
        for root in (a, b):
            new = reaches & (to_float(root) > 0.0) & (self._reached[root] < 0.5)
            self._reached[root] = select(new, 1.0, self._reached[root])
            self._grows[0] = select(new, 1.0, self._grows[0])
