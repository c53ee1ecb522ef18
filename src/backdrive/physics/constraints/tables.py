"""The tables that say what constrains a model's motion: pairs of shapes, limits, loops, and the joints on their ways.

A constraint pushes on a link a and with the opposite force on a link b. What moves then are the joints on the ways from
a and b to the roots; from where the ways meet, they are common (`support`). A root that moves freely (a free joint, in
2D a planar one) is loose: seen in its own axes, its coordinates are those of motions themselves, and a way may end with
it. Links are given by their records in arrays over links: 0 is the world.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...model.shapes import BOUND, SHAPE_KINDS
from ...schema import layout
from ...schema.layout import NV, Kind, ShapeKind
from ..geometry.narrow_phase import sorted_pairs

HEAD = (
    "shape", "pair", "limit", "friction", "equality", "path",  # where these tables start
    "shape_constants", "limit_constants", "friction_constants", "equality_constants",  # in the model's constants
    "bound", "contact",  # in the floats
    "nlimit", "nfriction", "nequality",
)  # fmt: skip
GROUP = 3  # of a kind of pairs: first pair, one past the last, first slot
# a: link, root, start of its way, single coordinates of its own on it, first coordinate of a loose root at its end or
# -1; the same of b; single coordinates that are common, and the loose root at the end of these.
SUPPORT = 12
SHAPE = 7  # link; offset and count of vertices, faces, edges
PAIR = 2 + SUPPORT  # shapes a and b
JOINT = 3 + SUPPORT  # link, its coordinate in q, its kind; of limits and joint friction
EQUALITY = 1 + SUPPORT  # kind
LOOSE = {2: Kind.PLANAR, 3: Kind.FREE}  # joints of loose roots
CONTACT = (
    2  # of every pair: the smaller shape's radius (m); which surface the force acts on: 1/2 a's, -1/2 b's, 0 midway
)
INVERSE_MASS = 2  # of every link: 1 / kg, 1 / (kg m²)


class Tables(NamedTuple):
    """ints, floats: tables for the kernel (floats: INVERSE_MASS of every link, BOUND of the shapes, CONTACT of the
    pairs, hulls). nslot: contacts that there can be; pair_of_slot: the pair of each.
    nsingle: other rows that there can be. kinds: the kinds of pairs that occur (their places in `sorted_pairs`).
    grounded: the second shape of every pair belongs to the world.
    """

    ints: np.ndarray
    floats: np.ndarray
    nslot: int
    pair_of_slot: np.ndarray
    nsingle: int
    kinds: tuple[int, ...]
    grounded: bool


def constraint_tables(model: Any) -> Tables | None:
    """The tables of a model; None if nothing constrains its motion."""
    if not (model.npair or model.nlimit or model.nfriction or model.nequality):
        return None
    groups, pair_of_slot, kinds = _groups(model)
    sizes = (model.nlink, model.nq, model.nu)
    counts = (model.nshape, model.nlimit, model.nfriction)
    widths = (SHAPE, PAIR, JOINT, JOINT, EQUALITY)
    lengths = [w * n for w, n in zip(widths, (model.nshape, model.npair, *counts[1:], model.nequality), strict=True)]
    starts = len(HEAD) + len(groups) + np.cumsum([0, *lengths])
    paths = Paths(model, int(starts[-1]))
    links = model.shape_link.tolist()
    masses = _inverse_masses(model).ravel()
    bounds, contacts = _bounds(model), _contacts(model)
    before = len(masses) + len(bounds) + len(contacts)
    hulls = model.shape_hull + before * np.array([1, 0, 1, 0, 1, 0])  # offsets and counts
    shapes = np.column_stack([model.shape_link + 1, hulls])
    pairs = [[a, b, *paths.support(links[a], links[b])] for a, b in model.pairs.tolist()]
    limits, frictions = (
        [[i + 1, model.qadr[i], model.kind[i], *paths.support(i, int(model.parent[i]))] for i in joints.tolist()]
        for joints in (model.limit_link, model.friction_link)
    )
    ends = zip(model.equality_kind.tolist(), model.equality_link.tolist(), strict=True)
    equalities = [[kind, *paths.support(a, b)] for kind, (a, b) in ends]
    head = [
        *starts,
        layout.shape_start(*sizes), layout.limit_start(*sizes, *counts[:1]),
        layout.friction_start(*sizes, *counts[:2]), layout.equality_start(*sizes, *counts),
        len(masses), len(masses) + len(bounds), model.nlimit, model.nfriction, model.nequality,
    ]  # fmt: skip
    parts = [np.array(part, dtype=np.int64).ravel() for part in (shapes, pairs, limits, frictions, equalities)]
    ints = np.concatenate([head, groups, *parts, paths.dofs]).astype(np.int64)
    floats = np.concatenate([masses, bounds, contacts, model.hull_geometry])
    nsingle = model.nlimit + model.nfriction + model.nequality
    grounded = all(links[b] < 0 for _, b in model.pairs.tolist())
    return Tables(ints, floats, len(pair_of_slot), np.array(pair_of_slot, dtype=np.int64), nsingle, kinds, grounded)


def _groups(model: Any) -> tuple[list[int], list[int], tuple[int, ...]]:
    """Where the pairs of every kind stand, the pair of each slot, and the kinds that occur."""
    kinds = [tuple(model.shape_kind[pair]) for pair in model.pairs]
    groups: list[int] = []
    pair_of_slot: list[int] = []
    present, pair = [], 0
    for number, (kind, entry) in enumerate(sorted_pairs(model.dim)):
        count = kinds.count(kind)
        groups += [pair, pair + count, len(pair_of_slot)]
        pair_of_slot += [p for p in range(pair, pair + count) for _ in range(entry.slots)]
        pair += count
        if count:
            present.append(number)
    if pair != len(kinds):
        raise AssertionError("the model has pairs of shapes that collision does not know")
    return groups, pair_of_slot, tuple(present)


class Paths:
    """The ways from links to the roots: the coordinates of v on them, from the link upwards; a table from `start`."""

    def __init__(self, model: Any, start: int) -> None:
        self.table, self.model, self.parent = start, model, model.parent
        self.start: list[int] = []
        self.count: list[int] = []  # coordinates on the way of each link
        self.dofs: list[int] = []
        for i, kind in enumerate(model.kind):
            above = int(model.parent[i])
            own = range(model.vadr[i], model.vadr[i] + NV[kind])
            rest = [] if above < 0 else self.dofs[self.start[above] : self.start[above] + self.count[above]]
            self.start.append(len(self.dofs))
            self.dofs += [*own, *rest]
            self.count.append(len(own) + len(rest))

    def root(self, i: int) -> int:
        while i >= 0 and self.parent[i] >= 0:
            i = int(self.parent[i])
        return i

    def ancestors(self, i: int) -> list[int]:
        chain = []
        while i >= 0:
            chain.append(i)
            i = int(self.parent[i])
        return chain

    def floating(self, i: int) -> int:
        """The first coordinate of the root of link i's tree, if it is loose; else -1."""
        root = self.root(i)
        return int(self.model.vadr[root]) if root >= 0 and self.model.kind[root] == LOOSE[self.model.dim] else -1

    def stretch(self, i: int, count: int, to_root: bool) -> list[int]:
        """Of `count` coordinates of the way from link i, the last possibly those of a loose root: single ones; root."""
        floating = self.floating(i) if to_root else -1
        return [count - NV[LOOSE[self.model.dim]] if floating >= 0 else count, floating]

    def support(self, a: int, b: int) -> list[int]:
        shared = set(self.ancestors(b))
        meeting = next((i for i in self.ancestors(a) if i in shared), -1)
        common = self.count[meeting] if meeting >= 0 else 0
        ends: list[int] = []
        for i in (a, b):
            start, count = (self.start[i], self.count[i]) if i >= 0 else (0, 0)
            ends += [i + 1, self.root(i) + 1, self.table + start, *self.stretch(i, count - common, common == 0)]
        return [*ends, *self.stretch(meeting, common, True)]


