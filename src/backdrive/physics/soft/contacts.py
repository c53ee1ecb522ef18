"""Contacts within their margins, where MuJoCo has them: found at the current poses, and differentiated.

`find_contacts` asks every pair of geoms for its contacts (`geometry.mujoco`), `contacts_adjoint` goes back from their
cotangents to those of poses and shapes. The first shape of a pair is MuJoCo's second geom, so that normals lead from
the second shape to the first, as everywhere in this engine.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...ir import Index, Mask, Scalar, ScalarArray, any_lane, is_constant, loop, memory, select, vjp, when
from ...schema import layout
from ...schema.layout import GeomKind
from ..constraints.assemble import LinkMotions
from ..constraints.constraints import Constraints
from ..constraints.tables import SortedPairs
from ..geometry.contact_points import ContactPoints
from ..geometry.mujoco import ALL_PAIRS, GEOM_CONTACT, GeomContact, GeomKinds, GeomPair
from ..geometry.mujoco.borrowed import SHAPES
from ..geometry.narrow_phase import hull_of, near_in_groups, place_solid
from ..geometry.solids import ACTIVE, Solid
from ..math.arrays import accumulate, split
from ..math.spatial import Vec
from ..tree.poses import PLACE, Pose, pose_of
from .broad_phase import RoundedBounds
from .constants import SoftConstants
from .impedance import mixed_adhesion
from .settings import SoftSettings

if TYPE_CHECKING:
    from ...model import Model


def geom_pairs(model: Model) -> SortedPairs:
    """The pairs of a model in the order of `ALL_PAIRS`, each with MuJoCo's second geom first: the geom of the greater
    kind, or of two of the same kind, the later one. In MuJoCo, the geoms of the world come before all others."""
    placed = [*(shape for shapes in model.shapes for shape in shapes), *model.statics]
    kinds = [shape.shape.geom for shape in placed]
    order = [(k < len(placed) - len(model.statics), k) for k in range(len(placed))]
    numbers = {entry: k for k, (entry, _) in enumerate(ALL_PAIRS)}
    given = () if model.soft is None else model.soft.explicit
    explicit_of: dict[frozenset[int], list[int]] = {}
    for number, pair in enumerate(given, 1):
        explicit_of.setdefault(frozenset(pair), []).append(number)
    found: list[list[tuple[int, int, int]]] = [[] for _ in ALL_PAIRS]
    for pair in model.pairs.tolist():
        first, second = sorted(pair, key=lambda k: (kinds[k], order[k]))
        for number in explicit_of.get(frozenset(pair), [0]):
            found[numbers[kinds[first], kinds[second]]].append((second, first, number))
    table = np.array([pair for pairs in found for pair in pairs], dtype=np.int64).reshape(-1, 3)
    shapes, explicit = table[:, :2], table[:, 2].tolist()
    counts, slots = [len(pairs) for pairs in found], [pair.slots for _, pair in ALL_PAIRS]
    on_planes = {second for second, first in shapes.tolist() if kinds[first] == GeomKind.PLANE}
    full = {k: tables for k in sorted(on_planes) if (tables := placed[k].shape.full_hull()) is not None}
    return SortedPairs(shapes, counts, slots, explicit, full)


class GeomGroup(NamedTuple):
    """The pairs of a model that are of the same two kinds of geoms, as in `narrow_phase.PairGroup`."""

    number: int
    kinds: GeomKinds
    pair: GeomPair
    first: Index
    end: Index
    slot: Index

    def first_slot(self, p: Index) -> Index:
        """The first slot of pair p."""
        return self.slot + (p - self.first) * self.pair.slots

    def solids(self, records: tuple[Vec, Vec], places: tuple[Vec, Vec]) -> tuple[Solid, Solid]:
        """MuJoCo's first and second geom of a pair in the world, from the SHAPE records of its shapes and the poses of
        their links."""
        second, first = (
            place_solid(SHAPES[kind], record, place)
            for kind, record, place in zip(self.kinds[::-1], records, places, strict=True)
        )
        return first, second


def groups_of(constraints: Constraints) -> Iterator[GeomGroup]:
    """The groups of all kinds of pairs that occur."""
    for number in constraints.kinds:
        yield GeomGroup(number, *ALL_PAIRS[number], *constraints.group(number))


class PlacedGeoms:
    """A pair of shapes a and b in the world: SHAPE records, support, poses of their links, solids and margin (m)."""

    def __init__(
        self, constraints: Constraints, margin: Scalar, group: GeomGroup, p: Index, links: LinkMotions
    ) -> None:
        self.constraints, self.group, self.p = constraints, group, p
        self.a, self.b, self.support = constraints.pair(p)
        self.records = (constraints.shape_record(self.a), constraints.shape_record(self.b))
        poses = [Pose.of(pose_of(links.poses, link, links.width)) for link in (self.support.a, self.support.b)]
        self.places = (poses[0].place, poses[1].place)
        self.solids = group.solids(self.records, self.places)
        self.margin = margin

    def features(self) -> Vec:
        """The features of its contacts; empty if its kinds have none."""
        hulls = None
        if self.group.pair.hull_search is not None:
            full = self.group.kinds[0] == GeomKind.PLANE
            hulls = (hull_of(self.constraints, self.b), hull_of(self.constraints, self.a, full))
        return self.group.pair.features(*self.solids, self.margin, hulls)

    def contacts(self, features: Vec) -> list[GeomContact]:
        return self.group.pair.contacts(*self.solids, self.margin, features)


def pair_reach(constraints: Constraints, settings: SoftSettings, soft: SoftConstants, p: Index) -> Scalar:
    """The distance (m) from which on the contacts of a pair act: their margin, and if they adhere, the gap."""
    a, b = (soft.shape(shape) for shape in constraints.pair_shapes(p))
    reach = shapes_reach(settings, a, b)
    if settings.explicit:
        number = constraints.explicit_pair(p)
        own = soft.pair(number)
        own_reach = own[layout.MARGIN]
        if settings.adheres:
            own_reach = own_reach + select(own[layout.PAIR_ADHESION] > 0.0, own[layout.PAIR_GAP], 0.0)
        reach = select(number > 0, own_reach, reach)
    return reach


def shapes_reach(settings: SoftSettings, a: Vec, b: Vec) -> Scalar:
    """`pair_reach` of a pair that is not explicit, from the SOFT_SHAPE records of its shapes."""
    reach = a[layout.MARGIN] + b[layout.MARGIN]
    if settings.adheres:
        reach = reach + select(mixed_adhesion(a, b) > 0.0, a[layout.GAP] + b[layout.GAP], 0.0)
    return reach


class FramedContacts(ContactPoints):
    """Contact points with their tangents [nslot, 3]."""

    def __init__(self, constraints: Constraints) -> None:
        super().__init__(constraints)
        self.tangents: ScalarArray = memory(constraints.nslot * 3)

    def contact(self, slot: Index) -> tuple[GeomContact, Mask]:
        """The contact in a slot, and where it is active."""
        point, active = self.point(slot)
        return GeomContact(*point, tuple(self.tangents.get(slot, 3))), active

    def put_contacts(self, pair: Index, slot: Index, contacts: list[GeomContact], active: list[Mask]) -> None:
        """Put the contacts of a pair, some of which are active in some lane, into its slots from this one on, and list
        them."""
        for k, contact in enumerate(contacts):
            self.tangents.put(slot + k, contact.tangent)
        self.put_records(slot, [contact.point for contact in contacts], active)
        self.list_points(pair, slot, active)


def find_contacts(
    constraints: Constraints, settings: SoftSettings, soft: SoftConstants, links: LinkMotions
) -> FramedContacts:
    """All contacts whose distance is less than the margin of their pair."""
    contacts = FramedContacts(constraints)
    cheap = all(ALL_PAIRS[number][1].cheap for number in constraints.kinds)
    bounds = None if cheap else RoundedBounds(constraints, *links, 0.0, 0.0, False)
    for group in groups_of(constraints):
        for p in loop(group.end, start=group.first):
            plane, margin = None, pair_reach(constraints, settings, soft, p)
            if bounds is None:
                _add(contacts, PlacedGeoms(constraints, margin, group, p, links), True)
                continue
            if group.kinds[0] == GeomKind.PLANE:
                record = constraints.shape_record(constraints.pair_shapes(p)[1])
                plane = place_solid(SHAPES[GeomKind.PLANE], record, ())
            near = bounds.spheres_near(p, plane, margin)
            for _ in when(any_lane(near)):
                placed = PlacedGeoms(constraints, margin, group, p, links)
                if not group.pair.searches or group.pair.cheap:
                    _add(contacts, placed, near)
                    continue
                first, second = placed.solids
                near = near & bounds.boxes_near(p, second, first, plane is not None, margin)
                for _ in when(any_lane(near)):
                    _add(contacts, placed, near)
    return contacts


def _add(contacts: FramedContacts, placed: PlacedGeoms, near: Mask) -> None:
    """Add the contacts of a pair that are within its margin, in the lanes `near`.

    Only what their distances depend on is computed where they turn out to be farther in all lanes.
    """
    features, p = placed.features(), placed.p
    found = placed.contacts(features)
    active = [near & (contact.dist < placed.margin) for contact in found]
    for _ in when(any_lane(functools.reduce(operator.or_, active))):
        if features:
            contacts.put_features(placed.group.number, p, features)
        contacts.put_contacts(p, placed.group.first_slot(p), found, active)


class PoseCotangents(NamedTuple):
    """Poses over links, of `width` numbers each; their cotangents, and those of the constants."""

    poses: ScalarArray
    width: int
    poses_bar: ScalarArray
    constants_bar: ScalarArray | None

    @property
    def motions(self) -> LinkMotions:
        return LinkMotions(self.poses, self.width)


def contacts_adjoint(
    constraints: Constraints, reach: Callable[[Index], Scalar], contacts: FramedContacts, bars: ScalarArray,
    links: PoseCotangents,
) -> None:  # fmt: skip
    """Add the vector-Jacobian products of the contacts to the cotangents of poses and of the model's constants.

    reach: `pair_reach` of a pair. bars [nslot, GEOM_CONTACT]: cotangents of the numbers of contacts; read for active
    ones only.
    """
    pose_size = sum(PLACE)
    parts = (pose_size, pose_size, layout.SHAPE, layout.SHAPE)
    for group, p in near_in_groups(contacts, groups_of(constraints)):
        placed, slot, seeds = PlacedGeoms(constraints, reach(p), group, p, links.motions), group.first_slot(p), []
        features, margin = contacts.features(group.number, p), placed.margin
        for k in range(group.pair.slots):
            active = contacts.record(slot + k)[ACTIVE] > 0.5
            seeds += [select(active, x, 0.0) for x in bars.get(slot + k, GEOM_CONTACT)]

        def found(
            *x: Scalar, group: GeomGroup = group, margin: Scalar = margin, features: Vec = features
        ) -> list[Scalar]:
            pose_a, pose_b, record_a, record_b = split(x, *parts)
            solids = group.solids((record_a, record_b), (pose_a, pose_b))
            return [y for contact in group.pair.contacts(*solids, margin, features) for y in contact.numbers]

        _, gradient = vjp(found, [x for part in (*placed.places, *placed.records) for x in part], seeds)
        a_bar, b_bar, *record_bars = split(gradient, *parts)
        for link, pose_bar in ((placed.support.a, a_bar), (placed.support.b, b_bar)):
            if not is_constant(link, 0):
                accumulate(links.poses_bar.at(link * links.width), pose_bar)
        if links.constants_bar is not None:
            start = constraints.head("shape_constants")
            for shape, record_bar in zip((placed.a, placed.b), record_bars, strict=True):
                accumulate(links.constants_bar.at(start + shape * layout.SHAPE), record_bar)
