"""Pairs of MuJoCo's geoms at random poses, their contacts in MuJoCo, and those of `physics.geometry.mujoco`."""

from functools import cache
from typing import NamedTuple

import mujoco
import numpy as np
from kernel_helpers import compute, from_function
from placed_pairs import about_z, rotation

from backdrive.differences import central
from backdrive.ir import vjp
from backdrive.physics.geometry.mujoco import GEOM_CONTACT, GEOM_PAIRS, GeomKind
from backdrive.physics.geometry.solids import FAR, Solid

NUMBERS = 15  # numbers of a solid
SQUARE_ANGLES = [np.eye(3)[list(order)] for order in ((0, 1, 2), (1, 2, 0), (2, 0, 1))]


class Geom(NamedTuple):
    """A geom in the world, with sizes as MuJoCo has them (half lengths)."""

    kind: GeomKind
    position: np.ndarray
    axes: np.ndarray
    size: np.ndarray

    @property
    def numbers(self):
        """The numbers of its `Solid`."""
        factors = {
            GeomKind.SPHERE: (1.0, 0.0, 0.0),
            GeomKind.CAPSULE: (1.0, 2.0, 0.0),
            GeomKind.CYLINDER: (1.0, 2.0, 0.0),
            GeomKind.ELLIPSOID: (1.0, 1.0, 1.0),
            GeomKind.BOX: (2.0, 2.0, 2.0),
        }
        if self.kind == GeomKind.PLANE:
            normal = self.axes[:, 2]
            return np.concatenate([normal, np.eye(3).ravel(), [normal @ self.position, 0.0, 0.0]])
        return np.concatenate([self.position, self.axes.ravel(), self.size * factors[self.kind]])

    @property
    def extent(self):
        """Radius of a ball about the center that contains the geom (m)."""
        x, y, z = self.size
        return {
            GeomKind.SPHERE: x,
            GeomKind.CAPSULE: x + y,
            GeomKind.CYLINDER: np.hypot(x, y),
            GeomKind.ELLIPSOID: max(x, y, z),
            GeomKind.BOX: np.linalg.norm(self.size),
        }[self.kind]


class Contacts(NamedTuple):
    """dist [n], position [n, 3], frame [n, 3, 3]: normal, and two tangents."""

    dist: np.ndarray
    position: np.ndarray
    frame: np.ndarray

    def difference(self, other):
        """The largest differences of dist, position, normal and frame, after the contacts were matched by their places;
        nothing if their numbers differ."""
        if len(self.dist) != len(other.dist):
            return None
        left, errors = list(range(len(other.dist))), np.zeros(4)
        for d, p, f in zip(*self):
            apart = [
                abs(other.dist[k] - d) + np.abs(other.position[k] - p).sum() + np.abs(other.frame[k] - f).sum()
                for k in left
            ]
            k = left.pop(int(np.argmin(apart)))
            frame = np.abs(other.frame[k] - f)
            found = (abs(other.dist[k] - d), np.abs(other.position[k] - p).max(), frame[0].max(), frame.max())
            errors = np.maximum(errors, found)
        return errors


class Native:
    """MuJoCo's narrow phase of two geoms."""

    def __init__(self, kinds):
        a, b = (kind.name.lower() for kind in kinds)
        first = f'<geom name="a" type="{a}" size="1 1 1"/>'
        if kinds[0] != GeomKind.PLANE:
            first = f"<body><freejoint/>{first}</body>"
        self.model = mujoco.MjModel.from_xml_string(
            f'<mujoco><worldbody>{first}<body><freejoint/><geom name="b" type="{b}" size="1 1 1"/></body></worldbody>'
            '<contact><pair geom1="a" geom2="b"/></contact></mujoco>'
        )
        self.data = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, self.data)
        self.model.opt.ccd_iterations, self.model.opt.ccd_tolerance = 1000, 1e-10  # by default 35 and 1e-6
        self.model.geom_rbound[:] = [0.0 if kind == GeomKind.PLANE else 1e3 for kind in kinds]

    def contacts(self, a, b, margin):
        model, data = self.model, self.data
        for k, geom in enumerate((a, b)):
            data.geom_xpos[k], data.geom_xmat[k], model.geom_size[k] = geom.position, geom.axes.ravel(), geom.size
        model.pair_margin[0], model.pair_gap[0] = margin, 0.0
        mujoco.mj_collision(model, data)
        found = data.contact
        return Contacts(found.dist.copy(), found.pos.copy(), found.frame.reshape(-1, 3, 3).copy())


native = cache(Native)


def solids(x):
    return [Solid(tuple(x[k : k + 3]), tuple(x[k + 3 : k + 12]), tuple(x[k + 12 : k + 15])) for k in (0, NUMBERS)]


@cache
def kernel(kinds):
    """x = the numbers of two solids, and the margin; y = the numbers of all slots."""
    pair = GEOM_PAIRS[kinds]

    def function(x):
        x = [x[k] for k in range(2 * NUMBERS + 1)]
        a, b, margin = *solids(x), x[-1]
        return [y for c in pair.contacts(a, b, margin, pair.features(a, b, margin)) for y in c.numbers]

    return from_function(function)


def compiled_contacts(kinds, cases):
    """The contacts of many cases (a, b, margin), found by a compiled kernel."""
    slots = GEOM_PAIRS[kinds].slots
    x = np.array([[*a.numbers, *b.numbers, margin] for a, b, margin in cases])
    result = []
    for row in compute(kernel(kinds), x, slots * GEOM_CONTACT).reshape(len(x), slots, GEOM_CONTACT):
        assert np.isfinite(row).all()
        row = row[row[:, 0] < 0.5 * FAR]
        normal, tangent = row[:, 4:7], row[:, 7:10]
        result.append(Contacts(row[:, 0], row[:, 1:4], np.stack([normal, tangent, np.cross(normal, tangent)], 1)))
    return result


