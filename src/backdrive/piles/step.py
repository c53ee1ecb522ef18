"""One step of a pile, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..backends.llvm_cpu.target import host
from ..ir import Scalar
from ..model import Model
from ..physics.constraints.forces import FORCE
from ..physics.geometry.solids import CONTACT_RECORD, GAP
from ..physics.scheme import Scheme
from ..physics.step import StepStatus
from . import kernels
from .arrangement import Arrangement, ContactArranger, WarmStartTable
from .bodies import BodyForm
from .broad_phase import BroadPhase, CandidatePairs
from .contacts import ContactForm
from .energy_guard import GuardedSolver
from .memory import Memory
from .pairs import PairForm, to_hull
from .placement import PlacedShapes, Placement
from .solvers import pile_solver
from .solvers.base import PileForm, PileProblem, PileSolution
from .stages import Stage, StageTarget
from .tables import PileConstants, PileTables

Array = np.ndarray


class PileInputs(NamedTuple):
    """The inputs of a step: the state q [nq], v [nv], wrenches [6 nbody] or None, and the impulses of the step before
    or None."""

    q: Array
    v: Array
    wrench: Array | None
    warm: WarmStartTable | None


class WorldState(NamedTuple):
    """A world between two steps: q [nq], v [nv], and the impulses of the step before or None."""

    q: Array
    v: Array
    warm: WarmStartTable | None


@dataclass
class PileStep:
    """A step: the state after it, the impulses from which the next one starts, and its status; and the intermediate
    results that its derivative reads, in the memory that the step was given.

    forces [contact, FORCE]: in the order of keys. rows [cell, row]: impulses of the rows. points [slot + 1,
    CONTACT_RECORD]: contact points of all slots of `pairs`. features: of every `ClassPairs`.
    """

    q: Array
    v: Array
    impulses: WarmStartTable
    forces: Array
    rows: Array = field(repr=False)
    status: tuple[Scalar, ...]
    placed: PlacedShapes = field(repr=False)
    pairs: CandidatePairs = field(repr=False)
    points: Array = field(repr=False)
    features: list[Array] = field(repr=False)
    problem: PileProblem = field(repr=False)
    solution: PileSolution = field(repr=False)

    @property
    def after(self) -> WorldState:
        return WorldState(self.q, self.v, self.impulses)

    @property
    def contacts(self) -> Arrangement:
        return self.problem.contacts

    @property
    def key(self) -> Array:
        """Of the contacts, growing."""
        return self.contacts.key


class Engine(Placement):
    """The stages of a model with one step size, integrator, solver and dtype.

    directions: of friction, in 3D. bounces: whether restitution counts. lanes: of a register; None: those of the host.
    """

    def __init__(
        self, model: Model, h: float, scheme: Scheme, directions: int, bits: int, bounces: bool, wrenches: bool,
        lanes: int | None = None,
    ) -> None:  # fmt: skip
        assert scheme.contact_model is not None
        body, target = (
            BodyForm(model.dim, scheme.integrator, bounces, wrenches),
            StageTarget(bits, lanes or host().lanes(bits)),
        )
        super().__init__(PileTables(model), body, h, target, CONTACT_RECORD)
        self.form = ContactForm(body, 1 if model.dim == 2 else directions, model.combine, scheme.contact_model)
        form = PileForm(self.form, target)
        settings = scheme.contact_model.solver
        self.stride, self.solver = form.stride, GuardedSolver(form, pile_solver(form, settings), settings.tolerance)
        self.arranger = ContactArranger(target, self.tables)
        self._finish = self.stage(kernels.finishing, body)
        self._blocks, self._forces = (self.stage(make, self.form) for make in (kernels.contacts, kernels.forces))
        self._pair_stages: dict[PairForm, tuple[Stage, int]] = {}

    def first_stages(self) -> tuple[Stage, Stage]:
        return self.stage(kernels.bodies, self.body), self.stage(kernels.shapes, self.body)

    def constants_of(self, numbers: Array) -> PileConstants:
        return PileConstants(self.tables, self.body, numbers)

    def forward(
        self, memory: Memory, near: BroadPhase, constants: PileConstants, inputs: PileInputs, keep: bool = False
    ) -> PileStep:
        """One step; keep: its derivative is expected, and the solver keeps its intermediate results."""
        free = self.free_motion(memory, constants, inputs.q, inputs.v, inputs.wrench)
        solids, boxes = self.place_shapes(memory, constants, free, near.boxes)
        placed = PlacedShapes(free, solids)
        pairs = near.find(memory, solids, boxes)
        points, features = self.narrow_phase(memory, constants, placed, pairs)
        contacts = self.arranger.arrange(pairs, points, inputs.warm)
        problem = self.assemble(memory, constants, free, points, contacts, inputs.warm, keep)
        solution = self.solver.solve(memory, problem)
        q, v = self.finish(constants, free, contacts, solution)
        rows = self.impulses_by_cell(contacts, solution)
        forces = self.forces(constants, free, points, contacts, rows)
        impulses, status = self.warm_start(contacts, forces), self.status(q, v, points, contacts, solution)
        return PileStep(q, v, impulses, forces, rows, status, placed, pairs, points, features, problem, solution)

    def finish(
        self, constants: PileConstants, free: Array, contacts: Arrangement, solution: PileSolution
    ) -> tuple[Array, Array]:
        """The state after the step: q [nq], v [nv]."""
        n, body, own = self.tables.nbody, self.body, contacts.row_of[1:]
        q, v = np.empty(n * body.nq, self.dtype), np.empty(n * body.nv, self.dtype)
        self._finish(
            n, constants=constants.links, free=free[1:], y=(solution.y, own), shift=(solution.shift, own),
            q=q.reshape(-1, body.nq), v=v.reshape(-1, body.nv), h=self.h,
        )  # fmt: skip
        return q, v

    # ------------------------------------------------------------------------------------------ pairs

    def pair_form(self, a: int, b: int) -> PairForm:
        """The form of pairs of two classes of shapes."""
        tables = self.tables
        kinds = tables.class_kind[a], tables.class_kind[b]
        return PairForm(self.body.dim, kinds, self.body.motion, tables.class_is_box[a] and tables.class_is_box[b])

    def pair_stage(self, a: int, b: int) -> tuple[Stage, int]:
        """The narrow phase of pairs of two classes of shapes, and how many numbers their features have."""
        form, tables = self.pair_form(a, b), self.tables
        if form not in self._pair_stages:
            width = form.feature_count(*(to_hull(tables.floats, tables.class_hull[k]) for k in (a, b)))
            self._pair_stages[form] = self.stage(kernels.pairs, form), width
        return self._pair_stages[form]

    # ------------------------------------------------------------------------------------------ contacts

    def assemble(
        self, memory: Memory, constants: PileConstants, free: Array, points: Array, contacts: Arrangement,
        warm: WarmStartTable | None, keep: bool,
    ) -> PileProblem:  # fmt: skip
        """The contact problem: `contacts.contact_block` of every cell, and the impulses to start from."""
        registers, lanes, rows = contacts.registers, self.target.lanes, self.form.rows
        impulses = memory.array("history", self.solver.kept_sweeps(warm is None, keep), registers, rows, lanes)
        blocks = memory.array("blocks", registers, self.form.block.size, lanes)
        if contacts.count:
            inputs = contacts.block_inputs(constants.materials, free, points, warm)
            self._blocks(registers * lanes, **inputs, blocks=blocks, impulses=impulses, h=self.h)
        return PileProblem(contacts, blocks, impulses, warm is None, keep)

    def impulses_by_cell(self, contacts: Arrangement, solution: PileSolution) -> Array:
        """The impulses of the rows of every cell, [cell, row]."""
        cells = contacts.registers * self.target.lanes
        return np.ascontiguousarray(solution.impulses.transpose(0, 2, 1)).reshape(cells, self.form.rows)

    def warm_start(self, contacts: Arrangement, forces: Array) -> WarmStartTable:
        """The impulses of a step, for the next one."""
        table = np.zeros((contacts.registers * self.target.lanes + 1, 3), self.dtype)
        table[contacts.cell] = self.h * forces[:, :3]
        return WarmStartTable(contacts.key, contacts.cell, table)

    def forces(
        self, constants: PileConstants, free: Array, points: Array, contacts: Arrangement, impulses: Array
    ) -> Array:
        """FORCE numbers of every contact, in the order of their keys; impulses: of the rows of every cell."""
        out = np.empty((contacts.count, FORCE), self.dtype)
        if contacts.count:
            inputs = contacts.force_inputs(constants.materials, free, points, impulses)
            self._forces(contacts.count, **inputs, out=out, h=self.h)
        return out

    def status(
        self, q: Array, v: Array, points: Array, contacts: Arrangement, solution: PileSolution
    ) -> tuple[Scalar, ...]:
        """Whether the state after the step is finite, and `StepStatus`; there are no motors and no impacts."""
        guarded = 0 if solution.guard is None else solution.guard.count
        return float(np.isfinite(q.sum() + v.sum())), *StepStatus(
            clipped=0.0,
            residual=solution.residual,
            contacts=float(np.count_nonzero(solution.impulses[:, 0] > 0.0)),
            depth=max(0.0, -float(points[contacts.slot, GAP].min(initial=0.0))),
            modes=contacts.fingerprint(solution.active_sets) + 0.5 * guarded,
            guarded=float(guarded),
        )
