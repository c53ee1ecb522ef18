"""An ellipsoid with a sphere, a capsule or another ellipsoid: the common normal, by Newton's method.

The signed distance of two convex solids is the maximum, over unit vectors n, of their separation along n:

    gap(n) = n · d - h(n),    h(n) = √(nᵀ M n) for an ellipsoid with M = R diag(semi-axes²) Rᵀ,

where d leads from the center of the first to that of the second, and h is the sum of both support functions. At the
maximum, the support points of the two solids differ by a multiple of n. The search finds it; one more Newton step in
the contact function makes it exact, and differentiable. MuJoCo's iterations end within its tolerance of the same point.

A sphere is a point with a radius. The closest place on the segment of a capsule is one of its ends, or else n is
orthogonal to the segment.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ....ir import Mask, Scalar, absolute, carry, maximum, memory, minimum, rolled, select, sqrt, while_any
from ...math.arrays import split
from ...math.spatial import ZERO3, Vec, add, cross, dot, rotate, scale, sub
from ..pairs.common import along, choose, guarded
from ..solids import FAR, Solid
from .contacts import GeomContact, GeomPair, axis, contact, default_tangent, keep, normalised

CONVERGED = 1e-11
"""Slope of the gap, relative to the size of the solids, at which the search ends."""

ITERATIONS, AROUND_ITERATIONS = 200, 40
"""The most steps of the search, and of one among vectors orthogonal to another."""

DIRECTIONS = tuple((x, y, z) for x in (1.0, 0.0, -1.0) for y in (1.0, 0.0, -1.0) for z in (1.0, 0.0) if x or y or z)
"""Axes and diagonals of a solid, from which the search may start."""

AROUND = 12
"""Directions around a capsule from which the search may start."""


class _Support(NamedTuple):
    """Sum of the support functions of two solids at n: value (m), support point, and what its Hessian needs."""

    value: Scalar
    point: Vec
    parts: tuple[tuple[Scalar, Vec, Solid], ...]

    def curvature(self, s: Vec, t: Vec) -> Scalar:
        """sᵀ ∇²h t for tangent vectors s and t: ∇²h = (M - x xᵀ) / h with the support point x."""
        total: Scalar = 0.0
        for h, x, solid in self.parts:
            total = total + (dot(s, _times_square(solid, t)) - dot(s, x) * dot(t, x)) / h
        return total


def _times_square(solid: Solid, n: Vec) -> Vec:
    """M n"""
    total: Vec = ZERO3
    for k in range(3):
        column = tuple(solid.axes[k::3])
        total = along(total, column, solid.size[k] * solid.size[k] * dot(column, n))
    return total


def support(solids: tuple[Solid, ...], n: Vec) -> _Support:
    parts, value = [], 0.0
    point: Vec = ZERO3
    for solid in solids:
        Mn = _times_square(solid, n)
        h = sqrt(guarded(dot(n, Mn)))
        x = scale(1.0 / h, Mn)
        parts.append((h, x, solid))
        value, point = value + h, add(point, x)
    return _Support(value, point, tuple(parts))


class Gap:
    """The gap of ellipsoids (one, with a point; or two) whose centers are d apart. across: a unit vector that n stays
    orthogonal to, if any."""

    def __init__(self, solids: tuple[Solid, ...], d: Vec, across: Vec | None = None) -> None:
        self.solids, self.d, self.across = solids, d, across

    def value(self, n: Vec) -> Scalar:
        return dot(n, self.d) - support(self.solids, n).value

    def step(self, n: Vec) -> tuple[Vec, Scalar]:
        """The Newton step from n along the sphere (or circle) of unit vectors, uphill where the gap is not concave
        there; and the slope of the gap."""
        both = support(self.solids, n)
        gap, rest = dot(n, self.d) - both.value, sub(self.d, both.point)
        if self.across is not None:
            t = normalised(cross(self.across, n))
            g, H = dot(t, rest), -both.curvature(t, t) - gap
            length = select(H < 0.0, -g / select(H < 0.0, H, -1.0), g / both.value)
            return scale(length, t), absolute(g)
        s = default_tangent(n)
        t = cross(n, s)
        g, f = dot(s, rest), dot(t, rest)
        A, B, C = (-both.curvature(x, y) for x, y in ((s, s), (s, t), (t, t)))
        A, C = A - gap, C - gap
        determinant = A * C - B * B
        concave = (A < 0.0) & (determinant > 0.0)
        inverse = 1.0 / select(concave, determinant, 1.0)
        uphill = 1.0 / guarded(both.value)
        x = select(concave, (B * f - C * g) * inverse, g * uphill)
        y = select(concave, (B * g - A * f) * inverse, f * uphill)
        return along(scale(x, s), t, y), sqrt(maximum(g * g + f * f, 1e-300))

    def maximum(self, start: Vec) -> Vec:
        """The unit vector of a (local) maximum, uphill from `start`."""
        damping, slope = 3, 4
        state = carry(5)
        state.put(0, (*start, 1.0, 1.0))
        most = ITERATIONS if self.across is None else AROUND_ITERATIONS
        for _ in while_any(lambda: state[slope] > CONVERGED, most):
            n, part = tuple(state[k] for k in range(3)), state[damping]
            step, g = self.step(n)
            size = sqrt(maximum(dot(step, step), 1e-300))
            trial = normalised(along(n, step, part * minimum(1.0, 0.7 / size)))
            better = self.value(trial) >= self.value(n) - 1e-16
            active = (state[slope] > CONVERGED) & better
            state.put(0, choose(active, trial, n))
            state[damping] = select(better, minimum(1.0, 4.0 * part), 0.25 * part)
            state[slope] = select(state[slope] > CONVERGED, g, state[slope])
        return tuple(state[k] for k in range(3))

    def refined(self, n: Vec) -> Vec:
        """n after one Newton step, which gives it the derivatives of the maximum."""
        return normalised(add(n, self.step(n)[0]))

    def best(self, starts: list[Vec]) -> Vec:
        """The one with the greatest gap."""
        table, best = memory(3 * len(starts)), carry(4)
        for k, start in enumerate(starts):
            table.put(k, start)
        best.put(0, (0.0, 0.0, 1.0, -FAR))
        for k in rolled(len(starts)):
            start = table.get(k, 3)
            value = self.value(start)
            best.put(0, choose(value > best[3], (*start, value), tuple(best[m] for m in range(4))))
        return tuple(best[m] for m in range(3))


def _starts(d: Vec, *solids: Solid) -> list[Vec]:
    """Where to start the search: towards the other center, and along the axes of the solids and their diagonals. Of
    solids that penetrate deeply, the gap has several maxima."""
    starts = [normalised(d)]
    for solid in solids:
        for signs in DIRECTIONS:
            direction = normalised(rotate(solid.axes, signs))
            starts.append(scale(select(dot(direction, d) < 0.0, -1.0, 1.0), direction))
    return starts


def around(u: Vec) -> list[Vec]:
    """Unit vectors in all directions orthogonal to u."""
    s = default_tangent(u)
    t = cross(u, s)
    angles = [2.0 * math.pi * k / AROUND for k in range(AROUND)]
    return [along(scale(math.cos(angle), s), t, math.sin(angle)) for angle in angles]


def _between(a: Vec, b: Vec, normal: Vec) -> GeomContact:
    """The contact of two surface points."""
    return contact(dot(normal, sub(b, a)), scale(0.5, add(a, b)), normal)


# ------------------------------------------------------------------------------------------ spheres, ellipsoids


def search_sphere(sphere: Solid, ellipsoid: Solid, margin: Scalar) -> Vec:
    d = sub(ellipsoid.center, sphere.center)
    gap = Gap((ellipsoid,), d)
    return gap.maximum(gap.best(_starts(d, ellipsoid)))


def sphere_ellipsoid(sphere: Solid, ellipsoid: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    n = Gap((ellipsoid,), sub(ellipsoid.center, sphere.center)).refined(features)
    only = _ball(sphere.center, sphere.size[0], ellipsoid, n)
    return [keep(only.dist <= margin, only)]


def _ball(center: Vec, radius: Scalar, ellipsoid: Solid, n: Vec) -> GeomContact:
    """The contact of a ball with an ellipsoid, with the normal n."""
    return _between(along(center, n, radius), sub(ellipsoid.center, support((ellipsoid,), n).point), n)


def search_ellipsoids(a: Solid, b: Solid, margin: Scalar) -> Vec:
    d = sub(b.center, a.center)
    gap = Gap((a, b), d)
    return gap.maximum(gap.best(_starts(d, a, b)))


def ellipsoid_ellipsoid(a: Solid, b: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    n = Gap((a, b), sub(b.center, a.center)).refined(features)
    x, y = (support((solid,), n).point for solid in (a, b))
    only = _between(add(a.center, x), sub(b.center, y), n)
    return [keep(only.dist <= margin, only)]


# ------------------------------------------------------------------------------------------ capsules


def search_capsule(capsule: Solid, ellipsoid: Solid, margin: Scalar) -> Vec:
    """The end of the segment that is closest (-1 or 1; 0 if it is a place between them), and the normal: of those of
    both ends and of the places between them, the one with the greatest gap."""
    u, half = axis(capsule), 0.5 * capsule.size[1]
    d = sub(ellipsoid.center, capsule.center)
    side = Gap((ellipsoid,), d, u)
    best: Vec = (0.0, *side.maximum(side.best(around(u))))
    value = side.value(best[1:])
    for sign in (-1.0, 1.0):
        from_end = along(d, u, -sign * half)
        at_end = Gap((ellipsoid,), from_end)
        # The normal at an end has a positive component along the segment, outwards; others are mirrored.
        starts = [along(x, u, -2.0 * sign * minimum(sign * dot(x, u), 0.0)) for x in _starts(from_end, ellipsoid)]
        n = at_end.maximum(at_end.best(starts))
        other = side.value(n) - half * absolute(dot(n, u))
        best, value = choose(other > value, (sign, *n), best), maximum(value, other)
    return best


def capsule_ellipsoid(capsule: Solid, ellipsoid: Solid, margin: Scalar, features: Vec) -> list[GeomContact]:
    (end,), n = split(features, 1, 3)
    u, half = axis(capsule), 0.5 * capsule.size[1]
    at_end: Mask = absolute(end) > 0.5
    d = sub(ellipsoid.center, capsule.center)
    at = Gap((ellipsoid,), along(d, u, -end * half)).refined(n)
    side = along(n, u, -dot(n, u))
    between = Gap((ellipsoid,), d, u).refined(normalised(choose(at_end, default_tangent(u), side)))
    n = choose(at_end, at, between)
    s = select(at_end, end * half, dot(u, sub(d, support((ellipsoid,), n).point)))
    only = _ball(along(capsule.center, u, s), capsule.size[0], ellipsoid, n)
    return [keep(only.dist <= margin, only)]


SPHERE_ELLIPSOID = GeomPair(1, sphere_ellipsoid, search_sphere, continuous=True)
CAPSULE_ELLIPSOID = GeomPair(1, capsule_ellipsoid, search_capsule, continuous=True)
ELLIPSOID_ELLIPSOID = GeomPair(1, ellipsoid_ellipsoid, search_ellipsoids, continuous=True)
