"""From solref and solimp to the reference acceleration and the regularisation of a constraint row.

a_ref = -b v - k d(r) r       r: the position error, v its rate
R = (1 - d(r)) / d(r) · W     W: an approximate diagonal of the Delassus matrix; d: the impedance, between 0 and 1
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir import Mask, Scalar, absolute, clip, is_constant, maximum, minimum, select, sqrt, tanh
from ...schema import layout
from ..math.arrays import split
from ..math.spatial import Vec
from .settings import SoftSettings

LEAST = 1e-15  # denominators are at least this
LEAST_IMPEDANCE, MOST_IMPEDANCE = 1e-4, 0.9999
SMALLEST, ROOTS, TERMS = 1e-12, 7, 9  # of real powers: least argument, square roots, terms of a series
DEFAULT_SOLREF = 0.02, 1.0  # in place of one that is neither a time constant and a damping ratio nor both negative
LEAST_FRICTION = 1e-5  # coefficients of friction are at least this


class Softness(NamedTuple):
    """The impedance d of a row; its stiffness k (1/s²) and damping b (1/s)."""

    impedance: Scalar
    stiffness: Scalar
    damping: Scalar

    def reference(self, error: Scalar, speed: Scalar) -> Scalar:
        """The reference acceleration of a row with this position error and speed."""
        return -(self.damping * speed) - self.stiffness * self.impedance * error

    def inverse_regularisation(self, weight: Scalar) -> Scalar:
        """D = 1 / R; weight: the approximate diagonal of the Delassus matrix."""
        return 1.0 / maximum((1.0 - self.impedance) * weight / self.impedance, LEAST)


def softness(settings: SoftSettings, h: Scalar, record: Vec, error: Scalar) -> Softness:
    """Of a row with the SOFT numbers `record`, at a position error (m or rad)."""
    first, second = record[layout.SOLREF : layout.SOLREF + 2]
    odd = ((first > 0.0) & (second <= 0.0)) | ((first <= 0.0) & (second > 0.0))
    first, second = (select(odd, default, x) for default, x in zip(DEFAULT_SOLREF, (first, second), strict=True))
    low, high, width, middle, power = record[layout.SOLIMP : layout.SOLIMP + 5]
    low, high, middle = (clip(x, LEAST_IMPEDANCE, MOST_IMPEDANCE) for x in (low, high, middle))
    standard = first > 0.0
    time = maximum(first, 2.0 * h) if settings.refsafe else first
    time, ratio = select(standard, time, 1.0), select(standard, second, 1.0)
    stiffness = 1.0 / maximum(high * high * time * time * ratio * ratio, LEAST)
    damping = 2.0 / maximum(high * time, LEAST)
    return Softness(
        _impedance((low, high, width, middle), settings.power or maximum(power, 1.0), error),
        select(standard, stiffness, -(first / (high * high))),
        select(standard, damping, -(second / high)),
    )


def _impedance(solimp: Vec, power: Scalar, error: Scalar) -> Scalar:
    """d(r): from its least value at r = 0 to its greatest at |r| = width, by two powers that meet at the midpoint."""
    low, high, width, middle = solimp
    narrow = width <= LEAST
    x = absolute(error) / select(narrow, 1.0, width)
    if is_constant(power, 1):
        y = x
    else:
        rising = _power(x, power) / _power(middle, power - 1)
        falling = 1.0 - _power(1.0 - x, power) / _power(1.0 - middle, power - 1)
        y = select(x <= middle, rising, falling)
    return select(narrow, 0.5 * (low + high), select(x >= 1.0, high, low + y * (high - low)))


def _power(x: Scalar, n: Scalar) -> Scalar:
    """xⁿ, for x of [0, 1]: a product, if n is known while tracing."""
    if not isinstance(n, int):
        return _real_power(x, n)
    result: Scalar = 1.0
    for _ in range(n):
        result = result * x
    return result


def _real_power(x: Scalar, n: Scalar) -> Scalar:
    """xⁿ = exp(n log x), with an absolute error of a few roundings.

    log x is a multiple of that of a root y close to 1, log y = 2 artanh((y - 1) / (y + 1)), and exp z is
    (1 + t) / (1 - t) with t = tanh(z/2).
    """
    y = clip(x, SMALLEST, 1.0)
    for _ in range(ROOTS):
        y = sqrt(y)
    s = (y - 1.0) / (y + 1.0)
    series: Scalar = 0.0
    for k in range(2 * TERMS - 1, 0, -2):
        series = 1.0 / k + s * s * series
    t = tanh(0.5 * n * (2.0 ** (ROOTS + 1) * s * series))
    return (1.0 + t) / (1.0 - t)


class ContactMaterial(NamedTuple):
    """Of a contact: SOFT numbers; the sum of the margins (m); condim; coefficients of sliding (twice), torsional and
    rolling (twice) friction; adhesion (N); solref of friction, zero if it is that of the contact."""

    soft: Vec
    margin: Scalar
    condim: Scalar
    friction: Vec
    adhesion: Scalar = 0.0
    friction_solref: Vec = (0.0, 0.0)

    @classmethod
    def of_pair(cls, record: Vec) -> ContactMaterial:
        """From a SOFT_PAIR record."""
        soft, (margin, _, adhesion, condim), friction, solref = split(record, layout.SOFT, 4, 5, 2)
        floored = tuple(maximum(x, LEAST_FRICTION) for x in friction)
        return cls(soft, margin, condim, floored, adhesion, solref)

    @property
    def numbers(self) -> tuple[Scalar, ...]:
        return (*self.soft, self.margin, self.condim, *self.friction, self.adhesion, *self.friction_solref)

    def where(self, own: Mask, other: ContactMaterial) -> ContactMaterial:
        """This material where the mask holds, else the other."""
        mine = [select(own, x, y) for x, y in zip(self.numbers, other.numbers, strict=True)]
        soft, (margin, condim), friction, (adhesion,), solref = split(mine, layout.SOFT, 2, 5, 1, 2)
        return ContactMaterial(soft, margin, condim, friction, adhesion, solref)


def mixed(shapes: tuple[Vec, Vec], softs: tuple[Vec, Vec]) -> ContactMaterial:
    """From the SHAPE and the SOFT_SHAPE records of both shapes."""
    (shape_a, shape_b), (a, b) = shapes, softs
    rank_a, rank_b = a[layout.PRIORITY], b[layout.PRIORITY]
    first, second = rank_a > rank_b, rank_b > rank_a
    part = _share(a[layout.SOLMIX], b[layout.SOLMIX])
    part = select(first, 1.0, select(second, 0.0, part))
    soft = [part * x + (1.0 - part) * y for x, y in zip(a[: layout.SOFT], b[: layout.SOFT], strict=True)]
    equal = ~(first | second)
    direct = equal & ~((a[layout.SOLREF] > 0.0) & (b[layout.SOLREF] > 0.0))
    for k in (layout.SOLREF, layout.SOLREF + 1):
        soft[k] = select(direct, minimum(a[k], b[k]), soft[k])

    def ranked(x: Scalar, y: Scalar) -> Scalar:
        return select(first, x, select(second, y, maximum(x, y)))

    sliding = ranked(shape_a[layout.FRICTION], shape_b[layout.FRICTION])
    torsional, rolling = (ranked(a[k], b[k]) for k in (layout.TORSIONAL, layout.ROLLING))
    friction = [maximum(x, LEAST_FRICTION) for x in (sliding, sliding, torsional, rolling, rolling)]
    condim = ranked(a[layout.CONDIM], b[layout.CONDIM])
    margin = a[layout.MARGIN] + b[layout.MARGIN]
    return ContactMaterial(tuple(soft), margin, condim, tuple(friction), mixed_adhesion(a, b))


def mixed_adhesion(a: Vec, b: Vec) -> Scalar:
    """The adhesion (N) of a contact, from the SOFT_SHAPE records of both shapes: that of the shape with the higher
    priority, or the sum of both."""
    first, second = a[layout.PRIORITY] > b[layout.PRIORITY], b[layout.PRIORITY] > a[layout.PRIORITY]
    pull_a, pull_b = a[layout.ADHESION], b[layout.ADHESION]
    return select(first, pull_a, select(second, pull_b, pull_a + pull_b))


def _share(x: Scalar, y: Scalar) -> Scalar:
    """The weight of the first of two shapes with these solmix."""
    none_x: Mask = x < LEAST
    none_y: Mask = y < LEAST
    share = x / select(none_x & none_y, 1.0, x + y)
    return select(none_x, select(none_y, 0.5, 0.0), select(none_y, 1.0, share))
