"""Contacts of one big world: which shapes touch, and the rows of a contact on whitened velocities (`sparse_body`).

The equations are those of `collision` and `contact`; here they are functions of the few bodies and shapes that a
contact concerns, so that the lanes can be contacts, pairs of shapes, or shapes of one world.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir import Floats, Scalar, absolute, maximum, select, sqrt
from ..physics.constraints.bias import SLOP, contact_bias, violation
from ..physics.constraints.delassus import COMPONENTS
from ..physics.constraints.rows import Row, contact_rows, friction_share, material, row_speed
from ..physics.geometry.collision import MARGIN
from ..physics.geometry.narrow_phase import place_solid
from ..physics.geometry.pairs import PAIRS
from ..physics.geometry.pairs.boxes import BOX_BOX
from ..physics.geometry.solids import CONTACT_POINT, ContactPoint, Hull, ShapePair, Solid
from ..physics.math import spatial as sp
from ..physics.math.arrays import split
from ..physics.math.spatial import Vec
from ..physics.scheme import RigidContact
from ..schema import layout
from ..schema.layout import ShapeKind
from .bodies import BodyForm

SOLID = 15  # center, axes, size
BOX = 11  # center; half sides along the world's axes; half sides along the shape's own, and what is around them; motion
STUFF = 3  # friction, restitution, softness: the end of a shape's record
MATTER = STUFF + 3  # ... and size (m), 1 / mass of its body (1/kg), 1 if it does not move


# ------------------------------------------------------------------------------------------ shapes


def solid_of(*x: Scalar) -> list[Scalar]:
    """A shape (no plane) in the world, from its record and the place of its body."""
    record, place = split(x, layout.SHAPE, 12)
    solid = place_solid(ShapeKind.HULL, record, place)
    return [*solid.center, *solid.axes, *solid.size]


def to_solid(numbers: Vec) -> Solid:
    return Solid(tuple(numbers[:3]), tuple(numbers[3:12]), tuple(numbers[12:SOLID]))


def bounding_box(solid: Solid, bound: Vec, size: Scalar, motion: Vec, left: Scalar) -> Vec:
    """Boxes (BOX) that contain the shape while it moves for the time `left`, and its part of any contact's margin."""
    middle, sides, rounding = split(bound, 3, 9, 1)
    offset = tuple(m * s for m, s in zip(middle, solid.size, strict=True))
    half = sp.rotate(sides, solid.size)
    center = sp.rotate(solid.axes, offset, solid.center)
    ball = rounding[0] * solid.size[0]
    w, arm = motion[12:15], sp.sub(center, motion[9:12])
    u = sp.cross(w, arm, motion[15:18])
    speed = sqrt(sp.dot(u, u)) + sqrt(sp.dot(w, w)) * (sqrt(sp.dot(half, half)) + ball)
    moves = left * speed
    around = ball + 0.5 * MARGIN * size + moves
    extent = sp.rotate(tuple(absolute(x) for x in solid.axes), half)
    return (*center, *(x + around for x in extent), *half, around, moves)


def is_within(box: Vec, wide: Vec) -> Any:
    """Whether a box lies in another, given by its center and half sides (mask)."""
    within: Any = True
    for k in range(3):
        within = within & (absolute(box[k] - wide[k]) + box[3 + k] <= wide[3 + k])
    return within


def are_near(a: Solid, b: Solid, box_a: Vec, box_b: Vec) -> Any:
    """Whether two shapes may touch: their boxes overlap along the world's axes, and along those of each (mask)."""
    d = sp.sub(box_b[:3], box_a[:3])
    around = box_a[9] + box_b[9]
    C = sp.matmul(sp.transpose(a.axes), b.axes)
    near: Any = True
    for k in range(3):
        near = near & (absolute(d[k]) <= box_a[3 + k] + box_b[3 + k])
    for turn, axes, half, other in ((C, a.axes, box_a[6:9], box_b[6:9]),
                                    (sp.transpose(C), b.axes, box_b[6:9], box_a[6:9])):  # fmt: skip
        for k, x in enumerate(sp.unrotate(axes, d)):
            reach = sp.dot(other, tuple(absolute(c) for c in turn[3 * k : 3 * k + 3]), half[k])
            near = near & (absolute(x) <= reach + around)
    return near


