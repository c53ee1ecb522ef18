"""Contact points of a model: found at the current poses, followed to other poses, and differentiated.

`find_contacts` runs the broad phase, and the narrow phase of all pairs that may touch within the step.
`follow_contacts` moves the same features to other poses. `contacts_adjoint` goes back from cotangents of the contact
points to those of poses and shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir import Index, Mask, Scalar, ScalarArray, any_lane, is_constant, loop, maximum, select, vjp, when
from ...model.shapes import SHAPE_KINDS
from ...schema import layout
from ..math.arrays import accumulate, split
from ..math.spatial import Vec
from ..tree.poses import PLACE
from .bounds import Bounds
from .contact_points import ContactPoints
from .narrow_phase import NarrowPhase, PairGroup, near_pairs, place_solid, sorted_pairs
from .reach import in_reach
from .solids import ACTIVE, CONTACT_POINT, FAR

if TYPE_CHECKING:
    from ..constraints.constraints import Constraints

MARGIN = 0.1
"""Contact points are active below this gap, relative to the size of the pair's smaller shape, plus the distance by
which the gap can close in the step."""

SWING = 0.5
"""Rotation (rad) within a step above which velocities at its start do not predict which points come near: then all
points of a pair are active that are within reach."""


def find_contacts(
    constraints: Constraints, poses: ScalarArray, width: int, h: Scalar, changing: bool = False
) -> ContactPoints:
    """The contact points that may become active within the time h (s); poses: over links, `width` numbers each.

    changing: find all points that may touch at any time of a motion whose velocities change from the second twist to
    the first; otherwise, those that motion by the first twist leads to.
    """
    contacts = ContactPoints(constraints)
    search = _ContactSearch(constraints, contacts, h, changing)
    pairs = sorted_pairs(constraints.dim)
    prefilter = any(pairs[number][1].prefilter for number in constraints.kinds)
    bounds = Bounds(constraints, poses, width, h, MARGIN, changing) if prefilter else None
    for number in constraints.kinds:
        group = PairGroup.of(constraints, number)
        for p in loop(group.end, start=group.first):
            slot = group.first_slot(p)
            if bounds is None:
                search.add(NarrowPhase(constraints, group, p, poses, width), slot, FAR, True)
                continue
            half_space = None
            if not SHAPE_KINDS[group.kinds[1]].bounded:
                half_space = place_solid(group.kinds[1], constraints.shape_record(constraints.pair_shapes(p)[1]), ())
            near = bounds.spheres_near(p, half_space)
            for _ in when(any_lane(near)):
                narrow = NarrowPhase(constraints, group, p, poses, width)
                if group.pair.search is None:
                    search.add(narrow, slot, bounds.reach(p), near)
                    continue
                near = near & bounds.boxes_near(p, *narrow.solids, half_space is not None)
                for _ in when(any_lane(near)):
                    search.add(narrow, slot, bounds.reach(p), near)
    return contacts


class _ContactSearch:
    """Adds the contact points of pairs, one pair after the other; see `find_contacts` for h and changing."""

    def __init__(self, constraints: Constraints, contacts: ContactPoints, h: Scalar, changing: bool) -> None:
        self.constraints, self.contacts, self.h, self.changing = constraints, contacts, h, changing

    def add(self, narrow: NarrowPhase, slot: Index, reach: Scalar, near: Mask) -> None:
        """Add the active points of a pair, from its first slot on.

        reach: the largest gap (m) that can close within the step. near: lanes in which the broad phase let the pair
        pass; in other lanes no point becomes active, so that results do not depend on the lanes beside.
        """
        contacts, h, p = self.contacts, self.h, narrow.p
        features = narrow.search()
        if narrow.group.pair.search is not None:
            contacts.put_features(narrow.group.number, p, features)
        points, margin = narrow.points(features), MARGIN * self.constraints.pair_size(p)
        # Points that separate now may approach again if a shape swings around.
        swings = h * h * narrow.greatest_spin2(2 if self.changing else 1) > SWING * SWING
        active: list[Mask] = []
        for point in points:
            if self.changing:
                closing = narrow.greatest_closing_speed(point, h)
            else:
                closing = maximum(narrow.closing_speed(point), 0.0)
            active.append(near & (in_reach(point.gap, margin, closing, h) | (swings & (point.gap < reach))))
        contacts.put_pair(p, slot, points, active)


def follow_contacts(constraints: Constraints, contacts: ContactPoints, poses: ScalarArray, width: int) -> ContactPoints:
    """The contact points of the same features at other poses; slots stay the same, and so do active points, unless
    they do not exist there.

    Continuous features are found anew: the place where a capsule is deepest at one pose is not the deepest at another,
    and its derivative would be that of the other pose.
    """
    followed = contacts.elsewhere(constraints)
    for narrow, slot in near_pairs(constraints, contacts, poses, width):
        features = contacts.features(narrow.group.number, narrow.p)
        if narrow.group.pair.continuous:
            features = narrow.search()
            followed.put_features(narrow.group.number, narrow.p, features)
        for k, point in enumerate(narrow.points(features)):
            # A point that has merged with another is gone: the speed at which its gap (FAR) closes must not count.
            active = select(point.gap < 0.5 * FAR, contacts.record(slot + k)[ACTIVE], 0.0)
            followed.records.put(slot + k, (*point.numbers, active))
    return followed


def contacts_adjoint(
    constraints: Constraints,
    contacts: ContactPoints,
    poses: ScalarArray,
    width: int,
    point_bars: ScalarArray,
    pose_bars: ScalarArray,
    constants_bar: ScalarArray | None,
) -> None:
    """Add the vector-Jacobian products of the contact points to the cotangents of poses and of the model's constants.

    point_bars [nslot, CONTACT_POINT]: cotangents of gaps, positions and normals; read for active points only.
    pose_bars: over links, `width` numbers each. constants_bar: None if it is not wanted.
    """
    pose_size = sum(PLACE)
    parts = (pose_size, pose_size, layout.SHAPE, layout.SHAPE)
    for narrow, slot in near_pairs(constraints, contacts, poses, width):
        features, seeds = contacts.features(narrow.group.number, narrow.p), []
        for k in range(narrow.group.pair.slots):
            active = contacts.record(slot + k)[ACTIVE] > 0.5
            seeds += [select(active, x, 0.0) for x in point_bars.get(slot + k, CONTACT_POINT)]

        def points(*x: Scalar, group: PairGroup = narrow.group, features: Vec = features) -> list[Scalar]:
            pose_a, pose_b, record_a, record_b = split(x, *parts)
            solids = (place_solid(group.kinds[0], record_a, pose_a), place_solid(group.kinds[1], record_b, pose_b))
            return [y for point in group.pair.contacts(*solids, features) for y in point.numbers]

        inputs = [x for part in (*(motion.place for motion in narrow.motions), *narrow.records) for x in part]
        _, gradient = vjp(points, inputs, seeds)
        a_bar, b_bar, *record_bars = split(gradient, *parts)
        accumulate(pose_bars.at(narrow.support.a * width), a_bar)
        if not is_constant(narrow.support.b, 0):
            accumulate(pose_bars.at(narrow.support.b * width), b_bar)
        if constants_bar is not None:
            start = constraints.head("shape_constants")
            for shape, record_bar in zip((narrow.a, narrow.b), record_bars, strict=True):
                accumulate(constants_bar.at(start + shape * layout.SHAPE), record_bar)
