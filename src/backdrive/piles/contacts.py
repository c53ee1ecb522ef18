"""The rows of a contact on whitened velocities (`bodies`), as the block of numbers that solvers read; lanes are
contacts.

The equations are those of dense worlds (`physics.constraints`), as functions of the two bodies and shapes of a contact.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from ..ir import Mask, Scalar, maximum, select
from ..physics.constraints.contact_terms import SLOP, bounces, contact_bias, resultant, row_compliance, violation
from ..physics.constraints.root_frame import COMPONENTS
from ..physics.constraints.rows import (
    NO_SLIP,
    ContactRows,
    Material,
    Row,
    Slip,
    contact_rows,
    contact_slip,
    friction_share,
    material,
    row_speed,
)
from ..physics.geometry.solids import CONTACT_POINT, ContactPoint
from ..physics.math import spatial as sp
from ..physics.math.arrays import split
from ..physics.math.spatial import VECTOR, Vec
from ..physics.scheme import RigidContact
from ..physics.tree.poses import Pose
from ..schema import layout
from .bodies import BodyForm
from .pairs import smaller
from .records import SHAPE_MATERIAL, RecordLayout
from .shapes import PileMaterial


@dataclass(frozen=True)
class ContactForm:
    """Settings on which the equations of a contact depend; directions: of friction, in the tangent plane."""

    body: BodyForm
    directions: int
    combine: str
    contact_model: RigidContact

    @property
    def rows(self) -> int:
        """Rows of a contact: the normal and the directions of friction."""
        return 1 + self.directions

    @property
    def push(self) -> int:
        """Numbers of a row's push: a whitened velocity for each of the two bodies."""
        return 2 * self.body.nv

    @property
    def couplings(self) -> list[tuple[int, int]]:
        """All pairs of rows r > c of a contact."""
        return [(r, c) for r in range(self.rows) for c in range(r)]

    @functools.cached_property
    def inputs(self) -> RecordLayout:
        """The numbers that the block of a contact is a function of."""
        motion, whitening, surface = self.body.motion, self.body.nv**2, SHAPE_MATERIAL.width("surface")
        return RecordLayout(
            point=CONTACT_POINT, motion_a=motion, whitening_a=whitening, motion_b=motion, whitening_b=whitening,
            surface_a=surface, surface_b=surface, warm=VECTOR,
        )  # fmt: skip

    @functools.cached_property
    def force_inputs(self) -> RecordLayout:
        """The numbers that the force of a contact is a function of."""
        motion, surface = self.body.motion, SHAPE_MATERIAL.width("surface")
        return RecordLayout(
            point=CONTACT_POINT, body_a=motion, body_b=motion, material_a=surface, material_b=surface,
            impulses=self.rows,
        )  # fmt: skip

    @functools.cached_property
    def block(self) -> RecordLayout:
        """The block of a contact, see `ContactBlock`."""
        return RecordLayout(
            pushes=self.rows * self.push, coupling=len(self.couplings), b=self.rows, inverse=self.rows,
            softness=self.rows, mu=1, rate=1, bias=1,
        )  # fmt: skip


@dataclass(frozen=True)
class ContactBlock:
    """A contact as solvers see it: its rows have the speeds s = j · y + b + softness λ (m/s).

    pushes: j of every row, the change of the two bodies' y by a unit of impulse. coupling: j · j' of two rows. inverse:
    1 / (j · j + softness) of every row. mu: the bound of the friction rows as a part of λₙ. rate: the speed at which
    penetration has to be corrected, m/s, negative or zero. bias: the part of the normal's b that is not the speed of
    the free motion, m/s.
    """

    pushes: list[Vec]
    coupling: dict[tuple[int, int], Scalar]
    b: Vec
    inverse: Vec
    softness: Vec
    mu: Scalar
    rate: Scalar
    bias: Scalar

    @classmethod
    def of(cls, form: ContactForm, numbers: Vec) -> ContactBlock:
        pushes, coupling, b, inverse, softness, (mu,), (rate,), (bias,) = form.block.split(numbers)
        rows = split(pushes, *[form.push] * form.rows)
        return cls(rows, dict(zip(form.couplings, coupling, strict=True)), b, inverse, softness, mu, rate, bias)


