"""One step of one big world, stage by stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..backends.llvm_cpu.target import host
from ..model import Model
from ..physics.constraints.forces import FORCE
from ..physics.geometry.solids import ACTIVE, CONTACT_RECORD, GAP
from ..physics.math.spatial import IDENTITY
from ..physics.scheme import Scheme
from ..physics.solvers.gauss_seidel import ProjectedGaussSeidel
from ..physics.solvers.interior_point import InteriorPoint
from ..schema import layout
from . import kernels
from .bodies import BodyForm
from .broad import Neighbours, Pairs
from .contacts import BOX, SOLID, ContactForm, PairForm, to_hull
from .interior_point import solve as solve_positions
from .interior_step import Places, solve_velocities
from .memory import Memory
from .modes import Solution
from .packs import OPEN, SLOTS
from .stages import Stage
from .sweeps import MOMENTUM, PERIOD, stride
from .tables import Numbers, Tables

Array = np.ndarray
MODES = 8388593  # a prime that float32 can tell from its neighbours
COLD = 10  # times as many sweeps where the impulses of the step before are not known
START = 100  # sweeps that find where an interior point starts,
AGAIN = 30000  # and so many more, from where it starts again if that did not lead to a solution


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

    at: of every place, which touch, bodies, shapes and old impulse stand there. weights: of every place, for
    `Engine.mode_number`.
    """

    count: int
    slot: Array
    pair: Array
    key: Array
    place: Array
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
    weights: Array = field(repr=False)

    @property
    def where(self) -> dict[str, Any]:
        """Packs and groups, as the sweeps are told."""
        return {
            "starts": self.starts, "ends": self.ends, "group_packs": self.group_packs, "group_rows": self.group_rows,
            "groups": self.groups,
        }  # fmt: skip

    def started_from(self, old_at: Array) -> Contacts:
        """The same ones, from other impulses."""
        return replace(self, at=self.at | {"old_at": old_at})


