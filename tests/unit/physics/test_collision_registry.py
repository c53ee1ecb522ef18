"""The registry of shape pairs, and the bounding volumes of the kinds of shapes."""

import numpy as np
import pytest

from backdrive.ir import Floats
from backdrive.model import Box, Capsule, Circle, Convex, Cylinder, HalfSpace, Polygon, Sphere
from backdrive.model.shapes import BOUND, SHAPE_KINDS, BoundFactors
from backdrive.physics.geometry.narrow_phase import sorted_pairs
from backdrive.physics.geometry.pairs import PAIRS
from backdrive.physics.geometry.solids import Hull, Solid
from backdrive.schema.layout import ShapeKind

TETRAHEDRON = [(0.1, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.7, 0.0), (0.0, 0.0, -0.5)]
BOUNDED = {
    2: [Circle(0.3), Box(0.4, 0.6), Polygon([(0.0, 0.0), (1.0, 0.0), (0.2, 0.8)])],
    3: [Sphere(0.3), Capsule(0.1, 0.5), Cylinder(0.2, 0.3), Box(0.2, 0.3, 0.4), Convex(TETRAHEDRON)],
}
SHAPES = {2: [*BOUNDED[2], HalfSpace((0.0, 1.0))], 3: [*BOUNDED[3], HalfSpace((0.0, 0.0, 1.0))]}
ALL_BOUNDED = pytest.mark.parametrize("shape", BOUNDED[2] + BOUNDED[3], ids=lambda s: f"{type(s).__name__}{s.dim}")


def hull(shape):
    tables = shape.hull()
    if tables is None:
        return None
    return Hull(*(x for table in tables for x in (len(table), Floats(table.ravel()))))


def vertices(shape):
    tables = shape.hull()
    return np.zeros((0, 3)) if tables is None else tables.vertices


@pytest.mark.parametrize("dim", [2, 3])
def test_every_two_shapes_have_a_pair(dim):
    kinds = {(a.kind, b.kind) for a in SHAPES[dim] for b in SHAPES[dim] if a.kind <= b.kind and a.bounded}
    assert set(PAIRS[dim]) == kinds
    assert [kinds for kinds, _ in sorted_pairs(dim)] == sorted(kinds)


@pytest.mark.parametrize("dim", [2, 3])
def test_a_pair_fills_its_slots(dim):
    """Wherever the solids are, there are as many contact points as slots, and as many features as elsewhere."""
    rng = np.random.default_rng(0)
    for a in BOUNDED[dim]:
        for b in SHAPES[dim]:
            pair = PAIRS[dim].get((a.kind, b.kind))
            if pair is None:
                continue
            counts = set()
            for _ in range(3):
                center = rng.normal(size=3) * ([1, 1, 0] if dim == 2 else 1)
                other = (0.0, 0.0, 0.0) if b.bounded else tuple(b.record_position(np.zeros(3)))
                axes = tuple(np.eye(3).ravel().tolist())
                solids = [Solid(tuple(center), axes, tuple(a.size)), Solid(other, axes, tuple(b.size))]
                features = () if pair.search is None else pair.search(*solids, hull(a), hull(b))
                counts.add(len(features))
                points = pair.contacts(*solids, features)
                assert len(points) == pair.slots
                np.testing.assert_allclose([np.linalg.norm(point.normal) for point in points], 1.0, rtol=1e-12)
            assert len(counts) == 1


def test_every_kind_of_shape_has_a_class():
    assert set(SHAPE_KINDS) == set(ShapeKind)
    assert all(shape.kind == kind for kind, shape in SHAPE_KINDS.items())


def surface(shape, rng):
    """Points [n, 3] on the surface of a shape."""
    if shape.kind == ShapeKind.HULL:
        return vertices(shape) * shape.size
    directions = rng.normal(size=(500, 3)) * ([1, 1, 0] if shape.dim == 2 else 1)
    if shape.kind == ShapeKind.CYLINDER:
        directions[:, :2] *= shape.radius / np.linalg.norm(directions[:, :2], axis=1, keepdims=True)
        directions[:, 2] = np.sign(directions[:, 2]) * shape.length / 2
        return directions
    points = shape.radius * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    if shape.kind == ShapeKind.CAPSULE:
        points[:, 2] += np.sign(points[:, 2]) * shape.length / 2
    return points


@ALL_BOUNDED
def test_bounding_volumes_contain_the_shape(shape):
    """Tightly: each face of the box is touched, but for the corners that a few hundred points miss."""
    points = surface(shape, np.random.default_rng(1))
    numbers = shape.bound_factors(vertices(shape))
    assert numbers.shape == (BOUND,)
    bound = BoundFactors.of(numbers)
    center = np.array(bound.center) * shape.size
    half = np.reshape(bound.half, (3, 3)) @ shape.size + bound.rim * shape.size[0]
    reach = np.abs(points - center).max(0)
    assert (reach <= half + 1e-12).all() and (reach[: shape.dim] >= 0.98 * half[: shape.dim]).all()
    radius = np.linalg.norm(points, axis=1).max()
    assert radius <= shape.bounding_radius(shape.size, vertices(shape)) + 1e-12
    lever = shape.lever(shape.size, bound)
    if lever is not None and shape.kind != ShapeKind.CAPSULE:  # that of a capsule is the length of its segment
        assert radius <= lever + 1e-12
