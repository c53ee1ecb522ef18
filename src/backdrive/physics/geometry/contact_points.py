"""The contact points of a model: their records over all slots, and lists of the pairs and slots in use."""

from __future__ import annotations

import functools
import operator
from copy import copy
from typing import TYPE_CHECKING

from ...ir import Index, Mask, Scalar, ScalarArray, any_lane, carry, counters, loop, maximum, memory, select, when
from ..math.spatial import Vec
from .solids import ACTIVE, CONTACT_RECORD, GAP, ContactPoint

if TYPE_CHECKING:
    from ..constraints.constraints import Constraints


class ContactPoints:
    """The contact points of all pairs that are near each other in at least one lane.

    Every pair of shapes has a fixed range of slots (`ShapePair.slots` each), so that a contact point keeps its slot
    from step to step.

    records [nslot, CONTACT_RECORD]: contact points, and where they are active. Only slots of near pairs are written.
    count, slots, pairs: the points that are active in at least one lane; slot and pair of each.
    near_count, near_pairs, first_slots: the pairs that have such a point, sorted by kinds; first slot of each.
    near_slot_count, near_slots: all slots of these pairs.
    pair_active [nslot]: at the first slot of a pair, 1 in the lanes in which one of its points is active.
    """

    def __init__(self, constraints: Constraints) -> None:
        self.records: ScalarArray = memory(constraints.nslot * CONTACT_RECORD)
        self.dim = constraints.dim
        self.pair_active = memory(constraints.nslot)
        self.count, self.slots, self.pairs = counters(1), counters(constraints.nslot), counters(constraints.nslot)
        self.near_count = counters(1)
        self.near_pairs, self.first_slots = counters(constraints.npair), counters(constraints.npair)
        self.near_slot_count, self.near_slots = counters(1), counters(constraints.nslot)
        self.count[0], self.near_count[0], self.near_slot_count[0] = 0, 0, 0
        self._features: dict[int, tuple[ScalarArray, int]] = {}  # by number of the kinds: array over pairs, its width
        self._own: set[int] = set()  # the numbers whose array is not that of other points
        self._npair, self._nslot = constraints.npair, constraints.nslot

    def point(self, slot: Index) -> tuple[ContactPoint, Mask]:
        """The contact point in a slot, and where it is active."""
        record = self.records.get(slot, CONTACT_RECORD)
        point, active = ContactPoint.of(record), record[ACTIVE] > 0.5
        if self.dim == 2:  # the z components are known to be zero
            point = ContactPoint(point.gap, (*point.position[:2], 0.0), (*point.normal[:2], 0.0))
        return point, active

    def gap(self, slot: Index) -> Scalar:
        """The gap in a slot (m)."""
        return self.records.get(slot, CONTACT_RECORD)[GAP]

    def depth(self) -> Scalar:
        """The deepest penetration (m)."""
        deepest = carry(1)
        deepest[0] = 0.0
        for c in loop(self.count[0]):
            deepest[0] = maximum(deepest[0], -self.gap(self.slots[c]))
        return deepest[0]

    def active(self, slot: Index) -> Mask:
        """Where the contact point in a slot is active."""
        return self.records.get(slot, CONTACT_RECORD)[ACTIVE] > 0.5

    def record(self, slot: Index) -> ScalarArray:
        """The CONTACT_RECORD numbers of a slot, to be read one by one or changed."""
        return self.records.at(slot * CONTACT_RECORD)

    def put_features(self, number: int, p: Index, features: Vec) -> None:
        """Store the closest features of pair p; number: of its kinds."""
        if number not in self._own:
            self._own.add(number)
            self._features[number] = (memory(self._npair * len(features)), len(features))
        self._features[number][0].put(p, features)

    def features(self, number: int, p: Index) -> Vec:
        """The closest features of pair p; empty if its kinds have no search."""
        if number not in self._features:
            return ()
        array, width = self._features[number]
        return tuple(array.get(p, width))

    def elsewhere(self, constraints: Constraints) -> ContactPoints:
        """The same points at other poses: with records of their own, and with the same features until others are
        put."""
        result = copy(self)
        result.records, result._features = memory(constraints.nslot * CONTACT_RECORD), dict(self._features)
        result._own = set()
        return result

    def put_pair(self, pair: Index, slot: Index, points: list[ContactPoint], active: list[Mask]) -> None:
        """Put the points of a pair into its slots, from this one on, and list those that are active in some lane."""
        self.put_records(slot, points, active)
        any_active = functools.reduce(operator.or_, active)
        self.pair_active[slot] = select(any_active, 1.0, 0.0)
        for _ in when(any_lane(any_active)):
            self.list_points(pair, slot, active)

    def put_records(self, slot: Index, points: list[ContactPoint], active: list[Mask]) -> None:
        """Put the points of a pair into its slots, from this one on."""
        for k, (point, on) in enumerate(zip(points, active, strict=True)):
            self.records.put(slot + k, (*point.numbers, select(on, 1.0, 0.0)))

    def list_points(self, pair: Index, slot: Index, active: list[Mask]) -> None:
        """List a near pair, whose slots start at this one, and those of its points that are active in some lane."""
        self.add_pair(pair, slot, len(active))
        for k, on in enumerate(active):
            for _ in when(len(active) == 1 or any_lane(on)):
                self.add_point(slot + k, pair)

    def add_pair(self, pair: Index, first_slot: Index, slots: int) -> None:
        """List a near pair, and its slots."""
        k, first = self.near_count[0], self.near_slot_count[0]
        self.near_pairs[k], self.first_slots[k] = pair, first_slot
        for j in range(slots):
            self.near_slots[first + j] = first_slot + j
        self.near_count[0], self.near_slot_count[0] = k + 1, first + slots

    def of_those_that_act(self) -> ContactPoints:
        """The same, but `count`, `slots` and `pairs` list only points that are active now, after some ceased to be."""
        acting, nslot = copy(self), self._nslot
        acting.count, acting.slots, acting.pairs = counters(1), counters(nslot), counters(nslot)
        acting.count[0] = 0
        for c in loop(self.count[0]):
            for _ in when(any_lane(self.active(self.slots[c]))):
                acting.add_point(self.slots[c], self.pairs[c])
        return acting

    def add_point(self, slot: Index, pair: Index) -> None:
        """List a point that is active in at least one lane."""
        k = self.count[0]
        self.slots[k] = slot
        self.pairs[k] = pair
        self.count[0] = k + 1