def contact_block(
    form: ContactForm, on: Mask, shapes: tuple[PileMaterial, PileMaterial], h: Scalar
) -> Callable[..., list[Scalar]]:
    """The numbers of a contact's block, and the impulses of its rows to start from, as a function of `inputs`; `on`:
    where there is a contact (mask).

    Where there is none, the pushes are zero, and so are all impulses. shapes: size, mass and whether it is static are
    read; the surfaces are inputs. The start is the impulse of the step before, which is a vector in world axes: the
    directions of friction turn from step to step.
    """
    contact_model, left = form.contact_model, h * form.body.part_of_step()
    spread = 1.0 if form.body.dim == 2 else 0.5 * form.directions  # so many directions share a tangential impulse

    def numbers(*x: Scalar) -> list[Scalar]:
        numbers_of_point, motion_a, Ka, motion_b, Kb, surface_a, surface_b, warm = form.inputs.split(x)
        motions = Pose.of(motion_a), Pose.of(motion_b)
        point, surface = ContactPoint.of(numbers_of_point), mixed_material(surface_a, surface_b, form.combine)
        rows, yielding = rows_of(form, point, shapes, motions, surface.friction)

        def speed(row: Row, k: int) -> Scalar:
            a, b = (row_speed(row, m, k) for m in motions)
            return a - b

        speeds = [speed(row, 0) for row in rows]
        before: Scalar = 0.0
        hits: Mask = False
        if form.body.bounces:
            before = speed(rows[0], 1)
            hits = bounces(point.gap, speeds[0], before, surface.restitution, left, contact_model.bounce_threshold)
        slop = SLOP * smaller(shapes[0].size, shapes[1].size)
        bias = contact_bias(point.gap, slop, surface.restitution, before, hits, left)
        inverse_mass = shapes[0].inverse_mass + shapes[1].inverse_mass
        extra = row_compliance(contact_model.regularisation, inverse_mass, surface.softness, contact_model.solver.cfm)
        softness = [select(on, extra + inverse_mass * x, 1.0) for x in yielding]
        pushes: list[Vec] = [
            (*push(form.body, row, motions[0], Ka), *(-y for y in push(form.body, row, motions[1], Kb))) for row in rows
        ]
        pushes = [tuple(select(on, y, 0.0) for y in row) for row in pushes]
        b = [select(on, y, 0.0) for y in (speeds[0] + bias, *speeds[1:])]
        inverse = [1.0 / sp.dot(row, row, soft) for row, soft in zip(pushes, softness, strict=True)]
        mu = select(on, friction_share(form.body.dim, form.directions) * surface.friction, 0.0)
        rate = select(on, contact_model.solver.erp / left * violation(point.gap, slop), 0.0)
        coupling = [sp.dot(pushes[r], pushes[c]) for r, c in form.couplings]
        bias = select(on, bias, 0.0)
        normal, *tangents = (sp.dot(row.force, warm) for row in rows)
        start = [select(on, y, 0.0) for y in (maximum(normal, 0.0), *(y / spread for y in tangents))]
        return [*(y for row in pushes for y in row), *coupling, *b, *inverse, *softness, mu, rate, bias, *start]

    return numbers


def contact_force(
    form: ContactForm, shapes: tuple[PileMaterial, PileMaterial], h: Scalar
) -> Callable[..., list[Scalar]]:
    """FORCE numbers as a function of a contact point, the motions of its bodies, the surfaces of its shapes, and its
    impulses: the mean force over the step (N, on the first shape) and the point it acts at (m)."""

    def numbers(*x: Scalar) -> list[Scalar]:
        point, motion_a, motion_b, surface_a, surface_b, impulses = form.force_inputs.split(x)
        motions, friction = (Pose.of(motion_a), Pose.of(motion_b)), mixed_material(surface_a, surface_b, form.combine)
        rows = rows_of(form, ContactPoint.of(point), shapes, motions, friction.friction).rows
        return [*resultant(rows, (impulse / h for impulse in impulses)), *rows[0].point]

    return numbers


def rows_of(
    form: ContactForm, point: ContactPoint, shapes: tuple[PileMaterial, PileMaterial], motions: tuple[Pose, Pose],
    friction: Scalar,
) -> ContactRows:  # fmt: skip
    """The rows of a contact; motions: of its two bodies."""
    surface = acting_surface(*shapes)
    slip = NO_SLIP if form.body.dim == 2 else Slip.of(contact_slip(point, surface, friction, *motions))
    return contact_rows(point, surface, slip, form.body.dim, form.directions)


def mixed_material(surface_a: Vec, surface_b: Vec, combine: str) -> Material:
    """The material of a contact, from the surfaces (friction, restitution, softness) of its shapes."""
    unused = (0.0,) * layout.FRICTION  # the numbers before them in a shape's record
    return material((*unused, *surface_a), (*unused, *surface_b), combine)


def acting_surface(a: PileMaterial, b: PileMaterial) -> Scalar:
    """The surface that forces act on: 1/2 if b is static, -1/2 if a is, 0 (midway) between bodies that move."""
    return 0.5 * (b.static - a.static)


def push(form: BodyForm, row: Row, motion: Pose, K: Vec) -> Vec:
    """The change of a body's y by a unit of the row's impulse."""
    arm = sp.sub(row.point, motion.origin)
    wrench = (*sp.cross(arm, row.force, row.couple), *row.force)
    kept = [wrench[c] for c in COMPONENTS[form.dim]]
    return tuple(sp.dot(K[k * form.nv : (k + 1) * form.nv], kept) for k in range(form.nv))
