"""The kernels of MuJoCo's physics on piles: lanes are bodies, shapes, pairs of shapes, or contacts."""

from __future__ import annotations

import functools
from typing import Any

from ...backends import Integer, Kernel, Number, Picked, Rows, Table
from ...ir import Scalar, absolute, select, sqrt, vjp
from ...model.shapes import BOUND, BoundFactors
from ...physics.constraints.forces import FORCE
from ...physics.geometry.mujoco import GEOM_CONTACT
from ...physics.geometry.solids import Hull
from ...physics.math import spatial as sp
from ...physics.math.arrays import split
from ...physics.tree.poses import Pose, pose_size
from ...schema import layout
from ..bodies import BodyForm
from ..kernels import HULL, body_rows, gather, make_kernel
from ..records import SOLID, WIDE_BOX
from ..shapes import BoundingBoxes, is_inside, placed_solid, to_solid
from .bodies import AdvanceForm, advance, smooth_motion
from .contacts import SoftContactForm, power, soft_block, soft_contact_force
from .pairs import RECORD, GeomForm, geom_contacts, soft_narrow_phase

# ------------------------------------------------------------------------------------------ bodies


@functools.cache
def soft_bodies(form: BodyForm) -> Kernel:
    """Per body: `smooth_motion`."""
    rows = body_rows(form)

    def body(**a: Any) -> None:
        a["out"].put(0, smooth_motion(form)(*gather(a, list(rows), list(rows.values()))))

    return make_kernel("soft_bodies", form, [*map(Rows, rows), Rows("out", writable=True)], body, unroll=True)


@functools.cache
def soft_bodies_adjoint(form: BodyForm) -> Kernel:
    """Per body: cotangents of `BodyForm.inputs` (gradient), from those of the smooth motion (out_bar)."""
    rows = body_rows(form)

    def body(**a: Any) -> None:
        seeds = a["out_bar"].get(0, form.outputs.size)
        _, gradient = vjp(smooth_motion(form), gather(a, list(rows), list(rows.values())), seeds)
        a["gradient"].put(0, gradient)

    arguments = [*map(Rows, rows), Rows("out_bar"), Rows("gradient", writable=True)]
    return make_kernel("soft_bodies_adjoint", form, arguments, body, unroll=True)


def _advance_inputs(form: AdvanceForm, a: dict[str, Any]) -> list[Any]:
    body = form.body
    return gather(a, ["constants", "free", "v", "y"], [layout.LINK, body.outputs.size, body.nv, body.nv])


@functools.cache
def advancing(form: AdvanceForm) -> Kernel:
    """Per body: the state after the step; free: the output of `soft_bodies`."""

    def body(**a: Any) -> None:
        state = advance(form, a["h"])(*_advance_inputs(form, a))
        a["q_next"].put(0, state[: form.body.nq])
        a["v_next"].put(0, state[form.body.nq :])

    outputs = [Rows("q_next", writable=True), Rows("v_next", writable=True), Number("h")]
    return make_kernel("advance", form, [*map(Rows, ("constants", "free", "v", "y")), *outputs], body, unroll=True)


@functools.cache
def advancing_adjoint(form: AdvanceForm) -> Kernel:
    """Per body: link_bar, free_bar, v_bar, y_bar, the cotangents of what `advancing` reads."""

    def body(**a: Any) -> None:
        seeds = (*a["q_next_bar"].get(0, form.body.nq), *a["v_next_bar"].get(0, form.body.nv))
        _, gradient = vjp(advance(form, a["h"]), _advance_inputs(form, a), seeds)
        link, *free, v, y = form.inputs.split(gradient)
        found = {"link": link, "free": [x for part in free for x in part], "v": v, "y": y}
        for name, numbers in found.items():
            a[f"{name}_bar"].put(0, numbers)

    outputs = [Rows(f"{name}_bar", writable=True) for name in ("link", "free", "v", "y")]
    inputs = ("constants", "free", "v", "y", "q_next_bar", "v_next_bar")
    return make_kernel("advance_adjoint", form, [*map(Rows, inputs), *outputs, Number("h")], body, unroll=True)


# ------------------------------------------------------------------------------------------ shapes and pairs


