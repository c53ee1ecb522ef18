"""The contacts of a step, and the order in which they are solved (`packs`)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..physics.geometry.solids import ACTIVE
from . import kernels
from .broad_phase import CandidatePairs
from .memory import Memory
from .packs import CELL_TABLES, OPEN_COLOURS, SLOTS
from .stages import StageTarget
from .tables import PileTables

Array = np.ndarray

# Fingerprints of active sets are taken modulo this prime, which float32 can tell from its neighbours.
FINGERPRINT_PRIME = 8388593


@dataclass
class WarmStartTable:
    """The impulses of a step, from which the next one starts.

    key: of its contacts, growing. cell: of each. table [cell + 1, 3]: the impulse (N s) on the first shape, in world
    axes; its last row is zero.
    """

    key: Array
    cell: Array
    table: Array


@dataclass
class Arrangement:
    """The contacts of a step, and where they are solved: see `packs.ArrangeArguments`.

    slot [contact]: rows of the table of contact points. pair, key, cell [contact]. at: of every cell, its contact
    point, bodies, shapes and warm start; `own`: cells of a step with the same arrangement as the step before. weights:
    of every cell, for `fingerprint`.
    """

    count: int
    slot: Array
    pair: Array
    key: Array
    cell: Array
    ends: Array
    starts: Array
    group_packs: Array
    group_rows: Array
    row_of: Array
    packs: int
    registers: int
    groups: int
    rows: int
    at: dict[str, Array] = field(repr=False)
    own: Array = field(repr=False)
    weights: Array = field(repr=False)

    def started_from(self, warm_at: Array) -> Arrangement:
        """The same contacts with another warm start: the cell of the step before, for every cell."""
        return replace(self, at=self.at | {"warm_at": warm_at})

    def group_values(self) -> dict[str, Any]:
        """Arguments of `sweep_parts.GroupedArguments`, and the number of groups."""
        return {
            "starts": self.starts, "ends": self.ends, "group_packs": self.group_packs, "group_rows": self.group_rows,
            "groups": self.groups,
        }  # fmt: skip

    def block_inputs(self, materials: Array, free: Array, points: Array, warm: WarmStartTable | None) -> dict[str, Any]:
        """The inputs of the block of every cell (`kernels.CONTACT`)."""
        at = self.at
        return {
            "point": (points, at["point_at"]), "body_a": (free, at["body_a_at"]), "body_b": (free, at["body_b_at"]),
            "material_a": (materials, at["shape_a_at"]), "material_b": (materials, at["shape_b_at"]),
            "warm": (np.zeros((1, 3), points.dtype) if warm is None else warm.table, at["warm_at"]),
        }  # fmt: skip

    def force_inputs(self, materials: Array, free: Array, points: Array, impulses: Array) -> dict[str, Any]:
        """The inputs of the force of every contact (`kernels.FORCED`)."""
        shapes, bodies = self.ends_of_contacts("shape"), self.ends_of_contacts("body")
        return {
            "point": (points, self.slot), "impulses": (impulses, self.cell),
            "body_a": (free, bodies["a"]), "body_b": (free, bodies["b"]),
            "material_a": (materials, shapes["a"]), "material_b": (materials, shapes["b"]),
        }  # fmt: skip

    def ends_of_contacts(self, what: str) -> dict[str, Array]:
        """The two shapes ("shape") or bodies ("body") of every contact."""
        return {end: self.at[f"{what}_{end}_at"][self.cell] for end in "ab"}

    def fingerprint(self, active_sets: Array) -> float:
        """A number that changes if a contact comes or goes, presses or not, sticks or slides, or has penetrated.

        active_sets [register, lane]: codes of all cells (`sweep_kernels.active_set_code`).
        """
        return float(np.dot(active_sets.reshape(-1) + 1.0, self.weights) % FINGERPRINT_PRIME)


class ContactArranger:
    """Makes arrangements, and keeps the last one for as long as the contacts stay the same."""

    def __init__(self, target: StageTarget, tables: PileTables) -> None:
        self.target, self.tables = target, tables
        self._arrange = target.stage(kernels.arranging)

    def arrange(self, pairs: CandidatePairs, points: Array, warm: WarmStartTable | None) -> Arrangement:
        """points: contact points of all slots of all pairs, and a last one that does not count."""
        slot = (points[:-1, ACTIVE] > 0.5).nonzero()[0]
        known = pairs.arranged
        if known is not None and np.array_equal(slot, known.slot):
            if warm is None:
                return known.started_from(np.zeros(len(known.weights), np.int64))
            if warm.key is known.key or np.array_equal(warm.key, known.key):
                return known.started_from(known.own)  # in the step before, every contact had the same cell
        pairs.arranged = self._new(pairs, slot, len(points) - 1, warm)
        return pairs.arranged

    def _new(self, pairs: CandidatePairs, slot: Array, no_point: int, warm: WarmStartTable | None) -> Arrangement:
        """An arrangement in memory of its own, since later steps may have the same one."""
        lanes, tables, n, memory = self.target.lanes, self.tables, len(slot), Memory(self.target.dtype)
        pair = pairs.pair_of_slot[slot]
        key = pairs.key[pair] * SLOTS + (slot - pairs.first_slot[pair])
        cell, sizes = np.empty(n, np.int64), np.empty(4, np.int64)
        counts = {"starts": n + 1, "group_packs": n + 1, "group_rows": n + 1, "row_of": tables.nbody + 1}
        results = {name: memory.integers(name, count) for name, count in counts.items()}
        ends = memory.integers("ends", n * 2 * lanes)
        at = {name: memory.integers(name, n * lanes) for name in CELL_TABLES}
        warm_key, warm_cell, no_warm = (warm.key, warm.cell, len(warm.table) - 1) if warm else (cell, cell, 0)
        self._arrange(
            1, slot=slot, pair=pair, key=key, body_a=pairs.body_a, body_b=pairs.body_b, shape_a=pairs.a,
            shape_b=pairs.b, warm_key=warm_key, warm_cell=warm_cell, ends=ends, **results, cell=cell, **at,
            sizes=sizes, contacts=n, warm=len(warm.key) if warm else 0, bodies=tables.nbody + 1, lanes=lanes,
            open_colours=OPEN_COLOURS, no_point=no_point, no_shape=tables.nshape, no_warm=no_warm,
        )  # fmt: skip
        packs, registers, groups, rows = sizes.tolist()
        cells = registers * lanes
        own = np.full(cells, cells)
        own[cell] = cell
        weights = np.zeros(cells)
        weights[cell] = key % FINGERPRINT_PRIME + 1
        return Arrangement(
            n, slot, pair, key, cell, ends, **results, packs=packs, registers=registers, groups=groups, rows=rows,
            at=at, own=own, weights=weights,
        )  # fmt: skip
