"""Derivatives of contacts where MuJoCo has them, with respect to the poses and sizes of the geoms."""

import numpy as np
import pytest
from hypothesis import given, settings
from mujoco_geoms import Geom, check_gradient, nearly_flat_pair, random_pair, solids
from placed_pairs import SEEDS

from backdrive.ir import vjp
from backdrive.physics.geometry.mujoco import GEOM_CONTACT, GEOM_PAIRS, GeomKind


def name(kinds):
    return "-".join(kind.name.lower() for kind in kinds)


SLOW = [(GeomKind.CYLINDER, GeomKind.CYLINDER), (GeomKind.CYLINDER, GeomKind.BOX)]
PAIRS = [pytest.param(kinds, marks=pytest.mark.slow) if kinds in SLOW else kinds for kinds in GEOM_PAIRS]
FLAT = [
    (GeomKind.CAPSULE, GeomKind.CYLINDER),
    (GeomKind.CYLINDER, GeomKind.CYLINDER),
    (GeomKind.CYLINDER, GeomKind.BOX),
]


@pytest.mark.parametrize("kinds", PAIRS, ids=name)
@given(seed=SEEDS)
@settings(max_examples=8)
def test_contacts_against_differences(kinds, seed):
    """Away from switches: positions, normals, distances and tangents, all inputs at once."""
    rng = np.random.default_rng(seed)
    for _ in range(20):
        if check_gradient(kinds, random_pair(kinds, rng, generic=True), rng):
            break
    else:
        raise AssertionError("no contact in twenty random pairs")


@pytest.mark.parametrize("kinds", FLAT, ids=name)
@given(seed=SEEDS)
@settings(max_examples=4)
def test_flat_contacts_against_differences(kinds, seed):
    """Of cylinders that lie flat on another geom, with several contacts."""
    rng = np.random.default_rng(seed)
    for _ in range(60):
        if check_gradient(kinds, nearly_flat_pair(kinds, rng), rng, several=True) > 1:
            break
    else:
        raise AssertionError("no pair with several contacts in sixty")


@pytest.mark.parametrize("kind", [GeomKind.CAPSULE, GeomKind.CYLINDER])
@pytest.mark.parametrize("tilt", [0.0, 1e-12, 1e-9])
def test_upright_geoms_on_a_plane(kind, tilt):
    """The direction in which they lean has no derivative, but the gradient is finite, and the distance changes by the
    height of the geom and by its length."""
    axes = np.array([[1.0, 0.0, tilt], [0.0, 1.0, 0.0], [-tilt, 0.0, 1.0]])
    plane = Geom(GeomKind.PLANE, np.zeros(3), np.eye(3), np.ones(3))
    geom = Geom(kind, np.array([0.3, 0.2, 0.19]), axes, np.array([0.1, 0.2, 0.0]))
    pair, x = GEOM_PAIRS[GeomKind.PLANE, kind], [*plane.numbers.tolist(), *geom.numbers.tolist()]
    features = pair.features(*solids(x), 0.0)

    def contacts(*x):
        return [y for c in pair.contacts(*solids(x), 0.0, features) for y in c.numbers]

    dist = np.array(contacts(*x))[::GEOM_CONTACT]
    deepest = int(np.argmin(dist))
    every = np.repeat(dist < 1.0, GEOM_CONTACT).astype(float)
    assert np.isfinite(vjp(contacts, x, every.tolist())[1]).all()
    seeds = np.zeros(len(every))
    seeds[GEOM_CONTACT * deepest] = 1.0
    gradient = np.array(vjp(contacts, x, seeds.tolist())[1])[15:]
    np.testing.assert_allclose(gradient[:3], (0.0, 0.0, 1.0), rtol=0, atol=1e-12)
    np.testing.assert_allclose(gradient[13], -0.5, rtol=0, atol=1e-9)
