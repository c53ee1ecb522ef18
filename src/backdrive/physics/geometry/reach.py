"""Which contact points count in a step."""

from __future__ import annotations

from ...ir import Mask, Scalar


def in_reach(gap: Scalar, margin: Scalar, closing: Scalar, time: Scalar) -> Mask:
    """Whether a gap (m) may matter within a time (s): it is below the margin (m), or may close down to it (mask).

    closing: the speed at which the gap closes (m/s), not negative.
    """
    return gap < margin + time * closing
