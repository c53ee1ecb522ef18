"""The speeds that gaps and restitution ask of a contact's or a limit's row."""

from __future__ import annotations

from ...ir import Mask, Scalar, maximum, minimum, select

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
