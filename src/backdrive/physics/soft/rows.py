"""The rows of soft constraints: wrenches, reference accelerations, and the parameters of their laws.

A contact has up to six rows: the normal, two tangents, and the rotations about the three. The edges of a pyramid are
combinations of these (`laws`).
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir import Mask, Scalar, maximum, select, sqrt
from ...schema import layout
from ...schema.layout import EqualityKind
from ..constraints.rows import Row, row_speed
from ..geometry.mujoco import GeomContact
from ..geometry.solids import ShapeRecord
from ..math import spatial as sp
from ..math.arrays import split
from ..math.spatial import ZERO3, Vec
from ..solvers.active_set import INFINITE
from ..tree.poses import Pose
from .drift import Drifting
from .impedance import ContactMaterial, Softness, mixed, softness
from .laws import ContactLaw, SingleLaw
from .settings import SoftSettings

LEAST_TRACE = 1e-12  # 4 w² of a relative quaternion is at least this: half turns have no smooth error


class ContactSide(NamedTuple):
    """What a contact's rows depend on besides the poses of its links: the SHAPE and SOFT_SHAPE records of both shapes,
    the numbers of the `GeomContact`, the inverse inertia; and of an explicit pair, its SOFT_PAIR record (own: where the
    pair is explicit; the record is empty if no pair is)."""

    shapes: tuple[Vec, Vec]
    softs: tuple[Vec, Vec]
    contact: Vec
    weight: Scalar
    own: Mask
    pair: Vec

    def material(self) -> ContactMaterial:
        shared = mixed(self.shapes, self.softs)
        return ContactMaterial.of_pair(self.pair).where(self.own, shared) if self.pair else shared


class SoftContactRows(NamedTuple):
    """The rows of a contact, their reference accelerations, and their law."""

    rows: list[Row]
    reference: list[Scalar]
    law: ContactLaw


def contact_rows(settings: SoftSettings, h: Scalar, side: ContactSide, a: Pose, b: Pose) -> SoftContactRows:
    """The first twist of the poses is that of v."""
    contact, material = GeomContact.of(side.contact), side.material()
    directions = (contact.normal, contact.tangent, contact.bitangent)
    rows = [Row(contact.position, ZERO3, d) for d in directions]
    if settings.block > len(rows):
        rows += [Row(contact.position, d, ZERO3) for d in directions]
    error = contact.dist - material.margin
    if settings.adheres:  # contacts in the gap pull without friction
        material = material._replace(condim=select(error < 0.0, material.condim, 1.0))
    soft = softness(settings, h, material.soft, error)
    speeds = [row_speed(row, a) - row_speed(row, b) for row in rows]
    if settings.moving:
        speeds = _with_surfaces(speeds, contact, side, a, b)
    law = _contact_law(settings, material, soft, side.weight)
    reference = [soft.reference(error, speeds[0])]
    if settings.adheres:  # such that the contact is as deep as without adhesion
        law = law._replace(pull=material.adhesion)
        reference[0] = reference[0] + law.pull / law.normal_stiffness(settings.elliptic)
    sliding = soft
    if settings.explicit and settings.elliptic:
        given = (material.friction_solref[0] != 0.0) | (material.friction_solref[1] != 0.0)
        other = softness(settings, h, (*material.friction_solref, *material.soft[layout.SOLIMP :]), error)
        sliding = soft._replace(damping=select(given, other.damping, soft.damping))
    reference += [sliding.reference(0.0, speed) for speed in speeds[1:]]
    return SoftContactRows(rows, reference, law)


def _with_surfaces(speeds: list[Scalar], contact: GeomContact, side: ContactSide, a: Pose, b: Pose) -> list[Scalar]:
    """The speeds of a contact's rows, with those of surfaces that move along themselves: of the tangents, and of the
    rotation about the normal."""
    relative, spin = ZERO3, ZERO3
    for sign, shape, soft, link in zip((1.0, -1.0), side.shapes, side.softs, (a, b), strict=True):
        placed = ShapeRecord.of(shape)
        linear, angular = (
            sp.rotate(link.rotation, sp.rotate(placed.rotation, part))
            for part in split(soft[layout.SURFACE : layout.SURFACE + 6], 3, 3)
        )
        lever = sp.sub(contact.position, sp.rotate(link.rotation, placed.position, link.origin))
        relative = sp.add(relative, sp.scale(sign, sp.cross(angular, lever, linear)))
        spin = sp.add(spin, sp.scale(sign, angular))
    result = list(speeds)
    for k, tangent in ((1, contact.tangent), (2, contact.bitangent)):
        result[k] = result[k] + sp.dot(tangent, relative)
    if len(result) > 3:
        result[3] = result[3] + sp.dot(contact.normal, spin)
    return result


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


class EqualityRow(NamedTuple):
    """The row of an equation as it acts on link a, and (with the opposite sign) on link b; its position error; that of
    all equations of the same constraint together, which sets their impedance; and J̇ v."""

    a: Row
    b: Row
    error: Scalar
    size: Scalar
    drift: Scalar

    def speed(self, a: Pose, b: Pose, k: int = 0) -> Scalar:
        """J v, for velocity k of the poses."""
        return row_speed(self.a, a, k) - row_speed(self.b, b, k)


def equality_row(kind: EqualityKind, record: Vec, soft: Vec, a: Drifting, b: Drifting) -> EqualityRow:
    """One of the three equations of a connect (ALONG) or of the six of a weld (ALONG, ABOUT).

    record: EQUALITY; soft: SOFT_EQUALITY. Two points stay together: the error is their distance along a world axis. The
    rotation of a relative to b is the vector part of its unit quaternion, times the torque scale.
    """
    axis = record[layout.DIRECTION : layout.DIRECTION + 3]  # a unit vector
    scale = soft[layout.TORQUE_SCALE]
    at_a = sp.rotate(a.rotation, record[layout.POINT_A : layout.POINT_A + 3], a.origin)
    at_b = sp.rotate(b.rotation, record[layout.POINT_B : layout.POINT_B + 3], b.origin)
    apart = sp.sub(at_a, at_b)
    to_a = sp.matmul(a.rotation, record[layout.RELATIVE : layout.RELATIVE + 9])
    E = sp.matmul(sp.transpose(b.rotation), to_a)
    w = 0.5 * sqrt(maximum(1.0 + E[0] + E[4] + E[8], LEAST_TRACE))
    turned = sp.scale(0.25 / w, (E[7] - E[5], E[2] - E[6], E[3] - E[1]))
    square = sp.dot(apart, apart) + soft[layout.WELDS] * (scale * scale * sp.dot(turned, turned))
    size = sqrt(select(square > 0.0, square, 1.0))
    size = select(square > 0.0, size, 0.0)
    if kind == EqualityKind.ALONG:
        drift = sp.dot(axis, sp.sub(a.point_acceleration(at_a), b.point_acceleration(at_b)))
        return EqualityRow(Row(at_a, ZERO3, axis), Row(at_b, ZERO3, axis), sp.dot(axis, apart), size, drift)
    # The rate of the vector part is (w u + u × turned) / 2, with u the relative angular velocity in the axes of b.
    couple = sp.rotate(b.rotation, sp.scale(0.5 * scale, sp.cross(turned, axis, sp.scale(w, axis))))
    relative = sp.sub(a.angular, b.angular)
    u = sp.unrotate(b.rotation, relative)
    relative_rate = sp.sub(sp.sub(a.angular_rate, b.angular_rate), sp.cross(b.angular, relative))
    u_rate = sp.unrotate(b.rotation, relative_rate)
    rate = sp.scale(0.5, sp.cross(u, turned, sp.scale(w, u)))
    second = sp.cross(u_rate, turned, sp.cross(u, rate, sp.scale(w, u_rate)))
    second = sp.sub(second, sp.scale(0.5 * sp.dot(u, turned), u))
    row = Row(at_b, couple, ZERO3)
    return EqualityRow(row, row, scale * sp.dot(axis, turned), size, 0.5 * scale * sp.dot(axis, second))


def equality_law(
    settings: SoftSettings, h: Scalar, soft: Vec, row: EqualityRow, weight: Scalar, speed: Scalar
) -> SingleRow:
    """weight: the inverse inertia of both links, 1/kg or 1/(kg m²)."""
    found = softness(settings, h, soft, row.size)
    law = SingleLaw(found.inverse_regularisation(weight), -INFINITE, INFINITE)
    return SingleRow(found.reference(row.error, speed) - row.drift, law)


def limit_gaps(record: Vec, q: Scalar) -> list[tuple[float, Scalar]]:
    """The direction away from each of the two limits of a LIMIT record, and the distance to it."""
    return [(1.0, q - record[layout.LOW]), (-1.0, record[layout.HIGH] - q)]
