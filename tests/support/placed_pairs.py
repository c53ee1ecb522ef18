"""Pairs of solids for tests of the narrow phase, and checks that hold for every contact point."""

import numpy as np
from hypothesis import strategies as st

from backdrive.differences import central
from backdrive.ir import vjp
from backdrive.physics.geometry.solids import CONTACT_POINT, FAR, Solid

SEEDS = st.integers(0, 2**32 - 1)
NUMBERS = 15  # numbers of a solid
STEP = 1e-6  # step of finite differences


def solid(center, axes=None, size=(1.0, 1.0, 1.0)):
    axes = np.eye(3) if axes is None else axes
    return Solid(*(tuple(np.ravel(np.array(x, float)).tolist()) for x in (center, axes, size)))


def axis_of(s):
    return np.array(s.axes[2::3])


def rotation(rng):
    """Uniform over all rotations."""
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    return q * np.linalg.det(q)


def about_z(angle):
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def about_y(angle):
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])


def moved(s, R, x, plane=False):
    """A solid after a rigid motion p -> R p + x."""
    center, axes = np.array(s.center), np.reshape(s.axes, (3, 3))
    if plane:
        return solid(R @ center, axes, (s.size[0] + (R @ center) @ x, 0.0, 0.0))
    return solid(R @ center + x, R @ axes, s.size)


def numbers(points):
    return [x for t in points for x in t.numbers]


class PlacedPair:
    """A pair of solids, and its contact points as a function of all numbers of the solids: for the same features, or,
    if these are continuous (`ShapePair.continuous`), for those that are found."""

    def __init__(self, pair, a, b, hull_a=None, hull_b=None):
        self.pair, self.x, self.hulls = pair, np.array([*sum(a, ()), *sum(b, ())]), (hull_a, hull_b)
        self.features = self._search(a, b)
        self.points = pair.contacts(a, b, self.features)
        assert len(self.points) == pair.slots
        assert np.isfinite(numbers(self.points)).all()

    def _search(self, a, b):
        return () if self.pair.search is None else self.pair.search(a, b, *self.hulls)

    @property
    def active(self):
        return [t for t in self.points if t.gap < 0.5 * FAR]

    @property
    def gap(self):
        return min(t.gap for t in self.points)

    def at(self, *x, features=None):
        solids = [Solid(x[k : k + 3], x[k + 3 : k + 12], x[k + 12 : k + 15]) for k in (0, NUMBERS)]
        if features is None:
            features = self._search(*solids) if self.pair.continuous else self.features
        return numbers(self.pair.contacts(*solids, features))

    def gradient(self, seeds):
        _, gradient = vjp(lambda *x: self.at(*x, features=self.features), self.x.tolist(), list(seeds))
        assert np.isfinite(gradient).all()
        return np.array(gradient)

    def gradient_of_gap(self, k):
        seeds = np.zeros(CONTACT_POINT * self.pair.slots)
        seeds[CONTACT_POINT * k] = 1.0
        return self.gradient(seeds.tolist())

    @property
    def solids(self):
        return [solid(x[:3], x[3:12], x[12:]) for x in (self.x[:NUMBERS], self.x[NUMBERS:])]

    @property
    def deepest(self):
        """The slot with the least gap."""
        return [t.gap for t in self.points].index(self.gap)

    def check_normals(self, dim=3, slots=None):
        """The normal of a contact point is a unit vector, and the gradient of its gap with respect to a's center."""
        for k in range(self.pair.slots) if slots is None else slots:
            t = self.points[k]
            assert abs(np.linalg.norm(t.normal) - 1.0) < 1e-12
            expected = t.normal if t.gap < 0.5 * FAR else np.zeros(3)
            np.testing.assert_allclose(self.gradient_of_gap(k)[:dim], expected[:dim], rtol=0, atol=1e-9)

    def check_gradient(self, rng, tolerance=1e-7, slots=None):
        """Gradients with respect to all numbers agree with finite differences; those of unused slots are zero."""
        seeds = rng.normal(size=CONTACT_POINT * self.pair.slots)
        if slots is not None:
            seeds[~np.isin(np.arange(len(seeds)) // CONTACT_POINT, slots)] = 0.0
        right = [
            central(lambda e, axis=axis: seeds @ self.at(*(self.x + e * axis)), STEP) for axis in np.eye(2 * NUMBERS)
        ]
        mine = self.gradient(seeds.tolist())
        np.testing.assert_allclose(mine, right, rtol=tolerance, atol=tolerance * (1.0 + np.abs(right).max()))
        for k, t in enumerate(self.points):
            if t.gap > 0.5 * FAR:
                only = np.where(np.arange(len(seeds)) // CONTACT_POINT == k, seeds, 0.0)
                assert (self.gradient(only.tolist()) == 0.0).all()


def check_motion(before, after, R, x):
    """Contact points move along with the solids."""
    for s, t in zip(before.points, after.points):
        assert abs(s.gap - t.gap) < 1e-9
        if s.gap < 0.5 * FAR:
            np.testing.assert_allclose(R @ s.position + x, t.position, rtol=0, atol=1e-7)
            np.testing.assert_allclose(R @ s.normal, t.normal, rtol=0, atol=1e-7)
