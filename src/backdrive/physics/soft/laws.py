"""The forces of soft constraints as functions of the residuals x = J a - a_ref of their rows; each is the negative
gradient of a convex cost, and its curvature is the Hessian of that cost.

single rows          f = clip(-D x, low, high): equalities have no bounds, limits only push, joint friction is bounded
pyramidal contacts   every edge n ± μⱼ tⱼ of the pyramid pushes: f = -D min(x, 0) of its residual xₙ ± μⱼ xⱼ
elliptic contacts    with N = μ xₙ, Uⱼ = μⱼ xⱼ, T = |U|:  no force where N ≥ μ T, quadratic where μ N + T ≤ 0, and
                     between the cost is D / (2 μ² (1 + μ²)) (N - μ T)²
"""

from __future__ import annotations

from typing import NamedTuple

from ...ir import Mask, Scalar, clip, is_constant, minimum, select, sqrt
from ..math import spatial as sp
from ..math.spatial import Vec


class SingleLaw(NamedTuple):
    """D, and the bounds of the force."""

    D: Scalar
    low: Scalar
    high: Scalar

    def force(self, x: Scalar) -> Scalar:
        return clip(-(self.D * x), self.low, self.high)

    def curvature(self, x: Scalar) -> Scalar:
        f = -(self.D * x)
        return select((f > self.low) & (f < self.high), self.D, 0.0)

    def mode(self, x: Scalar) -> Scalar:
        """0 if the row does not count, 1 at the lower bound, 2 between, 3 at the upper one."""
        f = -(self.D * x)
        return select(self.D > 0.0, select(f <= self.low, 1.0, select(f < self.high, 2.0, 3.0)), 0.0)


class ContactLaw(NamedTuple):
    """Of the rows of a contact, the normal first: D and coefficients of friction mu. Rows that do not count have D = 0.

    Of a pyramidal contact, D of the normal is that of a frictionless one, otherwise zero. Of an elliptic one, mu of the
    normal is the regularised coefficient; zero if the contact is frictionless. pull (N): a constant force of adhesion
    against the normal.
    """

    D: Vec
    mu: Vec
    pull: Scalar = 0.0

    def force(self, elliptic: bool, x: Vec) -> list[Scalar]:
        normal, *friction = self._elliptic_force(x) if elliptic else self._pyramidal_force(x)
        return [normal if is_constant(self.pull, 0.0) else normal - self.pull, *friction]

    def normal_stiffness(self, elliptic: bool) -> Scalar:
        """The force per residual of the normal, where all edges push."""
        total = self.D[0]
        for D in () if elliptic else self.D[1:]:
            total = total + 2.0 * D
        return total

    def curvature(self, elliptic: bool, x: Vec) -> list[list[Scalar]]:
        """Symmetric, [rows, rows]."""
        return self._elliptic_curvature(x) if elliptic else self._pyramidal_curvature(x)

    def mode(self, elliptic: bool, x: Vec) -> Scalar:
        """A number that changes with the edges that push, or with the zone of the cone; 0 if the contact is off."""
        if elliptic:
            zone = self._zone(x)
            return select(self.D[0] > 0.0, select(zone.free, 1.0, select(zone.inside, 2.0, 3.0)), 0.0)
        total, code = select((self.D[0] > 0.0) & (x[0] < 0.0), 1.0, 0.0), 2.0
        for D, mu, slip in zip(self.D[1:], self.mu[1:], x[1:], strict=True):
            for s in (mu, -mu):
                total, code = total + select((D > 0.0) & (x[0] + s * slip < 0.0), code, 0.0), 2.0 * code
        on: Mask = self.D[0] > 0.0
        for D in self.D[1:]:
            on = on | (D > 0.0)
        return select(on, total + 0.5, 0.0)

    # ---------------------------------------------------------------------------------------- pyramidal

    def _pyramidal_force(self, x: Vec) -> list[Scalar]:
        normal = -(self.D[0] * minimum(x[0], 0.0))
        tangents = []
        for D, mu, slip in zip(self.D[1:], self.mu[1:], x[1:], strict=True):
            plus, minus = (-(D * minimum(x[0] + s * slip, 0.0)) for s in (mu, -mu))
            normal = normal + plus + minus
            tangents.append(mu * (plus - minus))
        return [normal, *tangents]

    def _pyramidal_curvature(self, x: Vec) -> list[list[Scalar]]:
        n = len(x)
        C: list[list[Scalar]] = [[0.0] * n for _ in range(n)]
        C[0][0] = select(x[0] < 0.0, self.D[0], 0.0)
        for j in range(1, n):
            D, mu, slip = self.D[j], self.mu[j], x[j]
            plus, minus = (select(x[0] + s * slip < 0.0, D, 0.0) for s in (mu, -mu))
            C[0][0] = C[0][0] + plus + minus
            C[0][j] = C[j][0] = mu * (plus - minus)
            C[j][j] = mu * mu * (plus + minus)
        return C

    # ---------------------------------------------------------------------------------------- elliptic

    def _zone(self, x: Vec) -> Zone:
        mu = self.mu[0]
        U = [m * s for m, s in zip(self.mu[1:], x[1:], strict=True)]
        square = sp.dot(U, U)
        still = square <= 0.0
        T = sqrt(select(still, 1.0, square))
        length, N = select(still, 0.0, T), mu * x[0]
        smooth = mu <= 0.0
        free = (smooth & (x[0] >= 0.0)) | (~smooth & (mu * length <= N))
        inside = (mu * N + length <= 0.0) | still | smooth
        D = self.D[0] / select(smooth, 1.0, mu * mu * (1.0 + mu * mu))
        direction = [u / T for u in U]
        gradient = [mu, *(-(mu * m * d) for m, d in zip(self.mu[1:], direction, strict=True))]
        return Zone(free, inside, D, N - mu * length, T, direction, gradient)

    def _elliptic_force(self, x: Vec) -> list[Scalar]:
        zone = self._zone(x)
        return [
            select(zone.free, 0.0, select(zone.inside, -(D * s), -(zone.D * zone.excess * g)))
            for D, s, g in zip(self.D, x, zone.gradient, strict=True)
        ]

    def _elliptic_curvature(self, x: Vec) -> list[list[Scalar]]:
        zone, n = self._zone(x), len(x)
        bend = self.mu[0] * zone.excess / zone.T
        C: list[list[Scalar]] = [[0.0] * n for _ in range(n)]
        for i in range(n):
            for j in range(i + 1):
                value = zone.gradient[i] * zone.gradient[j]
                if j > 0:
                    across = (1.0 if i == j else 0.0) - zone.direction[i - 1] * zone.direction[j - 1]
                    value = value - bend * self.mu[i] * self.mu[j] * across
                quadratic = self.D[i] if i == j else 0.0
                value = select(zone.free, 0.0, select(zone.inside, quadratic, zone.D * value))
                C[i][j] = C[j][i] = value
        return C


class Zone(NamedTuple):
    """Where the residual of an elliptic contact is: free of force, or where the cost is quadratic (masks). Otherwise
    the cost is D/2 e² with the excess e = N - μ T, whose gradient is given; direction: U / T."""

    free: Mask
    inside: Mask
    D: Scalar
    excess: Scalar
    T: Scalar
    direction: list[Scalar]
    gradient: list[Scalar]
