"""The tables that tell a kernel what constrains a model's motion: pairs of shapes, limits, friction, equations.

A constraint acts on a link a, and with the opposite wrench on a link b. The joints that move are those on the chains
from a and b to the roots of their trees; from the first common ancestor on, the chains are the same. All that is the
constraint's `support`. A root that moves freely (by a free joint, in 2D a planar one) is floating: in its own axes its
coordinates are the components of a twist, so it is not listed joint by joint, unless they are eliminated in other axes
(`turned_links`). Links are given by their records in arrays over links: 0 is the world.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...model.hull import HullTables
from ...model.shapes import BOUND, SHAPE_KINDS
from ...schema import layout
from ...schema.layout import FLOATING, NV, Kind, ShapeKind
from ..geometry.narrow_phase import sorted_pairs
from ..tree.tree import turned_links

if TYPE_CHECKING:
    from ...model import Model

# The first integers of the table, by name.
HEAD = (
    "shape", "pair", "limit", "friction", "equality", "path",  # where the records of each start, in the integers
    "shape_constants", "limit_constants", "friction_constants", "equality_constants",  # in the model's constants
    "bound", "contact",  # in the floats
    "nlimit", "nfriction", "nequality",  # how many there are
)  # fmt: skip

# Integers of a kind of pairs: its first pair, one past its last, its first slot.
GROUP = 3

# Integers of a support, the fields of `rows.Support`. For each of a and b: the link, its root, where the coordinates of
# its chain are listed, how many single coordinates only its chain has, and the first coordinate of a floating root at
# the end of these (-1: none). Then: how many single coordinates both chains have, and the floating root at their end.
SUPPORT = 12

# Integers of a shape: its link; offset and count of the vertices, faces and edges of its hull, and the same of the hull
# with all its vertices, if there is another.
SHAPE = 13

# Integers of a pair: its shapes a and b, the support, and of an explicit pair its number, from 1 on (0: it is not one).
PAIR = 2 + SUPPORT + 1

# Integers of a joint with a limit or with friction: its link, its coordinate in q, its kind, and the support.
JOINT = 3 + SUPPORT

# Integers of an equation: its kind, and the support.
EQUALITY = 1 + SUPPORT

# Floats of a pair: the radius of the smaller shape (m); the surface on which forces act: 1/2 a's, -1/2 b's, 0 midway.
CONTACT = 2

# Floats of a link: 1/mass (1/kg) and 1/inertia (1/(kg m²)).
INVERSE_MASS = 2


class ConstraintTables(NamedTuple):
    """The tables of a model's constraints.

    ints: HEAD; GROUP of every kind of pairs; the records of shapes, pairs, limits, frictions and equations; the
    coordinates of v on the chains. floats: INVERSE_MASS of every link, BOUND of every shape, CONTACT of every pair, the
    hulls. nslot: how many contact points there can be; pair_of_slot [nslot]. nsingle: how many other rows there can be.
    kinds: the kinds of pairs that occur, as positions in the registry. grounded: the second shape of every pair belongs
    to the world. pairs [npair, 2]: their shapes, in the order of the table.
    """

    ints: np.ndarray
    floats: np.ndarray
    nslot: int
    pair_of_slot: np.ndarray
    nsingle: int
    kinds: tuple[int, ...]
    grounded: bool
    pairs: np.ndarray

    @property
    def npair(self) -> int:
        """How many pairs may touch: more than the model has, if two shapes have several explicit pairs."""
        return len(self.pairs)


class SortedPairs(NamedTuple):
    """The pairs of a model in the order of a registry of kinds of pairs. shapes [npair, 2]; counts, slots: of every
    kind in the registry, how many pairs there are, and the slots of each. explicit: the numbers of explicit pairs.
    full_hulls: of shapes that planes touch, the tables of the hulls with all their vertices, by shape."""

    shapes: np.ndarray
    counts: Sequence[int]
    slots: Sequence[int]
    explicit: Sequence[int]
    full_hulls: Mapping[int, HullTables]

    @classmethod
    def of(cls, model: Model) -> SortedPairs:
        """In the order of the rigid engine."""
        kinds = Counter((a, b) for a, b in model.shape_kind[model.pairs].tolist())
        registry = sorted_pairs(model.dim)
        counts, slots = [kinds[entry] for entry, _ in registry], [pair.slots for _, pair in registry]
        return cls(model.pairs, counts, slots, [0] * model.npair, {})


def constraint_tables(model: Model, given: SortedPairs | None = None) -> ConstraintTables | None:
    """The tables of a model; None if nothing constrains its motion. given: its pairs, if not as in the rigid engine."""
    combined = model.soft is not None and model.soft.more_size > 0
    if not (model.npair or model.nlimit or model.nfriction or model.nequality or combined):
        return None
    sorted_ = SortedPairs.of(model) if given is None else given
    groups, pair_of_slot, kinds = _groups(sorted_)
    shape_pairs = sorted_.shapes.tolist()
    sizes = (model.nlink, model.nq, model.nu)
    counts = (model.nshape, model.nlimit, model.nfriction)
    widths = (SHAPE, PAIR, JOINT, JOINT, EQUALITY)
    records = (model.nshape, len(shape_pairs), *counts[1:], model.nequality)
    lengths = [w * n for w, n in zip(widths, records, strict=True)]
    starts = len(HEAD) + len(groups) + np.cumsum([0, *lengths])
    chains = Chains(model, int(starts[-1]))
    links = model.shape_link.tolist()
    masses = _inverse_masses(model).ravel()
    bounds, contacts = _bounds(model), _contacts(model, shape_pairs)
    before = len(masses) + len(bounds) + len(contacts)
    hulls = model.shape_hull + before * np.array([1, 0, 1, 0, 1, 0])  # offsets and counts
    geometry, full = _with_full_hulls(model, sorted_.full_hulls)
    shapes = np.column_stack([model.shape_link + 1, hulls, full + before * np.array([1, 0, 1, 0, 1, 0])])
    pairs = [
        [a, b, *chains.support(links[a], links[b]), number]
        for (a, b), number in zip(shape_pairs, sorted_.explicit, strict=True)
    ]
    limits, frictions = (
        [[i + 1, model.qadr[i], model.kind[i], *chains.support(i, int(model.parent[i]))] for i in joints.tolist()]
        for joints in (model.limit_link, model.friction_link)
    )
    ends = zip(model.equality_kind.tolist(), model.equality_link.tolist(), strict=True)
    equalities = [[kind, *chains.support(a, b)] for kind, (a, b) in ends]
    head = [
        *starts,
        layout.shape_start(*sizes), layout.limit_start(*sizes, *counts[:1]),
        layout.friction_start(*sizes, *counts[:2]), layout.equality_start(*sizes, *counts),
        len(masses), len(masses) + len(bounds), model.nlimit, model.nfriction, model.nequality,
    ]  # fmt: skip
    parts = [np.array(part, dtype=np.int64).ravel() for part in (shapes, pairs, limits, frictions, equalities)]
    ints = np.concatenate([head, groups, *parts, chains.dofs]).astype(np.int64)
    floats = np.concatenate([masses, bounds, contacts, geometry])
    nsingle = model.nlimit + model.nfriction + model.nequality
    grounded = all(links[b] < 0 for _, b in shape_pairs)
    slots = np.array(pair_of_slot, dtype=np.int64)
    return ConstraintTables(ints, floats, len(slots), slots, nsingle, kinds, grounded, sorted_.shapes)


def _groups(pairs: SortedPairs) -> tuple[list[int], list[int], tuple[int, ...]]:
    """GROUP of every kind of pairs, flat; the pair of every slot; and the kinds that occur."""
    groups: list[int] = []
    pair_of_slot: list[int] = []
    present, pair = [], 0
    for number, (count, slots) in enumerate(zip(pairs.counts, pairs.slots, strict=True)):
        groups += [pair, pair + count, len(pair_of_slot)]
        pair_of_slot += [p for p in range(pair, pair + count) for _ in range(slots)]
        pair += count
        if count:
            present.append(number)
    if pair != len(pairs.shapes):
        raise AssertionError("the model has a pair of shapes of kinds that collision has no functions for")
    return groups, pair_of_slot, tuple(present)


def _with_full_hulls(model: Model, full_hulls: Mapping[int, HullTables]) -> tuple[np.ndarray, np.ndarray]:
    """The tables of all hulls, flat; and where those of the full hulls are, as in `Model.shape_hull`."""
    parts, places, stored = [model.hull_geometry], model.shape_hull.copy(), len(model.hull_geometry)
    for shape, tables in full_hulls.items():
        for k, table in enumerate(tables):
            places[shape, 2 * k : 2 * k + 2] = stored, len(table)
            parts.append(table.ravel())
            stored += table.size
    return np.concatenate(parts), places


class Chains:
    """The chains of joints from links to their roots, as lists of coordinates of v, from the link inward.

    dofs: all lists, one after the other; in the table of integers they start at `table`. start, count: where the list
    of every link starts in `dofs`, and how long it is.
    """

    def __init__(self, model: Model, table: int) -> None:
        self.table, self.model, self.parent, self.turned = table, model, model.parent, turned_links(model)
        self.start: list[int] = []
        self.count: list[int] = []
        self.dofs: list[int] = []
        for i, kind in enumerate(model.kind):
            above = int(model.parent[i])
            own = range(model.vadr[i], model.vadr[i] + NV[kind])
            rest = [] if above < 0 else self.dofs[self.start[above] : self.start[above] + self.count[above]]
            self.start.append(len(self.dofs))
            self.dofs += [*own, *rest]
            self.count.append(len(own) + len(rest))

    def root(self, i: int) -> int:
        """The root of link i's tree; -1 for the world."""
        while i >= 0 and self.parent[i] >= 0:
            i = int(self.parent[i])
        return i

    def ancestors(self, i: int) -> list[int]:
        """Link i and its ancestors, from the link inward."""
        chain = []
        while i >= 0:
            chain.append(i)
            i = int(self.parent[i])
        return chain

    def floating(self, i: int) -> int:
        """The first coordinate of the root of link i's tree, if it is floating; else -1."""
        root = self.root(i)
        floats = root >= 0 and self.model.kind[root] == FLOATING[self.model.dim] and self.turned[root]
        return int(self.model.vadr[root]) if floats else -1

    def segment(self, i: int, count: int, to_root: bool) -> list[int]:
        """Of `count` coordinates of link i's chain: how many are single ones, and the floating root at their end or -1.

        to_root: the coordinates end at the root.
        """
        floating = self.floating(i) if to_root else -1
        return [count - NV[FLOATING[self.model.dim]] if floating >= 0 else count, floating]

    def support(self, a: int, b: int) -> list[int]:
        """The SUPPORT integers of a constraint between links a and b (-1: the world)."""
        shared = set(self.ancestors(b))
        ancestor = next((i for i in self.ancestors(a) if i in shared), -1)
        common = self.count[ancestor] if ancestor >= 0 else 0
        ends: list[int] = []
        for i in (a, b):
            start, count = (self.start[i], self.count[i]) if i >= 0 else (0, 0)
            ends += [i + 1, self.root(i) + 1, self.table + start, *self.segment(i, count - common, common == 0)]
        return [*ends, *self.segment(ancestor, common, True)]


