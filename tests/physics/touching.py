"""Solids for tests of collision, and what holds for every contact."""

import numpy as np
from hypothesis import strategies as st

from backdrive.differences import central
from backdrive.ir import vjp
from backdrive.physics.geometry.solids import FAR, Solid

SEEDS = st.integers(0, 2**32 - 1)
NUMBERS = 15  # of a solid
STEP = 1e-6  # of differences


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


def numbers(touches):
    return [x for t in touches for x in (t.gap, *t.point, *t.normal)]


class Meeting:
    """A pair of solids, and their contacts as a function of all their numbers, with the features kept."""

    def __init__(self, pair, a, b, hull_a=None, hull_b=None):
        self.pair, self.x = pair, np.array([*sum(a, ()), *sum(b, ())])
        self.features = () if pair.search is None else pair.search(a, b, hull_a, hull_b)
        self.touches = pair.contacts(a, b, self.features)
        assert len(self.touches) == pair.slots
        assert np.isfinite(numbers(self.touches)).all()

    @property
    def active(self):
        return [t for t in self.touches if t.gap < 0.5 * FAR]

    @property
    def gap(self):
        return min(t.gap for t in self.touches)

    def at(self, *x):
        solids = (Solid(x[k : k + 3], x[k + 3 : k + 12], x[k + 12 : k + 15]) for k in (0, NUMBERS))
        return numbers(self.pair.contacts(*solids, self.features))

    def gradient(self, seeds):
        _, gradient = vjp(self.at, self.x.tolist(), list(seeds))
        assert np.isfinite(gradient).all()
        return np.array(gradient)

    def gradient_of_gap(self, k):
        seeds = np.zeros(7 * self.pair.slots)
        seeds[7 * k] = 1.0
        return self.gradient(seeds.tolist())

    @property
    def solids(self):
        return [solid(x[:3], x[3:12], x[12:]) for x in (self.x[:NUMBERS], self.x[NUMBERS:])]

    @property
    def deepest(self):
        """The slot of the least gap."""
        return [t.gap for t in self.touches].index(self.gap)

    def check_normals(self, dim=3, slots=None):
        """A contact's normal is a unit vector, and the gradient of its gap with respect to a's center."""
        for k in range(self.pair.slots) if slots is None else slots:
            t = self.touches[k]
            assert abs(np.linalg.norm(t.normal) - 1.0) < 1e-12
            expected = t.normal if t.gap < 0.5 * FAR else np.zeros(3)
            np.testing.assert_allclose(self.gradient_of_gap(k)[:dim], expected[:dim], rtol=0, atol=1e-9)

    def check_gradient(self, rng, tolerance=1e-7, slots=None):
        """With respect to everything, against differences; nothing of a slot that is not used."""
        seeds = rng.normal(size=7 * self.pair.slots)
        if slots is not None:
            seeds[~np.isin(np.arange(len(seeds)) // 7, slots)] = 0.0
        right = [
            central(lambda e, axis=axis: seeds @ self.at(*(self.x + e * axis)), STEP) for axis in np.eye(2 * NUMBERS)
        ]
        mine = self.gradient(seeds.tolist())
        np.testing.assert_allclose(mine, right, rtol=tolerance, atol=tolerance * (1.0 + np.abs(right).max()))
        for k, t in enumerate(self.touches):
            if t.gap > 0.5 * FAR:
                only = np.where(np.arange(len(seeds)) // 7 == k, seeds, 0.0)
                assert (self.gradient(only.tolist()) == 0.0).all()


def check_motion(before, after, R, x):
    """Contacts move along with the solids."""
    for s, t in zip(before.touches, after.touches):
        assert abs(s.gap - t.gap) < 1e-9
        if s.gap < 0.5 * FAR:
            np.testing.assert_allclose(R @ s.point + x, t.point, rtol=0, atol=1e-7)
            np.testing.assert_allclose(R @ s.normal, t.normal, rtol=0, atol=1e-7)
