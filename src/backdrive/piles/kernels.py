"""The kernels of a pile's stages, but those of its solvers: lanes are bodies, shapes, pairs of shapes, or contacts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..backends import Integer, Kernel, Number, Packs, Picked, Rows, Table
from ..ir import Scalar, pack_number, select, vjp
from ..model.shapes import BOUND, BoundFactors
from ..physics.constraints.forces import FORCE
from ..physics.geometry.solids import CONTACT_POINT, CONTACT_RECORD, Hull
from ..physics.math.arrays import split
from ..physics.math.spatial import VECTOR
from ..physics.tree.poses import Pose, pose_size
from ..schema import layout
from . import packs
from .arguments import kernel_arguments
from .bodies import BodyForm, finish, free_motion
from .contacts import ContactForm, contact_block, contact_force
from .pairs import PairForm, PlacedPair, contact_points, narrow_phase
from .records import BOX, POSE, SHAPE_MATERIAL, SOLID, WIDE_BOX
from .shapes import (
    BoundingBoxes,
    PileMaterial,
    are_near,
    bounding_boxes,
    is_inside,
    is_near_plane,
    placed_solid,
    to_solid,
)

HULL = (
    "vertices",
    "vertex_count",
    "faces",
    "face_count",
    "edges",
    "edge_count",
)  # offsets and counts of a hull's tables


def make_kernel(
    name: str, form: Any, arguments: Sequence[Any], body: Callable[..., None], unroll: bool = False
) -> Kernel:
    """A kernel of piles; form: everything that its body depends on, besides the arguments."""
    return Kernel(f"sparse_{name}", arguments, body, unroll=unroll, key=repr(form))


def gather(a: dict[str, Any], names: Sequence[str], sizes: Sequence[int]) -> list[Any]:
    """The first numbers of these arguments."""
    return [x for name, size in zip(names, sizes, strict=True) for x in a[name].get(0, size)]


# ------------------------------------------------------------------------------------------ bodies


def body_rows(form: BodyForm) -> dict[str, int]:
    """Names and widths of the rows that the free motion reads."""
    wrench = {"wrenches": form.inputs.width("wrench")} if form.wrenches else {}
    return {"constants": form.constants, "q": form.nq, "v": form.nv, **wrench}


@functools.cache
def bodies(form: BodyForm) -> Kernel:
    """Per body: `free_motion`."""
    rows = body_rows(form)

    def body(**a: Any) -> None:
        a["out"].put(0, free_motion(form, a["h"])(*gather(a, list(rows), list(rows.values()))))

    return make_kernel("bodies", form, [*map(Rows, rows), Rows("out", writable=True), Number("h")], body, unroll=True)


@functools.cache
def bodies_adjoint(form: BodyForm) -> Kernel:
    """Per body: cotangents of `BodyForm.inputs` (gradient), from those of the free motion (out_bar)."""
    rows = body_rows(form)

    def body(**a: Any) -> None:
        seeds = a["out_bar"].get(0, form.outputs.size)
        _, gradient = vjp(free_motion(form, a["h"]), gather(a, list(rows), list(rows.values())), seeds)
        a["gradient"].put(0, gradient)

    arguments = [*map(Rows, rows), Rows("out_bar"), Rows("gradient", writable=True), Number("h")]
    return make_kernel("bodies_adjoint", form, arguments, body, unroll=True)


FINISH_ROWS: list[Rows | Picked] = [Rows("constants"), Rows("free"), Picked("y"), Picked("shift")]


def _finish_inputs(form: BodyForm, a: dict[str, Any]) -> list[Any]:
    widths = (layout.LINK, form.outputs.size, form.nv, form.nv)
    return gather(a, [row.name for row in FINISH_ROWS], widths)


@functools.cache
def finishing(form: BodyForm) -> Kernel:
    """Per body: the state after the step; free: the output of `bodies`."""

    def body(**a: Any) -> None:
        state = finish(form, a["h"] * form.part_of_step())(*_finish_inputs(form, a))
        a["q"].put(0, state[: form.nq])
        a["v"].put(0, state[form.nq :])

    outputs = [Rows("q", writable=True), Rows("v", writable=True)]
    return make_kernel("finish", form, [*FINISH_ROWS, *outputs, Number("h")], body, unroll=True)


@functools.cache
def finishing_adjoint(form: BodyForm) -> Kernel:
    """Per body: free_bar, y_bar, shift_bar, the cotangents of what `finishing` reads."""

    def body(**a: Any) -> None:
        seeds = (*a["q_bar"].get(0, form.nq), *a["v_bar"].get(0, form.nv))
        function = finish(form, a["h"] * form.part_of_step())
        _, gradient = vjp(function, _finish_inputs(form, a), seeds)
        _, *free_bar, y_bar, shift_bar = form.finish_inputs.split(gradient)
        a["free_bar"].put(0, [x for part in free_bar for x in part])
        a["y_bar"].put(0, y_bar)
        a["shift_bar"].put(0, shift_bar)

    outputs = [Rows(name, writable=True) for name in ("free_bar", "y_bar", "shift_bar")]
    arguments = [*FINISH_ROWS, Rows("q_bar"), Rows("v_bar"), *outputs, Number("h")]
    return make_kernel("finish_adjoint", form, arguments, body, unroll=True)


# ------------------------------------------------------------------------------------------ shapes


@functools.cache
def shapes(form: BodyForm) -> Kernel:
    """Per shape other than a plane: its solid in the world, and the boxes around it."""
    width = pose_size(1)  # the twist of the free motion is enough

    def body(**a: Any) -> None:
        motion = Pose.of(a["motion"].get(0, width))
        solid = placed_solid(*a["records"].get(0, layout.SHAPE), *motion.place)
        size = PileMaterial.of(a["materials"].get(0, SHAPE_MATERIAL.size)).size
        left = a["h"] * form.part_of_step()
        a["solids"].put(0, solid)
        boxes = bounding_boxes(to_solid(tuple(solid)), BoundFactors.of(a["bounds"].get(0, BOUND)), size, motion, left)
        inside = is_inside(boxes, a["wide"].get(0, WIDE_BOX.size))
        a["boxes"].put(0, (*boxes.numbers(), select(inside, 1.0, 0.0)))

    arguments = [
        Rows("records"), Rows("materials"), Rows("bounds"), Rows("wide"), Picked("motion"),
        Rows("solids", writable=True), Rows("boxes", writable=True), Number("h"),
    ]  # fmt: skip
    return make_kernel("shapes", form, arguments, body, unroll=True)


@functools.cache
def shapes_adjoint(form: BodyForm) -> Kernel:
    """Per shape: records_bar, pose_bar, from the cotangents of its solid."""

    def body(**a: Any) -> None:
        inputs = (*a["records"].get(0, layout.SHAPE), *a["motion"].get(0, POSE.size))
        _, gradient = vjp(placed_solid, inputs, a["solids_bar"].get(0, SOLID.size))
        a["records_bar"].put(0, gradient[: layout.SHAPE])
        a["pose_bar"].put(0, gradient[layout.SHAPE :])

    outputs = [Rows("records_bar", writable=True), Rows("pose_bar", writable=True)]
    arguments = [Rows("records"), Picked("motion"), Rows("solids_bar"), *outputs]
    return make_kernel("shapes_adjoint", form, arguments, body, unroll=True)


@functools.cache
def near() -> Kernel:
    """Per pair of shapes: 1 if they may touch."""

    def body(**a: Any) -> None:
        first, second = (to_solid(a[f"solid_{end}"].get(0, SOLID.size)) for end in "ab")
        boxes = [BoundingBoxes.of(a[f"box_{end}"].get(0, BOX.size)) for end in "ab"]
        a["flags"].put(pack_number(), [select(are_near(first, second, boxes[0], boxes[1]), 1.0, 0.0)])

    arguments = [Picked(f"{name}_{end}") for name in ("solid", "box") for end in "ab"]
    return make_kernel("near", None, [*arguments, Packs("flags", writable=True)], body, unroll=True)


@functools.cache
def near_plane() -> Kernel:
    """Per pair of a shape and a plane: 1 if they may touch."""

    def body(**a: Any) -> None:
        solid, plane = (to_solid(a[f"solid_{end}"].get(0, SOLID.size)) for end in "ab")
        boxes = BoundingBoxes.of(a["box_a"].get(0, BOX.size))
        a["flags"].put(pack_number(), [select(is_near_plane(solid, plane, boxes), 1.0, 0.0)])

    arguments = [Picked("solid_a"), Picked("solid_b"), Picked("box_a"), Packs("flags", writable=True)]
    return make_kernel("near_plane", None, arguments, body, unroll=True)


# ------------------------------------------------------------------------------------------ pairs


@functools.cache
def pairs(form: PairForm) -> Kernel:
    """Per pair of shapes of these kinds: the contact points of its slots (CONTACT_RECORD numbers), and the features."""

    def hull(a: dict[str, Any], end: str) -> Hull:
        floats, x = a["floats"], [a[f"{name}_{end}"] for name in HULL]
        return Hull(x[1], floats.at(x[0]), x[3], floats.at(x[2]), x[5], floats.at(x[4]))

    def body(**a: Any) -> None:
        hulls = [hull(a, end) for end in "ab"]
        solids = a["solid_a"].get(0, SOLID.size), a["solid_b"].get(0, SOLID.size)
        motions = [Pose.of(a[f"motion_{end}"].get(0, form.motion)) for end in "ab"]
        sizes = [PileMaterial.of(a[f"material_{end}"].get(0, SHAPE_MATERIAL.size)).size for end in "ab"]
        numbers, features = narrow_phase(form, PlacedPair(solids, hulls, motions, sizes), a["left"])
        a["points"].put(0, numbers)
        a["features"].put(0, features)

    arguments: list[Any] = [Picked(f"{name}_{end}") for name in ("solid", "motion", "material") for end in "ab"]
    arguments += [Integer(f"{name}_{end}") for end in "ab" for name in HULL]
    arguments += [Rows("points", writable=True), Rows("features", writable=True), Table("floats"), Number("left")]
    return make_kernel("pairs", form, arguments, body)


@functools.cache
def pairs_adjoint(form: PairForm, width: int) -> Kernel:
    """Per pair: solid_a_bar, solid_b_bar, from the cotangents of its contact points; width: numbers of the features."""

    def body(**a: Any) -> None:
        inputs = (*a["solid_a"].get(0, SOLID.size), *a["solid_b"].get(0, SOLID.size))
        seeds = a["points_bar"].get(0, form.pair.slots * CONTACT_POINT)
        _, gradient = vjp(contact_points(form.pair, a["features"].get(0, width)), inputs, seeds)
        a["solid_a_bar"].put(0, gradient[: SOLID.size])
        a["solid_b_bar"].put(0, gradient[SOLID.size :])

    outputs = [Rows("solid_a_bar", writable=True), Rows("solid_b_bar", writable=True)]
    arguments = [Picked("solid_a"), Picked("solid_b"), Picked("features"), Rows("points_bar"), *outputs]
    return make_kernel("pairs_adjoint", (form, width), arguments, body, unroll=True)


# ------------------------------------------------------------------------------------------ contacts

CONTACT = ("point", "body_a", "body_b", "material_a", "material_b", "warm")  # inputs of a contact's block


def _materials(a: dict[str, Any]) -> tuple[PileMaterial, PileMaterial]:
    first, second = (PileMaterial.of(a[f"material_{end}"].get(0, SHAPE_MATERIAL.size)) for end in "ab")
    return first, second


def body_width(form: ContactForm) -> int:
    """Numbers of a body that its contacts read: its motion and K, the first outputs of `bodies`."""
    return form.body.outputs.first("start")


def _contact(form: ContactForm, a: dict[str, Any]) -> tuple[Callable[..., list[Scalar]], list[Any]]:
    """The block of a contact and its start as a function, and its inputs."""
    *point, on = a["point"].get(0, CONTACT_RECORD)
    body_a, body_b = (a[f"body_{end}"].get(0, body_width(form)) for end in "ab")
    shapes = _materials(a)
    function = contact_block(form, on > 0.5, shapes, a["h"])
    return function, [*point, *body_a, *body_b, *shapes[0].surface, *shapes[1].surface, *a["warm"].get(0, VECTOR)]


@functools.cache
def contacts(form: ContactForm) -> Kernel:
    """Per cell: the block of its contact, and the impulses to start from."""

    def body(**a: Any) -> None:
        function, inputs = _contact(form, a)
        numbers = function(*inputs)
        a["blocks"].put(pack_number(), numbers[: form.block.size])
        a["impulses"].put(pack_number(), numbers[form.block.size :])

    outputs = [Packs("blocks", writable=True), Packs("impulses", writable=True)]
    arguments = [*map(Picked, CONTACT), *outputs, Number("h")]
    return make_kernel("contacts", form, arguments, body, unroll=True)


@functools.cache
def contacts_adjoint(form: ContactForm) -> Kernel:
    """Per cell: cotangents of `CONTACT`, from those of the blocks (of 1/d: times 1/d), which are in reverse order, and
    from those of the start."""
    size, inverse = form.block.size, form.block["inverse"]
    names = [f"{name}_bar" for name in CONTACT]

    def body(**a: Any) -> None:
        function, inputs = _contact(form, a)
        back = a["registers"] - 1 - pack_number()
        seeds = list(a["blocks_bar"].get(back, size))
        block = a["blocks"].get(back, size)
        for r in range(inverse.start, inverse.stop):
            seeds[r] = seeds[r] / block[r]
        _, gradient = vjp(function, inputs, [*seeds, *a["start_bar"].get(pack_number(), form.rows)])
        surface = SHAPE_MATERIAL.width("surface")
        parts = split(gradient, CONTACT_POINT, *[body_width(form)] * 2, surface, surface, VECTOR)
        for name, part in zip(names, parts, strict=True):
            a[name].put(0, part)

    outputs = [Rows(name, writable=True) for name in names]
    blocks = [Packs("blocks"), Packs("blocks_bar"), Packs("start_bar"), Integer("registers")]
    arguments = [*map(Picked, CONTACT), *blocks, *outputs, Number("h")]
    return make_kernel("contacts_adjoint", form, arguments, body, unroll=True)


# ------------------------------------------------------------------------------------------ forces

FORCED = ("point", "body_a", "body_b", "material_a", "material_b", "impulses")  # inputs of a contact's force


def _force(form: ContactForm, a: dict[str, Any]) -> tuple[Callable[..., list[Scalar]], list[Any]]:
    shapes = _materials(a)
    bodies = [x for end in "ab" for x in a[f"body_{end}"].get(0, form.body.motion)]
    inputs = [*a["point"].get(0, CONTACT_POINT), *bodies, *shapes[0].surface, *shapes[1].surface]
    return contact_force(form, shapes, a["h"]), [*inputs, *a["impulses"].get(0, form.rows)]


@functools.cache
def forces(form: ContactForm) -> Kernel:
    """Per contact: `contact_force`."""

    def body(**a: Any) -> None:
        function, inputs = _force(form, a)
        a["out"].put(0, function(*inputs))

    arguments = [*map(Picked, FORCED), Rows("out", writable=True), Number("h")]
    return make_kernel("forces", form, arguments, body, unroll=True)


@functools.cache
def forces_adjoint(form: ContactForm) -> Kernel:
    """Per contact: cotangents of `ContactForm.force_inputs`, from those of its force."""
    layout_of = form.force_inputs

    def body(**a: Any) -> None:
        function, inputs = _force(form, a)
        _, gradient = vjp(function, inputs, a["out_bar"].get(0, FORCE))
        for name, part in zip(layout_of.names, layout_of.split(gradient), strict=True):
            a[f"{name}_bar"].put(0, part)

    outputs = [Rows(f"{name}_bar", writable=True) for name in layout_of.names]
    arguments = [*map(Picked, FORCED), Rows("out_bar"), *outputs, Number("h")]
    return make_kernel("forces_adjoint", form, arguments, body, unroll=True)


# ------------------------------------------------------------------------------------------ order and sums


@functools.cache
def arranging() -> Kernel:
    def body(**a: Any) -> None:
        packs.arrange(packs.ArrangeArguments(**a))

    return make_kernel("arrange", None, kernel_arguments(packs.ArrangeArguments), body)


@functools.cache
def summing() -> Kernel:
    def body(**a: Any) -> None:
        packs.sum_rows(packs.SumArguments(**a))

    return make_kernel("sum_up", None, kernel_arguments(packs.SumArguments), body)
