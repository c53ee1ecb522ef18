"""One step of a pile with MuJoCo's physics, stage by stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...backends.llvm_cpu.target import host
from ...ir import Scalar
from ...model import Model
from ...physics.constraints.forces import FORCE
from ...physics.integrators import SemiImplicitEuler
from ...physics.scheme import Scheme
from ...physics.step import StepStatus
from ..arrangement import FINGERPRINT_PRIME
from ..bodies import BodyForm
from ..broad_phase import BroadPhase, CandidatePairs
from ..memory import Memory
from ..packs import SLOTS
from ..pairs import to_hull
from ..placement import PlacedShapes, Placement
from ..stages import Stage, StageTarget
from ..step import PileInputs, WorldState
from ..tables import PileConstants
from . import kernels
from .bodies import AdvanceForm
from .contacts import SoftContactForm
from .newton import SoftPileProblem, SoftPileSolution, SparseNewton
from .pairs import POINT, GeomForm
from .tables import SoftPileConstants, SoftPileTables

Array = np.ndarray
DIST, WITHIN = 0, POINT - 1  # positions in the numbers of a slot


@dataclass(frozen=True)
class SoftPileContacts:
    """The contacts of a step: slot, pair and key (growing) of each; bodies and shapes [contact, 2]."""

    slot: Array
    pair: Array
    key: Array
    bodies: Array
    shapes: Array

    @classmethod
    def within(cls, pairs: CandidatePairs, points: Array) -> SoftPileContacts:
        """Those within their margins; points: of all slots of all pairs, and a last one that does not count."""
        slot = (points[:-1, WITHIN] > 0.5).nonzero()[0]
        pair = pairs.pair_of_slot[slot]
        key = pairs.key[pair] * SLOTS + (slot - pairs.first_slot[pair])
        bodies, shapes = (np.column_stack([x[pair] for x in both]) for both in (
            (pairs.body_a, pairs.body_b), (pairs.a, pairs.b)))  # fmt: skip
        return cls(slot, pair, key, bodies, shapes)

    @property
    def count(self) -> int:
        return len(self.slot)

    def picks(self, constants: SoftPileConstants, free: Array, points: Array) -> dict[str, Any]:
        """The inputs of the kernels of contacts."""
        values: dict[str, Any] = {"point": (points, self.slot)}
        for k, end in enumerate("ab"):
            body, shape = np.ascontiguousarray(self.bodies[:, k]), np.ascontiguousarray(self.shapes[:, k])
            values |= {f"body_{end}": (free, body), f"weight_{end}": (constants.weights, body)}
            values[f"material_{end}"] = constants.materials, shape
        return values

    def at_ends(self, name: str, table: Array) -> dict[str, Any]:
        """The rows of a table over bodies, of both bodies of every contact."""
        return {f"{name}_{end}": (table, np.ascontiguousarray(self.bodies[:, k])) for k, end in enumerate("ab")}


@dataclass
class SoftPileStep:
    """A step: the state after it, its status, and the intermediate results that its derivative reads, in the memory
    that the step was given; y [nbody + 1, nv]: of all bodies, the world first. problem, solution: None if there are no
    contacts."""

    q: Array
    v: Array
    status: tuple[Scalar, ...]
    placed: PlacedShapes = field(repr=False)
    pairs: CandidatePairs = field(repr=False)
    points: Array = field(repr=False)
    features: list[Array] = field(repr=False)
    contacts: SoftPileContacts = field(repr=False)
    problem: SoftPileProblem | None = field(repr=False)
    solution: SoftPileSolution | None = field(repr=False)
    y: Array = field(repr=False)
    acting: Callable[[], Array] = field(repr=False)

    @property
    def after(self) -> WorldState:
        return WorldState(self.q, self.v, None)

    @property
    def key(self) -> Array:
        """Of the contacts, growing."""
        return self.contacts.key

    @property
    def forces(self) -> Array:
        """FORCE numbers of every contact, in the order of their keys; until the memory of the step is used again."""
        return self.acting()


class SoftEngine(Placement):
    """The stages of a model with one step size, MuJoCo's options and dtype."""

    def __init__(self, model: Model, h: float, scheme: Scheme, bits: int, wrenches: bool) -> None:
        assert scheme.soft is not None
        self.settings = scheme.soft
        body, target = BodyForm(3, SemiImplicitEuler(), False, wrenches), StageTarget(bits, host().lanes(bits))
        self.geoms = SoftPileTables(model)
        super().__init__(self.geoms, body, h, target, POINT)
        self.form, self.end = SoftContactForm(body, self.settings), AdvanceForm(body, self.settings)
        self.newton = SparseNewton(self.form)
        self._blocks, self._forces = (
            self.stage(make, self.form) for make in (kernels.soft_contacts, kernels.soft_forces)
        )
        self._advance = self.stage(kernels.advancing, self.end)
        self._pair_stages: dict[GeomForm, tuple[Stage, int]] = {}

    def first_stages(self) -> tuple[Stage, Stage]:
        return self.stage(kernels.soft_bodies, self.body), self.stage(kernels.soft_shapes, self.body)

    def constants_of(self, numbers: Array) -> SoftPileConstants:
        return SoftPileConstants(self.tables, self.body, numbers)

    def geom_form(self, a: int, b: int) -> GeomForm:
        """The form of pairs of two classes of shapes."""
        return GeomForm((self.geoms.class_geom[b], self.geoms.class_geom[a]), self.settings)

    def pair_stage(self, a: int, b: int) -> tuple[Stage, int]:
        form, tables = self.geom_form(a, b), self.tables
        if form not in self._pair_stages:
            width = form.feature_count(*(to_hull(tables.floats, tables.class_hull[k]) for k in (a, b)))
            self._pair_stages[form] = self.stage(kernels.soft_pairs, form), width
        return self._pair_stages[form]

    def forward(
        self, memory: Memory, near: BroadPhase, constants: PileConstants, inputs: PileInputs, keep: bool = False
    ) -> SoftPileStep:
        """One step."""
        assert isinstance(constants, SoftPileConstants)
        free = self.free_motion(memory, constants, inputs.q, inputs.v, inputs.wrench)
        placed = PlacedShapes(free, (shapes := self.place_shapes(memory, constants, free, near.boxes))[0])
        pairs = near.find(memory, *shapes)
        points, features = self.narrow_phase(memory, constants, placed, pairs)
        contacts = SoftPileContacts.within(pairs, points)
        y = memory.zeros("y", self.tables.nbody + 1, self.body.nv)
        problem = solution = None
        if contacts.count:
            problem = self.assemble(memory, constants, free, points, contacts)
            solution = self.newton.solve(memory, problem)
            y[problem.touched] = solution.y[:-1]
        q, v = self.advance(constants, free, inputs, y)
        status = self.status(q, v, points, contacts, solution)
        return SoftPileStep(
            q, v, status, placed, pairs, points, features, contacts, problem, solution, y,
            lambda: self.forces(constants, free, points, contacts, y),
        )  # fmt: skip

    def assemble(
        self, memory: Memory, constants: SoftPileConstants, free: Array, points: Array, contacts: SoftPileContacts
    ) -> SoftPileProblem:
        blocks = memory.array("blocks", contacts.count, self.form.block.size)
        self._blocks(contacts.count, **contacts.picks(constants, free, points), blocks=blocks, h=self.h)
        return self.newton.problem(blocks.astype(np.float64), contacts.bodies)

    def advance(self, constants: PileConstants, free: Array, inputs: PileInputs, y: Array) -> tuple[Array, Array]:
        """The state after the step: q [nq], v [nv]."""
        n, body = self.tables.nbody, self.body
        q, v = np.empty((n, body.nq), self.dtype), np.empty((n, body.nv), self.dtype)
        self._advance(
            n, constants=constants.links, free=free[1:], v=inputs.v.reshape(n, -1), y=y[1:], q_next=q, v_next=v,
            h=self.h,
        )  # fmt: skip
        return q.ravel(), v.ravel()

    def forces(
        self, constants: SoftPileConstants, free: Array, points: Array, contacts: SoftPileContacts, y: Array
    ) -> Array:
        """FORCE numbers of every contact, in the order of their keys."""
        out = np.empty((contacts.count, FORCE), self.dtype)
        if contacts.count:
            values = contacts.picks(constants, free, points) | contacts.at_ends("y", y)
            self._forces(contacts.count, **values, out=out, h=self.h)
        return out

    def status(
        self, q: Array, v: Array, points: Array, contacts: SoftPileContacts, solution: SoftPileSolution | None
    ) -> tuple[Scalar, ...]:
        """Whether the state after the step is finite, and `StepStatus`."""
        residual = pressing = modes = 0.0
        if solution is not None:
            residual, pressing = solution.residual, float(np.count_nonzero(solution.f[:, 0] > 0.0))
            weights = (contacts.key % FINGERPRINT_PRIME + 1).astype(np.float64)
            modes = float(np.dot(solution.mode, weights) % FINGERPRINT_PRIME)
        depth = max(0.0, -float(points[contacts.slot, DIST].min(initial=0.0)))
        return float(np.isfinite(q.sum() + v.sum())), *StepStatus(0.0, residual, pressing, depth, modes, 0.0)
