"""The contacts of primitive geoms are those of MuJoCo's narrow phase: number, distances, positions and frames."""

import numpy as np
import pytest
from hypothesis import given, settings
from mujoco_geoms import Geom, compiled_contacts, native, nearly_flat_pair, random_pair, rounding_decides
from placed_pairs import SEEDS, about_y, about_z

from backdrive.physics.geometry.mujoco import GEOM_PAIRS, GeomKind

PLANE, SPHERE, CAPSULE = GeomKind.PLANE, GeomKind.SPHERE, GeomKind.CAPSULE
ELLIPSOID, CYLINDER, BOX = GeomKind.ELLIPSOID, GeomKind.CYLINDER, GeomKind.BOX

ITERATED = [
    (SPHERE, ELLIPSOID), (CAPSULE, ELLIPSOID), (ELLIPSOID, ELLIPSOID), (ELLIPSOID, CYLINDER), (ELLIPSOID, BOX),
    (CAPSULE, CYLINDER), (CYLINDER, CYLINDER), (CYLINDER, BOX),
]  # fmt: skip
"""The pairs for which MuJoCo iterates to a tolerance."""

CLOSED = [kinds for kinds in GEOM_PAIRS if kinds not in ITERATED]

PER_EXAMPLE = 100


def name(kinds):
    return "-".join(kind.name.lower() for kind in kinds)


def disagreements(kinds, cases, tolerances):
    """The cases in which the number of contacts differs, or one of dist, position, normal and frame by more than its
    tolerance."""
    reference = native(kinds)
    found = compiled_contacts(kinds, cases)
    wrong = []
    for k, (case, contacts) in enumerate(zip(cases, found, strict=True)):
        errors = reference.contacts(*case).difference(contacts)
        if errors is None or (errors > tolerances).any():
            wrong.append((k, errors))
    return wrong


@pytest.mark.parametrize("kinds", CLOSED, ids=name)
@given(seed=SEEDS)
@settings(max_examples=10)
def test_random_pairs(kinds, seed):
    """Apart within the margin, touching, deep; with parallel and orthogonal axes, faces on faces, concentric."""
    rng = np.random.default_rng(seed)
    cases = [random_pair(kinds, rng) for _ in range(PER_EXAMPLE)]
    cases = [(a, b, margin) for a, b, margin in cases if not rounding_decides(kinds, a, b)]
    assert disagreements(kinds, cases, 1e-9) == []


def is_unique(kinds, a, b, dist):
    """Whether MuJoCo and the contacts here mean the same: the geoms do not penetrate so deeply that there are several
    ways out, and no cylinder lies nearly flat on the other geom, or parallel to it."""
    cosines = np.abs(a.axes[:, 2] @ (b.axes if kinds[1] == BOX else b.axes[:, 2:]))
    upright = kinds[1] == CYLINDER or kinds[0] == CYLINDER
    if upright and kinds[0] != ELLIPSOID and not ((cosines > 0.1) & (cosines < 0.99)).all():
        return False
    return dist > -0.2 * min(geom.size[:2].min() if geom.kind == CYLINDER else geom.size.min() for geom in (a, b))


@pytest.mark.parametrize("kinds", ITERATED, ids=name)
@given(seed=SEEDS)
@settings(max_examples=10)
def test_pairs_for_which_mujoco_iterates(kinds, seed):
    """Distances to 1e-8, positions and normals to what MuJoCo's tolerance leaves of them."""
    rng = np.random.default_rng(seed)
    cases = [random_pair(kinds, rng, generic=True) for _ in range(PER_EXAMPLE)]
    depths = [min(native(kinds).contacts(*case).dist, default=1.0) for case in cases]
    cases = [case for case, dist in zip(cases, depths, strict=True) if is_unique(kinds, *case[:2], dist)]
    assert len(cases) > PER_EXAMPLE // 4
    assert disagreements(kinds, cases, (1e-8, 1e-4, 1e-3, 1e-3)) == []


@pytest.mark.parametrize("kinds", [(ELLIPSOID, BOX), (ELLIPSOID, CYLINDER)], ids=name)
@given(seed=SEEDS)
@settings(max_examples=5)
def test_ellipsoids_that_penetrate_deeply(kinds, seed):
    """They have a contact wherever MuJoCo has one, in nearly all cases at its distance: the least way out."""
    rng = np.random.default_rng(seed)
    cases = [random_pair(kinds, rng, generic=True) for _ in range(4 * PER_EXAMPLE)]
    touching, same = 0, 0
    for case, mine in zip(cases, compiled_contacts(kinds, cases), strict=True):
        theirs, margin = native(kinds).contacts(*case), case[2]
        if len(theirs.dist) and theirs.dist[0] < margin - 1e-6:
            touching += 1
            assert len(mine.dist) == 1
            same += abs(mine.dist[0] - theirs.dist[0]) < 1e-6
    assert touching > PER_EXAMPLE
    assert same >= 0.98 * touching