@functools.cache
def soft_shapes(form: BodyForm) -> Kernel:
    """Per shape other than a plane: its solid in the world, and the boxes around it, now."""
    width = pose_size(1)

    def body(**a: Any) -> None:
        motion = Pose.of(a["motion"].get(0, width))
        numbers = tuple(placed_solid(*a["records"].get(0, layout.SHAPE), *motion.place))
        solid, bound = to_solid(numbers), BoundFactors.of(a["bounds"].get(0, BOUND))
        offset = tuple(c * s for c, s in zip(bound.center, solid.size, strict=True))
        half, rim = sp.rotate(bound.half, solid.size), bound.rim * solid.size[0]
        center = sp.rotate(solid.axes, offset, solid.center)
        w, u = motion.twist().angular, motion.velocity(center)
        speed = sqrt(sp.dot(u, u)) + sqrt(sp.dot(w, w)) * (sqrt(sp.dot(half, half)) + rim)
        shell = rim + a["materials"].get(0, RECORD + 1)[-1]
        extent = sp.rotate(tuple(absolute(x) for x in solid.axes), half)
        boxes = BoundingBoxes(center, tuple(x + shell for x in extent), half, shell, a["h"] * speed)
        a["solids"].put(0, numbers)
        a["boxes"].put(0, (*boxes.numbers(), select(is_inside(boxes, a["wide"].get(0, WIDE_BOX.size)), 1.0, 0.0)))

    arguments = [
        Rows("records"), Rows("materials"), Rows("bounds"), Rows("wide"), Picked("motion"),
        Rows("solids", writable=True), Rows("boxes", writable=True), Number("h"),
    ]  # fmt: skip
    return make_kernel("soft_shapes", form, arguments, body, unroll=True)


@functools.cache
def soft_pairs(form: GeomForm) -> Kernel:
    """Per pair of geoms of these kinds: the numbers of its slots (`POINT`), and the features."""

    def hull(a: dict[str, Any], end: str) -> Hull:
        floats, x = a["floats"], [a[f"{name}_{end}"] for name in HULL]
        return Hull(x[1], floats.at(x[0]), x[3], floats.at(x[2]), x[5], floats.at(x[4]))

    def body(**a: Any) -> None:
        solids = a["solid_a"].get(0, SOLID.size), a["solid_b"].get(0, SOLID.size)
        margin = form.margin(*(a[f"material_{end}"].get(0, RECORD) for end in "ab"))
        numbers, features = soft_narrow_phase(form, solids, (hull(a, "a"), hull(a, "b")), margin)
        a["points"].put(0, numbers)
        a["features"].put(0, features)

    arguments: list[Any] = [Picked(f"{name}_{end}") for name in ("solid", "material") for end in "ab"]
    arguments += [Integer(f"{name}_{end}") for end in "ab" for name in HULL]
    arguments += [Rows("points", writable=True), Rows("features", writable=True), Table("floats")]
    return make_kernel("soft_pairs", form, arguments, body)


@functools.cache
def soft_pairs_adjoint(form: GeomForm, width: int) -> Kernel:
    """Per pair: solid_a_bar, solid_b_bar, from the cotangents of its contacts; width: numbers of the features."""

    def body(**a: Any) -> None:
        inputs = (*a["solid_a"].get(0, SOLID.size), *a["solid_b"].get(0, SOLID.size))
        margin = form.margin(*(a[f"material_{end}"].get(0, RECORD) for end in "ab"))
        function = geom_contacts(form, margin, a["features"].get(0, width))
        _, gradient = vjp(function, inputs, a["points_bar"].get(0, form.pair.slots * GEOM_CONTACT))
        a["solid_a_bar"].put(0, gradient[: SOLID.size])
        a["solid_b_bar"].put(0, gradient[SOLID.size :])

    picked = [Picked(f"{name}_{end}") for name in ("solid", "material") for end in "ab"]
    outputs = [Rows("solid_a_bar", writable=True), Rows("solid_b_bar", writable=True)]
    arguments = [*picked, Picked("features"), Rows("points_bar"), *outputs]
    return make_kernel("soft_pairs_adjoint", (form, width), arguments, body, unroll=True)


# ------------------------------------------------------------------------------------------ contacts

SOFT_CONTACT = ("point", "body_a", "body_b", "material_a", "material_b")  # inputs of a contact's block
WEIGHTS = ("weight_a", "weight_b")


def _inputs(form: SoftContactForm, a: dict[str, Any]) -> tuple[tuple[Any, ...], Scalar]:
    """The numbers of `SoftContactForm.inputs`, and the weight."""
    widths = [form.inputs.width(name) for name in SOFT_CONTACT]
    return tuple(gather(a, SOFT_CONTACT, widths)), a["weight_a"][0] + a["weight_b"][0]


def _both(form: SoftContactForm, a: dict[str, Any], name: str) -> tuple[Any, ...]:
    """Numbers of both bodies."""
    return tuple(x for end in "ab" for x in a[f"{name}_{end}"].get(0, form.body.nv))


@functools.cache
def soft_contacts(form: SoftContactForm) -> Kernel:
    """Per contact: its block."""

    def body(**a: Any) -> None:
        inputs, weight = _inputs(form, a)
        a["blocks"].put(0, soft_block(form, weight, a["h"], inputs).numbers())

    arguments = [*map(Picked, (*SOFT_CONTACT, *WEIGHTS)), Rows("blocks", writable=True), Number("h")]
    return make_kernel("soft_contacts", form, arguments, body, unroll=True)


