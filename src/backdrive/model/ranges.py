"""What values a parameter may have, declared once: constructors, scene files, loaders and parameters all ask here.

An actuator declares the ranges of its own parameters with them (`actuators.ActuatorParameter`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from . import checks

SMALLEST = 1.0 / checks.LARGEST
"""The smallest number that counts as positive, so that volumes and inertias do not vanish."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included, except the number `excluded`; never NaN.

    also: a rule about several values together, which the owner of the parameter checks; for tables.
    """

    low: float = -checks.LARGEST
    high: float = checks.LARGEST
    excluded: float | None = None
    also: str = ""

    @property
    def infinite(self) -> bool:
        """Whether infinity is in the range."""
        return math.inf in (self.high, -self.low)

    def __contains__(self, x: float) -> bool:
        return self.low <= x <= self.high and x != self.excluded

    def hold(self, x: Tensor) -> bool:
        """Whether all of these numbers are in the range."""
        if self.excluded is not None:
            return bool(self.inside(x).all())
        least, most = (float(end) for end in x.aminmax())  # NaN, if there is one
        return self.low <= least and most <= self.high

    def inside(self, x: Tensor) -> Tensor:
        """Which of these numbers are in the range, bool."""
        inside = (x >= self.low) & (x <= self.high)
        return inside if self.excluded is None else inside & (x != self.excluded)

    def __str__(self) -> str:
        """Such as ">= 0", for tables and errors."""
        low, high = self.bounds
        if math.isfinite(low) and math.isfinite(high):
            return f"between {low:g} and {high:g}"
        if math.isfinite(low):
            return f"> {low:g}" if self.low > low else f">= {low:g}"
        if self.excluded is not None:
            return f"not {self.excluded:g}"
        return "any number" if self.infinite else "finite"

    @property
    def bounds(self) -> tuple[float, float]:
        """Low and high, without regard to what floats can represent: infinite if there is none, 0 for `SMALLEST`."""
        low = 0.0 if self.low == SMALLEST else self.low if self.low > -checks.LARGEST else -math.inf
        return low, self.high if self.high < checks.LARGEST else math.inf

    def rule(self, x: float) -> str:
        """What is wrong with a number that is not in the range: "must be > 0"."""
        if math.isnan(x) and self.infinite:
            return f"must be {'a number' if str(self) == 'any number' else f'a number {self}'}"
        if not self.infinite and not abs(x) <= checks.LARGEST:
            bound = f" (at most {checks.LARGEST:g} in magnitude)" if math.isfinite(x) else ""
            return "must be finite" + ("" if str(self) == "finite" else f" and {self}") + bound
        if self.low == SMALLEST and x > 0.0:
            return f"must be > 0 (at least {SMALLEST:g})"
        return f"must not be {self.excluded:g}" if x == self.excluded else f"must be {self}"

    def number(self, value: Any, what: str) -> float:
        """A user's value as a float, if it is in the range; what: its name, for the error."""
        result = checks.as_float(value, what)
        if result not in self:
            raise ValueError(f"{what} {self.rule(result)}, got {result:g}")
        return result


FINITE = Range()
NUMBER = Range(-math.inf, math.inf)
POSITIVE = Range(SMALLEST)
NOT_NEGATIVE = Range(0.0)
NOT_ZERO = Range(excluded=0.0)

RANGES: dict[str, Range] = {
    "mass": POSITIVE,
    "com": FINITE,
    "inertia": Range(also="positive definite, triangle inequality"),
    "offset": FINITE,
    "anchor": FINITE,
    "axis": Range(also="not of zero length"),
    "stiffness": NOT_NEGATIVE,
    "damping": NOT_NEGATIVE,
    "armature": NOT_NEGATIVE,
    "reference": Range(also="quaternions not of zero length"),
    "limit_low": Range(-math.inf, math.inf, also="below limit_high"),
    "limit_high": Range(-math.inf, math.inf, also="above limit_low"),
    "joint_friction": NOT_NEGATIVE,
    "friction": Range(0.0, math.inf),
    "restitution": Range(0.0, 1.0),
    "softness": NOT_NEGATIVE,
    "shape_position": FINITE,
    "gravity": FINITE,
    "solref": FINITE,
    "solimp": NOT_NEGATIVE,
    "margin": NOT_NEGATIVE,
    "torsional_friction": NOT_NEGATIVE,
    "rolling_friction": NOT_NEGATIVE,
    "limit_solref": FINITE,
    "limit_solimp": NOT_NEGATIVE,
    "limit_margin": NOT_NEGATIVE,
    "pair_solref": FINITE,
    "pair_solimp": NOT_NEGATIVE,
    "pair_margin": NOT_NEGATIVE,
    "pair_friction": NOT_NEGATIVE,
    "adhesion": NOT_NEGATIVE,
    "surfacevel": FINITE,
    "joint_friction_solref": FINITE,
    "joint_friction_solimp": NOT_NEGATIVE,
    "equality_solref": FINITE,
    "equality_solimp": NOT_NEGATIVE,
    "polycoef": FINITE,
    "tendon_stiffness": NOT_NEGATIVE,
    "tendon_damping": NOT_NEGATIVE,
    "tendon_friction": NOT_NEGATIVE,
    "tendon_limit_solref": FINITE,
    "tendon_limit_solimp": NOT_NEGATIVE,
    "tendon_friction_solref": FINITE,
    "tendon_friction_solimp": NOT_NEGATIVE,
    "swing_limit": NOT_NEGATIVE,
    "swing_solref": FINITE,
    "swing_solimp": NOT_NEGATIVE,
    "rope_limit": NOT_NEGATIVE,
    "rope_solref": FINITE,
    "rope_solimp": NOT_NEGATIVE,
    "density": NOT_NEGATIVE,
    "viscosity": NOT_NEGATIVE,
    "wind": FINITE,
    "gravcomp": FINITE,
}
"""By the name of the parameter. A shape declares that of its sizes: `Shape.size_range`."""
PLANAR_INERTIA = POSITIVE
"""In 2D, an inertia is one number."""
