"""The rows of a soft contact on whitened accelerations y (`bodies`); lanes are contacts.

The residuals of the rows are x = x₀ + P y, with x₀ = J a₀ - a_ref; a law gives their forces (`physics.soft.laws`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ...ir import Scalar
from ...physics.constraints.contact_terms import resultant
from ...physics.constraints.forces import FORCE
from ...physics.constraints.rows import Row, row_speed
from ...physics.geometry.mujoco import GEOM_CONTACT
from ...physics.math import spatial as sp
from ...physics.math.spatial import Vec
from ...physics.soft.laws import ContactLaw
from ...physics.soft.rows import ContactSide, contact_rows
from ...physics.soft.settings import SoftSettings
from ...physics.tree.poses import Pose
from ...schema import layout
from ..bodies import BodyForm
from ..contacts import push
from ..records import RecordLayout
from .pairs import RECORD

GIVEN, SMOOTH = 0, 1  # which twist of a pose: that of v, and of the smooth acceleration


@dataclass(frozen=True)
class SoftContactForm:
    """Settings on which the equations of a contact depend."""

    body: BodyForm
    settings: SoftSettings

    @property
    def rows(self) -> int:
        return self.settings.block

    @property
    def push(self) -> int:
        """Numbers of a row's push: a whitened acceleration for each of the two bodies."""
        return 2 * self.body.nv

    @property
    def body_width(self) -> int:
        """Numbers of a body that its contacts read: its motion and whitening."""
        return self.body.outputs.first("start")

    @functools.cached_property
    def inputs(self) -> RecordLayout:
        """The numbers that the block of a contact is a function of."""
        body = self.body_width
        return RecordLayout(point=GEOM_CONTACT, body_a=body, body_b=body, material_a=RECORD, material_b=RECORD)

    @functools.cached_property
    def law(self) -> RecordLayout:
        """The numbers of a `ContactLaw`."""
        return RecordLayout(D=self.rows, mu=self.rows, pull=1)

    @functools.cached_property
    def block(self) -> RecordLayout:
        """A contact as the solver sees it: pushes P, residuals x₀ at the smooth acceleration, and the law."""
        return RecordLayout(pushes=self.rows * self.push, residual=self.rows, law=self.law.size)

    def law_of(self, numbers: Vec) -> ContactLaw:
        D, mu, (pull,) = self.law.split(numbers)
        return ContactLaw(D, mu, pull if self.settings.adheres else 0.0)


class SoftBlock(NamedTuple):
    """The rows of a contact, their pushes and residuals at the smooth acceleration, and their law."""

    rows: list[Row]
    pushes: list[Vec]
    residual: list[Scalar]
    law: ContactLaw

    def numbers(self) -> list[Scalar]:
        """As `SoftContactForm.block` has them."""
        pushes = [x for row in self.pushes for x in row]
        return [*pushes, *self.residual, *self.law.D, *self.law.mu, self.law.pull]

    def along(self, y: Vec) -> list[Scalar]:
        """P y; y: of both bodies."""
        return [sp.dot(row, y) for row in self.pushes]


def soft_block(form: SoftContactForm, weight: Scalar, h: Scalar, inputs: Vec) -> SoftBlock:
    """The block of a contact, from the numbers of `SoftContactForm.inputs`; weight: the inverse inertia of both bodies,
    1/kg."""
    point, body_a, body_b, *records = form.inputs.split(inputs)
    parts = [(Pose.of(x[: form.body.motion]), x[form.body.motion :]) for x in (body_a, body_b)]
    (a, Ka), (b, Kb) = parts
    shapes, softs = zip(*((x[: layout.SHAPE], x[layout.SHAPE :]) for x in records), strict=True)
    side = ContactSide(shapes, softs, point, weight, False, ())
    rows, reference, law = contact_rows(form.settings, h, side, a, b)
    pushes: list[Vec] = [(*push(form.body, row, a, Ka), *sp.neg(push(form.body, row, b, Kb))) for row in rows]
    speeds = [row_speed(row, a, SMOOTH) - row_speed(row, b, SMOOTH) for row in rows]
    return SoftBlock(rows, pushes, [s - r for s, r in zip(speeds, reference, strict=True)], law)


def forces_at(form: SoftContactForm, block: SoftBlock, y: Vec) -> list[Scalar]:
    """The forces of the rows; y: of both bodies."""
    x = [r + p for r, p in zip(block.residual, block.along(y), strict=True)]
    return block.law.force(form.settings.elliptic, tuple(x))


def soft_contact_force(form: SoftContactForm, weight: Scalar, h: Scalar, y: Vec, inputs: Vec) -> list[Scalar]:
    """FORCE numbers: the force on the first shape (N) and the point it acts at (m)."""
    block = soft_block(form, weight, h, inputs)
    return [*resultant(block.rows, forces_at(form, block, y)), *block.rows[0].point]


def power(
    form: SoftContactForm, weight: Scalar, h: Scalar, virtual: Vec, force_bar: Vec
) -> Callable[..., list[Scalar]]:
    """f · P λ, and the product of the contact's force with its cotangent, as a function of `SoftContactForm.inputs` and
    y of both bodies; virtual: λ of both bodies; force_bar: of FORCE numbers."""

    def total(*x: Scalar) -> list[Scalar]:
        inputs, y = x[: form.inputs.size], x[form.inputs.size :]
        block = soft_block(form, weight, h, inputs)
        forces = forces_at(form, block, y)
        result = sp.dot(forces, block.along(virtual))
        acting = (*resultant(block.rows, forces), *block.rows[0].point)
        assert len(acting) == FORCE
        return [sp.dot(force_bar, acting, result)]

    return total