def is_near_plane(a: Solid, plane: Solid, box: Vec) -> Any:
    """As `are_near`."""
    steep = sp.unrotate(a.axes, plane.center)
    reach = sp.dot(box[6:9], tuple(absolute(x) for x in steep), box[9])
    return sp.dot(plane.center, box[:3]) - reach < plane.size[0]


# ------------------------------------------------------------------------------------------ pairs


@dataclass(frozen=True)
class PairForm:
    """Pairs of shapes of two kinds. motion: numbers of a body's place and twists; boxes: both hulls are cubes."""

    dim: int
    kinds: tuple[ShapeKind, ShapeKind]
    motion: int
    boxes: bool = False

    @property
    def pair(self) -> ShapePair:
        return BOX_BOX if self.boxes else PAIRS[self.dim][self.kinds]

    def features(self, a: Hull, b: Hull) -> int:
        """How many numbers `search` finds; it is asked, on floats."""
        if self.pair.search is None:
            return 0
        above, here = (Solid((0.0, z, 0.0), sp.IDENTITY, (1.0, 1.0, 1.0)) for z in (9.0, 0.0))
        return len(self.pair.search(above, here, a, b))


def to_hull(floats: np.ndarray, place: tuple[int, ...]) -> Hull:
    """A hull, from offsets and counts of its vertices, faces and edges."""
    table = Floats(floats)
    vertex, nvertex, face, nface, edge, nedge = place
    return Hull(nvertex, table.at(vertex), nface, table.at(face), nedge, table.at(edge))


def point_numbers(pair: ShapePair, features: Vec) -> Callable[..., list[Scalar]]:
    """Gap, position and normal of every slot, from the two solids."""

    def found(*x: Scalar) -> list[Scalar]:
        a, b = split(x, SOLID, SOLID)
        return [y for point in pair.contacts(to_solid(a), to_solid(b), features) for y in point.numbers]

    return found


def meet(
    form: PairForm, a: Vec, b: Vec, hulls: Sequence[Hull], motions: Sequence[Vec], sizes: Vec, left: Scalar
) -> tuple[list[Scalar], Vec]:
    """CONTACT_RECORD numbers of every slot, and the features that meet."""
    features = tuple(form.pair.search(to_solid(a), to_solid(b), *hulls)) if form.pair.search else ()
    margin = MARGIN * select(sizes[0] < sizes[1], sizes[0], sizes[1])

    def velocity(motion: Vec, point: Vec) -> Vec:
        return sp.cross(motion[12:15], sp.sub(point, motion[9:12]), motion[15:18])

    numbers: list[Scalar] = []
    for point in form.pair.contacts(to_solid(a), to_solid(b), features):
        apart = sp.sub(velocity(motions[1], point.position), velocity(motions[0], point.position))
        counts = point.gap < margin + left * maximum(sp.dot(point.normal, apart), 0.0)
        numbers += [*point.numbers, select(counts, 1.0, 0.0)]
    return numbers, features


# ------------------------------------------------------------------------------------------ rows


@dataclass(frozen=True)
class ContactForm:
    """What the equations of a contact depend on; directions: of friction."""

    body: BodyForm
    directions: int
    combine: str
    contact_model: RigidContact

    @property
    def rows(self) -> int:
        return 1 + self.directions

    @property
    def inputs(self) -> tuple[int, ...]:
        """Contact point; of a and b: place and twists, K; of a and b: STUFF"""
        body = (self.body.motion, self.body.nv**2)
        return (CONTACT_POINT, *body, *body, STUFF, STUFF)

    @property
    def push(self) -> int:
        """Numbers of a row: how it pushes a and b."""
        return 2 * self.body.nv

    @property
    def couplings(self) -> list[tuple[int, int]]:
        """Rows r > c of a contact."""
        return [(r, c) for r in range(self.rows) for c in range(r)]

    @property
    def block(self) -> tuple[int, ...]:
        """Numbers of a contact: pushes; how rows act on later rows; b; 1 / d; softness; μ; rate of correction"""
        return (self.rows * self.push, len(self.couplings), self.rows, self.rows, 1, 1, 1)


