"""The moments of mass that the joints accelerate: constants of a rollout, computed before its first step."""

from __future__ import annotations

from dataclasses import replace

from ...ir import is_constant, when
from ...schema.layout import Kind
from ..math import spatial as sp
from ..math.spatial import BODY
from .joints import FIXED
from .tree import MassMoments, Tree


def with_bodies(tree: Tree) -> Tree:
    """The tree with its moments of mass, `tree.bodies`. Kernels call this once, before they need any dynamics."""
    return replace(tree, mass_moments=body_moments(tree))


def body_moments(tree: Tree) -> MassMoments:
    """The moments of mass of all links; those of fixed links are added to the nearest ancestor that moves."""
    gathered, moved = tree.over_links(BODY), tree.over_links(BODY)
    gathered.put(0, (0.0,) * BODY)
    for i in tree.links():
        link = tree.link(i)
        gathered.put(i + 1, sp.body_moments(link.mass, link.com, link.inertia))
    for i in tree.links(reverse=True):
        moved.put(i + 1, gathered.get(i + 1, BODY))
        for _ in when(tree.kind(i) == Kind.FIXED):
            R, p = FIXED.pose(tree.link(i), ())
            if not is_constant(tree.parent(i), 0):  # the moments of the world are never used
                gathered.accumulate(tree.parent(i), sp.body_to_parent(R, p, gathered.get(i + 1, BODY)))
            moved.put(i + 1, (0.0,) * BODY)
    return MassMoments(gathered, moved)