@pytest.mark.parametrize("kinds", [(CAPSULE, CYLINDER), (CYLINDER, CYLINDER), (CYLINDER, BOX)], ids=name)
@given(seed=SEEDS)
@settings(max_examples=10)
def test_cylinders_that_lie_flat(kinds, seed):
    """Caps on caps or faces, sides and edges on them, up to a few degrees: number, distances and normals are those of
    MuJoCo; of four contacts, which MuJoCo chooses among more, the normals."""
    rng = np.random.default_rng(seed)
    cases = [nearly_flat_pair(kinds, rng) for _ in range(4 * PER_EXAMPLE)]
    reference = [native(kinds).contacts(*case) for case in cases]
    flat, right = 0, 0
    for theirs, mine in zip(reference, compiled_contacts(kinds, cases), strict=True):
        if len(theirs.dist) == 0 or theirs.dist.min() < -0.02:
            continue
        flat += 1
        if len(theirs.dist) == 4:
            right += 1 < len(mine.dist) <= 4 and np.abs(mine.frame[:, 0] - theirs.frame[0, 0]).max() < 1e-6
        else:
            errors = theirs.difference(mine)
            right += errors is not None and (errors < (1e-4, 2e-3, 1e-3, 1e-3)).all()
    assert flat >= 4
    assert right >= 0.9 * flat - 1  # rounding decides whether a contact is within the margin


LYING = about_y(np.pi / 2).round()
RESTING = {
    "box on box": (BOX, (0.2, 0.2, 0.2), np.eye(3), 0.49, BOX, 4),
    "box on an equal box": (BOX, (0.3, 0.3, 0.3), np.eye(3), 0.59, BOX, 4),
    "box turned by 90 degrees on an equal box": (BOX, (0.3, 0.3, 0.3), about_z(np.pi / 2), 0.59, BOX, 4),
    "box with an edge over that of a box": (BOX, (0.3, 0.2, 0.2), np.eye(3), 0.49, BOX, 4),
    "box with its corners on the edges of a box": (BOX, (0.3 / 2**0.5,) * 3, about_z(np.pi / 4), 0.51, BOX, 4),
    "box turned by 45 degrees on box": (BOX, (0.37, 0.37, 0.2), about_z(np.pi / 4), 0.49, BOX, 8),
    "capsule lying on box": (CAPSULE, (0.1, 0.2, 0.0), LYING, 0.39, BOX, 2),
    "capsule standing on box": (CAPSULE, (0.1, 0.2, 0.0), np.eye(3), 0.59, BOX, 1),
    "capsule lying on the cap of a cylinder": (CAPSULE, (0.1, 0.1, 0.0), LYING, 0.39, CYLINDER, 2),
    "box standing on a cap": (BOX, (0.1, 0.12, 0.2), about_z(0.3), 0.49, CYLINDER, 4),
    "cylinder lying on box": (CYLINDER, (0.1, 0.2, 0.0), LYING, 0.39, BOX, 2),
    "parallel capsules": (CAPSULE, (0.1, 0.2, 0.0), np.eye(3) + 0.0, 0.39, CAPSULE, 2),
}


@pytest.mark.parametrize("case", RESTING)
def test_geoms_at_rest_on_each_other(case):
    """The number of contacts, known, beside that of MuJoCo."""
    kind, size, axes, height, ground, count = RESTING[case]
    upper = Geom(kind, np.array([0.0, 0.0, height]), axes, np.array(size))
    lower = Geom(ground, np.zeros(3), np.eye(3), np.array([0.3, 0.3, 0.3]))
    if kind == ground == CAPSULE:
        upper, lower = (geom._replace(axes=LYING) for geom in (upper, lower))
        upper = upper._replace(position=np.array([0.1, 0.0, height]))
    kinds, cases = (kind, ground), [(upper, lower, 0.0)]
    if kind > ground:
        kinds, cases = (ground, kind), [(lower, upper, 0.0)]
    assert len(compiled_contacts(kinds, cases)[0].dist) == count
    assert disagreements(kinds, cases, 1e-9) == []
