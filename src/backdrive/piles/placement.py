"""Where things are in a step, whatever the physics: free bodies, their shapes, pairs that are near, contact points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..backends import Kernel
from ..physics.math.spatial import IDENTITY
from ..schema import layout
from . import kernels
from .bodies import BodyForm
from .broad_phase import BroadPhase, CandidatePairs, NarrowPhaseCalls
from .memory import Memory
from .records import BOX, POSE, SOLID
from .stages import Stage, StageTarget
from .tables import PileConstants, PileTables

Array = np.ndarray


class PlacedShapes(NamedTuple):
    """free [nbody + 1, n]: free motion of all bodies, the world first (`BodyForm.outputs`). solids [nshape, SOLID]."""

    free: Array
    solids: Array


class Placement(ABC):
    """The first stages of a step. A physics adds those of its contacts.

    h: the step size, s. point_size: numbers of a contact point in the narrow phase.
    """

    def __init__(self, tables: PileTables, body: BodyForm, h: float, target: StageTarget, point_size: int) -> None:
        self.h, self.target, self.dtype = h, target, target.dtype
        self.tables, self.body, self.point_size = tables, body, point_size
        self.left = h * body.part_of_step()
        self._floats, self._bounds = (x.astype(self.dtype) for x in (tables.floats, tables.bounds))
        self._near, self._near_plane = (self.stage(make) for make in (kernels.near, kernels.near_plane))
        self._bodies, self._shapes = self.first_stages()

    @abstractmethod
    def first_stages(self) -> tuple[Stage, Stage]:
        """The stages of the bodies on their own, and of the shapes and the boxes around them."""

    @abstractmethod
    def pair_stage(self, a: int, b: int) -> tuple[Stage, int]:
        """The narrow phase of pairs of two classes of shapes, and how many numbers their features have."""

    @abstractmethod
    def constants_of(self, numbers: Array) -> PileConstants:
        """The constants of a model, as the stages read them."""

    def stage(self, make: Callable[..., Kernel], *form: Any) -> Stage:
        return self.target.stage(make, *form)

    def broad_phase(self) -> BroadPhase:
        """The broad phase of a world that has not been stepped yet."""
        return BroadPhase(self.tables, self._near, self._near_plane)

    # ------------------------------------------------------------------------------------------ bodies and shapes

    def free_motion(self, memory: Memory, constants: PileConstants, q: Array, v: Array, wrench: Array | None) -> Array:
        """`bodies.free_motion` of all bodies, the world first: [nbody + 1, n]."""
        free = memory.array("free", self.tables.nbody + 1, self.target.padded(self.body.outputs.size))
        free[0] = 0.0
        free[0, POSE["rotation"]] = IDENTITY
        rows = {"wrenches": wrench.reshape(-1, 6)} if wrench is not None else {}
        self._bodies(
            self.tables.nbody, constants=constants.links, q=q.reshape(-1, self.body.nq),
            v=v.reshape(-1, self.body.nv), out=free[1:], h=self.h, **rows,
        )  # fmt: skip
        return free

    def place_shapes(self, memory: Memory, constants: PileConstants, free: Array, wide: Array) -> tuple[Array, Array]:
        """All shapes in the world [nshape, SOLID], and the boxes [nsolid, BOX] around those that are not planes; wide:
        the widened boxes of the broad phase."""
        tables, n = self.tables, self.tables.nsolid
        solids, boxes = memory.array("solids", tables.nshape, SOLID.size + 1), memory.array("boxes", n, BOX.size)
        planes = constants.records[n:]
        solids[n:, SOLID["center"]] = planes[:, layout.PLACE : layout.PLACE + 3]
        solids[n:, SOLID["axes"]] = IDENTITY
        solids[n:, SOLID["size"]] = planes[:, layout.SIZE : layout.SIZE + 3]
        self._shapes(
            n, records=constants.records, materials=constants.materials, bounds=self._bounds, wide=wide,
            motion=(free, tables.body), solids=solids, boxes=boxes, h=self.h,
        )  # fmt: skip
        return solids, boxes

    # ------------------------------------------------------------------------------------------ pairs

    def narrow_phase(
        self, memory: Memory, constants: PileConstants, placed: PlacedShapes, pairs: CandidatePairs
    ) -> tuple[Array, list[Array]]:
        """Contact points of all slots of all pairs [slot + 1, self.point_size], the last one zero; and the features."""
        points = memory.array("points", len(pairs.pair_of_slot) + 1, self.point_size)
        points[-1] = 0.0
        reads, known = (*placed, points, constants.materials), pairs.narrow_phase
        if known is None or any(x is not y for x, y in zip(reads, known.reads, strict=True)):
            calls, features = self._narrow_phase_calls(memory, constants, placed, pairs, points)
            known = pairs.narrow_phase = NarrowPhaseCalls(reads, calls, features)
        for call in known.calls:
            call()
        return points, known.features

    def _narrow_phase_calls(
        self, memory: Memory, constants: PileConstants, placed: PlacedShapes, pairs: CandidatePairs, points: Array
    ) -> tuple[list[Callable[[], None]], list[Array]]:
        """A kernel call for every class of pairs, and the arrays into which it puts the features."""
        tables, at = self.tables, 0
        calls, features = [], []
        for k, some in enumerate(pairs.by_class):
            n = some.end - some.first
            stage, width = self.pair_stage(some.a, some.b)
            features.append(memory.array(f"features {k}", n, max(1, width)))
            values: dict[str, Any] = {}
            for end, shapes, bodies, of_class in zip("ab", some.shapes, some.bodies, (some.a, some.b), strict=True):
                values |= {f"solid_{end}": (placed.solids, shapes), f"motion_{end}": (placed.free, bodies)}
                values[f"material_{end}"] = constants.materials, shapes
                hull = zip(kernels.HULL, tables.class_hull[of_class], strict=True)
                values |= {f"{name}_{end}": x for name, x in hull}
            own = points[at : at + n * some.slots].reshape(n, some.slots * self.point_size)
            values |= {"points": own, "features": features[k], "floats": self._floats, "left": self.left}
            calls.append(stage.prepare(n, **values))
            at += n * some.slots
        return calls, features
