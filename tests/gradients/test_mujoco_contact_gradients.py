"""Derivatives of contacts where MuJoCo has them, with respect to the poses and sizes of the geoms."""

import numpy as np
import pytest
from hypothesis import given, settings
from mujoco_geoms import check_gradient, random_pair
from placed_pairs import SEEDS

from backdrive.physics.geometry.mujoco import GEOM_PAIRS


def name(kinds):
    return "-".join(kind.name.lower() for kind in kinds)


@pytest.mark.parametrize("kinds", GEOM_PAIRS, ids=name)
@given(seed=SEEDS)
@settings(max_examples=15)
def test_contacts_against_differences(kinds, seed):
    """Away from switches: positions, normals, distances and tangents, all inputs at once."""
    rng = np.random.default_rng(seed)
    for _ in range(10):
        if check_gradient(kinds, random_pair(kinds, rng, generic=True), rng):
            break
    else:
        raise AssertionError("no contact in ten random pairs")
