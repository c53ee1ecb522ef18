"""The kernels of one big world, stage by stage: lanes are its bodies, shapes, pairs of shapes, or contacts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..backends import Integer, Ints, Kernel, Number, Packs, Picked, Rows, Table
from ..ir import pack_number, select, vjp
from ..model.shapes import BOUND
from ..physics.constraints.forces import FORCE
from ..physics.geometry.solids import ACTIVE, CONTACT_POINT, CONTACT_RECORD, Hull
from ..physics.math.arrays import split
from ..schema import layout
from . import packs as sparse_packs
from . import sweeps as sparse_sweeps
from .bodies import BodyForm, finish, finish_inputs, free_motion
from .contacts import (
    BOX,
    MATTER,
    SOLID,
    STUFF,
    ContactForm,
    PairForm,
    are_near,
    bounding_box,
    contact_block,
    contact_force,
    is_near_plane,
    is_within,
    meet,
    point_numbers,
    solid_of,
    to_solid,
)

HULL = ("vertices", "vertex_count", "faces", "face_count", "edges", "edge_count")


def _kernel(name: str, form: Any, arguments: Sequence[Any], body: Callable[..., None], unroll: bool = False) -> Kernel:
    return Kernel(f"sparse_{name}", arguments, body, unroll=unroll, key=repr(form))


def _gather(a: dict[str, Any], names: Sequence[str], sizes: Sequence[int]) -> list[Any]:
    return [x for name, size in zip(names, sizes, strict=True) for x in a[name].get(0, size)]


# ------------------------------------------------------------------------------------------ bodies


def _body_rows(form: BodyForm) -> list[str]:
    return ["constants", "q", "v", *(["wrenches"] if form.wrenches else [])]


@functools.cache
def bodies(form: BodyForm) -> Kernel:
    """Of every body: `free_motion`."""
    names = _body_rows(form)

    def body(**a: Any) -> None:
        a["out"].put(0, free_motion(form, a["h"])(*_gather(a, names, form.inputs)))

    return _kernel("bodies", form, [*map(Rows, names), Rows("out", writable=True), Number("h")], body, unroll=True)


@functools.cache
def bodies_adjoint(form: BodyForm) -> Kernel:
    """gradient: of constants, q, v (, wrench), from the bars of `free_motion`."""
    names = _body_rows(form)

    def body(**a: Any) -> None:
        seeds = a["bars"].get(0, sum(form.outputs))
        _, gradient = vjp(free_motion(form, a["h"]), _gather(a, names, form.inputs), seeds)
        a["gradient"].put(0, gradient)

    arguments = [*map(Rows, names), Rows("bars"), Rows("gradient", writable=True), Number("h")]
    return _kernel("bodies_adjoint", form, arguments, body, unroll=True)


FINISH = ("constants", "free", "y", "shift")
FINISH_ROWS = [Rows("constants"), Rows("free"), Picked("y"), Picked("shift")]


def _finish_inputs(form: BodyForm, a: dict[str, Any]) -> list[Any]:
    return _gather(a, FINISH, (layout.LINK, sum(form.outputs), form.nv, form.nv))


@functools.cache
def finishing(form: BodyForm) -> Kernel:
    """Of every body: the state after the step; `free`: from `bodies`."""

    def body(**a: Any) -> None:
        state = finish(form, a["h"] * form.part_of_step())(*_finish_inputs(form, a))
        a["q"].put(0, state[: form.nq])
        a["v"].put(0, state[form.nq :])

    outputs = [Rows("q", writable=True), Rows("v", writable=True)]
    return _kernel("finish", form, [*FINISH_ROWS, *outputs, Number("h")], body, unroll=True)


@functools.cache
def finishing_adjoint(form: BodyForm) -> Kernel:
    """free_bar, y_bar, shift_bar: gradients with respect to what `finishing` reads."""

    def body(**a: Any) -> None:
        seeds = (*a["q_bar"].get(0, form.nq), *a["v_bar"].get(0, form.nv))
        function = finish(form, a["h"] * form.part_of_step())
        _, gradient = vjp(function, _finish_inputs(form, a), seeds)
        _, *free_bar, y_bar, shift_bar = split(gradient, *finish_inputs(form))
        a["free_bar"].put(0, [x for part in free_bar for x in part])
        a["y_bar"].put(0, y_bar)
        a["shift_bar"].put(0, shift_bar)

    outputs = [Rows(name, writable=True) for name in ("free_bar", "y_bar", "shift_bar")]
    arguments = [*FINISH_ROWS, Rows("q_bar"), Rows("v_bar"), *outputs, Number("h")]
    return _kernel("finish_adjoint", form, arguments, body, unroll=True)


# ------------------------------------------------------------------------------------------ shapes


@functools.cache
def shapes(form: BodyForm) -> Kernel:
    """Of every shape that is no plane: itself in the world, a box around it, and whether that is in a wider one."""

    def body(**a: Any) -> None:
        motion = a["motion"].get(0, 18)
        solid = solid_of(*a["records"].get(0, layout.SHAPE), *motion[:12])
        size = a["matter"].get(0, MATTER)[STUFF]
        left = a["h"] * form.part_of_step()
        a["solids"].put(0, solid)
        box = bounding_box(to_solid(tuple(solid)), a["bounds"].get(0, BOUND), size, motion, left)
        a["boxes"].put(0, (*box, select(is_within(box, a["wide"].get(0, 6)), 1.0, 0.0)))

    arguments = [
        Rows("records"), Rows("matter"), Rows("bounds"), Rows("wide"), Picked("motion"), Rows("solids", writable=True),
        Rows("boxes", writable=True), Number("h"),
    ]  # fmt: skip
    return _kernel("shapes", form, arguments, body, unroll=True)


@functools.cache
def shapes_adjoint(form: BodyForm) -> Kernel:
    """records_bar, place_bar: from the bars of the solids."""

    def body(**a: Any) -> None:
        inputs = (*a["records"].get(0, layout.SHAPE), *a["motion"].get(0, 12))
        _, gradient = vjp(solid_of, inputs, a["solids_bar"].get(0, SOLID))
        a["records_bar"].put(0, gradient[: layout.SHAPE])
        a["place_bar"].put(0, gradient[layout.SHAPE :])

    outputs = [Rows("records_bar", writable=True), Rows("place_bar", writable=True)]
    arguments = [Rows("records"), Picked("motion"), Rows("solids_bar"), *outputs]
    return _kernel("shapes_adjoint", form, arguments, body, unroll=True)


@functools.cache
def near() -> Kernel:
    """Of pairs of shapes: 1 if they may touch."""

    def body(**a: Any) -> None:
        solids = [to_solid(a[f"solid_{end}"].get(0, SOLID)) for end in "ab"]
        boxes = [a[f"box_{end}"].get(0, BOX) for end in "ab"]
        a["flags"].put(pack_number(), [select(are_near(*solids, *boxes), 1.0, 0.0)])

    arguments = [Picked(f"{name}_{end}") for name in ("solid", "box") for end in "ab"]
    return _kernel("near", None, [*arguments, Packs("flags", writable=True)], body, unroll=True)


@functools.cache
def near_plane() -> Kernel:
    """As `near`, of pairs of which the second is a plane."""

    def body(**a: Any) -> None:
        solid, plane = (to_solid(a[f"solid_{end}"].get(0, SOLID)) for end in "ab")
        a["flags"].put(pack_number(), [select(is_near_plane(solid, plane, a["box_a"].get(0, BOX)), 1.0, 0.0)])

    arguments = [Picked("solid_a"), Picked("solid_b"), Picked("box_a"), Packs("flags", writable=True)]
    return _kernel("near_plane", None, arguments, body, unroll=True)


# ------------------------------------------------------------------------------------------ pairs


@functools.cache
def pairs(form: PairForm) -> Kernel:
    """Of every pair of shapes of one pair of hulls: CONTACT_RECORD numbers of its slots, and the features."""

    def body(**a: Any) -> None:
        hulls = []
        for end in "ab":
            x = [a[f"{name}_{end}"] for name in HULL]
            hulls.append(Hull(x[1], a["floats"].at(x[0]), x[3], a["floats"].at(x[2]), x[5], a["floats"].at(x[4])))
        first, second = (a[f"solid_{end}"].get(0, SOLID) for end in "ab")
        motions = [a[f"motion_{end}"].get(0, form.motion) for end in "ab"]
        sizes = tuple(a[f"matter_{end}"].get(0, MATTER)[STUFF] for end in "ab")
        numbers, features = meet(form, first, second, hulls, motions, sizes, a["left"])
        a["touches"].put(0, numbers)
        a["features"].put(0, features)

    arguments: list[Any] = [Picked(f"{name}_{end}") for name in ("solid", "motion", "matter") for end in "ab"]
    arguments += [Integer(f"{name}_{end}") for end in "ab" for name in HULL]
    arguments += [Rows("touches", writable=True), Rows("features", writable=True), Table("floats"), Number("left")]
    return _kernel("pairs", form, arguments, body)


@functools.cache
def pairs_adjoint(form: PairForm, width: int) -> Kernel:
    """solid_a_bar, solid_b_bar: from the bars of the contact points (CONTACT_POINT numbers per slot); width: of the
    features."""

    def body(**a: Any) -> None:
        inputs = (*a["solid_a"].get(0, SOLID), *a["solid_b"].get(0, SOLID))
        seeds = a["touches_bar"].get(0, form.pair.slots * CONTACT_POINT)
        _, gradient = vjp(point_numbers(form.pair, a["features"].get(0, width)), inputs, seeds)
        a["solid_a_bar"].put(0, gradient[:SOLID])
        a["solid_b_bar"].put(0, gradient[SOLID:])

    outputs = [Rows("solid_a_bar", writable=True), Rows("solid_b_bar", writable=True)]
    arguments = [Picked("solid_a"), Picked("solid_b"), Picked("features"), Rows("touches_bar"), *outputs]
    return _kernel("pairs_adjoint", (form, width), arguments, body, unroll=True)


# ------------------------------------------------------------------------------------------ contacts

CONTACT = ("touch", "body_a", "body_b", "matter_a", "matter_b")


def _contact(form: ContactForm, a: dict[str, Any]) -> tuple[Callable[..., list[Any]], list[Any]]:
    point = a["touch"].get(0, CONTACT_RECORD)
    body_a, body_b = (a[f"body_{end}"].get(0, sum(form.inputs[1:3])) for end in "ab")
    matter = [a[f"matter_{end}"].get(0, MATTER) for end in "ab"]
    function = contact_block(form, point[ACTIVE] > 0.5, (matter[0][STUFF:], matter[1][STUFF:]), a["h"])
    return function, [*point[:CONTACT_POINT], *body_a, *body_b, *matter[0][:STUFF], *matter[1][:STUFF]]


@functools.cache
def contacts(form: ContactForm) -> Kernel:
    """Of every place for a contact: its block, and its impulses of the step before."""

    def body(**a: Any) -> None:
        function, inputs = _contact(form, a)
        a["blocks"].put(pack_number(), function(*inputs))
        a["impulses"].put(pack_number(), a["old"].get(0, form.rows))

    outputs = [Packs("blocks", writable=True), Packs("impulses", writable=True)]
    arguments = [*map(Picked, CONTACT), Picked("old"), *outputs, Number("h")]
    return _kernel("contacts", form, arguments, body, unroll=True)


@functools.cache
def contacts_adjoint(form: ContactForm) -> Kernel:
    """Gradients with respect to what `contacts` reads, from those with respect to the blocks (1/d: times 1/d), which
    are in reverse order."""
    size, rows = sum(form.block), form.rows
    names = [f"{name}_bar" for name in CONTACT]

    def body(**a: Any) -> None:
        function, inputs = _contact(form, a)
        back = a["registers"] - 1 - pack_number()
        seeds = list(a["blocks_bar"].get(back, size))
        inverse = a["blocks"].get(back, size)[size - 3 - rows : size - 3]
        for r, x in enumerate(inverse):
            seeds[size - 3 - rows + r] = seeds[size - 3 - rows + r] / x
        _, gradient = vjp(function, inputs, seeds)
        parts = split(gradient, CONTACT_POINT, *[sum(form.inputs[1:3])] * 2, STUFF, STUFF)
        for name, part in zip(names, parts, strict=True):
            a[name].put(0, part)

    outputs = [Rows(name, writable=True) for name in names]
    blocks = [Packs("blocks"), Packs("blocks_bar"), Integer("registers")]
    arguments = [*map(Picked, CONTACT), *blocks, *outputs, Number("h")]
    return _kernel("contacts_adjoint", form, arguments, body, unroll=True)


FORCED = ("touch", "matter_a", "matter_b", "impulses")


def _force(form: ContactForm, a: dict[str, Any]) -> tuple[Callable[..., list[Any]], list[Any]]:
    facts = tuple(a[f"matter_{end}"].get(0, MATTER)[STUFF:] for end in "ab")
    return contact_force(form, facts, a["h"]), [*a["touch"].get(0, CONTACT_POINT), *a["impulses"].get(0, form.rows)]


@functools.cache
def forces(form: ContactForm) -> Kernel:
    """Of contacts: `contact_force`."""

    def body(**a: Any) -> None:
        function, inputs = _force(form, a)
        a["out"].put(0, function(*inputs))

    return _kernel("forces", form, [*map(Picked, FORCED), Rows("out", writable=True), Number("h")], body, unroll=True)


@functools.cache
def forces_adjoint(form: ContactForm) -> Kernel:
    """touch_bar (CONTACT_POINT numbers), impulses_bar: from the bars of the forces."""

    def body(**a: Any) -> None:
        function, inputs = _force(form, a)
        _, gradient = vjp(function, inputs, a["out_bar"].get(0, FORCE))
        a["touch_bar"].put(0, gradient[:CONTACT_POINT])
        a["impulses_bar"].put(0, gradient[CONTACT_POINT:])

    outputs = [Rows("touch_bar", writable=True), Rows("impulses_bar", writable=True)]
    arguments = [*map(Picked, FORCED), Rows("out_bar"), *outputs, Number("h")]
    return _kernel("forces_adjoint", form, arguments, body, unroll=True)


def _with_form(function: Callable[..., None], form: ContactForm, arguments: Sequence[Any]) -> Kernel:
    return _kernel(function.__name__, form, arguments, lambda **a: function(form, **a))


_SWEPT = [Packs("blocks"), Packs("impulses", writable=True), Packs("y", writable=True)]


_GROUPS = [Ints("starts"), Ints("ends"), Ints("group_packs"), Ints("group_rows"), Table("momentum")]
_DEEP = [Ints("starts"), Ints("ends"), Ints("deep"), Ints("deep_packs")]


@functools.cache
def solving(form: ContactForm) -> Kernel:
    outputs = [Packs(name, writable=True) for name in ("final", "final_y", "modes", "worst")]
    integers = [Ints(name, writable=True) for name in ("made", "paces", "deep", "deep_packs")]
    sizes = [Integer(name) for name in ("groups", "registers", "width", "most", "ring")]
    arguments = [*_SWEPT, *_GROUPS, *outputs, *integers, *sizes, Number("tolerance")]
    return _with_form(sparse_sweeps.solve, form, arguments)


@functools.cache
def solving_adjoint(form: ContactForm) -> Kernel:
    bars = [Packs(name, writable=True) for name in ("y_bar", "impulses_bar", "before_bar", "blocks_bar", "work")]
    sizes = [Integer(name) for name in ("groups", "registers", "width", "most", "ring")]
    arguments = [*_SWEPT, *_GROUPS, Ints("made"), Ints("paces"), *bars, *sizes]
    return _with_form(sparse_sweeps.solve_adjoint, form, arguments)


@functools.cache
def correcting(form: ContactForm) -> Kernel:
    sizes = [Ints("made", writable=True), Integer("groups"), Integer("most"), Integer("step")]
    return _with_form(sparse_sweeps.correct, form, [*_SWEPT, *_DEEP, *sizes, Number("tolerance")])


@functools.cache
def correcting_adjoint(form: ContactForm) -> Kernel:
    bars = [Packs("impulses_bar", writable=True), Packs("blocks_bar", writable=True)]
    sizes = [Integer("groups"), Integer("registers")]
    return _with_form(sparse_sweeps.correct_adjoint, form, [*_SWEPT, *_DEEP, Ints("made"), *bars, *sizes])


ARRANGED = ("touch_at", "body_a_at", "body_b_at", "shape_a_at", "shape_b_at", "old_at")


@functools.cache
def arranging() -> Kernel:
    reads = ("slot", "pair", "key", "body_a", "body_b", "shape_a", "shape_b", "old_key", "old_place")
    writes = ("ends", "starts", "group_packs", "group_rows", "row_of", "place", *ARRANGED, "sizes")
    integers = ("contacts", "old", "bodies", "lanes", "open", "no_touch", "no_shape", "no_old")
    arguments = [*map(Ints, reads), *(Ints(name, writable=True) for name in writes), *map(Integer, integers)]
    return _kernel("arrange", None, arguments, sparse_packs.arrange)


@functools.cache
def summing() -> Kernel:
    arguments = [Packs("rows"), Packs("totals", writable=True), Ints("owner"), Integer("count"), Integer("width")]
    return _kernel("sum_up", None, arguments, sparse_packs.sum_up)
