"""The derivative of a step of one big world: its stages backwards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..physics.geometry.solids import CONTACT_POINT, CONTACT_RECORD
from ..schema import layout
from . import kernels
from .contacts import SOLID, STUFF, PairForm
from .interior_step import positions_adjoint, velocities_adjoint
from .memory import Memory
from .stages import Stage
from .step import Engine, Outcome
from .tables import Numbers

Array = np.ndarray


@dataclass
class StepCotangents:
    """Gradients with respect to a step's q, v, wrenches (if there are any), and the table of impulses of the step
    before; links, records: with respect to `Numbers`."""

    q: Array
    v: Array
    wrench: Array | None
    impulses: Array
    links: Array
    records: Array


class Adjoint:
    """The stages of `Engine`, backwards."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._bodies, self._finish, self._shapes = (
            engine.stage(make, engine.body)
            for make in (kernels.bodies_adjoint, kernels.finishing_adjoint, kernels.shapes_adjoint)
        )
        self._blocks, self._solve, self._correct, self._forces = (
            engine.stage(make, engine.form)
            for make in (
                kernels.contacts_adjoint, kernels.solving_adjoint, kernels.correcting_adjoint, kernels.forces_adjoint
            )
        )  # fmt: skip
        self._sum = engine.stage(kernels.summing)
        self._meetings: dict[PairForm, Stage] = {}

    def backward(
        self, memory: Memory, numbers: Numbers, step: Outcome, q: Array, v: Array, wrench: Array | None, q_bar: Array,
        v_bar: Array, impulses_bar: Array | None, old: int, forces_bar: Array | None = None,
    ) -> StepCotangents:  # fmt: skip
        """From the gradients after a step to those before it.

        step: with the impulses of all sweeps, if these solved it. impulses_bar: with respect to its table of impulses,
        or None; old: rows of the table of the step before. forces_bar: with respect to `Engine.forces`, or None.
        """
        engine, n, width, own = self.engine, self.engine.tables.nbody, self.engine.stride, step.contacts.row_of[1:]
        free_bar = memory.zeros("free_bar", *step.free.shape)
        y_bar_of, shift_bar_of = (memory.array(f"{name}_bar of bodies", n, width) for name in ("y", "shift"))
        self._finish(
            n, constants=numbers.links, free=step.free[1:], y=(step.solved.y, own), shift=(step.shift, own),
            q_bar=q_bar.reshape(n, -1), v_bar=v_bar.reshape(n, -1), free_bar=free_bar[1:], y_bar=y_bar_of,
            shift_bar=shift_bar_of, h=engine.h,
        )  # fmt: skip
        count = len(step.shift)
        y_bar, shift = memory.zeros("y_bar", 2, count, width), memory.array("shift and bar", count, 2 * width)
        shift[:, :width], shift[:, width:] = step.shift, 0.0
        nv = engine.body.nv
        y_bar[0, own, :nv], shift[own, width : width + nv] = y_bar_of[:, :nv], shift_bar_of[:, :nv]
        y_bar[0, 0], shift[0, width:] = 0.0, 0.0  # of what nothing touches
        records_bar = np.zeros_like(numbers.records)
        old_bar = np.zeros((old, engine.form.rows), engine.dtype)
        if step.contacts.count:
            touch_bar = None
            if forces_bar is not None:
                touch_bar, impulses_bar = self._pull_back_forces(numbers, step, forces_bar, impulses_bar)
            blocks = memory.array("blocks backwards", *step.blocks.shape)
            blocks[...] = step.blocks[::-1]
            pull_back = self._sweeps if step.exact is None else self._exact
            blocks_bar, first_bar = pull_back(memory, step, blocks, y_bar, shift, impulses_bar)
            self._contacts(memory, numbers, step, blocks, blocks_bar, touch_bar, free_bar, records_bar)
            if old:  # (places without an old impulse share its last row, that is zero)
                used = first_bar.transpose(0, 2, 1).reshape(-1, engine.form.rows)
                old_bar[step.contacts.at["old_at"][: len(used)]] = used
                old_bar[-1] = 0.0
        gradient = np.empty((n, sum(engine.body.inputs)), engine.dtype)
        rows = {"wrenches": wrench.reshape(n, 6)} if wrench is not None else {}
        self._bodies(
            n, constants=numbers.links, q=q.reshape(n, -1), v=v.reshape(n, -1), bars=free_bar[1:], gradient=gradient,
            h=engine.h, **rows,
        )  # fmt: skip
        links_bar, q_bar, v_bar, *rest = np.split(gradient, np.cumsum(engine.body.inputs)[:-1], axis=1)
        wrench_bar = rest[0].ravel() if rest else None
        return StepCotangents(q_bar.ravel(), v_bar.ravel(), wrench_bar, old_bar, links_bar, records_bar)

    def _pull_back_forces(
        self, numbers: Numbers, step: Outcome, forces_bar: Array, impulses_bar: Array | None
    ) -> tuple[Array, Array]:
        """Gradients with respect to the touches of contacts [n, 7] and to the table of impulses."""
        n, dtype = step.contacts.count, self.engine.dtype
        touch_bar, own_bar = np.empty((n, CONTACT_POINT), dtype), np.empty((n, self.engine.form.rows), dtype)
        self._forces(
            n, **self.engine.force_picks(numbers, step), out_bar=np.ascontiguousarray(forces_bar), touch_bar=touch_bar,
            impulses_bar=own_bar, h=self.engine.h,
        )  # fmt: skip
        total = np.zeros_like(step.impulses.table) if impulses_bar is None else impulses_bar.copy()
        total[step.contacts.place] += own_bar
        return touch_bar, total

    def _sweeps(
        self, memory: Memory, step: Outcome, blocks: Array, y_bar: Array, shift: Array, impulses_bar: Array | None
    ) -> tuple[Array, Array]:
        """Gradients with respect to the blocks (in reverse order, as they are given), and to the impulses that the
        sweeps started from."""
        engine, contacts, solved = self.engine, step.contacts, step.solved
        blocks_bar = memory.zeros("blocks_bar", *blocks.shape)
        if step.corrections is not None:
            self._correct(
                1, blocks=blocks, impulses=step.corrections, y=shift, starts=contacts.starts, ends=contacts.ends,
                deep=solved.deep, deep_packs=solved.deep_packs, made=step.corrections_made,
                impulses_bar=memory.zeros("corrections_bar", contacts.registers, engine.lanes), blocks_bar=blocks_bar,
                groups=contacts.groups, registers=contacts.registers,
            )  # fmt: skip
        bars = self._impulses_bar(memory, step, impulses_bar)
        self._solve(
            1, blocks=blocks, impulses=solved.history, y=solved.history_y, **contacts.where,
            momentum=engine.momentum, made=solved.made, paces=solved.paces, y_bar=y_bar, impulses_bar=bars,
            before_bar=memory.zeros("before_bar", *bars.shape), blocks_bar=blocks_bar,
            work=memory.array("work", contacts.rows, 2 * engine.stride), registers=contacts.registers,
            width=contacts.rows * engine.stride // engine.lanes, most=solved.most, ring=len(solved.history),
        )  # fmt: skip
        return blocks_bar, bars

    def _exact(
        self, memory: Memory, step: Outcome, blocks: Array, y_bar: Array, shift: Array, impulses_bar: Array | None
    ) -> tuple[Array, Array]:
        """As `_sweeps`, of a solution by `InteriorPoint`: it does not depend on where sweeps started."""
        exact, contacts, width = step.exact, step.contacts, self.engine.stride
        assert exact is not None
        blocks_bar, bars = memory.zeros("blocks_bar", *blocks.shape), self._impulses_bar(memory, step, impulses_bar)
        forwards = blocks_bar[::-1]
        velocities_adjoint(exact.places, exact.velocities, y_bar[0], bars, forwards)
        if exact.positions is not None:
            assert exact.deep is not None
            positions_adjoint(exact.places, exact.positions, exact.deep, shift[:, width:], forwards)
        return blocks_bar, memory.zeros("impulses_bar", contacts.registers, self.engine.form.rows, self.engine.lanes)

    def _impulses_bar(self, memory: Memory, step: Outcome, impulses_bar: Array | None) -> Array:
        """With respect to the impulses after a step, [register, row, lane]."""
        registers, rows, lanes = step.contacts.registers, self.engine.form.rows, self.engine.lanes
        bars = memory.zeros("impulses_bar", registers, rows, lanes)
        if impulses_bar is not None:
            bars[...] = impulses_bar[:-1].reshape(registers, lanes, rows).transpose(0, 2, 1)
        return bars

    def _contacts(
        self, memory: Memory, numbers: Numbers, step: Outcome, blocks: Array, blocks_bar: Array,
        direct_bar: Array | None, free_bar: Array, records_bar: Array,
    ) -> None:  # fmt: skip
        """From the blocks, and what depends on touches directly, to bodies (added to free_bar) and shapes (added to
        records_bar)."""
        engine, tables, contacts = self.engine, self.engine.tables, step.contacts
        places, wide = contacts.registers * engine.lanes, sum(engine.form.inputs[1:3])
        widths = {"body": wide, "matter": STUFF}
        both = {name: self._rows(memory, f"{name} of places", 2 * places, n) for name, n in widths.items()}
        bars = {f"{name}_a_bar": rows[:places] for name, rows in both.items()}
        bars |= {f"{name}_b_bar": rows[places:] for name, rows in both.items()}
        touch_bar = memory.array("touch_bar", places, CONTACT_RECORD)
        picks = engine.picks(numbers, step.free, step.touches, contacts)
        self._blocks(
            places, **picks, blocks=blocks, blocks_bar=blocks_bar, touch_bar=touch_bar, **bars,
            registers=contacts.registers, h=engine.h,
        )  # fmt: skip
        bodies_bar = self._rows(memory, "bodies_bar", tables.nbody + 1, wide, zero=True)
        matter_bar = self._rows(memory, "matter_bar", tables.nshape + 1, STUFF, zero=True)
        for name, end, totals in (("body", "body", bodies_bar), ("matter", "shape", matter_bar)):
            self._add_up(both[name], [contacts.at[f"{end}_{x}_at"][:places] for x in "ab"], totals)
        records_bar[:, layout.FRICTION : layout.FRICTION + STUFF] += matter_bar[:-1, :STUFF]
        touches_bar = memory.zeros("touches_bar", len(step.touches), CONTACT_POINT)
        touches_bar[contacts.slot] = touch_bar[contacts.place, :CONTACT_POINT]
        if direct_bar is not None:
            touches_bar[contacts.slot] += direct_bar
        solids_bar = self._pairs(memory, step, touches_bar)
        n = tables.nsolid
        own, place_bar = memory.array("own_bar", n, layout.SHAPE), self._rows(memory, "place_bar", n, 12)
        self._shapes(
            n, records=numbers.records, motion=(step.free, tables.body), solids_bar=solids_bar, records_bar=own,
            place_bar=place_bar,
        )  # fmt: skip
        placed_bar = self._rows(memory, "placed_bar", tables.nbody + 1, 12, zero=True)
        self._add_up(place_bar, [tables.body], placed_bar)
        free_bar[:, :wide] += bodies_bar[:, :wide]
        free_bar[:, :12] += placed_bar[:, :12]
        records_bar[:n] += own
        records_bar[n:, layout.PLACE : layout.PLACE + 3] += solids_bar[n:, :3]
        records_bar[n:, layout.SIZE : layout.SIZE + 3] += solids_bar[n:, 12:SOLID]

    def _pairs(self, memory: Memory, step: Outcome, touches_bar: Array) -> Array:
        """Gradients with respect to the shapes in the world."""
        pairs = step.pairs
        solids_bar = self._rows(memory, "solids_bar", self.engine.tables.nshape, SOLID, zero=True)
        touching = step.contacts.pair[np.diff(step.contacts.pair, prepend=-1) > 0]
        for group, features in zip(pairs.groups, step.features, strict=True):
            low, high = np.searchsorted(touching, (group.first, group.end))
            mine = touching[low:high]
            if not len(mine):
                continue
            slots = (pairs.first_slot[mine][:, None] + np.arange(group.slots)).ravel()
            seeds = touches_bar[slots].reshape(len(mine), -1)
            both, shapes = self._rows(memory, "solid_bar", 2 * len(mine), SOLID), [pairs.a[mine], pairs.b[mine]]
            self._meeting(group.a, group.b)(
                len(mine), solid_a=(step.solids, shapes[0]), solid_b=(step.solids, shapes[1]),
                features=(features, mine - group.first), touches_bar=seeds, solid_a_bar=both[: len(mine)],
                solid_b_bar=both[len(mine) :],
            )  # fmt: skip
            self._add_up(both, shapes, solids_bar)
        return solids_bar

    def _meeting(self, a: int, b: int) -> Stage:
        form = self.engine.pair_form(a, b)
        if form not in self._meetings:
            self._meetings[form] = self.engine.stage(kernels.pairs_adjoint, form, self.engine.meeting(a, b)[1])
        return self._meetings[form]

    def _rows(self, memory: Memory, name: str, count: int, width: int, zero: bool = False) -> Array:
        """[count, width], whole registers in each row; what fills them up was zero in the beginning, and stays so."""
        array = memory.array(name, count, -(-width // self.engine.lanes) * self.engine.lanes)
        if zero:
            array.fill(0.0)
        return array

    def _add_up(self, rows: Array, owners: list[Array], totals: Array) -> None:
        """totals[owner[i]] += rows[i]; the rows of several lists of owners follow each other."""
        width = rows.shape[1] // self.engine.lanes
        owner = np.concatenate(owners) if len(owners) > 1 else owners[0]
        self._sum(1, rows=rows, totals=totals, owner=owner, count=len(rows), width=width)