@dataclass(frozen=True)
class ContactBlock:
    """A contact as the solver sees it: see `ContactForm.block`. 0 = j · y + b + softness λ within λ's bounds."""

    pushes: list[Vec]
    coupling: dict[tuple[int, int], Scalar]
    b: Vec
    inverse: Vec
    softness: Scalar
    mu: Scalar
    rate: Scalar

    @classmethod
    def of(cls, form: ContactForm, numbers: Vec) -> ContactBlock:
        pushes, coupling, b, inverse, rest = split(numbers, *form.block[:4], 3)
        rows = split(pushes, *[form.push] * form.rows)
        return cls(rows, dict(zip(form.couplings, coupling, strict=True)), b, inverse, *rest)


def contact_block(form: ContactForm, on: Any, facts: tuple[Vec, Vec], h: Scalar) -> Callable[..., list[Scalar]]:
    """The numbers of a contact's block as a function of `inputs`; `on`: where there is one (mask)."""
    contact_model, left = form.contact_model, h * form.body.part_of_step()

    def numbers(*x: Scalar) -> list[Scalar]:
        numbers_of_point, motion_a, Ka, motion_b, Kb, stuff_a, stuff_b = split(x, *form.inputs)
        point = ContactPoint.of(numbers_of_point)
        (size_a, light_a, static_a), (size_b, light_b, static_b) = facts
        unused = (0.0,) * layout.FRICTION
        stuff = material((*unused, *stuff_a), (*unused, *stuff_b), form.combine)
        rows = contact_rows(point, 0.5 * (static_b - static_a), form.body.dim, form.directions)

        def speed(row: Row, at: int) -> Scalar:
            a, b = (row_speed(row, m[:12], m[at : at + 6]) for m in (motion_a, motion_b))
            return a - b

        speeds = [speed(row, 12) for row in rows]
        before, hits = 0.0, False
        if form.body.bounces:
            before = speed(rows[0], 18)
            meets = point.gap + left * speeds[0] < 0.0
            hits = meets & (before < -contact_model.bounce_threshold) & (stuff.restitution > 0.0)
        slop = SLOP * select(size_a < size_b, size_a, size_b)
        bias = contact_bias(point.gap, slop, stuff.restitution, before, hits, left)
        extra = contact_model.regularisation * (light_a + light_b) + (stuff.softness + contact_model.solver.cfm)
        extra = select(on, extra, 1.0)
        pushes = [
            (*push(form.body, row, motion_a, Ka), *(-y for y in push(form.body, row, motion_b, Kb))) for row in rows
        ]
        pushes = [tuple(select(on, y, 0.0) for y in row) for row in pushes]
        b = [select(on, y, 0.0) for y in (speeds[0] + bias, *speeds[1:])]
        inverse = [1.0 / sp.dot(row, row, extra) for row in pushes]
        mu = select(on, friction_share(form.body.dim, form.directions) * stuff.friction, 0.0)
        rate = select(on, contact_model.solver.erp / left * violation(point.gap, slop), 0.0)
        coupling = [sp.dot(pushes[r], pushes[c]) for r, c in form.couplings]
        return [*(y for row in pushes for y in row), *coupling, *b, *inverse, extra, mu, rate]

    return numbers


def contact_force(form: ContactForm, facts: tuple[Vec, Vec], h: Scalar) -> Callable[..., list[Scalar]]:
    """FORCE numbers as a function of a contact point and its impulses: the mean force on the first shape."""

    def numbers(*x: Scalar) -> list[Scalar]:
        numbers_of_point, impulses = split(x, CONTACT_POINT, form.rows)
        point, force = ContactPoint.of(numbers_of_point), sp.ZERO3
        rows = contact_rows(point, 0.5 * (facts[1][2] - facts[0][2]), form.body.dim, form.directions)
        for impulse, row in zip(impulses, rows, strict=True):
            force = sp.add(force, sp.scale(impulse / h, row.force))
        return [*force, *rows[0].point]

    return numbers


def push(form: BodyForm, row: Row, motion: Vec, K: Vec) -> Vec:
    """What a unit of the row's impulse does to a body's y."""
    arm = sp.sub(row.point, motion[9:12])
    wrench = (*sp.cross(arm, row.force, row.couple), *row.force)
    kept = [wrench[c] for c in COMPONENTS[form.dim]]
    return tuple(sp.dot(K[k * form.nv : (k + 1) * form.nv], kept) for k in range(form.nv))