@functools.cache
def soft_forces(form: SoftContactForm) -> Kernel:
    """Per contact: FORCE numbers."""

    def body(**a: Any) -> None:
        inputs, weight = _inputs(form, a)
        a["out"].put(0, soft_contact_force(form, weight, a["h"], _both(form, a, "y"), inputs))

    picked = map(Picked, (*SOFT_CONTACT, *WEIGHTS, "y_a", "y_b"))
    return make_kernel("soft_forces", form, [*picked, Rows("out", writable=True), Number("h")], body, unroll=True)


@functools.cache
def soft_contacts_adjoint(form: SoftContactForm) -> Kernel:
    """Per contact: cotangents of `SOFT_CONTACT` and of y of both bodies, as those of `power`."""
    parts = (*SOFT_CONTACT, "y_a", "y_b")

    def body(**a: Any) -> None:
        inputs, weight = _inputs(form, a)
        function = power(form, weight, a["h"], _both(form, a, "virtual"), a["force_bar"].get(0, FORCE))
        _, gradient = vjp(function, (*inputs, *_both(form, a, "y")), [1.0])
        nv = form.body.nv
        found = [*form.inputs.split(gradient[: form.inputs.size]), gradient[-2 * nv : -nv], gradient[-nv:]]
        for name, part in zip(parts, found, strict=True):
            a[f"{name}_bar"].put(0, part)

    picked = map(Picked, (*SOFT_CONTACT, *WEIGHTS, "y_a", "y_b", "virtual_a", "virtual_b"))
    outputs = [Rows(f"{name}_bar", writable=True) for name in parts]
    return make_kernel(
        "soft_contacts_adjoint", form, [*picked, Rows("force_bar"), *outputs, Number("h")], body, unroll=True
    )


# ------------------------------------------------------------------------------------------ laws


def _law(form: SoftContactForm, a: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    return form.law_of(a["law"].get(0, form.law.size)), tuple(a["x"].get(0, form.rows))


@functools.cache
def law_terms(form: SoftContactForm) -> Kernel:
    """Per contact: the forces f [rows], the curvature C [rows, rows] and the mode at residuals x; and its terms of the
    gradient and the Hessian: Pᵀ f of both bodies, and the blocks Pᵀ C P of the first one, of row 2 and column 1, and of
    the second one."""
    rows, nv = form.rows, form.body.nv

    def body(**a: Any) -> None:
        (law, x), elliptic = _law(form, a), form.settings.elliptic
        f, C = law.force(elliptic, x), law.curvature(elliptic, x)
        a["f"].put(0, f)
        a["C"].put(0, [c for row in C for c in row])
        a["mode"].put(0, [law.mode(elliptic, x)])
        pushes = split(a["pushes"].get(0, rows * form.push), *[form.push] * rows)
        columns = [tuple(push[k] for push in pushes) for k in range(form.push)]
        bent = [tuple(sp.dot(row, column) for row in C) for column in columns]
        for end, start in (("low", 0), ("high", nv)):
            a[f"push_{end}"].put(0, [sp.dot(column, f) for column in columns[start : start + nv]])
        for end, row, column in (("low", 0, 0), ("cross", nv, 0), ("high", nv, nv)):
            block = [sp.dot(columns[row + i], bent[column + j]) for i in range(nv) for j in range(nv)]
            a[f"block_{end}"].put(0, block)

    results = ("f", "C", "mode", "push_low", "push_high", "block_low", "block_cross", "block_high")
    arguments = [Rows("pushes"), Rows("law"), Rows("x"), *(Rows(name, writable=True) for name in results)]
    return make_kernel("soft_terms", form, arguments, body, unroll=True)


@functools.cache
def law_slopes(form: SoftContactForm) -> Kernel:
    """Per contact: the first and second derivative of its cost along z, at the residuals x + step z; step: [1]."""

    def body(**a: Any) -> None:
        (law, x), elliptic, z = _law(form, a), form.settings.elliptic, a["z"].get(0, form.rows)
        at = tuple(p + a["step"][0] * d for p, d in zip(x, z, strict=True))
        bent = [sp.dot(row, z) for row in law.curvature(elliptic, at)]
        a["slopes"].put(0, [-sp.dot(law.force(elliptic, at), z), sp.dot(bent, z)])

    inputs = [Rows("law"), Rows("x"), Rows("z")]
    arguments = [*inputs, Rows("slopes", writable=True), Table("step")]
    return make_kernel("soft_slopes", form, arguments, body, unroll=True)
