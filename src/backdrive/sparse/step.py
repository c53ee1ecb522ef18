"""One step of one big world, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..compiler.target import host
from ..model import Model, layout
from ..physics import sparse_kernels as kernels
from ..physics.collision import TOUCH
from ..physics.contact import ABOUT
from ..physics.gauss_seidel import ProjectedGaussSeidel
from ..physics.sparse_body import BodyForm
from ..physics.sparse_contact import BOX, SOLID, ContactForm, PairForm, to_hull
from ..physics.sparse_packs import OPEN, SLOTS
from ..physics.sparse_sweeps import stride
from ..physics.spatial import IDENTITY
from ..physics.step import Scheme
from .broad import Neighbours, Pairs
from .memory import Memory
from .stages import Stage
from .tables import Numbers, Tables

Array = np.ndarray
MODES = 8388593  # a prime that float32 can tell from its neighbours
COLD = 10  # times as many sweeps where the impulses of the step before are not known


@dataclass
class Impulses:
    """Of a step's contacts: their keys (growing), where their impulses stand in the table, and that table [n, rows],
    whose last row is zero."""

    key: Array
    place: Array
    table: Array


@dataclass
class Contacts:
    """What touches. slot: rows of `touches`; pair: of each; place: where it is solved (see `sparse_packs.arrange`).

    at: of every place, which touch, bodies, shapes and old impulse stand there.
    """

    count: int
    slot: Array
    pair: Array
    key: Array
    place: Array
    ends: Array
    starts: Array
    packs: int
    registers: int
    at: dict[str, Array] = field(repr=False)


@dataclass
class Outcome:
    """A step: the state after it, its impulses and status; and what its derivative reads, in memory that the next step
    uses again.

    made, history: sweeps, and the impulses of each; corrections: the same of positions, in the packs `chosen`.
    """

    q: Array
    v: Array
    impulses: Impulses
    status: tuple[float, ...]
    free: Array = field(repr=False)
    solids: Array = field(repr=False)
    pairs: Pairs = field(repr=False)
    touches: Array = field(repr=False)
    features: list[Array] = field(repr=False)
    contacts: Contacts = field(repr=False)
    blocks: Array = field(repr=False)
    y: Array = field(repr=False)
    shift: Array = field(repr=False)
    history: Array = field(repr=False)
    made: int
    corrections: Array | None = field(default=None, repr=False)
    corrections_made: int = 0
    chosen: Array | None = field(default=None, repr=False)


class Engine:
    """The stages of a model with one step, integrator and dtype."""

    def __init__(
        self, model: Model, h: float, scheme: Scheme, directions: int, bits: int, bounces: bool, wrenches: bool,
        lanes: int | None = None,
    ) -> None:  # fmt: skip
        assert scheme.stepping is not None and isinstance(scheme.stepping.solver, ProjectedGaussSeidel)
        self.h, self.bits, self.lanes = h, bits, lanes or host().lanes(bits)
        self.dtype = np.dtype(np.float64 if bits == 64 else np.float32)
        self.solver = scheme.stepping.solver
        self.body = BodyForm(model.dim, scheme.integrator, bounces, wrenches)
        self.form = ContactForm(self.body, 1 if model.dim == 2 else directions, model.combine, scheme.stepping)
        self.left = h * self.body.part_of_step()
        self.tables = Tables(model)
        self.stride = stride(self.body.nv, self.lanes)
        self._floats, self._bounds = (x.astype(self.dtype) for x in (self.tables.floats, self.tables.bounds))
        self._bodies, self._finish, self._shapes = (
            self.stage(make, self.body) for make in (kernels.bodies, kernels.finishing, kernels.shapes)
        )
        self._blocks, self._solve, self._correct = (
            self.stage(make, self.form) for make in (kernels.contacts, kernels.solving, kernels.correcting)
        )
        self._arrange, self._near, self._near_plane = (
            self.stage(make) for make in (kernels.arranging, kernels.near, kernels.near_plane)
        )
        self._meetings: dict[PairForm, tuple[Stage, int]] = {}

    def stage(self, make: Any, *form: Any) -> Stage:
        return Stage(make, *form, bits=self.bits, lanes=self.lanes)

    def neighbours(self) -> Neighbours:
        """The broad phase of a world that has not been stepped yet."""
        return Neighbours(self.tables, self._near, self._near_plane)

    def forward(
        self, memory: Memory, near: Neighbours, numbers: Numbers, q: Array, v: Array, wrench: Array | None,
        warm: Impulses | None, keep: bool = False,
    ) -> Outcome:  # fmt: skip
        """From (q, v), with the impulses of the step before; keep: those of all sweeps."""
        free = self.free_motion(memory, numbers, q, v, wrench)
        solids, boxes = self.place_shapes(memory, numbers, free)
        pairs = near.find(memory, solids, boxes)
        touches, features = self.meet(memory, numbers, free, solids, pairs)
        contacts = self.arrange(memory, pairs, touches, warm)
        most = self.solver.iterations * (COLD if warm is None else 1)
        ring = most + 2 if keep else 2
        history = memory.array("history", ring, contacts.registers, self.form.rows, self.lanes)
        blocks = self.make_blocks(memory, numbers, free, touches, contacts, warm, history)
        y, made, residual = self.solve(memory, contacts, blocks, history, most)
        shift, *corrected = self.correct(memory, contacts, blocks, keep)
        q, v = np.empty_like(q), np.empty_like(v)
        self._finish(
            self.tables.nbody, constants=numbers.links, free=free[1:], y=y[made % ring, 1:], shift=shift[1:],
            q=q.reshape(-1, self.body.nq), v=v.reshape(-1, self.body.nv), h=self.h,
        )  # fmt: skip
        impulses = self.impulses(contacts, history[made % ring])
        status = self.status(q, v, residual, contacts, impulses, touches, blocks)
        return Outcome(
            q, v, impulses, status, free, solids, pairs, touches, features, contacts, blocks, y, shift, history, made,
            *corrected,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------ bodies and shapes

    def free_motion(self, memory: Memory, numbers: Numbers, q: Array, v: Array, wrench: Array | None) -> Array:
        """`sparse_body.free_motion` of all bodies, the world first: [nbody + 1, n]."""
        free = memory.array("free", self.tables.nbody + 1, -(-sum(self.body.outputs) // self.lanes) * self.lanes)
        free[0] = 0.0
        free[0, :9] = IDENTITY
        rows = {"wrenches": wrench.reshape(-1, 6)} if wrench is not None else {}
        self._bodies(
            self.tables.nbody, constants=numbers.links, q=q.reshape(-1, self.body.nq), v=v.reshape(-1, self.body.nv),
            out=free[1:], h=self.h, **rows,
        )  # fmt: skip
        return free

    def place_shapes(self, memory: Memory, numbers: Numbers, free: Array) -> tuple[Array, Array]:
        """All shapes in the world [nshape, SOLID], and boxes (BOX) around those that are no planes."""
        tables, n = self.tables, self.tables.nsolid
        solids, boxes = memory.array("solids", tables.nshape, SOLID + 1), memory.array("boxes", n, BOX + 1)
        planes = numbers.records[n:]
        solids[n:, :3], solids[n:, 3:12] = planes[:, layout.PLACE : layout.PLACE + 3], IDENTITY
        solids[n:, 12:SOLID] = planes[:, layout.SIZE : layout.SIZE + 3]
        self._shapes(
            n, records=numbers.records, matter=numbers.matter, bounds=self._bounds, motion=(free, tables.body),
            solids=solids, boxes=boxes, h=self.h,
        )  # fmt: skip
        return solids, boxes

    # ------------------------------------------------------------------------------------------ pairs

    def meet(
        self, memory: Memory, numbers: Numbers, free: Array, solids: Array, pairs: Pairs
    ) -> tuple[Array, list[Array]]:
        """TOUCH numbers of all slots of all pairs, and a last row of zeros; features, by groups."""
        tables, at = self.tables, 0
        touches = memory.array("touches", int(pairs.slots.sum()) + 1, TOUCH)
        touches[-1] = 0.0
        features: list[Array] = []
        for k, group in enumerate(pairs.groups):
            n, slots = group.end - group.first, int(pairs.slots[group.first])
            stage, width = self.meeting(group.a, group.b)
            features.append(memory.array(f"features {k}", n, max(1, width)))
            values: dict[str, Any] = {}
            for end, shape, of_class in zip("ab", (pairs.a, pairs.b), group[2:], strict=True):
                shapes = shape[group.first : group.end]
                values |= {f"solid_{end}": (solids, shapes), f"motion_{end}": (free, tables.body[shapes])}
                values[f"matter_{end}"] = numbers.matter, shapes
                hull = zip(kernels.HULL, tables.class_hull[of_class], strict=True)
                values |= {f"{name}_{end}": x for name, x in hull}
            found = touches[at : at + n * slots].reshape(n, slots * TOUCH)
            stage(n, **values, touches=found, features=features[k], floats=self._floats, left=self.left)
            at += n * slots
        return touches, features

    def pair_form(self, a: int, b: int) -> PairForm:
        """Of pairs of two classes of shapes."""
        tables = self.tables
        kinds = tables.class_kind[a], tables.class_kind[b]
        return PairForm(self.body.dim, kinds, self.body.motion, tables.class_cube[a] and tables.class_cube[b])

    def meeting(self, a: int, b: int) -> tuple[Stage, int]:
        """The stage for pairs of two classes of shapes, and how many numbers their features have."""
        form, tables = self.pair_form(a, b), self.tables
        if form not in self._meetings:
            width = form.features(*(to_hull(tables.floats, tables.class_hull[k]) for k in (a, b)))
            self._meetings[form] = self.stage(kernels.pairs, form), width
        return self._meetings[form]

    # ------------------------------------------------------------------------------------------ contacts

    def arrange(self, memory: Memory, pairs: Pairs, touches: Array, warm: Impulses | None) -> Contacts:
        """The contacts, and the order in which they are solved."""
        tables = self.tables
        slot = (touches[:-1, TOUCH - 1] > 0.5).nonzero()[0]
        pair = np.repeat(np.arange(len(pairs.slots)), pairs.slots)[slot]
        first = np.cumsum(pairs.slots) - pairs.slots
        key = pairs.key[pair] * SLOTS + (slot - first[pair])
        n = len(slot)
        place, sizes, starts = np.empty(n, np.int64), np.empty(2, np.int64), memory.integers("starts", n + 1)
        ends = memory.integers("ends", n * 2 * self.lanes)
        at = {name: memory.integers(name, n * self.lanes) for name in kernels.ARRANGED}
        old_key, old_place, none = (warm.key, warm.place, len(warm.table) - 1) if warm else (place, place, 0)
        self._arrange(
            1, slot=slot, pair=pair, key=key, body_a=tables.body[pairs.a], body_b=tables.body[pairs.b],
            shape_a=pairs.a, shape_b=pairs.b, old_key=old_key, old_place=old_place, ends=ends, starts=starts,
            place=place, **at, sizes=sizes, contacts=n, old=len(warm.key) if warm else 0, bodies=tables.nbody + 1,
            lanes=self.lanes, open=OPEN, no_touch=len(touches) - 1, no_shape=tables.nshape, no_old=none,
        )  # fmt: skip
        packs, registers = sizes.tolist()
        return Contacts(n, slot, pair, key, place, ends, starts[: packs + 1], packs, registers, at)

    def picks(self, numbers: Numbers, free: Array, touches: Array, contacts: Contacts) -> dict[str, Any]:
        """What the block of every place is made of."""
        at = contacts.at
        return {
            "touch": (touches, at["touch_at"]), "body_a": (free, at["body_a_at"]), "body_b": (free, at["body_b_at"]),
            "matter_a": (numbers.matter, at["shape_a_at"]), "matter_b": (numbers.matter, at["shape_b_at"]),
        }  # fmt: skip

    def make_blocks(
        self, memory: Memory, numbers: Numbers, free: Array, touches: Array, contacts: Contacts, warm: Impulses | None,
        history: Array,
    ) -> Array:  # fmt: skip
        """`sparse_contact.contact_block` of every place, and the impulses of the step before, in `history`."""
        blocks = memory.array("blocks", contacts.registers, sum(self.form.block), self.lanes)
        if contacts.count:
            old = np.zeros((1, self.form.rows), self.dtype) if warm is None else warm.table
            picks = self.picks(numbers, free, touches, contacts) | {"old": (old, contacts.at["old_at"])}
            self._blocks(contacts.registers * self.lanes, **picks, blocks=blocks, impulses=history, h=self.h)
        return blocks

    def solve(
        self, memory: Memory, contacts: Contacts, blocks: Array, history: Array, most: int
    ) -> tuple[Array, int, float]:
        """Sweeps over all contacts: y of the bodies [sweep, body, stride], how many sweeps, and the residual."""
        ring, bodies = len(history), self.tables.nbody + 1
        y = memory.array("y", ring, bodies, self.stride)
        if not contacts.count:
            y[0] = 0.0
            return y, 0, 0.0
        b, rows = sum(self.form.block[:2]), self.form.rows
        speeds = blocks[:, b : b + rows]
        fastest = 1.0 + max(float(speeds.max()), -float(speeds.min()))
        made, worst = np.empty(1, np.int64), memory.array("worst", self.lanes)
        self._solve(
            1, blocks=blocks, impulses=history, y=y, worst=worst, starts=contacts.starts, ends=contacts.ends, made=made,
            packs=contacts.packs, width=bodies * self.stride // self.lanes, most=most, ring=ring,
            tolerance=self.solver.tolerance * fastest,
        )  # fmt: skip
        return y, int(made[0]), float(worst.max()) / fastest

    def correct(self, memory: Memory, contacts: Contacts, blocks: Array, keep: bool) -> tuple[Any, ...]:
        """Sweeps that move bodies out of penetrations: y of that motion; impulses, how many sweeps, and packs."""
        shift = memory.zeros("shift", self.tables.nbody + 1, self.stride)
        deep = np.flatnonzero((blocks[:, -1] < 0.0).any(axis=1))
        if not len(deep):
            return shift, None, 0, None
        chosen = np.unique(np.searchsorted(contacts.starts, deep, side="right") - 1)
        most = self.solver.iterations
        history = memory.array("corrections", most + 1 if keep else 1, contacts.registers, self.lanes)
        history[0] = 0.0
        made = np.empty(1, np.int64)
        self._correct(
            1, blocks=blocks, impulses=history, y=shift, starts=contacts.starts, ends=contacts.ends, chosen=chosen,
            made=made, packs=len(chosen), most=most, step=contacts.registers if keep else 0,
            tolerance=self.solver.tolerance,
        )  # fmt: skip
        return shift, history, int(made[0]), chosen

    def impulses(self, contacts: Contacts, last: Array) -> Impulses:
        table = np.zeros((contacts.registers * self.lanes + 1, self.form.rows), self.dtype)
        table[:-1].reshape(contacts.registers, self.lanes, self.form.rows)[...] = last.transpose(0, 2, 1)
        return Impulses(contacts.key, contacts.place, table)

    def status(
        self, q: Array, v: Array, residual: float, contacts: Contacts, impulses: Impulses, touches: Array, blocks: Array
    ) -> tuple[float, ...]:
        """As `physics.step.step` has it: motors that are clipped and impacts there are none."""
        finite = float(np.isfinite(q.sum() + v.sum()))
        depth = max(0.0, -float(touches[contacts.slot, 0].min(initial=0.0)))
        pressing = float(np.count_nonzero(impulses.table[:, 0] > 0.0))
        modes = self.mode_number(contacts, impulses, blocks)
        return finite, 0.0, residual, pressing, depth, modes, 0.0, 0.0, 0.0, 0.0

    def mode_number(self, contacts: Contacts, impulses: Impulses, blocks: Array) -> float:
        """A number that changes if a contact comes or goes, presses or not, sticks or slides, or has penetrated."""
        impulse = impulses.table[:-1].T
        most = (1.0 - ABOUT) * blocks[:, -2].reshape(-1) * impulse[0]
        code = (impulse[0] > 0.0) + 2 * (blocks[:, -1].reshape(-1) < 0.0)
        for x in impulse[1:]:
            code = 3 * code + (x >= most) - (x <= -most)
        return float(np.dot(code[contacts.place] + 1, contacts.key % MODES + 1) % MODES)