# ------------------------------------------------------------------------------------------ random pairs


def square(rng):
    """A rotation by right angles."""
    R = SQUARE_ANGLES[rng.integers(3)] * rng.choice([-1.0, 1.0], 3)
    return R * np.linalg.det(R)


def random_axes(rng):
    """A rotation: any; by right angles; or those, and by a small or a moderate angle about one axis."""
    kind = rng.integers(6)
    if kind < 3:
        return rotation(rng)
    R = square(rng)
    if kind < 5:
        return R
    return R @ about_z(rng.choice([1e-3, 0.1, 0.7]))


def random_size(rng):
    return np.exp(rng.uniform(np.log(0.05), np.log(0.5), 3))


def random_pair(kinds, rng, generic=False):
    """(a, b, margin): apart, touching, deep in each other; and unless `generic`, with parallel or orthogonal axes, at
    right angles, or concentric."""
    a = Geom(kinds[0], rng.normal(size=3) * rng.choice([0.0, 1.0]), random_axes(rng), random_size(rng))
    b = Geom(kinds[1], np.zeros(3), random_axes(rng), random_size(rng))
    if generic:
        a, b = (geom._replace(axes=rotation(rng)) for geom in (a, b))
    elif rng.random() < 0.4 and kinds[0] != GeomKind.PLANE:
        b = b._replace(axes=a.axes @ (random_axes(rng) if rng.random() < 0.5 else np.eye(3)))
    margin = float(rng.choice([0.0, 0.0, 0.02, 0.3]))
    if kinds[0] == GeomKind.PLANE:
        height = rng.uniform(-0.5, 1.1) * b.extent
        return a, b._replace(position=a.position + a.axes @ [*rng.normal(size=2), height]), margin
    direction = rng.normal(size=3)
    direction /= np.linalg.norm(direction)
    exact = all(np.isin(geom.axes, (-1.0, 0.0, 1.0)).all() for geom in (a, b))  # else rounding errors decide ties
    if exact and rng.random() < 0.7:
        direction = a.axes[:, rng.integers(3)] * rng.choice([-1.0, 1.0])
    part = rng.uniform(0.2, 1.1)
    if not generic:
        part = rng.choice([part, rng.uniform(0.5, 1.0), rng.uniform(0.0, 0.2), 0.0], p=[0.5, 0.3, 0.15, 0.05])
    return a, b._replace(position=a.position + part * (a.extent + b.extent) * direction), margin


def nearly_flat_pair(kinds, rng):
    """(a, b, 0): touching, with z axes that are parallel or orthogonal to an axis of the other, up to a few degrees."""
    a, b, _ = random_pair(kinds, rng, generic=True)
    tilt = rng.normal(size=3) * rng.choice([0.001, 0.01, 0.04])
    right_angle = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
    base = np.eye(3) if rng.random() < 0.5 else right_angle
    axes = b.axes @ exponential(tilt) @ about_z(rng.uniform(0.0, 2.0 * np.pi)) @ base
    return a._replace(axes=axes), b, 0.0


def exponential(vector):
    """The rotation by a rotation vector."""
    angle = np.linalg.norm(vector)
    x, y, z = vector / angle
    K = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + np.sin(angle) * K + (1.0 - np.cos(angle)) * K @ K


def rounding_decides(kinds, a, b):
    """Whether MuJoCo's contacts depend on rounding errors: a capsule parallel to edges of a box, or with its center in
    the middle between them; two concentric boxes."""
    axis, center = b.axes.T @ a.axes[:, 2], np.abs(b.axes.T @ (b.position - a.position))
    if kinds == (GeomKind.CAPSULE, GeomKind.BOX):
        return np.abs(axis).max() > 1.0 - 1e-12 or center.min() < 1e-12
    return kinds == (GeomKind.BOX, GeomKind.BOX) and center.max() < 1e-12


# ------------------------------------------------------------------------------------------ gradients


def check_gradient(kinds, case, rng, step=1e-6, tolerance=1e-6, several=False):
    """Check the derivatives of all numbers of the contacts with respect to all of the solids by differences. Returns
    how many contacts there are. several: only if there are more than one, with features that do not change: which of
    many corners are contacts may change anywhere."""
    pair, (a, b, margin) = GEOM_PAIRS[kinds], case
    x = np.concatenate([a.numbers, b.numbers])
    features = pair.features(*solids(x.tolist()), margin)

    def at(*x, features=features):
        return [y for c in pair.contacts(*solids(x), margin, features) for y in c.numbers]

    def found(x):
        x = x.tolist()
        return np.array(at(*x, features=features if several else pair.features(*solids(x), margin)))

    exists = np.array(at(*x.tolist()))[::GEOM_CONTACT] < 0.5 * FAR
    if exists.sum() <= several:
        return 0
    seeds = rng.normal(size=GEOM_CONTACT * pair.slots) * np.repeat(exists, GEOM_CONTACT)
    right = np.array([central(lambda e, axis=axis: seeds @ found(x + e * axis), step) for axis in np.eye(len(x))])
    _, mine = vjp(at, x.tolist(), seeds.tolist())
    assert np.isfinite(mine).all()
    np.testing.assert_allclose(mine, right, rtol=tolerance, atol=tolerance * (1.0 + np.abs(right).max()))
    return int(exists.sum())
