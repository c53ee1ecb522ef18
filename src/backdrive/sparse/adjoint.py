"""The derivative of a step of one big world: its stages backwards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..model import layout
from ..physics import sparse_kernels as kernels
from ..physics.collision import TOUCH
from ..physics.sparse_contact import SOLID, STUFF, PairForm
from .memory import Memory
from .stages import Stage
from .step import Engine, Outcome
from .tables import Numbers

Array = np.ndarray


@dataclass
class Bars:
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
        self._blocks, self._solve, self._correct = (
            engine.stage(make, engine.form)
            for make in (kernels.contacts_adjoint, kernels.solving_adjoint, kernels.correcting_adjoint)
        )
        self._sum = engine.stage(kernels.summing)
        self._meetings: dict[PairForm, Stage] = {}

    def backward(
        self, memory: Memory, numbers: Numbers, step: Outcome, q: Array, v: Array, wrench: Array | None, q_bar: Array,
        v_bar: Array, impulses_bar: Array | None, old: int,
    ) -> Bars:  # fmt: skip
        """From the gradients after a step to those before it.

        step: with the impulses of all sweeps. impulses_bar: with respect to its table of impulses, or None; old: rows
        of the table of the step before.
        """
        engine, n, width = self.engine, self.engine.tables.nbody, self.engine.stride
        free_bar = memory.zeros("free_bar", *step.free.shape)
        y_bar, shift = memory.zeros("y_bar", 2, n + 1, width), memory.zeros("shift and bar", n + 1, 2 * width)
        shift[:, :width] = step.shift
        self._finish(
            n, constants=numbers.links, free=step.free[1:], y=step.y[step.made, 1:], shift=step.shift[1:],
            q_bar=q_bar.reshape(n, -1), v_bar=v_bar.reshape(n, -1), free_bar=free_bar[1:], y_bar=y_bar[0, 1:],
            shift_bar=shift[1:, width:], h=engine.h,
        )  # fmt: skip
        records_bar = np.zeros_like(numbers.records)
        old_bar = np.zeros((old, engine.form.rows), engine.dtype)
        if step.contacts.count:
            blocks_bar, first_bar = self._sweeps(memory, step, y_bar, shift, impulses_bar)
            self._contacts(memory, numbers, step, blocks_bar, free_bar, records_bar)
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
        return Bars(q_bar.ravel(), v_bar.ravel(), wrench_bar, old_bar, links_bar, records_bar)

    def _sweeps(
        self, memory: Memory, step: Outcome, y_bar: Array, shift: Array, impulses_bar: Array | None
    ) -> tuple[Array, Array]:
        """Gradients with respect to the blocks, and to the impulses that the sweeps started from."""
        engine, contacts, rows = self.engine, step.contacts, self.engine.form.rows
        blocks_bar = memory.zeros("blocks_bar", *step.blocks.shape)
        where = {"starts": contacts.starts, "ends": contacts.ends}
        if step.corrections is not None and step.chosen is not None:
            self._correct(
                1, blocks=step.blocks, impulses=step.corrections, y=shift, **where, chosen=step.chosen,
                impulses_bar=memory.zeros("corrections_bar", contacts.registers, engine.lanes), blocks_bar=blocks_bar,
                packs=len(step.chosen), made=step.corrections_made, step=contacts.registers,
            )  # fmt: skip
        bars = memory.zeros("impulses_bar", contacts.registers, rows, engine.lanes)
        if impulses_bar is not None:
            bars[...] = impulses_bar[:-1].reshape(contacts.registers, engine.lanes, rows).transpose(0, 2, 1)
        bodies = y_bar.shape[1]
        self._solve(
            1, blocks=step.blocks, impulses=step.history, y=step.y, **where, y_bar=y_bar,
            impulses_bar=bars, before_bar=memory.zeros("before_bar", *bars.shape), blocks_bar=blocks_bar,
            work=memory.array("work", bodies, 2 * engine.stride), packs=contacts.packs,
            width=bodies * engine.stride // engine.lanes, made=step.made, ring=len(step.history),
        )  # fmt: skip
        return blocks_bar, bars

    def _contacts(
        self, memory: Memory, numbers: Numbers, step: Outcome, blocks_bar: Array, free_bar: Array, records_bar: Array
    ) -> None:
        """From the blocks to bodies (added to free_bar) and shapes (added to records_bar)."""
        engine, tables, contacts = self.engine, self.engine.tables, step.contacts
        places, wide = contacts.registers * engine.lanes, sum(engine.form.inputs[1:3])
        bars = {f"body_{x}_bar": self._rows(memory, f"body_{x}_bar", places, wide) for x in "ab"}
        bars |= {f"matter_{x}_bar": self._rows(memory, f"matter_{x}_bar", places, STUFF) for x in "ab"}
        touch_bar = memory.array("touch_bar", places, TOUCH)
        picks = engine.picks(numbers, step.free, step.touches, contacts)
        self._blocks(
            places, **picks, blocks=step.blocks, blocks_bar=blocks_bar, touch_bar=touch_bar, **bars, h=engine.h
        )
        bodies_bar = self._rows(memory, "bodies_bar", tables.nbody + 1, wide)
        matter_bar = self._rows(memory, "matter_bar", tables.nshape + 1, STUFF)
        for x in "ab":
            self._add_up(bars[f"body_{x}_bar"], contacts.at[f"body_{x}_at"], bodies_bar)
            self._add_up(bars[f"matter_{x}_bar"], contacts.at[f"shape_{x}_at"], matter_bar)
        records_bar[:, layout.FRICTION : layout.FRICTION + STUFF] += matter_bar[:-1, :STUFF]
        touches_bar = memory.zeros("touches_bar", len(step.touches), TOUCH - 1)
        touches_bar[contacts.slot] = touch_bar[contacts.place, : TOUCH - 1]
        solids_bar = self._pairs(memory, step, touches_bar)
        n = tables.nsolid
        own, place_bar = memory.array("own_bar", n, layout.SHAPE), self._rows(memory, "place_bar", n, 12)
        self._shapes(
            n, records=numbers.records, motion=(step.free, tables.body), solids_bar=solids_bar, records_bar=own,
            place_bar=place_bar,
        )  # fmt: skip
        placed_bar = self._rows(memory, "placed_bar", tables.nbody + 1, 12)
        self._add_up(place_bar, tables.body, placed_bar)
        free_bar[:, :wide] += bodies_bar[:, :wide]
        free_bar[:, :12] += placed_bar[:, :12]
        records_bar[:n] += own
        records_bar[n:, layout.PLACE : layout.PLACE + 3] += solids_bar[n:, :3]
        records_bar[n:, layout.SIZE : layout.SIZE + 3] += solids_bar[n:, 12:SOLID]

    def _pairs(self, memory: Memory, step: Outcome, touches_bar: Array) -> Array:
        """Gradients with respect to the shapes in the world."""
        pairs = step.pairs
        solids_bar = self._rows(memory, "solids_bar", self.engine.tables.nshape, SOLID)
        touching = np.unique(step.contacts.pair)
        slot = np.cumsum(pairs.slots) - pairs.slots
        for group, features in zip(pairs.groups, step.features, strict=True):
            low, high = np.searchsorted(touching, (group.first, group.end))
            mine = touching[low:high]
            if not len(mine):
                continue
            count = int(pairs.slots[group.first])
            seeds = touches_bar[(slot[mine][:, None] + np.arange(count)).ravel()].reshape(len(mine), -1)
            bars = {x: self._rows(memory, f"solid_{x}_bar", len(mine), SOLID) for x in "ab"}
            shapes = {"a": pairs.a[mine], "b": pairs.b[mine]}
            self._meeting(group.a, group.b)(
                len(mine), solid_a=(step.solids, shapes["a"]), solid_b=(step.solids, shapes["b"]),
                features=(features, mine - group.first), touches_bar=seeds, solid_a_bar=bars["a"],
                solid_b_bar=bars["b"],
            )  # fmt: skip
            for x in "ab":
                self._add_up(bars[x], shapes[x], solids_bar)
        return solids_bar

    def _meeting(self, a: int, b: int) -> Stage:
        form = self.engine.pair_form(a, b)
        if form not in self._meetings:
            self._meetings[form] = self.engine.stage(kernels.pairs_adjoint, form, self.engine.meeting(a, b)[1])
        return self._meetings[form]

    def _rows(self, memory: Memory, name: str, count: int, width: int) -> Array:
        """Zeros [count, width], whole registers in each row."""
        return memory.zeros(name, count, -(-width // self.engine.lanes) * self.engine.lanes)

    def _add_up(self, rows: Array, owner: Array, totals: Array) -> None:
        """totals[owner[i]] += rows[i]"""
        width = rows.shape[1] // self.engine.lanes
        self._sum(1, rows=rows, totals=totals, owner=owner, count=len(rows), width=width)
