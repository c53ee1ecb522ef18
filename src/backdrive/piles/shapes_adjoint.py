"""The adjoint of the first stages of a step (`placement`), from contact points to shapes and the poses of bodies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np

from ..schema import layout
from . import kernels
from .broad_phase import CandidatePairs, ClassPairs
from .memory import Memory
from .placement import PlacedShapes, Placement
from .records import POSE, SOLID
from .tables import PileConstants

Array = np.ndarray


class ListedContacts(Protocol):
    """pair [contact]: of every contact, growing."""

    @property
    def pair(self) -> Array: ...


class FoundContacts(Protocol):
    """What a step has found: see `PileStep`."""

    @property
    def placed(self) -> PlacedShapes: ...
    @property
    def pairs(self) -> CandidatePairs: ...
    @property
    def features(self) -> list[Array]: ...
    @property
    def contacts(self) -> ListedContacts: ...


class ShapesAdjoint(ABC):
    """Shapes and pairs, backwards; and sums over rows."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self._shapes = placement.stage(kernels.shapes_adjoint, placement.body)
        self._sum = placement.stage(kernels.summing)

    @abstractmethod
    def _pair_vjp(self, some: ClassPairs, count: int, values: dict[str, Any]) -> None:
        """Run the adjoint of the narrow phase of two classes, for `count` pairs; values: arguments by name."""

    def _shapes_vjp(
        self, memory: Memory, constants: PileConstants, step: FoundContacts, points_bar: Array, free_bar: Array,
        records_bar: Array,
    ) -> None:  # fmt: skip
        """From the contact points to the poses of bodies (added to free_bar) and the shapes (added to records_bar)."""
        tables, n, pose = self.placement.tables, self.placement.tables.nsolid, POSE.size
        solids_bar = self._pairs_vjp(memory, constants, step, points_bar)
        own, pose_bar = memory.array("own_bar", n, layout.SHAPE), self._rows(memory, "pose_bar", n, pose)
        self._shapes(
            n, records=constants.records, motion=(step.placed.free, tables.body), solids_bar=solids_bar,
            records_bar=own, pose_bar=pose_bar,
        )  # fmt: skip
        poses_bar = self._rows(memory, "poses_bar", tables.nbody + 1, pose, zero=True)
        self._add_up(pose_bar, [tables.body], poses_bar)
        free_bar[:, :pose] += poses_bar[:, :pose]
        records_bar[:n, : layout.SHAPE] += own
        records_bar[n:, layout.PLACE : layout.PLACE + 3] += solids_bar[n:, SOLID["center"]]
        records_bar[n:, layout.SIZE : layout.SIZE + 3] += solids_bar[n:, SOLID["size"]]

    def _pairs_vjp(self, memory: Memory, constants: PileConstants, step: FoundContacts, points_bar: Array) -> Array:
        """Cotangents of the shapes in the world, [nshape, SOLID]."""
        pairs, solids = step.pairs, step.placed.solids
        solids_bar = self._rows(memory, "solids_bar", self.placement.tables.nshape, SOLID.size, zero=True)
        touching = step.contacts.pair[np.diff(step.contacts.pair, prepend=-1) > 0]
        for some, features in zip(pairs.by_class, step.features, strict=True):
            low, high = np.searchsorted(touching, (some.first, some.end))
            mine = touching[low:high]
            if not len(mine):
                continue
            slots = (pairs.first_slot[mine][:, None] + np.arange(some.slots)).ravel()
            seeds = points_bar[slots].reshape(len(mine), -1)
            both, shapes = self._rows(memory, "solid_bar", 2 * len(mine), SOLID.size), [pairs.a[mine], pairs.b[mine]]
            values = {
                "solid_a": (solids, shapes[0]), "solid_b": (solids, shapes[1]),
                "material_a": (constants.materials, shapes[0]), "material_b": (constants.materials, shapes[1]),
                "features": (features, mine - some.first), "points_bar": seeds,
                "solid_a_bar": both[: len(mine)], "solid_b_bar": both[len(mine) :],
            }  # fmt: skip
            self._pair_vjp(some, len(mine), values)
            self._add_up(both, shapes, solids_bar)
        return solids_bar

    # ------------------------------------------------------------------------------------------ sums

    def _rows(self, memory: Memory, name: str, count: int, width: int, zero: bool = False) -> Array:
        """[count, width], with rows padded to whole registers; the padding is zero at first, and stays so."""
        array = memory.array(name, count, self.placement.target.padded(width))
        if zero:
            array.fill(0.0)
        return array

    def _add_up(self, rows: Array, owners: list[Array], totals: Array) -> None:
        """totals[owner[i]] += rows[i]; the rows of several lists of owners follow each other."""
        width = rows.shape[1] // self.placement.target.lanes
        owner = np.concatenate(owners) if len(owners) > 1 else owners[0]
        self._sum(1, rows=rows, totals=totals, owner=owner, count=len(rows), width=width)
