"""Two boxes touch where two hulls of the same corners do."""

import numpy as np
import pytest

from backdrive.ir import Floats
from backdrive.model.hull import cube
from backdrive.physics.geometry.pairs.boxes import search_boxes
from backdrive.physics.geometry.pairs.hulls import hull_hull, search_hulls
from backdrive.physics.geometry.solids import Hull, Solid

VERTICES, FACES, EDGES = (Floats(table.ravel()) for table in cube())
CUBE = Hull(8, VERTICES, len(cube()[1]), FACES, 12, EDGES)


def rotation(random, size):
    """About a random axis; the angles are of this size (rad)."""
    axis = size * random.normal(size=3)
    angle = np.linalg.norm(axis)
    x, y, z = axis / angle
    K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K


def boxes(random, tilt):
    """Two boxes near each other: face to face but for a tilt, or turned anyhow (tilt None)."""
    sizes = random.uniform(0.1, 0.3, size=(2, 3))
    first = rotation(random, 2.0)
    if tilt is None:
        second, d = rotation(random, 2.0), random.normal(size=3)
        d *= random.uniform(0.05, 0.3) / np.linalg.norm(d)
    else:
        swap = np.eye(3)[random.permutation(3)]
        swap *= np.linalg.det(swap)
        second, k = first @ swap @ rotation(random, tilt), random.integers(3)
        d = random.uniform(-0.1, 0.1, size=3)
        d[k] = random.choice([-1, 1]) * (sizes[0, k] / 2 + abs(swap @ sizes[1])[k] / 2 + random.uniform(-0.02, 0.02))
        d = first @ d
    numbers = [tuple(x.ravel().tolist()) for x in (first, sizes[0], d, second, sizes[1])]
    return Solid((0.0, 0.0, 0.0), *numbers[:2]), Solid(*numbers[2:])


def points(search, a, b):
    found = hull_hull(a, b, search(a, b, CUBE, CUBE))
    return np.array(sorted(t.numbers for t in found if t.gap < 0.03))


@pytest.mark.parametrize("tilt", [None, 1e-3, 0.05, 0.3])
def test_contacts_are_those_of_hulls(tilt):
    """But for a few of which the fourth point is another one of the same face."""
    random, different, kinds = np.random.default_rng(1), 0, set()
    for _ in range(150):
        a, b = boxes(random, tilt)
        hulls, fast = points(search_hulls, a, b), points(search_boxes, a, b)
        kinds.add(len(hulls))
        if hulls.shape != fast.shape or (len(hulls) and np.abs(hulls - fast).max() > 1e-7):
            different += 1
            assert len(fast) and abs(hulls[0, 0] - fast[0, 0]) < 1e-7  # as deep, along the same normal
            assert np.abs(hulls[0, 4:] - fast[0, 4:]).max() < 1e-6
    assert different <= 2
    assert {1, 4} <= kinds
