"""The derivative of a step of a pile: its stages backwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..physics.geometry.solids import CONTACT_POINT, CONTACT_RECORD
from . import kernels
from .broad_phase import ClassPairs
from .memory import Memory
from .pairs import PairForm
from .records import SHAPE_MATERIAL
from .shapes_adjoint import ShapesAdjoint
from .solvers.base import BlockCotangents, SolutionCotangents
from .stages import Stage
from .step import Engine, PileInputs, PileStep
from .tables import SURFACE, PileConstants

Array = np.ndarray

SURFACES = SHAPE_MATERIAL.width("surface")


class PileOutputCotangents(NamedTuple):
    """Cotangents of the results of a step: q [nq], v [nv], the table of impulses (`WarmStartTable.table`), and the
    forces (`Engine.forces`); None: zero."""

    q: Array
    v: Array
    impulses: Array | None
    forces: Array | None = None


@dataclass
class PileInputCotangents:
    """Cotangents of the inputs of a step: q [nq], v [nv], wrenches [6 nbody] if there are any, the table of impulses
    of the step before; and of links and records of `PileConstants`."""

    q: Array
    v: Array
    wrench: Array | None
    impulses: Array
    links: Array
    records: Array


class EndCotangents(NamedTuple):
    """Cotangents of the two bodies and the two materials of a number of contacts: those of the first ones, then those
    of the second ones. what: a name. widths: numbers of a "body" and of a "material"."""

    what: str
    contacts: int
    widths: dict[str, int]
    both: dict[str, Array]

    @property
    def bars(self) -> dict[str, Array]:
        """The arguments of a kernel that writes them."""
        first = {f"{name}_a_bar": rows[: self.contacts] for name, rows in self.both.items()}
        return first | {f"{name}_b_bar": rows[self.contacts :] for name, rows in self.both.items()}


class Adjoint(ShapesAdjoint):
    """The stages of `Engine`, backwards."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.engine = engine
        self._bodies, self._finish = (
            engine.stage(make, engine.body) for make in (kernels.bodies_adjoint, kernels.finishing_adjoint)
        )
        self._blocks, self._forces = (
            engine.stage(make, engine.form) for make in (kernels.contacts_adjoint, kernels.forces_adjoint)
        )
        self._pair_stages: dict[PairForm, Stage] = {}

    def backward(
        self, memory: Memory, constants: PileConstants, inputs: PileInputs, step: PileStep, bars: PileOutputCotangents
    ) -> PileInputCotangents:
        """From the cotangents after a step, which was made with `keep`, to those before it."""
        engine, contacts = self.engine, step.contacts
        free_bar, y_bar, shift = self._finish_vjp(memory, constants, step, bars)
        records_bar = np.zeros_like(constants.records)
        warm_bar = np.zeros((0 if inputs.warm is None else len(inputs.warm.table), 3), engine.dtype)
        if contacts.count:
            direct_bar, impulses_bar = self._forces_vjp(memory, constants, step, bars, free_bar, records_bar)
            blocks = memory.array("blocks backwards", *step.problem.blocks.shape)
            blocks[...] = step.problem.blocks[::-1]
            cotangents = SolutionCotangents(y_bar, shift, impulses_bar)
            found = engine.solver.vjp(memory, step.problem, step.solution, blocks, cotangents)
            points_bar, start_bar = self._blocks_vjp(
                memory, constants, inputs, step, blocks, found, free_bar, records_bar
            )
            if direct_bar is not None:
                points_bar[contacts.slot] += direct_bar
            self._shapes_vjp(memory, constants, step, points_bar, free_bar, records_bar)
            if len(warm_bar):  # (cells without a warm start share its last row, which is zero)
                warm_bar[contacts.at["warm_at"][: len(start_bar)]] = start_bar
                warm_bar[-1] = 0.0
        q_bar, v_bar, wrench_bar, links_bar = self._bodies_vjp(constants, inputs, free_bar)
        return PileInputCotangents(q_bar, v_bar, wrench_bar, warm_bar, links_bar, records_bar)

    # ------------------------------------------------------------------------------------------ bodies

    def _finish_vjp(
        self, memory: Memory, constants: PileConstants, step: PileStep, bars: PileOutputCotangents
    ) -> tuple[Array, Array, Array]:
        """Cotangents of the free motion, and y and shift as `SolutionCotangents` has them."""
        engine, n, width, own = self.engine, self.engine.tables.nbody, self.engine.stride, step.contacts.row_of[1:]
        solution, free = step.solution, step.placed.free
        free_bar = memory.zeros("free_bar", *free.shape)
        y_bar_of, shift_bar_of = (memory.array(f"{name}_bar of bodies", n, width) for name in ("y", "shift"))
        self._finish(
            n, constants=constants.links, free=free[1:], y=(solution.y, own), shift=(solution.shift, own),
            q_bar=bars.q.reshape(n, -1), v_bar=bars.v.reshape(n, -1), free_bar=free_bar[1:], y_bar=y_bar_of,
            shift_bar=shift_bar_of, h=engine.h,
        )  # fmt: skip
        count = len(solution.shift)
        y_bar, shift = memory.zeros("y_bar", 2, count, width), memory.array("shift and bar", count, 2 * width)
        shift[:, :width], shift[:, width:] = solution.shift, 0.0
        nv = engine.body.nv
        y_bar[0, own, :nv], shift[own, width : width + nv] = y_bar_of[:, :nv], shift_bar_of[:, :nv]
        y_bar[0, 0], shift[0, width:] = 0.0, 0.0  # row 0 is for bodies without contacts, and for the world
        return free_bar, y_bar, shift

    def _bodies_vjp(
        self, constants: PileConstants, inputs: PileInputs, free_bar: Array
    ) -> tuple[Array, Array, Array | None, Array]:
        """Cotangents of q, v, wrenches and links."""
        engine, n = self.engine, self.engine.tables.nbody
        layout_of, wrench = engine.body.inputs, inputs.wrench
        gradient = np.empty((n, layout_of.size), engine.dtype)
        rows = {"wrenches": wrench.reshape(n, 6)} if wrench is not None else {}
        self._bodies(
            n, constants=constants.links, q=inputs.q.reshape(n, -1), v=inputs.v.reshape(n, -1), out_bar=free_bar[1:],
            gradient=gradient, h=engine.h, **rows,
        )  # fmt: skip
        links_bar, q_bar, v_bar = (gradient[:, layout_of[name]] for name in ("constants", "q", "v"))
        wrench_bar = gradient[:, layout_of["wrench"]].ravel() if wrench is not None else None
        return q_bar.ravel(), v_bar.ravel(), wrench_bar, links_bar

    # ------------------------------------------------------------------------------------------ contacts

    def _forces_vjp(
        self, memory: Memory, constants: PileConstants, step: PileStep, bars: PileOutputCotangents, free_bar: Array,
        records_bar: Array,
    ) -> tuple[Array | None, Array]:  # fmt: skip
        """Cotangents of the contact points of all contacts, or None, and of the impulses [register, row, lane]; those
        of bodies are added to free_bar, those of materials to records_bar.

        The impulses from which the next step starts follow from the forces, too.
        """
        engine, n, dtype, contacts = self.engine, step.contacts.count, self.engine.dtype, step.contacts
        rows, lanes = engine.form.rows, engine.target.lanes
        impulses_bar = memory.zeros("impulses_bar", contacts.registers, rows, lanes)
        if bars.forces is None and bars.impulses is None:
            return None, impulses_bar
        forces_bar = np.zeros_like(step.forces) if bars.forces is None else np.array(bars.forces, dtype, order="C")
        if bars.impulses is not None:
            forces_bar[:, :3] += engine.h * bars.impulses[contacts.cell]
        point_bar, own_bar = np.empty((n, CONTACT_POINT), dtype), np.empty((n, rows), dtype)
        ends = self._ends_of(memory, "forces", n, {"body": engine.body.motion, "material": SURFACES})
        self._forces(
            n, **contacts.force_inputs(constants.materials, step.placed.free, step.points, step.rows),
            out_bar=forces_bar, point_bar=point_bar, **ends.bars, impulses_bar=own_bar, h=engine.h,
        )  # fmt: skip
        owners = {"body": contacts.ends_of_contacts("body"), "material": contacts.ends_of_contacts("shape")}
        self._add_ends(memory, ends, {name: list(x.values()) for name, x in owners.items()}, free_bar, records_bar)
        by_cell = np.zeros((contacts.registers * lanes, rows), dtype)
        by_cell[contacts.cell] = own_bar
        impulses_bar[...] = by_cell.reshape(contacts.registers, lanes, rows).transpose(0, 2, 1)
        return point_bar, impulses_bar

    def _ends_of(self, memory: Memory, what: str, count: int, widths: dict[str, int]) -> EndCotangents:
        both = {name: self._rows(memory, f"{name} of {what}", 2 * count, n) for name, n in widths.items()}
        return EndCotangents(what, count, widths, both)

    def _add_ends(
        self, memory: Memory, ends: EndCotangents, owners: dict[str, list[Array]], free_bar: Array, records_bar: Array
    ) -> None:
        """Add up the cotangents of bodies in free_bar and those of materials in records_bar; owners: of both ends."""
        tables, (body, surface) = self.engine.tables, ends.widths.values()
        bodies_bar = self._rows(memory, f"bodies_bar of {ends.what}", tables.nbody + 1, body, zero=True)
        materials_bar = self._rows(memory, f"materials_bar of {ends.what}", tables.nshape + 1, surface, zero=True)
        for name, totals in (("body", bodies_bar), ("material", materials_bar)):
            self._add_up(ends.both[name], owners[name], totals)
        records_bar[:, SURFACE] += materials_bar[:-1, :surface]
        free_bar[:, :body] += bodies_bar[:, :body]

    def _blocks_vjp(
        self, memory: Memory, constants: PileConstants, inputs: PileInputs, step: PileStep, blocks: Array,
        found: BlockCotangents, free_bar: Array, records_bar: Array,
    ) -> tuple[Array, Array]:  # fmt: skip
        """Cotangents of the contact points of all slots, and of the impulses of the step before [cell, 3]; those of
        bodies are added to free_bar, those of materials to records_bar. blocks: in reverse order, as in `found`."""
        engine, contacts = self.engine, step.contacts
        cells = contacts.registers * engine.target.lanes
        ends = self._ends_of(memory, "blocks", cells, {"body": kernels.body_width(engine.form), "material": SURFACES})
        point_bar, warm_bar = memory.array("point_bar", cells, CONTACT_RECORD), np.empty((cells, 3), engine.dtype)
        self._blocks(
            cells, **contacts.block_inputs(constants.materials, step.placed.free, step.points, inputs.warm),
            blocks=blocks, blocks_bar=found.blocks, start_bar=found.start, point_bar=point_bar, warm_bar=warm_bar,
            **ends.bars, registers=contacts.registers, h=engine.h,
        )  # fmt: skip
        names = {"body": "body", "material": "shape"}
        owners = {name: [contacts.at[f"{owner}_{end}_at"][:cells] for end in "ab"] for name, owner in names.items()}
        self._add_ends(memory, ends, owners, free_bar, records_bar)
        points_bar = memory.zeros("points_bar", len(step.points), CONTACT_POINT)
        points_bar[contacts.slot] = point_bar[contacts.cell, :CONTACT_POINT]
        return points_bar, warm_bar

    # ------------------------------------------------------------------------------------------ pairs

    def _pair_vjp(self, some: ClassPairs, count: int, values: dict[str, Any]) -> None:
        self._pair_stage(some.a, some.b)(count, **values)

    def _pair_stage(self, a: int, b: int) -> Stage:
        form = self.engine.pair_form(a, b)
        if form not in self._pair_stages:
            width = self.engine.pair_stage(a, b)[1]
            self._pair_stages[form] = self.engine.stage(kernels.pairs_adjoint, form, width)
        return self._pair_stages[form]