@dataclass
class Outcome:
    """A step: the state after it, its impulses and status; and what its derivative reads, in the memory that it was
    given.

    shift: y of corrected positions. corrections: impulses of every sweep for these, if there are any, and
    corrections_made: how many, in every group. exact: what `InteriorPoint` found, if it was asked for.
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
    solved: Solved = field(repr=False)
    shift: Array = field(repr=False)
    corrections: Array | None = field(repr=False)
    corrections_made: Array = field(repr=False)
    exact: Exact | None = field(repr=False)


@dataclass
class Exact:
    """Of velocities, and of positions if something has penetrated: `deep` contacts."""

    places: Places
    velocities: Solution
    positions: Solution | None = None
    deep: Array | None = None


@dataclass
class Solved:
    """What the sweeps came to: impulses [register, row, lane] and y [row, stride] after the last one, `modes` and
    `residual`; and how: made, how many in every group, paces, with what momentum, and history, history_y, their
    impulses and y, for up to `most`. deep, deep_packs: where something has penetrated."""

    impulses: Array
    y: Array
    modes: Array
    residual: float
    made: Array
    paces: Array
    history: Array
    history_y: Array
    most: int
    deep: Array
    deep_packs: Array


class Engine:
    """The stages of a model with one step, integrator and dtype."""

    def __init__(
        self, model: Model, h: float, scheme: Scheme, directions: int, bits: int, bounces: bool, wrenches: bool,
        lanes: int | None = None,
    ) -> None:  # fmt: skip
        assert scheme.contact_model is not None
        self.h, self.bits, self.lanes = h, bits, lanes or host().lanes(bits)
        self.dtype = np.dtype(np.float64 if bits == 64 else np.float32)
        self.solver = scheme.contact_model.solver
        self.interior = self.solver if isinstance(self.solver, InteriorPoint) else None
        self.sweeps = self.solver.iterations if isinstance(self.solver, ProjectedGaussSeidel) else START
        self.body = BodyForm(model.dim, scheme.integrator, bounces, wrenches)
        self.form = ContactForm(self.body, 1 if model.dim == 2 else directions, model.combine, scheme.contact_model)
        self.left = h * self.body.part_of_step()
        self.tables = Tables(model)
        self.stride = stride(self.body.nv, self.lanes)
        self.momentum = np.array(MOMENTUM, self.dtype)
        self._floats, self._bounds = (x.astype(self.dtype) for x in (self.tables.floats, self.tables.bounds))
        self._bodies, self._finish, self._shapes = (
            self.stage(make, self.body) for make in (kernels.bodies, kernels.finishing, kernels.shapes)
        )
        self._blocks, self._solve, self._correct, self._forces = (
            self.stage(make, self.form)
            for make in (kernels.contacts, kernels.solving, kernels.correcting, kernels.forces)
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
        solids, boxes = self.place_shapes(memory, numbers, free, near.boxes)
        pairs = near.find(memory, solids, boxes)
        touches, features = self.meet(memory, numbers, free, solids, pairs)
        contacts = self.arrange(pairs, touches, warm)
        most = self.sweeps * (COLD if warm is None else 1)
        keep = keep and self.interior is None  # whose derivative is that of its solution
        history = memory.array("history", most + 2 if keep else 2, contacts.registers, self.form.rows, self.lanes)
        blocks = self.make_blocks(memory, numbers, free, touches, contacts, warm, history)
        solved, exact = self.solve(memory, contacts, blocks, history, most), None
        if self.interior is not None:
            solved, exact = self.solve_exactly(memory, contacts, blocks, solved, self.interior)
            shift, corrections, corrections_made = self.correct_exactly(memory, contacts, blocks, exact, self.interior)
        else:
            shift, corrections, corrections_made = self.correct(memory, contacts, blocks, solved, keep)
        q, v, own = np.empty_like(q), np.empty_like(v), contacts.row_of[1:]
        self._finish(
            self.tables.nbody, constants=numbers.links, free=free[1:], y=(solved.y, own), shift=(shift, own),
            q=q.reshape(-1, self.body.nq), v=v.reshape(-1, self.body.nv), h=self.h,
        )  # fmt: skip
        impulses = self.impulses(contacts, solved.impulses)
        status = self.status(q, v, contacts, solved, touches)
        return Outcome(
            q, v, impulses, status, free, solids, pairs, touches, features, contacts, blocks, solved, shift,
            corrections, corrections_made, exact,
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

    def place_shapes(self, memory: Memory, numbers: Numbers, free: Array, wide: Array) -> tuple[Array, Array]:
        """All shapes in the world [nshape, SOLID], and boxes (BOX) around those that are no planes; a last number is 1
        where they are in the wide ones."""
        tables, n = self.tables, self.tables.nsolid
        solids, boxes = memory.array("solids", tables.nshape, SOLID + 1), memory.array("boxes", n, BOX + 1)
        planes = numbers.records[n:]
        solids[n:, :3], solids[n:, 3:12] = planes[:, layout.PLACE : layout.PLACE + 3], IDENTITY
        solids[n:, 12:SOLID] = planes[:, layout.SIZE : layout.SIZE + 3]
        self._shapes(
            n, records=numbers.records, matter=numbers.matter, bounds=self._bounds, wide=wide,
            motion=(free, tables.body), solids=solids, boxes=boxes, h=self.h,
        )  # fmt: skip
        return solids, boxes

    # ------------------------------------------------------------------------------------------ pairs

    def meet(
        self, memory: Memory, numbers: Numbers, free: Array, solids: Array, pairs: Pairs
    ) -> tuple[Array, list[Array]]:
        """CONTACT_RECORD numbers of all slots of all pairs, and a last row of zeros; features, by groups."""
        touches = memory.array("touches", len(pairs.pair_of_slot) + 1, CONTACT_RECORD)
        touches[-1] = 0.0
        read = free, solids, touches, numbers.matter
        if pairs.meetings is None or any(x is not y for x, y in zip(read, pairs.meetings[0], strict=True)):
            pairs.meetings = read, *self._meetings_of(memory, numbers, free, solids, pairs, touches)
        _, calls, features = pairs.meetings
        for call in calls:
            call()
        return touches, features

    def _meetings_of(
        self, memory: Memory, numbers: Numbers, free: Array, solids: Array, pairs: Pairs, touches: Array
    ) -> tuple[list[Callable[[], None]], list[Array]]:
        """A call for every group of pairs, and where it puts the features."""
        tables, at = self.tables, 0
        calls, features = [], []
        for k, group in enumerate(pairs.groups):
            n = group.end - group.first
            stage, width = self.meeting(group.a, group.b)
            features.append(memory.array(f"features {k}", n, max(1, width)))
            values: dict[str, Any] = {}
            for end, shapes, bodies, of_class in zip("ab", group.shapes, group.bodies, group[2:4], strict=True):
                values |= {f"solid_{end}": (solids, shapes), f"motion_{end}": (free, bodies)}
                values[f"matter_{end}"] = numbers.matter, shapes
                hull = zip(kernels.HULL, tables.class_hull[of_class], strict=True)
                values |= {f"{name}_{end}": x for name, x in hull}
            found = touches[at : at + n * group.slots].reshape(n, group.slots * CONTACT_RECORD)
            values |= {"touches": found, "features": features[k], "floats": self._floats, "left": self.left}
            calls.append(stage.prepare(n, **values))
            at += n * group.slots
        return calls, features

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

    def arrange(self, pairs: Pairs, touches: Array, warm: Impulses | None) -> Contacts:
        """The contacts, and the order in which they are solved."""
        slot = (touches[:-1, ACTIVE] > 0.5).nonzero()[0]
        known = pairs.arranged
        if known is not None and np.array_equal(slot, known.slot):
            if warm is None:
                return known.started_from(np.zeros(len(known.weights), np.int64))
            if warm.key is known.key or np.array_equal(warm.key, known.key):
                return known.started_from(known.at["own"])  # in the step before, everything had the same place
        pair = pairs.pair_of_slot[slot]
        key = pairs.key[pair] * SLOTS + (slot - pairs.first_slot[pair])
        pairs.arranged = self._arranged(pairs, slot, pair, key, len(touches) - 1, warm)
        return pairs.arranged

    def _arranged(
        self, pairs: Pairs, slot: Array, pair: Array, key: Array, no_touch: int, warm: Impulses | None
    ) -> Contacts:
        """In memory of their own: later steps may have the same ones."""
        tables, n, memory = self.tables, len(slot), Memory(self.dtype)
        place, sizes = np.empty(n, np.int64), np.empty(4, np.int64)
        names = {"starts": n + 1, "group_packs": n + 1, "group_rows": n + 1, "row_of": tables.nbody + 1}
        into = {name: memory.integers(name, count) for name, count in names.items()}
        ends = memory.integers("ends", n * 2 * self.lanes)
        at = {name: memory.integers(name, n * self.lanes) for name in kernels.ARRANGED}
        old_key, old_place, none = (warm.key, warm.place, len(warm.table) - 1) if warm else (place, place, 0)
        self._arrange(
            1, slot=slot, pair=pair, key=key, body_a=pairs.body_a, body_b=pairs.body_b, shape_a=pairs.a,
            shape_b=pairs.b, old_key=old_key, old_place=old_place, ends=ends, **into, place=place, **at, sizes=sizes,
            contacts=n, old=len(warm.key) if warm else 0, bodies=tables.nbody + 1, lanes=self.lanes, open=OPEN,
            no_touch=no_touch, no_shape=tables.nshape, no_old=none,
        )  # fmt: skip
        packs, registers, groups, rows = sizes.tolist()
        places = registers * self.lanes
        at["own"] = np.full(places, places)
        at["own"][place] = place
        weights = np.zeros(places)
        weights[place] = key % MODES + 1
        return Contacts(
            n, slot, pair, key, place, ends, **into, packs=packs, registers=registers, groups=groups, rows=rows, at=at,
            weights=weights,
        )  # fmt: skip

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

    def solve(self, memory: Memory, contacts: Contacts, blocks: Array, history: Array, most: int) -> Solved:
        """Sweeps over all contacts."""
        ring, rows, registers, groups = len(history), contacts.rows, contacts.registers, contacts.groups
        history_y = memory.array("history y", ring, rows, self.stride)
        final = memory.array("impulses", registers, self.form.rows, self.lanes)
        final_y = memory.array("y", max(1, rows), self.stride)
        modes, worst = memory.array("modes", registers, self.lanes), memory.array("worst", self.lanes)
        made, deep = memory.integers("made", groups), memory.integers("deep", contacts.packs)
        paces = memory.zeros("paces", groups, most // PERIOD + 1, dtype=np.int64)
        deep_packs = memory.integers("deep packs", groups + 1)
        residual = 0.0
        if contacts.count:
            b = sum(self.form.block[:2])
            speeds = blocks[:, b : b + self.form.rows]
            fastest = 1.0 + max(float(speeds.max()), -float(speeds.min()))
            self._solve(
                1, blocks=blocks, impulses=history, y=history_y, **contacts.where, momentum=self.momentum, final=final,
                final_y=final_y, modes=modes, worst=worst, made=made, paces=paces, deep=deep, deep_packs=deep_packs,
                registers=registers, width=rows * self.stride // self.lanes, most=most, ring=ring,
                tolerance=self.solver.tolerance * fastest,
            )  # fmt: skip
            residual = float(worst.max()) / fastest
        else:
            final_y[0], deep_packs[0] = 0.0, 0
        return Solved(final, final_y, modes, residual, made, paces, history, history_y, most, deep, deep_packs)

    def correct(
        self, memory: Memory, contacts: Contacts, blocks: Array, solved: Solved, keep: bool
    ) -> tuple[Array, Array | None, Array]:
        """Sweeps that move bodies out of penetrations: y of that motion; impulses, and how many sweeps."""
        shift = memory.zeros("shift", max(1, contacts.rows), self.stride)
        made = memory.integers("corrections made", contacts.groups)
        if not solved.deep_packs[-1]:
            return shift, None, made
        most = self.sweeps
        history = memory.array("corrections", most + 1 if keep else 1, contacts.registers, self.lanes)
        history[0] = 0.0
        self._correct(
            1, blocks=blocks, impulses=history, y=shift, starts=contacts.starts, ends=contacts.ends, deep=solved.deep,
            deep_packs=solved.deep_packs, made=made, groups=contacts.groups, most=most,
            step=contacts.registers if keep else 0, tolerance=self.solver.tolerance,
        )  # fmt: skip
        return shift, history, made

    def solve_exactly(
        self, memory: Memory, contacts: Contacts, blocks: Array, swept: Solved, solver: InteriorPoint
    ) -> tuple[Solved, Exact | None]:
        """By `InteriorPoint`, from where sweeps came to; what is not finite stays as it is."""
        if not contacts.count or not np.isfinite(blocks).all():
            return swept, None
        places = Places(self.form, contacts, self.lanes)
        history = swept.history

        def sweep() -> Array:
            history[0] = swept.impulses
            return places.take(self.solve(memory, contacts, blocks, history, AGAIN).impulses)

        found = solve_velocities(places.network(blocks), solver, places.take(swept.impulses), sweep)
        places.put(history[0], found.impulses)
        return self.solve(memory, contacts, blocks, history, 0), Exact(places, found)

    def correct_exactly(
        self, memory: Memory, contacts: Contacts, blocks: Array, exact: Exact | None, solver: InteriorPoint
    ) -> tuple[Array, None, Array]:
        """As `correct`."""
        shift = memory.zeros("shift", max(1, contacts.rows), self.stride)
        if exact is not None:
            deep = exact.places.deep(blocks)
            if len(deep):
                network = exact.places.deep_network(blocks, deep)
                exact.positions, exact.deep = solve_positions(network, solver), deep
                exact.places.put_y(network, network.push(exact.positions.impulses), shift)
        return shift, None, memory.integers("corrections made", contacts.groups)

    def impulses(self, contacts: Contacts, last: Array) -> Impulses:
        table = np.empty((contacts.registers * self.lanes + 1, self.form.rows), self.dtype)
        table[:-1].reshape(contacts.registers, self.lanes, self.form.rows)[...] = last.transpose(0, 2, 1)
        table[-1] = 0.0
        return Impulses(contacts.key, contacts.place, table)

    def force_picks(self, numbers: Numbers, step: Outcome) -> dict[str, Any]:
        """What the force of every contact is made of."""
        contacts = step.contacts
        shapes = {end: contacts.at[f"shape_{end}_at"][contacts.place] for end in "ab"}
        return {
            "touch": (step.touches, contacts.slot), "impulses": (step.impulses.table, contacts.place),
            "matter_a": (numbers.matter, shapes["a"]), "matter_b": (numbers.matter, shapes["b"]),
        }  # fmt: skip

    def forces(self, numbers: Numbers, step: Outcome) -> Array:
        """FORCE numbers of every contact, in the order of their keys."""
        out = np.empty((step.contacts.count, FORCE), self.dtype)
        if step.contacts.count:
            self._forces(step.contacts.count, **self.force_picks(numbers, step), out=out, h=self.h)
        return out

    def status(self, q: Array, v: Array, contacts: Contacts, solved: Solved, touches: Array) -> tuple[float, ...]:
        """As `physics.step.step` has it: motors that are clipped and impacts there are none."""
        finite = float(np.isfinite(q.sum() + v.sum()))
        depth = max(0.0, -float(touches[contacts.slot, GAP].min(initial=0.0)))
        pressing = float(np.count_nonzero(solved.impulses[:, 0] > 0.0))
        modes = self.mode_number(contacts, solved.modes)
        return finite, 0.0, solved.residual, pressing, depth, modes, 0.0, 0.0, 0.0, 0.0

    def mode_number(self, contacts: Contacts, modes: Array) -> float:
        """A number that changes if a contact comes or goes, presses or not, sticks or slides, or has penetrated."""
        return float(np.dot(modes.reshape(-1) + 1.0, contacts.weights) % MODES)
