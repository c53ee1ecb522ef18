"""The contacts of primitive geoms are those of MuJoCo's narrow phase: number, distances, positions and frames."""

import numpy as np
import pytest
from hypothesis import given, settings
from mujoco_geoms import compiled_contacts, native, random_pair, rounding_decides
from placed_pairs import SEEDS

from backdrive.physics.geometry.mujoco import GEOM_PAIRS, GeomKind

PLANE, SPHERE, CAPSULE = GeomKind.PLANE, GeomKind.SPHERE, GeomKind.CAPSULE
ELLIPSOID, CYLINDER, BOX = GeomKind.ELLIPSOID, GeomKind.CYLINDER, GeomKind.BOX

PER_EXAMPLE = 100


def name(kinds):
    return "-".join(kind.name.lower() for kind in kinds)


def disagreements(kinds, cases, tolerance):
    """The cases in which the number of contacts differs, or one of their numbers by more than the tolerance."""
    reference = native(kinds)
    found = compiled_contacts(kinds, cases)
    wrong = []
    for k, (case, contacts) in enumerate(zip(cases, found, strict=True)):
        errors = reference.contacts(*case).difference(contacts)
        if errors is None or errors.max() > tolerance:
            wrong.append((k, errors))
    return wrong


@pytest.mark.parametrize("kinds", GEOM_PAIRS, ids=name)
@given(seed=SEEDS)
@settings(max_examples=10)
def test_random_pairs(kinds, seed):
    rng = np.random.default_rng(seed)
    cases = [random_pair(kinds, rng) for _ in range(PER_EXAMPLE)]
    cases = [(a, b, margin) for a, b, margin in cases if not rounding_decides(kinds, a, b)]
    assert disagreements(kinds, cases, 1e-9) == []