def _vertices(model: Model, hull: np.ndarray) -> np.ndarray:
    """The vertices of a hull, [n, 3]."""
    start, count = hull[:2]
    return model.hull_geometry[start : start + 3 * count].reshape(-1, 3)


def _bounds(model: Model) -> np.ndarray:
    """BOUND numbers of all shapes, flat."""
    shapes = zip(model.shape_kind, model.shape_hull, strict=True)
    rows = [SHAPE_KINDS[ShapeKind(kind)].bound_factors(_vertices(model, hull)) for kind, hull in shapes]
    return np.array(rows, dtype=np.float64).reshape(-1, BOUND).ravel()


def _contacts(model: Model, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """CONTACT numbers of all pairs, flat.

    A force between two bodies acts midway between their surfaces: angular momentum is conserved, also at a gap. A force
    between a body and the world acts on the surface of the body.
    """
    start = layout.shape_start(model.nlink, model.nq, model.nu)
    records = model.constants[start : start + model.nshape * layout.SHAPE].reshape(-1, layout.SHAPE)
    size = [
        SHAPE_KINDS[ShapeKind(kind)].bounding_radius(record[layout.SIZE : layout.SIZE + 3], _vertices(model, hull))
        for kind, record, hull in zip(model.shape_kind, records, model.shape_hull, strict=True)
    ]
    link = model.shape_link
    rows = [[min(size[a], size[b]), 0.5 * (int(link[b] < 0) - int(link[a] < 0))] for a, b in pairs]
    return np.array(rows, dtype=np.float64).ravel()


def _inverse_masses(model: Model) -> np.ndarray:
    """INVERSE_MASS of every link, [nlink + 1, 2]; zero for the world. They only set scales.

    Links without mass, and links with others fixed to them, count with the mass of their children.
    """
    records = model.constants[: model.nlink * layout.LINK].reshape(model.nlink, layout.LINK)
    mass = records[:, layout.MASS].copy()
    inertia = records[:, layout.INERTIA : layout.INERTIA + 3].sum(1) / 2.0 + records[:, layout.ARMATURE]
    for i in range(model.nlink - 1, -1, -1):
        above = int(model.parent[i])
        if above >= 0 and (mass[above] <= 0.0 or model.kind[i] == Kind.FIXED):
            mass[above] += mass[i]
            inertia[above] += inertia[i]
    result = np.zeros((model.nlink + 1, INVERSE_MASS))
    with np.errstate(divide="ignore"):
        result[1:, 0] = np.where(mass > 0.0, 1.0 / mass, 0.0)
        result[1:, 1] = np.where(inertia > 0.0, 1.0 / inertia, 0.0)
    return result
