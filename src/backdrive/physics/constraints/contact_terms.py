"""Terms of the rows of contacts and limits that dense worlds and piles have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...ir import Mask, Scalar, maximum, minimum, select
from ..math import spatial as sp
from ..math.spatial import ZERO3, Vec

if TYPE_CHECKING:
    from .rows import Row


SLOP = 1e-4  # penetration up to this part of the smaller shape's size is closed like a gap: by velocities
LIMIT_SLOP = 1e-4  # rad or m; the same for joint limits


def gap_bias(gap: Scalar, slop: Scalar, left: Scalar) -> Scalar:
    """The term gap / left (m/s) that is added to the speed at which a gap opens, so that it may just close.

    A penetration up to `slop` (m) is treated alike: contacts at rest have a gap of about zero, and must not lie on a
    kink. Deeper penetrations are left to the correction of positions (`violation`).
    """
    return maximum(gap, -slop) / left


def violation(gap: Scalar, slop: Scalar) -> Scalar:
    """The penetration (m, negative) that the correction of positions has to remove."""
    return minimum(gap + slop, 0.0)


def contact_bias(gap: Scalar, slop: Scalar, restitution: Scalar, before: Scalar, hits: Mask, left: Scalar) -> Scalar:
    """`gap_bias`, or e v⁻ where a contact bounces (mask `hits`); v⁻ = `before`, the normal speed before the step."""
    return select(hits, restitution * before, gap_bias(gap, slop, left))


def bounces(gap: Scalar, speed: Scalar, before: Scalar, restitution: Scalar, left: Scalar, threshold: Scalar) -> Mask:
    """Whether a contact bounces in plain time stepping, without impact times (mask).

    It does if its gap (m) closes within the time `left` (s) at the normal speed of the free motion (m/s), and if the
    bodies approached faster than the threshold (m/s); before: the normal speed at the beginning of the step.
    """
    closes = gap + left * speed < 0.0
    return closes & (before < -threshold) & (restitution > 0.0)


def row_compliance(regularisation: Scalar, inverse_mass: Scalar, softness: Scalar, cfm: Scalar) -> Scalar:
    """The diagonal term that is added to the Delassus matrix, m/s per N s.

    regularisation: part of the inverse mass (1/kg); softness: of the materials; cfm: of the solver.
    """
    return regularisation * inverse_mass + (softness + cfm)


def resultant(rows: Iterable[Row], impulses: Iterable[Scalar], force: Vec = ZERO3) -> Vec:
    """The force (or impulse) of all rows of a contact on its first body, added to `force`; world axes."""
    for impulse, row in zip(impulses, rows, strict=True):
        force = sp.add(force, sp.scale(impulse, row.force))
    return force
