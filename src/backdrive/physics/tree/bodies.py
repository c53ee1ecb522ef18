"""The moments of mass that the joints move: constants of a rollout, computed before its first step."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...ir import is_constant, when
from ...schema.layout import Kind
from ..math import spatial as sp
from ..math.spatial import BODY
from .joints import Fixed
from .tree import Tree


class Bodies(NamedTuple):
    """Moments (m, h, Σ) of every link about its origin: arrays over links.

    What is fixed to a parent is one body with it: `gathered` includes what is fixed to a link; in `moments`, that a
    link's joint moves, a link that is fixed itself has none left.
    """

    gathered: Any
    moments: Any


def body_moments(tree: Tree) -> Bodies:
    gathered, moments = tree.over_links(BODY), tree.over_links(BODY)
    gathered.put(0, (0.0,) * BODY)
    for i in tree.links():
        link = tree.link(i)
        gathered.put(i + 1, sp.body_moments(link.mass, link.com, link.inertia))
    for i in tree.links(reverse=True):
        moments.put(i + 1, gathered.get(i + 1, BODY))
        for _ in when(tree.kind(i) == Kind.FIXED):
            R, p = Fixed.pose(tree.link(i), ())
            if not is_constant(tree.parent(i), 0):  # the world takes up anything
                gathered.accumulate(tree.parent(i), sp.body_to_parent(R, p, gathered.get(i + 1, BODY)))
            moments.put(i + 1, (0.0,) * BODY)
    return Bodies(gathered, moments)