def _vertices(model: Any, hull: np.ndarray) -> np.ndarray:
    start, count = hull[:2]
    return model.hull_geometry[start : start + 3 * count].reshape(-1, 3)


def _bounds(model: Any) -> np.ndarray:
    """BOUND numbers of all shapes, flat."""
    shapes = zip(model.shape_kind, model.shape_hull, strict=True)
    rows = [SHAPE_KINDS[ShapeKind(kind)].bound_factors(_vertices(model, hull)) for kind, hull in shapes]
    return np.array(rows, dtype=np.float64).reshape(-1, BOUND).ravel()


def _contacts(model: Any) -> np.ndarray:
    """CONTACT numbers of all pairs, flat.

    Between two bodies a force acts midway between the surfaces: momentum is conserved, also before they touch. What
    the world pushes, it pushes at the surface of the body.
    """
    start = layout.shape_start(model.nlink, model.nq, model.nu)
    records = model.constants[start : start + model.nshape * layout.SHAPE].reshape(-1, layout.SHAPE)
    size = [
        SHAPE_KINDS[ShapeKind(kind)].bounding_radius(record[layout.SIZE : layout.SIZE + 3], _vertices(model, hull))
        for kind, record, hull in zip(model.shape_kind, records, model.shape_hull, strict=True)
    ]
    link = model.shape_link
    rows = [[min(size[a], size[b]), 0.5 * (int(link[b] < 0) - int(link[a] < 0))] for a, b in model.pairs.tolist()]
    return np.array(rows, dtype=np.float64).ravel()


def _inverse_masses(model: Any) -> np.ndarray:
    """1/m and 1/I of every link with what it carries, [nlink + 1, 2]; zero for the world. A scale, no more."""
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
