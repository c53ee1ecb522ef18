"""Rows of constraints on combinations of coordinates: limits and friction of tendons; equations between the lengths of
two (or the coordinates of two joints), l₁ - z₁ = a₀ + a₁ d + a₂ d² + ..., d = l₂ - z₂; limits of ball joints' angles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ...ir import Mask, Scalar, ScalarArray, select, sqrt, vjp
from ...model.soft import Combination, Coupling, Tendon
from ...schema import layout
from ..math import spatial as sp
from ..math.arrays import accumulate, split
from ..math.spatial import Vec
from ..solvers.active_set import INFINITE
from ..tree.tree import Tree
from .impedance import softness
from .laws import SingleLaw
from .problem import SoftProblem
from .rows import SingleRow, friction_row, limit_gaps, limit_row
from .settings import SoftSettings
from .tendons import along, length, spread, tendon_record

SMALLEST_ANGLE = 1e-12  # rad; below, a rotation has no axis


class CombinedRow(NamedTuple):
    """factor · the length's rate, in the lanes `on`."""

    factor: float
    on: Mask
    row: SingleRow


def tendon_rows(
    settings: SoftSettings, h: Scalar, tendon: Tendon, record: Vec, length: Scalar, speed: Scalar
) -> Iterator[CombinedRow]:
    """The rows of a tendon's limits and friction; record: TENDON."""
    if tendon.limited:
        soft = record[layout.TENDON_LIMIT : layout.TENDON_LIMIT + layout.SOFT_JOINT]
        for sign, gap in limit_gaps(record[layout.TENDON_RANGE : layout.TENDON_RANGE + 2], length):
            on = gap < soft[layout.MARGIN]
            yield CombinedRow(sign, on, limit_row(settings, h, soft, select(on, gap, 0.0), sign * speed))
    if tendon.rubs:
        soft, most = record[layout.TENDON_RUB :], record[layout.TENDON_LOSS]
        yield CombinedRow(1.0, most > 0.0, friction_row(settings, h, soft, most, speed))


def polynomial(coefficients: Vec, x: Scalar) -> tuple[Scalar, Scalar]:
    """Its value and its derivative at x."""
    value: Scalar = 0.0
    slope: Scalar = 0.0
    for a in reversed(coefficients):
        value, slope = a + x * value, value + x * slope
    return value, slope


def coupling_row(settings: SoftSettings, h: Scalar, record: Vec, lengths: Vec, speeds: Vec) -> tuple[Scalar, SingleRow]:
    """How the second length moves the first one, ∂l₁/∂l₂, and the row; record: COUPLING."""
    zeros = record[layout.COUPLING_ZERO : layout.COUPLING_ZERO + 2]
    wanted, slope = polynomial(record[layout.POLYNOMIAL : layout.POLYNOMIAL + 5], lengths[1] - zeros[1])
    error = lengths[0] - zeros[0] - wanted
    soft = softness(settings, h, record, error)
    law = SingleLaw(soft.inverse_regularisation(record[layout.COUPLING_WEIGHT]), -INFINITE, INFINITE)
    return slope, SingleRow(soft.reference(error, speeds[0] - slope * speeds[1]), law)


def swing_row(
    settings: SoftSettings, h: Scalar, record: Vec, quaternion: Vec, spin: Vec
) -> tuple[Vec, Mask, SingleRow]:
    """The axis about which a ball joint is turned, whether its limit is near, and the row; record: SWING.

    The row is the rate of the distance to the limit: minus the angular velocity about the axis.
    """
    turned = sp.quaternion_log(sp.normalised(quaternion))
    square = sp.dot(turned, turned)
    still = square < SMALLEST_ANGLE * SMALLEST_ANGLE
    angle = sqrt(select(still, 1.0, square))
    axis = [select(still, float(k == 0), x / angle) for k, x in enumerate(turned)]
    gap = record[layout.SWING_HIGH] - select(still, 0.0, angle)
    on = gap < record[layout.MARGIN]
    return axis, on, limit_row(settings, h, record, select(on, gap, 0.0), -sp.dot(axis, spin))


def _pair(coupling: Coupling) -> tuple[Combination, Combination]:
    """Both combinations; an empty one, whose length is zero, if there is only one."""
    return coupling.first, coupling.second or Combination((), (), ())


