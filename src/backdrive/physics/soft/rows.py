"""The rows of soft constraints: wrenches, reference accelerations, and the parameters of their laws.

A contact has up to six rows: the normal, two tangents, and the rotations about the three. The edges of a pyramid are
combinations of these (`laws`).
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir import Scalar, select
from ...schema import layout
from ..constraints.rows import Row, row_speed
from ..geometry.solids import ContactPoint
from ..math.spatial import ZERO3, Vec
from ..solvers.active_set import INFINITE
from ..tree.poses import Pose
from .contacts import contact_frame
from .impedance import ContactMaterial, Softness, mixed, softness
from .laws import ContactLaw, SingleLaw
from .settings import SoftSettings


class ContactSide(NamedTuple):
    """What a contact's rows depend on besides the poses of its links: the SHAPE and SOFT_SHAPE records of both shapes,
    the numbers of the point, whether its frame follows an axis (`contacts.follows_axis`), and the inverse inertia."""

    shapes: tuple[Vec, Vec]
    softs: tuple[Vec, Vec]
    point: Vec
    follows: Scalar
    weight: Scalar


class SoftContactRows(NamedTuple):
    """The rows of a contact, their reference accelerations, and their law."""

    rows: list[Row]
    reference: list[Scalar]
    law: ContactLaw


def contact_rows(settings: SoftSettings, h: Scalar, side: ContactSide, a: Pose, b: Pose) -> SoftContactRows:
    """The first twist of the poses is that of v."""
    point, material = ContactPoint.of(side.point), mixed(side.shapes, side.softs)
    tangents = contact_frame(point.normal, side.follows, a, side.shapes[0])
    directions = (point.normal, *tangents)
    rows = [Row(point.position, ZERO3, d) for d in directions]
    if settings.block > len(rows):
        rows += [Row(point.position, d, ZERO3) for d in directions]
    error = point.gap - material.margin
    soft = softness(settings, h, material.soft, error)
    speeds = [row_speed(row, a) - row_speed(row, b) for row in rows]
    reference = [soft.reference(error if k == 0 else 0.0, speed) for k, speed in enumerate(speeds)]
    return SoftContactRows(rows, reference, _contact_law(settings, material, soft, side.weight))


def _contact_law(settings: SoftSettings, material: ContactMaterial, soft: Softness, weight: Scalar) -> ContactLaw:
    """Of a contact between links of inverse inertia `weight` (1/kg)."""
    inverse = soft.inverse_regularisation
    condim, friction, n = material.condim, material.friction, settings.block
    smooth = condim < 1.5
    sliding = friction[0]
    counts = [condim > k + 0.5 for k in range(1, n)]
    if settings.elliptic:
        D0 = inverse(weight)
        D = [select(on, D0 * settings.impratio * (mu / sliding) * (mu / sliding), 0.0)
             for on, mu in zip(counts, friction[: n - 1], strict=True)]  # fmt: skip
        regularised = select(smooth, 0.0, sliding / settings.impratio**0.5)
        mu = [select(on, x, 0.0) for on, x in zip(counts, friction[: n - 1], strict=True)]
        return ContactLaw((D0, *D), (regularised, *mu))
    edge = inverse(weight * (1.0 + sliding * sliding)) * settings.impratio / (2.0 * sliding * sliding)
    D = [select(on & ~smooth, edge, 0.0) for on in counts]
    return ContactLaw((select(smooth, inverse(weight), 0.0), *D), (0.0, *friction[: n - 1]))


class SingleRow(NamedTuple):
    """Of a row of its own: its reference acceleration, and its law."""

    reference: Scalar
    law: SingleLaw


def limit_row(settings: SoftSettings, h: Scalar, record: Vec, gap: Scalar, speed: Scalar) -> SingleRow:
    """A joint limit; record: SOFT_JOINT; gap: the distance to the limit (rad or m); speed: its rate."""
    error = gap - record[layout.MARGIN]
    soft = softness(settings, h, record, error)
    D = soft.inverse_regularisation(record[layout.JOINT_WEIGHT])
    return SingleRow(soft.reference(error, speed), SingleLaw(D, 0.0, INFINITE))


def friction_row(settings: SoftSettings, h: Scalar, record: Vec, most: Scalar, speed: Scalar) -> SingleRow:
    """Dry friction of a joint; record: SOFT_JOINT; most: its greatest force (N or N m)."""
    soft = softness(settings, h, record, 0.0)
    D = soft.inverse_regularisation(record[layout.JOINT_WEIGHT])
    return SingleRow(soft.reference(0.0, speed), SingleLaw(D, -most, most))


def limit_gaps(record: Vec, q: Scalar) -> list[tuple[float, Scalar]]:
    """The direction away from each of the two limits of a LIMIT record, and the distance to it."""
    return [(1.0, q - record[layout.LOW]), (-1.0, record[layout.HIGH] - q)]