class CombinationRows:
    """The rows of all combinations, and the gradient of their power."""

    def __init__(self, tree: Tree, settings: SoftSettings, h: Scalar) -> None:
        self.tree, self.settings, self.h = tree, settings, h

    def _coupling_record(self, i: int) -> Vec:
        return self.tree.constants.at(self.settings.coupling_place(i)).get(0, layout.COUPLING)

    def add(self, problem: SoftProblem, q: ScalarArray, v: ScalarArray) -> None:
        """Put the rows into the problem. Other single rows must be there, with their columns."""
        settings, h = self.settings, self.h
        for t, tendon in enumerate(settings.tendons):
            record, own = tendon_record(self.tree, settings, t), tendon.length
            for factor, on, row in tendon_rows(settings, h, tendon, record, length(own, q), along(own, v)):
                parts = [(k, factor * c) for k, c in zip(own.v, own.coefficients, strict=True)]
                problem.add_combination(parts, on, row)
        for i, coupling in enumerate(settings.couplings):
            pair = _pair(coupling)
            lengths, speeds = [length(one, q) for one in pair], [along(one, v) for one in pair]
            slope, row = coupling_row(settings, h, self._coupling_record(i), lengths, speeds)
            both: list[tuple[int, Scalar]] = list(zip(pair[0].v, pair[0].coefficients, strict=True))
            both += [(k, -(c * slope)) for k, c in zip(pair[1].v, pair[1].coefficients, strict=True)]
            problem.add_combination(both, True, row)

        for i, swing in enumerate(settings.swings):
            record = self.tree.constants.at(settings.swing_place(i)).get(0, layout.SWING)
            quaternion, spin = q.at(swing.q).get(0, 4), v.at(swing.v).get(0, 3)
            axis, on, row = swing_row(settings, h, record, quaternion, spin)
            problem.add_combination([(swing.v + k, -x) for k, x in enumerate(axis)], on, row)

    def adjoint(
        self, q: ScalarArray, motions: Sequence[ScalarArray], q_bar: ScalarArray, v_bar: ScalarArray,
        constants_bar: ScalarArray | None,
    ) -> None:  # fmt: skip
        """Add the gradient of f · J λ of all rows; motions: v, a and λ [nv]."""
        settings, v = self.settings, motions[0]
        for t, tendon in enumerate(settings.tendons):
            own, record = tendon.length, tendon_record(self.tree, settings, t)
            moving = [along(own, x) for x in motions[1:]]
            inputs = (*record, length(own, q), along(own, v))
            _, gradient = vjp(partial(self._tendon_power, tendon, moving), inputs, [1.0])
            spread(own, gradient[-2], q_bar, own.q)
            spread(own, gradient[-1], v_bar, own.v)
            if constants_bar is not None:
                accumulate(constants_bar.at(settings.tendon_place(t)), gradient[:-2])
        for i, coupling in enumerate(settings.couplings):
            pair = _pair(coupling)
            rates = [[along(one, x) for one in pair] for x in motions]
            inputs = (*self._coupling_record(i), *(length(one, q) for one in pair), *rates[0])
            _, gradient = vjp(partial(self._coupling_power, rates[1:]), inputs, [1.0])
            record_bar, lengths_bar, speeds_bar = split(gradient, layout.COUPLING, 2, 2)
            for one, length_bar, speed_bar in zip(pair, lengths_bar, speeds_bar, strict=True):
                spread(one, length_bar, q_bar, one.q)
                spread(one, speed_bar, v_bar, one.v)
            if constants_bar is not None:
                accumulate(constants_bar.at(settings.coupling_place(i)), record_bar)

        for i, swing in enumerate(settings.swings):
            place, (spin, *turning) = settings.swing_place(i), [x.at(swing.v).get(0, 3) for x in motions]
            inputs = (*self.tree.constants.at(place).get(0, layout.SWING), *q.at(swing.q).get(0, 4), *spin)
            _, gradient = vjp(partial(self._swing_power, turning), inputs, [1.0])
            record_bar, quaternion_bar, spin_bar = split(gradient, layout.SWING, 4, 3)
            accumulate(q_bar.at(swing.q), quaternion_bar)
            accumulate(v_bar.at(swing.v), spin_bar)
            if constants_bar is not None:
                accumulate(constants_bar.at(place), record_bar)

    def _swing_power(self, moving: Sequence[Vec], *x: Scalar) -> list[Scalar]:
        axis, on, (reference, law) = swing_row(self.settings, self.h, *split(x, layout.SWING, 4, 3))
        found, virtual = (-sp.dot(axis, one) for one in moving)
        return [select(on, law.force(found - reference) * virtual, 0.0)]

    def _tendon_power(self, tendon: Tendon, moving: Sequence[Scalar], *x: Scalar) -> list[Scalar]:
        found, virtual = moving
        total: Scalar = 0.0
        for factor, on, (reference, law) in tendon_rows(self.settings, self.h, tendon, x[:-2], *x[-2:]):
            total = total + select(on, law.force(factor * found - reference) * factor * virtual, 0.0)
        return [total]

    def _coupling_power(self, rates: Sequence[Sequence[Scalar]], *x: Scalar) -> list[Scalar]:
        record, lengths, speeds = split(x, layout.COUPLING, 2, 2)
        slope, (reference, law) = coupling_row(self.settings, self.h, record, lengths, speeds)
        found, virtual = (first - slope * second for first, second in rates)
        return [law.force(found - reference) * virtual]
